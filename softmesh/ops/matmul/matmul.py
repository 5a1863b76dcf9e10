"""matmul, linear and minimal_matmul with its fused epilogues (split, DiT's addcmul): fp32, one rounding at the end.

`matrix_product` multiplies, natively in bfloat16 where the hardware does.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch

from softmesh.arguments import checked, reject_unknown_keywords
from softmesh.dispatch.cost_rules import matmul_cost
from softmesh.dispatch.definition import Definition
from softmesh.dispatch.operand import Operand
from softmesh.dispatch.operation import OPERATIONS, operation
from softmesh.dispatch.plan import Local, check_broadcast
from softmesh.dispatch.signature import BoundCall
from softmesh.errors import MeshError
from softmesh.hardware.memory_config import DRAM_MEMORY_CONFIG, MemoryConfig
from softmesh.hardware.program_configs import MatmulMultiCoreReuseMultiCast1DProgramConfig, MatmulProgramConfig
from softmesh.kinds import Kind
from softmesh.ops import gradients
from softmesh.ops.elementwise.activations import Activation, activations
from softmesh.ops.golden import golden_matmul_and_moe as golden
from softmesh.ops.golden.golden_functions import with_reference
from softmesh.ops.matmul.block_checks import check_bias_height, check_blocks, check_distribution
from softmesh.ops.matmul.matrix_product import MatrixProduct
from softmesh.ops.matmul.product_shards import product_shards
from softmesh.placement import dim_labels, rules
from softmesh.placement.placements import placed
from softmesh.strictness import warn_or_raise
from softmesh.tensor.dtype import FACTS, TILE_SIZE, DataType
from softmesh.tensor.tensor import Tensor

_TUNING = "compute_kernel_config core_grid output_tile global_cb sub_device_id prefetcher_pipes"
_CONTROLS = "memory_config dtype optional_output_tensor queue_id"


def check_own_output(op: Definition, call: BoundCall) -> None:
    """Cores write tiles of the product while others still read the factors that lie there."""
    outputs = [target.storage for target in call.targets if isinstance(target, Tensor)]
    if any(operand.storage is output for operand in call.tensors for output in outputs):
        warn_or_raise(
            f"{op.name}: the output tensor is one of the factors: on silicon cores overwrite tiles that others still "
            "read. Give it memory of its own, or leave it out.",
        )


def _matrices(op: str, a: Operand, b: Operand, transpose_a: bool, transpose_b: bool) -> int:
    """Check that the shapes multiply; returns the rank of the product."""
    if a.rank < 2 or b.rank < 2:
        raise MeshError(
            f"{op}: needs tensors of rank 2 or more, got {a.name} {list(a.shape)} and {b.name} {list(b.shape)}: "
            "unsqueeze a vector to a matrix first."
        )
    inner_a = a.shape[-2] if transpose_a else a.shape[-1]
    inner_b = b.shape[-1] if transpose_b else b.shape[-2]
    if inner_a != inner_b:
        raise MeshError(
            f"The width of the first tensor must be equal to the height of the second tensor: {op} of {a.name} "
            f"{list(a.shape)}{' transposed' if transpose_a else ''} and {b.name} {list(b.shape)}"
            f"{' transposed' if transpose_b else ''}: {inner_a} against {inner_b} on each device."
        )
    rank = max(a.rank, b.rank)
    check_broadcast(op, [(a.name, a.shape[:-2] or (1,)), (b.name, b.shape[:-2] or (1,))])
    return rank


def _orient(rule: rules.Rule, a: Operand, b: Operand, transpose_a: bool, transpose_b: bool) -> rules.Rule:
    """The rule as seen after transposing: split dims swap places with the shapes."""
    swaps = {0: (a.rank, transpose_a), 1: (b.rank, transpose_b)}

    def turned(pair: tuple[Any, ...] | None, index: int) -> Any:
        swap = index in swaps and swaps[index][1]
        return (*pair[:-2], pair[-1], pair[-2]) if swap and pair is not None else pair

    def labels(shapes: dim_labels.Shapes, results: Sequence[dim_labels.Extents]) -> dim_labels.DimLabels:
        found = rule.labels([turned(shape, at) for at, shape in enumerate(shapes)], results)
        return found._replace(operands=tuple(turned(own, at) for at, own in enumerate(found.operands)))

    @rules.labelled_each(labels)
    def oriented(at: rules.Situation) -> rules.Placement | Sequence[rules.Placement]:
        words, shapes = list(at.words), list(at.shapes)
        for index, (rank, swap) in swaps.items():
            word, shape = words[index], shapes[index]
            if swap and shape is not None:
                shapes[index] = (*shape[:-2], shape[-1], shape[-2])
                if isinstance(word, rules.Shard) and word.dim >= rank - 2:
                    words[index] = word.at(2 * rank - 3 - word.dim)
        return rule(at._replace(words=tuple(words), shapes=tuple(shapes)))

    return oriented


def product_local(
    op: str,
    a: Operand,
    b: Operand,
    bias: Operand | None,
    transpose_a: bool,
    transpose_b: bool,
    activation: Activation | None,
    program_config: MatmulProgramConfig | None = None,
) -> Local:
    """Its `compute` does not round: who computes on with the result takes that, without `computed_as`."""
    rank = _matrices(op, a, b, transpose_a, transpose_b)
    inner = a.shape[-2] if transpose_a else a.shape[-1]
    if bias is not None:
        width = b.shape[-2] if transpose_b else b.shape[-1]
        if bias.rank and bias.shape[-1] not in (width, 1):
            raise MeshError(f"{op}: bias {list(bias.shape)} does not fit a result of width {width}.")
        rank = max(rank, bias.rank)
    check_blocks(op, -(-inner // TILE_SIZE), program_config)
    if program_config is not None:
        _check_tiles(op, a, b, bias, (transpose_a, transpose_b), program_config)
    fused = None if program_config is None else program_config.activation
    last = activations([one for one in (fused, activation) if one is not None], op)

    def computed_as(dtype: DataType) -> MatrixProduct:
        return MatrixProduct(transpose_a, transpose_b, last, FACTS[dtype])

    rule = _orient(rules.matmul, a, b, transpose_a, transpose_b)
    if last is not None:
        rule = rules.of_whole(rule)
    columns = b.spec.padded_shape[-2 if transpose_b else -1]
    return Local(
        computed_as(DataType.FLOAT32),
        rule,
        computed_as=computed_as,
        memory_config=DRAM_MEMORY_CONFIG,
        broadcast_rank=rank,
        cost=matmul_cost(inner),
        shards=None if transpose_a else lambda _: [product_shards(a.spec, columns, program_config)],
    )


def _check_tiles(
    op: str, a: Operand, b: Operand, bias: Operand | None, turned: tuple[bool, bool], config: MatmulProgramConfig
) -> None:
    rows, columns = a.spec.padded_shape[-1 if turned[0] else -2], b.spec.padded_shape[-2 if turned[1] else -1]
    if bias is not None and bias.rank > 1 and bias.shape[-2] > 1:  # one row is added by itself
        check_bias_height(op, rows, bias.spec.padded_shape[-2], config)
    is_fused = config.fuse_batch if isinstance(config, MatmulMultiCoreReuseMultiCast1DProgramConfig) else False
    count = math.prod(a.shape[:-2]) if is_fused else 1
    check_distribution(op, count * -(-rows // TILE_SIZE), -(-columns // TILE_SIZE), config)


def _check_activation(a: Operand, b: Operand, activation: Activation | None) -> None:
    """The kernels that read shards apply the program config's activation, and no other."""
    if activation is None:
        return
    for operand in (a, b):
        if operand.spec.memory_config.is_sharded():
            raise MeshError(
                f"Sharded matmul run with {activation} activation: this should be placed in the program config's "
                f"fused_activation field ({operand.op}: {operand.name} is sharded)."
            )


