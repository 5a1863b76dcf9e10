"""Sends, exchanges and halos on any mesh and any placement, against loops over the pieces."""

from __future__ import annotations

import warnings
from dataclasses import dataclass

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import LAWS, Extents, Like, can_be_made, mesh_of, placed, seeds, words_for

import softmesh as ttnn
from softmesh.collectives.async_collectives import all_gather_async_reversed
from softmesh.collectives.exchange_collectives import (
    all_to_all_async_generic,
    neighbor_pad_async,
    slice_reshard_async,
)
from softmesh.collectives.rooted_collectives import all_broadcast, broadcast, point_to_point
from softmesh.collectives.semaphores import create_global_semaphore

FEW = settings(LAWS, max_examples=30)
GRIDS: list[Extents] = [(1, 2), (2, 2), (1, 3), (2, 3), (4,), (2, 2, 2), (2, 1, 3)]
CORES = ttnn.CoreRangeSet([ttnn.CoreRange(ttnn.CoreCoord(0, 0), ttnn.CoreCoord(3, 3))])


@dataclass(frozen=True)
class Case:
    """A placed tensor, an axis of its mesh with several devices, and what each device holds."""

    tensor: ttnn.Tensor
    axis: int
    pieces: list[torch.Tensor]

    @property
    def mesh(self) -> ttnn.MeshDevice:
        mesh = self.tensor.device()
        assert mesh is not None
        return mesh

    def line(self, device: int) -> list[int]:
        """The devices of this device's group, in order."""
        shape = self.mesh.shape
        own = list(shape.coordinate(device))
        return [
            shape.index(ttnn.MeshCoordinate([*own[: self.axis], i, *own[self.axis + 1 :]]))
            for i in range(shape[self.axis])
        ]

    def groups(self) -> list[list[int]]:
        return [self.line(device) for device in range(len(self.pieces))]


@st.composite
def cases(draw: st.DrawFn, shape: Extents, layout: ttnn.Layout) -> Case:
    grid = draw(st.sampled_from(GRIDS))
    words = tuple(draw(words_for(len(shape))) for _ in grid)
    splits = [word for word, n in zip(words, grid, strict=True) if isinstance(word, ttnn.Shard) and n > 1]
    over_all = len(splits) == len(grid) and len({*splits}) == 1
    own = [word for word in words if isinstance(word, ttnn.Partial | ttnn.Local)]
    can_be_placed = can_be_made(words) and len(own) <= (1 if len(grid) > 2 else 2)
    if not can_be_placed or not (over_all or len({*splits}) == len(splits)):
        words = (*(ttnn.Replicate() for _ in grid[1:]), ttnn.Shard(0))
    tensor = placed(mesh_of(grid), Like(shape, ttnn.float32, layout, "whole"), words, draw(seeds))
    axis = draw(st.sampled_from([axis for axis, n in enumerate(grid) if n > 1]))
    return Case(tensor, axis, read(tensor))


def read(tensor: ttnn.Tensor) -> list[torch.Tensor]:
    dist = tensor.view_distribution()
    assert tensor.view_data().shape[: dist.lead] == dist.extents, "what is stored is not what is claimed"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ttnn.SoftmeshWarning)
        return [ttnn.to_torch(shard) for shard in ttnn.get_device_tensors(tensor)]


def assert_pieces(tensor: ttnn.Tensor, wanted: list[torch.Tensor]) -> None:
    for got, one in zip(read(tensor), wanted, strict=True):
        assert torch.equal(got, one)


@FEW
@given(cases((2, 4), ttnn.ROW_MAJOR_LAYOUT), st.data())
def test_broadcasts_put_the_right_piece_everywhere(case: Case, data: st.DataObject) -> None:
    sender = data.draw(st.integers(0, len(case.pieces) - 1))
    coordinate = case.mesh.shape.coordinate(sender)
    with ttnn.lenient():
        one = broadcast(case.tensor, coordinate, cluster_axis=case.axis)
        every = all_broadcast(case.tensor, cluster_axis=case.axis)
    wanted = [
        case.pieces[sender] if sender in line else own for own, line in zip(case.pieces, case.groups(), strict=True)
    ]
    assert_pieces(one, wanted)
    for i, result in enumerate(every):
        assert_pieces(result, [case.pieces[line[i]] for line in case.groups()])


