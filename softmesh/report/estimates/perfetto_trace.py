"""An estimate as a trace that Perfetto opens: tracks for ranks, chips, queues and links, flows along the links.

The file is in the JSON form of trace events. A process is a rank, a mesh, a chip or all links together; a thread is a
track: the program of a rank, a queue of a chip, one way through a link. Times are microseconds on the modelled clock.
Where commands of one queue overlap, which sub-devices allow, the queue has several tracks: slices of one track nest.
The first chip of a command tells everything about it, the others its line and what bounds it.
"""

from __future__ import annotations

import gzip
import json
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any, BinaryIO

from softmesh.cost.command_cost import Bound
from softmesh.cost.summaries import busy_share, idle_times
from softmesh.cost.timeline import Estimate, MeshRecord, TimedCommand
from softmesh.report.estimates.output_files import PathLike, writing

Event = dict[str, Any]
Track = tuple[int, int]  # process and thread

_PROGRAM, _STEPS = 1, 2  # threads of a rank
_LANES = 16  # tracks that a queue may take
MOST_ARROWS = 200_000  # a viewer with more draws nothing else
_INSIDE = 0.25  # how far into a slice an arrow ends, as a share of it


def write_perfetto(estimate: Estimate, path: PathLike, option: str = "--perfetto") -> Path:
    """Compressed where the name ends in .gz. Event by event: a long program on many chips has millions."""
    packed = str(path).endswith(".gz")
    with writing(option, path) as file, _compressed(file) if packed else nullcontext(file) as sink:
        sink.write(b'{"displayTimeUnit":"ns","otherData":' + _json(_facts(estimate)) + b',"traceEvents":[')
        for number, event in enumerate(perfetto_events(estimate)):
            sink.write((b",\n" if number else b"\n") + _json(event))
        sink.write(b"]}\n")
    return Path(path)


def perfetto_events(estimate: Estimate) -> Iterator[Event]:
    """In no order: the names of tracks come before what lies on them."""
    trace = _Trace(estimate)
    trace.ranks()
    yield from trace.drained()
    for command in estimate.commands:
        trace.command(command)
        yield from trace.drained()
    trace.memory()
    trace.link_rates()
    yield from trace.drained()


def _facts(estimate: Estimate) -> Event:
    names = ("program", "system", "fabric", "calibration", "error")
    shares = {idle.name: f"{idle.share:.1%}" for idle in idle_times(estimate)}
    told = {name: getattr(estimate, name) or "" for name in names}
    return told | {"seconds": estimate.seconds, "chips busy": f"{busy_share(estimate):.1%}", **shares}


def _compressed(file: BinaryIO) -> gzip.GzipFile:
    return gzip.GzipFile(filename="", mode="wb", fileobj=file, compresslevel=5, mtime=0)


def _json(value: Event) -> bytes:
    return json.dumps(value, separators=(",", ":"), allow_nan=False).encode()


