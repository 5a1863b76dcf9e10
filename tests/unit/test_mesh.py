"""Section 1 of the reference: shapes, coordinates, ranges; and the laws of the arithmetic on them."""

from __future__ import annotations

import itertools
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from softmesh.errors import ArgumentError, MeshError
from softmesh.mesh import (
    BoundaryMode,
    MeshCoordinate,
    MeshCoordinateRange,
    MeshCoordinateRangeSet,
    MeshShape,
    line_order,
    ring_order,
)

shapes = st.lists(st.integers(1, 5), min_size=1, max_size=4).map(MeshShape)


@st.composite
def ranges(draw, rank=2, extent=5):
    bounds = [sorted(draw(st.tuples(st.integers(0, extent), st.integers(0, extent)))) for _ in range(rank)]
    return box([low for low, _ in bounds], [high for _, high in bounds])


def box(start, end):
    return MeshCoordinateRange(MeshCoordinate(start), MeshCoordinate(end))


def distance(a, b):
    return sum(abs(x - y) for x, y in zip(a, b, strict=True))


# MeshShape


@pytest.mark.parametrize(
    "shape",
    [
        MeshShape(2, 4),
        MeshShape(s0=2, s1=4),
        MeshShape(2, s1=4),
        MeshShape([2, 4]),
        MeshShape((2, 4)),
        MeshShape(shape=[2, 4]),
        MeshShape(MeshShape(2, 4)),
        MeshShape(*MeshShape(2, 4)),
    ],
)
def test_every_form_of_the_constructor_makes_the_same_shape(shape):
    assert shape == MeshShape(2, 4)
    assert repr(shape) == str(shape) == "MeshShape([2, 4])"


def test_a_shape_has_any_rank():
    assert repr(MeshShape(1, 2, 3)) == "MeshShape([1, 2, 3])"
    assert MeshShape([8]).dims() == 1
    assert MeshShape([2, 3, 4, 5, 6]).mesh_size() == 720


@pytest.mark.parametrize(
    "arguments", [(8,), (-1, 2), (2.0, 4), ([2, -4],), ([2.5],), (1, 2, 3, 4), (), ("24",), (None,)]
)
def test_what_is_no_shape_is_a_type_error(arguments):
    with pytest.raises(TypeError, match="incompatible function arguments"):
        MeshShape(*arguments)


def test_a_lone_integer_is_told_how_to_write_one_axis():
    with pytest.raises(ArgumentError, match=r"MeshShape\(\[n\]\)"):
        MeshShape(8)


def test_a_misspelt_keyword_is_told_the_right_one():
    with pytest.raises(ArgumentError, match="Did you mean 'shape'"):
        MeshShape(shap=[2, 4])
    with pytest.raises(ArgumentError):
        MeshShape(2, s0=4)


def test_a_shape_without_axes_cannot_be():
    with pytest.raises(RuntimeError, match=r"MeshShape cannot have 0 dimension\."):
        MeshShape([])


def test_zero_extents_are_shapes_without_devices():
    assert MeshShape(0, 4).mesh_size() == 0
    assert list(MeshShape(0, 4).coordinates()) == []


def test_a_shape_unpacks_and_lists():
    rows, columns = MeshShape(2, 4)
    assert (rows, columns) == (2, 4)
    assert list(MeshShape(2, 4)) == [2, 4]
    assert tuple(MeshShape(2, 4)) == (2, 4)


def test_negative_indices_see_ones_before_the_first_axis_up_to_rank_four():
    shape = MeshShape(2, 4)
    assert [shape[i] for i in range(-4, 2)] == [1, 1, 2, 4, 2, 4]
    assert MeshShape([2, 3, 4, 5, 6])[-5] == 2


@pytest.mark.parametrize("index", [2, -5])
def test_an_index_beyond_that_is_out_of_range(index):
    with pytest.raises(RuntimeError, match=rf"ShapeBase\[\] index out of range\. {index} not in \[-4, 2\)"):
        MeshShape(2, 4)[index]


def test_a_shape_has_no_len_and_no_item_assignment():
    shape = MeshShape(2, 4)
    with pytest.raises(TypeError):
        len(shape)
    with pytest.raises(TypeError):
        shape[0] = 3
    assert not hasattr(shape, "num_rows")


