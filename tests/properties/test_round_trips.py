"""Splitting a tensor over a mesh and putting it together again gives the tensor back.

For every dtype (rounded shard by shard), layout, mapper and mesh rank; on the host, on a mesh and
through a file. The pieces are compared with torch's own chunks, the coordinates with counting.
"""

from __future__ import annotations

import itertools
import math
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from strategies import LAWS, Extents, leading_extents_are_true, mesh_of, positions, seeds

import softmesh as ttnn
from softmesh.tensor.convert import round_blocks

Dims = tuple[int | None, ...]

# -- dtypes: what one shard holds after rounding ---------------------------------------------------


def _bounded(bits: int, signed: bool) -> Callable[[torch.Tensor], torch.Tensor]:
    low, high = (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) if signed else (0, 2**bits - 1)
    return lambda values: values.double().trunc().clamp(low, high).to(torch.int64)


def _fp8(values: torch.Tensor) -> torch.Tensor:
    return values.masked_fill(values.abs() < 2.0**-6, 0.0).to(torch.float8_e4m3fn)


def _blocks(mantissa_bits: int) -> Callable[[torch.Tensor], torch.Tensor]:
    def round_rows(values: torch.Tensor) -> torch.Tensor:
        rows = values.reshape(1) if not values.dim() else values
        return round_blocks(rows.contiguous(), mantissa_bits).reshape(values.shape)

    return round_rows


ROUNDED: dict[ttnn.DataType, Callable[[torch.Tensor], torch.Tensor]] = {
    ttnn.float32: lambda values: values,
    ttnn.bfloat16: lambda values: values.to(torch.bfloat16),
    ttnn.bfloat8_b: _blocks(7),
    ttnn.bfloat4_b: _blocks(3),
    ttnn.fp8_e4m3: _fp8,
    ttnn.uint8: _bounded(8, signed=False),
    ttnn.int8: _bounded(8, signed=True),
    ttnn.uint16: _bounded(16, signed=False),
    ttnn.uint32: lambda values: values.double().trunc().to(torch.int64) % 2**32,
    ttnn.int32: _bounded(32, signed=True),
}
TILE_ONLY = (ttnn.bfloat8_b, ttnn.bfloat4_b)


@st.composite
def kinds(draw: st.DrawFn) -> tuple[ttnn.DataType, ttnn.Layout]:
    dtype = draw(st.sampled_from(list(ROUNDED)))
    layouts = [ttnn.TILE_LAYOUT, ttnn.ROW_MAJOR_LAYOUT]
    if dtype is ttnn.fp8_e4m3:
        layouts = layouts[1:]
    return dtype, draw(st.sampled_from(layouts[:1] if dtype in TILE_ONLY else layouts))


def numbers(shape: Extents, seed: int) -> torch.Tensor:
    """Rows with large and small values side by side, so that block floats lose some."""
    generator = torch.Generator().manual_seed(seed)
    scale = 2.0 ** torch.randint(-6, 9, shape, generator=generator)
    return torch.randn(shape, generator=generator) * scale


def same_values(found: torch.Tensor, expected: torch.Tensor) -> bool:
    return found.shape == expected.shape and torch.equal(found.double(), expected.double())


def read(tensor: ttnn.Tensor) -> torch.Tensor:
    """`to_torch` of one device's values; fp8 has none, and goes by way of float32."""
    if tensor.dtype is not ttnn.fp8_e4m3:
        return ttnn.to_torch(tensor)
    return ttnn.to_torch(ttnn.to_dtype(ttnn.from_device(tensor), ttnn.float32))


# -- splits: how a mapper lays pieces out ----------------------------------------------------------


@dataclass(frozen=True)
class Split:
    """A mapper, and by plain counting what it should do.

    `shape` is the distribution, `dims` the tensor dim split along each of its axes. `coords` has the
    mesh coordinate of each piece, row-major over `shape`.
    """

    mesh: Extents
    shape: Extents
    dims: Dims
    source: Extents
    coords: tuple[Extents, ...]
    mapper: ttnn.TensorToMesh | ttnn.ReplicateTensorToMeshWrapper
    composer: Callable[[Sequence[int]], ttnn.MeshToTensor]

    def pieces(self, source: torch.Tensor) -> list[torch.Tensor]:
        pieces = [source]
        for n, dim in zip(self.shape, self.dims, strict=True):
            split = [[p] * n if dim is None else list(torch.chunk(p, n, dim)) for p in pieces]
            pieces = list(itertools.chain.from_iterable(split))
        return pieces

    def joined(self, pieces: Sequence[torch.Tensor], dims: Sequence[int | None]) -> torch.Tensor:
        """Axis i of the distribution concatenated along dims[i]; None takes one of equal pieces."""
        parts = list(pieces)
        for n, dim in reversed(list(zip(self.shape, dims, strict=True))):
            groups = [parts[i : i + n] for i in range(0, len(parts), n)]
            parts = [group[0] if dim is None else torch.cat(group, dim) for group in groups]
        return parts[0]


