"""Bytes between the host and a mesh buffer. Rules of queues are not known here."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from softmesh.mesh import MeshCoordinate, MeshCoordinateRange
from softmesh.runtime.buffers.config import BufferRegion
from softmesh.runtime.buffers.mesh_buffer import MeshBuffer


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
    if box.contains(MeshCoordinateRange(mesh.shape)):
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
    data = memory.materialise()
    data[_places(buffer, coords)] = host.view(len(coords), *data.shape[-2:]).to(data.device)
    memory.store()


def read_devices(buffer: MeshBuffer, coords: Sequence[MeshCoordinate]) -> torch.Tensor:
    """(devices, bytes): what each of these devices holds."""
    data = buffer.memory.data
    mesh = buffer.device()
    extents = tuple(mesh.shape) if mesh.block is None else mesh.block.shape
    return data.expand(*extents, -1, -1)[_places(buffer, coords)].flatten(1).cpu()


def _places(buffer: MeshBuffer, coords: Sequence[MeshCoordinate]) -> tuple[torch.Tensor, ...]:
    """An index of the leading dims for each mesh dim."""
    return torch.tensor([_inside(buffer, coord) for coord in coords]).unbind(-1)


def _inside(buffer: MeshBuffer, coord: MeshCoordinate) -> tuple[int, ...]:
    """Where a device is in this process's part of the mesh."""
    block = buffer.device().block
    place = tuple(coord)
    return place if block is None else tuple(a - b for a, b in zip(place, block.origin, strict=True))
