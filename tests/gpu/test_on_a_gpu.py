"""What only a GPU can show: graphs, streams, its own kernels. `make test-gpu` runs it, with the laws, on a card."""

from __future__ import annotations

import warnings
from collections.abc import Iterator

import pytest
import torch
import torch.nn.functional as F

import softmesh as ttnn
from softmesh.errors import GpuRemark, OutOfGpuMemory
from softmesh.native.gpu_kernels import gpu_rotation
from softmesh.ops.embedding import rotary_embedding

pytestmark = pytest.mark.skipif(
    not torch.cuda.is_available(), reason=f"torch {torch.__version__} finds no GPU on this machine"
)


@pytest.fixture
def mesh(monkeypatch: pytest.MonkeyPatch) -> Iterator[ttnn.MeshDevice]:
    monkeypatch.setenv("SOFTMESH_DEVICE", "cuda")
    ttnn.set_fabric_config(ttnn.FabricConfig.FABRIC_1D)
    with ttnn.create_mesh_device(ttnn.MeshShape(1, 8), num_command_queues=2) as mesh:
        yield mesh
    ttnn.set_fabric_config(ttnn.FabricConfig.DISABLED)


def put(values: torch.Tensor, mesh: ttnn.MeshDevice, split: int | None = None) -> ttnn.Tensor:
    mapper = ttnn.ReplicateTensorToMesh(mesh) if split is None else ttnn.ShardTensorToMesh(mesh, dim=split)
    return ttnn.from_torch(values, ttnn.bfloat16, layout=ttnn.TILE_LAYOUT, device=mesh, mesh_mapper=mapper)


def first(tensor: ttnn.Tensor) -> torch.Tensor:
    return ttnn.to_torch(ttnn.get_device_tensors(tensor)[0])


@pytest.mark.parametrize("rows", [64, 2048])  # torch's kernels, and ours
@pytest.mark.parametrize("activation", [None, "gelu", "silu", "relu", "tanh"])
def test_a_tensor_parallel_linear_is_rounded_once(mesh: ttnn.MeshDevice, rows: int, activation: str | None):
    x, w = torch.randn(rows, 512).bfloat16(), (torch.randn(512, 2048) / 16).bfloat16()
    b = torch.randn(1, 2048).bfloat16()
    made = ttnn.linear(put(x, mesh), put(w, mesh, 1), bias=put(b, mesh, 1), activation=activation)
    exact = x.double() @ w.double() + b.double()
    if activation is not None:
        exact = getattr(F, activation)(exact) if activation != "tanh" else exact.tanh()
    torch.testing.assert_close(ttnn.compose(made).double(), exact, rtol=2**-8, atol=2**-12)


@pytest.mark.parametrize("rows", [4, 4096])
def test_sums_and_gelu_of_our_own_kernels_are_those_of_fp32(mesh: ttnn.MeshDevice, rows: int):
    x = torch.randn(8, rows, 1024).bfloat16()
    x[0, 0, :3] = torch.tensor([float("inf"), float("nan"), -20.0])
    held = put(x, mesh, 0)
    total = first(ttnn.all_reduce(held))
    torch.testing.assert_close(total[0, 1:], x.float().sum(0).bfloat16()[1:], rtol=2**-7, atol=2**-8)
    found = ttnn.compose(ttnn.gelu(held))
    expected = F.gelu(x.double())
    torch.testing.assert_close(found.double(), expected, rtol=2**-7, atol=1e-6, equal_nan=True)


# What is turned lies where the trace had a result that was freed: said of chips, and here it keeps its values.
@pytest.mark.filterwarnings("ignore:compose. the tensor .* is made of memory that a replay has written over")
def test_a_replay_reads_what_was_written_in_place_and_keeps_what_others_hold(mesh: ttnn.MeshDevice):
    x, w = put(torch.randn(32, 64), mesh), put(torch.randn(64, 64), mesh, 1)

    def work() -> ttnn.Tensor:
        return ttnn.silu(ttnn.linear(x, w))

    work()
    trace = ttnn.begin_trace_capture(mesh, cq_id=0)
    out = work()
    ttnn.end_trace_capture(mesh, trace, cq_id=0)
    turned = None
    for _ in range(5):
        ttnn.copy_host_to_device_tensor(ttnn.from_torch(torch.randn(32, 64), ttnn.bfloat16, layout=ttnn.TILE_LAYOUT), x)
        before = None if turned is None else ttnn.compose(turned)
        ttnn.execute_trace(mesh, trace, cq_id=0, blocking=True)
        if turned is not None:
            assert torch.equal(ttnn.compose(turned), before)  # a view of the last result, not of this one
        torch.testing.assert_close(ttnn.compose(out), ttnn.compose(work()), rtol=2**-7, atol=2**-8)
        turned = ttnn.transpose(out, 0, 1)


