"""Reads and writes of mesh buffers through a command queue, and the copies between host and buffer that they make."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch

from softmesh.arguments import checked, checked_all
from softmesh.errors import MeshError
from softmesh.kinds import Kind
from softmesh.mesh import MeshCoordinate, MeshCoordinateRange
from softmesh.placement.distribution import mesh_coordinates
from softmesh.runtime.buffers.buffer_config import BufferRegion
from softmesh.runtime.buffers.host_buffers import (
    DistributedHostBuffer,
    HostData,
    ShardDataTransfer,
    at_least,
    bytes_of,
    room_for,
)
from softmesh.runtime.buffers.mesh_buffer import MeshBuffer
from softmesh.runtime.buffers.mesh_memory import MeshMemory
from softmesh.runtime.commands import Access
from softmesh.runtime.queues.queue_base import QueueBase
from softmesh.runtime.traces.trace import READS, WRITES

if TYPE_CHECKING:
    from softmesh.runtime.device import MeshDevice


# Copies between host memory and the bytes of a mesh buffer. They know nothing of queues.


def pages_of(buffer: MeshBuffer, region: BufferRegion | None) -> slice:
    """The pages of each device's part that a transfer is about."""
    if region is None:
        return slice(0, buffer.num_pages())
    return region.pages(buffer.page_size(), buffer.num_pages())


def byte_count(buffer: MeshBuffer, pages: slice) -> int:
    return (pages.stop - pages.start) * buffer.page_size()


def write_everywhere(buffer: MeshBuffer, host: torch.Tensor) -> None:
    """The whole buffer from `buffer.size()` bytes: split, or the same for all."""
    memory = buffer.memory
    if buffer.sharded is not None:
        buffer.sharded.scatter(host, memory)
        return
    memory.replaced((1,) * len(memory.mesh)).copy_(host.view(buffer.num_pages(), buffer.page_size()))
    memory.store()


def read_everywhere(buffer: MeshBuffer, host: torch.Tensor) -> None:
    """The inverse of `write_everywhere`, of a buffer of which every byte is in one place only."""
    data = buffer.memory.data
    if buffer.sharded is None:
        host.copy_(data.reshape(-1))
    else:
        layout = buffer.sharded
        extents = (layout.rows, layout.columns) if layout.block is None else layout.block.shape
        layout.gather(host, data.expand(*extents, -1, -1))


def write_range(buffer: MeshBuffer, host: torch.Tensor, box: MeshCoordinateRange, pages: slice) -> None:
    """The same bytes to every device of a rectangle."""
    memory, mesh = buffer.memory, buffer.device()
    written = memory.devices_written() if isinstance(memory, MeshMemory) else None
    is_everywhere = box.contains(MeshCoordinateRange(mesh.shape))
    if is_everywhere:
        data = memory.data
    else:
        own = mesh.get_view().get_local_mesh_coord_range()
        shared = own.intersection(box)
        if shared is None:
            return
        corners = zip(shared.start, shared.end, own.start, strict=True)
        data = memory.materialise()[tuple(slice(a - o, b - o + 1) for a, b, o in corners)]
    data[..., pages, :] = host.view(-1, buffer.page_size()).to(data.device)
    memory.store()
    if written is not None and isinstance(memory, MeshMemory) and not is_everywhere:
        memory.written_on = written.union(box)


def write_device(buffer: MeshBuffer, coord: MeshCoordinate, host: torch.Tensor, pages: slice) -> None:
    write_range(buffer, host, MeshCoordinateRange(coord, coord), pages)


def read_device(buffer: MeshBuffer, coord: MeshCoordinate, host: torch.Tensor, pages: slice) -> None:
    data = buffer.memory.data
    places = zip(_inside(buffer, coord), data.shape, strict=False)
    own = data[tuple(0 if n == 1 else at for at, n in places)]
    host.view(-1, buffer.page_size()).copy_(own[pages])


def write_devices(buffer: MeshBuffer, coords: Sequence[MeshCoordinate], host: torch.Tensor) -> None:
    """(devices, bytes): to each of these devices its own."""
    memory = buffer.memory
    written = memory.devices_written() if isinstance(memory, MeshMemory) else None
    data = memory.materialise()
    data[_places(buffer, coords)] = host.view(len(coords), *data.shape[-2:]).to(data.device)
    memory.store()
    if written is not None and isinstance(memory, MeshMemory):
        memory.written_on = written.union(coords)


def read_devices(buffer: MeshBuffer, coords: Sequence[MeshCoordinate]) -> torch.Tensor:
    """(devices, bytes): what each of these devices holds."""
    data = buffer.memory.data
    return data.expand(*buffer.device().local_extents, -1, -1)[_places(buffer, coords)].flatten(1).cpu()


