"""Every collective is, on each device, what its definition says; the fast path equals the step executor."""

from __future__ import annotations

import math
from itertools import product

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import LAWS, leading_extents_are_true, mesh_of

import softmesh as ttnn
from softmesh.collectives import mode_collectives

MESH_SHAPES = [(1, 1), (1, 2), (1, 5), (4, 1), (2, 2), (2, 3), (2, 4), (3, 3), (8, 8), (2, 2, 2), (2, 3, 2)]
DTYPES = [ttnn.float32, ttnn.bfloat16, ttnn.int32]
BY_HAND = [{"mode": "host"}, {"numerics": "chip"}, {"numerics": "fp32"}]


def groups(shape: tuple[int, ...], axis: int | None) -> dict[tuple[int, ...], list[tuple[int, ...]]]:
    """For each coordinate the members of its group, in order."""
    places = list(product(*map(range, shape)))
    if axis is None:
        return dict.fromkeys(places, places)
    return {place: [(*place[:axis], i, *place[axis + 1 :]) for i in range(shape[axis])] for place in places}


@st.composite
def cases(draw: st.DrawFn) -> tuple[ttnn.Tensor, tuple[int, ...], int | None, int, torch.Tensor]:
    """A tensor of whole numbers on a mesh, placed in some way; an axis; a dim; what each device holds."""
    shape = draw(st.sampled_from(MESH_SHAPES))
    mesh = mesh_of(shape)
    axis = draw(st.sampled_from([None, *range(len(shape))]))
    local = tuple(draw(st.lists(st.sampled_from([1, 2, 3, 4]), min_size=2, max_size=4)))
    dim = draw(st.integers(0, len(local) - 1))
    size = math.prod(shape) if axis is None else shape[axis]
    local = (*local[:dim], local[dim] * size, *local[dim + 1 :])
    dtype = draw(st.sampled_from(DTYPES))
    order = draw(st.permutations([*range(len(local)), None, None]))
    split = order[: len(shape)]
    whole = list(local)
    for n, d in zip(shape, split, strict=True):
        if d is not None:
            whole[d] *= n
    generator = torch.Generator().manual_seed(draw(st.integers(0, 2**31)))
    values = torch.randint(-8, 9, whole, generator=generator).float()
    placements = [ttnn.PlacementReplicate() if d is None else ttnn.PlacementShard(d) for d in split]
    mapper = ttnn.create_mesh_mapper(mesh, ttnn.MeshMapperConfig(placements))
    tensor = ttnn.from_torch(values, dtype, layout=ttnn.ROW_MAJOR_LAYOUT, device=mesh, mesh_mapper=mapper)
    return tensor, shape, axis, dim, held(tensor, shape)


def held(tensor: ttnn.Tensor, shape: tuple[int, ...]) -> torch.Tensor:
    pieces = [ttnn.to_torch(shard).float() for shard in ttnn.get_device_tensors(tensor)]
    return torch.stack(pieces).reshape(*shape, *pieces[0].shape)


def agrees(result: ttnn.Tensor, shape: tuple[int, ...], expected: dict[tuple[int, ...], torch.Tensor]) -> bool:
    found = held(result, shape)
    return leading_extents_are_true(result) and all(torch.equal(found[at], expected[at]) for at in expected)


@settings(LAWS, max_examples=60)
@given(cases())
def test_all_gather_joins_the_pieces_of_a_group(case):
    tensor, shape, axis, dim, before = case
    members = groups(shape, axis)
    expected = {at: torch.cat([before[m] for m in members[at]], dim) for at in members}
    with ttnn.lenient():
        if len(members[(0,) * len(shape)]) == 1:
            with pytest.raises(ttnn.MeshError, match="num_devices > 1"):
                ttnn.all_gather(tensor, dim, cluster_axis=axis)
            return
        assert agrees(ttnn.all_gather(tensor, dim, cluster_axis=axis), shape, expected)
        for how in BY_HAND:
            assert agrees(mode_collectives.all_gather(tensor, dim, cluster_axis=axis, **how), shape, expected)