class _Trace:
    def __init__(self, estimate: Estimate) -> None:
        self.estimate = estimate
        self.events: list[Event] = []
        self._processes: dict[object, int] = {}
        self._threads: set[tuple[int, int]] = set()
        self._ends: dict[tuple[int, int], float] = defaultdict(lambda: -1.0)  # of the last slice of a track
        self._arrows = 0
        # Tracks of commands that a command of another rank waited for, by index and device.
        commands = estimate.commands
        awaited = {one.after for one in commands if one.after is not None and commands[one.after].rank != one.rank}
        self._awaited: dict[int, dict[int, Track]] = {index: {} for index in awaited}

    # -- tracks ------------------------------------------------------------------------------------------

    def process(self, key: object, name: str) -> int:
        known = self._processes.get(key)
        if known is None:
            known = self._processes[key] = len(self._processes) + 1
            self._name("process_name", known, 0, name=name)
            self._name("process_sort_index", known, 0, sort_index=known)
        return known

    def thread(self, process: int, number: int, name: str) -> int:
        if (process, number) not in self._threads:
            self._threads.add((process, number))
            self._name("thread_name", process, number, name=name)
            self._name("thread_sort_index", process, number, sort_index=number)
        return number

    def _name(self, kind: str, process: int, thread: int, **what: object) -> None:
        self.events.append({"ph": "M", "name": kind, "pid": process, "tid": thread, "args": what})

    def drained(self) -> list[Event]:
        """What has come since the last time."""
        events, self.events = self.events, []
        return events

    def rank(self, rank: int) -> int:
        return self.process(("rank", rank), f"rank {rank}")

    def chip(self, command: TimedCommand, device: int) -> int:
        mesh = self.estimate.meshes[command.mesh]
        owner = f"rank {command.rank}, " if self.estimate.ranks > 1 else ""
        return self.process(("chip", command.rank, device), f"{owner}chip {device} at {_place(mesh, device)}")

    # -- what happens -------------------------------------------------------------------------------------

    def slice(self, process: int, thread: int, name: str, start: float, end: float, args: Event | None = None) -> None:
        first, last = _us(start), _us(end)  # rounded alone, a duration could reach into the next slice
        event = {"ph": "X", "name": name, "pid": process, "tid": thread, "ts": first, "dur": round(last - first, 4)}
        self.events.append(event | ({"args": args} if args else {}))
        self._ends[process, thread] = max(self._ends[process, thread], end)

    def ranks(self) -> None:
        """All ranks first, so that they stand on top; their steps and signposts."""
        for rank in range(max(self.estimate.ranks, 1)):
            self.thread(self.rank(rank), _PROGRAM, "program")
        for step in self.estimate.steps:
            pid = self.rank(step.rank)
            args = {} if step.tokens is None else {"tokens": step.tokens}
            self.slice(pid, self.thread(pid, _STEPS, "steps"), step.name, step.start, step.end, args)
        for mark in self.estimate.marks:
            pid = self.rank(mark.rank)
            event = {"ph": "i", "s": "p", "name": mark.text, "pid": pid, "tid": _PROGRAM, "ts": _us(mark.time)}
            self.events.append(event | ({"args": {"message": mark.message}} if mark.message else {}))
        for mesh in self.estimate.meshes:
            for device in mesh.devices:  # in the order of the mesh
                owner = f"rank {mesh.rank}, " if self.estimate.ranks > 1 else ""
                self.process(("chip", mesh.rank, device), f"{owner}chip {device} at {_place(mesh, device)}")

    def command(self, command: TimedCommand) -> None:
        args = _details(command)
        self._on_host(command, args)
        if command.mesh < 0 or command.seconds <= 0 or command.cost.bound is Bound.HOST:
            return
        tracks = {}
        for device in command.devices:
            process = self.chip(command, device)
            tracks[device] = process, self._queue(process, command)
            told = args if len(tracks) == 1 else {"at": args["at"], "bound": args["bound"], "command": command.index}
            self.slice(*tracks[device], command.name, command.start, command.end, told)
        self._over_links(command, tracks)
        if command.index in self._awaited:
            self._awaited[command.index] = tracks
        if command.after in self._awaited:
            self._from_another_rank(command, tracks)

    def _on_host(self, command: TimedCommand, args: Event) -> None:
        """Its own work, and where it waits for a command to end."""
        is_own = command.cost.bound is Bound.HOST and command.seconds > 0
        if not is_own and not command.is_blocking:
            return
        process = self.rank(command.rank)
        start = max(command.start if is_own else command.issued, self._ends[process, _PROGRAM])
        if command.end > start:
            name = command.name if is_own else f"waits for {command.name}"
            self.slice(process, _PROGRAM, name, start, command.end, args)

    def _queue(self, process: int, command: TimedCommand) -> int:
        """The first track of its queue that is free when it starts."""
        first = 1 + command.queue * _LANES
        lanes = range(first, first + _LANES)
        lane = next((lane for lane in lanes if self._ends[process, lane] <= command.start + 1e-12), lanes[-1])
        name = f"queue {command.queue}" + (f", track {lane - first + 1}" if lane > first else "")
        return self.thread(process, lane, name)

    def _over_links(self, command: TimedCommand, tracks: dict[int, Track]) -> None:
        """A slice on each link that it uses, and an arrow from the sender over the link to the receiver."""
        for number, size in command.traffic.bytes_by_link if command.traffic is not None else ():
            link = self.estimate.links[number].link
            process = self.process("links", "links")
            thread = self.thread(process, number + 1, str(link))
            rate = size / command.seconds
            self.slice(process, thread, command.name, command.start, command.end, {"bytes": size, "GB/s": rate / 1e9})
            sender, receiver = tracks.get(link.source.chip), tracks.get(link.target.chip)
            if sender is None or receiver is None or self._arrows >= MOST_ARROWS:
                continue
            at = command.start + _INSIDE * command.seconds
            way = [(sender, command.start), ((process, thread), at), (receiver, at + _INSIDE * command.seconds)]
            self._arrow("sends", way)

    def _from_another_rank(self, command: TimedCommand, tracks: dict[int, Track]) -> None:
        """An arrow from each device that sent to the one in the same place that received."""
        sent = self.estimate.commands[command.after or 0]
        if sent.rank == command.rank:
            return
        for sender, receiver in zip(self._awaited[sent.index].values(), tracks.values(), strict=False):
            self._arrow("message", [(sender, sent.start), (receiver, command.start)])

    def _arrow(self, name: str, way: Sequence[tuple[Track, float]]) -> None:
        self._arrows += 1
        for number, ((pid, tid), when) in enumerate(way):
            phase = "s" if not number else "f" if number == len(way) - 1 else "t"
            event = {"name": name, "cat": "link", "id": self._arrows, "ph": phase, "pid": pid, "tid": tid}
            self.events.append({**event, "ts": _us(when), **({"bp": "e"} if number else {})})

    # -- counters -----------------------------------------------------------------------------------------

    def counter(self, process: int, name: str, seconds: float, values: Event) -> None:
        event = {"ph": "C", "name": name, "pid": process, "tid": 0, "ts": _us(seconds), "args": values}
        self.events.append(event)

    def memory(self) -> None:
        """What each bank of a mesh holds: the same on every chip, for allocation goes in lock-step."""
        held: dict[tuple[int, str], int] = defaultdict(int)
        for event in self.estimate.memory:
            mesh = self.estimate.meshes[event.mesh]
            owner = f"rank {mesh.rank}, " if self.estimate.ranks > 1 else ""
            shape = "x".join(map(str, mesh.shape))
            process = self.process(("mesh", mesh.index), f"{owner}mesh {mesh.mesh_id} ({shape}): memory")
            held[event.mesh, event.buffer_type] += event.bytes_per_bank
            now = {"bytes": held[event.mesh, event.buffer_type]}
            self.counter(process, f"{event.buffer_type} of each bank", event.time, now)

    def link_rates(self) -> None:
        """GB/s out of each chip, and over all links."""
        changes: dict[tuple[int, str], list[tuple[float, float]]] = defaultdict(list)
        for command in self.estimate.commands:
            if command.traffic is None or command.seconds <= 0:
                continue
            for number, size in command.traffic.bytes_by_link:
                rate = size / command.seconds / 1e9
                sender = self._processes.get(("chip", command.rank, self.estimate.links[number].link.source.chip))
                counters = [(self.process("links", "links"), "all links")]
                counters += [(sender, "over its links")] if sender is not None else []
                for counter in counters:
                    changes[counter] += [(command.start, rate), (command.end, -rate)]
        for (process, name), steps in changes.items():
            for when, rate in _running(steps):
                self.counter(process, name, when, {"GB/s": rate})


