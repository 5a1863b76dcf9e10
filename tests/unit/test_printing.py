"""Printed tensors, compared as whole texts."""

from __future__ import annotations

import math
from collections.abc import Iterator

import pytest
import torch

from softmesh.errors import ArgumentValueError, MeshError
from softmesh.tensor.dtype import DataType, Layout, bfloat8_b, bfloat16, float32, int32, uint8, uint16, uint32
from softmesh.tensor.printing import (
    format_deallocated,
    format_empty,
    format_shards,
    format_tensor,
    set_printoptions,
)


@pytest.fixture(autouse=True)
def default_print_options() -> Iterator[None]:
    yield
    set_printoptions(profile="short")


def text(values: torch.Tensor, dtype: DataType = float32, layout: Layout = Layout.ROW_MAJOR) -> str:
    return format_tensor(values, tuple(values.shape), dtype, layout)


def body(values: torch.Tensor, dtype: DataType = float32) -> str:
    return text(values, dtype).removeprefix("ttnn.Tensor(").split(", shape=")[0]


def test_a_tiled_tensor_is_shortened_to_two_entries_at_each_end():
    assert (
        text(torch.ones(1, 1, 32, 32, dtype=torch.bfloat16), bfloat16, Layout.TILE)
        == """\
ttnn.Tensor([[[[ 1.0000,  1.0000,  ...,  1.0000,  1.0000],
               [ 1.0000,  1.0000,  ...,  1.0000,  1.0000],
               ...,
               [ 1.0000,  1.0000,  ...,  1.0000,  1.0000],
               [ 1.0000,  1.0000,  ...,  1.0000,  1.0000]]]], shape=Shape([1, 1, 32, 32]), \
dtype=DataType::BFLOAT16, layout=Layout::TILE)"""
    )


def test_four_entries_are_printed_whole():
    assert (
        text(torch.tensor([[1.0, -2.5, 10.0, 0.0]] * 4))
        == """\
ttnn.Tensor([[ 1.0000, -2.5000, 10.0000,  0.0000],
             [ 1.0000, -2.5000, 10.0000,  0.0000],
             [ 1.0000, -2.5000, 10.0000,  0.0000],
             [ 1.0000, -2.5000, 10.0000,  0.0000]], shape=Shape([4, 4]), \
dtype=DataType::FLOAT32, layout=Layout::ROW_MAJOR)"""
    )


def test_blocks_of_higher_rank_stand_apart_by_an_empty_line():
    assert (
        text(torch.arange(10, dtype=torch.int32).reshape(5, 2, 1), int32)
        == """\
ttnn.Tensor([[[    0],
              [    1]],

             [[    2],
              [    3]],

             ...,

             [[    6],
              [    7]],

             [[    8],
              [    9]]], shape=Shape([5, 2, 1]), dtype=DataType::INT32, layout=Layout::ROW_MAJOR)"""
    )


def test_a_scalar_has_no_brackets():
    assert text(torch.tensor(1.0)) == (
        "ttnn.Tensor( 1.0000, shape=Shape([]), dtype=DataType::FLOAT32, layout=Layout::ROW_MAJOR)"
    )


def test_an_empty_tensor_shows_empty_brackets():
    expected = "ttnn.Tensor([], shape=Shape([0, 3]), dtype=DataType::FLOAT32, layout=Layout::ROW_MAJOR)"
    assert text(torch.zeros(0, 3)) == expected
    assert format_empty((0, 3), float32, Layout.ROW_MAJOR) == expected


def test_a_deallocated_tensor_says_so():
    assert format_deallocated((32, 32), float32, Layout.ROW_MAJOR) == (
        "ttnn.Tensor(<buffer is not allocated>, shape=Shape([32, 32]), "
        "dtype=DataType::FLOAT32, layout=Layout::ROW_MAJOR)"
    )


@pytest.mark.parametrize(
    ("values", "dtype", "printed"),
    [
        (torch.tensor([1, 255], dtype=torch.uint8), uint8, "[    1,   255]"),
        (torch.tensor([True, False]), uint8, "[    1,     0]"),
        (torch.tensor([65535], dtype=torch.uint16), uint16, "[65535]"),
        (torch.tensor([4294967293, 1], dtype=torch.uint32), uint32, "[4294967293,     1]"),
        (torch.tensor([-7], dtype=torch.int32), int32, "[   -7]"),
    ],
)
def test_integers_are_five_wide_and_bool_prints_as_uint8(values, dtype, printed):
    assert body(values, dtype) == printed


def test_block_floats_print_as_floats():
    assert body(torch.tensor([1.5]), bfloat8_b) == "[ 1.5000]"