@operation(
    kind=Kind.PRODUCT,
    gradient=gradients.of_matmul,
    native="MatmulDeviceOperation",
    factors=(0, 1),
    controls=_CONTROLS,
    tuning=_TUNING,
    needs_tile=True,
    precision="data",
    check_targets=check_own_output,
)
@with_reference(golden.matmul)
def matmul(
    input_tensor_a: Operand,
    input_tensor_b: Operand,
    *,
    transpose_a: bool = False,
    transpose_b: bool = False,
    activation: Activation | None = None,
    program_config: MatmulProgramConfig | None = None,
) -> Local:
    """a @ b on each device. Split along the summed dim on both sides, the result is Partial(sum).

    >>> y = ttnn.matmul(split(8, 64, dim=1), split(64, 128, dim=0))
    >>> y.shape, ttnn.placements(y)
    (Shape([8, 128]), (Replicate, Partial(sum)))
    >>> ttnn.placements(ttnn.all_reduce(y, cluster_axis=1))
    (Replicate, Replicate)
    """
    _check_activation(input_tensor_a, input_tensor_b, activation)
    return product_local(
        "matmul", input_tensor_a, input_tensor_b, None, transpose_a, transpose_b, activation, program_config
    )


@operation(
    kind=Kind.PRODUCT,
    gradient=gradients.of_matmul,
    native="MatmulDeviceOperation",
    factors=(0, 1),
    controls=_CONTROLS,
    check_targets=check_own_output,
    tuning=_TUNING + " in0_column_offset",
    needs_tile=True,
    precision="data",
)
@with_reference(golden.matmul)
def linear(
    input_tensor_a: Operand,
    input_tensor_b: Operand,
    *,
    bias: Operand | None = None,
    transpose_a: bool = False,
    transpose_b: bool = False,
    activation: Activation | None = None,
    program_config: MatmulProgramConfig | None = None,
) -> Local:
    """a @ b + bias, then the activation of the program config, then the one given by itself.

    >>> y = ttnn.linear(whole(8, 64), split(64, 128, dim=1), bias=split(1, 128, dim=1))
    >>> y.shape, ttnn.placements(y)
    (Shape([8, 32]), (Replicate, Shard(1)))
    """
    _check_activation(input_tensor_a, input_tensor_b, activation)
    return product_local(
        "linear", input_tensor_a, input_tensor_b, bias, transpose_a, transpose_b, activation, program_config
    )


