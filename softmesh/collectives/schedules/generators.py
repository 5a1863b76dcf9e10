"""`schedule_for`: the table of schedule generators, for each collective on a mesh of any shape."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache

from softmesh.arguments import checked, checked_int
from softmesh.collectives.schedules import grid_generators, line_generators
from softmesh.collectives.schedules.language import Schedule, checked_mesh
from softmesh.collectives.schedules.line_generators import Line, Path, Ring
from softmesh.errors import ArgumentValueError, did_you_mean

Generator = Callable[..., Schedule]

# For each collective: along one line or ring, and on a grid.
GENERATORS: dict[str, tuple[Generator, Generator]] = {
    "all_gather": (line_generators.all_gather, grid_generators.all_gather),
    "reduce_scatter": (line_generators.reduce_scatter, grid_generators.reduce_scatter),
    "all_reduce": (line_generators.all_reduce, grid_generators.all_reduce),
    "all_reduce_direct": (line_generators.all_reduce_direct, grid_generators.all_reduce_direct),
    "broadcast": (line_generators.broadcast, grid_generators.broadcast),
    "reduce_to": (line_generators.reduce_to, grid_generators.reduce_to),
    "all_to_all": (line_generators.all_to_all, grid_generators.all_to_all),
    "point_to_point": (line_generators.point_to_point, grid_generators.point_to_point),
    "barrier": (line_generators.barrier, grid_generators.barrier),
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
    return on_grid(grid_generators.Grid(tuple(paths)), **dict(endpoints))


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
