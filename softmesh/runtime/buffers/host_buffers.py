"""Host memory of buffer transfers: bytes that a caller hands in or wants filled, and one shard for each device.

Callers give torch tensors, numpy arrays, or anything with the buffer protocol.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import overload

import numpy as np
import torch

from softmesh.arguments import checked, described, refused
from softmesh.errors import MeshError
from softmesh.mesh import MeshCoordinate, MeshShape
from softmesh.runtime.buffers.buffer_config import BufferRegion

HostData = torch.Tensor | np.ndarray | bytes | bytearray | memoryview
_WANTED = "a torch.Tensor, a numpy array, bytes or a bytearray"


def bytes_of(where: str, name: str, data: object) -> torch.Tensor:
    """`data` as a row of torch.uint8, without a copy where its memory is in one piece."""
    if isinstance(data, torch.Tensor):
        if data.requires_grad:
            data = data.detach()
        row = data if data.ndim == 1 else data.reshape(-1)
        return row if row.dtype is torch.uint8 else row.contiguous().view(torch.uint8)
    if isinstance(data, np.ndarray):
        return torch.from_numpy(_bytes_of_array(where, name, np.ascontiguousarray(data)))
    try:
        view = memoryview(data).cast("B")  # type: ignore[arg-type]
    except TypeError:
        raise refused(where, f"{name} must be {_WANTED}, got {described(data)}") from None
    held = np.frombuffer(view, np.uint8)
    return torch.from_numpy(held if held.flags.writeable else held.copy())


def _bytes_of_array(where: str, name: str, array: np.ndarray) -> np.ndarray:
    if array.dtype.hasobject:
        raise refused(where, f"{name} must hold numbers, got a numpy array of {array.dtype}")
    held = array.reshape(-1).view(np.uint8)
    return held if held.flags.writeable else held.copy()


def at_least(where: str, name: str, data: torch.Tensor, size: int) -> torch.Tensor:
    """The first `size` bytes."""
    if data.numel() < size:
        raise MeshError(f"{where}: {name} has {data.numel()} bytes, and {size} are needed.")
    return data if data.numel() == size else data[:size]


def room_for(where: str, name: str, destination: object, size: int) -> torch.Tensor:
    """`size` bytes to fill: those of the destination itself. A bytearray grows or shrinks to them, None makes new."""
    if destination is None:
        return torch.empty(size, dtype=torch.uint8)
    if isinstance(destination, bytearray):
        destination[size:] = bytes(max(size - len(destination), 0))
        return torch.frombuffer(destination, dtype=torch.uint8) if size else torch.empty(0, dtype=torch.uint8)
    _check_fillable(where, name, destination)
    return at_least(where, name, bytes_of(where, name, destination), size)


def _check_fillable(where: str, name: str, destination: object) -> None:
    if isinstance(destination, torch.Tensor):
        fillable = destination.is_contiguous()
    elif isinstance(destination, np.ndarray):
        fillable = destination.flags.c_contiguous and destination.flags.writeable
    else:
        fillable = isinstance(destination, memoryview) and not destination.readonly and destination.contiguous
    if not fillable:
        raise refused(
            where,
            f"{name} is filled in place and must be None, a bytearray, or a contiguous and writable torch.Tensor or "
            f"numpy array; got {described(destination)}",
        )


_A_COORDINATE = "a ttnn.MeshCoordinate"


class ShardDataTransfer:
    """What goes to or comes from one device.

    >>> ShardDataTransfer(MeshCoordinate(0, 1)).host_data(torch.zeros(8)).region(BufferRegion(0, 32))
    """

    __slots__ = ("_coord", "_data", "_region")

    def __init__(self, shard_coord: MeshCoordinate) -> None:
        self._coord = checked("ShardDataTransfer", "shard_coord", shard_coord, MeshCoordinate, _A_COORDINATE)
        self._data: HostData | None = None
        self._region: BufferRegion | None = None

    def __repr__(self) -> str:
        return f"ShardDataTransfer({self._coord}, region={self._region})"

    def shard_coord(self) -> MeshCoordinate:
        return self._coord

    @overload
    def host_data(self) -> HostData | None: ...
    @overload
    def host_data(self, data: HostData) -> ShardDataTransfer: ...
    def host_data(self, data: HostData | None = None) -> HostData | ShardDataTransfer | None:
        """With an argument: take the bytes from there, or put them there."""
        if data is None:
            return self._data
        self._data = data
        return self

    @overload
    def region(self) -> BufferRegion | None: ...
    @overload
    def region(self, region: BufferRegion) -> ShardDataTransfer: ...
    def region(self, region: BufferRegion | None = None) -> BufferRegion | ShardDataTransfer | None:
        """With an argument: only these bytes of the device's part of the buffer."""
        if region is None:
            return self._region
        self._region = checked("ShardDataTransfer", "region", region, BufferRegion, "a BufferRegion(offset, size)")
        return self