def _counted(mesh: Extents, shape: Extents, offset: Extents | None) -> tuple[Extents, ...]:
    fits = len(shape) == len(mesh) and all(n <= m for n, m in zip(shape, mesh, strict=True))
    if not fits:
        return tuple(positions(mesh)[: math.prod(shape)])
    start = offset or (0,) * len(mesh)
    return tuple(tuple(a + b for a, b in zip(start, at, strict=True)) for at in positions(shape))


def _whole(local: Extents, shape: Extents, dims: Dims) -> Extents:
    """The shape of the tensor whose pieces are `local`."""
    parts = list(zip(shape, dims, strict=True))
    return tuple(n * math.prod(k for k, dim in parts if dim == d) for d, n in enumerate(local))


@st.composite
def shards(draw: st.DrawFn, rank: int) -> Extents:
    return tuple(draw(st.sampled_from([1, 2, 3, 5] if d < rank - 1 else [1, 3, 16, 18])) for d in range(rank))


MESH_SHAPES: list[Extents] = [(1,), (3,), (4,), (1, 1), (1, 4), (2, 2), (2, 3), (2, 4), (2, 2, 2), (1, 2, 3)]
OVERRIDES: dict[Extents, list[Extents]] = {  # shapes that do not fit their mesh dim by dim: laid out row-major
    (2, 4): [(4, 2), (2, 2, 2), (8,), (5,), (8, 1), (2, 1, 3)],
    (2, 3): [(3, 2), (6,), (1, 6), (4,)],
    (2, 2, 2): [(8,), (2, 4), (4, 2), (5,)],
    (4,): [(2, 2), (1, 3)],
    (1, 4): [(2, 2), (4, 1)],
}


@st.composite
def distributions(draw: st.DrawFn, mesh: Extents) -> tuple[Extents | None, Extents | None]:
    """An override of the distribution's shape and an offset, each perhaps None."""
    mode = draw(st.sampled_from(["whole", "smaller", "row-major"]))
    if mode == "row-major" and mesh in OVERRIDES:
        return draw(st.sampled_from(OVERRIDES[mesh])), None
    if mode == "smaller":
        shape = tuple(draw(st.integers(1, n)) for n in mesh)
        offset = tuple(draw(st.integers(0, m - n)) for n, m in zip(shape, mesh, strict=True))
        return shape, draw(st.sampled_from([offset, None]))
    return None, None


@st.composite
def by_config(draw: st.DrawFn) -> Split:
    """create_mesh_mapper with any placements, over all, a part, or the flattened mesh."""
    mesh = draw(st.sampled_from(MESH_SHAPES))
    override, offset = draw(distributions(mesh))
    shape = mesh if override is None else override
    rank = draw(st.integers(0, 4))
    local = draw(shards(rank))
    free = draw(st.permutations(range(rank)))
    wanted = [draw(st.booleans()) for _ in shape]
    dims: Dims = tuple(free[i] if i < rank and yes else None for i, yes in enumerate(wanted))
    source = tuple(
        n * math.prod(k for k, dim in zip(shape, dims, strict=True) if dim == d) for d, n in enumerate(local)
    )
    named = [dim - rank if dim is not None and draw(st.booleans()) else dim for dim in dims]
    words = [ttnn.PlacementReplicate() if dim is None else ttnn.PlacementShard(dim) for dim in named]
    over = None if override is None else ttnn.MeshShape(override)
    start = None if offset is None else ttnn.MeshCoordinate(offset)
    device = mesh_of(mesh)
    return Split(
        mesh,
        shape,
        dims,
        source,
        _counted(mesh, shape, offset),
        ttnn.create_mesh_mapper(device, ttnn.MeshMapperConfig(words, None, over, start)),
        lambda along: ttnn.create_mesh_composer(device, ttnn.MeshComposerConfig(list(along), None, over, start)),
    )