@FEW
@given(cases((2, 4), ttnn.ROW_MAJOR_LAYOUT), st.data())
def test_a_send_changes_one_piece(case: Case, data: st.DataObject) -> None:
    line = case.line(data.draw(st.integers(0, len(case.pieces) - 1)))
    sender, receiver = (data.draw(st.sampled_from(line)) for _ in range(2))
    shape = case.mesh.shape
    ends = [shape.coordinate(device) for device in (sender, receiver)]
    with ttnn.lenient():
        fresh = point_to_point(case.tensor, *ends)
        kept = ttnn.zeros_like(case.tensor)
        point_to_point(case.tensor, *ends, output_tensor=kept)
    assert torch.equal(read(fresh)[receiver], case.pieces[sender])
    assert sum(bool(piece.isnan().all()) for piece in read(fresh)) == len(case.pieces) - 1
    zeros = torch.zeros(2, 4)
    assert_pieces(kept, [case.pieces[sender] if d == receiver else zeros for d in range(len(case.pieces))])


@pytest.mark.filterwarnings("ignore:.*hold contributions to a sum")  # which are pieces like others here
@FEW
@given(cases((2, 3), ttnn.ROW_MAJOR_LAYOUT), st.integers(0, 1))
def test_the_reversed_gather_joins_from_the_last_member_on(case: Case, dim: int) -> None:
    semaphores = [create_global_semaphore(case.mesh, CORES, 0) for _ in range(2)]
    with ttnn.lenient():
        result = all_gather_async_reversed(case.tensor, None, dim, semaphores, cluster_axis=case.axis)
    assert_pieces(result, [torch.cat([case.pieces[d] for d in line[::-1]], dim) for line in case.groups()])


@pytest.mark.filterwarnings("ignore:.*hold contributions to a sum")  # which are pieces like others here
@FEW
@given(cases((96, 192), ttnn.TILE_LAYOUT), st.booleans())
def test_an_exchange_sends_chunk_i_to_member_i(case: Case, down: bool) -> None:
    in_dim, out_dim = (0, 1) if down else (1, 0)
    size = case.mesh.shape[case.axis]
    if (96, 192)[out_dim] % (32 * size):
        return
    with ttnn.lenient():
        result = all_to_all_async_generic(case.tensor, in_dim, out_dim, cluster_axis=case.axis)
    wanted = [
        torch.cat([case.pieces[d].chunk(size, out_dim)[line.index(device)] for d in line], in_dim)
        for device, line in enumerate(case.groups())
    ]
    assert_pieces(result, wanted)


@FEW
@given(
    cases((3, 2), ttnn.ROW_MAJOR_LAYOUT),
    st.integers(0, 3),
    st.integers(0, 3),
    st.sampled_from(["zeros", "replicate"]),
)
def test_a_halo_is_a_window_of_the_padded_line(case: Case, left: int, right: int, mode: str) -> None:
    one, barrier = ([create_global_semaphore(case.mesh, CORES, 0)] for _ in range(2))
    with ttnn.lenient():
        result = neighbor_pad_async(case.tensor, [0], [left], [right], mode, [case.axis], one, barrier)
    wanted = []
    for device, line in enumerate(case.groups()):
        whole = torch.cat([case.pieces[d] for d in line])
        edges = [end if mode == "replicate" else end * 0 for end in (whole[:1], whole[-1:])]
        padded = torch.cat([edges[0].repeat(left, 1), whole, edges[1].repeat(right, 1)])
        start = 3 * line.index(device)
        wanted.append(padded[start : start + left + 3 + right])
    assert_pieces(result, wanted)


@FEW
@given(cases((4, 2), ttnn.ROW_MAJOR_LAYOUT), st.data())
def test_a_slice_is_dealt_out_in_order(case: Case, data: st.DataObject) -> None:
    size = case.mesh.shape[case.axis]
    rows = data.draw(st.integers(1, 4)) * size
    offset = data.draw(st.integers(0, 4 * size - rows))
    one, barrier = (create_global_semaphore(case.mesh, CORES, 0) for _ in range(2))
    with ttnn.lenient():
        result = slice_reshard_async(case.tensor, 0, offset, rows, case.axis, one, barrier)
    wanted = [
        torch.cat([case.pieces[d] for d in line])[offset : offset + rows].chunk(size)[line.index(device)]
        for device, line in enumerate(case.groups())
    ]
    assert_pieces(result, wanted)
