"""Measurements that contradict themselves: what their source measured twice, with times further apart than a bound.

A source that lists its runs in a row and slips once has wrong labels on all that it measured of a shape, even where
two runs agree. So what contradicts itself takes all rows of its shape with it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from softmesh.cost.measurements import Measurement
from softmesh.cost.workloads import TILE_BYTES, Elements, TypicalOp

BOUND = 0.2  # by which two times of one configuration may differ
OWN_RUNS = "its own runs differ"
OTHER_ROW = "another row of the same work differs"
SAME_SHAPE = "another row of its shape contradicts itself"


def contradicted(rows: Iterable[Measurement]) -> dict[Measurement, str]:
    """Rows that no law can meet within the bound, and why."""
    there = [row for row in rows if row.workload is not None and not row.is_ceiling]
    found = {row: OWN_RUNS for row in there if any(map(_differ, _repeats(row)))}
    for same in _of_same_work(there):
        if _differ([row.seconds for row in same]):
            found |= {row: OTHER_ROW for row in same if row not in found}
    slipped = {_shape(row) for row in found if isinstance(row.workload, Elements)}
    return found | {row: SAME_SHAPE for row in there if _shape(row) in slipped and row not in found}


def _differ(seconds: Sequence[float]) -> bool:
    return max(seconds) > (1 + BOUND) * min(seconds)


def _repeats(row: Measurement) -> Iterator[Sequence[float]]:
    """Runs of one and the same configuration: with the result in one memory, then with it in the other.

    Of an odd number nobody knows which is of which kind, so all are held against each other.
    """
    runs = row.runs
    if isinstance(row.workload, Elements) and 0 < row.workload.moves < 1 and runs and len(runs) % 2 == 0:
        yield from (runs[: len(runs) // 2], runs[len(runs) // 2 :])
    elif runs:
        yield runs


def _shape(row: Measurement) -> tuple[str, str, str]:
    return row.table, row.op, row.shapes


def _of_same_work(rows: Iterable[Measurement]) -> Iterable[list[Measurement]]:
    """Rows of one table that ask the same of a chip; not those of which only the op's name is known.

    The vector unit works on all dtypes alike, so for it those whose tiles are equally large are one.
    """
    groups: dict[object, list[Measurement]] = {}
    for row in rows:
        work = row.workload
        if isinstance(work, Elements):
            work = work._replace(dtype=str(TILE_BYTES[work.dtype]))
        if not isinstance(work, TypicalOp):
            groups.setdefault((row.table, work), []).append(row)
    return groups.values()
