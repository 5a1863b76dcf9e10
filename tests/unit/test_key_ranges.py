"""Attention over ranges of keys, a few rows at a time, against a mask of all queries over all keys."""

from __future__ import annotations

import pytest
import torch

from softmesh.ops.attention import sdpa_core
from softmesh.ops.attention.key_ranges import KeyRanges, overlap, ranges_between, ranges_in_order

KEYS = 30
PLACES = torch.arange(KEYS)
AHEAD = PLACES - PLACES.unsqueeze(-1)
BOUNDS = torch.tensor([0, 4, 4, 17])
OWN = (PLACES.unsqueeze(-1) >= BOUNDS).sum(-1)
SAME = OWN.unsqueeze(-1) == OWN
FORMS: dict[str, tuple[KeyRanges, torch.Tensor]] = {
    "causal": (ranges_in_order(PLACES, KEYS, True, None), AHEAD <= 0),
    "causal window": (ranges_in_order(PLACES, KEYS, True, 5), (AHEAD <= 0) & (AHEAD > -5)),
    "centred window": (ranges_in_order(PLACES, KEYS, False, 6), AHEAD.abs() <= 3),
    "bounds": (ranges_between(BOUNDS, PLACES, KEYS), SAME),
    "both": (
        overlap(ranges_in_order(PLACES, KEYS, True, 5), ranges_between(BOUNDS, PLACES, KEYS)),
        SAME & (AHEAD <= 0) & (AHEAD > -5),
    ),
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("sink", [None, 0.7, float("-inf")])
@pytest.mark.parametrize("value_width", [8, 4, 12])
def test_rows_in_blocks_see_what_a_mask_shows_them(monkeypatch, form, sink, value_width):
    monkeypatch.setattr(sdpa_core, "_BLOCK_ROWS", 7)
    ranges, visible = FORMS[form]
    q, k, v = torch.randn(1, 2, 3, 2, KEYS, 8), torch.randn(1, 2, 3, KEYS, 8), torch.randn(1, 2, 3, KEYS, value_width)
    bias = torch.randn(KEYS, KEYS)
    score = None if sink is None else torch.full((1, 1, 1, 1, 1, 1), sink)
    found = sdpa_core.attend_ranges(q, k, v, ranges, bias.expand(1, 1, 1, 1, KEYS, KEYS), score, scale=0.4)
    scores = (q @ k.unsqueeze(-3).transpose(-2, -1) * 0.4 + bias).masked_fill(~visible, float("-inf"))
    if sink is not None:
        scores = torch.cat([scores, torch.full_like(scores[..., :1], sink * 0.4)], -1)
    torch.testing.assert_close(found, scores.softmax(-1)[..., :KEYS] @ v.unsqueeze(-3))


def test_ranges_may_differ_between_devices():
    asking = PLACES[:9] + torch.tensor([0, 20]).reshape(2, 1, 1)
    q, k = torch.randn(2, 1, 1, 1, 1, 9, 8), torch.randn(1, 1, 1, 1, KEYS, 8)
    found = sdpa_core.attend_ranges(q, k, k, ranges_in_order(asking, KEYS, True, None), None, None, scale=1.0)
    scores = q @ k.unsqueeze(-3).transpose(-2, -1)
    hidden = (asking.unsqueeze(-1) < PLACES).reshape(2, 1, 1, 1, 1, 9, KEYS)
    torch.testing.assert_close(found, scores.masked_fill(hidden, float("-inf")).softmax(-1) @ k.unsqueeze(-3))
