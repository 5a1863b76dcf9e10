"""Collectives that TT-NN runs together with what comes before or after them: here, one after the other."""

from __future__ import annotations

from typing import Any

from softmesh.collectives.asynchronous import all_gather_async
from softmesh.collectives.core import reduce_scatter
from softmesh.collectives.reductions import reduce_scatter_minimal_async
from softmesh.collectives.spelling import composite
from softmesh.errors import MeshError
from softmesh.hardware.memory_config import MemoryConfig
from softmesh.ops.matmul import linear
from softmesh.ops.movement import concat
from softmesh.tensor.tensor import Tensor

_MATMUL = (
    "memory_config_mm? transpose_a? transpose_b? dtype? program_config? activation? compute_kernel_config? "
    "core_grid?"
)


def _route(given: dict[str, Any]) -> dict[str, Any]:
    return {name: given.get(name) for name in ("topology", "num_links")}


def _product(a: Tensor, b: Tensor, given: dict[str, Any]) -> Tensor:
    names = ("bias", "transpose_a", "transpose_b", "dtype", "activation", "program_config", "core_grid")
    chosen = {name: given[name] for name in names if given.get(name) is not None}
    return linear(a, b, memory_config=given.get("memory_config_mm"), **chosen)


@composite(
    "experimental.all_gather_matmul_async",
    "input_tensor weight_tensor persistent_output_buffer? dim multi_device_global_semaphore "
    "all_gather_core_grid_offset | bias? num_links? memory_config_ag? topology? barrier_semaphore? subdevice_id? "
    f"{_MATMUL} chunks_per_sync? num_workers_per_link? num_buffers_per_channel?",
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
        **_route(given),
    )
    return [whole, _product(whole, weight_tensor, given)]


@composite(
    "experimental.matmul_reduce_scatter_async",
    "input_tensor weight_tensor persistent_intermediate_buffer persistent_output_buffer dim "
    "multi_device_global_semaphore reduce_scatter_core_grid_offset | barrier_semaphore? bias? num_links? "
    f"memory_config_rs? intermediate_memory_config_rs? topology? subdevice_id? {_MATMUL}",
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
        **_route(given),
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
    return reduce_scatter(
        whole, dim, cluster_axis=cluster_axis, memory_config=output_memory_config, **_route(given)
    )


@composite(
    "experimental.llama_reduce_scatter",
    "input_tensor intermediate_packet_buffer dim cross_device_semaphore subdevice_id cluster_axis mesh_device | "
    "num_links? memory_config? topology? use_noc1_only?",
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
    return reduce_scatter(
        input_tensor, dim, cluster_axis=cluster_axis, memory_config=memory_config, **_route(given)
    )