@settings(LAWS, max_examples=60)
@given(cases())
def test_all_reduce_adds_the_pieces_of_a_group(case):
    tensor, shape, axis, _, before = case
    members = groups(shape, axis)
    expected = {at: sum(before[m] for m in members[at]) for at in members}
    with ttnn.lenient():
        assert agrees(ttnn.all_reduce(tensor, cluster_axis=axis), shape, expected)
        for how in BY_HAND:
            assert agrees(mode_collectives.all_reduce(tensor, cluster_axis=axis, **how), shape, expected)


@settings(LAWS, max_examples=30)
@given(cases())
def test_reduce_scatter_deals_the_sum_of_a_group(case):
    tensor, shape, axis, dim, before = case
    members = groups(shape, axis)
    expected = {
        at: sum(before[m] for m in members[at]).chunk(len(members[at]), dim)[members[at].index(at)] for at in members
    }
    with ttnn.lenient():
        assert agrees(ttnn.reduce_scatter(tensor, dim, cluster_axis=axis), shape, expected)
        for how in BY_HAND:
            assert agrees(mode_collectives.reduce_scatter(tensor, dim, cluster_axis=axis, **how), shape, expected)


@settings(LAWS, max_examples=60)
@given(cases())
def test_mesh_partition_keeps_a_chunk_of_each_piece(case):
    tensor, shape, axis, dim, before = case
    if axis is not None and axis > 1:
        return
    members = groups(shape, axis)
    expected = {at: before[at].chunk(len(members[at]), dim)[members[at].index(at)] for at in members}
    assert agrees(ttnn.mesh_partition(tensor, dim, axis), shape, expected)


@settings(LAWS, max_examples=30)
@given(cases())
def test_partition_after_gather_is_where_one_started(case):
    tensor, shape, axis, dim, before = case
    if (axis is not None and axis > 1) or (math.prod(shape) if axis is None else shape[axis]) == 1:
        return
    with ttnn.lenient():
        back = ttnn.mesh_partition(ttnn.all_gather(tensor, dim, cluster_axis=axis), dim, axis)
    assert torch.equal(held(back, shape), before)


@settings(LAWS, max_examples=30)
@given(cases())
def test_scatter_then_gather_is_all_reduce(case):
    tensor, shape, axis, dim, _ = case
    if (math.prod(shape) if axis is None else shape[axis]) == 1:
        return
    with ttnn.lenient():
        scattered = ttnn.reduce_scatter(tensor, dim, cluster_axis=axis)
        again = ttnn.all_gather(scattered, dim, cluster_axis=axis)
        assert torch.equal(held(again, shape), held(ttnn.all_reduce(tensor, cluster_axis=axis), shape))


@settings(LAWS, max_examples=20)
@given(st.integers(2, 9), st.integers(0, 2**31), st.sampled_from([ttnn.bfloat16, ttnn.float32]))
def test_rounding_at_each_hop_stays_within_a_rounding_for_each_device(devices, seed, dtype):
    mesh = mesh_of((1, devices))
    values = torch.rand(devices * 4, 16, generator=torch.Generator().manual_seed(seed)) + 0.5
    tensor = ttnn.from_torch(
        values, dtype, layout=ttnn.TILE_LAYOUT, device=mesh, mesh_mapper=ttnn.ShardTensorToMesh(mesh, 0)
    )
    before = held(tensor, (1, devices))[0]
    exact = before.double().sum(0)
    unit = 2.0**-8 if dtype is ttnn.bfloat16 else 2.0**-24
    with ttnn.lenient():
        for numerics, bound in (("chip", devices * unit), ("fp32", unit + devices * 2.0**-24)):
            result = mode_collectives.all_reduce(tensor, cluster_axis=1, numerics=numerics)
            found = held(result, (1, devices))[0, 0].double()
            assert ((found - exact).abs() <= bound * exact.abs() * 1.01).all()
