"""What an op claims about the placement of its result is what the values show.

    Replicate     stored once
    Shard(d)      the devices' results, joined along d, are the op of the whole operands
    Partial(op)   the devices' results, combined by op, are the op of the whole operands
    Local         nothing is claimed: the law holds for each device along that axis by itself

An operand that is replicated beside a split one counts as repeated for each device, where it meets
the split at full extent; but where the op has a value without that, the claim must be that value.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from typing import Any, NamedTuple

import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from op_calls import Call, calls, names_with_calls
from strategies import (
    LAWS,
    MESHES,
    Like,
    Words,
    by_coordinate,
    cut_filler,
    leading_extents_are_true,
    meaning,
    mesh_of,
    odd_ones,
    on_one_device,
    placed,
    positions,
    seeds,
    words_together,
)

import softmesh as ttnn
from softmesh.dispatch.operation import OPERATIONS
from softmesh.dispatch.plan import bring_together
from softmesh.placement.distribution import Distribution
from softmesh.placement.placements import LOCAL, REPLICATE, Partial, Placement, Shard

pytestmark = pytest.mark.filterwarnings("ignore:.*degrees of freedom is <= 0")  # of one element
SPREAD = [shape for shape in MESHES if shape != (1, 1)]


class Spread(NamedTuple):
    """A tensor over a grid of devices: (*grid, *local), a word for each axis."""

    pieces: torch.Tensor
    words: Words

    def at(self, axes: Sequence[int], index: Sequence[int]) -> Spread:
        """Only the devices with these positions along these axes."""
        pieces = self.pieces
        for axis, i in reversed(list(zip(axes, index, strict=True))):
            pieces = pieces.select(axis, i)
        return Spread(pieces, tuple(word for axis, word in enumerate(self.words) if axis not in axes))

    @property
    def local_shape(self) -> tuple[int, ...]:
        return tuple(self.pieces.shape[len(self.words) :])

    def value(self) -> torch.Tensor:
        return cut_filler(meaning(self.pieces, self.words), self.words)


def spread_over(tensor: ttnn.Tensor, dist: Distribution) -> Spread:
    """What lies at the coordinates of `dist`, under its leading dims and its words."""
    held = by_coordinate(tensor)
    pieces = torch.stack([held[coordinate] for coordinate in dist.coordinates()])
    return Spread(pieces.unflatten(0, dist.grid), dist.placements)


def as_list(results: Any) -> list[ttnn.Tensor]:
    return list(results) if isinstance(results, list | tuple) else [results]


def run_and_hear(call: Call, name: str, tensors: Sequence[ttnn.Tensor]) -> tuple[list[ttnn.Tensor], list[str]]:
    """The results, and the texts of the PartialWarnings given on the way."""
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always")
        results = as_list(call.run(OPERATIONS[name], tensors, call.shape))
    return results, [str(one.message) for one in heard if one.category is ttnn.PartialWarning]


@st.composite
def operands(draw: st.DrawFn, call: Call, mesh: ttnn.MeshDevice) -> list[ttnn.Tensor]:
    joints = [*call.splits.values(), *([call.summed] if call.summed else [])]
    words = draw(words_together(call.operands, joints, len(list(mesh.shape))))
    tensors = []
    for like, own in zip(call.operands, words, strict=True):
        split = [w.dim for w, n in zip(own, mesh.shape, strict=True) if isinstance(w, Shard) and n > 1]
        shortable = [d for d in split if like.shape[d] > 1 and split.count(d) == 1]
        uneven = draw(st.sampled_from(shortable)) if shortable and draw(st.integers(0, 9)) == 0 else None
        is_odd = draw(st.integers(0, 9)) == 0
        seed = draw(seeds)
        tensors.append(draw(odd_ones(mesh, like, seed)) if is_odd else placed(mesh, like, own, seed, uneven_dim=uneven))
    return tensors


def repeated(call: Call, index: int, operand: Spread, out: Spread) -> Spread:
    """The operand, counted as repeated where it is replicated and meets the result's split at full extent."""
    words: list[Placement] = []
    pieces = operand.pieces
    for word, claimed in zip(operand.words, out.words, strict=True):
        if word is REPLICATE and isinstance(claimed, Shard):
            dim = call.splits.get(claimed.dim, (None,) * len(call.operands))[index]
            if dim is not None and operand.local_shape[dim] == out.local_shape[claimed.dim]:
                word = claimed.at(dim)
        words.append(word)
    return Spread(pieces, tuple(words))


# Operands that are added: those of the others that all devices share are in a sum of contributions once for each.
ADDED = {"add": (0, 1), "subtract": (0, 1), "rsub": (0, 1), "addalpha": (0, 1), "subalpha": (0, 1), "addmm": (0,)}
ADDED |= {"linear": (2,), "experimental.minimal_matmul": (2,)}


def counted(operand: Spread, out: Spread) -> Spread:
    """The operand, as often as there are devices that each add all of it to a contribution."""
    axes = [
        n
        for n, word, claimed in zip(out.pieces.shape, operand.words, out.words, strict=False)
        if word is REPLICATE and claimed == Partial("sum")
    ]
    return Spread(operand.pieces * math.prod(axes), operand.words)


