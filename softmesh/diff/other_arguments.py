"""Arguments by which a call of the program is another than the reference's, and what they make of the same values."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

from softmesh.diff.entries import Entry, Given, Recording
from softmesh.diff.golden_values import golden_of, wholes
from softmesh.diff.tolerances import unit

_FORMS = ("memory_config", "core_grid", "program_config", "compute_kernel_config", "queue_id", "dtype")


def other_arguments(ours: Entry, theirs: Entry, grid: tuple[int, ...]) -> list[str]:
    """Those that differ, as a report tells them; sizes and counts of one device's share do not."""
    mine, yours = ours.arguments, theirs.arguments
    return [
        f"{name}={mine.get(name)!r} where the reference has {yours.get(name)!r}"
        for name in sorted({*mine, *yours})
        if mine.get(name) != yours.get(name) and not _is_share(mine.get(name), yours.get(name), grid)
    ]


def _is_share(ours: object, theirs: object, grid: tuple[int, ...]) -> bool:
    if isinstance(ours, list | tuple) and isinstance(theirs, list | tuple) and len(ours) == len(theirs):
        return all(a == b or _is_share(a, b, grid) for a, b in zip(ours, theirs, strict=True))
    if type(ours) is not int or type(theirs) is not int:
        return False
    return any(ours * n == theirs for n in (*grid, math.prod(grid)) if n > 1) and theirs != 0


def is_another_computation(theirs: Recording, ours: Entry, other: Entry, at: int) -> bool:
    """Whether the program's arguments make something else of what the reference reads, by more than a rounding."""
    if ours.call is None or other.call is None:
        return False
    grid = ours.outputs[at].dist.grid
    plain = [replace(one, arguments=_plain(one)) for one in (ours, other)]
    if not other_arguments(plain[0], plain[1], grid):
        return False
    inputs = wholes(theirs, other)
    call = _called_as(ours, other)
    if inputs is None or call is None:
        return False
    mine, yours = golden_of(replace(other, call=call), inputs), golden_of(other, inputs)
    if mine is None or yours is None or len(mine) <= at or len(yours) <= at or mine[at].shape != yours[at].shape:
        return False
    off, size = float((mine[at].double() - yours[at].double()).norm()), float(yours[at].double().norm())
    return off > max(unit(ours.outputs[at].dtype) / 2, 1e-7) * size


def _called_as(ours: Entry, other: Entry) -> tuple[tuple[Any, ...], dict[str, Any]] | None:
    """The reference's call with the arguments of the program's; one of another form gives those of the same names."""
    assert ours.call is not None
    assert other.call is not None
    if ours.name == other.name:
        return ours.call if len(ours.inputs) == len(other.inputs) else None
    args, named = other.call
    changed = {name: value for name, value in ours.call[1].items() if name in named and not isinstance(value, Given)}
    return args, {**named, **{name: value for name, value in changed.items() if not isinstance(named[name], Given)}}


def _plain(entry: Entry) -> dict[str, object]:
    return {name: value for name, value in entry.arguments.items() if name not in _FORMS}
