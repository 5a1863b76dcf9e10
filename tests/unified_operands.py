"""Whole values placed in any way, and read back, without any of the code that unified ops use for either."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch

import softmesh as ttnn
from softmesh.placement.distribution import distribution
from softmesh.placement.placements import REPLICATE, Partial, Placement, Shard
from softmesh.tensor.storage import Storage

Words = tuple[Placement, ...]
SUM = Partial("sum")
_TORCH = {ttnn.float32: torch.float32, ttnn.bfloat16: torch.bfloat16, ttnn.uint32: torch.int64}
_OPEN: dict[tuple[int, ...], ttnn.MeshDevice] = {}
_IDS = itertools.count(2_000_000)  # far from the ids that other tests ask for by number


def mesh_of(*shape: int) -> ttnn.MeshDevice:
    """One open mesh of each shape for the whole run; work on it under `softmesh.lenient()`, it has no fabric."""
    if shape not in _OPEN or not _OPEN[shape].is_open:
        ids = list(itertools.islice(_IDS, math.prod(shape)))
        _OPEN[shape] = ttnn.open_mesh_device(ttnn.MeshShape(shape), physical_device_ids=ids)
    return _OPEN[shape]


def every_layout(rank: int, mesh: ttnn.MeshDevice, *, contributions: bool = True) -> list[Words]:
    """All words along each axis of several devices."""
    words = [REPLICATE, *map(Shard, range(rank)), *([SUM] if contributions else [])]
    return list(itertools.product(*(words if n > 1 else [REPLICATE] for n in mesh.shape)))


def is_crowded(words: Words, shape: Sequence[int], mesh: ttnn.MeshDevice) -> bool:
    """Whether it splits a dim over more devices than it has elements."""
    return any(
        math.prod(n for n, word in zip(mesh.shape, words, strict=True) if word is Shard(dim)) > extent
        for dim, extent in enumerate(shape)
    )


def some_layout(
    draw: random.Random, shape: Sequence[int], mesh: ttnn.MeshDevice, *, contributions: bool = True
) -> Words:
    found = every_layout(len(shape), mesh, contributions=contributions)
    return draw.choice([words for words in found if not is_crowded(words, shape, mesh)])


def spread(
    values: torch.Tensor,
    mesh: ttnn.MeshDevice,
    words: Words,
    dtype: ttnn.DataType = ttnn.float32,
    layout: ttnn.Layout = ttnn.TILE_LAYOUT,
) -> ttnn.Tensor:
    """`values` on the mesh with a word of our choice along each axis; uneven splits end in zeros."""
    grid = tuple(mesh.shape)
    pieces, sized = values, list(words)
    for dim, extent in enumerate(values.shape):
        axes = [axis for axis, word in enumerate(words) if word is Shard(dim) and grid[axis] > 1]
        count = math.prod(grid[axis] for axis in axes)
        if extent % count:
            behind = [0, 0] * (values.dim() - 1 - dim) + [0, -extent % count]
            pieces = torch.nn.functional.pad(pieces, behind)
            for axis in axes:
                sized[axis] = Shard(dim, extent)
    for axis, (n, word) in enumerate(zip(grid, words, strict=True)):  # behind `axis` leading dims already made
        if isinstance(word, Shard) and n > 1:
            pieces = pieces.unflatten(word.dim + axis, (n, -1)).movedim(word.dim + axis, axis)
        elif word is SUM and n > 1:
            addends = [torch.randint(-3, 4, pieces.shape).to(pieces.dtype) for _ in range(n - 1)]
            pieces = torch.stack([*addends, pieces - sum(addends)], axis)
        else:
            pieces = pieces.unsqueeze(axis)
    dist = distribution(grid, grid, tuple(sized))
    spec = ttnn.TensorSpec(list(pieces.shape[len(grid) :]), dtype, layout)
    return ttnn.Tensor.make(Storage(pieces.to(_TORCH[dtype]).contiguous(), dist, mesh), spec)


def value_of(tensor: ttnn.Tensor) -> torch.Tensor:
    """What the pieces make by their words: the last axis is folded first, filler is cut off."""
    dist = tensor.view_distribution()
    pieces = tensor.pieces().reshape(*dist.grid, *tensor.shape)
    for axis, word in reversed(list(enumerate(dist.placements))):
        parts = pieces.unbind(axis)
        if isinstance(word, Shard):
            pieces = torch.cat(parts, word.dim + axis)
        elif isinstance(word, Partial):
            assert word is SUM
            pieces = torch.stack(parts).float().sum(0)
        else:
            assert word is REPLICATE
            pieces = parts[0]
    for word in dist.placements:
        if isinstance(word, Shard) and word.size is not None:
            pieces = pieces.narrow(word.dim, 0, word.size)
    return pieces


def words_of(tensor: ttnn.Tensor) -> Words:
    """Its placement, without the sizes of uneven splits."""
    words = tensor.view_distribution().placements
    return tuple(Shard(word.dim) if isinstance(word, Shard) else word for word in words)


@contextmanager
def commands_of() -> Iterator[list[str]]:
    """The names of all that runs within the block."""

    class Log:
        names: list[str] = []

        def on_command(self, command: ttnn.Command) -> None:
            self.names.append(command.name)

    log = Log()
    log.names = []
    with ttnn.observe(log):
        yield log.names
