"""Sockets between the host and one core: H2DSocket, D2HSocket, and the device ops at their other ends.

The bytes are those a chip's memory would hold. Another process cannot connect to one: `connect` finds
sockets of this process.
"""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import torch

from softmesh.arguments import checked, checked_int, refused
from softmesh.errors import MeshError
from softmesh.native_enum import NativeEnum
from softmesh.processes.buffers import byte_view
from softmesh.runtime.device import MeshDevice
from softmesh.sockets.byte_stream import ByteStream
from softmesh.sockets.capsules import memory_of
from softmesh.sockets.core_coord import MeshCoreCoord
from softmesh.sockets.device_bytes import byte_count, from_bytes, to_bytes
from softmesh.sockets.parcel import Route, Routes
from softmesh.sockets.transfers import TRANSFERS
from softmesh.sockets.validation import check_core
from softmesh.tensor.memory import BufferType
from softmesh.tensor.tensor import Tensor

_ADDRESSES = itertools.count(1)
_CONFIG_BYTES = 64
_FIRST_ADDRESS = 0x20000


class H2DMode(NativeEnum):
    HOST_PUSH = 0
    DEVICE_PULL = 1


_Socket = TypeVar("_Socket", bound="HostSocket")


class HostSocket:
    """What both directions share."""

    _exported: weakref.WeakValueDictionary[tuple[type, str], HostSocket] = weakref.WeakValueDictionary()

    def __init__(
        self, mesh_device: MeshDevice, core_name: str, core: MeshCoreCoord, fifo_size: int, sends: bool
    ) -> None:
        where = type(self).__name__
        self._mesh = checked(where, "mesh_device", mesh_device, MeshDevice, "a MeshDevice")
        self._mesh.check_open(where)
        core = checked(where, core_name, core, MeshCoreCoord, "a ttnn.MeshCoreCoord(device_coord, core)")
        if not self._mesh.shape.contains(core.device_coord):
            raise MeshError(f"Coordinate {core.device_coord} not found in mesh {self._mesh.shape}")
        check_core(self._mesh, core.core_coord, None)
        size = checked_int(where, "fifo_size", fifo_size)
        if size <= 0:
            raise MeshError(f"{where}: fifo_size must be a positive number of bytes, got {size}")
        self.core = core.copy()
        self.routes = Routes((Route(core.device_coord, 1),), straight=False)
        self.device = self._mesh.get_device_id(core.device_coord)
        self.stream = ByteStream(self._mesh, size, frozenset({self.device}) if sends else frozenset())
        self.is_owner = True
        self._address = _FIRST_ADDRESS + next(_ADDRESSES) * _CONFIG_BYTES

    def get_active_cores(self) -> list[MeshCoreCoord]:
        return [self.core.copy()]

    def get_mesh_device(self) -> MeshDevice:
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
        """Under this id `connect` finds the socket."""
        name = checked("export_descriptor", "socket_id", socket_id, str, "a string")
        self._exported[type(self), name] = self
        return name

    @classmethod
    def _connected(cls: type[_Socket], socket_id: str) -> _Socket:
        found = HostSocket._exported.get((cls, checked("connect", "socket_id", socket_id, str, "a string")))
        if found is None:
            raise MeshError(
                f"{cls.__name__}.connect: no socket was exported as {socket_id!r} in this process. softmesh joins "
                "host sockets within one process only; call export_descriptor(socket_id) on the owner first."
            )
        twin = cls.__new__(cls)
        twin.__dict__.update(found.__dict__, is_owner=False)
        return twin

    def _page_bytes(self, where: str, num_pages: int) -> int:
        if not self.stream.page_size:
            raise MeshError(f"{where}: the size of a page is not known: call set_page_size(bytes) first.")
        return checked_int(where, "num_pages", num_pages) * self.stream.page_size


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
        self._write("write_tensor", _bytes_of("write_tensor", tensor))

    def write(self, data: Any, num_pages: int) -> None:
        size = self._page_bytes("H2DSocket.write", num_pages)
        memory = memory_of("write", data, size)
        self._write("write", torch.frombuffer(bytearray(memory), dtype=torch.uint8))

    def _write(self, where: str, data: torch.Tensor) -> None:
        stream = self.stream
        if not stream.has_room(data.numel()):
            raise MeshError(
                f"H2DSocket.{where}: {data.numel()} bytes do not fit into the FIFO, which holds {stream.size} and has "
                f"{stream.held} in it; no receive asks for the rest, and the host would wait for ever. Call "
                "ttnn.experimental.recv_async_h2d(output, socket) first, or make fifo_size larger."
            )
        stream.put(data)
        TRANSFERS.advance()

    def barrier(self, timeout_ms: int | None = None) -> None:
        """Until the device has taken everything."""
        TRANSFERS.advance()
        if self.stream.held:
            raise MeshError(
                f"H2DSocket.barrier: {self.stream.held} bytes were written and nothing takes them: the host would wait "
                "for ever. Call ttnn.experimental.recv_async_h2d(output, socket) for them."
            )

    @classmethod
    def connect(cls, socket_id: str, timeout_ms: int | None = None) -> H2DSocket:
        return cls._connected(socket_id)


