"""Sockets between the host and a core, and the counter that processes share."""

from __future__ import annotations

import ctypes
import os
import re
import subprocess
import time
import uuid
from collections.abc import Callable

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from warm_python import warm_python

import softmesh as ttnn
from softmesh.errors import ArgumentValueError, MeshError, SoftmeshWarning
from softmesh.sockets.byte_stream import byte_count, from_bytes, to_bytes
from softmesh.sockets.counter_channel import InterProcessCounterChannel
from softmesh.sockets.host_send_recv import recv_async_h2d, send_async_d2h
from softmesh.sockets.host_sockets import D2HSocket, H2DMode, H2DSocket
from softmesh.sockets.send_recv import finish_transfers
from softmesh.sockets.socket_config import MeshCoreCoord
from softmesh.sockets.stream_services import D2HStreamService, H2DStreamService
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
    (ttnn.bfloat8_b, ttnn.TILE_LAYOUT),
    (ttnn.bfloat4_b, ttnn.TILE_LAYOUT),
]
PLAIN_FORMS = FORMS[:-2]


# -- bytes -----------------------------------------------------------------------------------------


@settings(max_examples=30, deadline=None)
@given(
    shape=st.lists(st.integers(1, 70), min_size=1, max_size=3),
    form=st.sampled_from(PLAIN_FORMS),
)
def test_values_survive_as_the_bytes_of_a_chip(shape: list[int], form: tuple[ttnn.DataType, ttnn.Layout]) -> None:
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


@settings(max_examples=40, deadline=None)
@given(
    shape=st.lists(st.integers(1, 70), min_size=1, max_size=2),
    dtype=st.sampled_from([ttnn.bfloat8_b, ttnn.bfloat4_b]),
    scale=st.sampled_from([1.0, 1e-37, 1e30]),
    special=st.sampled_from([0.0, float("inf"), float("-inf"), float("nan")]),
)
def test_block_floats_survive_as_bytes_whatever_shares_their_exponent(
    shape: list[int], dtype: ttnn.DataType, scale: float, special: float
) -> None:
    given_values = torch.randn(shape) * scale * torch.exp2(torch.randint(-9, 9, shape))
    given_values.view(-1)[0] = special
    tensor = ttnn.from_torch(given_values, dtype=dtype, layout=ttnn.TILE_LAYOUT)
    held = tensor.pieces()[0]
    data = to_bytes(held, tensor.spec)
    assert data.numel() == byte_count(tensor.spec)
    assert torch.equal(from_bytes(data, tensor.spec).view(torch.int16), held.view(torch.int16))


@pytest.mark.parametrize(
    ("dtype", "exponent", "elements"),
    [
        (ttnn.bfloat8_b, 135, [0x80 | 1, 75]),
        (ttnn.bfloat4_b, 135, [0x50]),
    ],  # 0 and 5 * 64, in half a byte each
)
def test_a_block_float_tile_is_exponents_then_signs_and_mantissas(
    dtype: ttnn.DataType, exponent: int, elements: list[int]
) -> None:
    tensor = ttnn.from_torch(torch.tensor([[-3.5, 300.7]]), dtype=dtype, layout=ttnn.TILE_LAYOUT)
    data = to_bytes(tensor.pieces()[0], tensor.spec)
    assert data[:64].tolist() == [exponent] + [0] * 63
    assert data[64:][: len(elements)].tolist() == elements
    assert not data[64 + len(elements) :].any()


def test_what_pads_a_tile_takes_part_in_its_exponents() -> None:
    tensor = ttnn.from_torch(torch.full((1, 3), 0.01), dtype=ttnn.bfloat8_b, layout=ttnn.TILE_LAYOUT, pad_value=1000)
    data = to_bytes(tensor.pieces()[0], tensor.spec)
    assert (data[:64] == 127 + 9).all()
    assert data[64:70].tolist() == [0, 0, 0, 125, 125, 125]  # 125 * 8


# -- host to device --------------------------------------------------------------------------------


@pytest.mark.parametrize(("dtype", "layout"), FORMS)
def test_a_device_takes_what_the_host_writes(pair: ttnn.MeshDevice, dtype: ttnn.DataType, layout: ttnn.Layout) -> None:
    socket, written = to_device(pair), host_tensor(dtype, layout)
    output = ttnn.allocate_tensor_on_device(written.spec, pair)
    assert recv_async_h2d(output, socket)[0] is output
    socket.write_tensor(written)
    socket.barrier()
    other, there = ttnn.get_device_tensors(output)
    assert torch.equal(ttnn.to_torch(there), values(written))
    with pytest.warns(SoftmeshWarning, match="made of memory that nothing was written to"):
        assert not ttnn.to_torch(other).any()


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
    assert socket.stream.buffered == 0


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
    with pytest.raises(MeshError, match="nothing was exported as 'out'"):
        H2DSocket.connect("out", timeout_ms=1)


