"""When a launch counts, and what it takes.

Prices of ops and of links are the time of devices, and have no launch in them. Who ranks one program against another
adds a launch for every op that one of them has more, and so does the clock of an estimate: that of a call which the
host enqueues by itself, as unified ops do, or the gap between two ops of a trace, for which plans are made.
"""

from __future__ import annotations

from softmesh.cost.laws.dispatches import GAP_US, UNTRACED_US
from softmesh.systems.chip import Chip


def launch_seconds(chip: Chip, *, is_traced: bool = False) -> float:
    return (GAP_US if is_traced else UNTRACED_US)[chip.arch_name] * 1e-6
