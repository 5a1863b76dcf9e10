"""The norm of images over groups of channels."""

from __future__ import annotations

import math

import torch

from softmesh.cores import CoreGrid
from softmesh.dispatch.cost_rules import flops_per_element
from softmesh.dispatch.operand import Operand
from softmesh.dispatch.operation import operation
from softmesh.dispatch.plan import Local
from softmesh.errors import MeshError
from softmesh.ops.vision.group_norm_params import columns_of, unpacked
from softmesh.placement import rules
from softmesh.tensor.dtype import Layout

_TUNING = "input_mask inplace num_out_blocks compute_kernel_config negative_mask use_welford"


@operation(cost=flops_per_element(8), controls="memory_config dtype", tuning=_TUNING, floats_only=True)
def group_norm(
    input_tensor: Operand,
    *,
    num_groups: int,
    epsilon: float = 1e-12,
    weight: Operand | None = None,
    bias: Operand | None = None,
    core_grid: CoreGrid | None = None,
    output_layout: Layout | None = None,
) -> Local:
    """[N, 1, H*W, C], normalised over the pixels and the channels of each of `num_groups` groups.

    Weight and bias hold C values, or those that `create_group_norm_weight_bias_rm` spread over the columns of a core
    grid. Masks only tell a chip where groups lie. The input keeps its values, also where TT-NN would overwrite it.
    """
    if input_tensor.rank != 4 or num_groups < 1 or input_tensor.shape[-1] % num_groups:
        raise MeshError(
            f"group_norm: num_groups={num_groups} must divide the channels of input_tensor "
            f"{list(input_tensor.shape)}, [N, 1, H*W, C] on each device."
        )
    channels = input_tensor.shape[-1]
    grids = [columns_of("group_norm", operand, channels, core_grid) for operand in (weight, bias)]
    ranks = [0 if operand is None else operand.rank for operand in (weight, bias)]

    def row(values: torch.Tensor, which: int) -> torch.Tensor:
        found = unpacked(values, ranks[which], channels, grids[which])
        return found.reshape(*found.shape[:-1], 1, 1, 1, channels)

    def compute(x: torch.Tensor, w: torch.Tensor | None, b: torch.Tensor | None) -> torch.Tensor:
        groups = x.unflatten(-1, (num_groups, -1))
        centred = groups - groups.mean((-4, -3, -1), keepdim=True)
        result = centred * torch.rsqrt(centred.square().mean((-4, -3, -1), keepdim=True) + epsilon)
        result = result.flatten(-2)
        result = result if w is None else result * row(w, 0)
        return result if b is None else result + row(b, 1)

    layouts = None if output_layout is None else (output_layout,)
    return Local(compute, _rule, layouts=layouts)


def _rule(at: rules.Situation) -> rules.Placement:
    """Split by image or, with as many groups on each device, by channels; weights by channels alike."""
    rules.refuse_partial(at)
    last = len(at.out_shape) - 1
    found: set[rules.Placement] = set()
    if isinstance(at.word, rules.Shard):
        found.add(
            at.word if at.word.dim == 0 or (at.word.dim == last and at.word.size is None) else rules.LOCAL
        )
    for word, shape in zip(at.words[1:], at.shapes[1:], strict=True):
        if isinstance(word, rules.Shard) and shape is not None:
            in_order = math.prod(shape[: word.dim]) == 1 and word.size is None
            found.add(rules.Shard(last) if in_order else rules.LOCAL)
    return found.pop() if len(found) == 1 else rules.LOCAL