# -- device to host --------------------------------------------------------------------------------


@pytest.mark.parametrize(("dtype", "layout"), FORMS)
def test_the_host_reads_what_a_device_sends(pair: ttnn.MeshDevice, dtype: ttnn.DataType, layout: ttnn.Layout) -> None:
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


# -- another process -------------------------------------------------------------------------------

_OTHER = """
import os, sys, torch
import softmesh as ttnn
from softmesh.sockets.stream_services import D2HStreamService, H2DStreamService

name = sys.argv[1]
there, back = ttnn.D2HSocket.connect(name + ".out", 20000), ttnn.H2DSocket.connect(name + ".in", 20000)
print(there.get_active_cores(), back.get_h2d_mode(), back.get_page_size(), flush=True)
rows = torch.zeros(50, 64)
for _ in range(5):
    there.read_tensor(rows)
    back.write_tensor(rows * 2)
blocks = ttnn.from_torch(torch.zeros(64, 64), dtype=ttnn.bfloat8_b, layout=ttnn.TILE_LAYOUT)
there.read_tensor(blocks)
back.write_tensor(blocks)
back.barrier(20000)
service = H2DStreamService.connect(name + ".service", 20000)
service.forward_to_tensor(blocks, b"beside")
service.barrier()
answer = D2HStreamService.connect(name + ".answer", 20000)
assert answer.read_from_tensor(blocks) == b"", "no metadata"
print(ttnn.to_torch(blocks).sum().item(), flush=True)
mesh = ttnn.open_mesh_device(ttnn.MeshShape(1, 1))
core = ttnn.MeshCoreCoord(ttnn.MeshCoordinate(0, 0), ttnn.CoreCoord(0, 0))
own = ttnn.H2DSocket(mesh, core, ttnn.BufferType.L1, 64, ttnn.H2DMode.HOST_PUSH)
own.export_descriptor(name + ".own")
print("exported", flush=True)
sys.stdin.readline()
os._exit(0)  # takes nothing away
"""


