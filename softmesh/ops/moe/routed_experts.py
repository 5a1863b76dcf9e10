"""Routed experts on one device: their activations, the rows of each, the FFN, and the sum of a token's experts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.nn import functional

from softmesh.arguments import checked, checked_all, checked_int, reject_unknown_keywords
from softmesh.dispatch.cost_rules import flops_per_element, moves_bytes
from softmesh.dispatch.operand import Operand
from softmesh.dispatch.operation import OPERATIONS, operation
from softmesh.dispatch.plan import Local
from softmesh.errors import MeshError, NotModelled
from softmesh.hardware.enums import NativeEnum
from softmesh.kinds import Kind
from softmesh.ops.data_movement.layout_conversion import clone
from softmesh.ops.golden import golden_matmul_and_moe as golden
from softmesh.ops.golden.golden_functions import with_reference
from softmesh.ops.matmul.matmul import linear, matmul
from softmesh.placement import dim_labels, rules
from softmesh.tensor.broadcasting import broadcast_shapes
from softmesh.tensor.dtype import DataType, Layout
from softmesh.tensor.tensor import Tensor

# -- activations between an expert's two products: functions of x @ w0 and x @ w1 --------------------


Gating = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
_SWIGLU_SLOPE = 1.702  # GPT-OSS's
_SWIGLU_LIMIT = 7.0


class MoEActivationFunction(NativeEnum):
    """What moe_compute makes of x @ w0 and x @ w1."""

    SILU = 0
    SWIGLU = 1
    GELU = 2
    CLAMPED_SILU = 3


class RoutedExpertActivation(NativeEnum):
    """The same of the prefill ops."""

    Silu = 0
    SwiGluOai = 1
    SituGlu = 2
    ClampedSiluGlu = 3


def _silu(gate: torch.Tensor, up: torch.Tensor) -> torch.Tensor:
    return functional.silu(gate) * up


def _gelu(gate: torch.Tensor, up: torch.Tensor) -> torch.Tensor:
    return functional.gelu(gate) * up


def _clamped(limit: float) -> Gating:
    return lambda gate, up: functional.silu(gate.clamp(max=limit)) * up.clamp(-limit, limit)


def _swiglu(limit: float) -> Gating:
    def gated(gate: torch.Tensor, up: torch.Tensor) -> torch.Tensor:
        bounded = gate.clamp(max=limit)
        return bounded * torch.sigmoid(_SWIGLU_SLOPE * bounded) * (up.clamp(-limit, limit) + 1)

    return gated


def gating(op: str, kind: MoEActivationFunction | None, limit: float | None) -> Gating:
    """f(x @ w0, x @ w1); SILU without a choice. `limit` is that of the forms that cut values off."""
    if limit is not None and not limit > 0:
        raise MeshError(f"{op}: activation_limit must be positive, got {limit}.")
    if kind is None or kind is MoEActivationFunction.SILU:
        return _silu
    if kind is MoEActivationFunction.GELU:
        return _gelu
    if kind is MoEActivationFunction.SWIGLU:
        return _swiglu(_SWIGLU_LIMIT if limit is None else limit)
    if limit is None:
        raise MeshError(f"{op}: {kind} cuts values off at activation_limit: give it, 10.0 for example.")
    return _clamped(limit)


# -- the rows of one expert --------------------------------------------------------------------------
#
# Of a tensor that all experts of a device share, each has as many rows as tokens chose it. `start` and `counts`
# have an entry for every expert of the model; `global_expert_idx_table` says which of them a device has. The
# forms are read from TT-NN's names; it does not document them.


_EXTRACT = "experimental.deepseek_prefill.extract"
_INSERT = "experimental.deepseek_prefill.insert"


def _check_lists(op: str, start: Operand, counts: Operand, table: Operand, local: int) -> None:
    for operand in (start, counts, table):
        if operand.is_float:
            raise MeshError(f"{op}: {operand.name} holds integers, got {operand.dtype}.")
    if start.spec.logical_volume() != counts.spec.logical_volume():
        raise MeshError(f"{op}: start {list(start.shape)} and counts {list(counts.shape)} must have one length.")
    if not 0 <= local < table.spec.logical_volume():
        raise MeshError(
            f"{op}: local_expert_id={local}, and a device has {table.spec.logical_volume()} experts in "
            "global_expert_idx_table."
        )


def _run(
    op: str, start: torch.Tensor, counts: torch.Tensor, table: torch.Tensor, local: int, lead: int, most: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """(*axes, 1) each: the first row of the expert's run, and its length."""
    axes = broadcast_shapes(start.shape[:lead], counts.shape[:lead], table.shape[:lead])
    firsts, lengths = (part.flatten(lead).expand(*axes, -1) for part in (start, counts))
    expert = table.flatten(lead)[..., local : local + 1].long().expand(*axes, 1)
    if expert.numel() and int(expert.max()) >= firsts.shape[-1]:
        raise MeshError(f"{op}: the table names expert {int(expert.max())}, and start has {firsts.shape[-1]}.")
    first, length = firsts.gather(-1, expert).long(), lengths.gather(-1, expert).long()
    if length.numel() and int(length.max()) > most:
        raise MeshError(f"{op}: an expert has {int(length.max())} tokens, and there is room for {most}.")
    return first, length