class D2HSocket(HostSocket):
    """From one core to the host."""

    def __init__(self, mesh_device: MeshDevice, sender_core: MeshCoreCoord, fifo_size: int) -> None:
        super().__init__(mesh_device, "sender_core", sender_core, fifo_size, sends=True)

    def has_data(self) -> bool:
        TRANSFERS.advance()
        return self.stream.held > 0

    def read_tensor(self, tensor: Tensor | torch.Tensor, notify_sender: bool = True) -> None:
        """Fill the tensor with the next bytes."""
        if isinstance(tensor, torch.Tensor):
            target = _checked_torch("read_tensor", tensor)
            data = self._read("read_tensor", target.nbytes, notify_sender)
            byte_view(target, written=True)[:] = byte_view(data)
            return
        host = _checked_host("read_tensor", tensor)
        values = from_bytes(self._read("read_tensor", byte_count(host.spec), notify_sender), host.spec)
        dist = host.view_distribution()
        host.overwrite(values.reshape(*dist.extents, *values.shape), dist)

    def read(self, data: Any, num_pages: int, notify_sender: bool = True) -> None:
        size = self._page_bytes("D2HSocket.read", num_pages)
        memory = memory_of("read", data, size)
        memory[:] = byte_view(self._read("read", size, notify_sender))

    def _read(self, where: str, count: int, frees: bool) -> torch.Tensor:
        TRANSFERS.advance()
        if self.stream.held < count:
            raise MeshError(
                f"D2HSocket.{where}: {count} bytes are wanted and {self.stream.held} were sent: nothing was sent on "
                "this socket that could fill it, and the host would wait for ever. Call "
                "ttnn.experimental.send_async_d2h(tensor, socket) first."
            )
        return self.stream.take(count, frees=frees)

    def discard_pending_pages(self) -> int:
        """Drop what was sent and not read; how many pages that were."""
        TRANSFERS.advance()
        pages = self.stream.held // self._page_bytes("discard_pending_pages", 1)
        self.stream.take(self.stream.held)
        return pages

    def barrier(self, timeout_ms: int | None = None) -> None:
        """Until the host has read everything."""
        TRANSFERS.advance()
        if self.stream.held:
            raise MeshError(
                f"D2HSocket.barrier: {self.stream.held} bytes were sent and not read: the host would wait for itself "
                "for ever. Read them with read_tensor(...), or drop them with discard_pending_pages()."
            )

    @classmethod
    def connect(cls, socket_id: str, timeout_ms: int | None = None) -> D2HSocket:
        return cls._connected(socket_id)


def _bytes_of(where: str, tensor: object) -> torch.Tensor:
    if isinstance(tensor, torch.Tensor):
        given = _checked_torch(where, tensor)
        return torch.frombuffer(bytearray(byte_view(given)), dtype=torch.uint8)
    host = _checked_host(where, tensor)
    return to_bytes(host.pieces()[0], host.spec)


def _checked_torch(where: str, tensor: torch.Tensor) -> torch.Tensor:
    if tensor.device.type != "cpu" or not tensor.is_contiguous() or not tensor.numel():
        raise refused(where, "a torch tensor must be contiguous, on the CPU, and not empty")
    return tensor


def _checked_host(where: str, tensor: object) -> Tensor:
    host = checked(where, "tensor", tensor, Tensor, "a torch tensor, or a ttnn.Tensor on the host")
    host.check_allocated(where)
    if host._storage.device is not None:
        raise MeshError(f"{where}: the tensor is on {host._storage.device}: give one that is on the host.")
    if len(host.view_distribution().coordinates()) != 1:
        raise MeshError(f"{where}: the tensor is distributed; the socket reaches one core. Give one shard.")
    return host


def filling(output: Tensor, socket: H2DSocket, done: Callable[[torch.Tensor], None]) -> Iterator[None]:
    """The steps of a receive: `done` is called with the values, once all bytes are there."""
    need = byte_count(output.spec)
    socket.stream.demand += need
    try:
        while socket.stream.held < need:
            yield
    finally:
        socket.stream.demand -= need
    done(from_bytes(socket.stream.take(need), output.spec))
