"""Generated meshes, values and placements, and what a set of pieces means as one value.

The meaning of the four words is written out here a second time, piece by piece and without any of
softmesh's own composing, so that the laws compare two independent readings.
"""

from __future__ import annotations

import itertools
import math
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass

import torch
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

import softmesh as ttnn
from softmesh.placement.placements import LOCAL, REPLICATE, Partial, Placement, Shard
from softmesh.tensor.convert import from_storage

Extents = tuple[int, ...]
Words = tuple[Placement, ...]

LAWS = settings(
    max_examples=60,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much],
)
MESHES: list[Extents] = [(1, 1), (1, 2), (2, 1), (2, 2), (1, 3), (2, 3)]
REDUCTIONS = {"sum": "sum", "avg": "mean", "max": "max", "min": "min", "prod": "prod"}

_OPEN: dict[Extents, ttnn.MeshDevice] = {}
_IDS = itertools.count(1_000_000)  # far from the ids that other tests ask for by number


def mesh_of(shape: Extents) -> ttnn.MeshDevice:
    """One open mesh of each shape for all laws of a file."""
    if shape not in _OPEN or not _OPEN[shape].is_open:
        ids = list(itertools.islice(_IDS, math.prod(shape)))
        _OPEN[shape] = ttnn.open_mesh_device(ttnn.MeshShape(shape), physical_device_ids=ids)
    return _OPEN[shape]


def close_meshes() -> None:
    for mesh in _OPEN.values():
        ttnn.close_mesh_device(mesh)
    _OPEN.clear()


def one_device() -> ttnn.MeshDevice:
    return mesh_of((1, 1))


# -- values ----------------------------------------------------------------------------------------

seeds = st.integers(0, 2**31)


@dataclass(frozen=True)
class Like:
    """An operand before it is placed: its piece on one device, and what values it may hold.

    `values`: "real", "positive", "whole" (small integers: sums of them are exact in any order),
    "unit" (within -1 to 1), "LOW to HIGH", or "below N" (indices).
    """

    shape: Extents
    dtype: ttnn.DataType = ttnn.float32
    layout: ttnn.Layout = ttnn.TILE_LAYOUT
    values: str = "real"


