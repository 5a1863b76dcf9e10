"""The timeline of an estimate as lanes: chips that do the same at the same time share one, whatever their number."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any, NamedTuple

from softmesh.cost.command_cost import Bound
from softmesh.cost.timeline import Estimate, TimedCommand

BOUNDS = tuple(Bound)
_MOST_COMMANDS = 60_000  # a page with more opens slowly; the trace for Perfetto has all of them


class Lane(NamedTuple):
    label: str
    commands: tuple[TimedCommand, ...]


def lanes(estimate: Estimate) -> list[Lane]:
    """Of each rank its host first, then its queues; commands of one lane never overlap."""
    groups: dict[tuple[Any, ...], list[list[TimedCommand]]] = defaultdict(list)
    for command in estimate.commands[:_MOST_COMMANDS]:
        if command.seconds <= 0:
            continue
        is_host = command.cost.bound is Bound.HOST or command.mesh < 0
        chips = command.devices
        key = (command.rank, 0) if is_host else (command.rank, 1, -len(chips), command.mesh, command.queue, chips)
        tracks = groups[key]
        free = next((track for track in tracks if track[-1].end <= command.start + 1e-12), None)
        if free is None:
            tracks.append([command])
        else:
            free.append(command)
    return [
        Lane(_label(estimate, key), tuple(track))
        for key, tracks in sorted(groups.items(), key=lambda item: item[0])
        for track in tracks
    ]


def _label(estimate: Estimate, key: tuple[Any, ...]) -> str:
    rank = f"rank {key[0]} · " if estimate.ranks > 1 else ""
    if key[1] == 0:
        return f"{rank}host"
    *_, mesh, queue, devices = key
    whole = set(devices) == set(estimate.meshes[mesh].devices) and estimate.meshes[mesh].parent is None
    where = f"all {len(devices)} chips" if whole and len(devices) > 1 else chips_text(devices)
    return f"{rank}{where} · queue {queue}"


def chips_text(devices: Sequence[int]) -> str:
    """`chips 0-3, 8`."""
    runs: list[list[int]] = []
    for device in sorted(devices):
        if runs and device == runs[-1][1] + 1:
            runs[-1][1] = device
        else:
            runs.append([device, device])
    shown = [str(a) if a == b else f"{a}-{b}" for a, b in runs[:4]]
    more = ", …" if len(runs) > 4 else ""
    return f"chip{'s' if len(devices) > 1 else ''} {', '.join(shown)}{more}"


def timeline_data(estimate: Estimate) -> dict[str, Any]:
    """What the page's script draws: names and lines once, commands as numbers."""
    names: dict[str, int] = {}
    sites: dict[str, int] = {}
    drawn = []
    found = lanes(estimate)
    for number, lane in enumerate(found):
        for command in lane.commands:
            name = names.setdefault(command.name, len(names))
            site = sites.setdefault(str(command.site), len(sites))
            start, length = round(command.start * 1e9), round(command.seconds * 1e9)
            drawn.append([number, start, length, name, BOUNDS.index(command.cost.bound), site, command.index])
    return {
        "lanes": [lane.label for lane in found],
        "names": list(names),
        "sites": list(sites),
        "bounds": [bound.value for bound in BOUNDS],
        "colours": [bound.name.lower() for bound in BOUNDS],
        "commands": drawn,
        "end": max(round(estimate.seconds * 1e9), 1),
        "steps": [[step.name, round(step.start * 1e9), round(step.end * 1e9)] for step in estimate.steps],
        "marks": [[mark.text, round(mark.time * 1e9)] for mark in estimate.marks],
        "left": max(0, len(estimate.commands) - _MOST_COMMANDS),
    }