@st.composite
def along_one_dim(draw: st.DrawFn) -> Split:
    """ShardTensorToMesh, also with fewer chunks than devices."""
    mesh = draw(st.sampled_from(MESH_SHAPES))
    devices = math.prod(mesh)
    rank = draw(st.integers(1, 4))
    local, dim = draw(shards(rank)), draw(st.integers(0, rank - 1))
    chunk = local[dim]
    fewest = devices * (chunk - 1) // chunk + 1  # fewer chunks of this size, and torch would cut smaller ones
    count = draw(st.integers(min(fewest, devices), devices))
    source = tuple(n * count if d == dim else n for d, n in enumerate(local))
    device = mesh_of(mesh)
    return Split(
        mesh,
        (count,),
        (dim,),
        source,
        tuple(positions(mesh)[:count]),
        ttnn.ShardTensorToMesh(device, draw(st.sampled_from([dim, dim - rank]))),
        lambda along: ttnn.ConcatMeshToTensor(device, along[0]),
    )


@st.composite
def along_two_dims(draw: st.DrawFn) -> Split:
    """ShardTensor2dMesh over the mesh, a part of it or another grid of as many devices."""
    mesh = draw(st.sampled_from([(1, 4), (2, 2), (2, 3), (2, 4)]))
    shape = draw(st.sampled_from([mesh, (mesh[1], mesh[0]), (1, mesh[1]), (mesh[0], 1)]))
    rank = draw(st.integers(1, 4))
    local = draw(shards(rank))
    first, second = (*draw(st.permutations(range(rank))), None)[:2]
    dims = draw(st.sampled_from([(first, second), (first, None), (None, first), (None, None)]))
    source = tuple(
        n * math.prod(k for k, dim in zip(shape, dims, strict=True) if dim == d) for d, n in enumerate(local)
    )
    device = mesh_of(mesh)
    return Split(
        mesh,
        shape,
        dims,
        source,
        _counted(mesh, shape, None),
        ttnn.ShardTensor2dMesh(device, shape, dims),
        lambda along: ttnn.ConcatMesh2dToTensor(device, shape, (along[0], along[1])),
    )


@st.composite
def everywhere(draw: st.DrawFn) -> Split:
    mesh = draw(st.sampled_from(MESH_SHAPES))
    device = mesh_of(mesh)
    return Split(
        mesh,
        (math.prod(mesh),),
        (None,),
        draw(shards(draw(st.integers(0, 4)))),
        tuple(positions(mesh)),
        ttnn.ReplicateTensorToMesh(device),
        lambda along: ttnn.ConcatMeshToTensor(device, along[0]),
    )


splits = by_config() | along_one_dim() | along_two_dims() | everywhere()


def composing_dims(split: Split) -> list[int] | None:
    """A dim for each axis, all different: its own where it is split, any other where it is not."""
    rank = len(split.source)
    spare = [d for d in range(rank) if d not in split.dims]
    if len(spare) < split.dims.count(None):
        return None
    return [spare.pop() if dim is None else dim for dim in split.dims]


def distributed(split: Split, source: torch.Tensor, kind: tuple[ttnn.DataType, ttnn.Layout]) -> ttnn.Tensor:
    host = ttnn.from_torch(source, kind[0], layout=kind[1], mesh_mapper=split.mapper)
    assert host is not None
    return host


def on_device(host: ttnn.Tensor, split: Split) -> ttnn.Tensor:
    return ttnn.to_device(host, mesh_of(split.mesh))


def expected_pieces(split: Split, source: torch.Tensor, dtype: ttnn.DataType) -> list[torch.Tensor]:
    return [ROUNDED[dtype](piece) for piece in split.pieces(source)]


# -- the laws --------------------------------------------------------------------------------------


@LAWS
@given(splits, kinds(), seeds)
def test_composing_undoes_sharding(split: Split, kind: tuple[ttnn.DataType, ttnn.Layout], seed: int) -> None:
    source = numbers(split.source, seed)
    pieces = expected_pieces(split, source, kind[0])
    host = distributed(split, source, kind)
    dims = composing_dims(split)
    for tensor in (host, on_device(host, split)):
        assert leading_extents_are_true(tensor)
        assert same_values(ttnn.compose(tensor), split.joined(pieces, split.dims))
        if dims is not None:
            whole = ttnn.to_torch(tensor, mesh_composer=split.composer(dims))
            assert same_values(whole, split.joined(pieces, dims))
            assert whole.dtype is tensor.to_torch(split.composer(dims)).dtype
            aggregated = ttnn.aggregate_tensor(tensor, split.composer(dims))
            assert same_values(read(aggregated), whole)