def test_a_process_without_the_mesh_reads_and_writes_what_another_exports(pair: ttnn.MeshDevice) -> None:
    name = uuid.uuid4().hex
    socket_in, socket_out = to_device(pair, fifo=5000), D2HSocket(pair, at(0), 4096)
    socket_in.set_page_size(256)
    socket_in.export_descriptor(f"{name}.in")
    socket_out.export_descriptor(f"{name}.out")
    service, answer = services(pair)
    service.export_descriptor(f"{name}.service")
    answer.export_descriptor(f"{name}.answer")
    other = subprocess.Popen(
        [*warm_python(), "-c", _OTHER, name], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        sent = _talk(pair, socket_in, socket_out)
        _stream(service, answer, sent)
        _outlive(other, name)
    finally:
        other.kill()
        other.communicate()


def services(mesh: ttnn.MeshDevice) -> tuple[H2DStreamService, D2HStreamService]:
    spec, mapper = TensorSpec([64, 64], ttnn.bfloat8_b, ttnn.TILE_LAYOUT), ttnn.ShardTensorToMesh(mesh, dim=0)
    there = H2DStreamService(mesh, spec, mapper=mapper, metadata_size_bytes=6)
    return there, D2HStreamService(mesh, spec, 1, mapper=mapper)


def _stream(service: H2DStreamService, answer: D2HStreamService, sent: torch.Tensor) -> None:
    """A whole tensor comes and is split; a whole one goes."""
    end = time.monotonic() + 60
    backing = service.get_backing_tensor()
    while service.metadata != b"beside" and time.monotonic() < end:
        backing = service.get_backing_tensor()
    assert torch.equal(torch.cat(shards(backing)), sent)
    ones = ttnn.ones((32, 64), dtype=ttnn.bfloat8_b, layout=ttnn.TILE_LAYOUT)
    for shard in ttnn.get_device_tensors(answer.get_backing_tensor()):
        ttnn.copy_host_to_device_tensor(ones, shard)
    answer.notify_backing_ready()
    answer.barrier(20000)


def _talk(mesh: ttnn.MeshDevice, socket_in: H2DSocket, socket_out: D2HSocket) -> torch.Tensor:
    """Messages larger than the FIFOs, and then block floats."""
    for seed in range(5):
        rows = torch.randn(50, 64, generator=torch.Generator().manual_seed(seed))
        sent = ttnn.from_torch(rows, device=mesh, layout=ttnn.ROW_MAJOR_LAYOUT)
        output = ttnn.allocate_tensor_on_device(sent.spec, mesh)
        send_async_d2h(sent, socket_out)
        recv_async_h2d(output, socket_in)
        assert torch.equal(values(ttnn.get_device_tensors(output)[1]), rows * 2)
    blocks = ttnn.from_torch(torch.randn(64, 64), dtype=ttnn.bfloat8_b, layout=ttnn.TILE_LAYOUT, device=mesh)
    output = ttnn.allocate_tensor_on_device(blocks.spec, mesh)
    socket_in.set_page_size(output.spec.aligned_page_size())
    send_async_d2h(blocks, socket_out)
    recv_async_h2d(output, socket_in)
    ttnn.synchronize_device(mesh)
    assert torch.equal(values(ttnn.get_device_tensors(output)[1]), shards(blocks)[0])
    return shards(blocks)[0]


def _outlive(other: subprocess.Popen[str], name: str) -> None:
    """A socket whose maker has ended is no reason to wait, and its name is free again."""
    assert other.stdin is not None
    assert other.stdout is not None
    assert other.stdout.readline() == f"{[at(0)]} H2DMode.HOST_PUSH 256\n"
    assert other.stdout.readline() == f"{64 * 64.0}\n"
    assert other.stdout.readline() == "exported\n"
    theirs = H2DSocket.connect(f"{name}.own")
    with pytest.raises(MeshError, match="the mesh is there"):
        theirs.get_mesh_device()
    with pytest.raises(MeshError, match="is exported already"):
        _alone().export_descriptor(f"{name}.own")
    with pytest.raises(MeshError, match="is an exported H2DSocket"):
        D2HSocket.connect(f"{name}.own")
    theirs.write_tensor(torch.zeros(8))
    other.stdin.write("\n")
    other.stdin.flush()
    with pytest.raises(MeshError, match="the process that made it has ended"):
        theirs.write_tensor(torch.zeros(16))
    with pytest.raises(MeshError, match="nothing was exported"):
        H2DSocket.connect(f"{name}.own", timeout_ms=1)
    _alone().export_descriptor(f"{name}.own")
    assert not os.path.exists(f"/dev/shm/softmesh_socket_{name}.own")


def _alone() -> H2DSocket:
    return to_device(ttnn.open_mesh_device(ttnn.MeshShape(1, 2)))


@pytest.fixture
def exported(pair: ttnn.MeshDevice, monkeypatch: pytest.MonkeyPatch) -> tuple[H2DSocket, D2HSocket]:
    """Both directions, and nobody on the other end."""
    monkeypatch.setenv("SOFTMESH_TIMEOUT", "0.6")
    sockets = to_device(pair, fifo=64), D2HSocket(pair, at(0), 64)
    for socket in sockets:
        socket.export_descriptor(uuid.uuid4().hex)
    return sockets


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda there, back: there.write_tensor(torch.zeros(32)),
            "must call ttnn.experimental.recv_async_h2d",
        ),
        (lambda there, back: back.read_tensor(torch.zeros(8)), "must call ttnn.experimental.send_async_d2h"),
    ],
)
def test_a_wait_for_another_process_ends_and_says_what_is_missing(
    exported: tuple[H2DSocket, D2HSocket], call: Callable[[H2DSocket, D2HSocket], None], message: str
) -> None:
    with pytest.raises(MeshError, match=rf"timed out after 1 s at .*test_host_sockets.py.*{message}"):
        call(*exported)


def test_a_barrier_waits_as_long_as_it_is_told_to(exported: tuple[H2DSocket, D2HSocket]) -> None:
    there, _ = exported
    there.write_tensor(torch.zeros(8))
    with pytest.raises(
        MeshError,
        match=r"barrier: 32 bytes are still there after 0.01 s: .* must call ttnn.experimental.recv_async_h2d",
    ):
        there.barrier(timeout_ms=10)


def test_a_device_that_waits_for_another_process_has_a_deadline(
    pair: ttnn.MeshDevice, exported: tuple[H2DSocket, D2HSocket]
) -> None:
    _, back = exported
    sent = ttnn.from_torch(torch.ones(4, 16), device=pair, layout=ttnn.ROW_MAJOR_LAYOUT)
    send_async_d2h(sent, back)
    with pytest.raises(MeshError, match=r"send_async_d2h timed out .* D2HSocket.connect"):
        ttnn.synchronize_device(pair)
    got = torch.zeros(4, 16)
    back.read_tensor(got)
    assert got.all()
    ttnn.synchronize_device(pair)


