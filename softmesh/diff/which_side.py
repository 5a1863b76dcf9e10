"""Tells which of two sides differs from float32: the reference may be the wrong one."""

from __future__ import annotations

from softmesh.diff.entries import Entry, Recording
from softmesh.diff.golden_values import golden_of, made_by_device, wholes
from softmesh.diff.judged import Expected, Judged
from softmesh.diff.recording import READS
from softmesh.diff.sides import Sides
from softmesh.diff.tolerances import unit

_ROOM, _LEAST = 4.0, 1e-4  # roundings; and what the order of a sum in float32 may cost


def against_float32(sides: Sides, judged: Judged) -> str:
    """Both results beside what the golden function of each op makes, in float32, of what that op read."""
    partner, mine, theirs = judged.partner, sides.mine, sides.theirs
    if theirs.is_by_op or partner is None:
        return ""
    before = _before(sides, judged.entry, partner)
    if before:
        return before
    ours = _off(mine, judged.entry, judged.output)
    reference = _off(theirs, partner, min(judged.output, len(partner.outputs) - 1))
    if reference is None:
        return ""
    is_wrong = reference > _room(partner)
    if ours is None:
        told = f"the reference itself is off by {reference:.1e} from float32, and may be the wrong side."
        return told if is_wrong else ""
    figures = f"the program is off by {ours:.1e}, the reference by {reference:.1e}"
    if ours > _room(judged.entry):
        return f"both sides differ from it: {figures}." if is_wrong else f"the program is the wrong side: {figures}."
    if is_wrong:
        return f"the reference is the wrong side: {figures}."
    return f"each side does what its own call asks for ({figures}): they compute different things, either may be wrong."


def _before(sides: Sides, entry: Entry, partner: Entry) -> str:
    """Compute in float32 what the program's op makes, where the two sides read different values."""
    ours, reference = (
        {stored.number: one for one in run.entries if one.name not in READS for stored in one.outputs}
        for run in (sides.mine, sides.theirs)
    )
    for mine, yours in zip(entry.inputs, partner.inputs, strict=False):
        maker, other = ours.get(mine.value), reference.get(yours.value)
        if maker is None or other is None or maker.name == other.name or len(maker.outputs) != 1:
            continue
        should = Expected(sides.theirs.store.values[yours.value], other)
        side = sides.laid(maker.outputs[0], should)
        off, read = _off(sides.mine, maker, 0), wholes(sides.mine, maker)
        golden = None if read is None else golden_of(maker, read)
        if side is None or off is None or golden is None or golden[0].numel() != side.expected.numel():
            continue
        theirs = float((side.expected.double().reshape(golden[0].shape) - golden[0].double()).norm())
        theirs /= max(float(golden[0].double().norm()), 1e-30)
        if theirs <= _room(maker):
            continue
        if off > _room(maker):
            return (
                f"both sides differ from it before: {maker.name} ({maker.site}) is off by {off:.1e}, and what the "
                f"reference reads in its place, from {other.name} ({other.site}), by {theirs:.1e}."
            )
        return (
            f"{maker.name} ({maker.site}), which the program reads here, agrees with it: off by {off:.1e}. What the "
            f"reference reads, from {other.name} ({other.site}), is off by {theirs:.1e}: if that call is meant, the "
            "reference is the wrong side."
        )
    return ""


def _room(entry: Entry) -> float:
    return max(_ROOM * unit(entry.outputs[0].dtype), _LEAST)


def _off(run: Recording, entry: Entry, at: int) -> float | None:
    """The relative error of what the op made; None where no golden function tells."""
    read = wholes(run, entry) if entry.inputs else None
    golden = None if read is None else golden_of(entry, read)
    made = None if golden is None else made_by_device(run, entry, at)
    if golden is None or made is None or len(golden) <= at or golden[at].numel() != made.numel():
        return None
    wanted = golden[at].double()
    size = float(wanted.norm())
    return float((made.reshape(wanted.shape).double() - wanted).norm()) / size if size > 0 else None