@LAWS
@given(splits, kinds(), seeds)
def test_each_device_holds_its_chunk(split: Split, kind: tuple[ttnn.DataType, ttnn.Layout], seed: int) -> None:
    source = numbers(split.source, seed)
    pieces = expected_pieces(split, source, kind[0])
    host = distributed(split, source, kind)
    tensor = on_device(host, split)
    assert [tuple(coord) for coord in tensor.device_coords()] == list(split.coords)
    for held in (host, tensor):
        assert tuple(held.shape) == tuple(pieces[0].shape)
        shards = ttnn.get_device_tensors(held)
        assert len(shards) == len(pieces)
        assert all(same_values(read(s), p) for s, p in zip(shards, pieces, strict=True))
    for shard, coord in zip(ttnn.get_device_tensors(tensor), split.coords, strict=True):
        assert [tuple(c) for c in shard.device_coords()] == [coord]
        assert shard.tensor_topology() == tensor.tensor_topology()


@LAWS
@given(splits, kinds(), seeds)
def test_the_topology_is_what_the_mapper_was_told(
    split: Split, kind: tuple[ttnn.DataType, ttnn.Layout], seed: int
) -> None:
    host = distributed(split, numbers(split.source, seed), kind)
    tensor = on_device(host, split)
    direct = ttnn.from_torch(
        numbers(split.source, seed),
        kind[0],
        layout=kind[1],
        device=mesh_of(split.mesh),
        mesh_mapper=split.mapper,
    )
    assert direct is not None
    told = split.mapper.unwrap().config().placements
    for held in (host, tensor, direct, ttnn.from_device(tensor)):
        topology = held.tensor_topology()
        assert tuple(topology.distribution_shape()) == split.shape
        assert list(map(repr, topology.placements())) == list(map(repr, told))
        assert [tuple(coord) for coord in topology.mesh_coords()] == list(split.coords)


@LAWS
@given(splits, kinds(), seeds)
def test_moving_to_a_mesh_and_back_changes_nothing(
    split: Split, kind: tuple[ttnn.DataType, ttnn.Layout], seed: int
) -> None:
    host = distributed(split, numbers(split.source, seed), kind)
    back = ttnn.from_device(on_device(host, split))
    assert back.storage_type() is ttnn.StorageType.HOST
    assert back.spec == host.spec
    assert back.spec.dtype is kind[0]
    assert back.spec.layout is kind[1]
    assert ttnn.placements(back) == ttnn.placements(host)
    assert torch.equal(back.pieces().cpu(), host.pieces().cpu())


@LAWS
@given(splits, kinds().filter(lambda kind: kind[0] is not ttnn.fp8_e4m3), seeds)  # which files cannot hold
def test_a_file_gives_back_what_was_written(split: Split, kind: tuple[ttnn.DataType, ttnn.Layout], seed: int) -> None:
    host = distributed(split, numbers(split.source, seed), kind)
    device = mesh_of(split.mesh)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "t.tensorbin"
        ttnn.dump_tensor(path, on_device(host, split))
        for loaded in (ttnn.load_tensor(path), ttnn.load_tensor(path, device=device)):
            assert loaded.spec == host.spec
            assert ttnn.placements(loaded) == ttnn.placements(on_device(host, split))
            assert [tuple(c) for c in loaded.view_distribution().coordinates()] == list(split.coords)
            assert torch.equal(loaded.pieces().cpu(), host.pieces().cpu())


@LAWS
@given(splits, seeds)
def test_distributing_a_plain_tensor_is_splitting_it_at_once(split: Split, seed: int) -> None:
    source = numbers(split.source, seed)
    plain = ttnn.from_torch(source, ttnn.bfloat16)
    assert plain is not None
    direct = distributed(split, source, (ttnn.bfloat16, ttnn.ROW_MAJOR_LAYOUT))
    for made in (
        ttnn.distribute_tensor(plain, split.mapper.unwrap()),
        ttnn.distribute_tensor(plain, split.mapper.unwrap(), mesh_of(split.mesh)),
    ):
        assert torch.equal(made.pieces().cpu(), direct.pieces().cpu())
        assert made.tensor_topology() == direct.tensor_topology()
        assert ttnn.placements(made) == ttnn.placements(direct)


