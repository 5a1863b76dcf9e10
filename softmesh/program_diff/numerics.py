"""The cost of rounding to a program: op by op against float32, and what each of the best changes would buy.

The changes are tried: the program runs once more with each, and the error of its result and its predicted time are
those of that run.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import NamedTuple

from softmesh.cost.op_workloads import OpCall, bytes_of
from softmesh.cost.pricing import call_of, price, price_of
from softmesh.diff.comparing import compared
from softmesh.diff.comparison import Comparison
from softmesh.diff.entries import Entry, Recording
from softmesh.diff.fidelity_loss import fidelity_losses
from softmesh.diff.golden_run import golden_run
from softmesh.diff.hop_rounding import HopRounding, hop_rounding
from softmesh.diff.judged import Judged
from softmesh.diff.recording import READS
from softmesh.diff.result import Figures
from softmesh.dispatch.operation import factors_of
from softmesh.errors import MeshError
from softmesh.hardware import MathFidelity, WormholeComputeKernelConfig
from softmesh.program_diff.precision_changes import Place, PrecisionChange, change_for, place_of
from softmesh.progress import tracked
from softmesh.runtime.commands import Command, observe
from softmesh.systems.chip import Chip

Form = Callable[[], AbstractContextManager[None]]
Runner = Callable[[Form], Recording]


class Spent(NamedTuple):
    """Predicted for one device: the seconds of all commands, and the bytes of what they made."""

    seconds: float
    made: int


class Tried(NamedTuple):
    change: PrecisionChange
    error: float  # of the program's result, with it
    spent: Spent


class Refused(NamedTuple):
    """A change with which the program does not run."""

    change: PrecisionChange
    reason: str


@dataclass
class LineLoss:
    """All calls of an op on one line."""

    place: Place
    dtype: str
    calls: int = 0
    squares: float = 0.0

    @property
    def lost(self) -> float:
        """What the op's own roundings add, over its calls."""
        return math.sqrt(self.squares)


@dataclass
class Fidelity:
    """A product on one line: what each fidelity loses, and the seconds that it takes."""

    place: Place
    losses: dict[MathFidelity, float]
    seconds: dict[MathFidelity, float]


@dataclass
class Numerics:
    """The whole report."""

    comparison: Comparison
    result: Entry
    figures: Figures
    spent: Spent
    lines: list[LineLoss]
    tried: list[Tried]
    refused: list[Refused]
    fidelities: list[Fidelity]
    collectives: list[tuple[Place, HopRounding]] = field(default_factory=list)