_LEAN: dict[str, Any] = {
    "kind": Kind.PRODUCT,
    "controls": "memory_config dtype",
    "tuning": "compute_kernel_config config",
    "needs_tile": True,
    "precision": "data",
}


@operation("experimental.minimal_matmul", **_LEAN, factors=(0, 1))
@with_reference(golden.minimal_matmul)
def minimal_matmul(
    input_tensor: Operand,
    weight_tensor: Operand,
    *,
    bias_tensor: Operand | None = None,
    fused_activation: Activation | None = None,
    fuse_swiglu: bool = False,
) -> Local:
    """linear, by the names of TT-NN's lean kernel.

    With `fuse_swiglu` the columns are pairs of tiles, a gate and what it gates: silu(tile 2p) * (tile 2p + 1).
    """
    width = weight_tensor.shape[-1]
    if fuse_swiglu and (width % (2 * TILE_SIZE) or fused_activation is not None):
        raise MeshError(
            f"{input_tensor.op}: fuse_swiglu pairs tiles of gates with tiles of values, so the width of weight_tensor "
            f"({width}) must be a multiple of {2 * TILE_SIZE}, and fused_activation has no place beside it."
        )
    local = product_local(
        "minimal_matmul",
        input_tensor,
        weight_tensor,
        bias_tensor,
        False,
        False,
        fused_activation,
    )
    if not fuse_swiglu:
        return local

    def gated(x: torch.Tensor, y: torch.Tensor, z: torch.Tensor | None = None) -> torch.Tensor:
        tiles = local.compute(x, y, z).unflatten(-1, (-1, 2, TILE_SIZE))
        return (torch.nn.functional.silu(tiles[..., 0, :]) * tiles[..., 1, :]).flatten(-2)

    rule = rules.of_whole(local.rule)

    @rules.labelled_each(dim_labels.without_sums(rule.labels))
    def halves(at: rules.Situation) -> rules.Placement | Sequence[rules.Placement]:
        word = rule(at._replace(out_shapes=((*at.out_shape[:-1], width),)))
        last = len(at.out_shape) - 1
        is_uneven = isinstance(word, rules.Shard) and word.dim == last and word.size is not None
        return rules.LOCAL if is_uneven else word

    return replace(local, compute=gated, computed_as=None, rule=halves)


@operation(
    "moreh_dot",
    kind=Kind.PRODUCT,
    aliases=("operations.moreh.dot",),
    controls="dtype memory_config output",
    tuning="compute_kernel_config",
    needs_tile=True,
)
@placed("A partial sum where both are split; Local where one is.")
@with_reference(golden.moreh_dot)
def moreh_dot(input_tensor_a: Operand, input_tensor_b: Operand) -> Local:
    """The scalar product of two vectors given as (1, 1, 1, N)."""
    for operand in (input_tensor_a, input_tensor_b):
        if math.prod(operand.shape[:-1]) != 1:
            raise MeshError(f"moreh_dot: {operand.name} must be a vector (1, 1, 1, N), got {list(operand.shape)}.")
    if input_tensor_a.shape != input_tensor_b.shape:
        raise MeshError(f"moreh_dot: shapes differ: {list(input_tensor_a.shape)} and {list(input_tensor_b.shape)}.")
    last = input_tensor_a.rank - 1

    @rules.labelled(dim_labels.spelled("inner, inner -> _", passes=((0,), (1,))))
    def rule(at: rules.Situation) -> rules.Placement:
        if any(isinstance(word, rules.Partial) for word in at.words):
            return rules.multiplicative(at)
        splits = [word for word in at.words if isinstance(word, rules.Shard) and word.dim == last]
        if len(splits) < 2:
            return rules.LOCAL
        for split in splits:
            rules.refuse_uneven(split, "moreh_dot")
        return rules.Partial("sum")

    return Local(lambda x, y: (x * y).sum(-1, keepdim=True), rule, cost=matmul_cost(input_tensor_a.shape[-1]))


