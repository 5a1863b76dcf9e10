"""Doubts of ops that work along a dim which is split over devices: each takes its own part for the whole.

All of them are told under SOFTMESH_STRICT=1 only: a device may be meant to work on its part alone.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from softmesh.dispatch.definition import Definition
from softmesh.fabric import settings
from softmesh.kinds import Kind
from softmesh.placement.distribution import Distribution
from softmesh.placement.placements import LOCAL, REPLICATE, Shard


def of_split_dims(
    op: Definition, operands: Sequence[tuple[Sequence[int], Distribution]], made: Distribution, is_opaque: bool = False
) -> Iterator[str]:
    """An op whose result is no part of a whole, though each of its operands is.

    `is_opaque`: its rule does not tell along which dim it works, which is most often the last.
    """
    last = len(operands[0][0]) - 1
    for axis, result in enumerate(made.placements):
        words = [given.placements[axis] for _, given in operands if axis < given.lead]
        word = next((one for one in words if isinstance(one, Shard)), None)
        if word is None or result != LOCAL or LOCAL in words or made.devices[axis] == 1:
            continue
        if word.dim != last and (is_opaque or op.kind is Kind.ROTARY):
            continue
        work = op.along_a_split
        work = work.of_channels or work if word.dim == last else work
        if work.doing:
            remedy = work.remedy.format(gather=f"ttnn.all_gather(x, {word.dim}, cluster_axis={axis})")
            yield (
                f"{op.name}: dim {word.dim} is split over mesh axis {axis}: each of {made.devices[axis]} devices "
                f"{work.doing}. {remedy}.{settings.needed_line()}"
            )


def of_angles(
    op: Definition, operands: Sequence[tuple[Sequence[int], Distribution]], made: Distribution
) -> Iterator[str]:
    """A rotary embedding whose table of angles all devices share, though each has positions of its own."""
    if op.kind is not Kind.ROTARY or not op.along_a_split.doing or len(operands) < 2:
        return
    (shape, turned), (table, angles) = operands[:2]
    for axis, result in enumerate(made.placements):
        word = turned.placements[axis] if axis < turned.lead else None
        is_shared = axis < angles.lead and angles.placements[axis] is REPLICATE and angles.devices[axis] > 1
        if not (is_shared and isinstance(word, Shard) and result in (word, LOCAL)):
            continue
        if word.dim == len(shape) - 2 and 1 < shape[-2] <= table[-2]:
            yield (
                f"{op.name}: dim {word.dim}, the sequence, is split over mesh axis {axis}, and all "
                f"{made.devices[axis]} devices turn their own part by the angles of the first positions: the table of "
                f"angles is the same on all of them. Split it along dim {len(table) - 2} as the sequence is."
            )
        elif word.dim == len(shape) - 1 and result == word:
            yield (
                f"{op.name}: dim {word.dim}, the width of a head, is split over mesh axis {axis}, and all "
                f"{made.devices[axis]} devices turn their own part by the same angles. Split the table of angles along "
                f"dim {len(table) - 1} as the heads are, or split the heads along their own dim."
            )


def of_statistics(op: Definition, operands: Sequence[tuple[Sequence[int], Distribution]]) -> Iterator[str]:
    """A norm of rows that are split over more devices than its statistics are of: they were not gathered, or summed."""
    if not op.statistics:
        return
    (shape, rows), (held, _) = operands[:2]
    last = len(shape) - 1
    axes = [at for at, word in enumerate(rows.placements) if isinstance(word, Shard) and word.dim == last]
    devices, given = math.prod(rows.devices[axis] for axis in axes), held[-1] // op.statistics
    if given != devices and devices > 1:
        each = ", ".join(f"ttnn.all_gather(stats, {last}, cluster_axis={axis})" for axis in axes)
        yield (
            f"{op.name}: dim {last} is split over {devices} devices, and the statistics {list(held)} are those of "
            f"{given}: the row is not normalised as a whole. Put those of all devices side by side first: {each}."
            f"{settings.needed_line()}"
        )
    for axis in axes:
        shared = [of for of, given in operands[2:] if axis < given.lead and given.placements[axis] is REPLICATE]
        if shared and rows.devices[axis] > 1:
            yield (
                f"{op.name}: dim {last} is split over mesh axis {axis}, and the weight or bias {list(shared[0])} is "
                f"the same on all {rows.devices[axis]} devices: every part is scaled by the weights of one. Split it "
                "over this axis as the rows are."
            )
