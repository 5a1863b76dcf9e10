"""The time that a drawn collective takes on a machine, with its band, by the cost model."""

from __future__ import annotations

from collections.abc import Sequence

from softmesh.cost.calibration import WorkloadTime
from softmesh.cost.calibration_files import default_calibration
from softmesh.cost.workloads import Chain, Exchange
from softmesh.kinds import Kind
from softmesh.systems.chip import WORMHOLE, Chip

_PRICED = [kind.value for kind in (Kind.ALL_GATHER, Kind.REDUCE_SCATTER, Kind.ALL_REDUCE, Kind.ALL_TO_ALL)]


def predicted_line(
    collective: str, shape: Sequence[int], wraps: Sequence[bool], links: int, size: int, chip: Chip = WORMHOLE
) -> str | None:
    """One sentence; None for a collective that has no law. `size` is what each device brings along.

    >>> predicted_line("barrier", (8,), (True,), 1, 65536)
    """
    parts = []
    for extent, closes in zip(shape, wraps, strict=True):
        if collective not in _PRICED or extent < 2:
            continue
        whole = size * extent if collective == "all_gather" else size
        parts.append(Exchange(collective, chip, extent, links, closes and extent > 2, whole))
        size = whole if collective == "all_gather" else -(-size // extent) if collective == "reduce_scatter" else size
    if not parts:
        return None
    made = default_calibration().estimate(parts[0] if len(parts) == 1 else Chain(collective, tuple(parts)))
    each = f"{links} link{'s' if links > 1 else ''} between neighbours"
    return f"predicted on {chip.arch_name}, {each}: {_micro(made.seconds)} ({_band(made)})"


def _band(made: WorkloadTime) -> str:
    return f"{_micro(made.low)} to {_micro(made.high)}"


def _micro(seconds: float) -> str:
    return f"{seconds * 1e6:.1f} us"