def test_a_replay_goes_on_from_the_state_that_the_last_one_left(mesh: ttnn.MeshDevice):
    count = ttnn.from_torch(torch.zeros(1, 32), ttnn.int32, device=mesh, mesh_mapper=ttnn.ReplicateTensorToMesh(mesh))
    ttnn.plus_one(count)
    trace = ttnn.begin_trace_capture(mesh, cq_id=0)
    ttnn.plus_one(count)
    ttnn.end_trace_capture(mesh, trace, cq_id=0)
    for number in range(2, 7):
        ttnn.execute_trace(mesh, trace, cq_id=0, blocking=True)
        assert int(first(count)[0, 0]) == number


def test_a_step_that_reads_back_cuts_the_graph_and_is_named(mesh: ttnn.MeshDevice, monkeypatch: pytest.MonkeyPatch):
    real = F.layer_norm

    def reading_back(x: torch.Tensor, *more: object) -> torch.Tensor:
        assert x.sum().item() is not None
        return real(x, *more)

    monkeypatch.setattr(F, "layer_norm", reading_back)
    x = put(torch.randn(32, 96), mesh)

    def work() -> ttnn.Tensor:
        return ttnn.add(ttnn.layer_norm(ttnn.add(x, x)), 1.0)

    expected = ttnn.compose(work())
    trace = ttnn.begin_trace_capture(mesh, cq_id=0)
    out = work()
    ttnn.end_trace_capture(mesh, trace, cq_id=0)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        for _ in range(4):
            ttnn.execute_trace(mesh, trace, cq_id=0, blocking=True)
            assert torch.equal(ttnn.compose(out), expected)
    (remark,) = [str(one.message) for one in told if issubclass(one.category, GpuRemark)]
    assert "is replayed as 2 CUDA graphs, cut at 1 of its 3 steps" in remark
    assert "layer_norm: " in remark
    assert torch.cuda.current_stream() == torch.cuda.default_stream()


def test_queues_are_streams_and_events_order_them(mesh: ttnn.MeshDevice):
    a = put(torch.zeros(256, 256), mesh)
    for number in range(20):
        host = ttnn.from_torch(torch.full((256, 256), float(number)), ttnn.bfloat16, layout=ttnn.TILE_LAYOUT)
        ttnn.copy_host_to_device_tensor(host, a, cq_id=1)
        ttnn.wait_for_event(0, ttnn.record_event(mesh, 1))
        b = ttnn.add(a, 1.0)
        ttnn.wait_for_event(1, ttnn.record_event(mesh, 0))
        assert bool((first(b) == number + 1).all())
    usual = torch.cuda.current_stream()
    with ttnn.command_queue(1):
        assert torch.cuda.current_stream() != usual
    assert torch.cuda.current_stream() == usual


def test_a_full_card_is_told_with_its_sizes_and_loses_nothing(mesh: ttnn.MeshDevice):
    a = put(torch.ones(1024, 1024), mesh)
    kept = ttnn.add(a, 1.0)
    held: list[ttnn.Tensor] = []

    def fill_the_card() -> None:
        while True:
            held.append(ttnn.add(a, 1.0))

    share = (torch.cuda.memory_reserved() + (64 << 20)) / torch.cuda.mem_get_info()[1]
    torch.cuda.set_per_process_memory_fraction(share)
    try:
        with pytest.raises(OutOfGpuMemory, match=r"are free .*hold tensors.*each of these has .* DRAM left"):
            fill_the_card()
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)
    assert bool((first(kept) == 2).all())
    assert bool((first(ttnn.add(a, 2.0)) == 3).all())


def test_a_graph_rotates_heads_in_one_kernel(mesh: ttnn.MeshDevice, monkeypatch: pytest.MonkeyPatch):
    """That the matrix turns neighbouring columns was read back before the capture, which cannot read it."""
    made: list[bool] = []

    def counted(*values: torch.Tensor) -> torch.Tensor | None:
        found = gpu_rotation(*values)
        made.append(found is not None)
        return found

    monkeypatch.setattr(rotary_embedding, "gpu_rotation", counted)
    turn = torch.zeros(1, 1, 32, 32)
    even = torch.arange(0, 32, 2)
    turn[..., even, even + 1], turn[..., even + 1, even] = 1.0, -1.0
    x, cos, sin = (put(torch.randn(1, 8, 1, 64), mesh) for _ in range(3))
    matrix = put(turn, mesh)

    def work() -> ttnn.Tensor:
        return ttnn.experimental.rotary_embedding_llama(x, cos, sin, matrix, is_decode_mode=True)

    eager = first(work())
    trace = ttnn.begin_trace_capture(mesh, cq_id=0)
    held = work()
    ttnn.end_trace_capture(mesh, trace, cq_id=0)
    made.clear()
    for _ in range(3):  # compiles, captures, launches
        ttnn.execute_trace(mesh, trace, cq_id=0, blocking=True)
    assert made == [True, True]
    torch.testing.assert_close(first(held), eager, rtol=2**-7, atol=2**-8)
