"""`price`: the seconds, bytes and bound of one command of the stream, by the law of its family."""

from __future__ import annotations

from softmesh.cost.chip_costs import LAUNCH, memory_seconds
from softmesh.cost.command_cost import FREE, Bound, CommandCost
from softmesh.runtime.commands import Command
from softmesh.systems.chip import Chip

_UNMEASURED = 2.0  # nothing was measured: half to twice the data sheet's figure


def price(command: Command, chip: Chip) -> CommandCost:
    """What `command` takes on each device it ran on, which is a `chip`."""
    if command.device is None:
        return FREE
    work = command.cost
    seconds = memory_seconds(chip, work.bytes) + LAUNCH
    return CommandCost(
        seconds,
        seconds / _UNMEASURED,
        seconds * _UNMEASURED,
        Bound.DRAM if work.bytes else Bound.DISPATCH,
        "data sheet",
        flops=work.flops,
        dram_bytes=work.bytes,
    )
