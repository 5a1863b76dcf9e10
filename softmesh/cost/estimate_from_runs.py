"""From recorded runs to an `Estimate`: the clock gives times, and everything else is looked up by them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

from softmesh.callsite import CallSite, RawSite, resolved
from softmesh.cost.memory_journal import label_of
from softmesh.cost.modelled_clock import Clock, Clocked
from softmesh.cost.recorded_run import RecordedRun
from softmesh.cost.run_recorder import SIGNPOST, STEP
from softmesh.cost.timeline import (
    DirectedLink,
    Estimate,
    LinkUse,
    Mark,
    MemoryEvent,
    MeshRecord,
    StepRecord,
    TensorRecord,
    TimedCommand,
    Traffic,
)


def assembled(
    runs: Sequence[RecordedRun],
    clocked: Clocked | None = None,
    *,
    program: str = "",
    calibration: str = "built in",
    has_values: bool = True,
) -> Estimate:
    """The estimate of a job of one rank or several; `clocked` is what the clock said, where it was asked before."""
    if clocked is None:
        clocked = Clock(runs).go()
    meshes, first_mesh = _meshes(runs)
    links, numbers = _links(runs)
    spans = _spans(runs, clocked)
    commands = _commands(runs, clocked, first_mesh, numbers, spans)
    used = [run for run in runs if run.system] or list(runs)
    fabrics = [run.fabric for run in runs if run.fabric]
    return Estimate(
        program,
        used[0].system if used else "",
        used[0].machine if used else None,
        next((fabric for fabric in fabrics if fabric != "DISABLED"), fabrics[0] if fabrics else ""),
        calibration,
        has_values,
        len(runs),
        clocked.seconds,
        tuple(meshes),
        tuple(commands),
        _link_uses(links, commands),
        tuple(_memory(runs, clocked, first_mesh)),
        tuple(span.step for span in spans),
        tuple(_signposts(runs, clocked)),
        next((run.error for run in runs if run.error is not None), None),
    )


def _meshes(runs: Sequence[RecordedRun]) -> tuple[list[MeshRecord], list[int]]:
    """All of them, and for each run the index of its first."""
    found: list[MeshRecord] = []
    first = []
    for run in runs:
        first.append(len(found))
        offset = len(found)
        for mesh in run.meshes:
            parent = None if mesh.parent is None else mesh.parent + offset
            found.append(mesh._replace(index=mesh.index + offset, parent=parent))
    return found, first


def _links(runs: Sequence[RecordedRun]) -> tuple[list[DirectedLink], list[list[int]]]:
    """Each physical link once, and for each run the numbers of its links among them."""
    known: dict[DirectedLink, int] = {}
    numbers = [[known.setdefault(link, len(known)) for link in run.links] for run in runs]
    return list(known), numbers


class _Sites:
    """Lines of the program, each worked out once."""

    def __init__(self) -> None:
        self._known: dict[RawSite, CallSite] = {}

    def of(self, raw: RawSite | CallSite) -> CallSite:
        if isinstance(raw, CallSite):
            return raw
        known = self._known.get(raw)
        if known is None:
            known = self._known[raw] = resolved(raw)
        return known


def _commands(
    runs: Sequence[RecordedRun],
    clocked: Clocked,
    first_mesh: Sequence[int],
    numbers: Sequence[Sequence[int]],
    spans: Sequence[_Span],
) -> list[TimedCommand]:
    sites, traffic = _Sites(), _Renumbered(numbers)
    step_of = {at: span.step.index for span in spans for at in range(span.first, span.end)}
    tensors = [_records(run) for run in runs]
    made = []
    for index, at in enumerate(clocked.times):
        recorded = runs[at.run].commands[at.command]
        form = recorded.form
        made.append(
            TimedCommand(
                index,
                form.name,
                sites.of(recorded.raw_site),
                runs[at.run].rank,
                -1 if form.mesh < 0 else form.mesh + first_mesh[at.run],
                form.devices,
                recorded.queue,
                form.sub_devices,
                at.issued,
                at.start,
                at.end,
                form.cost,
                tuple(tensors[at.run](number) for number in recorded.inputs),
                tuple(tensors[at.run](number) for number in recorded.outputs),
                form.arguments,
                recorded.within,
                recorded.is_blocking,
                at.trace if at.session is not None else recorded.trace,
                at.session,
                step_of.get(index),
                None if at.after < 0 else at.after,
                traffic.of(at.run, form.traffic),
            )
        )
    return made


def _records(run: RecordedRun) -> Callable[[int], TensorRecord]:
    assert run.tensors is not None
    return run.tensors.record


class _Renumbered:
    """Traffic by the numbers that links have in the estimate."""

    def __init__(self, numbers: Sequence[Sequence[int]]) -> None:
        self._numbers = numbers
        self._known: dict[tuple[int, int], Traffic] = {}

    def of(self, run: int, traffic: Traffic | None) -> Traffic | None:
        if traffic is None:
            return None
        key = (run, id(traffic))
        known = self._known.get(key)
        if known is None:
            numbers = self._numbers[run]
            known = Traffic(tuple((numbers[link], size) for link, size in traffic.bytes_by_link))
            self._known[key] = known
        return known


def _link_uses(links: Sequence[DirectedLink], commands: Sequence[TimedCommand]) -> tuple[LinkUse, ...]:
    sizes, busy = [0] * len(links), [0.0] * len(links)
    uses: dict[int, tuple[Traffic, int, float]] = {}
    for command in commands:
        if command.traffic is not None:
            _, count, seconds = uses.get(id(command.traffic), (command.traffic, 0, 0.0))
            uses[id(command.traffic)] = command.traffic, count + 1, seconds + command.seconds
    for traffic, count, seconds in uses.values():
        for link, size in traffic.bytes_by_link:
            sizes[link] += count * size
            busy[link] += seconds
    return tuple(LinkUse(link, size, time) for link, size, time in zip(links, sizes, busy, strict=True))


class _Span(NamedTuple):
    """A step, and the index in the estimate of its first command and of the first after it."""

    step: StepRecord
    first: int
    end: int


def _spans(runs: Sequence[RecordedRun], clocked: Clocked) -> list[_Span]:
    """A step lasts until the next one of its rank; it ends when all that was issued in it has."""
    found: list[_Span] = []
    for number, run in enumerate(runs):
        done = _ends_so_far(clocked, number)
        own: list[tuple[float, int, str, float | None]] = []
        for (host, count), command in zip(clocked.at_command[number], run.commands, strict=True):
            name = command.form.name
            tokens = None if command.mark is None else _tokens_of(command.mark)
            if name.startswith(STEP) or tokens is not None:
                text = name.removeprefix(STEP).removeprefix(SIGNPOST)
                own.append((max(host, done[count]), count, text, tokens))
        if own:
            host, count = clocked.at_command[number][-1]
            own.append((max(host, done[count]), count, "", None))
        for (start, first, name, tokens), (end, last, _, _) in pairwise(own):
            if name:  # one without a name ends the one before, and is none
                found.append(_Span(StepRecord(len(found), name, run.rank, start, end, tokens), first, last))
    return found


def _ends_so_far(clocked: Clocked, run: int) -> list[float]:
    """By the number of times: the latest end among them, of one run."""
    latest, found = 0.0, [0.0]
    for one in clocked.times:
        if one.run == run:
            latest = max(latest, one.end)
        found.append(latest)
    return found


def _signposts(runs: Sequence[RecordedRun], clocked: Clocked) -> list[Mark]:
    """List signposts and marked steps: other tools find the parts of a program by both."""
    return [
        Mark(host, count, run.rank, text, command.mark.get("message", ""))
        for number, run in enumerate(runs)
        for (host, count), command in zip(clocked.at_command[number], run.commands, strict=True)
        if command.mark is not None and (text := _marked(command.form.name))
    ]


def _marked(name: str) -> str:
    """Return the text of a signpost or of a step's mark; nothing for other commands, and for the end of a step."""
    prefix = next((one for one in (SIGNPOST, STEP) if name.startswith(one)), None)
    return "" if prefix is None else name.removeprefix(prefix)