@operation(_EXTRACT, kind=Kind.MOVEMENT, rule=rules.opaque, cost=moves_bytes, precision="data", controls="")
def extract(
    global_tensor: Operand,
    start: Operand,
    counts: Operand,
    global_expert_idx_table: Operand,
    *,
    local_expert_id: int,
    max_dispatched_tokens_per_expert: int,
) -> Local:
    """The rows of one expert, [..., max_dispatched_tokens_per_expert, hidden]; behind its own, zeros."""
    rows, most = global_tensor.shape[-2], max_dispatched_tokens_per_expert
    _check_lists(_EXTRACT, start, counts, global_expert_idx_table, local_expert_id)
    if most < 1:
        raise MeshError(f"{_EXTRACT}: max_dispatched_tokens_per_expert must be 1 or more, got {most}.")

    def compute(x: torch.Tensor, first: torch.Tensor, length: torch.Tensor, table: torch.Tensor) -> torch.Tensor:
        lead = x.dim() - global_tensor.rank
        begin, size = _run(_EXTRACT, first, length, table, local_expert_id, lead, most)
        place = torch.arange(most, device=x.device)
        is_one = place < size
        if bool(((begin + size) > rows).any()):
            raise MeshError(f"{_EXTRACT}: a run of rows leaves the {rows} rows of global_tensor.")
        axes = broadcast_shapes(x.shape[:lead], is_one.shape[:-1])
        middle = (1,) * (global_tensor.rank - 2)
        index = torch.where(is_one, begin + place, 0).expand(*axes, most).reshape(*axes, *middle, most, 1)
        held = x.expand(*axes, *x.shape[lead:])
        found = held.gather(-2, index.expand(*held.shape[:-2], most, held.shape[-1]))
        return torch.where(is_one.expand(*axes, most).reshape(index.shape), found, found.new_zeros(()))

    return Local(compute)


@operation(
    _INSERT,
    kind=Kind.MOVEMENT,
    rule=rules.opaque,
    cost=moves_bytes,
    precision="data",
    controls="",
    patches="global_tensor",
)
def insert(
    global_tensor: Operand,
    local_tensor: Operand,
    start: Operand,
    counts: Operand,
    global_expert_idx_table: Operand,
    *,
    local_expert_id: int,
) -> Local:
    """Write the rows of one expert back into `global_tensor`, which is returned."""
    rows, room = global_tensor.shape[-2], local_tensor.shape[-2]
    _check_lists(_INSERT, start, counts, global_expert_idx_table, local_expert_id)
    if global_tensor.rank != local_tensor.rank or (
        (*global_tensor.shape[:-2], global_tensor.shape[-1]) != (*local_tensor.shape[:-2], local_tensor.shape[-1])
    ):
        raise MeshError(
            f"{_INSERT}: local_tensor {list(local_tensor.shape)} and global_tensor {list(global_tensor.shape)} must "
            "agree in all dims but the rows."
        )

    def compute(
        x: torch.Tensor, own: torch.Tensor, first: torch.Tensor, length: torch.Tensor, table: torch.Tensor
    ) -> torch.Tensor:
        lead = x.dim() - global_tensor.rank
        begin, size = _run(_INSERT, first, length, table, local_expert_id, lead, room)
        place = torch.arange(rows, device=x.device) - begin
        is_one = (place >= 0) & (place < size)
        middle = (1,) * (global_tensor.rank - 2)
        shape = (*x.shape[:lead], *middle, rows, 1)
        where = is_one.expand(*x.shape[:lead], rows).reshape(shape)
        index = torch.where(where, place.expand(*x.shape[:lead], rows).reshape(shape), 0)
        given = own.expand(*x.shape[:lead], *own.shape[lead:]).gather(-2, index.expand(x.shape))
        return x.copy_(torch.where(where, given.to(x.dtype), x))

    return Local(compute)


