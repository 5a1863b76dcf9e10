"""rms_norm of rows that are split over devices, in one call: statistics, an all_gather of them, and the norm."""

from __future__ import annotations

from typing import Any

from softmesh.collectives.core import all_gather
from softmesh.collectives.spelling import composite
from softmesh.dispatch.operation import OPERATIONS
from softmesh.ops.layout import copy
from softmesh.tensor.dtype import DataType
from softmesh.tensor.tensor import Tensor


@composite(
    "fused_rms_minimal",
    "input_tensor:tensor program_config cluster_axis mesh_device global_semaphore:semaphores | "
    "persistent_output_tensor? num_links? topology? subdevice_id? dtype? compute_kernel_config? memory_config? "
    "residual_input_tensor:tensor? epsilon? weight:tensor? stats:tensor? use_noc1_only?",
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
    """rms_norm of rows split along `cluster_axis`; the statistics of all devices go into `stats`, where it is given.

    A residual is added first, and written: `residual_input_tensor` holds the sum afterwards.
    """
    rows = input_tensor
    if residual_input_tensor is not None:
        rows = OPERATIONS["add"](input_tensor, residual_input_tensor, output_tensor=residual_input_tensor)
    kind = DataType.FLOAT32 if rows.dtype is DataType.FLOAT32 else DataType.BFLOAT16
    own = OPERATIONS["rms_norm_pre_all_gather"](rows, dtype=kind if stats is None else stats.dtype)
    route = {name: given.get(name) for name in ("topology", "num_links")}
    whole = all_gather(own, len(own.shape) - 1, cluster_axis=cluster_axis, output_tensor=stats, **route)
    normed = OPERATIONS["rms_norm_post_all_gather"](
        rows,
        whole,
        epsilon=1e-12 if epsilon is None else epsilon,
        weight=weight,
        dtype=dtype,
        memory_config=given.get("memory_config"),
    )
    return normed if persistent_output_tensor is None else copy(normed, persistent_output_tensor)
