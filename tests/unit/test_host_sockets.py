"""Sockets between the host and a core, and the counter that processes share."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
import uuid

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import softmesh as ttnn
from softmesh.errors import ArgumentValueError, MeshError
from softmesh.sockets.core_coord import MeshCoreCoord
from softmesh.sockets.counter import InterProcessCounterChannel
from softmesh.sockets.device_bytes import byte_count, from_bytes, to_bytes
from softmesh.sockets.host_sockets import D2HSocket, H2DMode, H2DSocket
from softmesh.sockets.host_transfers import recv_async_h2d, send_async_d2h
from softmesh.sockets.sending import finish_transfers
from softmesh.tensor.spec import TensorSpec


def at(column: int) -> MeshCoreCoord:
    return MeshCoreCoord(ttnn.MeshCoordinate(0, column), ttnn.CoreCoord(0, 0))


def to_device(mesh: ttnn.MeshDevice, fifo: int = 4096, mode: H2DMode = H2DMode.HOST_PUSH) -> H2DSocket:
    return H2DSocket(mesh, at(1), ttnn.BufferType.L1, fifo, mode)


def host_tensor(
    dtype: ttnn.DataType = ttnn.bfloat16, layout: ttnn.Layout = ttnn.TILE_LAYOUT, seed: int = 0
) -> ttnn.Tensor:
    torch.manual_seed(seed)
    return ttnn.from_torch(torch.randint(0, 100, (2, 40, 48)), dtype=dtype, layout=layout)


def values(tensor: ttnn.Tensor) -> torch.Tensor:
    return ttnn.to_torch(tensor).to(torch.float32)


def shards(tensor: ttnn.Tensor) -> list[torch.Tensor]:
    return [values(shard) for shard in ttnn.get_device_tensors(tensor)]


FORMS = [
    (ttnn.bfloat16, ttnn.TILE_LAYOUT),
    (ttnn.float32, ttnn.ROW_MAJOR_LAYOUT),
    (ttnn.uint16, ttnn.TILE_LAYOUT),
    (ttnn.uint32, ttnn.ROW_MAJOR_LAYOUT),
    (ttnn.int32, ttnn.TILE_LAYOUT),
]


# -- bytes -----------------------------------------------------------------------------------------


@settings(max_examples=30, deadline=None)
@given(
    shape=st.lists(st.integers(1, 70), min_size=1, max_size=3),
    form=st.sampled_from(FORMS),
)
def test_values_survive_as_the_bytes_of_a_chip(
    shape: list[int], form: tuple[ttnn.DataType, ttnn.Layout]
) -> None:
    spec = TensorSpec(shape, *form)
    given_values = torch.randint(0, 200, shape).to(ttnn.to_torch(ttnn.zeros([1], dtype=form[0])).dtype)
    data = to_bytes(given_values.to(torch.float32) if form[0] is ttnn.float32 else given_values, spec)
    assert data.numel() == byte_count(spec)
    assert torch.equal(from_bytes(data, spec).to(torch.int64), given_values.to(torch.int64))


def test_a_tile_is_stored_face_by_face() -> None:
    spec = TensorSpec([32, 32], ttnn.int32, ttnn.TILE_LAYOUT)
    data = to_bytes(torch.arange(1024, dtype=torch.int32).reshape(32, 32), spec).view(torch.int32)
    assert data[15].item() == 15
    assert data[16].item() == 32
    assert data[256].item() == 16
    assert data[512].item() == 16 * 32


def test_rows_are_padded_to_aligned_pages() -> None:
    spec = TensorSpec([2, 3], ttnn.float32, ttnn.ROW_MAJOR_LAYOUT)
    data = to_bytes(torch.tensor([[1.0, 2, 3], [4, 5, 6]]), spec).view(torch.float32)
    assert data.tolist() == [1, 2, 3, 0, 0, 0, 0, 0, 4, 5, 6, 0, 0, 0, 0, 0]


# -- host to device --------------------------------------------------------------------------------


@pytest.mark.parametrize(("dtype", "layout"), FORMS)
def test_a_device_takes_what_the_host_writes(
    pair: ttnn.MeshDevice, dtype: ttnn.DataType, layout: ttnn.Layout
) -> None:
    socket, written = to_device(pair), host_tensor(dtype, layout)
    output = ttnn.allocate_tensor_on_device(written.spec, pair)
    assert recv_async_h2d(output, socket)[0] is output
    socket.write_tensor(written)
    socket.barrier()
    assert torch.equal(shards(output)[1], values(written))
    assert not shards(output)[0].any()


def test_small_writes_may_come_first_and_in_parts(pair: ttnn.MeshDevice) -> None:
    socket = to_device(pair)
    rows = torch.arange(64, dtype=torch.float32).reshape(4, 16)
    socket.write_tensor(rows[:1])
    output = ttnn.zeros((4, 16), dtype=ttnn.float32, layout=ttnn.ROW_MAJOR_LAYOUT, device=pair)
    recv_async_h2d(output, socket)
    with pytest.raises(MeshError, match="nothing was written to this socket"):
        shards(output)
    socket.write_tensor(rows[1:])
    assert torch.equal(shards(output)[1], rows)


def test_a_write_that_nothing_takes_is_refused_before_it_begins(pair: ttnn.MeshDevice) -> None:
    socket, written = to_device(pair), host_tensor()
    with pytest.raises(MeshError, match="do not fit into the FIFO, which holds 4096"):
        socket.write_tensor(written)
    assert socket.stream.held == 0


def test_a_barrier_does_not_wait_for_what_nobody_takes(pair: ttnn.MeshDevice) -> None:
    socket = to_device(pair)
    socket.write_tensor(torch.zeros(16))
    with pytest.raises(MeshError, match="64 bytes were written"):
        socket.barrier(timeout_ms=1)


def test_pages_come_from_a_capsule(pair: ttnn.MeshDevice) -> None:
    socket = to_device(pair)
    rows = torch.arange(16, dtype=torch.float32).reshape(2, 8)
    with pytest.raises(MeshError, match="set_page_size"):
        socket.write(capsule(rows), 2)
    socket.set_page_size(32)
    socket.write(capsule(rows), 2)
    output = ttnn.zeros((2, 8), dtype=ttnn.float32, layout=ttnn.ROW_MAJOR_LAYOUT, device=pair)
    recv_async_h2d(output, socket)
    assert torch.equal(shards(output)[1], rows)
    with pytest.raises(TypeError, match="capsule"):
        socket.write(b"bytes", 2)
    with pytest.raises(TypeError, match="DLPack"):
        socket.write(torch.utils.dlpack.to_dlpack(rows), 2)


def capsule(tensor: torch.Tensor) -> object:
    make = ctypes.pythonapi.PyCapsule_New
    make.restype, make.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
    return make(tensor.data_ptr(), None, None)


def test_a_receive_checks_mode_page_and_owner(pair: ttnn.MeshDevice) -> None:
    output = ttnn.zeros((2, 8), dtype=ttnn.float32, layout=ttnn.ROW_MAJOR_LAYOUT, device=pair)
    with pytest.raises(MeshError, match="HOST_PUSH"):
        recv_async_h2d(output, to_device(pair, mode=H2DMode.DEVICE_PULL))
    socket = to_device(pair)
    socket.set_page_size(64)
    with pytest.raises(MeshError, match="page size is 64, the tensor's aligned page size 32"):
        recv_async_h2d(output, socket)
    socket.export_descriptor("in")
    twin = H2DSocket.connect("in")
    assert twin.get_active_cores() == socket.get_active_cores()
    with pytest.raises(MeshError, match="connect"):
        recv_async_h2d(output, twin)
    twin.write_tensor(torch.ones(16))
    socket.set_page_size(32)
    recv_async_h2d(output, socket)
    assert shards(output)[1].all()
    with pytest.raises(MeshError, match="no socket was exported as 'out'"):
        H2DSocket.connect("out")


# -- device to host --------------------------------------------------------------------------------


@pytest.mark.parametrize(("dtype", "layout"), FORMS)
def test_the_host_reads_what_a_device_sends(
    pair: ttnn.MeshDevice, dtype: ttnn.DataType, layout: ttnn.Layout
) -> None:
    socket = D2HSocket(pair, at(0), 4096)
    sent = host_tensor(dtype, layout)
    assert not socket.has_data()
    assert send_async_d2h(ttnn.to_device(sent, pair), socket) == []
    assert socket.has_data()
    with pytest.raises(MeshError, match="never ends"):
        finish_transfers(pair)
    got = host_tensor(dtype, layout, seed=1)
    socket.read_tensor(got)
    assert torch.equal(values(got), values(sent))
    socket.barrier()
    finish_transfers(pair)


def test_the_host_reads_bytes_into_torch_tensors_and_capsules(pair: ttnn.MeshDevice) -> None:
    socket = D2HSocket(pair, at(1), 4096)
    rows = torch.arange(32, dtype=torch.float32).reshape(4, 8)
    sent = ttnn.from_torch(rows, layout=ttnn.ROW_MAJOR_LAYOUT, device=pair)
    send_async_d2h(sent, socket)
    socket.set_page_size(32)
    first, second = torch.zeros(2, 8), torch.zeros(1, 8)
    socket.read_tensor(first, notify_sender=False)
    socket.read(capsule(second), 1)
    assert torch.equal(torch.cat((first, second)), rows[:3])
    with pytest.raises(MeshError, match="32 bytes were sent and not read"):
        socket.barrier()
    assert socket.discard_pending_pages() == 1
    with pytest.raises(MeshError, match="nothing was sent on this socket"):
        socket.read_tensor(first)


@pytest.mark.parametrize(
    ("core", "fifo", "message"),
    [
        (MeshCoreCoord(ttnn.MeshCoordinate(0, 9), ttnn.CoreCoord(0, 0)), 4096, "not found in mesh"),
        (MeshCoreCoord(ttnn.MeshCoordinate(0, 0), ttnn.CoreCoord(50, 0)), 4096, "No core coordinate"),
        (at(0), 0, "fifo_size must be a positive number"),
    ],
)
def test_a_host_socket_checks_its_core_and_fifo(
    pair: ttnn.MeshDevice, core: MeshCoreCoord, fifo: int, message: str
) -> None:
    with pytest.raises(MeshError, match=message):
        D2HSocket(pair, core, fifo)


def test_block_floats_have_no_bytes_of_their_own(pair: ttnn.MeshDevice) -> None:
    blocks = ttnn.from_torch(torch.ones(32, 32), dtype=ttnn.bfloat8_b, layout=ttnn.TILE_LAYOUT, device=pair)
    with pytest.raises(MeshError, match="typecast"):
        send_async_d2h(blocks, D2HSocket(pair, at(0), 4096))


# -- the counter -----------------------------------------------------------------------------------


@pytest.fixture
def name() -> str:
    return f"/{uuid.uuid4().hex}"


def segment(name: str) -> str:
    return f"/dev/shm/softmesh_counter_{name[1:]}"


def test_one_process_adds_and_another_takes(name: str) -> None:
    channel = InterProcessCounterChannel(name)
    program = (
        "from softmesh.sockets.counter import InterProcessCounterChannel as C\n"
        f"c = C.connect({name!r}, 5000)\nc.inject(3)\nprint(c.pending())"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert done.stdout.strip() == "3", done.stderr
    channel.inject(4)
    assert channel.try_consume_all() == 7
    assert channel.pending() == 0
    assert channel.shm_name == name
    channel.shutdown()
    channel.shutdown()
    assert not os.path.exists(segment(name))


def test_a_counter_says_whether_the_last_one_was_shut_down(name: str) -> None:
    first = InterProcessCounterChannel(name)
    assert first.had_clean_prior_shutdown()
    first.shutdown()
    program = (
        "import os\nfrom softmesh.sockets.counter import InterProcessCounterChannel as C\n"
        f"c = C({name!r})\nos._exit(1)"
    )
    subprocess.run([sys.executable, "-c", program], timeout=60, check=False)
    assert os.path.exists(segment(name))
    second = InterProcessCounterChannel(name)
    assert not second.had_clean_prior_shutdown()
    del second
    assert not os.path.exists(segment(name))


def test_a_counter_that_nobody_made_or_that_ended_is_an_error(name: str) -> None:
    with pytest.raises(MeshError, match="nobody made"):
        InterProcessCounterChannel.connect(name, 1)
    channel = InterProcessCounterChannel(name)
    with pytest.raises(ArgumentValueError, match="0 or more"):
        channel.inject(-1)
    channel.shutdown()
    with pytest.raises(MeshError, match="was shut down"):
        channel.pending()
    for wrong in ("", "a/b", "../x", "a" * 300):
        with pytest.raises(ArgumentValueError, match="shm_name"):
            InterProcessCounterChannel(wrong)