def test_a_shape_compares_only_with_a_shape():
    assert MeshShape(2, 4) == MeshShape([2, 4])
    assert MeshShape(2, 4) != MeshShape(4, 2)
    assert MeshShape([2]) != MeshShape(2, 1)
    for other in ((2, 4), [2, 4], None, MeshCoordinate(2, 4)):
        with pytest.raises(TypeError):
            MeshShape(2, 4) == other  # noqa: B015
        with pytest.raises(TypeError):
            MeshShape(2, 4) != other  # noqa: B015


def test_a_shape_is_no_key_by_value():
    one, other = MeshShape(2, 4), MeshShape(2, 4)
    assert len({one: 0, other: 1}) == 2


def test_a_line_has_at_most_one_axis_with_several_devices():
    assert MeshShape(1, 8).is_line()
    assert MeshShape(8, 1).is_line()
    assert MeshShape(1, 1).is_line()
    assert not MeshShape(2, 2).is_line()


@given(shapes)
def test_coordinate_and_index_are_inverses_in_row_major_order(shape):
    places = [shape.index(coordinate) for coordinate in shape.coordinates()]
    assert places == list(range(shape.mesh_size()))
    assert [shape.coordinate(i) for i in places] == list(shape.coordinates())


@given(shapes)
def test_an_index_is_the_coordinate_weighted_by_the_strides(shape):
    for coordinate in shape.coordinates():
        assert shape.index(coordinate) == sum(map(math.prod, zip(coordinate, shape.strides(), strict=True)))


def test_a_coordinate_outside_has_no_index():
    shape = MeshShape(1, 1)
    assert not shape.contains(MeshCoordinate(0, 1))
    assert not shape.contains(MeshCoordinate([0]))
    with pytest.raises(MeshError, match=r"Coordinate MeshCoordinate\(\[0, 1\]\) is out of bounds for shape MeshSh"):
        shape.index(MeshCoordinate(0, 1))


@pytest.mark.parametrize("index", [-1, 8])
def test_an_index_outside_has_no_coordinate(index):
    with pytest.raises(MeshError, match=rf"Index {index} is out of bounds for MeshShape\(\[2, 4\]\)"):
        MeshShape(2, 4).coordinate(index)


# MeshCoordinate


def test_a_coordinate_is_built_printed_and_indexed_like_a_shape():
    coordinate = MeshCoordinate(0, 1)
    assert coordinate == MeshCoordinate([0, 1]) == MeshCoordinate(c0=0, c1=1) == MeshCoordinate(coords=(0, 1))
    assert repr(coordinate) == "MeshCoordinate([0, 1])"
    assert (coordinate[0], coordinate[-1], coordinate.dims(), list(coordinate)) == (0, 1, 2, [0, 1])
    assert MeshCoordinate(1, 2, 3)[-3] == 1


@pytest.mark.parametrize("index", [2, -3])
def test_a_coordinate_has_no_ones_before_it(index):
    with pytest.raises(RuntimeError, match=rf"Index out of bounds: {index} not in \[-2, 2\)"):
        MeshCoordinate(0, 1)[index]


def test_a_coordinate_is_a_key_by_value():
    assert {MeshCoordinate(0, 1): "x"}[MeshCoordinate([0, 1])] == "x"


def test_a_coordinate_compares_only_with_a_coordinate():
    for other in ((0, 1), None, MeshShape(1, 1)):
        with pytest.raises(TypeError):
            MeshCoordinate(0, 1) == other  # noqa: B015


def test_a_coordinate_has_no_order_and_no_len():
    with pytest.raises(TypeError):
        MeshCoordinate(0, 1) < MeshCoordinate(1, 0)  # noqa: B015
    with pytest.raises(TypeError):
        len(MeshCoordinate(0, 1))


def test_the_boundary_mode_says_what_a_step_over_the_edge_means():
    corner, shape = MeshCoordinate(0, 3), MeshShape(2, 4)
    assert corner.neighbor(shape, 1, 1) == MeshCoordinate(0, 0)
    assert corner.neighbor(shape, 1, 6, BoundaryMode.WRAP) == MeshCoordinate(0, 1)
    assert corner.neighbor(shape, 1, 1, BoundaryMode.CLAMP) == corner
    assert corner.neighbor(shape, 0, -9, BoundaryMode.CLAMP) == corner
    assert corner.neighbor(shape, 1, 1, BoundaryMode.NONE) is None
    assert corner.neighbor(shape, -1, -1, BoundaryMode.NONE) == MeshCoordinate(0, 2)