def _places(buffer: MeshBuffer, coords: Sequence[MeshCoordinate]) -> tuple[torch.Tensor, ...]:
    """An index of the leading dims for each mesh dim."""
    return torch.tensor([_inside(buffer, coord) for coord in coords]).unbind(-1)


def _inside(buffer: MeshBuffer, coord: MeshCoordinate) -> tuple[int, ...]:
    """Where a device is in this process's part of the mesh."""
    block = buffer.device().block
    place = tuple(coord)
    return place if block is None else tuple(a - b for a, b in zip(place, block.origin, strict=True))


_A_BUFFER = "a MeshBuffer of MeshBuffer.create(...)"
_A_RANGE = "a ttnn.MeshCoordinateRange"


class BufferCommands(QueueBase):
    # -- writes ----------------------------------------------------------------------------------

    def enqueue_write_mesh_buffer(self, buffer: MeshBuffer, src: HostData, blocking: bool = False) -> None:
        """The whole buffer: the same bytes to all devices, or to each its shard."""
        where = "enqueue_write_mesh_buffer"
        with self._lock:
            mesh = self._for_write(where, buffer)
            host = at_least(where, "src", bytes_of(where, "src", src), buffer.size())
            if not mesh.is_remote_only() and buffer.size():
                write_everywhere(buffer, host)
            self._done(where, Kind.HOST_WRITE, blocking, writes=(Access(buffer.memory),))

    def enqueue_write_shard_to_sub_grid(
        self,
        buffer: MeshBuffer,
        host_data: HostData,
        device_range: MeshCoordinateRange,
        blocking: bool,
        region: BufferRegion | None = None,
    ) -> None:
        """The same bytes to the devices of a range; of a sharded buffer, whatever the range, all of it."""
        where = "enqueue_write_shard_to_sub_grid"
        checked(where, "device_range", device_range, MeshCoordinateRange, _A_RANGE)
        with self._lock:
            mesh = self._for_write(where, buffer)
            if buffer.sharded is not None:
                self.enqueue_write_mesh_buffer(buffer, host_data, blocking)
                return
            self._check_range(where, device_range)
            pages = pages_of(buffer, region)
            wanted = byte_count(buffer, pages)
            host = at_least(where, "host_data", bytes_of(where, "host_data", host_data), wanted)
            if not mesh.is_remote_only() and wanted:
                write_range(buffer, host, device_range, pages)
            self._done(
                where, Kind.HOST_WRITE, blocking, writes=(Access(buffer.memory, pages),), coords=list(device_range)
            )

    def enqueue_write_shards(
        self, buffer: MeshBuffer, shard_data_transfers: Sequence[ShardDataTransfer], blocking: bool = False
    ) -> None:
        """To each of these devices bytes of its own, whatever the layout."""
        where = "enqueue_write_shards"
        with self._lock:
            self._for_write(where, buffer)
            for one, pages in self._transfers(where, buffer, shard_data_transfers):
                size = byte_count(buffer, pages)
                host = at_least(where, "host_data", bytes_of(where, "host_data", one.host_data()), size)
                if self._is_local(one.shard_coord()) and size:
                    write_device(buffer, one.shard_coord(), host, pages)
                self._done(
                    where, Kind.HOST_WRITE, False, writes=(Access(buffer.memory, pages),), coords=[one.shard_coord()]
                )
            if blocking:
                self._done("finish", Kind.FINISH, blocking)

    def enqueue_write(self, buffer: MeshBuffer, host_buffer: DistributedHostBuffer, blocking: bool) -> None:
        """One host shard for each device; devices for which there is none keep what they hold."""
        where = "enqueue_write"
        checked(where, "host_buffer", host_buffer, DistributedHostBuffer, "a DistributedHostBuffer")
        with self._lock:
            self._for_write(where, buffer)
            self._check_shape(where, host_buffer)
            if not host_buffer.shard_coords():
                return
            coords, shards = host_buffer.stacked()
            self._check_shard_size(where, buffer, shards.shape[1])
            own = [i for i, coord in enumerate(coords) if self._is_local(coord)]
            if own and shards.shape[1]:
                chosen = shards if len(own) == len(coords) else shards[own]
                write_devices(buffer, [coords[i] for i in own], chosen)
            self._done(where, Kind.HOST_WRITE, blocking, writes=(Access(buffer.memory),), coords=coords)

    # -- reads -----------------------------------------------------------------------------------

    def enqueue_read_mesh_buffer(self, dst: HostData | None, buffer: MeshBuffer, blocking: bool = True) -> HostData:
        """Put a sharded buffer together: into `dst`, or as new bytes where that is None."""
        where = "enqueue_read_mesh_buffer"
        with self._lock:
            mesh = self._for_read(where, buffer)
            if buffer.sharded is None and mesh.get_num_devices() > 1:
                raise MeshError(
                    "Can only read a Sharded MeshBuffer from a MeshDevice: every device holds a copy of this one. Read "
                    "that of one device with ReadShard(queue, dst, buffer, coord)."
                )
            if buffer.sharded is not None and any(buffer.replicated_dims()):
                raise MeshError(
                    "Cannot read a MeshBuffer that is replicated along a dim: each shard is on several devices. Read "
                    "that of one device with ReadShard(queue, dst, buffer, coord)."
                )
            if not blocking:
                raise MeshError(
                    f"Non-Blocking reads are not supported through {where}: use enqueue_read_shards, or blocking=True."
                )
            host = room_for(where, "dst", dst, buffer.size())
            buffer.warn_if_unwritten(where)
            if not mesh.is_remote_only() and buffer.size():
                read_everywhere(buffer, host)
            self._done(where, Kind.HOST_READ, True, reads=(Access(buffer.memory),))
            return host if dst is None else dst

    def enqueue_read_shards(
        self, shard_data_transfers: Sequence[ShardDataTransfer], buffer: MeshBuffer, blocking: bool = True
    ) -> None:
        """Fill the host data of each; those that have none get new bytes."""
        where = "enqueue_read_shards"
        with self._lock:
            self._for_read(where, buffer)
            transfers = self._transfers(where, buffer, shard_data_transfers)
            buffer.warn_if_unwritten(where, [one.shard_coord() for one, _ in transfers])
            for one, pages in transfers:
                size = byte_count(buffer, pages)
                host = room_for(where, "host_data", one.host_data(), size)
                if self._is_local(one.shard_coord()) and size:
                    read_device(buffer, one.shard_coord(), host, pages)
                if one.host_data() is None:
                    one.host_data(host)
                self._done(
                    where, Kind.HOST_READ, False, reads=(Access(buffer.memory, pages),), coords=[one.shard_coord()]
                )
            if blocking:
                self._done("finish", Kind.FINISH, blocking)

    def enqueue_read(
        self,
        buffer: MeshBuffer,
        host_buffer: DistributedHostBuffer,
        shards: Sequence[MeshCoordinate] | None,
        blocking: bool,
    ) -> None:
        """Fill the shards of these coordinates (None: all) as far as this process holds the devices."""
        where = "enqueue_read"
        checked(where, "host_buffer", host_buffer, DistributedHostBuffer, "a DistributedHostBuffer")
        with self._lock:
            mesh = self._for_read(where, buffer)
            self._check_shape(where, host_buffer)
            chosen = mesh_coordinates(tuple(mesh.shape)) if shards is None else shards
            coords = checked_all(where, "shards", chosen, (MeshCoordinate,), "ttnn.MeshCoordinates")
            own = [coord for coord in coords if self._is_local(coord)]
            buffer.warn_if_unwritten(where, own if shards is not None else ())
            if own:
                host_buffer.fill(own, read_devices(buffer, own))
            self._done(where, Kind.HOST_READ, blocking, reads=(Access(buffer.memory),), coords=coords)

    # -- checks ----------------------------------------------------------------------------------

    def _for_write(self, where: str, buffer: MeshBuffer) -> MeshDevice:
        return self._for_transfer(where, buffer, WRITES)

    def _for_read(self, where: str, buffer: MeshBuffer) -> MeshDevice:
        return self._for_transfer(where, buffer, READS)

    def _for_transfer(self, where: str, buffer: MeshBuffer, said: str) -> MeshDevice:
        mesh = self._open(where)
        self._refuse(said, where)
        held = checked(where, "buffer", buffer, MeshBuffer, _A_BUFFER).check_allocated(where)
        if held is not mesh:
            raise MeshError(f"{where}: {buffer!r} lies on {held!r}, and this queue is of {mesh!r}.")
        return mesh

    def _transfers(
        self, where: str, buffer: MeshBuffer, given: Sequence[ShardDataTransfer]
    ) -> list[tuple[ShardDataTransfer, slice]]:
        """All of them checked before the first is done."""
        kinds = "ShardDataTransfer(coord).host_data(...)"
        transfers = checked_all(where, "shard_data_transfers", given, (ShardDataTransfer,), kinds)
        for one in transfers:
            self._check_range(where, MeshCoordinateRange(one.shard_coord(), one.shard_coord()))
        return [(one, pages_of(buffer, one.region())) for one in transfers]

    def _is_local(self, coord: MeshCoordinate) -> bool:
        return self.device().get_view().is_local(coord)

    def _check_shape(self, where: str, host_buffer: DistributedHostBuffer) -> None:
        shape = self.device().shape
        if tuple(host_buffer.shape()) != tuple(shape):
            raise MeshError(f"{where}: the host buffer is for {host_buffer.shape()}, and the mesh is {shape}.")

    def _check_shard_size(self, where: str, buffer: MeshBuffer, size: int) -> None:
        if size != buffer.device_local_size():
            raise MeshError(
                f"{where}: each device holds {buffer.device_local_size()} bytes of the buffer, and the host shards "
                f"have {size}."
            )
