"""Grid embedding of a machine's chips for drawing: rows and columns from the links between them.

Knows a graph and gives rows and columns. Whole grids are searched for; what is no grid is laid out
piece by piece, each chip beside as many of its neighbours as can be.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence

Place = tuple[int, int]
Near = Mapping[int, Collection[int]]

_MOST_STEPS = 20_000  # of the search, for each shape
_LONGEST_LINE = 16  # longer ones are folded


def grid_places(near: Near) -> dict[int, Place]:
    """A place for every chip of `near`, which names the neighbours of each.

    >>> grid_places({0: [1, 2], 1: [0, 3], 2: [0, 3], 3: [1, 2]})
    {0: (0, 0), 1: (0, 1), 2: (1, 0), 3: (1, 1)}
    """
    chips = sorted(near)
    for rows, columns in _shapes(len(chips)):
        for shape in ((rows, columns), (columns, rows)):
            if _fits(chips, near, shape):
                return row_by_row(chips, shape)
        found = _filled(near, rows, columns)
        if found is not None:
            return row_by_row(found, (rows, columns))
    return _in_pieces(near)


def _shapes(count: int) -> list[tuple[int, int]]:
    """Squarer first, lines last; few chips lie, many stand, as the machines do."""
    pairs = [(low, count // low) for low in range(math.isqrt(count), 0, -1) if count % low == 0]
    return pairs if count <= _LONGEST_LINE else [(a, b) if a == 1 else (b, a) for a, b in pairs]


def row_by_row(chips: Sequence[int], shape: tuple[int, int]) -> dict[int, Place]:
    """Chips in this order as a grid of this shape; a long line goes to and fro."""
    columns = shape[1]
    if shape[0] == 1 and columns > _LONGEST_LINE:
        columns = max(_LONGEST_LINE, 2 * math.isqrt(columns // 2))
        turns = ((divmod(i, columns), chip) for i, chip in enumerate(chips))
        return {chip: (row, columns - 1 - at if row % 2 else at) for (row, at), chip in turns}
    return {chip: divmod(i, columns) for i, chip in enumerate(chips)}


def turned(
    places: Mapping[int, Place], shape: Place, used: Collection[tuple[int, int]], near: Near
) -> dict[int, Place]:
    """The same grid, its rings turned so that few pairs of `used` chips are joined round the rim.

    >>> line = {0: [1, 3], 1: [0, 2], 2: [1, 3], 3: [2, 0]}
    >>> turned({0: (0, 0), 1: (0, 1), 2: (0, 2), 3: (0, 3)}, (1, 4), [(3, 0), (0, 1)], line)
    {0: (0, 1), 1: (0, 2), 2: (0, 3), 3: (0, 0)}
    """
    now = dict(places)
    for axis, extent in enumerate(shape):
        pairs = ((chip, other) for chip in now for other in near[chip] if other in now)
        ends = [pair for pair in pairs if _is_round(now, *pair, axis)]
        if extent < 3 or len(ends) != 2 * len(now) // extent:
            continue  # not every line of this axis is a ring
        inside = [pair for pair in used if set(pair) <= now.keys()]
        turns = [_turned(now, axis, by, extent) for by in range(extent)]
        now = min(turns, key=lambda at: sum(abs(at[a][axis] - at[b][axis]) == extent - 1 for a, b in inside))
    return now


def _is_round(places: Mapping[int, Place], one: int, other: int, axis: int) -> bool:
    a, b = places[one], places[other]
    return a[1 - axis] == b[1 - axis] and abs(a[axis] - b[axis]) > 1


def _turned(places: Mapping[int, Place], axis: int, by: int, extent: int) -> dict[int, Place]:
    if axis == 0:
        return {chip: ((row + by) % extent, column) for chip, (row, column) in places.items()}
    return {chip: (row, (column + by) % extent) for chip, (row, column) in places.items()}


def _fits(chips: Sequence[int], near: Near, shape: tuple[int, int]) -> bool:
    """Whether the chips in the order of their ids are that grid, with no other links than round its rim."""
    rows, columns = shape
    at = {chip: divmod(i, columns) for i, chip in enumerate(chips)}
    for i, chip in enumerate(chips):
        row, column = at[chip]
        if column + 1 < columns and chips[i + 1] not in near[chip]:
            return False
        if row + 1 < rows and chips[i + columns] not in near[chip]:
            return False
        apart = {(abs(row - at[other][0]), abs(column - at[other][1])) for other in near[chip]}
        if apart - {(0, 1), (1, 0), (0, columns - 1), (rows - 1, 0)}:
            return False
    return True


def _filled(near: Near, rows: int, columns: int) -> list[int] | None:
    """Chips row by row such that neighbours in the grid are linked; None where no such order is found soon.

    An order without links across the grid is the one to have; failing that, the first that was met.
    """
    order: list[int] = []
    met: list[int] | None = None
    used: set[int] = set()
    choices = [iter(sorted(near))]
    for _ in range(_MOST_STEPS):
        chip = next((chip for chip in choices[-1] if chip not in used), None)
        if chip is None:
            choices.pop()
            if not choices:
                break
            used.discard(order.pop())
            continue
        order.append(chip)
        used.add(chip)
        if len(order) < rows * columns:
            choices.append(_next_choices(near, order, rows, columns))
        elif _fits(order, near, (rows, columns)):
            return order
        else:
            met = met or list(order)
            used.discard(order.pop())
    return met


def _next_choices(near: Near, order: list[int], rows: int, columns: int) -> Iterator[int]:
    site = len(order)
    row, column = divmod(site, columns)
    wanted = [order[site - step] for step, is_there in ((1, column > 0), (columns, row > 0)) if is_there]
    degree = (row > 0) + (row < rows - 1) + (column > 0) + (column < columns - 1)
    candidates = set.intersection(*(set(near[chip]) for chip in wanted))
    return iter(sorted(chip for chip in candidates if len(near[chip]) >= degree))


def _in_pieces(near: Near) -> dict[int, Place]:
    """Connected parts side by side; each grown chip by chip from its lowest id."""
    found: dict[int, Place] = {}
    first_column = 0
    for chip in sorted(near):
        if chip in found:
            continue
        part = _grown(near, chip)
        top, left = min(row for row, _ in part.values()), min(column for _, column in part.values())
        found |= {one: (row - top, column - left + first_column) for one, (row, column) in part.items()}
        first_column = 1 + max(found[one][1] for one in part)
    return found


def _grown(near: Near, start: int) -> dict[int, Place]:
    found: dict[int, Place] = {start: (0, 0)}
    taken = {(0, 0)}
    waiting = sorted(near[start])
    for chip in waiting:  # grows while it is walked
        if chip in found:
            continue
        friends = {found[other] for other in near[chip] if other in found}
        place = _best_site(friends, taken)
        found[chip] = place
        taken.add(place)
        waiting.extend(sorted(near[chip]))
    return found


def _best_site(friends: set[Place], taken: set[Place]) -> Place:
    """The free site beside the most of these; none free: the nearest."""
    reach = 1
    while True:
        sites = {
            (row + down, column + right)
            for row, column in friends
            for down in range(-reach, reach + 1)
            for right in range(-reach, reach + 1)
            if (down or right) and (reach > 1 or not (down and right))
        } - taken
        if sites:
            return min(sites, key=lambda site: (_distance(site, friends), abs(site[0]) + abs(site[1]), site))
        reach += 1


def _distance(site: Place, friends: set[Place]) -> int:
    return sum(abs(site[0] - row) + abs(site[1] - column) for row, column in friends)
