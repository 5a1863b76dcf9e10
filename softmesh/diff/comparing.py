"""Compares two runs of callables: `compare`, and `assert_same` for tests."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch

from softmesh.arguments import described, refused
from softmesh.callsite import CallSite, is_ours
from softmesh.diff.alignment import has_common_lines
from softmesh.diff.allowance import Allowance, Allowed
from softmesh.diff.causes import explained, short
from softmesh.diff.comparison import Comparison
from softmesh.diff.entries import Entry
from softmesh.diff.explained_case import Case
from softmesh.diff.judged import RIGHT, Judged
from softmesh.diff.judgement import Judgement
from softmesh.diff.orders import out_of_order
from softmesh.diff.recording import READS, Recording, recorded
from softmesh.diff.result import Cause, Divergence, Figures, OpDifference, Verdict
from softmesh.diff.tolerances import Tolerances
from softmesh.diff.value_pairs import Pairing, paired_by_value
from softmesh.diff.which_side import against_float32
from softmesh.errors import MeshError
from softmesh.mesh import MeshCoordinate

_NOT_OWN = (Verdict.INHERITED, Verdict.REARRANGED)  # what the op itself loses cannot be told


def compare(
    program: Callable[..., object],
    reference: Callable[..., object],
    inputs: Any = None,
    *,
    names: dict[str, str] | None = None,
    tolerance: float | None = None,
    allow_uncompared: Allowed = 0,
) -> Comparison:
    """Run both, and tell the first op of `program` whose value is not the reference's, and why.

    Both are functions without arguments, each of which opens and closes its own mesh; or, with `inputs`, a model
    of ttnn and a torch module that take these, matched by the names of their modules (`names` where they differ).
    `tolerance` is a relative error, in place of those that follow from dtypes. `allow_uncompared`: how many ops may
    stay uncompared, or for which reasons (`softmesh.diff.Reason`), for the two to agree.
    """
    _check(program, reference, names, tolerance)
    allowance = Allowance.of(allow_uncompared)
    if inputs is not None or isinstance(reference, torch.nn.Module):
        from softmesh.diff.torch_modules import compare_modules

        found = compare_modules(program, reference, inputs, names or {}, tolerance, compared)
        return replace(found, allowance=allowance)
    theirs = recorded(reference, is_reference=True)
    if theirs.error is not None:
        raise MeshError(f"compare: the reference raised {_raised(theirs.error)}.") from theirs.error
    return replace(compared(recorded(program, twin=theirs), theirs, tolerance=tolerance), allowance=allowance)


def assert_same(
    program: Callable[..., object],
    reference: Callable[..., object],
    inputs: Any = None,
    *,
    names: dict[str, str] | None = None,
    tolerance: float | None = None,
    allow_uncompared: Allowed = 0,
) -> None:
    """Raise an AssertionError with the whole report where `compare` finds a divergence, or ops it cannot compare."""
    found = compare(program, reference, inputs, names=names, tolerance=tolerance, allow_uncompared=allow_uncompared)
    if not found.agrees:
        raise AssertionError(f"The program is not its reference.\n{found}")


def _check(program: object, reference: object, names: object, tolerance: object) -> None:
    for name, given in (("program", program), ("reference", reference)):
        if not callable(given):
            raise refused("compare", f"{name} must be a function or a module, got {described(given)}")
    if names is not None and not isinstance(names, dict):
        raise refused("compare", f"names must be a dict of names of modules, got {described(names)}")
    is_number = isinstance(tolerance, int | float) and not isinstance(tolerance, bool)
    if tolerance is not None and not (is_number and math.isfinite(tolerance) and tolerance >= 0):  # type: ignore[arg-type, operator]
        raise refused("compare", f"tolerance must be a relative error of 0 or more, got {described(tolerance)}")


def compared(
    mine: Recording,
    theirs: Recording,
    *,
    against: str = "the reference",
    tolerance: float | None = None,
    lifted: bool = False,
    pairs: dict[int, int] | None = None,
) -> Comparison:
    """Two recordings; what the program raised is a note beside a divergence, and is raised where there is none."""
    judgement = _judged(mine, theirs, lambda: Tolerances(tolerance, lifted), pairs)
    if not any(one.measure is not None or one.unfit for one in judgement.judged):
        if mine.error is not None:
            raise MeshError(f"compare: the program raised {_raised(mine.error)}.") from mine.error
        raise MeshError(_nothing_in_common(len(mine.entries), len(theirs.entries)))
    first = None if judgement.first is None else divergence(judgement, judgement.first)
    if first is None:
        first = _other_result(judgement)
    notes = [*judgement.notes, *_lengths(judgement), *_fidelities(judgement)]
    if mine.error is not None:
        if first is None:
            raise MeshError(
                f"compare: the program raised {_raised(mine.error)}; all it had computed until then agrees with "
                f"{against}."
            ) from mine.error
        notes.append(f"the program went on to raise {_raised(mine.error)}.")
    if mine.store.left_out or theirs.store.left_out:
        notes.append(f"{mine.store.left_out + theirs.store.left_out} values were too large in all to be kept.")
    return Comparison([_row(one) for one in judgement.judged], first, against, notes, mine.mesh, judgement)


def _nothing_in_common(ours: int, theirs: int) -> str:
    if ours and theirs:
        return (
            f"compare: nothing could be compared: the program ran {ours} ops and the reference {theirs}, and "
            "none have a name and a size in common. Are they the same model with the same inputs?"
        )
    who = (
        "neither the program nor the reference"
        if not ours and not theirs
        else "the program"
        if theirs
        else "the reference"
    )
    ran = "ran an op" if not ours and not theirs else "ran no op"
    return f"compare: {who} {ran} on a mesh, so there is nothing to compare. Does the script call its model?"


def _judged(
    mine: Recording, theirs: Recording, tolerances: Callable[[], Tolerances], pairs: dict[int, int] | None
) -> Judgement:
    """By the pairs of ops that explain most: those of one name and order, or those of equal values."""
    if pairs is not None:
        return Judgement(mine, theirs, tolerances(), Pairing(pairs, {}))
    by_order = Judgement(mine, theirs, tolerances())
    if by_order.first is None and all(one.is_right or one.verdict is Verdict.UNREAD for one in by_order.judged):
        return by_order
    other = Judgement(mine, theirs, tolerances(), paired_by_value(mine, theirs))
    if other.first is not None and has_common_lines(mine, theirs):
        return by_order
    return max(by_order, other, key=_explained)


def _explained(judgement: Judgement) -> tuple[bool, int, int, int]:
    """How much of the program these pairs explain: first of what the hosts put on devices, then of what ops make."""
    wrong = [one for one in judgement.judged if one.verdict in (Verdict.MISTAKE, Verdict.INHERITED)]
    right = [one for one in judgement.judged if one.verdict in RIGHT]
    uploads = sum(not one.entry.inputs for one in right) - sum(not one.entry.inputs for one in wrong)
    is_sure = judgement.first is None and not wrong
    left_out = sum(one.verdict is Verdict.NOT_COMPARED for one in judgement.judged)
    return is_sure, uploads, len(right) - left_out, -len(wrong)


def _raised(error: BaseException) -> str:
    trace, where = error.__traceback__, ""
    while trace is not None:
        code = trace.tb_frame.f_code
        if not is_ours(code.co_filename) and not code.co_filename.startswith("<"):
            where = f" (at {CallSite(code.co_filename, trace.tb_lineno, code.co_name)})"
        trace = trace.tb_next
    return f"{type(error).__name__}: {error}".rstrip(".") + where


def _lengths(judgement: Judgement) -> list[str]:
    """What only one of the programs has, collectives aside."""
    taken = set(judgement.pairs.values())
    read = {one.entry.number for one in judgement.judged if one.entry.name in READS and one.measure is not None}
    ours = [one for one in judgement.mine.entries if one.number not in judgement.pairs and one.number not in read]
    theirs = [one for one in judgement.theirs.entries if one.number not in taken]
    notes = []
    for side, entries in (("program", ours), ("reference", theirs)):
        left = [one for one in entries if not one.sends and one.gradient_of is None]
        if left:
            shown = ", ".join(f"{one.name} ({one.site})" for one in left[:4])
            more = f" and {len(left) - 4} more" if len(left) > 4 else ""
            notes.append(f"only the {side} has {shown}{more}.")
    return notes


def _fidelities(judgement: Judgement) -> list[str]:
    """Products that run at another math fidelity than the reference's: only a chip shows what that costs."""
    told: dict[str, None] = {}
    for one in judgement.judged:
        ours, theirs = (_fidelity(entry) for entry in (one.entry, one.partner))
        if ours != theirs and None not in (ours, theirs):
            told[
                f"{one.entry.name} ({one.entry.site}) runs at {ours}, the reference at {theirs}: softmesh multiplies "
                "exactly at each, a chip does not (softmesh numerics tells what it loses)."
            ] = None
    return list(told)