_REDUCE = "experimental.deepseek_prefill.post_combine_reduce"
_FFN = "experimental.deepseek_prefill.routed_expert_ffn"
_UNIFIED = "experimental.deepseek_prefill.unified_routed_expert_moe"
_A_TENSOR = "a ttnn.Tensor: make one with ttnn.from_torch(..., device=mesh_device)"


@operation(
    _REDUCE,
    kind=Kind.MOVEMENT,
    rule=rules.along,
    cost=flops_per_element(2),
    controls="output_memory_config",
    reads="combine_output",
)
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
        raise MeshError(f"{_REDUCE}: expert_dim={expert_dim} must be the last but one of {list(combine_output.shape)}.")
    slots = combine_output.shape[:-1]
    if weights.shape not in (slots, (*slots, 1)):
        raise MeshError(f"{_REDUCE}: weights {list(weights.shape)} must be {list(slots)}: one for each answer.")

    def compute(x: torch.Tensor, w: torch.Tensor, *_: None) -> torch.Tensor:
        factors = w if weights.rank == rank else w.unsqueeze(-1)
        used = torch.where(factors == 0, 0.0, x)  # what nobody wrote may be NaN
        return (used * factors).sum(-2)

    return Local(compute, rules.along({i: [(0, i), (1, i)] for i in range(d)}))


@reject_unknown_keywords
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
    return _expert_output(x, (gate_proj, up_proj, down_proj), (None, None, None), RoutedExpertActivation.Silu, output)


def _expert_output(
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


@reject_unknown_keywords
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
        rows = extract(dispatched_buffer, *lists, local_expert_id=expert, max_dispatched_tokens_per_expert=most)
        gate, up, down = (some[expert] for some in matrices)
        answers = _expert_output(rows, (gate, up, down), [some[expert] for some in biases], activation)
        insert(result, answers, *lists, local_expert_id=expert)
    assert isinstance(result, Tensor)
    return result


# -- the outputs of a token's experts, added up ------------------------------------------------------


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
    kind=Kind.MOVEMENT,
    rule=rules.reducing,
    cost=flops_per_element(1),
    controls="output_memory_config",
    tuning="compute_kernel_config",
    needs_tile=True,
    results="list[Tensor]",
)
@with_reference(golden.fast_reduce)
def deepseek_moe_fast_reduce_nc(input_tensor: Operand, dim: int, *, split_size: int) -> Local:
    """The sum over `dim`, which stays with an extent of 1, cut along the last dim into pieces of `split_size`."""
    d = check_split(_SUM, input_tensor, dim, split_size)
    at = d - input_tensor.rank
    summed = rules.reducing("sum", [d], keepdim=True)
    last, pieces = input_tensor.rank - 1, input_tensor.shape[-1] // split_size

    @rules.labelled_each(
        dim_labels.moved(lambda dim: None if dim == d or (dim == last and pieces > 1) else dim, sums={d: "sum"})
    )
    def rule(situation: rules.Situation) -> Sequence[rules.Placement]:
        word = summed(situation)
        is_cut = isinstance(word, rules.Shard) and word.dim == last and pieces > 1
        return [rules.LOCAL if is_cut else word] * pieces

    def compute(x: torch.Tensor) -> list[torch.Tensor]:
        return list(x.sum(at, keepdim=True).split(split_size, -1))

    return Local(compute, rule)


@operation(
    "experimental.deepseek_moe_post_combine_tilize",
    kind=Kind.MOVEMENT,
    rule=rules.keeping,
    cost=moves_bytes,
    precision="data",
    controls="output_memory_config",
)
@with_reference(golden.post_combine_tilize)
def deepseek_moe_post_combine_tilize(input_tensor: Operand) -> Local:
    """Rows, as they come of combining, to tiles."""
    if input_tensor.layout is not Layout.ROW_MAJOR:
        raise MeshError(
            f"experimental.deepseek_moe_post_combine_tilize: takes ROW_MAJOR, got {input_tensor.layout}: it is tiled."
        )
    return Local(lambda x: x, layouts=(Layout.TILE,))
