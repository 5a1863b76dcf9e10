"""Likely causes that the numbers themselves show: a multiple, shifted, transposed, in another order."""

from __future__ import annotations

from softmesh.diff.assembly import measured
from softmesh.diff.explained_case import Case, Finding
from softmesh.diff.orders import is_reordered, out_of_order
from softmesh.diff.other_arguments import other_arguments
from softmesh.diff.result import Cause
from softmesh.train.equivalence.values import Value

_SHIFTS = (1, -1, 2, -2, 3, -3, 4, -4)


def other_argument(case: Case) -> Finding | None:
    if case.partner is None or not case.partner.inputs:
        return None
    other = other_arguments(case.entry, case.partner, case.grid)
    return Finding(Cause.OTHER_ARGUMENT, f"called with {', '.join(other)}.") if other else None


def multiple(case: Case) -> Finding | None:
    expected, measure = case.expected, case.judged.measure
    if expected is None or measure is None or not expected.is_floating_point() or expected.numel() < 2:
        return None
    found = case.found
    if found is None or found.numel() != expected.numel():
        return None
    size = float(expected.square().sum())
    ratio = float((found.reshape(expected.shape) * expected).sum()) / size if size > 0 else 0.0
    if not abs(ratio) > 1e-6 or abs(ratio - 1) < 1e-3 or not case.fits(expected * ratio):
        return None
    axes = [axis for axis, n in enumerate(case.grid) if n > 1 and abs(ratio - n) < 0.02 * n]
    if axes and case.entry.sends:
        return Finding(Cause.DOUBLE_REDUCE, f"it is {ratio:.3g} times the reference: the size of mesh axis {axes[0]}.")
    hint = other_argument(case)
    return Finding(
        Cause.WRONG_SCALE, f"it is {ratio:.4g} times the reference{'' if hint is None else f': {hint.text}'}"
    )


def offset(case: Case) -> Finding | None:
    found, expected = case.found, case.expected
    if found is None or expected is None or found.numel() != expected.numel():
        return None
    found = found.reshape(expected.shape)
    if not expected.is_floating_point():
        step = (found - expected).unique()
        if len(step) == 1 and expected.numel() and int(step[0]):
            return Finding(Cause.OFFSET, f"every number is {int(step[0]):+d} off.")
    for dim in range(expected.dim()):
        for shift in _SHIFTS:
            count = expected.shape[dim] - abs(shift)
            if count < 4 * abs(shift):
                continue
            ours = found.narrow(dim, max(shift, 0), count).float()
            theirs = expected.narrow(dim, max(-shift, 0), count).float()
            if float((ours - theirs).norm()) <= case.room * float(theirs.norm()):
                return Finding(Cause.OFFSET, f"along dim {dim} everything stands {shift:+d} positions off.")
    return None


def transposed(case: Case) -> Finding | None:
    value, expected = case.value, case.expected
    if value is None or expected is None or expected.dim() < 2:
        return None
    if case.found is not None and case.same(case.found.transpose(-1, -2).contiguous()):
        return Finding(Cause.TRANSPOSED, "its last two dims are swapped.")
    swapped = Value(value.data.transpose(-1, -2), value.dist)
    found = measured(swapped, expected, None)
    if found is not None and found.severity <= case.room:
        return Finding(Cause.TRANSPOSED, "what each device holds is transposed.")
    return None


def reordered(case: Case) -> Finding | None:
    found, expected, value = case.found, case.expected, case.value
    if found is None or expected is None or value is None or found.numel() != expected.numel():
        return None
    dealt = out_of_order(value, found, expected.reshape(found.shape))
    if dealt is not None and dealt[1]:
        devices = " and ".join(map(str, dealt[1]))
        return Finding(
            Cause.REORDERED,
            f"devices {devices} along mesh axis {dealt[0]} hold parts of the reference that are others'.",
        )
    dim = is_reordered(found, expected.reshape(found.shape), case.room)
    if dim is None:
        return None
    where = "" if dim < 0 else f"along dim {dim} "
    return Finding(
        Cause.REORDERED, f"{where}it has the values of the reference in another order: shards, heads or pages swapped."
    )