class DistributedHostBuffer:
    """One host shard for each coordinate of a mesh; those never given are missing.

    `DistributedHostBuffer.of(tensor)` holds one whose leading dims are the mesh, without copying it.
    """

    def __init__(self, shape: MeshShape) -> None:
        self._shape = checked("DistributedHostBuffer", "shape", shape, MeshShape, "a ttnn.MeshShape")
        self._shards: dict[MeshCoordinate, torch.Tensor] = {}
        self._whole: torch.Tensor | None = None  # all shards in one piece, (devices, bytes)

    def __repr__(self) -> str:
        held = self._shape.mesh_size() if self._whole is not None else len(self._shards)
        return f"DistributedHostBuffer({self._shape}, {held} of {self._shape.mesh_size()} shards here)"

    @classmethod
    def create(cls, shape: MeshShape) -> DistributedHostBuffer:
        return cls(shape)

    @classmethod
    def of(cls, shards: torch.Tensor, shape: MeshShape) -> DistributedHostBuffer:
        """(*shape, ...): a shard for each device."""
        made = cls(shape)
        extents = tuple(shards.shape[: shape.dims()])
        if extents != tuple(shape):
            raise MeshError(f"DistributedHostBuffer.of: shards for {shape} must lead with its extents, got {extents}.")
        flat = shards.detach().reshape(shape.mesh_size(), -1).contiguous().view(torch.uint8)
        made.fill(list(shape.coordinates()), flat)
        return made

    def shape(self) -> MeshShape:
        return self._shape

    def shard_coords(self) -> list[MeshCoordinate]:
        """Where there is one, row-major."""
        return [coord for coord in self._shape.coordinates() if coord in self._shards]

    def get_shard(self, coord: MeshCoordinate) -> torch.Tensor | None:
        """Its bytes; None where it is missing."""
        return self._shards.get(self._inside("get_shard", coord))

    def emplace_shard(self, coord: MeshCoordinate, data: HostData) -> None:
        self._shards[self._inside("emplace_shard", coord)] = bytes_of("emplace_shard", "data", data)
        self._whole = None

    def __iter__(self) -> Iterator[tuple[MeshCoordinate, torch.Tensor]]:
        return ((coord, self._shards[coord]) for coord in self.shard_coords())

    def stacked(self) -> tuple[list[MeshCoordinate], torch.Tensor]:
        """All shards in one piece, (shards, bytes); they must be of one size."""
        coords = self.shard_coords()
        if self._whole is None:
            sizes = {self._shards[coord].numel() for coord in coords}
            if len(sizes) > 1:
                raise MeshError(f"Host shards must all have the same size; these have {sorted(sizes)} bytes.")
            self.fill(coords, torch.stack([self._shards[coord] for coord in coords]))
        assert self._whole is not None
        return coords, self._whole

    def fill(self, coords: list[MeshCoordinate], shards: torch.Tensor) -> None:
        """Hold these, (shards, bytes), in place of what was there for these coordinates."""
        self._shards.update(zip(coords, shards, strict=True))
        self._whole = shards if len(coords) == len(self._shards) else None

    def _inside(self, where: str, coord: MeshCoordinate) -> MeshCoordinate:
        if not self._shape.contains(checked(where, "coord", coord, MeshCoordinate, _A_COORDINATE)):
            raise MeshError(f"Coordinate {coord} not found in mesh {self._shape}")
        return coord