def whole_result(
    call: Call,
    name: str,
    operands: Sequence[Spread],
    likes: Sequence[ttnn.Tensor],
    which: int,
    shape: torch.Size,
) -> torch.Tensor:
    """The op of whole operands: what one device with everything on it would compute."""
    values = [operand.value() for operand in operands]
    if call.reference is not None:
        return call.reference(values)
    tensors = [on_one_device(value, like) for value, like in zip(values, likes, strict=True)]
    return as_list(call.run(OPERATIONS[name], tensors, tuple(shape)))[which].pieces()[0].cpu()


def agree(claimed: torch.Tensor, true: torch.Tensor) -> bool:
    if claimed.shape != true.shape:
        return False
    if not claimed.is_floating_point():
        return torch.equal(claimed, true)
    tolerance = 2e-2 if claimed.dtype is torch.bfloat16 else 1e-4
    return torch.allclose(claimed, true, rtol=tolerance, atol=tolerance, equal_nan=True)


def check_claim(
    call: Call, name: str, tensors: Sequence[ttnn.Tensor], spreads: Sequence[Spread], out: Spread, which: int
) -> None:
    unclaimed = [axis for axis, word in enumerate(out.words) if word is LOCAL]
    for index in positions([out.pieces.shape[axis] for axis in unclaimed]):
        here = [spread.at(unclaimed, index) for spread in spreads]
        result = out.at(unclaimed, index)
        claimed = result.value()
        here = [counted(s, result) if i in ADDED.get(name, ()) else s for i, s in enumerate(here)]
        tiled = [repeated(call, i, spread, result) for i, spread in enumerate(here)]
        true = whole_result(call, name, tiled, tensors, which, claimed.shape)
        assert agree(claimed, true), f"{result.words} is not {name} of {[s.words for s in here]}"
        is_tiled = any(t.words != s.words for t, s in zip(tiled, here, strict=True))
        if is_tiled and not call.tiles_only:
            check_needs_repeating(call, name, here, tensors, which, claimed)


def check_needs_repeating(
    call: Call,
    name: str,
    operands: Sequence[Spread],
    tensors: Sequence[ttnn.Tensor],
    which: int,
    claimed: torch.Tensor,
) -> None:
    try:
        true = whole_result(call, name, operands, tensors, which, claimed.shape)
    except (ttnn.SoftmeshError, RuntimeError):
        return
    assert agree(claimed, true), f"{name} has a value without repeating operands, and it is another"


def check_warnings(name: str, spreads: Sequence[Spread], outs: Sequence[Spread], heard: Sequence[str]) -> None:
    """A contribution that was used up as if it were whole has been announced."""
    for axis in range(len(outs[0].words)):
        words = [spread.words[axis] for spread in spreads]
        is_lost = any(isinstance(word, Partial) for word in words) and LOCAL not in words
        if is_lost and not all(isinstance(out.words[axis], Partial) for out in outs):
            assert any(name in text and "all_reduce" in text for text in heard), f"{words} went unnoticed"
    if heard:
        assert any(isinstance(word, Partial) for spread in spreads for word in spread.words) or any(
            "plain result" in text for text in heard
        )


@pytest.mark.parametrize("name", names_with_calls())
@settings(LAWS, max_examples=14)
@given(data=st.data())
def test_the_claimed_placement_is_what_the_values_show(name: str, data: st.DataObject) -> None:
    mesh = mesh_of(data.draw(st.sampled_from(SPREAD)))
    call = data.draw(calls(name, [ttnn.float32]))
    tensors = data.draw(operands(call, mesh))
    try:
        results, heard = run_and_hear(call, name, tensors)
    except ttnn.MeshError as error:
        if "split unevenly" not in str(error) and "share no device" not in str(error):
            raise
        assume(False)
    dists = bring_together([tensor.view_distribution() for tensor in tensors])[0]
    spreads = [spread_over(t, d) for t, d in zip(tensors, dists, strict=True)]
    outs = [spread_over(result, result.view_distribution()) for result in results]
    for which, (result, out) in enumerate(zip(results, outs, strict=True)):
        assert leading_extents_are_true(result)
        check_claim(call, name, tensors, spreads, out, which)
    if call.reads_values:
        check_warnings(name, spreads, outs, heard)


@LAWS
@given(data=st.data())
def test_bringing_operands_together_keeps_what_each_of_them_means(data: st.DataObject) -> None:
    mesh = mesh_of(data.draw(st.sampled_from(SPREAD)))
    like = Like((2, 3))
    tensors = [data.draw(odd_ones(mesh, like, seed)) for seed in range(3)]
    assume(set.intersection(*(set(by_coordinate(tensor)) for tensor in tensors)))
    dists, moves = bring_together([tensor.view_distribution() for tensor in tensors])
    for tensor, dist, move in zip(tensors, dists, moves, strict=True):
        before = spread_over(tensor, tensor.view_distribution())
        moved = tensor.view_data() if move is None else move(tensor.view_data())
        assert moved.shape[: dist.lead] == dist.extents or dist.is_replicated
        after = Spread(moved.cpu().expand(*dist.grid, *tensor.shape), dist.placements)
        assert torch.equal(after.pieces, spread_over(tensor, dist).pieces)
        is_all = set(dist.coordinates()) == set(tensor.view_distribution().coordinates())
        if not is_all:
            assert all(word in (REPLICATE, LOCAL) for word in after.words), "some slices are not the whole"
        elif LOCAL not in dist.placements and LOCAL not in before.words:
            assert torch.equal(after.value(), before.value())
