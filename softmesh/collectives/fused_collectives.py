"""Fused collectives of TT-NN: with a matmul, a concat or attention heads before or behind; here one after the other."""

from __future__ import annotations

from typing import Any

from softmesh.collectives.async_collectives import all_gather_async, reduce_scatter_minimal_async
from softmesh.collectives.overload_signatures import composite
from softmesh.collectives.ttnn_collectives import all_gather, all_reduce, reduce_scatter, route_of
from softmesh.errors import MeshError
from softmesh.hardware.memory_config import DRAM_MEMORY_CONFIG, MemoryConfig
from softmesh.ops.attention.qkv_heads import nlp_concat_heads_decode, nlp_create_qkv_heads_decode
from softmesh.ops.data_movement.layout_conversion import typecast
from softmesh.ops.data_movement.shape_ops import concat
from softmesh.ops.matmul.matmul import linear
from softmesh.tensor.dtype import DataType
from softmesh.tensor.tensor import Tensor

_MATMUL = (
    "memory_config_mm? transpose_a? transpose_b? dtype? program_config? activation? compute_kernel_config? core_grid?"
)


def _product(a: Tensor, b: Tensor, given: dict[str, Any]) -> Tensor:
    names = ("bias", "transpose_a", "transpose_b", "dtype", "activation", "program_config", "core_grid")
    chosen = {name: given[name] for name in names if given.get(name) is not None}
    return linear(a, b, memory_config=given.get("memory_config_mm"), **chosen)


@composite(
    "experimental.all_gather_matmul_async",
    "input_tensor weight_tensor persistent_output_buffer? dim multi_device_global_semaphore "
    "all_gather_core_grid_offset | bias? num_links? memory_config_ag? topology? barrier_semaphore? subdevice_id? "
    f"{_MATMUL} chunks_per_sync? num_workers_per_link? num_buffers_per_channel?",
    receives="persistent_output_buffer",
)
def all_gather_matmul_async(
    input_tensor: Tensor,
    weight_tensor: Tensor,
    dim: int,
    multi_device_global_semaphore: Any,
    persistent_output_buffer: Tensor | None = None,
    memory_config_ag: MemoryConfig | None = None,
    **given: Any,
) -> list[Tensor]:
    """[the gathered input, its product with the weight]"""
    whole = all_gather_async(
        input_tensor,
        persistent_output_buffer,
        dim,
        multi_device_global_semaphore,
        memory_config=memory_config_ag,
        **route_of(given),
    )
    return [whole, _product(whole, weight_tensor, given)]


@composite(
    "experimental.matmul_reduce_scatter_async",
    "input_tensor weight_tensor persistent_intermediate_buffer persistent_output_buffer dim "
    "multi_device_global_semaphore reduce_scatter_core_grid_offset | barrier_semaphore? bias? num_links? "
    f"memory_config_rs? intermediate_memory_config_rs? topology? subdevice_id? {_MATMUL}",
    receives="persistent_output_buffer",
    scratch="persistent_intermediate_buffer",
)
def matmul_reduce_scatter_async(
    input_tensor: Tensor,
    weight_tensor: Tensor,
    persistent_intermediate_buffer: Tensor,
    persistent_output_buffer: Tensor,
    dim: int,
    multi_device_global_semaphore: Any,
    memory_config_rs: MemoryConfig | None = None,
    **given: Any,
) -> list[Tensor]:
    """[the product, its sum over the group, dealt out along `dim`]"""
    made = _product(input_tensor, weight_tensor, given)
    scattered = reduce_scatter_minimal_async(
        made,
        [persistent_intermediate_buffer, persistent_output_buffer],
        dim,
        multi_device_global_semaphore,
        memory_config=memory_config_rs,
        **route_of(given),
    )
    return [made, scattered]


@composite(
    "experimental.deepseek_moe_reduce_scatter",
    "input_tensors:tensors output_memory_config dim | num_links? topology? cluster_axis?",
)
def deepseek_moe_reduce_scatter(
    input_tensors: list[Tensor],
    output_memory_config: MemoryConfig,
    dim: int,
    cluster_axis: int | None = None,
    **given: Any,
) -> Tensor:
    """reduce_scatter of tensors that lie side by side along `dim`."""
    if not input_tensors:
        raise MeshError("deepseek_moe_reduce_scatter: input_tensors is empty: give at least one tensor.")
    whole = concat(input_tensors, dim) if len(input_tensors) > 1 else input_tensors[0]
    return reduce_scatter(whole, dim, cluster_axis=cluster_axis, memory_config=output_memory_config, **route_of(given))


