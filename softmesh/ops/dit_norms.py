"""Norms as diffusion transformers call them; their values are those of rms_norm and layer_norm."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, cast

import torch

from softmesh.dispatch.cost_rules import flops_per_element
from softmesh.dispatch.operand import Operand
from softmesh.dispatch.operation import OPERATIONS, operation
from softmesh.dispatch.plan import Local
from softmesh.hardware import UnaryWithParam
from softmesh.ops.activation import activation_function
from softmesh.ops.normalization import rms_norm
from softmesh.placement import rules
from softmesh.tensor.dtype import DataType

_FUSED = "experimental.dit_rms_norm_unary_fused"
_BEFORE = "experimental.dit_layernorm_pre_allgather"
_AFTER = "experimental.dit_layernorm_post_allgather"


def _definition(name: str) -> Callable[..., Local]:
    return OPERATIONS[name].definition.define


@operation(
    _FUSED,
    cost=flops_per_element(8),
    controls="memory_config",
    floats_only=True,
    tuning="program_config compute_kernel_config",
)
def dit_rms_norm_unary_fused(
    input_tensor: Operand,
    epsilon: float = 1e-5,
    weight: Operand | None = None,
    bias: Operand | None = None,
    residual_input_tensor: Operand | None = None,
    *,
    activation: UnaryWithParam | str | None = None,
) -> Local:
    """rms_norm, then an activation of the result."""
    local = rms_norm.definition.define(
        input_tensor,
        epsilon=epsilon,
        weight=weight,
        bias=bias,
        residual_input_tensor=residual_input_tensor,
    )
    if activation is None:
        return local
    function = activation_function(activation, _FUSED)
    return replace(local, compute=lambda *operands: function(local.compute(*operands)))


@operation(_BEFORE, cost=flops_per_element(2), controls="memory_config", tuning="compute_kernel_config")
def dit_layernorm_pre_allgather(
    input_tensor: Operand, recip_tensor: Operand, *, dtype: DataType = DataType.BFLOAT16
) -> Local:
    """This device's share of the statistics of a layer norm, as layer_norm_pre_all_gather has them.

    `recip_tensor` only helps the chip to add them up; what TT-NN's two columns hold is not known.
    """
    local = _definition("layer_norm_pre_all_gather")(input_tensor, dtype=dtype)

    def compute(x: torch.Tensor, recip: torch.Tensor) -> Any:
        return local.compute(x, None)

    def rule(at: rules.Situation) -> rules.Placement:
        alone = at._replace(words=(at.word, None), shapes=(at.shape, None))
        return at.word if at.word is rules.REPLICATE else cast(rules.Placement, local.rule(alone))

    return replace(local, compute=compute, rule=rule)


@operation(_AFTER, cost=flops_per_element(4), controls="memory_config dtype", tuning="compute_kernel_config")
def dit_layernorm_post_allgather(
    input_tensor: Operand,
    stats: Operand,
    *,
    epsilon: float = 1e-5,
    weight: Operand | None = None,
    bias: Operand | None = None,
) -> Local:
    """layer_norm of a row that is split over devices, from the gathered statistics."""
    define = _definition("layer_norm_post_all_gather")
    return define(input_tensor, stats, epsilon=epsilon, weight=weight, bias=bias)