def test_a_socket_is_exported_once_and_before_it_is_used(pair: ttnn.MeshDevice) -> None:
    used, twice = to_device(pair), to_device(pair)
    used.write_tensor(torch.zeros(8))
    with pytest.raises(MeshError, match="was used in this process"):
        used.export_descriptor(uuid.uuid4().hex)
    name = uuid.uuid4().hex
    twice.export_descriptor(name)
    with pytest.raises(MeshError, match="connected or exported before"):
        twice.export_descriptor(uuid.uuid4().hex)
    with pytest.raises(ArgumentValueError, match="socket_id 'a/b'"):
        used.export_descriptor("a/b")
    with pytest.raises(MeshError, match="is exported already"):
        to_device(pair).export_descriptor(name)
    del twice
    assert not os.path.exists(f"/dev/shm/softmesh_socket_{name}")


def test_what_killed_processes_left_behind_is_taken_away_by_the_next_export(pair: ttnn.MeshDevice) -> None:
    left, fresh, live = (f"/dev/shm/softmesh_socket_{uuid.uuid4().hex}" for _ in range(3))
    keeper = to_device(pair)
    keeper.export_descriptor(live.rpartition("_")[2])
    for path in (left, fresh):
        write_private(path, b"x")
    for path in (left, live):
        os.utime(path, (1, 1))
    to_device(pair).export_descriptor(uuid.uuid4().hex)
    assert [os.path.exists(path) for path in (left, fresh, live)] == [False, True, True]
    os.unlink(fresh)
    assert H2DSocket.connect(live.rpartition("_")[2]).get_active_cores() == keeper.get_active_cores()


@pytest.mark.parametrize("content", [b"", b"x" * 100, b"x" * 5000], ids=len)
def test_a_file_that_is_no_socket_is_not_taken_for_one(content: bytes) -> None:
    name = uuid.uuid4().hex
    path = f"/dev/shm/softmesh_socket_{name}"
    write_private(path, content)
    try:
        with pytest.raises(MeshError, match="nothing was exported"):
            H2DSocket.connect(name, timeout_ms=1)
    finally:
        os.unlink(path)


def write_private(path: str, content: bytes) -> None:
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT, 0o600), "wb") as file:
        file.write(content)


DOORS: dict[str, tuple[str, Callable[[str], object]]] = {
    "H2DSocket.connect": ("softmesh_socket_", lambda name: H2DSocket.connect(name, timeout_ms=1)),
    "D2HSocket.connect": ("softmesh_socket_", lambda name: D2HSocket.connect(name, timeout_ms=1)),
    "H2DStreamService.connect": ("softmesh_socket_", lambda name: H2DStreamService.connect(name, timeout_ms=1)),
    "D2HStreamService.connect": ("softmesh_socket_", lambda name: D2HStreamService.connect(name, timeout_ms=1)),
    "counter.connect": ("", lambda name: InterProcessCounterChannel.connect(name, 1)),
}
SQUATTED: dict[str, Callable[[str], object]] = {
    "made by another user": lambda path: write_private(path, b"x" * 5000),
    "other users may open it (mode 666)": lambda path: (write_private(path, b"x" * 5000), os.chmod(path, 0o666)),
    "other users may open it (mode 640)": lambda path: (write_private(path, b"x" * 5000), os.chmod(path, 0o640)),
    "not a plain file": os.mkfifo,
    "Too many levels of symbolic links": lambda path: os.symlink("/dev/shm/else", path),
    "Is a directory": os.mkdir,
}


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("what", SQUATTED)
def test_shared_memory_that_another_user_could_reach_is_refused_at_every_door(monkeypatch, door, what) -> None:
    prefix, connect = DOORS[door]
    name = uuid.uuid4().hex
    path = f"/dev/shm/{prefix}{name}"
    SQUATTED[what](path)
    if what == "made by another user":
        monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    try:
        with pytest.raises(MeshError, match=re.escape(f"{path} cannot be shared: ") + ".*" + re.escape(what)):
            connect(name)
    finally:
        (os.rmdir if os.path.isdir(path) else os.unlink)(path)


def test_a_name_that_another_user_took_first_is_not_exported(monkeypatch, pair: ttnn.MeshDevice) -> None:
    name = uuid.uuid4().hex
    path = f"/dev/shm/softmesh_socket_{name}"
    write_private(path, b"x" * 5000)
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    try:
        with pytest.raises(MeshError, match="it was made by another user"):
            to_device(pair).export_descriptor(name)
    finally:
        os.unlink(path)


