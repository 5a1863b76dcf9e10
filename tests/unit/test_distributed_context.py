"""The distributed context of a process that is alone, and what can be known of jobs without starting one."""

import subprocess

import numpy as np
import pytest
import torch
from warm_python import warm_python

from softmesh.errors import ArgumentError, ArgumentValueError, MeshError
from softmesh.processes import context_api, current_context
from softmesh.processes.context import SingleProcess, byte_view
from softmesh.processes.context_api import Rank, Size, SubcontextId
from softmesh.processes.subcontext_layout import ID, SIZES, SubcontextLayout, read_layout
from softmesh.processes.wait_report import WaitKind

GETTERS = {
    "get_rank": (),
    "get_size": (),
    "world_rank": (),
    "world_size": (),
    "barrier": (),
    "allgather_int": (7,),
    "send_bytes": (b"x", 0),
    "recv_bytes": (1, 0),
    "subcontext_id": (),
    "subcontext_count": (),
    "subcontext_sizes": (),
    "subcontext_size": (0,),
    "local_to_world_rank": (0, 0),
}


@pytest.fixture(autouse=True)
def not_initialized(monkeypatch):
    monkeypatch.setattr(current_context._Current, "world", None)
    monkeypatch.setattr(current_context._Current, "current", None)
    for name in (*current_context._LAUNCHED_BY, ID, SIZES):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def alone():
    context_api.init_distributed_context()
    return current_context.world_context()


@pytest.mark.parametrize("kind", [Rank, Size, SubcontextId])
def test_a_wrapped_number_prints_converts_and_equals_only_its_own_kind(kind):
    assert repr(kind(3)) == f"{kind.__name__}(3)"
    assert str(kind(3)) == "3"
    assert int(kind(3)) == 3
    assert kind(3) == kind(3)
    assert kind(3) != kind(4)
    assert kind(3) != 3
    assert len({kind(3), kind(3), kind(4)}) == 2


def test_ranks_and_sizes_are_ordered_but_not_with_each_other():
    assert Rank(1) < Rank(2)
    assert Size(2) >= Size(2)
    with pytest.raises(TypeError):
        sorted([Rank(1), Size(2)])
    with pytest.raises(TypeError):
        sorted([SubcontextId(1), SubcontextId(2)])


def test_a_rank_is_no_list_index():
    with pytest.raises(TypeError):
        [1, 2, 3][Rank(1)]


@pytest.mark.parametrize("value", ["3", 3.0, None, True])
def test_a_rank_is_made_of_an_integer_only(value):
    with pytest.raises(ArgumentError, match="value must be an int"):
        Rank(value)


@pytest.mark.parametrize(("name", "arguments"), GETTERS.items())
def test_every_getter_asks_for_initialisation_first(name, arguments):
    with pytest.raises(RuntimeError, match=r"Call init_distributed_context\(\) first\."):
        getattr(context_api, f"distributed_context_{name}")(*arguments)


def test_initialisation_is_told_and_idempotent():
    assert not context_api.distributed_context_is_initialized()
    assert not context_api.using_distributed_env()
    assert context_api.init_distributed_context() is None
    first = current_context.current_world()
    context_api.init_distributed_context()
    assert current_context.current_world() is first
    assert context_api.distributed_context_is_initialized()
    assert not context_api.using_distributed_env()


def test_one_process_is_rank_0_of_1(alone):
    assert context_api.distributed_context_get_rank() == Rank(0) == context_api.distributed_context_world_rank()
    assert context_api.distributed_context_get_size() == Size(1) == context_api.distributed_context_world_size()
    assert context_api.distributed_context_barrier() is None
    assert context_api.distributed_context_allgather_int(7) == [7]
    assert context_api.distributed_context_subcontext_id() is None
    assert context_api.distributed_context_subcontext_count() == 1
    assert context_api.distributed_context_subcontext_sizes() == [1]
    assert context_api.distributed_context_subcontext_size(SubcontextId(0)) == Size(1)
    assert context_api.distributed_context_local_to_world_rank(0, 0) == Rank(0)


def test_numbers_out_of_range_are_index_errors_with_the_range(alone):
    with pytest.raises(IndexError, match=r"^subcontext_id out of range: expected 0 <= subcontext_id < 1, got 3$"):
        context_api.distributed_context_subcontext_size(3)
    words = r"^local_rank out of range for subcontext 0: expected 0 <= local_rank < 1, got 9$"
    with pytest.raises(IndexError, match=words):
        context_api.distributed_context_local_to_world_rank(0, 9)


@pytest.mark.parametrize(
    ("call", "error"),
    [
        (lambda: context_api.distributed_context_allgather_int("7"), ArgumentError),
        (lambda: context_api.distributed_context_allgather_int(2**63), ArgumentValueError),
        (lambda: context_api.distributed_context_send_bytes("text", 0), ArgumentError),
        (lambda: context_api.distributed_context_recv_bytes(-1, 0), ArgumentValueError),
        (lambda: context_api.distributed_context_recv_bytes(2**60, 0), ArgumentValueError),
        (lambda: context_api.distributed_context_recv_bytes(1, 0, tag=2**31 - 1), ArgumentValueError),
        (lambda: context_api.distributed_context_send_bytes(b"", 0, tag=2**40), ArgumentValueError),
        (lambda: context_api.distributed_context_send_bytes(b"", 0, tag=-1), ArgumentValueError),
        (lambda: context_api.distributed_context_subcontext_size(0.5), ArgumentError),
    ],
)
def test_arguments_of_the_wrong_kind_are_refused(alone, call, error):
    with pytest.raises(error):
        call()