def _fidelity(entry: Entry | None) -> str | None:
    if entry is None or entry.call is None:
        return None
    fidelity = getattr(entry.call[1].get("compute_kernel_config"), "math_fidelity", None)
    return "the default fidelity" if fidelity is None else str(getattr(fidelity, "name", fidelity))


def _row(judged: Judged) -> OpDifference:
    measure, output = judged.measure, judged.entry.outputs[judged.output]
    return OpDifference(
        judged.entry.number,
        judged.entry.name,
        judged.entry.site,
        judged.final_verdict,
        None if measure is None else measure.figures,
        judged.band,
        judged.entry.module,
        () if measure is None else measure.errors,
        0.0 if judged.final_verdict in _NOT_OWN else max(0.0, judged.severity - judged.brought),
        tuple(output.shape[output.dist.lead :]),
        short(output.dtype),
        judged.reason if judged.final_verdict is Verdict.NOT_COMPARED else None,
        short(judged.expected.stored.dtype) if judged.verdict is Verdict.COARSER and judged.expected else "",
    )


def divergence(judgement: Judgement, judged: Judged) -> Divergence:
    finding = explained(judgement, judged)
    measure, entry = judged.measure, judged.entry
    figures = Figures(math.inf, 0.0, math.inf, math.inf) if measure is None else measure.figures
    everywhere = entry.outputs[judged.output].dist.coordinates()
    case = Case(judgement, judged)
    coords = everywhere if measure is None else _wrong_chips(case, everywhere)
    return Divergence(
        entry.number,
        entry.name,
        entry.site,
        coords,
        _box(case),
        figures.pcc,
        figures.max_error,
        figures.ulp,
        figures.error,
        judged.band,
        finding.cause,
        finding.text,
        entry.module,
        entry.callers,
        against_float32(judgement.sides, judged),
    )


