"""Distributed norms (rms_norm, layer_norm) of rows that are split over devices, fused into one call.

Statistics of each device, an all_gather of them, the norm. The forms of diffusion transformers (`dit_*`) may then
split the features into heads and rotate those. Without `cluster_axis` their rows are whole, and nothing is sent.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from softmesh.collectives.overload_signatures import composite
from softmesh.collectives.ttnn_collectives import all_gather, route_of
from softmesh.dispatch.operation import OPERATIONS
from softmesh.errors import MeshError, NotModelled
from softmesh.hardware.memory_config import DRAM_MEMORY_CONFIG
from softmesh.ops.data_movement.layout_conversion import copy
from softmesh.ops.data_movement.reshaping import reshape
from softmesh.ops.data_movement.shape_ops import permute
from softmesh.tensor.device_allocation import allocate_tensor_on_device
from softmesh.tensor.dtype import DataType, Layout
from softmesh.tensor.tensor import Tensor

_COLUMNS = {"rms_norm": 32, "layer_norm": 64}  # of each device's statistics
_ROPE = ("rope_cos", "rope_sin", "transformation_mat")
_FORM = (
    "input_tensor:tensor cluster_axis? mesh_device multi_device_global_semaphore | topology? epsilon? "
    "num_heads_per_device:int? {own} weight:tensor? bias:tensor? transformation_mat:tensor? rope_cos:tensor? "
    "rope_sin:tensor? dtype? persistent_output_buffer? num_preferred_links? subdevice_id? memory_config? "
    "compute_kernel_config? {more}"
)
_BUFFER_FORM = (
    "input_tensor:tensor cluster_axis? mesh_device | num_heads_per_device:int? {own} num_links? weight? "
    "transformation_mat? rope_cos? rope_sin?"
)


def _normed(op: str, norm: str, given: dict[str, Any]) -> Tensor:
    x, axis = given["input_tensor"], given.get("cluster_axis")
    kind = given.get("dtype")
    options = {
        "epsilon": given.get("epsilon", 1e-5),
        "weight": given.get("weight"),
        "bias": given.get("bias"),
    }
    if axis is None:
        made = OPERATIONS[norm](x, **options)
        made = made if kind is None or made.dtype is kind else OPERATIONS["typecast"](made, kind)
    else:
        route = {"topology": given.get("topology")}
        whole = _gathered_statistics(norm, x, axis, given.get("persistent_output_buffer"), route)
        made = OPERATIONS[f"{norm}_post_all_gather"](x, whole, dtype=kind, **options)
    return _rotated(op, _in_heads(op, made, given.get("num_heads_per_device") or 1), given)


def _gathered_statistics(norm: str, x: Tensor, axis: int, buffer: Tensor | None, route: dict[str, Any]) -> Any:
    kind = _stats_dtype(x) if buffer is None else buffer.dtype
    own = OPERATIONS[f"{norm}_pre_all_gather"](x, dtype=kind)
    return all_gather(own, len(own.shape) - 1, cluster_axis=axis, output_tensor=buffer, **route)


def _stats_dtype(x: Tensor) -> DataType:
    return DataType.FLOAT32 if x.dtype is DataType.FLOAT32 else DataType.BFLOAT16


def _in_heads(op: str, x: Any, heads: int) -> Any:
    """[b, 1, s, heads * width] -> [b, heads, s, width]"""
    if heads == 1:
        return x
    shape = list(x.shape)
    if len(shape) != 4 or shape[1] != 1 or heads < 1 or shape[3] % heads:
        raise MeshError(f"{op}: {shape} does not hold {heads} heads: it must be [b, 1, s, heads * width].")
    apart = reshape(x, [shape[0], shape[2], heads, shape[3] // heads])
    return permute(apart, [0, 2, 1, 3])


def _rotated(op: str, x: Any, given: dict[str, Any]) -> Tensor:
    parts = [given.get(name) for name in _ROPE]
    if any(part is not None for part in parts):
        if None in parts:
            raise MeshError(f"{op}: {', '.join(_ROPE)} are given together, or none of them.")
        x = OPERATIONS["experimental.rotary_embedding_llama"](x, *parts)
    config = given.get("memory_config")
    made = x if config is None else OPERATIONS["to_memory_config"](x, config)
    assert isinstance(made, Tensor)
    return made


def _register(norm: str, name: str, own: str, more: str) -> tuple[Callable[..., Any], Callable[..., Any]]:
    op = f"experimental.dit_fused_distributed_{name}"

    def whole(**given: Any) -> Tensor:
        for unknown in ("per_head_norm", "affine_tile_row_map"):
            if given.get(unknown):
                raise NotModelled(f"{op}: {unknown} is not modelled: norm the heads one by one with ttnn.{norm}.")
        return _normed(op, norm, given)

    def buffer(input_tensor: Tensor, cluster_axis: int | None = None, **tuning: Any) -> Tensor | None:
        """Room for the statistics of all devices, to be given as persistent_output_buffer; None without an axis."""
        mesh = input_tensor.device()
        if cluster_axis is None or mesh is None:
            return None
        width = _COLUMNS[norm] * mesh.shape[cluster_axis]
        shape = [*list(input_tensor.shape)[:-1], width]
        return allocate_tensor_on_device(shape, _stats_dtype(input_tensor), Layout.TILE, mesh, DRAM_MEMORY_CONFIG)

    whole.__doc__ = f"{norm} of rows that are split along `cluster_axis`, then heads and rotation."
    return (
        composite(op, _FORM.format(own=own, more=more), receives="persistent_output_buffer")(whole),
        composite(f"{op}_create_stats_buffer", _BUFFER_FORM.format(own=own))(buffer),
    )


dit_fused_distributed_rmsnorm, dit_fused_distributed_rmsnorm_create_stats_buffer = _register(
    "rms_norm", "rmsnorm", "per_head_norm?", "affine_tile_row_map?"
)
dit_fused_distributed_layernorm, dit_fused_distributed_layernorm_create_stats_buffer = _register(
    "layer_norm", "layernorm", "", "reciprocals?"
)


# The rms_norm of Llama's decode path: statistics, an all_gather of them, and the norm, in one call.


def _checked_statistics(rows: Tensor, stats: Tensor | None, config: Any) -> DataType:
    """The dtype in which sums are kept, which `stats` must have."""
    if stats is None:
        raise MeshError(
            "fused_rms_minimal requires a pre-allocated stats tensor: give stats=, a tensor of any shape on the mesh."
        )
    is_wide = rows.dtype is DataType.FLOAT32 if config is None else bool(config.fp32_dest_acc_en)
    wanted = DataType.FLOAT32 if is_wide else DataType.BFLOAT16
    if stats.dtype is not wanted:
        raise MeshError(
            f"stats tensor dtype ({stats.dtype}) must match the compute accumulation format; it is {wanted} with "
            f"fp32_dest_acc_en={is_wide} in compute_kernel_config."
        )
    return wanted


@composite(
    "fused_rms_minimal",
    "input_tensor:tensor program_config cluster_axis mesh_device global_semaphore:semaphores | "
    "persistent_output_tensor? num_links? topology? subdevice_id? dtype? compute_kernel_config? memory_config? "
    "residual_input_tensor:tensor? epsilon? weight:tensor? stats:tensor? use_noc1_only?",
    receives="persistent_output_tensor",
    updates="residual_input_tensor",
    scratch="stats",
)
def fused_rms_minimal(
    input_tensor: Tensor,
    cluster_axis: int,
    epsilon: float | None = None,
    dtype: DataType | None = None,
    residual_input_tensor: Tensor | None = None,
    weight: Tensor | None = None,
    stats: Tensor | None = None,
    persistent_output_tensor: Tensor | None = None,
    **given: Any,
) -> Tensor:
    """rms_norm of rows split along `cluster_axis`. `stats` is scratch, of any shape, in which the devices meet.

    A residual is added first, and written: `residual_input_tensor` holds the sum afterwards.
    """
    kind = _checked_statistics(input_tensor, stats, given.get("compute_kernel_config"))
    rows = input_tensor
    if residual_input_tensor is not None:
        rows = OPERATIONS["add"](input_tensor, residual_input_tensor, output_tensor=residual_input_tensor)
    own = OPERATIONS["rms_norm_pre_all_gather"](rows, dtype=kind)
    whole = all_gather(own, len(own.shape) - 1, cluster_axis=cluster_axis, **route_of(given))
    normed = OPERATIONS["rms_norm_post_all_gather"](
        rows,
        whole,
        epsilon=1e-12 if epsilon is None else epsilon,
        weight=weight,
        dtype=dtype,
        memory_config=given.get("memory_config"),
    )
    return normed if persistent_output_tensor is None else copy(normed, persistent_output_tensor)