def test_only_a_coordinate_of_the_mesh_has_neighbours_along_axes_it_has():
    with pytest.raises(MeshError, match="out of bounds for shape"):
        MeshCoordinate(2, 0).neighbor(MeshShape(2, 4), 0, 1)
    with pytest.raises(MeshError, match="Index out of bounds: 2"):
        MeshCoordinate(1, 0).neighbor(MeshShape(2, 4), 2, 1)


@given(shapes, st.data())
def test_a_neighbour_is_one_step_away_and_the_step_back_returns(shape, data):
    coordinate = shape.coordinate(data.draw(st.integers(0, shape.mesh_size() - 1)))
    dim = data.draw(st.integers(0, shape.dims() - 1))
    wrapped = coordinate.neighbor(shape, dim, 1)
    assert wrapped.neighbor(shape, dim, -1) == coordinate
    inside = coordinate.neighbor(shape, dim, 1, BoundaryMode.NONE)
    assert inside is None or (distance(coordinate, inside) == 1 and inside == wrapped)


# line_order, ring_order


@given(shapes)
def test_a_line_visits_every_device_once_by_neighbouring_hops(shape):
    line = line_order(shape)
    assert set(line) == set(shape.coordinates())
    assert len(line) == shape.mesh_size()
    assert all(distance(a, b) == 1 for a, b in itertools.pairwise(line))


@given(st.integers(2, 7), st.integers(2, 7))
def test_a_ring_visits_every_device_once_and_closes(rows, columns):
    shape = MeshShape(rows, columns)
    if rows % 2 and columns % 2:
        with pytest.raises(MeshError, match="even number of devices"):
            ring_order(shape)
        return
    ring = ring_order(shape)
    assert ring[:2] == [MeshCoordinate(0, 0), MeshCoordinate(0, 1)]
    assert set(ring) == set(shape.coordinates())
    assert len(ring) == shape.mesh_size()
    assert all(distance(a, b) == 1 for a, b in zip(ring, ring[1:] + ring[:1], strict=True))


@pytest.mark.parametrize(
    ("shape", "indices"),
    [
        (MeshShape(2, 4), [0, 1, 2, 3, 7, 6, 5, 4]),
        (MeshShape(4, 2), [0, 1, 3, 5, 7, 6, 4, 2]),
        (MeshShape(3, 2), [0, 1, 3, 5, 4, 2]),
        (MeshShape(1, 2), [0, 1]),
    ],
)
def test_a_ring_around_two_rows_or_columns_is_the_perimeter_clockwise(shape, indices):
    assert list(map(shape.index, ring_order(shape))) == indices


@pytest.mark.parametrize(
    ("shape", "reason"),
    [
        (MeshShape(1, 4), "the ends of a line do not touch"),
        (MeshShape(1, 1), "the ends of a line do not touch"),
        (MeshShape(3, 3), "even number of devices"),
        (MeshShape(2, 2, 2), "defined for 2-D meshes"),
        (MeshShape([4]), "defined for 2-D meshes"),
    ],
)
def test_a_mesh_without_a_ring_says_why(shape, reason):
    with pytest.raises(MeshError, match=reason):
        ring_order(shape)


# MeshCoordinateRange


def test_a_range_includes_both_corners_and_iterates_row_major():
    assert [tuple(c) for c in box([0, 1], [1, 2])] == [(0, 1), (0, 2), (1, 1), (1, 2)]


def test_a_range_of_a_shape_is_the_whole_mesh():
    whole = MeshCoordinateRange(MeshShape(2, 2))
    assert (
        repr(whole) == "MeshCoordinateRange(start=MeshCoordinate([0, 0]), end=MeshCoordinate([1, 1]))"
    )  # fmt: skip
    assert list(whole) == list(MeshShape(2, 2).coordinates())
    assert repr(MeshCoordinateRange(shape=MeshShape(2, 2))) == repr(whole)


def test_iterating_a_range_gives_fresh_objects():
    coordinates = list(MeshCoordinateRange(MeshShape(2, 2)))
    assert len({id(coordinate) for coordinate in coordinates}) == 4


@pytest.mark.parametrize("end", [(0, 1), (1, 0)])
def test_a_range_cannot_start_behind_its_end_on_any_axis(end):
    with pytest.raises(RuntimeError, match="Start coordinate is greater than end coordinate: MeshCoordinate"):
        box([1, 1], end)


def test_the_corners_of_a_range_have_one_rank():
    message = "Start and end dimensions of a coordinate range do not match: 2 != 1"
    with pytest.raises(RuntimeError, match=message):
        box([0, 0], [1])


