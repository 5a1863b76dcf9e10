"""Functions around ops: no argument, however silly, ends in an error that is not of the softmesh family."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch

import softmesh as ttnn

SILLY = [None, "x", 2.5, [1, 2], [], [None], [[1]], -99, 0, {}, object(), np.int64(1), torch.ones(2)]
Made = tuple[Callable[..., Any], dict[str, Any]]


@pytest.fixture(scope="module")
def mesh() -> Iterator[ttnn.MeshDevice]:
    with ttnn.create_mesh_device(ttnn.MeshShape(1, 2)) as device:
        yield device


def ones(mesh: ttnn.MeshDevice, *shape: int) -> ttnn.Tensor:
    made = ttnn.from_torch(torch.ones(*shape), layout=ttnn.ROW_MAJOR_LAYOUT, device=mesh)
    assert made is not None
    return made


SIZES: dict[str, Any] = {
    "in_channels": 4,
    "out_channels": 8,
    "batch_size": 1,
    "input_height": 5,
    "input_width": 5,
    "kernel_size": (3, 3),
    "stride": (1, 1),
    "padding": (0, 0),
    "dilation": (1, 1),
    "groups": 1,
}
WEIGHTS = {name: SIZES[name] for name in ("in_channels", "out_channels", "kernel_size", "groups")}
GROUPS = {"num_channels": 64, "num_groups": 4, "input_nhw": 64}
CALLS: dict[str, Callable[[ttnn.MeshDevice], Made]] = {
    "conv2d": lambda mesh: (
        ttnn.conv2d,
        {
            "input_tensor": ones(mesh, 1, 5, 5, 4),
            "weight_tensor": ones(mesh, 8, 4, 3, 3),
            "device": mesh,
            **SIZES,
        },
    ),
    "conv1d": lambda mesh: (
        ttnn.conv1d,
        {
            "input_tensor": ones(mesh, 1, 9, 4),
            "weight_tensor": ones(mesh, 8, 4, 3),
            "device": mesh,
            "in_channels": 4,
            "out_channels": 8,
            "batch_size": 1,
            "input_length": 9,
            "kernel_size": 3,
            "stride": 1,
            "padding": 0,
            "dilation": 1,
        },
    ),
    "conv_transpose2d": lambda mesh: (
        ttnn.conv_transpose2d,
        {
            "input_tensor": ones(mesh, 1, 5, 5, 4),
            "weight_tensor": ones(mesh, 4, 8, 3, 3),
            "device": mesh,
            **SIZES,
        },
    ),
    "conv3d": lambda mesh: (
        ttnn.experimental.conv3d,
        {
            "input_tensor": ones(mesh, 1, 3, 3, 3, 32),
            "weight_tensor": ones(mesh, 256, 8),
            "dtype": ttnn.float32,
            "output_channels": 8,
            "kernel_size": (2, 2, 2),
            "groups": 1,
            "config": None,
            "padding_mode": "zeros",
            "stride": (1, 1, 1),
        },
    ),
    "prepare_conv_weights": lambda mesh: (
        ttnn.prepare_conv_weights,
        {"weight_tensor": ones(mesh, 8, 4, 3, 3), "device": mesh, "conv_config": None, **WEIGHTS},
    ),
    "prepare_conv_transpose2d_weights": lambda mesh: (
        ttnn.prepare_conv_transpose2d_weights,
        {"weight_tensor": ones(mesh, 4, 8, 3, 3), "device": mesh, "mirror_kernel": True, **WEIGHTS},
    ),
    "prepare_conv_bias": lambda mesh: (
        ttnn.prepare_conv_bias,
        {"bias_tensor": ones(mesh, 1, 1, 1, 8), "out_channels": 8, "device": mesh, "conv_config": None},
    ),
    "batch_norm": lambda mesh: (
        ttnn.batch_norm,
        {
            "input": ones(mesh, 2, 4, 3, 3),
            "running_mean": ones(mesh, 1, 4, 1, 1),
            "training": True,
            "momentum": 0.1,
            "eps": 1e-5,
            "weight": None,
        },
    ),
    "dropout": lambda mesh: (
        ttnn.experimental.dropout,
        {"input_tensor": ones(mesh, 2, 4), "probability": 0.5, "scale": 1.0, "seed": 3},
    ),
    "bernoulli": lambda mesh: (ttnn.bernoulli, {"input": ones(mesh, 2, 4), "seed": 3, "dtype": None}),
    "moreh_full": lambda mesh: (ttnn.moreh_full, {"shape": [2, 2], "fill_value": 1.0, "device": mesh}),
    "create_group_norm_weight_bias_rm": lambda mesh: (
        ttnn.create_group_norm_weight_bias_rm,
        {"input_tensor": torch.ones(64), "num_channels": 64, "num_cores_x": 2},
    ),
    "create_group_norm_input_mask": lambda mesh: (
        ttnn.create_group_norm_input_mask,
        {"num_channel": 64, "num_groups": 4, "num_cores_across_channel": 2, "data_type": ttnn.bfloat16},
    ),
    "dram_group_norm_params_from_torch": lambda mesh: (
        ttnn.dram_group_norm_params_from_torch,
        {
            "torch_params": [torch.ones(64)],
            "channels_per_device": 64,
            "groups_per_device": 4,
            "device": mesh,
            "mesh_axis": None,
            "core_grid": None,
        },
    ),
    "determine_expected_group_norm_dram_grid_size": lambda mesh: (
        ttnn.determine_expected_group_norm_dram_grid_size,
        {"device": mesh, **GROUPS},
    ),
    "determine_expected_group_norm_sharded_config_and_grid_size": lambda mesh: (
        ttnn.determine_expected_group_norm_sharded_config_and_grid_size,
        {"device": mesh, "is_height_sharded": False, **GROUPS},
    ),
    "get_conv_output_dim": lambda mesh: (
        ttnn.get_conv_output_dim,
        {"input": 5, "window": 3, "stride": 1, "pad": 0},
    ),
}


@pytest.mark.parametrize("name", sorted(CALLS))
def test_a_silly_argument_is_refused_in_our_own_words_or_makes_sense(name: str, mesh: ttnn.MeshDevice) -> None:
    function, good = CALLS[name](mesh)
    function(**good)
    for argument in good:
        for value in SILLY:
            try:
                with contextlib.suppress(ttnn.SoftmeshError):
                    function(**{**good, argument: value})
            except Exception as error:
                pytest.fail(f"{name}({argument}={value!r}) leaked {error!r}")


@pytest.mark.parametrize("name", sorted(CALLS))
def test_a_wrong_name_is_answered_with_the_names_there_are(name: str, mesh: ttnn.MeshDevice) -> None:
    function, good = CALLS[name](mesh)
    with pytest.raises(TypeError, match=r"no argument 'colour'|unexpected keyword argument 'colour'"):
        function(**good, colour="red")


def test_a_refusal_takes_no_longer_for_a_long_argument(mesh: ttnn.MeshDevice) -> None:
    x = ttnn.ones([32, 32], layout=ttnn.TILE_LAYOUT, device=mesh)
    begun = time.perf_counter()
    with pytest.raises(TypeError, match="incompatible function arguments"):
        ttnn.matmul(x, x, activation="x" * 1_000_000)
    assert time.perf_counter() - begun < 5.0  # minutes, where the text is searched from each of its characters
