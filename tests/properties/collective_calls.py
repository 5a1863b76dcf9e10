"""A call by name of each collective along one axis of a mesh."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from gradient_calls import Given, below, rows, tiles
from strategies import Like

import softmesh as ttnn

Entry = Callable[[ttnn.MeshDevice, int], Given]
CALLS: dict[str, Entry] = {}
_CORES = ttnn.CoreRangeSet([ttnn.CoreRange(ttnn.CoreCoord(0, 0), ttnn.CoreCoord(3, 3))])


def _entry(*names: str) -> Callable[[Entry], Entry]:
    def add(entry: Entry) -> Entry:
        CALLS.update(dict.fromkeys(names, entry))
        return entry

    return add


def _semaphore(mesh: ttnn.MeshDevice) -> Any:
    return ttnn.create_global_semaphore(mesh, _CORES, 0)


def _at(mesh: ttnn.MeshDevice, axis: int, place: int) -> ttnn.MeshCoordinate:
    return ttnn.MeshCoordinate([place if i == axis else 0 for i in range(len(list(mesh.shape)))])


def _homes(mesh: ttnn.MeshDevice, experts: int) -> torch.Tensor:
    """[1, 1, experts, devices]: expert e lives on device e, and around again."""
    devices = mesh.get_num_devices()
    found = torch.zeros(1, 1, experts, devices, dtype=torch.int16)
    found[0, 0, torch.arange(experts), torch.arange(experts) % devices] = 1
    return found


def _homes_by_view(mesh: ttnn.MeshDevice) -> torch.Tensor:
    """[devices, experts]: an expert on each device, as every device sees it."""
    devices = mesh.get_num_devices()
    return torch.arange(devices, dtype=torch.int16).expand(devices, devices)


def _narrow(*shape: int) -> Like:
    return Like(shape, ttnn.bfloat16, ttnn.ROW_MAJOR_LAYOUT)


@_entry("all_gather")
def _gather(mesh: ttnn.MeshDevice, axis: int) -> Given:
    return Given({"input_tensor": rows(2, 3)}, {"dim": 1, "cluster_axis": axis})


@_entry("all_reduce", "all_broadcast")
def _sum(mesh: ttnn.MeshDevice, axis: int) -> Given:
    return Given({"input_tensor": rows(2, 3)}, {"cluster_axis": axis})


@_entry("reduce_scatter", "mesh_partition")
def _scatter(mesh: ttnn.MeshDevice, axis: int) -> Given:
    return Given({"input_tensor": rows(2, 2 * mesh.shape[axis])}, {"dim": 1, "cluster_axis": axis})


@_entry("broadcast")
def _broadcast(mesh: ttnn.MeshDevice, axis: int) -> Given:
    return Given({"input_tensor": rows(2, 3)}, {"sender_coord": _at(mesh, axis, 1), "cluster_axis": axis})


@_entry("point_to_point")
def _point(mesh: ttnn.MeshDevice, axis: int) -> Given:
    ends = {"sender_coord": _at(mesh, axis, 1), "receiver_coord": _at(mesh, axis, 0)}
    return Given({"input_tensor": rows(2, 4)}, ends)


@_entry(
    "experimental.all_gather_async",
    "experimental.all_gather_async_reversed",
    "experimental.strided_all_gather_async",
)
def _gather_async(mesh: ttnn.MeshDevice, axis: int) -> Given:
    options = {"persistent_output_buffer": None, "dim": 3, "cluster_axis": axis}
    both = [_semaphore(mesh), _semaphore(mesh)]
    return Given({"input_tensor": tiles(1, 1, 2, 3)}, {**options, "multi_device_global_semaphore": both})


@_entry("experimental.reduce_scatter_minimal_async")
def _scatter_async(mesh: ttnn.MeshDevice, axis: int) -> Given:
    options = {"persistent_output_buffers": None, "dim": 3, "cluster_axis": axis}
    options["multi_device_global_semaphore"] = [_semaphore(mesh) for _ in range(3)]
    return Given({"input_tensor": tiles(1, 1, 2, 2 * mesh.shape[axis])}, options)


@_entry("experimental.strided_reduce_scatter_async")
def _strided_scatter(mesh: ttnn.MeshDevice, axis: int) -> Given:
    given = _scatter_async(mesh, axis)
    return Given(given.operands, {**given.options, "mm_block_ht": 1, "mm_block_wt": 1})


@_entry("experimental.all_reduce_async")
def _sum_async(mesh: ttnn.MeshDevice, axis: int) -> Given:
    return Given(
        {"input_tensor": tiles(1, 1, 2, 3)},
        {"cluster_axis": axis, "mesh_device": mesh, "math_op": ttnn.ReduceType.Sum},
    )


@_entry("experimental.all_to_all_async_generic")
def _swap(mesh: ttnn.MeshDevice, axis: int) -> Given:
    shape = (1, 1, 16, 32 * mesh.shape[axis])
    return Given({"input_tensor": tiles(*shape)}, {"in_dim": 2, "out_dim": 3, "cluster_axis": axis})


@_entry("experimental.neighbor_pad_async")
def _halo(mesh: ttnn.MeshDevice, axis: int) -> Given:
    options = {
        "dim": [1],
        "padding_left": [1],
        "padding_right": [2],
        "padding_mode": "zeros",
        "cluster_axis": [axis],
        "neighbor_semaphore": [_semaphore(mesh)],
        "barrier_semaphore": [_semaphore(mesh)],
    }
    return Given({"input_tensor": rows(2, 3, 2, 4)}, options)


@_entry("experimental.slice_reshard_async")
def _slice(mesh: ttnn.MeshDevice, axis: int) -> Given:
    options = {"dim": 1, "output_dim_offset": 1, "output_dim_shape": mesh.shape[axis], "cluster_axis": axis}
    both = {"final_semaphore": _semaphore(mesh), "barrier_semaphore": _semaphore(mesh)}
    return Given({"input_tensor": rows(1, 3, 4)}, {**options, **both})


@_entry("all_to_all_dispatch")
def _dispatch(mesh: ttnn.MeshDevice, axis: int) -> Given:
    experts = 2 * mesh.get_num_devices()
    operands = {
        "input_tensor": _narrow(2, 1, 3, 4),
        "expert_indices_tensor": below(experts, 2, 1, 3, 1, dtype=ttnn.uint16),
        "expert_mapping_tensor": _homes(mesh, experts),
    }
    return Given(operands, {"cluster_axis": axis})


@_entry("experimental.all_to_all_dispatch_metadata")
def _dispatch_scores(mesh: ttnn.MeshDevice, axis: int) -> Given:
    operands = {
        "input_tensor": _narrow(2, 1, 3, 4),
        "expert_indices_tensor": below(mesh.get_num_devices(), 2, 1, 3, 1, dtype=ttnn.uint16),
        "expert_scores_tensor": _narrow(2, 1, 3, 1),
        "expert_mapping_tensor": _homes_by_view(mesh),
    }
    return Given(operands, {"cluster_axis": axis})


@_entry("all_to_all_combine")
def _combine(mesh: ttnn.MeshDevice, axis: int) -> Given:
    experts, tokens = mesh.get_num_devices(), 2 * mesh.shape[axis]
    chosen = torch.arange(3 * tokens, dtype=torch.int16).reshape(1, tokens, 3, 1) % experts
    operands = {
        "input_tensor": _narrow(1, tokens, 3, 4),
        "expert_metadata_tensor": chosen,
        "expert_mapping_tensor": _homes(mesh, experts),
    }
    return Given(operands, {"cluster_axis": axis})


@_entry("experimental.selective_reduce_combine")
def _selective_combine(mesh: ttnn.MeshDevice, axis: int) -> Given:
    tokens = 2 * mesh.shape[axis]
    numbers = torch.arange(tokens, dtype=torch.int32)
    operands = {
        "dense_input_tensor": _narrow(1, tokens, 4),
        "dense_activations_tensor": torch.stack([numbers, torch.zeros_like(numbers)], -1),
        "dense_token_maps_tensor": numbers.reshape(1, tokens),
        "dense_token_counts_tensor": torch.tensor([tokens], dtype=torch.int32),
    }
    sizes = {
        "hidden_size": 4,
        "batch_size": tokens,
        "seq_size": 1,
        "select_experts_k": 1,
        "cluster_axis": axis,
    }
    cores = {
        "token_parallel_core_dim": 1,
        "data_parallel_core_dim": 1,
        "worker_cores": [],
        "mux_core_range_set": _CORES,
    }
    return Given(operands, {**sizes, **cores})


@_entry("experimental.deepseek_moe_fast_reduce_nc_fused")
def _weighed_sum(mesh: ttnn.MeshDevice, axis: int) -> Given:
    operands = {
        "input_tensor": Like((2, 1, 3, 32), ttnn.bfloat16),
        "expert_indices_tensor": below(mesh.get_num_devices(), 3, 1, 1, 2, dtype=ttnn.uint16),
        "expert_mapping_tensor": _homes_by_view(mesh),
        "scores_tensor": _narrow(3, 1, 1, 2),
    }
    return Given(operands, {"reduce_dim": 0, "split_size": 32, "cluster_axis": axis})


@_entry("moe_routing_remap")
def _routing_remap(mesh: ttnn.MeshDevice, axis: int) -> Given:
    size = mesh.shape[axis]
    options = {"non_zero_weight_size": 2 * size, "expert_parallel_size": size, "cluster_axis": axis}
    return Given({"routing_weights_tensor": _narrow(1, 2 * size)}, options)


@_entry("moe_expert_token_remap")
def _token_remap(mesh: ttnn.MeshDevice, axis: int) -> Given:
    experts = 2 * mesh.get_num_devices()
    operands = {
        "topk_tensor": _narrow(1, 2, 3, experts),
        "expert_mapping_tensor": _homes(mesh, experts),
        "expert_metadata_tensor": below(experts, 1, 2, 3, 2, dtype=ttnn.uint16),
    }
    return Given(operands, {"reduction_size": 2})


@_entry("reduce_to_root")
def _merge(mesh: ttnn.MeshDevice, axis: int) -> Given:
    operands = {
        "input_tensor_l": Like((32, 64), ttnn.bfloat16),
        "input_tensor_s": Like((32, 32), ttnn.bfloat16, values="positive"),
        "input_tensor_m": Like((32, 32), ttnn.bfloat16),
    }
    return Given(operands, {"root_coord": _at(mesh, axis, 1)})