@pytest.mark.parametrize("arguments", [(), (MeshCoordinate(0, 0),), ((0, 0), (1, 1)), ((2, 2),)])
def test_what_is_no_range_is_a_type_error(arguments):
    with pytest.raises(TypeError, match="incompatible function arguments"):
        MeshCoordinateRange(*arguments)


def test_a_shape_without_devices_has_no_range():
    with pytest.raises(MeshError, match="has no devices"):
        MeshCoordinateRange(MeshShape(0, 4))


def test_ranges_have_no_value_equality():
    assert box([0, 0], [1, 1]) != box([0, 0], [1, 1])


def test_a_range_knows_its_shape_and_what_it_contains():
    inner = box([1, 1], [2, 3])
    assert inner.shape() == MeshShape(2, 3)
    assert inner.contains(MeshCoordinate(2, 3))
    assert not inner.contains(MeshCoordinate(0, 1))
    assert not inner.contains(MeshCoordinate([1]))
    assert box([0, 0], [3, 3]).contains(inner)
    assert not inner.contains(box([0, 0], [3, 3]))


@given(ranges(), ranges())
def test_an_intersection_is_what_both_ranges_contain(a, b):
    shared = a.intersection(b)
    assert set(shared or ()) == set(a) & set(b)


def test_ranges_of_different_rank_do_not_meet():
    with pytest.raises(MeshError, match="ranks 2 and 1"):
        box([0, 0], [1, 1]).intersection(box([0], [1]))


# MeshCoordinateRangeSet


def test_a_set_prints_its_ranges():
    row = box([0, 0], [0, 1])
    assert repr(MeshCoordinateRangeSet()) == "MeshCoordinateRangeSet([])"
    assert repr(MeshCoordinateRangeSet(row)) == f"MeshCoordinateRangeSet([{row!r}])"
    both = MeshCoordinateRangeSet(row)
    both.merge(box([3, 3], [3, 3]))
    assert repr(both) == f"MeshCoordinateRangeSet([{row!r}, {box([3, 3], [3, 3])!r}])"


def test_two_rows_that_make_a_rectangle_fuse():
    rows = MeshCoordinateRangeSet(box([0, 0], [0, 1]))
    assert rows.merge(box([1, 0], [1, 1])) is None
    assert repr(rows.ranges()) == repr([box([0, 0], [1, 1])])


def test_fusing_goes_on_while_the_result_makes_a_rectangle_with_another():
    quarters = MeshCoordinateRangeSet(box([0, 0], [0, 0]))
    for place in ([1, 1], [0, 1], [1, 0]):
        quarters.merge(box(place, place))
    assert repr(quarters.ranges()) == repr([box([0, 0], [1, 1])])


def test_disjoint_ranges_stay_apart_in_lexicographic_order():
    apart = MeshCoordinateRangeSet(box([2, 2], [2, 2]))
    apart.merge(box([0, 0], [0, 0]))
    assert repr(apart.ranges()) == repr([box([0, 0], [0, 0]), box([2, 2], [2, 2])])


def test_an_overlapping_merge_keeps_the_new_range_and_splits_the_old_around_it():
    split = MeshCoordinateRangeSet(box([0, 0], [1, 1]))
    split.merge(box([1, 1], [2, 2]))
    assert repr(split.ranges()) == repr([box([0, 0], [0, 1]), box([1, 0], [1, 0]), box([1, 1], [2, 2])])


@given(st.integers(1, 3).flatmap(lambda rank: st.lists(ranges(rank, 3), max_size=8)))
def test_a_set_covers_exactly_the_union_without_overlap(merged):
    ranges_so_far = MeshCoordinateRangeSet()
    for one in merged:
        ranges_so_far.merge(one)
    coordinates = ranges_so_far.coords()
    assert len(coordinates) == len(set(coordinates))
    assert set(coordinates) == {coordinate for one in merged for coordinate in one}
    starts = [tuple(one.start) for one in ranges_so_far.ranges()]
    assert starts == sorted(starts)


def test_a_set_takes_ranges_of_one_rank():
    with pytest.raises(MeshError, match="rank 1 cannot join a set of rank 2"):
        MeshCoordinateRangeSet(box([0, 0], [1, 1])).merge(box([0], [1]))
    with pytest.raises(TypeError, match="incompatible function arguments"):
        MeshCoordinateRangeSet().merge(MeshShape(2, 2))
