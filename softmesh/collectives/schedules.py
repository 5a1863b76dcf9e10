"""The table of collectives: the schedule of each, on a mesh of any shape."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache

from softmesh.arguments import checked, checked_int
from softmesh.collectives import flows, grids
from softmesh.collectives.flows import Path
from softmesh.collectives.lines import Line
from softmesh.collectives.rings import Ring
from softmesh.collectives.schedule import Schedule, checked_mesh
from softmesh.errors import ArgumentValueError, did_you_mean

Generator = Callable[..., Schedule]

# For each collective: along one line or ring, and on a grid.
GENERATORS: dict[str, tuple[Generator, Generator]] = {
    "all_gather": (flows.all_gather, grids.all_gather),
    "reduce_scatter": (flows.reduce_scatter, grids.reduce_scatter),
    "all_reduce": (flows.all_reduce, grids.all_reduce),
    "all_reduce_direct": (flows.all_reduce_direct, grids.all_reduce_direct),
    "broadcast": (flows.broadcast, grids.broadcast),
    "reduce_to": (flows.reduce_to, grids.reduce_to),
    "all_to_all": (flows.all_to_all, grids.all_to_all),
    "point_to_point": (flows.point_to_point, grids.point_to_point),
    "barrier": (flows.barrier, grids.barrier),
}
ENDPOINTS = {"broadcast": ("root",), "reduce_to": ("root",), "point_to_point": ("src", "dst")}


def schedule_for(
    name: str,
    shape: Sequence[int],
    wraps: bool | Sequence[bool] = False,
    num_links: int = 1,
    *,
    directions: int = 2,
    **endpoints: int,
) -> Schedule:
    """The schedule of a collective over all devices of a mesh, numbered row by row.

    `wraps` says of each axis, or of all, whether its ends are joined. Rings use both directions unless
    `directions` is 1. `root`, or `src` and `dst`, are device numbers for the collectives that have them.

    >>> len(schedule_for("all_gather", (8,), wraps=True).steps)
    4
    >>> len(schedule_for("broadcast", (2, 4), root=5).steps)
    3
    """
    _check_name(checked("schedule_for", "name", name, str, "a string such as 'all_gather'"))
    extents, closed = checked_mesh("schedule_for", shape, wraps)
    num_links = checked_int("schedule_for", "num_links", num_links)
    directions = checked_int("schedule_for", "directions", directions)
    if directions not in (1, 2):
        raise ArgumentValueError(f"a ring has directions=1 or directions=2, got {directions}")
    _check_endpoints(name, endpoints)
    numbers = {which: checked_int("schedule_for", which, device) for which, device in endpoints.items()}
    return _generated(name, extents, closed, num_links, directions, tuple(sorted(numbers.items())))


@lru_cache(maxsize=64)
def _generated(
    name: str,
    shape: tuple[int, ...],
    wraps: tuple[bool, ...],
    num_links: int,
    directions: int,
    endpoints: tuple[tuple[str, int], ...],
) -> Schedule:
    paths: list[Path] = [
        Ring(extent, num_links, directions) if wrap else Line(extent, num_links)
        for extent, wrap in zip(shape, wraps, strict=True)
    ]
    along_path, on_grid = GENERATORS[name]
    if len(paths) == 1:
        return along_path(paths[0], **dict(endpoints))
    return on_grid(grids.Grid(tuple(paths)), **dict(endpoints))


def _check_name(name: str) -> None:
    if name not in GENERATORS:
        raise ArgumentValueError(
            f"there is no schedule for {name!r}.{did_you_mean(name, GENERATORS)} There are {', '.join(GENERATORS)}."
        )


def _check_endpoints(name: str, endpoints: dict[str, int]) -> None:
    wanted = ENDPOINTS.get(name, ())
    if set(endpoints) != set(wanted):
        needs = " and ".join(wanted) or "no device numbers"
        raise ArgumentValueError(f"{name} takes {needs}, got {', '.join(sorted(endpoints)) or 'none'}")
