"""Strict-mode warnings that follow from a plan alone: operands that are split in ways that do not fit the op.

They are found when somebody listens, once for each plan.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import torch

from softmesh.diagnosis.pairing_doubts import Pair, of_pairs
from softmesh.diagnosis.placement_doubts import of_crossed_splits, of_shared_parts
from softmesh.diagnosis.split_doubts import of_angles, of_split_dims, of_statistics
from softmesh.dispatch.definition import Definition
from softmesh.dispatch.plan import Local, Plan, ValueDoubt
from softmesh.dispatch.signature import BoundCall
from softmesh.placement.distribution import Distribution
from softmesh.placement.placements import REPLICATE, Shard
from softmesh.placement.rules import opaque


def complete(plan: Plan, op: Definition, call: BoundCall) -> None:
    """Give the plan its warnings, unless it has them."""
    if plan.unexamined is None:
        return
    (local, placed), plan.unexamined = plan.unexamined, None
    shapes = [tuple(tensor.shape) for tensor in call.tensors]
    labels = [label for label, value in zip(call.labels, call.data, strict=True) if isinstance(value, torch.Tensor)]
    operands = dict(zip(labels, zip(shapes, placed, strict=True), strict=True))
    plan.doubts = tuple(_of_splits(op, call, local, operands, plan.outputs[0].dist))
    plan.doubts_of_values = tuple(_of_values(op, call, local, operands, plan))


def _of_splits(
    op: Definition, call: BoundCall, local: Local, operands: Mapping[str, Pair], made: Distribution
) -> Iterator[str]:
    """Splits under which the op computes something, and probably not what was meant."""
    named = [(name, *pair) for name, pair in operands.items()]
    given = call.signature.named(call.values, call.signature.attribute_at)
    if op.is_matmul and len(named) > 1:
        inner = -2 if given.get("transpose_a") else -1, -1 if given.get("transpose_b") else -2
        yield from of_crossed_splits(op.name, named, made, inner)
    elif local.broadcast_rank and len(named) > 1:
        yield from of_crossed_splits(op.name, named, made)
    elif not local.broadcast_rank:
        pairs, is_opaque = list(operands.values()), local.rule is opaque
        is_step = given.get("is_decode_mode") or given.get("token_index") is not None  # its rows are no positions
        special = [*(() if is_step else of_angles(op, pairs, made)), *of_statistics(op, pairs)]
        special += of_pairs(op, operands, made)
        if not (special or local.is_seamless):
            special += of_split_dims(op, pairs, made, is_opaque)
        alike = [one for one in named if one[1] == pairs[0][0]]  # element by element, where nothing else is known
        yield from special or (() if is_opaque else of_crossed_splits(op.name, alike, made, fewest=2))


def _of_values(
    op: Definition, call: BoundCall, local: Local, operands: Mapping[str, Pair], plan: Plan
) -> Iterator[ValueDoubt]:
    """Operands that are as long as one part of what is split, and the same on every device.

    What it writes to and does not read may be; so may page tables, where each device has pages of its own.
    """
    named = ((name, *pair) for name, pair in operands.items())
    all_given = [next(named) if isinstance(value, torch.Tensor) else None for value in call.data]
    axes = range(plan.outputs[0].dist.lead)
    skipped = {(at, axis) for at in (() if op.changes_in_place else op.writes) for axis in axes}
    for at, caches in local.places_of.items():
        held = all_given[caches[0]]
        own = [axis for axis in axes if held is None or held[2].placements[axis] is not REPLICATE]
        skipped |= {(at, axis) for axis in (axes if caches[0] in op.writes else own)}
        skipped |= {(cache, axis) for cache in caches for axis in axes}
    if not (local.broadcast_rank or len({shape for shape, _ in operands.values()}) == 1):
        # The others go with the first operand that it reads: that one is split, or all may be as they are.
        lead = next((one for at, one in enumerate(all_given) if one is not None and at not in op.writes), None)
        whole = [axis for axis in axes if lead is None or not isinstance(lead[2].placements[axis], Shard)]
        skipped |= {(at, axis) for at in range(len(all_given)) for axis in whole}
    numbers = next((n for n, value in enumerate(reversed(call.data)) if type(value) is not int), 0)
    outs: list[Pair] = [(tuple(output.spec.shape), output.dist) for output in plan.outputs]
    return of_shared_parts(op.name, local.rule, all_given, outs, numbers, skipped)