@composite(
    "experimental.llama_reduce_scatter",
    "input_tensor intermediate_packet_buffer dim cross_device_semaphore subdevice_id cluster_axis mesh_device | "
    "num_links? memory_config? topology? use_noc1_only?",
    scratch="intermediate_packet_buffer",
)
def llama_reduce_scatter(
    input_tensor: Tensor,
    dim: int,
    cluster_axis: int,
    memory_config: MemoryConfig | None = None,
    **given: Any,
) -> Tensor:
    """reduce_scatter along the last of four dims."""
    if dim != 3:
        raise MeshError(f"llama_reduce_scatter: runs along dim 3 only, got dim={dim}.")
    return reduce_scatter(input_tensor, dim, cluster_axis=cluster_axis, memory_config=memory_config, **route_of(given))


# With the splitting or joining of attention heads.


@composite(
    "experimental.all_gather_concat",
    "input_tensor:tensor buffer_tensor dim cluster_axis mesh_device multi_device_global_semaphore num_heads:int "
    "memory_config | use_noc1_only? num_links? topology? subdevice_id?",
    scratch="buffer_tensor",
)
def all_gather_concat(
    input_tensor: Tensor,
    dim: int,
    cluster_axis: int,
    num_heads: int,
    memory_config: MemoryConfig,
    **given: Any,
) -> Tensor:
    """[1, users, heads, width] gathered along `dim`, then each user's heads side by side: [1, 1, users, features].

    `buffer_tensor` is scratch.
    """
    whole = all_gather(input_tensor, dim, cluster_axis=cluster_axis, **route_of(given))
    joined = nlp_concat_heads_decode(whole, num_heads=num_heads, memory_config=memory_config)
    assert isinstance(joined, Tensor)
    return joined


_REDUCE = "experimental.all_reduce_create_qkv_heads"


@composite(
    _REDUCE,
    "input_tensor:tensor buffer_tensor batch_offset:tensor cluster_axis mesh_device multi_device_global_semaphore "
    "num_heads:int | memory_config? topology? num_links? subdevice_id? num_kv_heads:int? slice_size:int? "
    "final_memory_config? dtype? use_noc1_only?",
    scratch="buffer_tensor",
)
def all_reduce_create_qkv_heads(
    input_tensor: Tensor,
    batch_offset: Tensor,
    cluster_axis: int,
    num_heads: int,
    memory_config: MemoryConfig | None = None,
    num_kv_heads: int | None = None,
    slice_size: int | None = None,
    final_memory_config: MemoryConfig | None = None,
    dtype: DataType | None = None,
    **given: Any,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """(the sum over the group, its queries, its keys, its values), in the form of nlp_create_qkv_heads_decode.

    With `slice_size` the heads are those of that many users, from `batch_offset` on. `buffer_tensor` is scratch.
    """
    total = all_reduce(input_tensor, cluster_axis=cluster_axis, memory_config=memory_config, **route_of(given))
    if dtype is not None and total.dtype is not dtype:
        total = typecast(total, dtype)
    users = {} if slice_size is None else {"batch_offset": batch_offset, "slice_size": slice_size}
    q, k, v = nlp_create_qkv_heads_decode(
        total, num_heads=num_heads, num_kv_heads=num_kv_heads, memory_config=final_memory_config, **users
    )
    return total, q, k, v


@composite(
    "experimental.llama_rs_create_heads",
    "input_tensor:tensor intermediate_packet_buffer dim cross_device_semaphore subdevice_id cluster_axis mesh_device "
    "topology | num_links? num_heads:int num_kv_heads:int memory_config? qkv_memory_config? use_noc1_only? "
    "use_optimal_ccl_for_llama?",
    scratch="intermediate_packet_buffer",
)
def llama_rs_create_heads(
    input_tensor: Tensor,
    dim: int,
    cluster_axis: int,
    num_heads: int,
    num_kv_heads: int,
    qkv_memory_config: MemoryConfig | None = None,
    **given: Any,
) -> tuple[Tensor, Tensor, Tensor]:
    """(queries, keys, values) of the sum over the group, [1, users, heads, width]: of its part of the users each.

    All heads stand side by side in dim 3, which the links carry in pieces. `intermediate_packet_buffer` is scratch.
    """
    if dim != 3:
        raise MeshError(f"llama_rs_create_heads: runs along dim 3 only, got dim={dim}.")
    own = reduce_scatter(
        input_tensor, 2, cluster_axis=cluster_axis, memory_config=DRAM_MEMORY_CONFIG, **route_of(given)
    )
    q, k, v = nlp_create_qkv_heads_decode(
        own, num_heads=num_heads, num_kv_heads=num_kv_heads, memory_config=qkv_memory_config
    )
    return q, k, v
