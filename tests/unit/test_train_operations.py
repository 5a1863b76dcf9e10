"""Collectives of training: what they do forwards, and how gradients come back through them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext

import pytest
import torch
from small_models import opened

import softmesh as ttnn
from softmesh.errors import ArgumentValueError, MeshError
from softmesh.train import (
    Module,
    all_gather,
    all_reduce,
    axis_number,
    axis_size,
    broadcast,
    mapper,
    on_mesh,
    parameter,
    reduce_scatter,
    ring_shift,
    scatter,
)


@pytest.fixture
def grid() -> Iterator[ttnn.MeshDevice]:
    with opened(2, 4) as mesh:
        yield mesh


def split(grid: ttnn.MeshDevice) -> ttnn.Tensor:
    """Each device has a row of its own number."""
    rows = torch.arange(8.0).reshape(2, 1, 4, 1).expand(2, 1, 4, 8).contiguous()
    return on_mesh(rows, grid, {"dp": 0, "tp": 2}, ttnn.float32, ttnn.TILE_LAYOUT)


def numbers(pieces: torch.Tensor) -> list[float]:
    return pieces.reshape(8, -1)[:, 0].tolist()


def test_all_reduce_brings_gradients_back_summed_or_as_they_are(grid: ttnn.MeshDevice) -> None:
    for noop, expected in ((False, [6.0] * 4 + [22.0] * 4), (True, [float(i) for i in range(8)])):
        x = split(grid).requires_grad_()
        out = all_reduce(x, "tp", noop_backward=noop)
        assert numbers(out.pieces().detach()) == [6.0] * 4 + [22.0] * 4
        with pytest.warns(ttnn.SoftmeshWarning, match="is not the same on the 4 devices") if noop else nullcontext():
            out.backward(split(grid))
        assert numbers(x.grad.pieces()) == expected


def test_broadcast_hands_on_and_adds_up_on_the_way_back(grid: ttnn.MeshDevice) -> None:
    x = on_mesh(torch.ones(1, 1, 1, 8), grid, {}, ttnn.float32, ttnn.TILE_LAYOUT).requires_grad_()
    out = broadcast(x, "tp")
    assert numbers(out.pieces().detach()) == [1.0] * 8
    out.backward(split(grid))
    assert numbers(x.grad.pieces()) == [6.0] * 4 + [22.0] * 4


def test_ring_shift_goes_back_the_other_way(grid: ttnn.MeshDevice) -> None:
    x = split(grid).requires_grad_()
    out = ring_shift(x, "tp")
    assert numbers(out.pieces().detach()) == [3.0, 0.0, 1.0, 2.0, 7.0, 4.0, 5.0, 6.0]
    out.backward(split(grid))
    assert numbers(x.grad.pieces()) == [1.0, 2.0, 3.0, 0.0, 5.0, 6.0, 7.0, 4.0]
    twice = ring_shift(ring_shift(x, "tp", 3), 1, -3)
    assert torch.equal(twice.pieces(), x.pieces())


def test_gathered_gradients_are_summed_or_cut(grid: ttnn.MeshDevice) -> None:
    ways = ("partial", [4.0] * 8, pytest.warns(ttnn.SoftmeshWarning)), ("replicated", [1.0] * 8, nullcontext())
    for kind, expected, telling in ways:
        x = split(grid).requires_grad_()
        out = all_gather(x, 2, "tp", gradients=kind)
        assert out.pieces()[5, 0, 0, :, 0].tolist() == [4.0, 5.0, 6.0, 7.0]
        with telling:
            out.backward(on_mesh(torch.ones(1, 1, 4, 8), grid, {}, ttnn.float32, ttnn.TILE_LAYOUT))
        assert numbers(x.grad.pieces()) == expected


def test_scatter_and_reduce_scatter_gather_gradients(grid: ttnn.MeshDevice) -> None:
    whole = torch.arange(32.0).reshape(1, 1, 4, 8)
    gradient = on_mesh(whole * 10, grid, {"tp": 2}, ttnn.float32, ttnn.TILE_LAYOUT)
    for move, factor in ((scatter, 1), (reduce_scatter, 4)):
        x = on_mesh(whole, grid, {}, ttnn.float32, ttnn.TILE_LAYOUT).requires_grad_()
        out = move(x, 2, "tp")
        assert torch.equal(out.pieces().detach()[6], factor * whole[:, :, 2:3])
        out.backward(gradient)
        assert torch.equal(x.grad.pieces()[3], whole * 10)


def test_along_an_axis_of_one_device_nothing_happens() -> None:
    with opened(1, 2) as mesh:
        x = on_mesh(torch.ones(1, 1, 2, 8), mesh)
        for same in (all_reduce(x, "dp"), broadcast(x, "dp"), ring_shift(x, "dp"), scatter(x, 2, "dp")):
            assert same is x
        assert all_gather(x, 2, "dp") is x
        assert reduce_scatter(x, 2, "dp") is x


def test_what_cannot_be_moved_is_refused(grid: ttnn.MeshDevice) -> None:
    x = on_mesh(torch.ones(1, 1, 6, 8), grid, {}, ttnn.float32, ttnn.TILE_LAYOUT)
    with pytest.raises(MeshError, match=r"scatter: dim 2 of \[1, 1, 6, 8\] does not divide among the 4 devices"):
        scatter(x, 2, "tp")
    with pytest.raises(ArgumentValueError, match='must be "partial" or "replicated", got \'summed\''):
        all_gather(x, 2, "tp", gradients="summed")
    with pytest.raises(MeshError, match="all_reduce: the tensor is on the host"):
        all_reduce(ttnn.from_torch(torch.ones(1, 1, 1, 8)), "tp")
    with pytest.raises(ArgumentValueError, match=r"'tpp'.*Did you mean 'tp'"):
        broadcast(x, "tpp")


def test_axes_are_found_by_name_and_number(grid: ttnn.MeshDevice) -> None:
    assert (axis_number(grid, "tp"), axis_number(grid, 0)) == (1, 0)
    assert (axis_size(grid, "dp"), axis_size(grid, 1)) == (2, 4)
    words = ttnn.placements(ttnn.from_torch(torch.ones(2, 8), device=grid, mesh_mapper=mapper(grid, {"tp": 1})))
    assert list(map(repr, words)) == ["Replicate", "Shard(1)"]


def test_a_batch_that_does_not_divide_is_refused(grid: ttnn.MeshDevice) -> None:
    with pytest.raises(MeshError, match="dim 0 has 3 elements, which 2 devices cannot share evenly"):
        on_mesh(torch.ones(3, 8), grid, {"dp": 0})


def test_modules_name_each_parameter_once_and_tell_training_from_evaluation(grid: ttnn.MeshDevice) -> None:
    class Pair(Module):
        def __init__(self) -> None:
            self.parts = [Leaf(), Leaf()]
            self.parts[1].weight = self.parts[0].weight
            self.constant = on_mesh(torch.ones(1, 1, 1, 8), grid)

    class Leaf(Module):
        def __init__(self) -> None:
            self.weight = parameter(torch.ones(1, 1, 1, 8), grid)

    pair = Pair()
    assert [name for name, _ in pair.named_parameters()] == ["parts.0.weight"]
    assert [path for path, _ in pair.named_modules()] == ["", "parts.0", "parts.1"]
    assert pair.eval().parts[1].is_training is False
    assert pair.train().parts[1].is_training is True
    with pytest.raises(NotImplementedError, match="Leaf has no forward"):
        pair.parts[0]()
