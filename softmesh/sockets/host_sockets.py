"""H2DSocket and D2HSocket: bytes from the host to one core, and back."""

from __future__ import annotations

from typing import Any

import torch

from softmesh.arguments import checked
from softmesh.errors import MeshError
from softmesh.hardware.memory_config import BufferType
from softmesh.native_enum import NativeEnum
from softmesh.processes.buffers import byte_view
from softmesh.runtime.commands import emit, observed
from softmesh.runtime.device import MeshDevice
from softmesh.sockets.byte_stream import ByteStream
from softmesh.sockets.capsules import memory_of
from softmesh.sockets.core_coord import MeshCoreCoord
from softmesh.sockets.device_bytes import byte_count, from_bytes
from softmesh.sockets.exporting import finished
from softmesh.sockets.host_socket import HostSocket, bytes_of, checked_host, checked_torch
from softmesh.sockets.transfers import TRANSFERS
from softmesh.tensor.tensor import Tensor

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
                f"{stream.held} in it; no receive asks for the rest, and the host would wait for ever. Call "
                "ttnn.experimental.recv_async_h2d(output, socket) first, or make fifo_size larger."
            )
        remedy = f"{size} bytes do not fit into the FIFO, which holds {stream.size}, and nobody empties it: {_RECEIVE}"
        finished(stream.put(data), self.waiting(f"H2DSocket.{where}", remedy, size))

    def barrier(self, timeout_ms: int | None = None) -> None:
        """Until the device has taken everything."""
        TRANSFERS.advance()
        if isinstance(self.stream, ByteStream) and self.stream.held:
            raise MeshError(
                f"H2DSocket.barrier: {self.stream.held} bytes were written and nothing takes them: the host would wait "
                "for ever. Call ttnn.experimental.recv_async_h2d(output, socket) for them."
            )
        self._drain(f"what was written is not received: {_RECEIVE}", timeout_ms)

    @classmethod
    def connect(cls, socket_id: str, timeout_ms: int | None = None) -> H2DSocket:
        """The host's end of a socket that this or another process exported."""
        return cls._connected("socket_id", socket_id, timeout_ms)

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
        return self.stream.held > 0

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
        if isinstance(stream, ByteStream) and stream.held < count:
            raise MeshError(
                f"D2HSocket.{where}: {count} bytes are wanted and {stream.held} were sent: nothing was sent on "
                "this socket that could fill it, and the host would wait for ever. Call "
                "ttnn.experimental.send_async_d2h(tensor, socket) first."
            )
        remedy = f"{count} bytes are wanted, and nobody sent as many: {_SEND}"
        data = finished(stream.take(count, frees=frees), self.waiting(f"D2HSocket.{where}", remedy, count))
        if observed():
            emit(f"D2HSocket.{where}", (), (), coords=(), receives=(stream,))
        return data

    def discard_pending_pages(self) -> int:
        """Drop what was sent and not read; how many pages that were."""
        TRANSFERS.advance()
        held, page = self.stream.held, self._page_bytes("discard_pending_pages", 1)
        self._read("discard_pending_pages", held, frees=True)
        return held // page

    def barrier(self, timeout_ms: int | None = None) -> None:
        """Until the host has read everything."""
        TRANSFERS.advance()
        if isinstance(self.stream, ByteStream) and self.stream.held:
            raise MeshError(
                f"D2HSocket.barrier: {self.stream.held} bytes were sent and not read: the host would wait for itself "
                "for ever. Read them with read_tensor(...), or drop them with discard_pending_pages()."
            )
        self._drain(f"what was sent is not read: {_READ}", timeout_ms)

    @classmethod
    def connect(cls, socket_id: str, timeout_ms: int | None = None) -> D2HSocket:
        """The host's end of a socket that this or another process exported."""
        return cls._connected("socket_id", socket_id, timeout_ms)
