"""Shapes, coordinates and ranges of a device mesh, of any rank: arithmetic only.

Knows extents and positions, row-major order, neighbours, and the line and ring that visit every
position. Knows nothing of devices, links or tensors, so every other module may build on it.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Iterable, Iterator, Sequence
from enum import Enum
from itertools import product
from typing import Any, ClassVar, TypeVar, overload

from softmesh.arguments import checked, checked_int
from softmesh.errors import ArgumentError, MeshError, did_you_mean

Self = TypeVar("Self", bound="_Integers")
MOST_DEVICES = 1 << 20


class BoundaryMode(Enum):
    """What a step over the edge of the mesh means."""

    WRAP = "come back in on the other side"
    CLAMP = "stay at the edge"
    NONE = "there is no such neighbour"


class _Integers:
    """An immutable row of non-negative integers: what a shape and a coordinate have in common."""

    __slots__ = ("_values",)
    _values: tuple[int, ...]
    _scalar_names: ClassVar[tuple[str, ...]]
    _sequence_name: ClassVar[str]

    @classmethod
    def _of(cls: type[Self], values: tuple[int, ...]) -> Self:
        """Wrap values already known to be right, past the checks of the constructor."""
        made = cls.__new__(cls)
        made._values = values
        return made

    @classmethod
    def _parse(cls, args: tuple[Any, ...], named: dict[str, Any]) -> tuple[int, ...]:
        """The integers of either form of the constructor: two or three scalars, or one sequence."""
        if named:
            args = cls._in_order(args, named)
        if not 1 <= len(args) <= 3:
            raise cls._refused(f"got {len(args)} arguments")
        given = args[0] if len(args) == 1 else args
        try:
            values = tuple(map(operator.index, given))
        except TypeError:
            raise cls._refused(f"got {given!r}; for one axis the form is {cls.__name__}([n])") from None
        if min(values, default=0) < 0:
            raise cls._refused(f"got {given!r}, where every number must be 0 or more")
        return values

    @classmethod
    def _in_order(cls, args: tuple[Any, ...], named: dict[str, Any]) -> tuple[Any, ...]:
        """All arguments by position."""
        count = len(args) + len(named)
        names = cls._scalar_names[len(args) : count] if count > 1 else (cls._sequence_name,)
        if named.keys() != set(names):
            known = (*cls._scalar_names, cls._sequence_name)
            hints = (did_you_mean(name, known) for name in named if name not in known)
            raise cls._refused(f"got {len(args)} by position and {', '.join(named)}.{''.join(hints)}")
        return (*args, *(named[name] for name in names))

    @classmethod
    def _refused(cls, cause: str) -> ArgumentError:
        first, second, third = cls._scalar_names
        forms = f"{cls.__name__}({first}, {second}[, {third}]) or {cls.__name__}({cls._sequence_name}=[...])"
        return ArgumentError(f"__init__(): incompatible function arguments. Write {forms}: {cause}")

    def dims(self) -> int:
        """The number of axes."""
        return len(self._values)

    def __iter__(self) -> Iterator[int]:
        return iter(self._values)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({list(self._values)})"

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            name = type(self).__name__
            raise ArgumentError(
                f"__eq__(): incompatible function arguments. A {name} compares only with a {name}, not with "
                f"a {type(other).__name__}; compare tuple(...) of both"
            )
        return self._values == other._values

    # Identity, as in TT-NN; what is usable as a key by value says so itself.
    __hash__ = object.__hash__


class MeshShape(_Integers):
    """How many devices a mesh has along each axis.

    >>> rows, columns = MeshShape(2, 4)
    >>> MeshShape(2, 4).mesh_size()
    8
    """

    __slots__ = ()
    _scalar_names = ("s0", "s1", "s2")
    _sequence_name = "shape"

    @overload
    def __init__(self, s0: int, s1: int) -> None: ...
    @overload
    def __init__(self, s0: int, s1: int, s2: int) -> None: ...
    @overload
    def __init__(self, shape: Iterable[int]) -> None: ...
    def __init__(self, *args: object, **named: object) -> None:
        self._values = self._parse(args, named)
        if not self._values:
            raise MeshError("MeshShape cannot have 0 dimension. Give at least one extent")
        if math.prod(self._values) > MOST_DEVICES:
            raise MeshError(
                f"{self!r} would have {math.prod(self._values)} devices; {MOST_DEVICES} are the most a mesh can have"
            )

    def __getitem__(self, index: int) -> int:
        """The extent of one axis; below rank 4, negative indices see ones before the first axis."""
        rank = len(self._values)
        index = checked_int("MeshShape[]", "index", index)
        lowest = -max(rank, 4)
        if not lowest <= index < rank:
            raise MeshError(f"ShapeBase[] index out of range. {index} not in [{lowest}, {rank})")
        return self._values[index] if index >= -rank else 1

    def mesh_size(self) -> int:
        """The number of devices."""
        return math.prod(self._values)

    def is_line(self) -> bool:
        """Whether at most one axis has more than one device."""
        return sum(extent > 1 for extent in self._values) <= 1

    def strides(self) -> tuple[int, ...]:
        """How far apart, in row-major order, two neighbours along each axis are.

        >>> MeshShape(2, 3, 4).strides()
        (12, 4, 1)
        """
        return tuple(math.prod(self._values[axis + 1 :]) for axis in range(len(self._values)))

    def contains(self, coordinate: MeshCoordinate) -> bool:
        """Whether the coordinate has this rank and lies within every extent."""
        position = checked("contains", "coordinate", coordinate, MeshCoordinate, "a MeshCoordinate")._values
        return len(position) == len(self._values) and all(map(operator.lt, position, self._values))

    def index(self, coordinate: MeshCoordinate) -> int:
        """The row-major place of a coordinate: the inverse of `coordinate`."""
        if not self.contains(coordinate):
            raise MeshError(f"Coordinate {coordinate} is out of bounds for shape {self}")
        place = 0
        for extent, position in zip(self._values, coordinate._values, strict=True):
            place = place * extent + position
        return place

    def coordinate(self, index: int) -> MeshCoordinate:
        """The coordinate at a row-major place: the inverse of `index`."""
        index = checked_int("MeshShape.coordinate", "index", index)
        if not 0 <= index < self.mesh_size():
            raise MeshError(f"Index {index} is out of bounds for {self}, which has {self.mesh_size()} devices")
        reversed_positions = []
        for extent in reversed(self._values):
            index, position = divmod(index, extent)
            reversed_positions.append(position)
        return MeshCoordinate._of(tuple(reversed(reversed_positions)))

    def coordinates(self) -> Iterator[MeshCoordinate]:
        """Every coordinate in row-major order."""
        return map(MeshCoordinate._of, product(*map(range, self._values)))


class MeshCoordinate(_Integers):
    """The position of one device in a mesh; usable as a dict key."""

    __slots__ = ()
    _scalar_names = ("c0", "c1", "c2")
    _sequence_name = "coords"

    @overload
    def __init__(self, c0: int, c1: int) -> None: ...
    @overload
    def __init__(self, c0: int, c1: int, c2: int) -> None: ...
    @overload
    def __init__(self, coords: Iterable[int]) -> None: ...
    def __init__(self, *args: object, **named: object) -> None:
        self._values = self._parse(args, named)

    def __getitem__(self, index: int) -> int:
        rank = len(self._values)
        index = checked_int("MeshCoordinate[]", "index", index)
        if not -rank <= index < rank:
            raise MeshError(f"Index out of bounds: {index} not in [{-rank}, {rank})")
        return self._values[index]

    def __hash__(self) -> int:
        return hash(self._values)

    def neighbor(
        self, shape: MeshShape, dim: int, offset: int, mode: BoundaryMode = BoundaryMode.WRAP
    ) -> MeshCoordinate | None:
        """The coordinate `offset` steps along one axis; None only where `mode` is NONE and it lies outside.

        >>> MeshCoordinate(0, 3).neighbor(MeshShape(2, 4), dim=1, offset=1)
        MeshCoordinate([0, 0])
        """
        checked("neighbor", "shape", shape, MeshShape, "a ttnn.MeshShape")
        if not shape.contains(self):
            raise MeshError(f"Coordinate {self} is out of bounds for shape {shape}")
        position, extent = self[dim] + offset, shape[dim]
        if mode is BoundaryMode.WRAP:
            position %= extent
        elif mode is BoundaryMode.CLAMP:
            position = min(max(position, 0), extent - 1)
        elif not 0 <= position < extent:
            return None
        values = list(self._values)
        values[dim] = position
        return MeshCoordinate._of(tuple(values))


class MeshCoordinateRange:
    """A box of coordinates, both corners included; iterates in row-major order.

    >>> MeshCoordinateRange(MeshShape(2, 2))
    MeshCoordinateRange(start=MeshCoordinate([0, 0]), end=MeshCoordinate([1, 1]))
    """

    __slots__ = ("end", "start")
    start: MeshCoordinate
    end: MeshCoordinate

    @overload
    def __init__(self, start: MeshCoordinate, end: MeshCoordinate) -> None: ...
    @overload
    def __init__(self, *, shape: MeshShape) -> None: ...
    @overload
    def __init__(self, start: MeshShape) -> None: ...
    def __init__(
        self,
        start: MeshCoordinate | MeshShape | None = None,
        end: MeshCoordinate | None = None,
        *,
        shape: MeshShape | None = None,
    ) -> None:
        whole = start if shape is None else shape
        if isinstance(whole, MeshShape) and end is None:
            start, end = _corners(whole)
        if not isinstance(start, MeshCoordinate) or not isinstance(end, MeshCoordinate):
            raise ArgumentError(
                "__init__(): incompatible function arguments. Write MeshCoordinateRange(start, end) with two "
                "MeshCoordinates, or MeshCoordinateRange(shape) with a MeshShape"
            )
        if start.dims() != end.dims():
            raise MeshError(
                "Start and end dimensions of a coordinate range do not match: "
                f"{start.dims()} != {end.dims()}; both corners lie in the same mesh"
            )
        if any(map(operator.gt, start._values, end._values)):
            raise MeshError(
                f"Start coordinate is greater than end coordinate: {start} > {end}; "
                "start is the corner with the smaller position on every axis, and end is included"
            )
        self.start, self.end = start, end

    @classmethod
    def _between(cls, start: Iterable[int], end: Iterable[int]) -> MeshCoordinateRange:
        return cls(MeshCoordinate._of(tuple(start)), MeshCoordinate._of(tuple(end)))

    def dims(self) -> int:
        return self.start.dims()

    def shape(self) -> MeshShape:
        """The extents of the box."""
        return MeshShape(last - first + 1 for first, last in self._bounds())

    def contains(self, other: MeshCoordinate | MeshCoordinateRange) -> bool:
        """Whether a coordinate, or every coordinate of another range, lies in this one."""
        if isinstance(other, MeshCoordinateRange):
            return self.contains(other.start) and self.contains(other.end)
        checked("MeshCoordinateRange.contains", "other", other, MeshCoordinate, "a ttnn.MeshCoordinate or a range")
        return other.dims() == self.dims() and all(
            first <= position <= last for (first, last), position in zip(self._bounds(), other, strict=True)
        )

    def intersection(self, other: MeshCoordinateRange) -> MeshCoordinateRange | None:
        """The box both ranges share, or None."""
        where = "MeshCoordinateRange.intersection"
        checked(where, "other", other, MeshCoordinateRange, "a ttnn.MeshCoordinateRange")
        if self.dims() != other.dims():
            raise MeshError(f"{self} and {other} have ranks {self.dims()} and {other.dims()}: no mesh has both")
        start = tuple(map(max, self.start, other.start))
        end = tuple(map(min, self.end, other.end))
        return None if any(map(operator.gt, start, end)) else self._between(start, end)

    def __iter__(self) -> Iterator[MeshCoordinate]:
        return map(MeshCoordinate._of, product(*(range(first, last + 1) for first, last in self._bounds())))

    def __repr__(self) -> str:
        return f"MeshCoordinateRange(start={self.start}, end={self.end})"

    def _bounds(self) -> Iterator[tuple[int, int]]:
        return zip(self.start._values, self.end._values, strict=True)

    def _without(self, hole: MeshCoordinateRange) -> Iterator[MeshCoordinateRange]:
        """Boxes that cover what is left when `hole`, a part of this range, is cut out."""
        start, end = list(self.start), list(self.end)
        for axis, (first, last) in enumerate(hole._bounds()):
            if start[axis] < first:
                yield self._between(start, [*end[:axis], first - 1, *end[axis + 1 :]])
            if last < end[axis]:
                yield self._between([*start[:axis], last + 1, *start[axis + 1 :]], end)
            start[axis], end[axis] = first, last

    def _fused(self, other: MeshCoordinateRange) -> MeshCoordinateRange | None:
        """The union, where it is a box: one holds the other, or they differ along one axis without a gap."""
        apart = [axis for axis in range(self.dims()) if self._side(axis) != other._side(axis)]
        touching = len(apart) == 1 and all(
            max(self.start[axis], other.start[axis]) <= min(self.end[axis], other.end[axis]) + 1 for axis in apart
        )
        if touching or self.contains(other) or other.contains(self):
            return self._between(map(min, self.start, other.start), map(max, self.end, other.end))
        return None

    def _side(self, axis: int) -> tuple[int, int]:
        return self.start[axis], self.end[axis]


class MeshCoordinateRangeSet:
    """Ranges that share no coordinate, in lexicographic order."""

    __slots__ = ("_ranges",)

    def __init__(self, range: MeshCoordinateRange | None = None) -> None:
        self._ranges: list[MeshCoordinateRange] = []
        if range is not None:
            self.merge(range)

    def merge(self, range: MeshCoordinateRange) -> None:
        """Add a range: fuse it with those it makes a box with, and cut it out of those it overlaps."""
        if not isinstance(range, MeshCoordinateRange):
            raise ArgumentError(
                f"merge(): incompatible function arguments. It takes a MeshCoordinateRange, not {range!r}"
            )
        if self._ranges and self._ranges[0].dims() != range.dims():
            raise MeshError(
                f"A range of rank {range.dims()} cannot join a set of rank {self._ranges[0].dims()}: "
                f"{range} and {self} lie in different meshes"
            )
        waiting: list[MeshCoordinateRange] = self._ranges
        kept: list[MeshCoordinateRange] = []
        while waiting:
            old = waiting.pop()
            fused = range._fused(old)
            if fused is not None:
                # The larger box may now touch ranges that were set aside.
                range, waiting, kept = fused, waiting + kept, []
            elif (shared := range.intersection(old)) is not None:
                waiting.extend(old._without(shared))
            else:
                kept.append(old)
        self._ranges = sorted([*kept, range], key=lambda box: (box.start._values, box.end._values))

    def ranges(self) -> list[MeshCoordinateRange]:
        return list(self._ranges)

    def coords(self) -> list[MeshCoordinate]:
        """Every coordinate once, range after range."""
        return [coordinate for box in self._ranges for coordinate in box]

    def __repr__(self) -> str:
        return f"MeshCoordinateRangeSet([{', '.join(map(repr, self._ranges))}])"


def check_same_size(old: MeshShape, new: MeshShape) -> None:
    if math.prod(old) != math.prod(new):
        raise MeshError(
            f"New shape must have the same number of devices as current shape: {new} has "
            f"{new.mesh_size()}, {old} has {old.mesh_size()}."
        )


def line_order(shape: MeshShape) -> list[MeshCoordinate]:
    """Every coordinate along one path of neighbours: there along a row, back along the next.

    >>> line_order(MeshShape(2, 2))
    [MeshCoordinate([0, 0]), MeshCoordinate([0, 1]), MeshCoordinate([1, 1]), MeshCoordinate([1, 0])]
    """
    checked("line_order", "shape", shape, MeshShape, "a ttnn.MeshShape")
    path: list[tuple[int, ...]] = [()]
    for extent in reversed(tuple(shape)):
        path = [(i, *rest) for i in range(extent) for rest in (path if i % 2 == 0 else reversed(path))]
    return list(map(MeshCoordinate._of, path))


def ring_order(shape: MeshShape) -> list[MeshCoordinate]:
    """Every coordinate of a 2-D mesh along a closed ring of neighbours, clockwise from the origin.

    A 2 x N mesh gives its perimeter: out along row 0 and back along row 1.
    """
    checked("ring_order", "shape", shape, MeshShape, "a ttnn.MeshShape")
    if shape.dims() != 2:
        raise MeshError(
            f"{shape} has no ring order: it is defined for 2-D meshes, and this one has {shape.dims()} axes"
        )
    rows, columns = shape
    if shape.mesh_size() != 2 and min(rows, columns) < 2:
        raise MeshError(f"{shape} has no ring of neighbours: the ends of a line do not touch; use line_order")
    if rows % 2 and columns % 2:
        raise MeshError(
            f"{shape} has no ring of neighbours: each hop changes the parity of row + column, so a closed "
            f"ring has an even number of devices, and this mesh has {rows * columns}; "
            "leave out a row or a column"
        )
    if rows % 2 == 0:
        ring = _ring_with_return_lane(rows, columns)
    else:
        transposed = [(row, column) for column, row in _ring_with_return_lane(columns, rows)]
        ring = transposed[:1] + transposed[:0:-1]
    return list(map(MeshCoordinate._of, ring))


def _ring_with_return_lane(rows: int, columns: int) -> Sequence[tuple[int, ...]]:
    """Snake down through an even number of rows, and come home up column 0."""
    snake = [
        (row, column)
        for row in range(rows)
        for column in (range(1, columns) if row % 2 == 0 else range(columns - 1, 0, -1))
    ]
    return [(0, 0), *snake, *((row, 0) for row in range(rows - 1, 0, -1))]


def _corners(shape: MeshShape) -> tuple[MeshCoordinate, MeshCoordinate]:
    if not shape.mesh_size():
        raise MeshError(f"{shape} has no devices, so no range of coordinates covers it")
    return MeshCoordinate._of((0,) * shape.dims()), MeshCoordinate._of(tuple(extent - 1 for extent in shape))