# -- minimal_matmul with something behind it: cut into pieces, or gated and added to another tensor --


_SPLIT = "experimental.minimal_matmul_split"


def piece_sizes(op: str, width: int, chunks: int, sizes: Sequence[int] = ()) -> list[int]:
    """The widths of the pieces a product is cut into: as many of one width, or as they are listed."""
    if sizes:
        if sum(sizes) != width or min(sizes) < 1 or chunks not in (1, len(sizes)):
            raise MeshError(f"{op}: chunk_sizes={list(sizes)} must be positive and add up to the width {width}.")
        return list(sizes)
    if chunks < 1 or width % chunks:
        raise MeshError(f"{op}: a width of {width} cannot be cut into chunks={chunks} of one size.")
    return [width // chunks] * chunks


@operation(_SPLIT, **_LEAN, results="list[Tensor]")
@with_reference(golden.minimal_matmul_split)
def minimal_matmul_split(
    input_tensor: Operand,
    weight_tensor: Operand,
    *,
    bias_tensor: Operand | None = None,
    chunks: int = 3,
    dim: int = -1,
    fused_activation: Activation | None = None,
    fuse_swiglu: bool = False,
) -> Local:
    """The product, cut along its last dim into `chunks` pieces."""
    if dim not in (-1, input_tensor.rank - 1):
        raise MeshError(f"{_SPLIT}: cuts along the last dim only, got dim={dim}.")
    whole: Local = minimal_matmul.definition.define(
        input_tensor,
        weight_tensor,
        bias_tensor=bias_tensor,
        fused_activation=fused_activation,
        fuse_swiglu=fuse_swiglu,
    )
    width = weight_tensor.shape[-1] // (2 if fuse_swiglu else 1)
    sizes = piece_sizes(_SPLIT, width, chunks)

    def compute(*data: torch.Tensor) -> list[torch.Tensor]:
        return list(whole.compute(*data).split(sizes, -1))

    def labels(shapes: dim_labels.Shapes, results: Sequence[dim_labels.Extents]) -> dim_labels.DimLabels:
        found = whole.rule.labels(shapes, [(*results[0][:-1], width)])
        return dim_labels.without_label(found, found.result[-1]) if chunks > 1 else found

    @rules.labelled_each(labels)
    def rule(at: rules.Situation) -> list[rules.Placement]:
        joined = (*at.out_shape[:-1], width)
        word = whole.rule(at._replace(out_shapes=(joined,)))
        assert isinstance(word, rules.Placement)
        is_cut = isinstance(word, rules.Shard) and word.dim == len(joined) - 1 and chunks > 1
        return [rules.LOCAL if is_cut else word] * chunks

    return replace(whole, compute=compute, computed_as=None, rule=rule)


def fused_addcmul(
    product: Tensor,
    scalar: float,
    addend: Tensor,
    factor: Tensor,
    dtype: DataType,
    memory_config: MemoryConfig | None = None,
) -> Tensor:
    """addend + scalar * product * factor; `product` comes in float32, and only the result is rounded."""
    scaled = OPERATIONS["multiply"](product, factor, dtype=DataType.FLOAT32)
    if scalar != 1.0:
        scaled = OPERATIONS["multiply"](scaled, scalar)
    made = OPERATIONS["add"](addend, scaled, dtype=dtype, memory_config=memory_config)
    assert isinstance(made, Tensor)
    return made


@reject_unknown_keywords
def dit_minimal_matmul_addcmul_fused(
    matmul_input_tensor: Tensor,
    matmul_weight_tensor: Tensor,
    scalar: float,
    addcmul_input_tensor1: Tensor,
    addcmul_input_tensor2: Tensor,
    bias_tensor: Tensor | None = None,
    *,
    config: Any = None,
    memory_config: MemoryConfig | None = None,
    dtype: DataType | None = None,
    compute_kernel_config: Any = None,
) -> Tensor:
    """tensor1 + scalar * (input @ weight + bias) * tensor2."""
    where = "experimental.dit_minimal_matmul_addcmul_fused"
    given = {
        "matmul_input_tensor": matmul_input_tensor,
        "matmul_weight_tensor": matmul_weight_tensor,
        "addcmul_input_tensor1": addcmul_input_tensor1,
        "addcmul_input_tensor2": addcmul_input_tensor2,
    }
    for name, tensor in given.items():
        checked(where, name, tensor, Tensor, "a ttnn.Tensor: make one with ttnn.from_torch(...)")
    product = minimal_matmul(matmul_input_tensor, matmul_weight_tensor, bias_tensor=bias_tensor, dtype=DataType.FLOAT32)
    kind = matmul_input_tensor.dtype if dtype is None else dtype
    return fused_addcmul(product, float(scalar), addcmul_input_tensor1, addcmul_input_tensor2, kind, memory_config)
