"""sparse_matmul: products of blocks of tokens and experts, only those that a sparsity tensor marks."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch

from softmesh.dispatch.cost_rules import matmul_cost
from softmesh.dispatch.operand import Operand
from softmesh.dispatch.operation import operation
from softmesh.dispatch.plan import Local
from softmesh.errors import MeshError
from softmesh.hardware.memory_config import DRAM_MEMORY_CONFIG
from softmesh.hardware.program_configs import MatmulProgramConfig
from softmesh.kinds import Kind
from softmesh.ops.elementwise.activations import activation_function
from softmesh.ops.matmul.block_checks import check_blocks
from softmesh.ops.matmul.sparse_output import check_output, find_packing, packed
from softmesh.ops.operand_checks import check_four_dims
from softmesh.placement import dim_labels, rules
from softmesh.tensor.broadcasting import broadcast_shapes
from softmesh.tensor.dtype import TILE_SIZE, DataType, Layout

_A, _B, _MARKS, _BIAS = range(4)


Dims = dict[int, Sequence[tuple[int, int | None]]]


class _Form(NamedTuple):
    """`batch` is the shape in front of the result's matrices, one mark for each; `dims[d]` has for each of its dims
    the pairs (operand, dim) that it runs along."""

    batch: tuple[int, ...]
    marks: tuple[int, ...]
    dims: Dims


def _form(a: Operand, b: Operand, a_is_sparse: bool, b_is_sparse: bool) -> _Form:
    op = "sparse_matmul"
    check_four_dims(op, a, b)
    if not a_is_sparse and not b_is_sparse:
        raise MeshError(
            f"{op} requires at least one of is_input_a_sparse or is_input_b_sparse to be true; ttnn.matmul takes dense "
            "operands."
        )
    experts = b.shape[1]
    dims: Dims
    if b.shape[0] != 1:
        raise MeshError(f"{op}: input_tensor_b must be [1, experts, K, N], got {list(b.shape)}.")
    if a.shape[3] != b.shape[2]:
        raise MeshError(
            "The width of the first tensor must be equal to the height of the second tensor: "
            f"{op} of {list(a.shape)} and {list(b.shape)}."
        )
    if not a_is_sparse:  # every block of tokens against every expert
        outer = a.shape[:2]
        dims = {0: [(_A, 0), (_MARKS, 0)], 1: [(_A, 1), (_MARKS, 1)], 3: [(_B, 1), (_MARKS, 3), (_BIAS, 1)]}
        dims |= {4: [(_A, 2)], 5: [(_B, 3), (_BIAS, 3)]}
        return _Form((*outer, 1, experts), (*outer, 1, experts), dims)
    if a.shape[1] != experts or (b_is_sparse and a.shape[0] != 1):
        wanted = "1" if b_is_sparse else "any"
        raise MeshError(
            f"{op}: input_tensor_a {list(a.shape)} must be [{wanted}, {experts}, M, K]: its blocks belong to experts."
        )
    dims = {1: [(_A, 1), (_B, 1), (_MARKS, 3), (_BIAS, 1)], 2: [(_A, 2)], 3: [(_B, 3), (_BIAS, 3)]}
    dims |= {} if b_is_sparse else {0: [(_A, 0), (_MARKS, 2)]}
    return _Form((a.shape[0], experts), (1, 1, a.shape[0], experts), dims)


@operation(
    "sparse_matmul",
    kind=Kind.PRODUCT,
    rule=rules.opaque,
    controls="memory_config dtype optional_output_tensor",
    tuning="compute_kernel_config core_grid output_tile global_cb sub_device_id",
    precision="data",
    rearrange=find_packing,
    provided=("is_packed",),
    check_targets=check_output,
)
def sparse_matmul(
    input_tensor_a: Operand,
    input_tensor_b: Operand,
    *,
    sparsity: Operand,
    bias: Operand | None = None,
    indices: Operand | None = None,
    nnz: int | None = None,
    is_input_a_sparse: bool = False,
    is_input_b_sparse: bool = True,
    program_config: MatmulProgramConfig | None = None,
    is_packed: bool = False,
) -> Local:
    """a @ b for the pairs of blocks whose entry of `sparsity` is not 0; b is [1, experts, K, N].

    | sparse | a | sparsity | result |
    | b | [A, B, M, K] | [A, B, 1, experts] | [A, B, 1, experts, M, N] |
    | a and b | [1, experts, M, K] | [1, 1, 1, experts] | [1, experts, M, N] |
    | a | [A, experts, M, K] | [1, 1, A, experts] | [A, experts, M, N] |

    `indices`, [1, 1, 1, n], names the experts to compute, in any order, in place of sparsity, which is not read then:
    experts counts n in the results, and a of the second form is [1, n, M, K].

    What the other blocks of the result hold in TT-NN is not documented; here it is 0. A bias, and the activation of
    a program config, go with the blocks that are computed. With nnz, an output tensor may also be [1, nnz, M, N]: it
    takes the blocks that are computed, in their order, and no others.
    """
    op = "sparse_matmul"
    a, b = input_tensor_a, input_tensor_b
    _check_forms(a, b, sparsity)
    check_blocks(op, -(-b.shape[-2] // TILE_SIZE), program_config)
    fused = None if program_config is None else program_config.activation
    last = None if fused is None else activation_function(fused, op)
    if indices is not None:
        _check_indices(a, b, indices, nnz, is_input_a_sparse, is_input_b_sparse)
        return _indexed(a, b, bias, is_input_a_sparse, last)
    form, marks_rank = _form(a, b, is_input_a_sparse, is_input_b_sparse), sparsity.rank
    _check_marks_and_bias(op, form.marks, sparsity, b, bias)

    def compute(x: torch.Tensor, y: torch.Tensor, marks: torch.Tensor, z: torch.Tensor | None, _: None) -> torch.Tensor:
        lead = marks.dim() - marks_rank
        is_marked = marks.reshape(*marks.shape[:lead], *form.batch) != 0
        _check_count(op, nnz, is_marked, lead)
        left = x if is_input_a_sparse else x.unsqueeze(-3).unsqueeze(-3)
        others = (t if is_input_a_sparse else t.unsqueeze(lead).unsqueeze(lead) for t in (y, z) if t is not None)
        made = _products([left, *others], is_marked)
        made = made if last is None else torch.where(is_marked[..., None, None], last(made), 0.0)
        return packed(made, is_marked, lead, nnz) if is_packed and nnz is not None else made

    if sparsity.shape != form.marks:
        form = form._replace(
            dims={dim: [pair for pair in pairs if pair[0] != _MARKS] for dim, pairs in form.dims.items()}
        )
    rule = _rule(form, summed={_A: 3, _B: 2}, has_bias=bias is not None or last is not None)
    rule = rules.opaque if is_packed else rule
    return Local(compute, rule, memory_config=DRAM_MEMORY_CONFIG, cost=matmul_cost(a.shape[3]))


def _check_marks_and_bias(op: str, wanted: Sequence[int], sparsity: Operand, b: Operand, bias: Operand | None) -> None:
    if math.prod(sparsity.shape) != math.prod(wanted):
        raise MeshError(
            f"sparsity logical_volume ({math.prod(sparsity.shape)}) must be that of {list(wanted)}, one mark for "
            f"each block of these operands: {op} got sparsity {list(sparsity.shape)}."
        )
    if bias is not None and bias.shape not in ((1, b.shape[1], 1, b.shape[3]), (1, 1, 1, b.shape[3])):
        raise MeshError(f"{op}: bias must be [1, experts, 1, N] or [1, 1, 1, N], got {list(bias.shape)}.")


def _check_forms(a: Operand, b: Operand, sparsity: Operand) -> None:
    op = "sparse_matmul"
    for letter, operand in (("A", a), ("B", b)):
        if operand.layout is not Layout.TILE:
            raise MeshError(
                f"Input tensor {letter} must be TILE layout: {op} got {operand.layout}; use "
                f"ttnn.to_layout({operand.name}, ttnn.TILE_LAYOUT)."
            )
        if not operand.is_float:
            raise MeshError(f"Input tensor {letter} must be a floating point type: {op} got {operand.dtype}.")
    if sparsity.layout is not Layout.ROW_MAJOR:
        raise MeshError(f"Sparsity tensor must be ROW_MAJOR layout: {op} got {sparsity.layout}.")


def _check_indices(
    a: Operand, b: Operand, indices: Operand, nnz: int | None, a_is_sparse: bool, b_is_sparse: bool
) -> None:
    op, many = "sparse_matmul", indices.shape[-1]
    if not b_is_sparse:
        raise MeshError(f"{op}: indices requires is_input_b_sparse=True: they name experts of input_tensor_b.")
    if nnz is not None:
        raise MeshError(
            f"nnz ({nnz}) must not be supplied together with indices: {op} computes the {many} experts of indices."
        )
    if indices.dtype is not DataType.UINT16:
        raise MeshError(f"{op}: indices must be UINT16 dtype, got {indices.dtype}.")
    if indices.layout is not Layout.ROW_MAJOR or math.prod(indices.shape) != many or not many:
        raise MeshError(
            f"{op}: indices must be a single ROW_MAJOR stick [1, 1, 1, n], got {list(indices.shape)} {indices.layout}."
        )
    if many > b.shape[1]:
        raise MeshError(
            f"{op}: the number of indices ({many}) must be <= the number of sparse groups ({b.shape[1]}) of "
            "input_tensor_b."
        )
    if a.rank != 4 or b.rank != 4 or a.shape[3] != b.shape[2] or (a_is_sparse and a.shape[:2] != (1, many)):
        wanted = f"[1, {many}, M, K]" if a_is_sparse else "[A, B, M, K]"
        raise MeshError(
            f"{op}: input_tensor_a {list(a.shape)} must be {wanted}, and input_tensor_b {list(b.shape)} "
            "[1, experts, K, N]."
        )


def _indexed(
    a: Operand,
    b: Operand,
    bias: Operand | None,
    a_is_sparse: bool,
    last: Callable[[torch.Tensor], torch.Tensor] | None,
) -> Local:
    """The products with chosen experts, one for each index."""

    def chosen(experts: torch.Tensor, indices: torch.Tensor) -> torch.Tensor:
        lead = experts.dim() - 4
        where = indices.reshape(*indices.shape[:lead], 1, -1, 1, 1).long()
        return torch.take_along_dim(experts.float(), where, lead + 1)

    def compute(
        x: torch.Tensor, y: torch.Tensor, _: torch.Tensor, z: torch.Tensor | None, indices: torch.Tensor
    ) -> torch.Tensor:
        weights, shifts = chosen(y, indices), None
        if z is not None:
            shifts = chosen(z.expand(*z.shape[:-3], y.shape[-3], *z.shape[-2:]), indices)
        if not a_is_sparse:
            x = x.unsqueeze(-3).unsqueeze(-3)
            at = weights.dim() - 4
            weights = weights.unsqueeze(at).unsqueeze(at)
            shifts = None if shifts is None else shifts.unsqueeze(at).unsqueeze(at)
        made = x.float() @ weights
        made = made if shifts is None else made + shifts
        return made if last is None else last(made)

    return Local(compute, rules.opaque, memory_config=DRAM_MEMORY_CONFIG, cost=matmul_cost(a.shape[3]))


def _check_count(op: str, nnz: int | None, is_marked: torch.Tensor, lead: int) -> None:
    if nnz is None:
        return
    counts = is_marked.flatten(lead).sum(-1) if is_marked.dim() > lead else is_marked.long()
    if bool((counts != nnz).any()):
        raise MeshError(
            f"{op}: nnz={nnz}, and sparsity has {sorted(set(counts.flatten().tolist()))} entries that are not 0 on the "
            "devices. On silicon the op then waits for blocks that never come: leave nnz out, or count again."
        )


def _products(parts: list[torch.Tensor], is_marked: torch.Tensor) -> torch.Tensor:
    """Where few blocks are marked, those only; else all of them, and the others are blanked."""
    shape = broadcast_shapes(*(t.shape[:-2] for t in parts), is_marked.shape)
    marks = is_marked.expand(shape)
    height, width = parts[0].shape[-2], parts[1].shape[-1]
    places = marks.nonzero(as_tuple=True)
    if 2 * len(places[0]) > marks.numel():
        whole = parts[0].float() @ parts[1].float()
        whole = whole if len(parts) < 3 else whole + parts[2].float()
        return torch.where(marks[..., None, None], whole, 0.0)
    chosen = [t.expand(*shape, *t.shape[-2:])[places].float() for t in parts]
    made = torch.bmm(chosen[0], chosen[1])
    result = made.new_zeros(*shape, height, width)
    result[places] = made if len(parts) < 3 else made + chosen[2]
    return result


def _rule(form: _Form, summed: dict[int, int], has_bias: bool) -> rules.Rule:
    plain = rules.along(form.dims)

    @rules.labelled(plain.labels if has_bias else dim_labels.with_sum(plain.labels, tuple(summed.items())))
    def rule(at: rules.Situation) -> rules.Placement:
        words = [at.words[i] for i in (_A, _B)]
        splits = [isinstance(word, rules.Shard) and word.dim == summed[i] for i, word in enumerate(words)]
        others = [word for word in at.words[2:] if word is not None]
        if all(splits) and all(word is rules.REPLICATE for word in others):
            for word in words:
                assert isinstance(word, rules.Shard)
                rules.refuse_uneven(word, "sparse_matmul")
            if has_bias:
                raise rules.UsesPartial(rules.UsesPartial.OWN_PRODUCT)
            return rules.Partial("sum")
        return plain(at)

    return rule
