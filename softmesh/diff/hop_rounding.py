"""Rounding of sums over devices: hop by hop in the tensor's dtype, against float32 until the last one."""

from __future__ import annotations

from typing import NamedTuple

import torch

from softmesh.diff.assembly import value_of
from softmesh.diff.entries import Entry, Recording
from softmesh.hardware.enums import DataType
from softmesh.placement.placements import LOCAL, Partial
from softmesh.tensor.convert import round_to


class HopRounding(NamedTuple):
    """Of one collective: the relative error of the sum so far after each hop of a ring, and in the end."""

    axis: int
    devices: int
    hops: tuple[float, ...]  # rounded at each of them
    once: float  # added up in float32, rounded at the end


def hop_rounding(run: Recording, entry: Entry) -> HopRounding | None:
    """None where it adds nothing up, or nothing that is rounded."""
    is_sum = entry.kind is not None and entry.kind.is_sum
    parts_of = value_of(run, entry.inputs[0]) if is_sum and entry.inputs else None
    dtype = entry.outputs[0].dtype
    if parts_of is None or not isinstance(dtype, DataType) or dtype is DataType.FLOAT32:
        return None
    axis = next((at for at, word in enumerate(parts_of.words) if isinstance(word, Partial) and word.op == "sum"), None)
    axis = next((at for at, word in enumerate(parts_of.words) if word is LOCAL), None) if axis is None else axis
    if axis is None or parts_of.data.shape[axis] < 2 or not parts_of.data.is_floating_point():
        return None
    parts = parts_of.data.unbind(axis)
    travelling, exact = parts[0], parts[0].double()
    hops = []
    for part in parts[1:]:
        travelling = round_to(travelling.float() + part, dtype).float()
        exact = exact + part
        hops.append(_off(travelling, exact))
    return HopRounding(axis, len(parts), tuple(hops), _off(round_to(exact.float(), dtype).float(), exact))


def _off(found: torch.Tensor, exact: torch.Tensor) -> float:
    size = float(exact.norm())
    return float((found.double() - exact).norm()) / size if size > 0 else 0.0