def draw_values(shape: Extents, kind: str, seed: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    if kind.startswith("below"):
        return torch.randint(0, int(kind.split()[1]), shape, generator=generator, dtype=torch.int32)
    if kind == "whole":
        return torch.randint(-3, 4, shape, generator=generator).float()
    if kind == "bits":
        return torch.randint(0, 4, shape, generator=generator, dtype=torch.int32)
    named = {"real": (-3.0, 3.0), "positive": (0.25, 3.0), "unit": (-1.0, 1.0)}
    low, high = named[kind] if kind in named else map(float, kind.split(" to "))
    return torch.rand(shape, generator=generator) * (high - low) + low


# -- placements ------------------------------------------------------------------------------------


def words_for(rank: int, *, meaningless: bool = True) -> st.SearchStrategy[Placement]:
    """Any word for one mesh axis of a tensor of this rank."""
    choices: list[st.SearchStrategy[Placement]] = [st.just(REPLICATE)]
    if rank:
        split: st.SearchStrategy[Placement] = st.integers(0, rank - 1).map(Shard)
        choices += [split, split]
    choices.append(st.sampled_from(sorted(REDUCTIONS)).map(Partial))
    if meaningless:
        choices.append(st.just(LOCAL))
    return st.one_of(choices)


def can_be_made(words: Words) -> bool:
    """Contributions that combine by different ops have no order in which to combine them."""
    ops = {word.op for word in words if isinstance(word, Partial)}
    return len(ops) < 2 or ops == {"sum", "avg"}


@st.composite
def words_together(
    draw: st.DrawFn, likes: Sequence[Like], joints: Sequence[Sequence[int | None]], axes: int
) -> list[Words]:
    """Words for each operand of a call, on many axes split along dims that belong together.

    Often two axes split the same dims, some of the operands along one, some along the other.
    """
    words: list[list[Placement]] = [[] for _ in likes]
    favourite = draw(st.sampled_from(joints)) if joints else None
    for _ in range(axes):
        joint = draw(st.sampled_from([favourite, favourite, *joints])) if draw(st.booleans()) else None
        for index, like in enumerate(likes):
            dim = None if joint is None else joint[index]
            if joint is None:
                words[index].append(draw(words_for(len(like.shape))))
            else:
                is_split = dim is not None and draw(st.integers(0, 2)) > 0
                words[index].append(Shard(dim) if is_split and dim is not None else REPLICATE)
    return [tuple(several) if can_be_made(tuple(several)) else (several[0], REPLICATE) for several in words]


def placed(mesh: ttnn.MeshDevice, like: Like, words: Words, seed: int, *, uneven_dim: int | None = None) -> ttnn.Tensor:
    """A tensor with a word of our choice on each mesh axis.

    A Partial or Local axis first gets a tensor dim of its own, split over that axis. Reducing it leaves
    contributions; rolling it by nothing leaves values of which only the devices know.
    """
    grid = tuple(mesh.shape)
    words = tuple(REPLICATE if n == 1 else word for word, n in zip(words, grid, strict=True))
    own = [axis for axis, word in enumerate(words) if isinstance(word, Partial) or word is LOCAL]
    own.sort(key=lambda axis: words[axis] is not LOCAL)
    shape = [grid[axis] for axis in own] + list(like.shape)
    dims: list[int | None] = []
    for axis, word in enumerate(words):
        if isinstance(word, Shard):
            shape[len(own) + word.dim] *= grid[axis]
        dims.append(_source_dim(axis, word, own))
    if uneven_dim is not None:
        shape[len(own) + uneven_dim] -= 1
    source = draw_values(tuple(shape), like.values, seed)
    with ttnn.lenient() if uneven_dim is not None else nullcontext():
        tensor = ttnn.from_torch(source, like.dtype, layout=like.layout, device=mesh, mesh_mapper=_mapper(mesh, dims))
    assert tensor is not None
    for axis in own:
        word = words[axis]
        if isinstance(word, Partial):
            tensor = getattr(ttnn, REDUCTIONS[word.op])(tensor, 0)
        else:
            rolled = ttnn.roll(tensor, 0, 0)
            tensor = ttnn.reshape(rolled, list(rolled.shape)[1:])
    found = ttnn.placements(tensor)
    assert [type(w) for w in found] == [type(w) for w in words], f"asked for {words}, made {found}"
    return tensor


def _source_dim(axis: int, word: Placement, own: list[int]) -> int | None:
    if isinstance(word, Shard):
        return word.dim + len(own)
    return None if word is REPLICATE else own.index(axis)


def _mapper(mesh: ttnn.MeshDevice, dims: list[int | None]) -> ttnn.TensorToMesh:
    if len(dims) > 1 and len(set(dims)) == 1 and dims[0] is not None:
        return ttnn.ShardTensorToMesh(mesh, dims[0])
    words = [ttnn.PlacementReplicate() if dim is None else ttnn.PlacementShard(dim) for dim in dims]
    return ttnn.create_mesh_mapper(mesh, ttnn.MeshMapperConfig(words))


def write_one_device(tensor: ttnn.Tensor, position: int, seed: int, values: str = "real") -> torch.Tensor:
    """Give one device values of its own; returns them as they were written."""
    shard = ttnn.get_device_tensors(tensor)[position]
    fresh = draw_values(tuple(tensor.shape), values, seed)
    host = ttnn.from_torch(fresh, tensor.dtype, layout=tensor.layout)
    assert host is not None
    ttnn.copy_host_to_device_tensor(host, shard)
    return host.pieces()[0]


def contributions_by_matmul(mesh: ttnn.MeshDevice, like: Like, seed: int) -> ttnn.Tensor:
    """(M, N) as the product of two matrices that all devices split along the summed dim."""
    rows, columns = like.shape
    inner = mesh.get_num_devices()
    factors = [
        ttnn.from_torch(
            draw_values(shape, "whole", seed + dim),
            like.dtype,
            layout=ttnn.TILE_LAYOUT,
            device=mesh,
            mesh_mapper=ttnn.ShardTensorToMesh(mesh, dim),
        )
        for shape, dim in (((rows, inner), 1), ((inner, columns), 0))
    ]
    product: ttnn.Tensor = ttnn.matmul(*factors)
    return product


@st.composite
def odd_ones(draw: st.DrawFn, mesh: ttnn.MeshDevice, like: Like, seed: int) -> ttnn.Tensor:
    """Tensors that lie on a mesh in an unusual way."""
    return draw(st.one_of(taken_apart(mesh, like, seed), on_other_grids(mesh, like, seed)))


@st.composite
def taken_apart(draw: st.DrawFn, mesh: ttnn.MeshDevice, like: Like, seed: int) -> ttnn.Tensor:
    """One shard of a tensor, some of its shards in any order, or the tensor after a write to one device."""
    words: Words = tuple(draw(words_for(len(like.shape), meaningless=False)) for _ in mesh.shape)
    tensor = placed(mesh, like, words if can_be_made(words) else (words[0], REPLICATE), seed)
    shards = ttnn.get_device_tensors(tensor)
    kind = draw(st.sampled_from(["one", "some", "written"]))
    if kind == "one":
        return draw(st.sampled_from(shards))
    if kind == "some":
        some = draw(st.permutations(shards))[: draw(st.integers(1, len(shards)))]
        return ttnn.combine_device_tensors(tensors=some)
    write_one_device(tensor, draw(st.integers(0, len(shards) - 1)), seed + 1, like.values)
    return tensor


@st.composite
def on_other_grids(draw: st.DrawFn, mesh: ttnn.MeshDevice, like: Like, seed: int) -> ttnn.Tensor:
    """Distributed over a transposed grid, the first few devices, or a corner of the mesh."""
    rows, columns = tuple(mesh.shape)
    kind = draw(st.sampled_from(["transposed", "few", "corner"]))
    shape: Extents = (columns, rows)
    offset = None
    if kind == "few":
        shape = (draw(st.integers(1, rows * columns)),)
    elif kind == "corner":
        row, column = draw(st.integers(0, rows - 1)), draw(st.integers(0, columns - 1))
        shape = (draw(st.integers(1, rows - row)), draw(st.integers(1, columns - column)))
        offset = ttnn.MeshCoordinate(row, column)
    dims: list[int | None] = [d if draw(st.booleans()) else None for d in draw(st.permutations(range(len(like.shape))))]
    dims = [*dims, None, None][: len(shape)]
    whole = list(like.shape)
    for dim, n in zip(dims, shape, strict=True):
        if dim is not None:
            whole[dim] *= n
    words = [ttnn.PlacementReplicate() if dim is None else ttnn.PlacementShard(dim) for dim in dims]
    config = ttnn.MeshMapperConfig(words, ttnn.MeshShape(shape), mesh_offset_override=offset)
    made = ttnn.from_torch(
        draw_values(tuple(whole), like.values, seed),
        like.dtype,
        layout=like.layout,
        device=mesh,
        mesh_mapper=ttnn.create_mesh_mapper(mesh, config),
    )
    assert made is not None
    return made


# -- what pieces mean ------------------------------------------------------------------------------


def by_coordinate(tensor: ttnn.Tensor) -> dict[ttnn.MeshCoordinate, torch.Tensor]:
    """What each occupied device holds, as stored."""
    return dict(zip(tensor.view_distribution().coordinates(), tensor.pieces().cpu(), strict=True))


def on_one_device(piece: torch.Tensor, like: ttnn.Tensor) -> ttnn.Tensor:
    """A piece by itself, on a 1x1 mesh, with the dtype and layout it has on the mesh."""
    made = ttnn.from_torch(
        from_storage(piece, like.dtype),
        like.dtype,
        layout=like.layout,
        device=one_device(),
        memory_config=like.memory_config(),
    )
    assert made is not None
    return made


def combined(parts: Sequence[torch.Tensor], op: str) -> torch.Tensor:
    stacked = torch.stack(list(parts))
    if op in ("sum", "avg"):
        total = stacked.double().sum(0)
        return (total / (len(parts) if op == "avg" else 1)).to(stacked.dtype)
    if op == "prod":
        return stacked.prod(0, dtype=stacked.dtype)
    return stacked.amax(0) if op == "max" else stacked.amin(0)


def meaning(pieces: torch.Tensor, words: Sequence[Placement | None]) -> torch.Tensor:
    """(*grid, *local) -> the value that the words say the pieces make; None takes the first piece.

    The last axis is folded first: where several axes split one dim, the first of them is outermost.
    """
    for axis, word in reversed(list(enumerate(words))):
        parts = pieces.unbind(axis)
        if isinstance(word, Shard):
            pieces = torch.cat(parts, word.dim + axis)
        else:
            pieces = combined(parts, word.op) if isinstance(word, Partial) else parts[0]
    return pieces


def cut_filler(whole: torch.Tensor, words: Sequence[Placement | None]) -> torch.Tensor:
    """Drop the tail that an uneven split added."""
    for word in words:
        if isinstance(word, Shard) and word.size is not None:
            whole = whole.narrow(word.dim, 0, word.size)
    return whole


def same_bits(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Equal in every bit, all NaNs counted as one."""
    if a.shape != b.shape or a.dtype != b.dtype:
        return False
    if not a.is_floating_point():
        return torch.equal(a, b)
    numbers = ~a.isnan()
    same = torch.equal(a.isnan(), b.isnan()) and torch.equal(a[numbers], b[numbers])
    return same and torch.equal(a[numbers].signbit(), b[numbers].signbit())


def leading_extents_are_true(tensor: ttnn.Tensor) -> bool:
    """The invariant of every tensor: its data has the leading extents that its distribution names."""
    dist = tensor.view_distribution()
    return tuple(tensor.view_data().shape) == (*dist.extents, *tensor.shape)


def positions(extents: Sequence[int]) -> list[tuple[int, ...]]:
    return list(itertools.product(*(range(n) for n in extents)))


@contextmanager
def quietly() -> Iterator[None]:
    """Without PartialWarnings, for laws that are not about them."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ttnn.PartialWarning)
        yield
