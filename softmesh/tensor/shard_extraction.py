"""`Tensor.extract_shard`: what one core of a device holds of a sharded tensor, as a tensor on the host."""

from __future__ import annotations

import itertools
import math

import torch

from softmesh.arguments import checked_int
from softmesh.cores import CoreCoord
from softmesh.errors import MeshError
from softmesh.placement.distribution import HOST
from softmesh.tensor.device_pages import folded, shards_of
from softmesh.tensor.padding import with_padding
from softmesh.tensor.spec import make_spec
from softmesh.tensor.storage import Storage
from softmesh.tensor.tensor import Tensor
from softmesh.tensor.undefined import note_leaving

_WHERE = "extract_shard"


def extract_shard(self: Tensor, core: CoreCoord | int | None = None, *, core_id: int | None = None) -> Tensor:
    """The first shard of a core, given by its place or by its number among those with shards."""
    self.check_readable(_WHERE)
    note_leaving(self)
    shards, shape = shards_of(self.spec), _shard_shape(self)
    if shards is None or self.storage.device is None or len(self.mesh_coordinates()) != 1:
        raise MeshError(
            f"{_WHERE}: the tensor must be sharded over cores of one device; it is "
            f"{self.memory_config().memory_layout} at {len(self.mesh_coordinates())} coordinates. Take those of a mesh "
            "apart with ttnn.get_device_tensors(t)."
        )
    held = shards.cores_with_shards()
    wanted = core if isinstance(core, CoreCoord) else _numbered(held, core if core_id is None else core_id)
    numbers = range(math.prod(shards.shard_grid()))
    number = next((n for n in numbers if shards.core_of(n) == wanted), None)
    if number is None:
        raise MeshError(f"{_WHERE}: core {wanted} holds no shard; these do: {', '.join(map(str, held))}.")
    place = next(itertools.islice(itertools.product(*map(range, shards.shard_grid())), number, None))
    piece = with_padding(self.pieces()[0].cpu(), self.spec)
    whole = piece.reshape(folded(tuple(self.padded_shape), len(shape)))
    cuts = tuple(slice(at * n, (at + 1) * n) for at, n in zip(place, shape, strict=True))
    values = torch.zeros(shape, dtype=whole.dtype)
    found = whole[cuts]
    values[tuple(slice(0, n) for n in found.shape)] = found
    spec = make_spec(shape, self.dtype, self.layout, tile=self.tile)
    return Tensor.make(Storage(values.reshape(*HOST.extents, *shape), HOST, None), spec)


def _shard_shape(tensor: Tensor) -> tuple[int, ...]:
    nd = tensor.memory_config().nd_shard_spec
    return () if nd is None else tuple(nd.shard_shape)


def _numbered(cores: list[CoreCoord], number: object) -> CoreCoord:
    at = checked_int(_WHERE, "core_id", number)
    if not 0 <= at < len(cores):
        raise MeshError(f"{_WHERE}: core_id={at} is not one of the {len(cores)} cores that hold shards.")
    return cores[at]