@pytest.mark.parametrize(
    ("method", "arguments"),
    [
        ("send", (b"x", 0)),
        ("recv", (bytearray(1), 0)),
        ("broadcast", (bytearray(1), 0)),
        ("all_to_all", (b"", bytearray())),
        ("duplicate", ()),
        ("create_sub_context", ([0],)),
    ],
)
def test_what_needs_another_process_is_refused_by_name(alone, method, arguments):
    with pytest.raises(MeshError, match=f"method {method} is unsupported for single-host distributed contexts"):
        getattr(alone, method)(*arguments)


def test_one_process_gathers_itself_and_splits_into_itself(alone):
    target = torch.zeros(4, dtype=torch.bfloat16)
    alone.allgather(torch.ones(4, dtype=torch.bfloat16), target)
    assert target.tolist() == [1.0] * 4
    assert [bytes(block) for block in alone.allgather_bytes(b"abc")] == [b"abc"]
    assert alone.split(5, 0) is alone
    assert alone.translate_ranks_to_other_ctx([0], alone) == [0]
    with pytest.raises(MeshError, match="rank 1 is outside of the context"):
        alone.translate_ranks_to_other_ctx([1], alone)


def test_one_process_shares_memory_with_itself(alone):
    memory = alone.shared_array(16)
    memory.blocks[0][:] = 3
    assert alone.one_host
    assert memory.blocks[0].sum() == 48
    memory.close()
    assert memory.blocks == ()


def test_collectives_are_numbered_for_the_reports(alone):
    numbers = [alone.collective("all_reduce").report().sequence for _ in range(3)]
    assert numbers == [1, 2, 3]
    wait = alone.with_peer("send", WaitKind.SEND, 0, tag=4).report()
    assert (wait.peer, wait.tag, wait.group) == (0, 4, "world")


def test_the_current_world_can_be_replaced_while_the_whole_world_stays(alone):
    other = SingleProcess()
    current_context.set_current_world(other)
    assert current_context.current_world() is other
    assert current_context.world_context() is alone


@pytest.mark.parametrize("name", ["OMPI_COMM_WORLD_SIZE", "PMIX_RANK", "PMI_SIZE"])
def test_a_launcher_is_known_by_what_it_leaves_in_the_environment(name):
    assert current_context.launched({name: "0"})
    assert not current_context.launched({"PATH": "/bin"})


def test_a_job_that_is_not_split_is_one_context():
    assert read_layout({}, 4) == SubcontextLayout((4,), None)
    assert read_layout({SIZES: "1,2"}, 4).sizes == (4,)


def test_the_ranks_of_sub_contexts_follow_each_other_in_the_world():
    layout = read_layout({ID: "1", SIZES: "2,3,1"}, 6)
    assert (layout.id, layout.size(1)) == (1, 3)
    assert [layout.world_rank(1, local) for local in range(3)] == [2, 3, 4]
    assert layout.world_rank(2, 0) == 5


@pytest.mark.parametrize(
    ("id", "sizes", "words"),
    [
        ("0", None, "TT_RUN_SUBCONTEXT_ID is set but TT_RUN_SUBCONTEXT_SIZES is missing"),
        ("one", "2,2", "Invalid TT_RUN_SUBCONTEXT_ID (expected integer): 'one'"),
        ("-1", "2,2", "Invalid TT_RUN_SUBCONTEXT_ID (must not be negative): -1"),
        ("0", "2,0", "TT_RUN_SUBCONTEXT_SIZES: sizes must be positive"),
        ("0", "2,x", "TT_RUN_SUBCONTEXT_SIZES: sizes must be positive"),
        ("0", "2,,2", "TT_RUN_SUBCONTEXT_SIZES: sizes must be positive"),
        ("2", "2,2", "TT_RUN_SUBCONTEXT_ID 2 out of range for 2 sub-contexts"),
        ("0", "2,3", "TT_RUN_SUBCONTEXT_SIZES sum 5 does not match MPI_COMM_WORLD size 4"),
    ],
)
def test_a_split_that_cannot_be_is_refused_with_the_variable(id, sizes, words):
    environ = {ID: id, **({} if sizes is None else {SIZES: sizes})}
    with pytest.raises(MeshError) as raised:
        read_layout(environ, 4)
    assert str(raised.value).startswith(words)


def test_the_bytes_of_a_tensor_are_its_memory_whatever_its_type():
    tensor = torch.zeros(2, 3, dtype=torch.bfloat16)
    view = byte_view(tensor, written=True)
    view[1] = 0x40
    assert len(view) == 12
    assert tensor[0, 0].item() == 2.0
    assert len(byte_view(torch.empty(0, 4))) == 0
    assert bytes(byte_view(np.arange(3, dtype=np.uint8))) == b"\0\1\2"


@pytest.mark.parametrize("buffer", [torch.zeros(4, 4).T, np.zeros((4, 4)).T[1:]])
def test_memory_with_gaps_does_not_travel(buffer):
    with pytest.raises(MeshError, match="must be contiguous"):
        byte_view(buffer)


def test_nothing_is_received_into_constants():
    with pytest.raises(MeshError, match="must be writable"):
        byte_view(b"constant", written=True)


def test_a_process_that_is_alone_never_loads_mpi():
    program = (
        "import sys, softmesh\n"
        "from softmesh.processes import context_api, explainer\n"
        "context_api.init_distributed_context()\n"
        "assert not [name for name in sys.modules if name.startswith('mpi4py')]\n"
    )
    environ = {"PATH": "/usr/bin:/bin"}
    subprocess.run([*warm_python(), "-c", program], check=True, timeout=120, env=environ)
