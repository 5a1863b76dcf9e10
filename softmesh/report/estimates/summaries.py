"""What a reader of an estimate asks first: time by op, line and bound, links by pair of chips, memory at its peak."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from softmesh.callsite import CallSite
from softmesh.cost.command_cost import Bound
from softmesh.cost.timeline import Estimate, MemoryEvent, MemoryRegion, MeshRecord, TimedCommand


@dataclass
class Total:
    """Commands that belong together."""

    name: str
    calls: int = 0
    seconds: float = 0.0
    low: float = 0.0
    high: float = 0.0
    flops: int = 0
    dram_bytes: int = 0
    link_bytes: int = 0
    by_bound: dict[Bound, float] = field(default_factory=lambda: defaultdict(float))
    sites: dict[CallSite, float] = field(default_factory=lambda: defaultdict(float))
    names: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    is_measured: bool = True

    def add(self, command: TimedCommand) -> None:
        cost = command.cost
        self.calls += 1
        self.seconds += command.seconds
        self.low += cost.low
        self.high += cost.high
        self.flops += cost.flops
        self.dram_bytes += cost.dram_bytes
        self.link_bytes += cost.link_bytes
        self.by_bound[cost.bound] += command.seconds
        self.sites[command.site] += command.seconds
        self.names[command.name] += command.seconds
        self.is_measured &= cost.is_measured

    @property
    def bound(self) -> Bound:
        """What bounds most of its time."""
        return max(self.by_bound, key=lambda bound: self.by_bound[bound])


def totals(commands: Iterable[TimedCommand], key: Callable[[TimedCommand], object]) -> list[Total]:
    """The largest first."""
    found: dict[object, Total] = {}
    for command in commands:
        if command.seconds > 0:
            group = key(command)
            found.setdefault(group, Total(str(group))).add(command)
    return sorted(found.values(), key=lambda total: -total.seconds)


def time_by_bound(estimate: Estimate) -> list[tuple[Bound, float]]:
    spent: dict[Bound, float] = defaultdict(float)
    for command in estimate.commands:
        spent[command.cost.bound] += command.seconds
    return sorted(((bound, seconds) for bound, seconds in spent.items() if seconds > 0), key=lambda pair: -pair[1])


def band(estimate: Estimate) -> tuple[float, float]:
    """Within which the whole lies, if every command of the critical path lies at that end of its own band."""
    path = estimate.critical_path()
    between = estimate.seconds - sum(command.seconds for command in path)
    low, high = sum(command.cost.low for command in path), sum(command.cost.high for command in path)
    return max(low + between, 0.0), max(high + between, estimate.seconds)


class PairUse(NamedTuple):
    """What went from one chip to another over all their links."""

    source: int
    target: int
    links: int
    bytes: int
    busiest_bytes: int  # of one link
    busy_seconds: float  # of the busiest


def link_pairs(estimate: Estimate) -> list[PairUse]:
    found: dict[tuple[int, int], list[tuple[int, float]]] = defaultdict(list)
    for use in estimate.links:
        found[use.link.source.chip, use.link.target.chip].append((use.bytes, use.busy_seconds))
    return [
        PairUse(*pair, len(uses), sum(size for size, _ in uses), *max(uses)) for pair, uses in sorted(found.items())
    ]


class Allocation(NamedTuple):
    """Memory of one bank, from when until when it was held."""

    taken: MemoryEvent
    start: float
    end: float

    @property
    def bytes(self) -> int:
        return self.taken.bytes_per_bank


class MemoryUse(NamedTuple):
    """One memory of a mesh: what lay where, and how much at every moment. The same in each bank, on each chip."""

    mesh: MeshRecord
    region: MemoryRegion
    allocations: tuple[Allocation, ...]
    curve: tuple[tuple[float, int], ...]  # from this time on, bytes
    peak: int
    peak_time: float
    peak_site: CallSite | None


def memory_uses(estimate: Estimate) -> list[MemoryUse]:
    """Every memory that was used, DRAM first."""
    events: dict[tuple[int, str], list[MemoryEvent]] = defaultdict(list)
    for event in estimate.memory:
        events[event.mesh, event.buffer_type].append(event)
    ordered = sorted(events.items(), key=lambda item: (item[0][0], item[0][1]))
    return [_memory_use(estimate, estimate.meshes[mesh], kind, found) for (mesh, kind), found in ordered]


def _memory_use(estimate: Estimate, mesh: MeshRecord, kind: str, events: Sequence[MemoryEvent]) -> MemoryUse:
    held, peak, peak_time = 0, 0, 0.0
    peak_site: CallSite | None = None
    curve: list[tuple[float, int]] = [(0.0, 0)]
    living: dict[int, MemoryEvent] = {}
    done: list[Allocation] = []
    for event in events:
        held += event.bytes_per_bank
        curve.append((event.time, held))
        if event.bytes_per_bank > 0:
            living[event.number] = event
            if held > peak:
                peak, peak_time, peak_site = held, event.time, event.site
        elif event.number in living:
            taken = living.pop(event.number)
            done.append(Allocation(taken, taken.time, event.time))
    done += [Allocation(taken, taken.time, estimate.seconds) for taken in living.values()]
    return MemoryUse(mesh, mesh.region(kind), tuple(done), tuple(curve), peak, peak_time, peak_site)


def tokens_per_second(estimate: Estimate) -> float | None:
    """Over all steps that made tokens."""
    steps = [step for step in estimate.steps if step.tokens]
    seconds = sum(step.end - step.start for step in steps)
    return sum(step.tokens or 0.0 for step in steps) / seconds if seconds > 0 else None


def device_count(estimate: Estimate) -> int:
    return len({(mesh.rank, device) for mesh in estimate.meshes for device in mesh.devices})
