"""Parts of a batch: some replaced, or all added up."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from softmesh.broadcasting import broadcast_shapes
from softmesh.dispatch.cost_rules import flops_per_element, moves_bytes
from softmesh.dispatch.operand import Operand
from softmesh.dispatch.operation import operation
from softmesh.dispatch.plan import Local
from softmesh.errors import MeshError
from softmesh.hardware.memory_config import DRAM_MEMORY_CONFIG
from softmesh.placement import rules

_SUM = "experimental.fast_reduce_nc"


@operation(cost=moves_bytes, precision="data", controls="memory_config")
def indexed_fill(
    batch_id: Operand, input_tensor_a: Operand, input_tensor_b: Operand, *, dim: int = 0
) -> Local:
    """a, with the entries that `batch_id` names along `dim` replaced by those of b, in their order."""
    a, b = input_tensor_a, input_tensor_b
    d = a.dim(dim)
    count = batch_id.spec.logical_volume()
    if batch_id.is_float or count != batch_id.shape[-1]:
        raise MeshError(
            f"indexed_fill: batch_id {list(batch_id.shape)} {batch_id.dtype} must be one row of integers."
        )
    if a.dtype is not b.dtype or b.shape != (*a.shape[:d], count, *a.shape[d + 1 :]):
        raise MeshError(
            f"indexed_fill: input_tensor_b {list(b.shape)} {b.dtype} must be like input_tensor_a {list(a.shape)} "
            f"{a.dtype}, with {count} entries along dim {dim}, one for each of batch_id."
        )
    at, extent = d - a.rank, a.shape[d]

    def compute(ids: torch.Tensor, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        lead = a.dim() - len(input_tensor_a.shape)
        if int(ids.max()) >= extent or int(ids.min()) < 0:
            raise MeshError(
                f"indexed_fill: batch_id names {int(ids.max())}, and dim {dim} of input_tensor_a has {extent}."
            )
        axes = broadcast_shapes(ids.shape[:lead], a.shape[:lead], b.shape[:lead])
        where = ids.reshape(
            *ids.shape[:lead], *(count if i == d else 1 for i in range(a.dim() - lead))
        ).long()
        whole, new = (x.expand(*axes, *x.shape[lead:]) for x in (a, b))
        return whole.scatter(at, where.expand(new.shape), new)

    def rule(situation: rules.Situation) -> rules.Placement:
        """What is replaced is the same on every device that holds a slice along another dim."""
        if situation.words[0] is not rules.REPLICATE:
            return rules.opaque(situation)
        return rules.among(situation, (1, 2), rules.resizing([d]))

    return Local(compute, rule, dtypes=(a.dtype,), layouts=(a.layout,))


@operation(
    _SUM,
    cost=flops_per_element(1),
    controls="memory_config output",
    tuning="compute_kernel_config sub_core_grids",
    needs_tile=True,
)
def fast_reduce_nc(input: Operand, *, dims: Sequence[int] = ()) -> Local:
    """The sum over dims in front of the last two, which stay with an extent of 1."""
    if not dims:
        raise MeshError(f"fast_reduce_nc dims should not be empty: {_SUM} sums over the dims that are named.")
    summed = input.dims(list(dims), "dims")
    if any(d >= input.rank - 2 for d in summed):
        raise MeshError(
            f"{_SUM}: dims={list(dims)} of {list(input.shape)} must lie in front of the last two; ttnn.sum takes those."
        )
    backward = [d - input.rank for d in summed]
    rule = rules.reducing("sum", summed, keepdim=True)
    return Local(lambda x: x.sum(backward, keepdim=True), rule, memory_config=DRAM_MEMORY_CONFIG)
