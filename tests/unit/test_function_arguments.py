"""Functions around ops: no argument, however silly, ends in an error that is not of the softmesh family."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import softmesh as ttnn
from softmesh import train
from softmesh.cores import grid_to_cores
from softmesh.mesh import line_order, ring_order

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
    "pearson_correlation_coefficient": lambda mesh: (
        ttnn.pearson_correlation_coefficient,
        {"expected": torch.ones(4), "actual": torch.ones(4)},
    ),
    "ttnn_dtype_to_torch_dtype": lambda mesh: (ttnn.ttnn_dtype_to_torch_dtype, {"dtype": ttnn.bfloat16}),
    "line_order": lambda mesh: (line_order, {"shape": ttnn.MeshShape(2, 4)}),
    "ring_order": lambda mesh: (ring_order, {"shape": ttnn.MeshShape(2, 4)}),
    "grid_to_cores": lambda mesh: (grid_to_cores, {"num_cores": 2, "grid_size_x": 2, "grid_size_y": 2}),
    "Shard": lambda mesh: (ttnn.Shard, {"dim": 1, "size": 3}),
    "Partial": lambda mesh: (ttnn.Partial, {"op": "sum"}),
    "init_device_compute_kernel_config": lambda mesh: (
        ttnn.init_device_compute_kernel_config,
        {"arch": mesh.arch(), "device_kernel_config": ttnn.WormholeComputeKernelConfig()},
    ),
    "synchronize_device": lambda mesh: (ttnn.synchronize_device, {"device": mesh, "sub_device_ids": []}),
    "all_reduce": lambda mesh: (train.all_reduce, {"x": ones(mesh, 2, 4), "axis": 0}),
    "all_gather": lambda mesh: (train.all_gather, {"x": ones(mesh, 2, 4), "dim": 0, "axis": 0}),
    "positions": lambda mesh: (train.positions, {"mesh": mesh, "tokens": 4}),
    "mapper": lambda mesh: (train.mapper, {"mesh": mesh, "splits": {1: 0}}),
    "zero_gradients": lambda mesh: (train.zero_gradients, {"parameters": [ones(mesh, 2, 4)]}),
    "Initial": lambda mesh: (train.Initial, {"seed": 1}),
    "SGD": lambda mesh: (train.SGD, {"params": [ones(mesh, 2, 4).requires_grad_()], "lr": 0.1}),
    **{
        layer.__name__: lambda mesh, layer=layer, sizes=sizes: (
            layer,
            {"mesh": mesh, **dict.fromkeys(sizes.split(), 32), "initial": train.Initial()},
        )
        for layer, sizes in (
            (train.Linear, "in_features out_features"),
            (train.Embedding, "rows features"),
            (train.LayerNorm, "features"),
            (train.RMSNorm, "features"),
            (train.MultiHeadAttention, "features heads"),
        )
    },
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


def test_a_list_without_end_is_refused(mesh: ttnn.MeshDevice) -> None:
    x = ttnn.ones([32, 32], layout=ttnn.TILE_LAYOUT, device=mesh)
    endless: list[Any] = []
    endless.append(endless)
    for call in (lambda: ttnn.add(x, x, dtype=endless), lambda: ttnn.add(x, x, memory_config=endless)):
        with pytest.raises(TypeError, match="is a list that contains itself"):
            call()


def test_a_mesh_is_opened_and_not_made() -> None:
    with pytest.raises(TypeError, match=r"ttnn\.open_mesh_device"):
        ttnn.MeshDevice(ttnn.MeshShape(1, 2))


@pytest.mark.parametrize("path", [3, None, b"x", "a\0b", "/nowhere/config.json", "/dev/full", "a" * 300, "\x1b[31m/x"])
def test_a_path_that_cannot_be_used_is_refused(path: object, tmp_path: Path) -> None:
    """Also a device that could be read for ever, and without what a terminal would obey."""
    functions: list[Callable[..., Any]] = [
        ttnn.save_config_to_json_file,
        ttnn.load_config_from_json_file,
        ttnn.dump_operations,
        ttnn.database.query_devices,
        lambda path: ttnn.graph.import_report(path, tmp_path),
    ]
    for function in functions:
        with pytest.raises(ttnn.SoftmeshError) as told:
            function(path)
        assert "\x1b" not in str(told.value)


@pytest.mark.parametrize("odd", [True, 1.0, "1"])
def test_what_equals_a_known_dim_is_still_no_dim(odd):
    assert ttnn.Shard(1).dim == 1
    with pytest.raises(ttnn.ArgumentError, match="dim must be an int"):
        ttnn.Shard(odd)


def test_a_path_that_no_file_system_can_have_is_refused():
    with pytest.raises(ttnn.ArgumentError, match="must be a path"):
        ttnn.save_config_to_json_file("\ud800.json")
