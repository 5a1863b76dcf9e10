"""The answers of a token's experts, added up."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from softmesh.dispatch.cost_rules import flops_per_element, moves_bytes
from softmesh.dispatch.operand import Operand
from softmesh.dispatch.operation import operation
from softmesh.dispatch.plan import Local
from softmesh.errors import MeshError
from softmesh.placement import rules
from softmesh.tensor.dtype import Layout

_SUM = "experimental.deepseek_moe_fast_reduce_nc"


def check_split(op: str, operand: Operand, dim: int, split_size: int, name: str = "dim") -> int:
    """The dim that is summed, counted from the front; the pieces of the last one must come out even."""
    d = operand.dim(dim, name)
    if d >= operand.rank - 2:
        raise MeshError(f"{op}: {name}={dim} of {list(operand.shape)} must lie in front of the last two.")
    if split_size < 1 or operand.shape[-1] % split_size:
        raise MeshError(
            f"{op}: split_size={split_size} must divide the last dim of {operand.name} {list(operand.shape)}."
        )
    return d


@operation(
    _SUM,
    cost=flops_per_element(1),
    controls="output_memory_config",
    tuning="compute_kernel_config",
    needs_tile=True,
)
def deepseek_moe_fast_reduce_nc(input_tensor: Operand, dim: int, *, split_size: int) -> Local:
    """The sum over `dim`, which stays with an extent of 1, cut along the last dim into pieces of `split_size`."""
    d = check_split(_SUM, input_tensor, dim, split_size)
    at = d - input_tensor.rank
    summed = rules.reducing("sum", [d], keepdim=True)
    last, pieces = input_tensor.rank - 1, input_tensor.shape[-1] // split_size

    def rule(situation: rules.Situation) -> Sequence[rules.Placement]:
        word = summed(situation)
        is_cut = isinstance(word, rules.Shard) and word.dim == last and pieces > 1
        return [rules.LOCAL if is_cut else word] * pieces

    def compute(x: torch.Tensor) -> list[torch.Tensor]:
        return list(x.sum(at, keepdim=True).split(split_size, -1))

    return Local(compute, rule)


@operation(
    "experimental.deepseek_moe_post_combine_tilize",
    cost=moves_bytes,
    precision="data",
    controls="output_memory_config",
)
def deepseek_moe_post_combine_tilize(input_tensor: Operand) -> Local:
    """Rows, as they come of combining, to tiles."""
    if input_tensor.layout is not Layout.ROW_MAJOR:
        raise MeshError(
            f"experimental.deepseek_moe_post_combine_tilize: takes ROW_MAJOR, got {input_tensor.layout}: it is tiled."
        )
    return Local(lambda x: x, rules.keeping, layouts=(Layout.TILE,))