@pytest.mark.parametrize(
    ("values", "printed"),
    [
        ([1.0, 1000.0], "[ 1.0000, 1000.0000]"),
        ([1.0, 1000.5], "[ 1.0000e+00,  1.0005e+03]"),
        ([1e8], "[100000000.0000]"),
        ([-2e8], "[-2.0000e+08]"),
        ([0.0, 2e-4], "[ 0.0000,  0.0002]"),
        ([0.0, 5e-5], "[ 0.0000e+00,  5.0000e-05]"),
        ([0.0, 0.0], "[ 0.0000,  0.0000]"),
    ],
)
def test_scientific_notation_is_chosen_by_the_range_of_the_values(values, printed):
    assert body(torch.tensor(values)) == printed


def test_hidden_values_take_part_in_the_choice_of_notation():
    values = torch.ones(5)
    values[2] = 1e9
    assert body(values) == "[ 1.0000e+00,  1.0000e+00,  ...,  1.0000e+00,  1.0000e+00]"


def test_nan_and_infinity_are_right_aligned_and_do_not_choose_the_notation():
    assert body(torch.tensor([math.nan, -math.inf, 1.0])) == "[    nan,    -inf,  1.0000]"
    assert body(torch.tensor([math.inf, 1e9])) == "[        inf,  1.0000e+09]"


def test_the_full_profile_shows_everything():
    set_printoptions(profile="FULL")
    assert body(torch.ones(6)) == "[ 1.0000,  1.0000,  1.0000,  1.0000,  1.0000,  1.0000]"


def test_the_empty_profile_shows_no_values():
    set_printoptions(profile="empty")
    assert text(torch.ones(6)) == (
        "ttnn.Tensor(..., shape=Shape([6]), dtype=DataType::FLOAT32, layout=Layout::ROW_MAJOR)"
    )


def test_precision_sets_decimals_and_width():
    set_printoptions(profile="short", precision=2)
    assert body(torch.tensor([1.0, 2.0])) == "[ 1.00,  2.00]"
    assert body(torch.tensor([1e9])) == "[ 1.00e+09]"


@pytest.mark.parametrize("mode", [True, "true", "True"])
def test_scientific_notation_can_be_demanded(mode):
    set_printoptions(profile="short", sci_mode=mode)
    assert body(torch.tensor([1.0])) == "[ 1.0000e+00]"


@pytest.mark.parametrize("mode", [False, "false"])
def test_scientific_notation_can_be_forbidden(mode):
    set_printoptions(profile="short", sci_mode=mode)
    assert body(torch.tensor([1e9])) == "[1000000000.0000]"


@pytest.mark.parametrize("mode", [None, "default", "none"])
def test_options_left_out_go_back_to_their_defaults(mode):
    set_printoptions(profile="full", sci_mode=True, precision=1)
    set_printoptions(profile="short", sci_mode=mode)
    assert body(torch.tensor([1.0])) == "[ 1.0000]"
    assert body(torch.tensor([1e9])) == "[ 1.0000e+09]"


def test_unknown_options_are_refused():
    with pytest.raises(MeshError, match=r"unknown print profile 'shrt'.*Did you mean 'short'"):
        set_printoptions(profile="shrt")
    with pytest.raises(MeshError, match="unknown sci_mode 'maybe'"):
        set_printoptions(profile="short", sci_mode="maybe")
    with pytest.raises(ArgumentValueError, match="precision"):
        set_printoptions(profile="short", precision=-1)


def test_host_shards_follow_each_other_without_headers():
    shards = [(None, torch.tensor([1.0])), (None, torch.tensor([2.0]))]
    assert (
        format_shards(shards, (1,), float32, Layout.ROW_MAJOR)
        == """\
ttnn.Tensor([ 1.0000], shape=Shape([1]), dtype=DataType::FLOAT32, layout=Layout::ROW_MAJOR)
ttnn.Tensor([ 2.0000], shape=Shape([1]), dtype=DataType::FLOAT32, layout=Layout::ROW_MAJOR)"""
    )


def test_device_shards_stand_below_their_headers_and_choose_their_own_notation():
    shards = [
        ("device_id: 4, MeshCoordinate([0, 0])", torch.tensor([1.0])),
        ("device_id: 0, MeshCoordinate([0, 1])", torch.tensor([2e9])),
    ]
    assert (
        format_shards(shards, (1,), float32, Layout.ROW_MAJOR)
        == """\
device_id: 4, MeshCoordinate([0, 0])
ttnn.Tensor([ 1.0000], shape=Shape([1]), dtype=DataType::FLOAT32, layout=Layout::ROW_MAJOR)
device_id: 0, MeshCoordinate([0, 1])
ttnn.Tensor([ 2.0000e+09], shape=Shape([1]), dtype=DataType::FLOAT32, layout=Layout::ROW_MAJOR)"""
    )
