"""TT-NN's minimal_matmul fused with an all_gather before or a reduce_scatter behind it: here, one after the other.

A gated addition, `addend + scalar * product * factor`, may come behind the product; where TT-NN rounds in between
is not documented, here only the result is.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from softmesh.collectives.async_collectives import (
    WORKERS,
    reduce_scatter_minimal_async,
    strided_all_gather_async,
)
from softmesh.collectives.overload_signatures import composite
from softmesh.collectives.ttnn_collectives import all_gather, route_of
from softmesh.errors import MeshError, NotModelled
from softmesh.hardware.memory_config import MemoryConfig
from softmesh.ops.data_movement.layout_conversion import copy
from softmesh.ops.data_movement.shape_ops import concat, split
from softmesh.ops.data_movement.slice_and_pad import pad
from softmesh.ops.matmul.matmul import fused_addcmul, matmul, minimal_matmul, piece_sizes
from softmesh.tensor.dtype import DataType
from softmesh.tensor.tensor import Tensor


def _check_gate(op: str, scalar: object, addend: object, factor: object) -> bool:
    """Whether a gated addition was asked for."""
    if addend is None and factor is None:
        return False
    if addend is None or factor is None or not isinstance(scalar, int | float):
        raise MeshError(f"{op}: a scalar and both tensors of addend + scalar * product * factor are given, or none.")
    return True


def _gated_product(
    op: str,
    a: Tensor,
    b: Tensor,
    gate: tuple[Any, Any, Any],
    options: dict[str, Any],
    config: MemoryConfig | None,
) -> Tensor:
    """The product under minimal_matmul's options; `gate` is (scalar, addend, factor)."""
    if not _check_gate(op, *gate):
        return _tensor(minimal_matmul(a, b, memory_config=config, **options))
    kind = options.get("dtype") or a.dtype
    product = minimal_matmul(a, b, **{**options, "dtype": DataType.FLOAT32})
    return fused_addcmul(_tensor(product), *gate, kind, config)


def _tensor(value: Any) -> Tensor:
    assert isinstance(value, Tensor)
    return value


def _pieces(op: str, product: Tensor, chunks: int | None, sizes: Any = ()) -> list[Tensor]:
    cuts = piece_sizes(op, product.shape[-1], 1 if chunks is None else chunks, list(sizes or ()))
    return [product] if len(cuts) == 1 else list(split(product, cuts, -1))


def _swiglu(given: dict[str, Any]) -> dict[str, Any]:
    return {"fused_activation": given.get("fused_activation"), "fuse_swiglu": bool(given.get("fuse_swiglu"))}


_SCATTER = "experimental.minimal_matmul_strided_reduce_scatter_async"


def _joined(parts: Sequence[Tensor]) -> Tensor:
    """Two tensors side by side, each with as many columns as its tiles have."""
    if len(parts) != 2 or not all(isinstance(part, Tensor) for part in parts):
        raise MeshError(
            f"list input must be exactly 2 tensors [prefix, suffix]: {_SCATTER} got {len(parts)}. Join others with "
            "ttnn.concat(tensors, -1)."
        )
    whole = [pad(part, [(0, part.padded_shape[-1] - part.shape[-1])], 0.0) for part in parts]
    return _tensor(concat(whole, -1))


@composite(
    _SCATTER,
    "input_tensor weight_tensor:tensor dim multi_device_global_semaphore reduce_scatter_core_grid_offset | "
    "compute_kernel_config num_links? memory_config_mm? rs_output_mem_config? rs_intermediate_mem_config? topology? "
    "cluster_axis? bias:tensor? fused_activation? config? barrier_semaphore? using_persistent_buffers? sub_device_id? "
    f"{WORKERS} chunk_width_in_mm_blocks? optional_rs_output_tensor:tensor? fused_ternary_scalar? "
    "addcmul_input_tensor1:tensor? addcmul_input_tensor2:tensor? dtype? mm_progress_counters? mm_window_blocks? "
    "mm_credit_counters?",
    writes="optional_rs_output_tensor",
)
def minimal_matmul_strided_reduce_scatter_async(
    input_tensor: Tensor | list[Tensor],
    weight_tensor: Tensor,
    dim: int,
    multi_device_global_semaphore: Any,
    cluster_axis: int | None = None,
    bias: Tensor | None = None,
    dtype: DataType | None = None,
    optional_rs_output_tensor: Tensor | None = None,
    **given: Any,
) -> list[Tensor]:
    """[the product, its sum over the group, dealt out along `dim`]; a gated addition is made of the latter.

    The input may be two tensors, [prefix, suffix], whose columns follow each other, each in whole tiles.
    """
    product = _tensor(
        minimal_matmul(
            _joined(input_tensor) if isinstance(input_tensor, list | tuple) else input_tensor,
            weight_tensor,
            bias_tensor=bias,
            fused_activation=given.get("fused_activation"),
            dtype=dtype,
            memory_config=given.get("memory_config_mm"),
        )
    )
    names = ("fused_ternary_scalar", "addcmul_input_tensor1", "addcmul_input_tensor2")
    scalar, addend, factor = (given.get(name) for name in names)
    is_gated = _check_gate(_SCATTER, scalar, addend, factor)
    target, config = optional_rs_output_tensor, given.get("rs_output_mem_config")
    total = _tensor(
        reduce_scatter_minimal_async(
            product,
            None,
            dim,
            multi_device_global_semaphore,
            cluster_axis=cluster_axis,
            memory_config=config,
            **route_of(given),
        )
    )
    made = total
    if is_gated:
        made = fused_addcmul(total, scalar, addend, factor, product.dtype, config)  # type: ignore[arg-type]
    return [product, made if target is None else copy(made, target)]


