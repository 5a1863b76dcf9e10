"""Shard regions: which part of a whole tensor lies where in what a process stores.

Knows shapes only: splits of dims along mesh axes, of which a process may hold a block. The same for what was saved
and for what is to be filled, so that one can be cut to the other (resharding on load).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import product
from typing import NamedTuple

from softmesh.errors import MeshError
from softmesh.placement.placements import Replicate, Shard
from softmesh.tensor.tensor import Tensor
from softmesh.tensor.undefined import note_leaving

Extents = tuple[int, ...]
Where = tuple[int | slice, ...]


class Box(NamedTuple):
    """The elements from `start` to before `stop` of a whole value."""

    start: Extents
    stop: Extents

    def shared_with(self, other: Box) -> Box | None:
        start = tuple(map(max, self.start, other.start))
        stop = tuple(map(min, self.stop, other.stop))
        return Box(start, stop) if all(a < b for a, b in zip(start, stop, strict=True)) else None

    def seen_from(self, origin: Extents) -> tuple[slice, ...]:
        return tuple(slice(a - o, b - o) for a, b, o in zip(self.start, self.stop, origin, strict=True))

    def volume(self) -> int:
        return math.prod(b - a for a, b in zip(self.start, self.stop, strict=True))


class StoredBlock(NamedTuple):
    """A whole value split over devices, of which a process stores the block of `grid` devices from `first` on.

    `splits` has the dim that each mesh axis splits; None along axes whose devices share what is stored once.
    """

    whole: Extents
    devices: Extents
    splits: tuple[int | None, ...]
    first: Extents
    grid: Extents

    @property
    def local(self) -> Extents:
        """The shape of one piece; the last ones of an uneven split end in filler."""
        return tuple(-(-n // self._pieces(dim)) for dim, n in enumerate(self.whole))

    @property
    def stored(self) -> Extents:
        return (*self._extents(), *self.local)

    def boxes(self) -> Iterator[tuple[Extents, Box]]:
        """The place of each piece in what is stored, and the part of the whole that it is."""
        local = self.local
        for place in product(*map(range, self._extents())):
            start = tuple(min(self._number(dim, place) * n, self.whole[dim]) for dim, n in enumerate(local))
            stop = tuple(min(a + n, end) for a, n, end in zip(start, local, self.whole, strict=True))
            yield place, Box(start, stop)

    def _extents(self) -> Extents:
        return tuple(1 if dim is None else n for n, dim in zip(self.grid, self.splits, strict=True))

    def _pieces(self, dim: int) -> int:
        return math.prod(n for n, split in zip(self.devices, self.splits, strict=True) if split == dim)

    def _number(self, dim: int, place: Extents) -> int:
        """Of a piece among those of this dim: the first of several axes counts slowest."""
        number = 0
        for n, split, first, at in zip(self.devices, self.splits, self.first, place, strict=True):
            if split == dim:
                number = number * n + first + at
        return number


class Cut(NamedTuple):
    """What to copy: `source` of one stored tensor to `target` of another."""

    source: Where
    target: Where
    volume: int


def cuts(source: StoredBlock, target: StoredBlock) -> list[Cut]:
    """All that two ways to hold a value have in common, none of it twice."""
    if source == target:
        return [Cut((slice(None),), (slice(None),), sum(box.volume() for _, box in target.boxes()))]
    found = []
    pieces = list(source.boxes())
    for place, box in target.boxes():
        for origin, piece in pieces:
            shared = box.shared_with(piece)
            if shared is not None:
                at: Where = (*origin, *shared.seen_from(piece.start))
                to: Where = (*place, *shared.seen_from(box.start))
                found.append(Cut(at, to, shared.volume()))
    return found


def stored_block(name: str, tensor: Tensor) -> StoredBlock:
    """How this process stores a parameter. One that has no meaning as one value is refused."""
    tensor.check_readable(f"a checkpoint of {name}")
    note_leaving(tensor)
    storage = tensor.storage
    dist, device = storage.dist, storage.device
    for axis, word in enumerate(dist.placements):
        if not isinstance(word, Replicate | Shard):
            raise MeshError(
                f"Checkpoint: {name} is {word!r} along mesh axis {axis}: its devices hold values that are not one "
                "parameter any more. Reduce it first, or find the step that let it come apart "
                "(softmesh.train.sync_gradients before optimizer.step())."
            )
    splits = tuple(word.dim % len(tensor.shape) if isinstance(word, Shard) else None for word in dist.placements)
    spread = dist.spread or (1,) * dist.lead
    at = device.block.at if dist.spread and device is not None and device.block else (0,) * dist.lead
    devices = tuple(n * blocks for n, blocks in zip(dist.grid, spread, strict=True))
    first = tuple(i * n for i, n in zip(at, dist.grid, strict=True))
    return StoredBlock(_whole(tensor, devices), devices, splits, first, dist.grid)


def _whole(tensor: Tensor, devices: Extents) -> Extents:
    shape = list(tensor.shape)
    for n, word in zip(devices, tensor.storage.dist.placements, strict=True):
        if isinstance(word, Shard):
            dim = word.dim % len(shape)
            shape[dim] = shape[dim] * n if word.size is None else word.size
    return tuple(map(int, shape))
