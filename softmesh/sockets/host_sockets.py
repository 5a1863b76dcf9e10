"""H2DSocket and D2HSocket: byte streams from the host to one core, and back.

The bytes are those a chip's memory would hold. The process that has the mesh makes the socket; under the id that it
was exported as, another process of the host connects to it, and needs no mesh.
"""

from __future__ import annotations

import ctypes
from typing import Any, TypeVar

import torch

from softmesh.arguments import checked, checked_int, refused
from softmesh.cores import CoreCoord
from softmesh.errors import MeshError
from softmesh.hardware.enums import NativeEnum
from softmesh.hardware.memory_config import BufferType
from softmesh.kinds import Kind
from softmesh.mesh import MeshCoordinate
from softmesh.processes.context import byte_view
from softmesh.runtime.commands import emit, observed
from softmesh.runtime.device import MeshDevice
from softmesh.sockets.byte_stream import ByteStream, byte_count, from_bytes, to_bytes
from softmesh.sockets.exported_stream import Exportable, run_to_end
from softmesh.sockets.socket_checks import check_core
from softmesh.sockets.socket_config import MeshCoreCoord, config_addresses
from softmesh.sockets.tensor_message import Route, Routes
from softmesh.sockets.transfer_queue import TRANSFERS
from softmesh.tensor.tensor import Tensor

# Memory that a caller hands over as a bare pointer in a capsule, as TT-NN's bindings take it.


_name = ctypes.pythonapi.PyCapsule_GetName
_name.restype, _name.argtypes = ctypes.c_char_p, [ctypes.py_object]
_pointer = ctypes.pythonapi.PyCapsule_GetPointer
_pointer.restype, _pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
_DLPACK = (b"dltensor", b"dltensor_versioned")


def memory_of(where: str, capsule: Any, nbytes: int) -> memoryview:
    """`nbytes` bytes from where the capsule points; the caller vouches for their number."""
    if type(capsule).__name__ != "PyCapsule":
        raise refused(where, f"data must be a capsule with a pointer to the bytes, got {capsule!r}")
    if _name(capsule) in _DLPACK:
        raise refused(where, "data is a DLPack capsule, which points to a description and not to the bytes")
    address = _pointer(capsule, _name(capsule))
    return memoryview((ctypes.c_ubyte * nbytes).from_address(address)).cast("B")


_ADDRESSES = config_addresses(0x20000)


_Socket = TypeVar("_Socket", bound="HostSocket")


class HostSocket(Exportable):
    """One end, in the process that has the mesh or in one that connected to it."""

    def __init__(
        self, mesh_device: MeshDevice, core_name: str, core: MeshCoreCoord, fifo_size: int, sends: bool
    ) -> None:
        where = type(self).__name__
        mesh = checked(where, "mesh_device", mesh_device, MeshDevice, "a MeshDevice")
        mesh.check_open(where)
        core = checked(where, core_name, core, MeshCoreCoord, "a ttnn.MeshCoreCoord(device_coord, core)")
        if not mesh.shape.contains(core.device_coord):
            raise MeshError(f"Coordinate {core.device_coord} not found in mesh {mesh.shape}")
        check_core(mesh, core.core_coord, None)
        size = checked_int(where, "fifo_size", fifo_size)
        if size <= 0:
            raise MeshError(f"{where}: fifo_size must be a positive number of bytes, got {size}")
        self._mesh: MeshDevice | None = mesh
        self.core = core.copy()
        self.routes = Routes((Route(core.device_coord, 1),), straight=False)
        self.device = mesh.get_device_id(core.device_coord)
        self.stream = ByteStream(mesh, size, frozenset({self.device}) if sends else frozenset())
        self.is_owner = True
        self._address = next(_ADDRESSES)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.core!r})"

    def get_active_cores(self) -> list[MeshCoreCoord]:
        return [self.core.copy()]

    def get_mesh_device(self) -> MeshDevice:
        if self._mesh is None:
            raise MeshError(
                f"{type(self).__name__}.get_mesh_device: this end was connected to a socket of another process, and "
                "the mesh is there."
            )
        return self._mesh

    def get_config_buffer_address(self) -> int:
        return self._address

    def get_page_size(self) -> int:
        return self.stream.page_size

    def set_page_size(self, page_size: int) -> None:
        size = checked_int("set_page_size", "page_size", page_size)
        if not 0 < size <= self.stream.size:
            raise MeshError(
                f"set_page_size: a page of {size} bytes does not fit into the FIFO, which holds {self.stream.size}."
            )
        self.stream.page_size = size

    def export_descriptor(self, socket_id: str) -> str:
        """Under this id `connect` finds the socket, in any process of this host."""
        return self._export("socket_id", socket_id)

    @classmethod
    def connect(cls: type[_Socket], socket_id: str, timeout_ms: int | None = None) -> _Socket:
        """The host's end of a socket that this or another process exported."""
        return cls._connected("socket_id", socket_id, timeout_ms)

    def _describe(self) -> dict[str, Any]:
        core = self.core.core_coord
        return {"device": list(self.core.device_coord), "core": [core.x, core.y], "address": self._address}

    def _join(self, known: dict[str, Any]) -> None:
        self.core = MeshCoreCoord(MeshCoordinate(known["device"]), CoreCoord(*known["core"]))
        self._mesh, self._address = None, known["address"]

    def _page_bytes(self, where: str, num_pages: int) -> int:
        if not self.stream.page_size:
            raise MeshError(f"{where}: the size of a page is not known: call set_page_size(bytes) first.")
        return checked_int(where, "num_pages", num_pages) * self.stream.page_size