# -- the counter -----------------------------------------------------------------------------------


@pytest.fixture
def name() -> str:
    return f"/{uuid.uuid4().hex}"


def segment(name: str) -> str:
    return f"/dev/shm{name}"


def test_one_process_adds_and_another_takes(name: str) -> None:
    channel = InterProcessCounterChannel(name)
    channel.inject(3)
    program = (
        "from softmesh.sockets.counter_channel import InterProcessCounterChannel as C\n"
        f"c = C.connect({name!r}, 5000)\nprint(c.pending(), c.had_clean_prior_shutdown())"
    )
    done = subprocess.run([*warm_python(), "-c", program], capture_output=True, text=True, timeout=60)
    assert done.stdout.strip() == "3 True", done.stderr
    channel.inject(4)
    connector = InterProcessCounterChannel.connect(name)
    assert not connector.had_clean_prior_shutdown()
    assert connector.try_consume_all() == 7
    assert connector.pending() == 0
    assert connector.shm_name == channel.shm_name == name
    connector.shutdown()
    connector.shutdown()
    assert InterProcessCounterChannel.connect(name).had_clean_prior_shutdown()
    channel.shutdown()
    channel.shutdown()
    assert not os.path.exists(segment(name))


def test_owners_add_and_connectors_take(name: str) -> None:
    owner = InterProcessCounterChannel(name)
    connector = InterProcessCounterChannel.connect(name)
    said = "::inject: called on a connector instance but requires a owner instance"
    with pytest.raises(MeshError, match=said):
        connector.inject(1)
    for method in (owner.pending, owner.try_consume_all, owner.had_clean_prior_shutdown):
        with pytest.raises(MeshError, match="called on a owner instance but requires a connector instance"):
            method()


@pytest.mark.parametrize("name", [".", "..", "/..", "a/b", ""])
def test_a_name_of_a_folder_is_no_name(name: str) -> None:
    """To remove what has it, as is said of a name that is taken, would be bad advice."""
    with pytest.raises(ArgumentValueError, match="use letters, digits"):
        InterProcessCounterChannel(name)


def test_a_name_that_is_taken_or_was_left_behind_is_refused(name: str) -> None:
    program = (
        "import os\nfrom softmesh.sockets.counter_channel import InterProcessCounterChannel as C\n"
        f"c = C({name!r})\nos._exit(1)"
    )
    subprocess.run([*warm_python(), "-c", program], timeout=60, check=False)
    with pytest.raises(MeshError, match=rf"shm_open\(O_CREAT\|O_EXCL\) failed \({name}\): File exists"):
        InterProcessCounterChannel(name)
    os.unlink(segment(name))
    second = InterProcessCounterChannel(name)
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
        channel.inject(1)
    for wrong in ("", "a/b", "../x", "a" * 300):
        with pytest.raises(ArgumentValueError, match="shm_name"):
            InterProcessCounterChannel(wrong)


def test_a_trace_takes_from_the_host_and_gives_to_it_at_each_replay(idle_machine):
    with ttnn.open_mesh_device(ttnn.MeshShape(1, 2), trace_region_size=1 << 20) as mesh:
        core = ttnn.MeshCoreCoord(ttnn.MeshCoordinate(0, 0), ttnn.CoreCoord(0, 0))
        to_mesh = ttnn.H2DSocket(mesh, core, ttnn.BufferType.L1, 8192, ttnn.H2DMode.HOST_PUSH)
        from_mesh = ttnn.D2HSocket(mesh, core, 8192)
        x = ttnn.empty((32, 32), ttnn.float32, ttnn.ROW_MAJOR_LAYOUT, mesh)

        def step() -> None:
            ttnn.experimental.recv_async_h2d(x, to_mesh)
            ttnn.experimental.send_async_d2h(ttnn.neg(x), from_mesh)

        def result() -> float:
            from_mesh.read_tensor(arrived := torch.zeros(32, 32))
            return arrived.unique().item()

        to_mesh.write_tensor(torch.ones(32, 32))
        step()
        assert result() == -1
        trace = ttnn.begin_trace_capture(mesh, cq_id=0)
        step()
        ttnn.end_trace_capture(mesh, trace, cq_id=0)
        for value in (2.0, 3.0):
            to_mesh.write_tensor(torch.full((32, 32), value))
            ttnn.execute_trace(mesh, trace, cq_id=0, blocking=False)
            assert result() == -value