def _running(steps: list[tuple[float, float]]) -> Iterator[tuple[float, float]]:
    """The sum after each moment at which it changes."""
    at: dict[float, float] = defaultdict(float)
    for when, change in steps:
        at[when] += change
    total = 0.0
    for when in sorted(at):
        total += at[when]
        yield when, round(max(total, 0.0), 6)


def _details(command: TimedCommand) -> Event:
    cost = command.cost
    details: Event = {
        "at": str(command.site),
        "bound": cost.bound.value,
        "law": cost.law,
        "band": f"{cost.low * 1e6:.3f} .. {cost.high * 1e6:.3f} us",
        "flops": cost.flops,
        "DRAM bytes": cost.dram_bytes,
        "cores": cost.cores,
    }
    for side, tensors in (("in", command.inputs), ("out", command.outputs)):
        for number, tensor in enumerate(tensors):
            where = "host" if tensor.is_on_host else f"{tensor.buffer_type} {tensor.memory_layout}"
            shape = "x".join(map(str, tensor.shape))
            details[f"{side} {number}"] = f"{shape} {tensor.dtype} {where}, {' '.join(tensor.placement)}"
    if command.within:
        details["within"] = " > ".join(command.within)
    if command.trace is not None:
        details["trace"] = command.trace
    if command.session is not None:
        details["replay"] = command.session
    return details


def _place(mesh: MeshRecord, device: int) -> str:
    return f"({', '.join(map(str, mesh.coordinate(device)))})"


def _us(seconds: float) -> float:
    return round(seconds * 1e6, 4)
