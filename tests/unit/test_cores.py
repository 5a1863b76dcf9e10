"""Core grids: section 5 of the reference, and the helpers that deal work out to cores."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from softmesh.cores import (
    CoreCoord,
    CoreGrid,
    CoreRange,
    CoreRangeSet,
    corerange_to_cores,
    grid_to_cores,
    num_cores_to_corerangeset,
    num_cores_to_corerangeset_in_subcoregrids,
    split_work_to_cores,
)
from softmesh.errors import MeshError

places = st.integers(0, 4)


@st.composite
def core_ranges(draw):
    (x0, x1), (y0, y1) = sorted(draw(st.tuples(places, places))), sorted(draw(st.tuples(places, places)))
    return CoreRange(CoreCoord(x0, y0), CoreCoord(x1, y1))


def set_of(*corners):
    return CoreRangeSet([CoreRange(start, end) for start, end in corners])


# CoreCoord, CoreRange, CoreGrid


def test_a_core_is_written_x_dash_y():
    assert repr(CoreCoord(2, 3)) == str(CoreCoord((2, 3))) == "2-3"
    assert (CoreCoord(2, 3).x, CoreCoord(2, 3).y) == (2, 3)


def test_a_core_compares_and_hashes_by_value():
    assert CoreCoord(2, 3) == CoreCoord([2, 3]) == CoreCoord(CoreCoord(2, 3))
    assert CoreCoord(2, 3) != CoreCoord(3, 2)
    assert len({CoreCoord(2, 3), CoreCoord((2, 3))}) == 1


def test_a_pair_stands_for_a_core():
    assert CoreCoord(2, 3) == (2, 3)
    assert {CoreCoord(2, 3): 1}[(2, 3)] == 1
    assert CoreRange((0, 0), (1, 3)) == CoreRange(CoreCoord(0, 0), CoreCoord(1, 3))


@pytest.mark.parametrize("arguments", [(1,), (-1, 0), (1.5, 0), ((1, 2, 3),), ("12",), (None,)])
def test_what_is_no_core_is_a_type_error(arguments):
    with pytest.raises(TypeError, match="incompatible function arguments"):
        CoreCoord(*arguments)


def test_cores_are_read_only():
    with pytest.raises(AttributeError):
        CoreCoord(1, 2).x = 3
    with pytest.raises(AttributeError):
        CoreRange((0, 0), (1, 1)).start = CoreCoord(1, 1)


def test_a_range_includes_both_corners():
    one = CoreRange(CoreCoord(0, 0), CoreCoord(1, 3))
    assert repr(one) == "[0-0 - 1-3]"
    assert one.grid_size() == CoreCoord(2, 4)
    assert (one.start, one.end) == (CoreCoord(0, 0), CoreCoord(1, 3))
    assert one.contains(CoreCoord(1, 3))
    assert not one.contains(CoreCoord(2, 0))
    assert one.contains(CoreRange((0, 1), (1, 2)))
    assert not one.contains(CoreRange((0, 1), (2, 2)))
    assert one.contains(set_of(((0, 0), (0, 0)), ((1, 3), (1, 3))))


def test_a_range_cannot_start_behind_its_end():
    with pytest.raises(RuntimeError, match="Invalid core range for start_coord: 2-0, end_coord: 1-3"):
        CoreRange(CoreCoord(2, 0), CoreCoord(1, 3))


def test_a_core_grid_takes_keywords_only():
    grid = CoreGrid(x=3, y=2)
    assert repr(grid) == "ttnn.CoreGrid(x=3, y=2)"
    assert (grid.x, grid.y, grid.num_cores) == (3, 2, 6)
    assert grid == CoreGrid(y=2, x=3)
    assert grid != CoreGrid(x=2, y=3)
    assert len({grid, CoreGrid(x=3, y=2)}) == 1
    with pytest.raises(TypeError):
        CoreGrid(3, 2)


# CoreRangeSet


def test_a_set_is_made_of_a_list_or_a_set():
    one, other = CoreRange((0, 0), (1, 3)), CoreRange((4, 0), (5, 0))
    assert repr(CoreRangeSet({one})) == "{[0-0 - 1-3]}"
    assert repr(CoreRangeSet([other, one])) == "{[4-0 - 5-0], [0-0 - 1-3]}"
    assert repr(CoreRangeSet({other, one})) == "{[0-0 - 1-3], [4-0 - 5-0]}"
    assert CoreRangeSet([other, one]) != CoreRangeSet([one, other])
    assert CoreRangeSet({other, one}) == CoreRangeSet([one, other])
    assert hash(CoreRangeSet({other, one})) == hash(CoreRangeSet([one, other]))
    assert CoreRangeSet([one]) != CoreRangeSet([other])


@pytest.mark.parametrize("argument", [CoreRange((0, 0), (1, 1)), [CoreCoord(0, 0)], 3])
def test_what_is_no_collection_of_ranges_is_a_type_error(argument):
    with pytest.raises(TypeError, match="incompatible function arguments"):
        CoreRangeSet(argument)


def test_ranges_of_a_set_must_not_overlap():
    message = (
        "Cannot create CoreRangeSet with specified core ranges because core ranges "
        r"\[0-0 - 1-3\] and \[1-3 - 2-4\] overlap!"
    )
    with pytest.raises(RuntimeError, match=message):
        set_of(((0, 0), (1, 3)), ((1, 3), (2, 4)))


def test_a_set_answers_for_all_its_ranges():
    cores = set_of(((0, 0), (1, 3)), ((4, 1), (5, 1)))
    assert (cores.num_cores(), cores.size(), cores.empty()) == (10, 2, False)
    assert cores.ranges() == [CoreRange((0, 0), (1, 3)), CoreRange((4, 1), (5, 1))]
    assert cores.bounding_box() == CoreRange((0, 0), (5, 3))
    assert cores.contains(CoreCoord(5, 1))
    assert not cores.contains(CoreCoord(3, 1))
    assert cores.contains(CoreRange((0, 2), (1, 3)))
    assert not cores.contains(CoreRange((1, 1), (4, 1)))
    assert cores.contains(set_of(((0, 0), (0, 0)), ((4, 1), (4, 1))))


def test_a_range_across_two_ranges_of_a_set_is_contained():
    assert set_of(((0, 0), (0, 3)), ((1, 0), (1, 3))).contains(CoreRange((0, 0), (1, 3)))


def test_the_empty_set_has_no_bounding_box():
    assert CoreRangeSet([]).empty()
    assert repr(CoreRangeSet([])) == "{}"
    with pytest.raises(RuntimeError, match="Cannot get bounding_box of an empty CoreRangeSet!"):
        CoreRangeSet([]).bounding_box()


def test_sets_that_make_a_rectangle_merge_into_one_range():
    left, right = set_of(((0, 0), (1, 3))), set_of(((2, 0), (3, 3)))
    assert left.merge(right).ranges() == [CoreRange((0, 0), (3, 3))]


def test_columns_apart_merge_into_one_range_each():
    columns = set_of(((0, 0), (0, 1)), ((2, 0), (2, 1))).merge(set_of(((0, 2), (0, 3)), ((2, 2), (2, 3))))
    assert columns == set_of(((0, 0), (0, 3)), ((2, 0), (2, 3)))


@given(st.lists(core_ranges(), max_size=4), st.lists(core_ranges(), max_size=4))
def test_merge_is_union_and_subtract_is_difference(some, more):
    a, b = CoreRangeSet([]), CoreRangeSet([])
    for core_range in some:
        a = a.merge(CoreRangeSet([core_range]))
    for core_range in more:
        b = b.merge(CoreRangeSet([core_range]))
    cores_a, cores_b = set(corerange_to_cores(a)), set(corerange_to_cores(b))
    assert cores_a == {core for core_range in some for core in core_range.cores()}
    assert set(corerange_to_cores(a.merge(b))) == cores_a | cores_b
    assert set(corerange_to_cores(a.subtract(b))) == cores_a - cores_b
    assert a.num_cores() == len(cores_a)


@pytest.mark.parametrize(
    "value", [CoreCoord(2, 3), CoreRange((0, 0), (1, 3)), set_of(((0, 0), (1, 3)), ((4, 1), (5, 1)))]
)
def test_json_round_trips(value):
    assert type(value).from_json(value.to_json()) == value


def test_json_is_compact():
    assert CoreRange((0, 0), (1, 3)).to_json() == '{"end":{"x":1,"y":3},"start":{"x":0,"y":0}}'


def test_what_is_left_of_a_range_stays_in_strips():
    left = CoreRangeSet([CoreRange((0, 0), (3, 3))]).subtract(CoreRangeSet([CoreRange((1, 1), (2, 2))]))
    assert repr(left) == "{[0-0 - 0-3], [3-0 - 3-3], [1-0 - 2-0], [1-3 - 2-3]}"


# Dealing work out


def test_cores_come_column_by_column_unless_row_wise():
    assert grid_to_cores(3, 2, 2) == [(0, 0), (0, 1), (1, 0)]
    assert grid_to_cores(3, 2, 2, True) == [(0, 0), (1, 0), (0, 1)]
    assert grid_to_cores(num_cores=3, grid_size_x=2, grid_size_y=2, row_wise=True) == [(0, 0), (1, 0), (0, 1)]
    assert grid_to_cores(CoreCoord(1, 1), CoreCoord(2, 2)) == [(1, 1), (1, 2), (2, 1), (2, 2)]
    assert grid_to_cores(start=CoreCoord(1, 1), end=CoreCoord(2, 2), row_wise=True)[1] == (2, 1)


def test_cores_of_a_set_come_range_after_range():
    cores = set_of(((4, 0), (5, 1)), ((0, 0), (0, 1)))
    assert corerange_to_cores(cores) == [(4, 0), (4, 1), (5, 0), (5, 1), (0, 0), (0, 1)]
    assert corerange_to_cores(cores, max_cores=2, row_wise=True) == [(4, 0), (5, 0)]


def test_a_number_of_cores_becomes_full_lines_and_a_rest():
    assert repr(num_cores_to_corerangeset(20, CoreCoord(8, 8), row_wise=True)) == "{[0-0 - 7-1], [0-2 - 3-2]}"
    assert repr(num_cores_to_corerangeset(10, (8, 8))) == "{[0-0 - 0-7], [1-0 - 1-1]}"
    assert num_cores_to_corerangeset(0, CoreCoord(8, 8)).empty()


def test_more_cores_than_the_grid_has_cannot_be_had():
    with pytest.raises(MeshError, match="cores 65 is greater than total number of available cores 64"):
        num_cores_to_corerangeset(65, CoreCoord(8, 8))


def test_cores_within_sub_core_grids_follow_the_start_core():
    grids = set_of(((1, 0), (3, 1)), ((5, 0), (6, 1)))
    taken = num_cores_to_corerangeset_in_subcoregrids(CoreCoord(1, 1), 4, grids, row_wise=True)
    assert repr(taken) == "{[1-1 - 3-1], [5-0 - 5-0]}"
    with pytest.raises(MeshError, match="must be contained within the sub_core_grids"):
        num_cores_to_corerangeset_in_subcoregrids(CoreCoord(0, 0), 1, grids)
    with pytest.raises(MeshError, match="greater than total number of available cores 2"):
        num_cores_to_corerangeset_in_subcoregrids(CoreCoord(6, 0), 3, grids)


@given(st.integers(0, 200), st.integers(1, 8), st.integers(1, 8), st.booleans())
def test_work_is_shared_out_within_one_unit_per_core(units, columns, rows, row_wise):
    count, everyone, busier, others, most, least = split_work_to_cores(CoreCoord(columns, rows), units, row_wise)
    assert count == min(units, columns * rows) == everyone.num_cores()
    assert busier.num_cores() + others.num_cores() == count
    assert busier.num_cores() * most + others.num_cores() * least == units
    assert others.empty() == (least == 0)
    assert others.empty() or most == least + 1
    assert busier.merge(others) == everyone.merge(everyone)


def test_the_first_cores_get_the_unit_more():
    count, everyone, busier, others, most, least = split_work_to_cores(CoreCoord(2, 2), 6)
    assert (count, most, least) == (4, 2, 1)
    assert repr(everyone) == "{[0-0 - 1-1]}"
    assert repr(busier) == "{[0-0 - 0-1]}"
    assert repr(others) == "{[1-0 - 1-1]}"


def test_work_is_shared_out_over_a_set_of_cores_too():
    grid = set_of(((1, 0), (1, 1)), ((3, 0), (3, 0)))
    assert split_work_to_cores(grid, 4)[2:] == (
        set_of(((1, 0), (1, 0))),
        set_of(((1, 1), (1, 1)), ((3, 0), (3, 0))),
        2,
        1,
    )
    assert split_work_to_cores(core_grid=grid, units_to_divide=3)[:2] == (3, grid)
    assert split_work_to_cores(grid, 0) == (0, *[CoreRangeSet([])] * 3, 0, 0)
    with pytest.raises(TypeError, match="incompatible function arguments"):
        split_work_to_cores(units_to_divide=3)
