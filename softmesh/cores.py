"""Grids of Tensix cores on one chip: where shards and kernels are placed.

Coordinates are (x, y) with x along a row. Values of a tensor never depend on any of this; memory
accounting, sharding and kernels do. As in TT-NN, a pair (x, y) will do wherever a CoreCoord is asked.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable, Sequence
from inspect import signature
from itertools import combinations
from typing import Any, overload

from softmesh.arguments import checked, checked_int, described
from softmesh.errors import ArgumentError, MeshError
from softmesh.input_files.json_texts import checked_json, from_json_text, json_text

JsonObject = dict[str, Any]
_FARTHEST = 1 << 16
_MOST_RANGES = 1 << 10
_MOST_CORES = 1 << 20  # in a list of them


class CoreCoord:
    """The place of one core, written `x-y`."""

    __slots__ = ("_x", "_y")

    @overload
    def __init__(self, arg0: int, arg1: int) -> None: ...
    @overload
    def __init__(self, arg0: CoreCoord | Sequence[int]) -> None: ...
    def __init__(self, arg0: Any, arg1: Any = None) -> None:
        pair = arg0 if arg1 is None else (arg0, arg1)
        try:
            x, y = map(operator.index, (arg0.x, arg0.y) if isinstance(pair, CoreCoord) else pair)
        except (TypeError, ValueError):
            x = y = -1
        if x < 0 or y < 0:
            given = " and ".join(described(arg) for arg in (arg0, arg1) if arg is not None)
            raise ArgumentError(
                "__init__(): incompatible function arguments. Write CoreCoord(x, y) or CoreCoord((x, y)) "
                f"with two integers, 0 or more; got {given or None}"
            )
        self._x, self._y = x, y

    @classmethod
    def of(cls, value: CoreCoord | Sequence[int]) -> CoreCoord:
        """The coordinate itself, or one made of a pair."""
        return value if isinstance(value, CoreCoord) else cls(value)

    @property
    def x(self) -> int:
        return self._x

    @property
    def y(self) -> int:
        return self._y

    def to_json(self) -> str:
        return json_text(self._as_json())

    @classmethod
    def from_json(cls, text: str) -> CoreCoord:
        return from_json_text("CoreCoord.from_json", text, cls._of_json)

    def _as_json(self) -> JsonObject:
        return {"x": self._x, "y": self._y}

    @classmethod
    def _of_json(cls, data: JsonObject) -> CoreCoord:
        x, y = (checked_json(checked_json(data, dict, "a core {x, y}")[name], int, name) for name in ("x", "y"))
        if not (0 <= x <= _FARTHEST and 0 <= y <= _FARTHEST):
            raise ValueError(f"a core lies at 0..{_FARTHEST}, got {x}, {y}")
        return cls(x, y)

    def __repr__(self) -> str:
        return f"{self._x}-{self._y}"

    def __eq__(self, other: object) -> bool:
        if isinstance(other, CoreCoord):
            return self._x == other._x and self._y == other._y
        return other == (self._x, self._y) if isinstance(other, tuple) else NotImplemented

    def __hash__(self) -> int:
        return hash((self._x, self._y))


class CoreRange:
    """A rectangle of cores, both corners included.

    >>> CoreRange((0, 0), (1, 3)).grid_size()
    2-4
    """

    __slots__ = ("_end", "_start")

    def __init__(self, start: CoreCoord, end: CoreCoord) -> None:
        start, end = CoreCoord.of(start), CoreCoord.of(end)
        if start.x > end.x or start.y > end.y:
            raise MeshError(
                f"Invalid core range for start_coord: {start}, end_coord: {end}; "
                "start is the corner with the smaller x and the smaller y"
            )
        self._start, self._end = start, end

    @property
    def start(self) -> CoreCoord:
        return self._start

    @property
    def end(self) -> CoreCoord:
        return self._end

    def grid_size(self) -> CoreCoord:
        """Columns and rows of the rectangle."""
        return CoreCoord(self._end.x - self._start.x + 1, self._end.y - self._start.y + 1)

    def contains(self, other: CoreCoord | CoreRange | CoreRangeSet) -> bool:
        """Whether a core, or all cores of a range or a set, lie in the rectangle."""
        if isinstance(other, CoreRangeSet):
            return all(map(self.contains, other.ranges()))
        if isinstance(other, CoreRange):
            return self.contains(other.start) and self.contains(other.end)
        core = CoreCoord.of(other)
        return self._start.x <= core.x <= self._end.x and self._start.y <= core.y <= self._end.y

    def overlaps(self, other: CoreRange) -> bool:
        """Whether the two rectangles share a core."""
        checked("CoreRange.overlaps", "other", other, CoreRange, "a ttnn.CoreRange")
        return (
            max(self._start.x, other._start.x) <= min(self._end.x, other._end.x)
            and max(self._start.y, other._start.y) <= min(self._end.y, other._end.y)
        )  # fmt: skip

    def cores(self, row_wise: bool = False) -> list[CoreCoord]:
        """Every core, column by column unless `row_wise`."""
        xs = range(self._start.x, self._end.x + 1)
        ys = range(self._start.y, self._end.y + 1)
        if len(xs) * len(ys) > _MOST_CORES:
            raise MeshError(f"{self!r} has {len(xs) * len(ys)} cores, more than all chips of any machine.")
        if row_wise:
            return [CoreCoord(x, y) for y in ys for x in xs]
        return [CoreCoord(x, y) for x in xs for y in ys]

    def to_json(self) -> str:
        return json_text(self._as_json())

    @classmethod
    def from_json(cls, text: str) -> CoreRange:
        return from_json_text("CoreRange.from_json", text, cls._of_json)

    def _as_json(self) -> JsonObject:
        return {"start": self._start._as_json(), "end": self._end._as_json()}

    @classmethod
    def _of_json(cls, data: JsonObject) -> CoreRange:
        ends = checked_json(data, dict, "a range {start, end}")
        return cls(CoreCoord._of_json(ends["start"]), CoreCoord._of_json(ends["end"]))

    def __repr__(self) -> str:
        return f"[{self._start} - {self._end}]"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, CoreRange):
            return NotImplemented
        return self._start == other._start and self._end == other._end

    def __hash__(self) -> int:
        return hash((self._start, self._end))


class CoreRangeSet:
    """Rectangles of cores that share no core, in the order given (sorted, where a set is given)."""

    __slots__ = ("_ranges",)

    def __init__(self, core_ranges: Iterable[CoreRange]) -> None:
        ranges = tuple(core_ranges) if isinstance(core_ranges, Iterable) else (core_ranges,)
        if not isinstance(core_ranges, Iterable) or not all(isinstance(item, CoreRange) for item in ranges):
            raise ArgumentError(
                "__init__(): incompatible function arguments. Write CoreRangeSet([CoreRange(...), ...]); "
                f"got {core_ranges!r}"
            )
        if isinstance(core_ranges, (set, frozenset)):
            ranges = tuple(sorted(ranges, key=_position))
        for one, other in combinations(ranges, 2):
            if one.overlaps(other):
                raise MeshError(
                    "Cannot create CoreRangeSet with specified core ranges because core ranges "
                    f"{one} and {other} overlap! CoreRangeSet.merge joins sets that share cores"
                )
        self._ranges = ranges

    def ranges(self) -> list[CoreRange]:
        return list(self._ranges)

    def size(self) -> int:
        """The number of rectangles."""
        return len(self._ranges)

    def empty(self) -> bool:
        return not self._ranges

    def num_cores(self) -> int:
        sizes = (core_range.grid_size() for core_range in self._ranges)
        return sum(size.x * size.y for size in sizes)

    def bounding_box(self) -> CoreRange:
        """The smallest rectangle around all cores."""
        if not self._ranges:
            raise MeshError("Cannot get bounding_box of an empty CoreRangeSet!")
        starts = [core_range.start for core_range in self._ranges]
        ends = [core_range.end for core_range in self._ranges]
        return CoreRange(
            CoreCoord(min(core.x for core in starts), min(core.y for core in starts)),
            CoreCoord(max(core.x for core in ends), max(core.y for core in ends)),
        )

    def contains(self, other: CoreCoord | CoreRange | CoreRangeSet) -> bool:
        """Whether a core, or all cores of a range or a set, are in this set."""
        if isinstance(other, CoreRangeSet):
            return all(map(self.contains, other._ranges))
        wanted = other.cores() if isinstance(other, CoreRange) else [CoreCoord.of(other)]
        return all(any(core_range.contains(core) for core_range in self._ranges) for core in wanted)

    def merge(self, other: CoreRangeSet) -> CoreRangeSet:
        """The cores of either set, in as few rectangles as stacking equal rows gives."""
        return _covering(_by_row({*corerange_to_cores(self), *corerange_to_cores(other)}), row_wise=True)

    def subtract(self, other: CoreRangeSet) -> CoreRangeSet:
        """The cores of this set that are not in the other: each range in place, cut up where the other reaches in."""
        checked("CoreRangeSet.subtract", "other", other, CoreRangeSet, "a ttnn.CoreRangeSet")
        left = list(self._ranges)
        for cut in other._ranges:
            left = [part for core_range in left for part in _without(core_range, cut)]
        return CoreRangeSet(left)

    def to_json(self) -> str:
        return json_text(self._as_json())

    @classmethod
    def from_json(cls, text: str) -> CoreRangeSet:
        return from_json_text("CoreRangeSet.from_json", text, cls._of_json)

    def _as_json(self) -> list[JsonObject]:
        return [core_range._as_json() for core_range in self._ranges]

    @classmethod
    def _of_json(cls, data: list[JsonObject]) -> CoreRangeSet:
        ranges = checked_json(data, list, "a list of ranges")
        if len(ranges) > _MOST_RANGES:
            raise ValueError(f"{len(ranges)} ranges are more than a chip has cores")
        return cls([CoreRange._of_json(item) for item in ranges])

    def __repr__(self) -> str:
        return f"{{{', '.join(map(repr, self._ranges))}}}"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, CoreRangeSet):
            return NotImplemented
        return self._ranges == other._ranges

    def __hash__(self) -> int:
        return hash(self._ranges)


def _without(one: CoreRange, cut: CoreRange) -> list[CoreRange]:
    """What is left of a rectangle: strips of full height left and right of the cut, then those above and below it."""
    if not one.overlaps(cut):
        return [one]
    (x0, y0), (x1, y1) = (one.start.x, one.start.y), (one.end.x, one.end.y)
    left, right = max(x0, cut.start.x), min(x1, cut.end.x)
    top, bottom = max(y0, cut.start.y), min(y1, cut.end.y)
    strips = [
        (x0, y0, left - 1, y1),
        (right + 1, y0, x1, y1),
        (left, y0, right, top - 1),
        (left, bottom + 1, right, y1),
    ]
    return [CoreRange(CoreCoord(a, b), CoreCoord(c, d)) for a, b, c, d in strips if a <= c and b <= d]


class CoreGrid:
    """A rectangle of cores from the origin: x columns, y rows."""

    __slots__ = ("_x", "_y")

    def __init__(self, *, x: int, y: int) -> None:
        size = CoreCoord(x, y)
        self._x, self._y = size.x, size.y

    @property
    def x(self) -> int:
        return self._x

    @property
    def y(self) -> int:
        return self._y

    @property
    def num_cores(self) -> int:
        return self._x * self._y

    def __repr__(self) -> str:
        return f"ttnn.CoreGrid(x={self._x}, y={self._y})"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, CoreGrid):
            return NotImplemented
        return self._x == other._x and self._y == other._y

    def __hash__(self) -> int:
        return hash((CoreGrid, self._x, self._y))


def corerange_to_cores(
    core_range_set: CoreRangeSet, max_cores: int | None = None, row_wise: bool = False
) -> list[CoreCoord]:
    """The cores of a set, rectangle after rectangle, at most `max_cores` of them."""
    where = "corerange_to_cores"
    ranges = checked(where, "core_range_set", core_range_set, CoreRangeSet, "a ttnn.CoreRangeSet").ranges()
    most = None if max_cores is None else checked_int(where, "max_cores", max_cores)
    return [core for core_range in ranges for core in core_range.cores(bool(row_wise))][:most]


@overload
def grid_to_cores(num_cores: int, grid_size_x: int, grid_size_y: int, row_wise: bool = False) -> list[CoreCoord]: ...
@overload
def grid_to_cores(start: CoreCoord, end: CoreCoord, row_wise: bool = False) -> list[CoreCoord]: ...
def grid_to_cores(*args: Any, **named: Any) -> list[CoreCoord]:
    """The first `num_cores` cores of a grid, or all cores between two corners.

    >>> grid_to_cores(3, 2, 2, row_wise=True)
    [0-0, 1-0, 0-1]
    """
    counted = "num_cores" in named or (bool(args) and isinstance(args[0], int))
    try:
        bound = signature(_first_cores if counted else _cores_between).bind(*args, **named)
    except TypeError as error:
        raise ArgumentError(
            f"grid_to_cores(): incompatible function arguments: {error}. It takes num_cores, grid_size_x, grid_size_y, "
            "or start and end"
        ) from None
    return _first_cores(*bound.args) if counted else _cores_between(*bound.args)


def num_cores_to_corerangeset(target_num_cores: int, grid_size: CoreCoord, row_wise: bool = False) -> CoreRangeSet:
    """The first cores of a grid, as rectangles.

    >>> num_cores_to_corerangeset(10, CoreCoord(8, 8), row_wise=True)
    {[0-0 - 7-0], [0-1 - 1-1]}
    """
    grid_size = CoreCoord.of(grid_size)
    return _covering(_first_cores(target_num_cores, grid_size.x, grid_size.y, row_wise), row_wise)


def num_cores_to_corerangeset_in_subcoregrids(
    start_core: CoreCoord, target_num_cores: int, sub_core_grids: CoreRangeSet, row_wise: bool = False
) -> CoreRangeSet:
    """So many cores of a set, from `start_core` on, as rectangles."""
    start_core, cores = CoreCoord.of(start_core), corerange_to_cores(sub_core_grids, row_wise=row_wise)
    if start_core not in cores:
        raise MeshError(f"Start core {start_core} must be contained within the sub_core_grids {sub_core_grids}")
    following = cores[cores.index(start_core) :]
    _check_enough(target_num_cores, len(following))
    return _covering(following[:target_num_cores], row_wise)


@overload
def split_work_to_cores(
    grid_size: CoreCoord, units_to_divide: int, row_wise: bool = False
) -> tuple[int, CoreRangeSet, CoreRangeSet, CoreRangeSet, int, int]: ...
@overload
def split_work_to_cores(
    *, core_grid: CoreRangeSet, units_to_divide: int, row_wise: bool = False
) -> tuple[int, CoreRangeSet, CoreRangeSet, CoreRangeSet, int, int]: ...
@overload
def split_work_to_cores(
    grid_size: CoreRangeSet, units_to_divide: int, row_wise: bool = False
) -> tuple[int, CoreRangeSet, CoreRangeSet, CoreRangeSet, int, int]: ...
def split_work_to_cores(
    grid_size: CoreCoord | CoreRangeSet | None = None,
    units_to_divide: int = 0,
    row_wise: bool = False,
    *,
    core_grid: CoreRangeSet | None = None,
) -> tuple[int, CoreRangeSet, CoreRangeSet, CoreRangeSet, int, int]:
    """Share units of work out evenly: (cores used, all, group 1, group 2, units per core of each group).

    Group 1 has one unit more per core than group 2, which is empty where the division is exact.
    """
    grid = core_grid if grid_size is None else grid_size
    if grid is None:
        raise ArgumentError("split_work_to_cores(): incompatible function arguments. Give grid_size or core_grid")
    if isinstance(grid, CoreRangeSet):
        available = corerange_to_cores(grid, row_wise=row_wise)
    else:
        size = CoreCoord.of(grid)
        available = _first_cores(size.x * size.y, size.x, size.y, row_wise)
    cores = available[:units_to_divide]
    nothing = CoreRangeSet([])
    if not cores:
        return 0, nothing, nothing, nothing, 0, 0
    units, left_over = divmod(units_to_divide, len(cores))
    everyone = _covering(cores, row_wise)
    if not left_over:
        return len(cores), everyone, everyone, nothing, units, 0
    busier, others = _covering(cores[:left_over], row_wise), _covering(cores[left_over:], row_wise)
    return len(cores), everyone, busier, others, units + 1, units


def _first_cores(num_cores: int, grid_size_x: int, grid_size_y: int, row_wise: bool = False) -> list[CoreCoord]:
    counts = {"num_cores": num_cores, "grid_size_x": grid_size_x, "grid_size_y": grid_size_y}
    num_cores, grid_size_x, grid_size_y = (checked_int("grid_to_cores", *one) for one in counts.items())
    _check_enough(num_cores, grid_size_x * grid_size_y)
    if num_cores <= 0:
        return []
    return _cores_between((0, 0), (grid_size_x - 1, grid_size_y - 1), row_wise)[:num_cores]


def _cores_between(
    start: CoreCoord | tuple[int, int], end: CoreCoord | tuple[int, int], row_wise: bool = False
) -> list[CoreCoord]:
    return CoreRange(CoreCoord.of(start), CoreCoord.of(end)).cores(row_wise)


def _check_enough(wanted: int, available: int) -> None:
    if wanted > available:
        raise MeshError(
            f"Target number of cores {wanted} is greater than total number of available cores {available}; "
            "ask for fewer cores or give a larger grid"
        )


def _covering(cores: Iterable[CoreCoord], row_wise: bool) -> CoreRangeSet:
    """Rectangles over cores that come in row-wise (or column-wise) order; they keep that order.

    Cores that follow one another become a run, and equal runs in neighbouring lines are stacked.
    """
    runs: list[list[int]] = []  # line, first and last place in it
    for core in cores:
        line, place = (core.y, core.x) if row_wise else (core.x, core.y)
        if runs and runs[-1][0] == line and runs[-1][2] == place - 1:
            runs[-1][2] = place
        else:
            runs.append([line, place, place])
    last_lines: dict[tuple[int, int, int], int] = {}  # (first line, first place, last place) of a stack -> last line
    for line, first, last in runs:
        open_stacks = (key for key, end in last_lines.items() if end == line - 1 and key[1:] == (first, last))
        last_lines[next(open_stacks, (line, first, last))] = line
    corners = (((top, first), (bottom, last)) for (top, first, last), bottom in last_lines.items())
    flip = -1 if row_wise else 1
    return CoreRangeSet([CoreRange(CoreCoord(start[::flip]), CoreCoord(end[::flip])) for start, end in corners])


def _by_row(cores: Iterable[CoreCoord]) -> list[CoreCoord]:
    return sorted(cores, key=lambda core: (core.y, core.x))


def _position(core_range: CoreRange) -> tuple[int, int, int, int]:
    return core_range.start.x, core_range.start.y, core_range.end.x, core_range.end.y