def _wrong_chips(case: Case, everywhere: tuple[MeshCoordinate, ...]) -> tuple[MeshCoordinate, ...]:
    judged, found, expected = case.judged, case.found, case.expected
    assert judged.measure is not None
    if not case.entry.inputs and found is not None and expected is not None and found.numel() == expected.numel():
        dealt = out_of_order(judged.measure.value, found, expected.reshape(found.shape))
        if dealt is not None and dealt[1] and len(tuple(everywhere[0])) > dealt[0]:
            return tuple(coord for coord in everywhere if coord[dealt[0]] in dealt[1])
    band = max(judged.band, judged.severity / 100)
    return tuple(coord for coord, error in judged.measure.errors if error > band) or everywhere


def _box(case: Case) -> tuple[slice, ...]:
    """The smallest ranges of the whole tensor that hold all that is wrong."""
    expected, found = case.expected, case.found
    if expected is None:
        return ()
    if found is None or found.numel() != expected.numel():
        return tuple(slice(0, n) for n in expected.shape)
    wrong = (found.reshape(expected.shape).float() - expected.float()).abs().nan_to_num(nan=math.inf)
    usual = float(expected.float().square().mean().sqrt())
    at = (wrong > max(case.judged.band * usual, float(wrong.nan_to_num(posinf=1e30).max()) / 100)).nonzero()
    if not len(at):
        return tuple(slice(0, n) for n in expected.shape)
    low, high = at.min(0).values.tolist(), at.max(0).values.tolist()
    return tuple(slice(a, b + 1) for a, b in zip(low, high, strict=True))


def _other_result(judgement: Judgement) -> Divergence | None:
    """All ops agree, and what the programs return does not: what the host made of the pieces is wrong."""
    ours, theirs = judgement.mine.result, judgement.theirs.result
    if not (isinstance(ours, torch.Tensor) and isinstance(theirs, torch.Tensor)) or judgement.parted:
        return None
    reads = [one for one in judgement.judged if one.entry.name == "to_torch"]
    if not reads or not theirs.is_floating_point():
        return None
    band = max(4 * max(reads[-1].severity, reads[-1].band), 1e-5)
    size = float(theirs.double().norm())
    is_same_shape = ours.numel() == theirs.numel()
    off = float((ours.reshape(theirs.shape).double() - theirs.double()).norm()) if is_same_shape else math.inf
    if off <= band * size:
        return None
    read = reads[-1].entry
    largest = float((ours.reshape(theirs.shape) - theirs).abs().max()) if is_same_shape else math.inf
    words = ", ".join(f"axis {axis}: {word!r}" for axis, word in enumerate(read.outputs[0].dist.placements))
    cause = Cause.PARTIAL_SUM if "Partial" in words else Cause.OTHER_VALUES
    return Divergence(
        read.number,
        read.name,
        read.site,
        read.outputs[0].dist.coordinates(),
        tuple(slice(0, n) for n in theirs.shape),
        0.0,
        largest,
        math.inf,
        off / size if size else math.inf,
        band,
        cause,
        f"the devices hold the right values ({words}), and the host put them together to others"
        f"{'' if is_same_shape else f', of shape {tuple(ours.shape)} in place of {tuple(theirs.shape)}'}.",
        read.module,
        read.callers,
    )
