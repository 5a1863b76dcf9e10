"""Link and memory use of an estimate: what they carried and held, by pair of chips and over time."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import NamedTuple

from softmesh.callsite import CallSite
from softmesh.cost.timeline import Estimate, MemoryEvent, MemoryRegion, MeshRecord


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


def device_count(estimate: Estimate) -> int:
    return len({(mesh.rank, device) for mesh in estimate.meshes for device in mesh.devices})
