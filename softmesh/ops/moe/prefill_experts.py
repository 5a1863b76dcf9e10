"""Experts of DeepSeek's prefill on one device: their products, and the sum of what a token's experts answered."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from softmesh.arguments import checked, checked_all, checked_int, knows_its_names
from softmesh.dispatch.cost_rules import flops_per_element
from softmesh.dispatch.operand import Operand
from softmesh.dispatch.operation import OPERATIONS, operation
from softmesh.dispatch.plan import Local
from softmesh.errors import MeshError, NotModelled
from softmesh.ops.layout import clone
from softmesh.ops.matmul import linear, matmul
from softmesh.ops.moe.activations import RoutedExpertActivation
from softmesh.ops.moe.prefill_runs import extract, insert
from softmesh.placement import rules
from softmesh.tensor.dtype import DataType
from softmesh.tensor.tensor import Tensor

_REDUCE = "experimental.deepseek_prefill.post_combine_reduce"
_FFN = "experimental.deepseek_prefill.routed_expert_ffn"
_UNIFIED = "experimental.deepseek_prefill.unified_routed_expert_moe"
_A_TENSOR = "a ttnn.Tensor: make one with ttnn.from_torch(..., device=mesh_device)"


@operation(_REDUCE, cost=flops_per_element(2), controls="output_memory_config")
def post_combine_reduce(
    combine_output: Operand,
    weights: Operand,
    indices: Operand | None = None,
    expert_dispatch_table: Operand | None = None,
    *,
    expert_dim: int = 3,
) -> Local:
    """The sum over `expert_dim` of what a token's experts answered, each times its weight; that dim is dropped."""
    if indices is not None or expert_dispatch_table is not None:
        raise NotModelled(
            f"{_REDUCE}: indices and expert_dispatch_table are not modelled, their form is not documented: set the "
            "weights of experts that did not answer to 0."
        )
    rank, d = combine_output.rank, combine_output.dim(expert_dim, "expert_dim")
    if d != rank - 2:
        raise MeshError(
            f"{_REDUCE}: expert_dim={expert_dim} must be the last but one of {list(combine_output.shape)}."
        )
    slots = combine_output.shape[:-1]
    if weights.shape not in (slots, (*slots, 1)):
        raise MeshError(
            f"{_REDUCE}: weights {list(weights.shape)} must be {list(slots)}: one for each answer."
        )

    def compute(x: torch.Tensor, w: torch.Tensor, *_: None) -> torch.Tensor:
        factors = w if weights.rank == rank else w.unsqueeze(-1)
        used = torch.where(factors == 0, 0.0, x)  # what nobody wrote may be NaN
        return (used * factors).sum(-2)

    return Local(compute, rules.along({i: [(0, i), (1, i)] for i in range(d)}))


@knows_its_names
def routed_expert_ffn(
    x: Tensor,
    gate_proj: Tensor,
    up_proj: Tensor,
    down_proj: Tensor,
    *,
    compute_kernel_config: Any = None,
    output: Tensor | None = None,
) -> Tensor:
    """(silu(x @ gate) * (x @ up)) @ down, rounded once."""
    given = {"x": x, "gate_proj": gate_proj, "up_proj": up_proj, "down_proj": down_proj}
    for name, tensor in given.items():
        checked(_FFN, name, tensor, Tensor, _A_TENSOR)
    return _answered(
        x, (gate_proj, up_proj, down_proj), (None, None, None), RoutedExpertActivation.Silu, output
    )


def _answered(
    x: Tensor,
    matrices: tuple[Tensor, Tensor, Tensor],
    biases: Sequence[Tensor | None],
    activation: RoutedExpertActivation,
    output: Tensor | None = None,
) -> Tensor:
    gate, up = (
        linear(x, matrix, bias=bias, dtype=DataType.FLOAT32)
        for matrix, bias in zip(matrices[:2], biases[:2], strict=True)
    )
    between = OPERATIONS["multiply"](*_activated(gate, up, activation))
    if biases[2] is None:
        made = matmul(between, matrices[2], dtype=x.dtype, optional_output_tensor=output)
    else:
        made = linear(between, matrices[2], bias=biases[2], dtype=x.dtype, optional_output_tensor=output)
    assert isinstance(made, Tensor)
    return made


def _activated(gate: Any, up: Any, kind: RoutedExpertActivation) -> tuple[Any, Any]:
    """The two factors of what lies between the products."""
    if kind is RoutedExpertActivation.Silu:
        return OPERATIONS["silu"](gate), up
    if kind is RoutedExpertActivation.SwiGluOai:
        bounded = OPERATIONS["clamp"](gate, None, 7.0)
        slope = OPERATIONS["sigmoid"](OPERATIONS["multiply"](bounded, 1.702))
        raised = OPERATIONS["add"](OPERATIONS["clamp"](up, -7.0, 7.0), 1.0)
        return OPERATIONS["multiply"](bounded, slope), raised
    raise NotModelled(f"{_UNIFIED}: activation {kind} is not modelled, its constants are not documented.")


@knows_its_names
def unified_routed_expert_moe(
    dispatched_buffer: Tensor,
    expert_region_offsets: Tensor,
    expert_token_counts: Tensor,
    global_expert_idx_table: Tensor,
    gate_projs: Sequence[Tensor],
    up_projs: Sequence[Tensor],
    down_projs: Sequence[Tensor],
    max_dispatched_tokens_per_expert: int,
    *,
    compute_kernel_config: Any = None,
    activation: RoutedExpertActivation = RoutedExpertActivation.Silu,
    gate_biases: Sequence[Tensor] | None = None,
    up_biases: Sequence[Tensor] | None = None,
    down_biases: Sequence[Tensor] | None = None,
    min_active_tokens: int = 0,
    max_active_tokens: int = 4294967295,
) -> Tensor:
    """What each of a device's experts makes of its run of rows, in the place of those rows; the others stay.

    `min_active_tokens` and `max_active_tokens` choose between kernels, and change nothing here.
    """
    checked(_UNIFIED, "dispatched_buffer", dispatched_buffer, Tensor, _A_TENSOR)
    most = checked_int(_UNIFIED, "max_dispatched_tokens_per_expert", max_dispatched_tokens_per_expert)
    named = {"gate_projs": gate_projs, "up_projs": up_projs, "down_projs": down_projs}
    matrices = [checked_all(_UNIFIED, name, given, (Tensor,), "ttnn.Tensor") for name, given in named.items()]
    none: list[Tensor | None] = [None] * len(matrices[0])
    biases = [none if given is None else list(given) for given in (gate_biases, up_biases, down_biases)]
    if {*map(len, matrices), *map(len, biases)} != {len(none)}:
        raise MeshError(f"{_UNIFIED}: give equally many gate, up and down projections, and biases or none.")
    lists = (expert_region_offsets, expert_token_counts, global_expert_idx_table)
    result = clone(dispatched_buffer)
    for expert in range(len(none)):
        rows = extract(
            dispatched_buffer, *lists, local_expert_id=expert, max_dispatched_tokens_per_expert=most
        )
        gate, up, down = (some[expert] for some in matrices)
        answers = _answered(rows, (gate, up, down), [some[expert] for some in biases], activation)
        insert(result, answers, *lists, local_expert_id=expert)
    assert isinstance(result, Tensor)
    return result