_STRIDED = "experimental.strided_all_gather_minimal_matmul_async"


@composite(
    _STRIDED,
    "input_tensor:tensor weight_tensor:tensor persistent_output_buffer? dim multi_device_global_semaphore "
    "strided_all_gather_core_grid_offset | num_links? memory_config_ag? topology? cluster_axis? bias:tensor? "
    f"fused_activation? config? memory_config_mm? compute_kernel_config? {WORKERS} read_local_slice_from_input? "
    "fused_ternary_input_a:tensor? fused_ternary_input_b:tensor? fused_ternary_scalar? chunks:int? "
    "mm_signal_aggregator_mode? fuse_swiglu?",
    receives="persistent_output_buffer",
)
def strided_all_gather_minimal_matmul_async(
    input_tensor: Tensor,
    weight_tensor: Tensor,
    dim: int,
    multi_device_global_semaphore: Any,
    persistent_output_buffer: Tensor | None = None,
    cluster_axis: int | None = None,
    bias: Tensor | None = None,
    chunks: int | None = None,
    **given: Any,
) -> list[Tensor]:
    """[the product of the gathered input and the weight, in `chunks` pieces; the gathered input]"""
    whole = _tensor(
        strided_all_gather_async(
            input_tensor,
            persistent_output_buffer,
            dim,
            multi_device_global_semaphore,
            cluster_axis=cluster_axis,
            memory_config=given.get("memory_config_ag"),
            **route_of(given),
        )
    )
    names = ("fused_ternary_scalar", "fused_ternary_input_a", "fused_ternary_input_b")
    scalar, addend, factor = (given.get(name) for name in names)
    options = {"bias_tensor": bias, **_swiglu(given)}
    product = _gated_product(
        _STRIDED, whole, weight_tensor, (scalar, addend, factor), options, given.get("memory_config_mm")
    )
    return [*_pieces(_STRIDED, product, chunks), whole]


_GATHER = "experimental.all_gather_minimal_matmul_async"


@composite(
    _GATHER,
    "input_tensor:tensor weight_tensor:tensor | bias_tensor:tensor? scalar? addcmul_input_tensor1:tensor? "
    "addcmul_input_tensor2:tensor? fused_activation? config? multi_device_global_semaphore topology? memory_config? "
    "dtype? compute_kernel_config? persistent_output_buffer? num_links? cluster_axis? barrier_semaphore? "
    f"force_transpose? {WORKERS} chunks:int? dim:int? fsdp_cluster_axis? fsdp_multi_device_global_semaphore? "
    "persistent_weight_buffer? fsdp_topology? fuse_swiglu? chunk_sizes:ints?",
    receives="persistent_output_buffer persistent_weight_buffer",
)
def all_gather_minimal_matmul_async(
    input_tensor: Tensor,
    weight_tensor: Tensor,
    bias_tensor: Tensor | None = None,
    dtype: DataType | None = None,
    persistent_output_buffer: Tensor | None = None,
    cluster_axis: int | None = None,
    chunks: int | None = None,
    dim: int = -1,
    **given: Any,
) -> list[Tensor]:
    """[the product of the input, gathered along its last dim, and the weight, in pieces along the last dim]"""
    if given.get("fsdp_cluster_axis") is not None:
        raise NotModelled(
            f"{_GATHER}: fsdp_cluster_axis is not modelled, the split of the weight is not documented: gather the "
            "weight first with ttnn.all_gather(weight, dim, cluster_axis=...)."
        )
    last = len(input_tensor.shape) - 1
    if dim not in (-1, last):
        raise MeshError(f"{_GATHER}: the result is cut along the last dim only, got dim={dim}.")
    whole = all_gather(
        input_tensor,
        last,
        cluster_axis=cluster_axis,
        output_tensor=persistent_output_buffer,
        **route_of(given),
    )
    gate = tuple(given.get(name) for name in ("scalar", "addcmul_input_tensor1", "addcmul_input_tensor2"))
    options = {"bias_tensor": bias_tensor, "dtype": dtype, **_swiglu(given)}
    product = _gated_product(_GATHER, whole, weight_tensor, gate, options, given.get("memory_config"))  # type: ignore[arg-type]
    return _pieces(_GATHER, product, chunks, given.get("chunk_sizes"))


@composite(
    "experimental.llama_all_gather_matmul_async",
    "input_tensor0:tensor input_tensor1:tensor intermediate_tensor dim cluster_axis mesh_device topology "
    "multi_device_global_semaphore | num_links? ag_memory_config? mm_memory_config? subdevice_id? program_config? "
    "compute_kernel_config? dtype? global_cb?",
    scratch="intermediate_tensor",
)
def llama_all_gather_matmul_async(
    input_tensor0: Tensor,
    input_tensor1: Tensor,
    intermediate_tensor: Tensor,
    dim: int,
    cluster_axis: int,
    dtype: DataType | None = None,
    **given: Any,
) -> Tensor:
    """The product of tensor 0, gathered along `dim`, and tensor 1.

    What is gathered is written into `intermediate_tensor` where that has its shape and dtype; otherwise that is
    scratch, of a form that TT-NN does not document, and stays as it was.
    """
    whole = all_gather(
        input_tensor0,
        dim,
        cluster_axis=cluster_axis,
        memory_config=given.get("ag_memory_config"),
        **route_of(given),
    )
    if list(intermediate_tensor.shape) == list(whole.shape) and intermediate_tensor.dtype is whole.dtype:
        copy(whole, intermediate_tensor)
    return _tensor(matmul(whole, input_tensor1, dtype=dtype, memory_config=given.get("mm_memory_config")))