class _Pricing:
    """An observer that adds up what a run would take, and asks what products would at other fidelities."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self.made = 0
        self.products: dict[tuple[str, int], dict[MathFidelity, float]] = {}

    def on_command(self, command: Command) -> None:
        device = command.device
        if device is None:
            return
        chip = device.system.chip
        self.seconds += price_of(command, chip).seconds
        self.made += sum(bytes_of(tensor.spec) for tensor in command.outputs)
        key = command.site.file, command.site.line
        if factors_of(command.name) and key not in self.products:
            call = call_of(command)
            self.products[key] = {one: _seconds_at(one, call, chip) for one in MathFidelity if one.value < 255}

    @property
    def spent(self) -> Spent:
        return Spent(self.seconds, self.made)


def _seconds_at(fidelity: MathFidelity, product: OpCall, chip: Chip) -> float:
    config = WormholeComputeKernelConfig(math_fidelity=fidelity)
    return price(product._replace(arguments={**product.arguments, "compute_kernel_config": config}), chip).seconds


def numerics_of(run: Runner, wide: Form, tries: int) -> Numerics:
    """`run` executes the program within a form; `wide` is that of float32."""
    reference = _sound(run(wide), "in float32")
    pricing = _Pricing()
    with observe(pricing):
        mine = _sound(run(nullcontext), "as it is")
    found = compared(mine, reference, against="float32", lifted=True)
    judgement = found.judgement
    assert judgement is not None
    last = _result(judgement.judged)
    assert last.measure is not None
    lines = _lines(
        found, compared(mine, golden_run(mine), pairs={n: n for n in range(len(mine.entries))}), judgement.judged
    )
    candidates = _candidates(judgement.judged, lines)[:tries]
    tried = [_try(run, reference, change) for change in tracked(candidates, "trying changes")]
    return Numerics(
        found,
        last.entry,
        last.measure.figures,
        pricing.spent,
        lines,
        sorted((one for one in tried if isinstance(one, Tried)), key=lambda one: one.error),
        [one for one in tried if isinstance(one, Refused)],
        _fidelities(mine, pricing),
        _collectives(mine),
    )


def _sound(run: Recording, what: str) -> Recording:
    if run.error is not None:
        raise MeshError(f"numerics: the program, {what}, raised {type(run.error).__name__}: {run.error}")
    return run


def _result(judged: Sequence[Judged]) -> Judged:
    """What the host reads last, or the last op."""
    measured = [one for one in judged if one.measure is not None and one.entry.outputs[0].kind.is_floating_point]
    if not measured:
        raise MeshError("numerics: the program computes nothing in floating point on a mesh.")
    reads = [one for one in measured if one.entry.name in READS]
    return (reads or measured)[-1]


def _lines(found: Comparison, by_golden: Comparison, judged: Sequence[Judged]) -> list[LineLoss]:
    """What an op itself loses, by its golden function on what it was given; without one, what it adds to the error."""
    rows = {one.number: one for one in found.ops}
    exact = {one.number: one.figures.error for one in by_golden.ops if one.figures is not None}
    kept: dict[Place, LineLoss] = {}
    for one in judged:
        row = rows[one.entry.number]
        if row.figures is None or one.entry.name in READS or one.entry.gradient_of is not None:
            continue
        place = place_of(one.entry)
        line = kept.setdefault(place, LineLoss(place, row.dtype.rpartition(".")[2].lower()))
        line.calls += 1
        line.squares += (exact.get(row.number, row.lost) if one.entry.inputs else row.lost) ** 2
    return sorted(kept.values(), key=lambda line: line.lost, reverse=True)


def _candidates(judged: Sequence[Judged], lines: Sequence[LineLoss]) -> list[PrecisionChange]:
    """One for each line whose call can be changed, the costliest first."""
    first: dict[Place, Entry] = {}
    for one in judged:
        first.setdefault(place_of(one.entry), one.entry)
    found = [change_for(first[line.place]) for line in lines if line.lost > 0]
    return [one for one in found if one is not None]


def _try(run: Runner, reference: Recording, change: PrecisionChange) -> Tried | Refused:
    pricing = _Pricing()
    with observe(pricing):
        mine = run(change.applied)
    if mine.error is not None:
        return Refused(change, f"{type(mine.error).__name__}: {mine.error}".splitlines()[0])
    judgement = compared(mine, reference, against="float32", lifted=True).judgement
    assert judgement is not None
    measure = _result(judgement.judged).measure
    assert measure is not None
    return Tried(change, measure.figures.error, pricing.spent)


def _fidelities(run: Recording, pricing: _Pricing) -> list[Fidelity]:
    kept: dict[Place, Fidelity] = {}
    for entry in run.entries:
        seconds = pricing.products.get((entry.site.file, entry.site.line))
        if seconds is None or place_of(entry) in kept:
            continue
        losses = fidelity_losses(run, entry)
        if losses:
            kept[place_of(entry)] = Fidelity(place_of(entry), losses, seconds)
    return list(kept.values())


def _collectives(run: Recording) -> list[tuple[Place, HopRounding]]:
    """The worst call of each line."""
    worst: dict[Place, HopRounding] = {}
    by_line: dict[Place, list[HopRounding]] = defaultdict(list)
    for entry in run.entries:
        found = hop_rounding(run, entry) if entry.sends else None
        if found is not None:
            by_line[place_of(entry)].append(found)
    for place, all_of in by_line.items():
        worst[place] = max(all_of, key=lambda one: one.hops[-1])
    return list(worst.items())