# -- what the host hands over ----------------------------------------------------------------------


def bytes_of(where: str, tensor: object) -> torch.Tensor:
    if isinstance(tensor, torch.Tensor):
        given = checked_torch(where, tensor)
        return torch.frombuffer(bytearray(byte_view(given)), dtype=torch.uint8)
    host = checked_host(where, tensor)
    return to_bytes(host.pieces()[0], host.spec)


def checked_torch(where: str, tensor: torch.Tensor) -> torch.Tensor:
    if tensor.device.type != "cpu" or not tensor.is_contiguous() or not tensor.numel():
        raise refused(where, "a torch tensor must be contiguous, on the CPU, and not empty")
    return tensor


def checked_host(where: str, tensor: object) -> Tensor:
    host = checked(where, "tensor", tensor, Tensor, "a torch tensor, or a ttnn.Tensor on the host")
    host.check_allocated(where)
    if host.storage.device is not None:
        raise MeshError(f"{where}: the tensor is on {host.storage.device}: give one that is on the host.")
    if len(host.view_distribution().coordinates()) != 1:
        raise MeshError(f"{where}: the tensor is distributed, and one whole tensor or one shard is wanted.")
    return host


_RECEIVE = "the process that has the mesh must call ttnn.experimental.recv_async_h2d(output, socket)"
_SEND = "the process that has the mesh must call ttnn.experimental.send_async_d2h(tensor, socket)"
_READ = "the process that connected must read with read_tensor(...), or drop with discard_pending_pages()"


class H2DMode(NativeEnum):
    HOST_PUSH = 0
    DEVICE_PULL = 1


