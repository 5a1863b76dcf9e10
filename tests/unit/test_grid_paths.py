"""Lines of neighbouring chips through a grid."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from softmesh.fabric.grid_paths import line_through


def touch(a: tuple[int, int], b: tuple[int, int]) -> bool:
    return abs(a[0] - b[0]) + abs(a[1] - b[1]) == 1


@settings(deadline=None, max_examples=60)
@given(st.integers(1, 9), st.integers(1, 9), st.data())
def test_a_line_from_the_corner_always_exists_and_steps_to_neighbours(rows, columns, data):
    length = data.draw(st.integers(1, rows * columns))
    line = line_through(rows, columns, (0, 0), length)
    assert line is not None
    assert line[0] == (0, 0)
    assert len(line) == len(set(line)) == length
    assert all(0 <= r < rows and 0 <= c < columns for r, c in line)
    assert all(touch(a, b) for a, b in itertools.pairwise(line))


@pytest.mark.parametrize(("rows", "columns"), [(8, 4), (4, 4), (3, 4), (4, 3), (2, 8), (32, 32)])
def test_all_chips_of_an_even_grid_form_a_closed_ring(rows, columns):
    line = line_through(rows, columns, (0, 0), rows * columns)
    assert line is not None
    assert touch(line[0], line[-1])


@pytest.mark.parametrize(
    ("start", "chips"),
    [
        ((0, 0), "0 1 5 4"),
        ((0, 0), "0 1 2 6 5 4"),
        ((0, 0), "0 1 2 3 7 6 5 4"),
        ((0, 0), "0 1 2 3 7 11 15 19 23 22 21 20 16 12 8 4"),
        (
            (0, 0),
            "0 1 2 3 7 11 15 19 23 27 31 30 29 28 24 25 26 22 21 20 16 17 18 14 13 12 8 9 10 6 5 4",
        ),
        ((0, 0), "0 1 2 3 7"),
        ((1, 1), "5 6 7 11 15 14 13 9"),
    ],
)
def test_lines_on_a_galaxy_are_those_of_ttnn(start, chips):
    expected = [divmod(int(chip), 4) for chip in chips.split()]
    assert line_through(8, 4, start, len(expected)) == expected


def test_a_2x4_is_walked_clockwise_from_wherever_it_starts():
    assert line_through(2, 4, (1, 0), 4) == [(1, 0), (0, 0), (0, 1), (0, 2)]
    assert line_through(4, 2, (0, 0), 8) == [(0, 0), (0, 1), (1, 1), (2, 1), (3, 1), (3, 0), (2, 0), (1, 0)]


def test_a_line_that_cannot_exist_is_none():
    assert line_through(1, 4, (0, 2), 4) is None