def _tokens_of(mark: dict[str, str]) -> float | None:
    """Of `mark_step(tokens=...)`, or of a signpost with a message such as `tokens=32`."""
    text = mark.get("tokens") or mark.get("message", "").partition("tokens=")[2].split(",")[0].strip()
    try:
        return float(text) if text else None
    except ValueError:
        return None


def _moment(after: Sequence[tuple[float, int]], command: int) -> tuple[float, int]:
    """When a command of a run had been given to its queue, and the index that it has in the estimate."""
    if not after:
        return 0.0, 0
    time, count = after[command]
    return time, max(count - 1, 0)


def _memory(runs: Sequence[RecordedRun], clocked: Clocked, first_mesh: Sequence[int]) -> list[MemoryEvent]:
    sites = _Sites()
    labels: dict[Any, str] = {}
    found = []
    for number, run in enumerate(runs):
        times = clocked.at_command[number]
        for entry in run.memory:
            label = labels.get(entry.label)
            if label is None:
                label = labels[entry.label] = label_of(entry.label)
            found.append(
                MemoryEvent(
                    *_moment(times, entry.command),
                    entry.mesh + first_mesh[number],
                    entry.buffer_type,
                    entry.address,
                    entry.bytes_per_bank,
                    entry.number,
                    label,
                    entry.tensor_id,
                    None if entry.raw_site is None else sites.of(entry.raw_site),
                )
            )
    return sorted(found, key=lambda event: event.time) if len(runs) > 1 else found