class H2DSocket(HostSocket):
    """From the host to one core."""

    def __init__(
        self,
        mesh_device: MeshDevice,
        recv_core: MeshCoreCoord,
        buffer_type: BufferType,
        fifo_size: int,
        h2d_mode: H2DMode,
    ) -> None:
        checked("H2DSocket", "buffer_type", buffer_type, BufferType, "ttnn.BufferType.L1 or DRAM")
        self._mode = checked("H2DSocket", "h2d_mode", h2d_mode, H2DMode, "a ttnn.H2DMode")
        super().__init__(mesh_device, "recv_core", recv_core, fifo_size, sends=False)

    def get_h2d_mode(self) -> H2DMode:
        return self._mode

    def write_tensor(self, tensor: Tensor | torch.Tensor) -> None:
        """The bytes of a torch tensor as they are, of a host tensor as the chip would hold them."""
        self._write("write_tensor", bytes_of("write_tensor", tensor))

    def write(self, data: Any, num_pages: int) -> None:
        size = self._page_bytes("H2DSocket.write", num_pages)
        memory = memory_of("write", data, size)
        self._write("write", torch.frombuffer(bytearray(memory), dtype=torch.uint8))

    def _write(self, where: str, data: torch.Tensor) -> None:
        stream, size = self.stream, data.numel()
        if isinstance(stream, ByteStream) and not stream.has_room(size):
            raise MeshError(
                f"H2DSocket.{where}: {size} bytes do not fit into the FIFO, which holds {stream.size} and has "
                f"{stream.buffered} in it; no receive asks for the rest, and the host would wait for ever. Call "
                "ttnn.experimental.recv_async_h2d(output, socket) first, or make fifo_size larger."
            )
        remedy = f"{size} bytes do not fit into the FIFO, which holds {stream.size}, and nobody empties it: {_RECEIVE}"
        run_to_end(stream.put(data), self.waiting(f"H2DSocket.{where}", remedy, size))

    def barrier(self, timeout_ms: int | None = None) -> None:
        """Until the device has taken everything."""
        TRANSFERS.advance()
        if isinstance(self.stream, ByteStream) and self.stream.buffered:
            raise MeshError(
                f"H2DSocket.barrier: {self.stream.buffered} bytes were written and nothing takes them: the host would "
                "wait for ever. Call ttnn.experimental.recv_async_h2d(output, socket) for them."
            )
        self._drain(f"what was written is not received: {_RECEIVE}", timeout_ms)

    def _describe(self) -> dict[str, Any]:
        return {**super()._describe(), "mode": self._mode.value}

    def _join(self, known: dict[str, Any]) -> None:
        super()._join(known)
        self._mode = H2DMode(known["mode"])


class D2HSocket(HostSocket):
    """From one core to the host."""

    def __init__(self, mesh_device: MeshDevice, sender_core: MeshCoreCoord, fifo_size: int) -> None:
        super().__init__(mesh_device, "sender_core", sender_core, fifo_size, sends=True)

    def has_data(self) -> bool:
        TRANSFERS.advance()
        return self.stream.buffered > 0

    def read_tensor(self, tensor: Tensor | torch.Tensor, notify_sender: bool = True) -> None:
        """Fill the tensor with the next bytes."""
        if isinstance(tensor, torch.Tensor):
            target = checked_torch("read_tensor", tensor)
            data = self._read("read_tensor", target.nbytes, notify_sender)
            byte_view(target, written=True)[:] = byte_view(data)
            return
        host = checked_host("read_tensor", tensor)
        values = from_bytes(self._read("read_tensor", byte_count(host.spec), notify_sender), host.spec)
        dist = host.view_distribution()
        host.overwrite(values.reshape(*dist.extents, *values.shape), dist)

    def read(self, data: Any, num_pages: int, notify_sender: bool = True) -> None:
        size = self._page_bytes("D2HSocket.read", num_pages)
        memory = memory_of("read", data, size)
        memory[:] = byte_view(self._read("read", size, notify_sender))

    def _read(self, where: str, count: int, frees: bool) -> torch.Tensor:
        TRANSFERS.advance()
        stream = self.stream
        if isinstance(stream, ByteStream) and stream.buffered < count:
            raise MeshError(
                f"D2HSocket.{where}: {count} bytes are wanted and {stream.buffered} were sent: nothing was sent on "
                "this socket that could fill it, and the host would wait for ever. Call "
                "ttnn.experimental.send_async_d2h(tensor, socket) first."
            )
        remedy = f"{count} bytes are wanted, and nobody sent as many: {_SEND}"
        data = run_to_end(stream.take(count, frees=frees), self.waiting(f"D2HSocket.{where}", remedy, count))
        if observed():
            emit(f"D2HSocket.{where}", Kind.RECEIVE, (), (), coords=(), receives=(stream,))
        return data

    def discard_pending_pages(self) -> int:
        """Drop what was sent and not read; how many pages that were."""
        TRANSFERS.advance()
        held, page = self.stream.buffered, self._page_bytes("discard_pending_pages", 1)
        self._read("discard_pending_pages", held, frees=True)
        return held // page

    def barrier(self, timeout_ms: int | None = None) -> None:
        """Until the host has read everything."""
        TRANSFERS.advance()
        if isinstance(self.stream, ByteStream) and self.stream.buffered:
            raise MeshError(
                f"D2HSocket.barrier: {self.stream.buffered} bytes were sent and not read: the host would wait for "
                "itself for ever. Read them with read_tensor(...), or drop them with discard_pending_pages()."
            )
        self._drain(f"what was sent is not read: {_READ}", timeout_ms)
