"""Reductions (sum, mean, max, min): over a split dim each device reduces its piece, then contributions are combined."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from softmesh.dispatch.operand import Operand
from softmesh.dispatch.operation import OPERATIONS
from softmesh.dispatch.plan import Local
from softmesh.distributed.call_description import CallDescription
from softmesh.distributed.generic_ops import describe as describe_any
from softmesh.distributed.layouts import Extents
from softmesh.distributed.runnable_plan import SplitOptions
from softmesh.distributed.split_choices import Split, by_labels
from softmesh.distributed.unified_op import Unified
from softmesh.ops.reduction.reduction import REDUCTIONS
from softmesh.placement.placements import Partial


def describe_reduction(given: CallDescription) -> SplitOptions:
    """A mean over a split dim is a sum of sums, each divided by the number of all elements."""
    name, scalar = given.op.name, given.arguments["scalar"]
    if scalar < 0 and name in ("max", "min"):
        return describe_any(given)  # the largest becomes the smallest
    (operand,) = given.operands
    dims = operand.dims(given.arguments["dim"])
    labels = tuple(f"dim {dim}" for dim in range(operand.rank))
    kept = [None if dim in dims else label for dim, label in enumerate(labels)]
    result = kept if given.arguments["keepdim"] else [label for label in kept if label is not None]
    choices = by_labels(
        [labels],
        tuple(result),
        labels,
        combines=dict.fromkeys(labels, Partial("sum" if name == "mean" else name)),
        carries=(frozenset({0}),) if name in ("sum", "mean") else (),
        names=given.short_names,
    )
    plain = given.plain()
    count = math.prod(operand.shape[dim] for dim in dims)
    shares = given.plain(OPERATIONS["sum"], scalar=scalar / count) if name == "mean" and count else plain
    reduced = {f"split dim {dim}" for dim in dims}

    def call(split: Split) -> Callable[..., Any]:
        return shares if any(choice.name in reduced for choice in split.choices) else plain

    return SplitOptions(choices, call)


def _shape_of(local: Local, arguments: dict[str, Any], operands: Sequence[Operand]) -> Extents:
    (operand,) = operands
    dims, keep = operand.dims(arguments["dim"]), arguments["keepdim"]
    return tuple(1 if dim in dims else n for dim, n in enumerate(operand.shape) if keep or dim not in dims)


sum, mean, max, min = (Unified(name, describe_reduction, _shape_of) for name, one in REDUCTIONS.items() if one.combine)