@LAWS
@given(st.sampled_from(MESH_SHAPES), kinds(), st.integers(0, 3).flatmap(shards), seeds)
def test_without_a_mapper_every_device_gets_everything_and_one_copy_is_kept(
    mesh: Extents, kind: tuple[ttnn.DataType, ttnn.Layout], shape: Extents, seed: int
) -> None:
    source = numbers(shape, seed)
    tensor = ttnn.from_torch(source, kind[0], layout=kind[1], device=mesh_of(mesh))
    assert tensor is not None
    assert tensor.view_data().numel() == source.numel()
    topology = tensor.tensor_topology()
    assert tuple(topology.distribution_shape()) == (math.prod(mesh),)
    assert list(map(repr, topology.placements())) == ["PlacementReplicate()"]
    rounded = ROUNDED[kind[0]](source)
    assert all(same_values(read(shard), rounded) for shard in ttnn.get_device_tensors(tensor))
    if math.prod(mesh) > 1:
        with pytest.raises(ttnn.MeshError, match="Supply a mesh composer to concatenate multi-device shards"):
            ttnn.to_torch(tensor)


# -- uneven splits ---------------------------------------------------------------------------------


@st.composite
def uneven(draw: st.DrawFn) -> tuple[ttnn.TensorToMesh, Extents, int, str]:
    """A mapper, a shape that it cannot split evenly, the dim, and TT-NN's words for it."""
    rank = draw(st.integers(1, 3))
    shape = list(draw(shards(rank)))
    dim = draw(st.integers(0, rank - 1))
    mesh = draw(st.sampled_from([(1, 4), (2, 3), (2, 4), (1, 2)]))
    is_1d = draw(st.booleans())
    devices = math.prod(mesh) if is_1d else mesh[1]
    shape[dim] = draw(st.integers(1, 3 * devices).filter(lambda n: n % devices))
    chunk = -(-shape[dim] // devices)
    count, short = -(-shape[dim] // chunk), shape[dim] % chunk
    mapper = ttnn.ShardTensorToMesh(mesh_of(mesh), dim)
    if not is_1d:
        mapper = ttnn.ShardTensor2dMesh(mesh_of(mesh), mesh, (None, dim))
    if not is_1d and count != devices:
        message = f"ND sharding requires the number of chunks {count} to match the mesh dimension size {devices}"
    elif short:
        full, last = list(shape), list(shape)
        full[dim], last[dim] = chunk, short
        message = f"Shard shape mismatch: expected Shape({full}) but got Shape({last})"
    else:
        message = ""  # fewer chunks than devices, all of one size
    return mapper, tuple(shape), dim, message


@LAWS
@given(uneven(), kinds(), seeds)
def test_uneven_splits_are_refused_and_work_under_lenient(
    case: tuple[ttnn.TensorToMesh, Extents, int, str], kind: tuple[ttnn.DataType, ttnn.Layout], seed: int
) -> None:
    mapper, shape, dim, message = case
    source = numbers(shape, seed)
    if message:
        with pytest.raises(ttnn.MeshError) as refused:
            ttnn.from_torch(source, kind[0], layout=kind[1], mesh_mapper=mapper)
        assert str(refused.value).startswith(message)
    with ttnn.lenient():
        host = ttnn.from_torch(source, kind[0], layout=kind[1], mesh_mapper=mapper)
    assert host is not None
    extent = host.shape[dim]
    filled = torch.zeros(*(n if d != dim else -n % extent for d, n in enumerate(shape)))
    chunks = torch.cat([source, filled], dim).split(extent, dim)
    whole = torch.cat([ROUNDED[kind[0]](chunk) for chunk in chunks], dim).narrow(dim, 0, shape[dim])
    device = mesh_of(tuple(mapper.mesh_shape))
    for tensor in (host, ttnn.to_device(host, device), ttnn.from_device(ttnn.to_device(host, device))):
        assert leading_extents_are_true(tensor)
        assert same_values(ttnn.compose(tensor), whole)


@pytest.mark.parametrize(
    ("n", "count", "last"), [(12, 6, None), (10, 5, None), (5, 5, None), (8, 8, None), (9, 5, 1), (15, 8, 1)]
)
def test_the_reference_examples_of_chunks_over_eight_devices(n: int, count: int, last: int | None) -> None:
    mapper = ttnn.ShardTensorToMesh(mesh_of((2, 4)), 0)
    if last is None:
        host = ttnn.from_torch(torch.arange(4.0 * n).reshape(n, 4), mesh_mapper=mapper)
        assert host is not None
        assert tuple(host.tensor_topology().distribution_shape()) == (count,)
        return
    with pytest.raises(ttnn.MeshError, match=rf"expected Shape\(\[2, 4\]\) but got Shape\(\[{last}, 4\]\)"):
        ttnn.from_torch(torch.zeros(n, 4), mesh_mapper=mapper)
