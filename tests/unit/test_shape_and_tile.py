"""Shape's rules for indexing and equality; Tile's sizes; how a layout pads a shape."""

from __future__ import annotations

import copy
import pickle

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from softmesh.errors import ArgumentError, MeshError
from softmesh.hardware.shape import Shape
from softmesh.tensor.dtype import Layout, bfloat4_b, bfloat8_b, bfloat16, uint8
from softmesh.tensor.tile import DEFAULT_TILE, Tile, padded_shape

LEGAL_TILES = [(h, w) for w in (32, 16) for h in (32, 16, 8, 4, 2, 1)]


def test_shape_prints_counts_and_iterates():
    shape = Shape([3, 4])
    assert repr(shape) == str(shape) == "Shape([3, 4])"
    assert (len(shape), shape.rank, list(shape)) == (2, 2, [3, 4])
    assert repr(Shape(())) == "Shape([])"
    assert repr(Shape(torch.Size([2]))) == "Shape([2])"


def test_negative_indices_see_ones_up_to_rank_four():
    shape = Shape([3, 4])
    assert [shape[i] for i in (-4, -3, -2, -1, 0, 1)] == [1, 1, 3, 4, 3, 4]


@pytest.mark.parametrize(
    ("shape", "index", "interval"),
    [([3, 4], 2, "[-4, 2)"), ([3, 4], -5, "[-4, 2)"), ([1] * 5, -6, "[-5, 5)"), ([], 0, "[-4, 0)")],
)
def test_an_index_outside_is_refused_in_the_words_of_ttnn(shape, index, interval):
    with pytest.raises(MeshError) as error:
        Shape(shape)[index]
    assert str(error.value) == f"ShapeBase[] index out of range. {index} not in {interval}"


def test_shape_has_no_slices():
    with pytest.raises(ArgumentError, match=r"list\(shape\)"):
        Shape([3, 4])[1:]


@pytest.mark.parametrize("same", [Shape([3, 4]), (3, 4), [3, 4], torch.Size([3, 4])])
def test_shape_equals_any_sequence_of_the_same_extents_from_both_sides(same):
    assert Shape([3, 4]) == same
    assert same == Shape([3, 4])
    assert (Shape([3, 4]) != same) is False


@pytest.mark.parametrize("other", [(1, 3, 4), [4, 3], (), None, 12, "Shape([3, 4])", torch.Size([3])])
def test_shape_differs_from_other_extents_other_ranks_and_other_things(other):
    assert (Shape([3, 4]) == other) is False
    assert (Shape([3, 4]) != other) is True


def test_equal_shapes_are_one_key():
    assert {Shape([3, 4]): "x"}[Shape((3, 4))] == "x"


def test_a_copied_or_pickled_shape_is_equal_and_still_a_shape():
    shape = Shape([3, 4])
    for twin in (copy.copy(shape), copy.deepcopy(shape), pickle.loads(pickle.dumps(shape))):
        assert twin == shape
        assert type(twin) is Shape


@pytest.mark.parametrize("extents", [[-1, 2], [1.5], ["3"]])
def test_extents_are_whole_numbers_from_zero(extents):
    with pytest.raises(TypeError):
        Shape(extents)


def test_to_rank_adds_and_removes_leading_ones():
    assert Shape([3, 4]).to_rank(4) == (1, 1, 3, 4)
    assert Shape([1, 1, 3, 4]).to_rank(2) == (3, 4)
    assert Shape([3, 4]).to_rank(2) == (3, 4)
    assert Shape([1, 1]).to_rank(0) == ()


def test_to_rank_refuses_to_lose_a_dim():
    with pytest.raises(MeshError, match="Can't convert shape rank"):
        Shape([2, 3, 4]).to_rank(2)


@given(st.lists(st.integers(0, 5), max_size=6), st.integers(0, 4))
def test_a_shape_returns_from_a_higher_rank(extents, more):
    shape = Shape(extents)
    assert shape.to_rank(shape.rank + more).to_rank(shape.rank) == shape


@pytest.mark.parametrize("size", LEGAL_TILES)
def test_a_legal_tile_is_covered_by_its_faces(size):
    tile = Tile(size)
    face_height, face_width = tile.face_shape
    assert tile.tile_shape == list(size)
    assert (face_height, face_width) == (min(16, size[0]), 16)
    assert tile.num_faces * face_height * face_width == size[0] * size[1]


@pytest.mark.parametrize("size", [(64, 32), (32, 8), (3, 32), (0, 32), (32,), (1, 32, 32)])
def test_an_illegal_tile_is_refused_in_the_words_of_ttnn(size):
    with pytest.raises(MeshError, match="Tile size is not valid for our hardware"):
        Tile(size)


def test_tiles_of_equal_size_are_equal_and_one_key():
    assert Tile((16, 32)) == Tile([16, 32])
    assert hash(Tile((16, 32))) == hash(Tile([16, 32]))
    assert Tile((16, 32)) != Tile((32, 16))
    assert Tile((32, 32)) != Tile((32, 32), transpose_tile=True)
    assert Tile((32, 32)) != (32, 32)


def test_a_tile_prints_its_shape():
    assert repr(Tile((32, 32))) == "Tile with shape: [32, 32]"


def test_small_and_transposed_tiles_say_so():
    assert (DEFAULT_TILE.partial_face, DEFAULT_TILE.narrow_tile) == (0, 0)
    assert (Tile((8, 16)).partial_face, Tile((8, 16)).narrow_tile) == (1, 1)
    assert not DEFAULT_TILE.transpose_of_faces
    transposed = Tile((32, 32), transpose_tile=True)
    assert transposed.transpose_of_faces
    assert transposed.transpose_within_face


def test_the_size_of_a_tile_counts_shared_exponents_in_lines_of_sixteen_bytes():
    assert [DEFAULT_TILE.get_tile_size(t) for t in (bfloat16, uint8, bfloat8_b, bfloat4_b)] == [
        2048,
        1024,
        1088,
        576,
    ]
    assert Tile((16, 32)).get_tile_size(bfloat8_b) == 16 * 32 + 32
    assert Tile((1, 32)).get_tile_size(bfloat8_b) == 32 + 16


@pytest.mark.parametrize(
    ("shape", "padded"),
    [
        ((5,), (32, 32)),
        ((3, 5), (32, 32)),
        ((), (32, 32)),
        ((0,), (32, 0)),
        ((1, 3, 40, 50), (1, 3, 64, 64)),
        ((64, 32), (64, 32)),
    ],
)
def test_the_tile_layout_rounds_the_last_two_dims_up(shape, padded):
    assert padded_shape(shape, Layout.TILE) == padded


def test_small_tiles_pad_less():
    assert padded_shape((2, 3, 40), Layout.TILE, Tile((4, 16))) == (2, 4, 48)


def test_the_row_major_layout_pads_nothing_but_a_scalar():
    assert padded_shape((3, 5), Layout.ROW_MAJOR) == (3, 5)
    assert padded_shape((0,), Layout.ROW_MAJOR) == (0,)
    assert padded_shape((), Layout.ROW_MAJOR) == (1,)
