"""The values behind a figure: how those of the program and of the reference spread, and where they differ most."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch

from softmesh.diff.assembly import like
from softmesh.diff.judged import Judged
from softmesh.diff.judgement import Judgement
from softmesh.mesh import MeshCoordinate
from softmesh.train.equivalence.values import Value, spread

_BINS = 24
_WORST = 8
_MOST_CHIPS = 64


class Spread(NamedTuple):
    """Of the same part of both values: a histogram, and the elements that are furthest apart."""

    low: float
    high: float
    ours: list[int]  # how many of the program's values lie in each of the bins from `low` to `high`
    theirs: list[int]
    furthest: list[tuple[str, float, float]]  # index, the program's value, the reference's


class Detail(NamedTuple):
    """Of one op: of all chips together, and of each."""

    whole: Spread
    chips: dict[MeshCoordinate, Spread]


def detail_of(judgement: Judgement, judged: Judged) -> Detail | None:
    """None where the two values cannot be laid side by side."""
    pair = _side_by_side(judgement, judged)
    if pair is None:
        return None
    found, expected, lead = pair
    coords = judged.entry.outputs[judged.output].dist.coordinates()
    chips = {}
    for coord in coords[:_MOST_CHIPS] if lead == len(tuple(coords[0])) else ():
        at = tuple(min(place, n - 1) for place, n in zip(coord, found.shape[:lead], strict=True))
        chips[coord] = _spread(found[at], expected[at])
    return Detail(_spread(found, expected, lead), chips)


def _side_by_side(judgement: Judgement, judged: Judged) -> tuple[torch.Tensor, torch.Tensor, int] | None:
    """By device: what it holds, and what it should, with the mesh's dims first."""
    side = judgement.sides.of(judged)
    if judged.measure is None or side is None:
        return None
    value, expected = side
    words = judged.measure.value.dist
    data = value.data.expand(*map(max, value.data.shape[: words.lead], words.extents), *value.data.shape[words.lead :])
    found, dist = Value(data, words).combined()
    dealt = spread(like(expected, value), dist)
    if dealt is None or dealt.shape[dist.lead :] != found.shape[dist.lead :]:
        return None
    return found.float(), dealt.float().expand_as(found), dist.lead


def _spread(found: torch.Tensor, expected: torch.Tensor, lead: int = 0) -> Spread:
    if not found.numel():
        return Spread(0.0, 0.0, [], [], [])
    ours, theirs = (one.nan_to_num(0.0, 0.0, 0.0) for one in (found, expected))
    low = min(float(ours.min()), float(theirs.min()))
    high = max(float(ours.max()), float(theirs.max()), low + 1e-30)
    bins = [torch.histc(one, _BINS, low, high).int().tolist() for one in (ours, theirs)]
    apart = (found - expected).abs().nan_to_num(nan=math.inf).flatten()
    places = apart.topk(min(_WORST, len(apart))).indices
    furthest = []
    for place in places[apart[places] > 0].tolist():
        at = [int(n) for n in torch.unravel_index(torch.tensor(place), found.shape)]
        where = f"{at[lead:]}" if not lead else f"chip {tuple(at[:lead])} {at[lead:]}"
        furthest.append((where, float(found.flatten()[place]), float(expected.flatten()[place])))
    return Spread(low, high, bins[0], bins[1], furthest)
