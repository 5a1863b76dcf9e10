"""Ternary element-wise ops with broadcasting: addcmul, addcdiv, mac, lerp; and addmm."""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from typing import Any

import torch

from softmesh.dispatch.cost_rules import flops_per_element, matmul_cost
from softmesh.dispatch.definition import Arguments
from softmesh.dispatch.operand import Operand, Value
from softmesh.dispatch.operation import operation
from softmesh.dispatch.plan import Local, check_broadcast
from softmesh.dispatch.program_keys import scalar_free_program
from softmesh.dispatch.signature import Signature
from softmesh.errors import MeshError
from softmesh.hardware.program_configs import MatmulProgramConfig
from softmesh.kinds import Kind
from softmesh.ops.elementwise.activations import activation_function
from softmesh.ops.elementwise.binary import broadcast_rank, place_of_three
from softmesh.ops.golden import golden_composite as golden
from softmesh.ops.golden.golden_functions import InOrder, rounds_once, with_reference
from softmesh.ops.matmul.batched_gemm import product
from softmesh.ops.matmul.block_checks import check_blocks
from softmesh.placement import dim_labels, rules
from softmesh.placement.placements import placed
from softmesh.tensor.dtype import TILE_SIZE, DataType, Layout, facts

_THREE: dict[str, Any] = {
    "kind": Kind.ELEMENTWISE,
    "native": "TernaryDeviceOperation",
    "cost": flops_per_element(3),
    "controls": "memory_config output_tensor",
    "program_key": scalar_free_program,
}


def _local(op: str, function: Callable[..., torch.Tensor], rule: rules.Rule, *operands: Value) -> Local:
    return Local(
        function, rule, memory_config=place_of_three(op, *operands), broadcast_rank=broadcast_rank(op, *operands)
    )


def _some(at: rules.Situation, *indices: int) -> rules.Situation:
    """The same axis for some of the operands."""
    words, shapes = tuple(at.words[i] for i in indices), tuple(at.shapes[i] for i in indices)
    return rules.Situation(words, shapes, at.out_shapes)


def _labels_with(addend: int, term: rules.SingleRule, *factors: int) -> dim_labels.LabelsOf:
    """Label dims as they meet. Contributions pass where the term passes them, and the addend is one."""

    def labels(shapes: dim_labels.Shapes, results: Sequence[dim_labels.Extents]) -> dim_labels.DimLabels:
        inner = term.labels([shapes[at] for at in factors], results)
        passes = tuple(frozenset(factors[at] for at in one) for one in inner.passes)
        return dim_labels.aligned()(shapes, results)._replace(passes=passes, terms=frozenset({addend}))

    return labels


@placed("Split as the operands are, where their splits line up. Partial sums may be added to partial sums only.")
def _sum_with(addend: int, term: rules.SingleRule, *factors: int) -> rules.SingleRule:
    """The word of `addend + term of the factors`; each operand's own index is told of a Partial misused."""

    @rules.labelled(_labels_with(addend, term, *factors))
    def rule(at: rules.Situation) -> rules.Placement:
        if not any(isinstance(word, rules.Partial) for word in at.words):
            return rules.elementwise(at)
        inner = _some(at, *factors)
        shared = all(word is None or word is rules.REPLICATE for word in inner.words)
        try:
            product = rules.REPLICATE if shared else term(inner)
        except rules.UsesPartial as use:
            raise rules.UsesPartial(factors[use.index]) from None
        total = rules.Situation((at.words[addend], product), (at.shapes[addend], at.out_shape), at.out_shapes)
        return _total(total, addend, factors)

    return rule


def _total(at: rules.Situation, addend: int, factors: tuple[int, ...]) -> rules.Placement:
    try:
        return rules.additive(at)
    except rules.UsesPartial as use:
        raise rules.UsesPartial(addend if use.index == 0 else factors[0]) from None


@operation(**_THREE, rule=_sum_with)
@with_reference(golden.addcmul)
def addcmul(input_a: Operand, input_b: Operand, input_c: Operand, *, value: float = 1.0) -> Local:
    """a + value * b * c; of whole numbers exact, and wrapped as they are."""
    if not any(operand.is_float for operand in (input_a, input_b, input_c)):
        value = int(struct.unpack("f", struct.pack("f", value))[0]) if isinstance(value, float) else value
    rule = _sum_with(0, rules.multiplicative, 1, 2)
    return _local("addcmul", lambda a, b, c: a + value * b * c, rule, input_a, input_b, input_c)


@operation(**_THREE, floats_only=True, rule=_sum_with)
@with_reference(golden.addcdiv)
def addcdiv(input_a: Operand, input_b: Operand, input_c: Operand, *, value: float = 1.0) -> Local:
    """a + value * b / c."""
    rule = _sum_with(0, rules.dividing, 1, 2)
    return _local("addcdiv", lambda a, b, c: a + value * b / c, rule, input_a, input_b, input_c)


def _with_value(signature: Signature, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Arguments:
    """`value` is the number among three operands, `value1` and `value2` are two of them."""
    if "value" in kwargs:
        is_factor = len(args) < 2 and "input_tensor_b" not in kwargs
        given = "input_tensor_b" if is_factor else "input_tensor_c"
        kwargs = {given if name == "value" else name: value for name, value in kwargs.items()}
    return args, kwargs


_TWO_VALUES = {"value1": "input_tensor_b", "value2": "input_tensor_c"}


@operation(
    **_THREE,
    tuning="sub_core_grids",
    argument_aliases=_TWO_VALUES,
    rearrange=_with_value,
    forms=(
        "input_tensor_a value:input_tensor_b input_tensor_c",
        "input_tensor_a input_tensor_b value:input_tensor_c",
    ),
    rule=_sum_with,
)
@with_reference(InOrder(rounds_once(lambda a, b, c: a * b + c)))
def mac(input_tensor_a: Operand, input_tensor_b: Value, input_tensor_c: Value) -> Local:
    """a * b + c; b and c may be numbers."""
    rule = _sum_with(2, rules.multiplicative, 0, 1)
    return _local("mac", lambda a, b, c: a * b + c, rule, input_tensor_a, input_tensor_b, input_tensor_c)


@operation(**_THREE, floats_only=True)
@with_reference(InOrder(rounds_once(lambda start, end, weight: start + weight * (end - start))))
def lerp(input: Operand, end: Operand, weight: Value) -> Local:
    """input + weight * (end - input)."""
    return _local("lerp", lambda a, b, w: a + w * (b - a), rules.elementwise, input, end, weight)


_TINY = 1e-9  # keeps snake_beta from dividing by 0
_SNAKE_DTYPES = (DataType.BFLOAT16, DataType.FLOAT32)


def _check_snake(x: Operand, alpha: Operand, beta: Operand) -> None:
    """What the op asks of its operands."""
    dtypes = {operand.dtype for operand in (x, alpha, beta)}
    if len(dtypes) > 1 or x.dtype not in _SNAKE_DTYPES:
        found = ", ".join(str(operand.dtype) for operand in (x, alpha, beta))
        raise MeshError(f"snake_beta requires one dtype for all operands, BFLOAT16 or FLOAT32, got {found}.")
    for operand in (x, alpha, beta):
        if operand.layout is not Layout.TILE:
            raise MeshError(
                f"snake_beta requires tile layout, got {operand.layout} for {operand.name}: ttnn.to_layout."
            )
    if x.rank < 2:
        raise MeshError(f"snake_beta requires input rank >= 2, got rank {x.rank} (shape {list(x.shape)}).")
    if alpha.shape != beta.shape:
        raise MeshError(
            f"snake_beta requires alpha.shape == beta.shape, got {list(alpha.shape)} vs {list(beta.shape)}."
        )
    if alpha.shape[-1:] != x.shape[-1:]:
        raise MeshError(f"snake_beta requires input.W == alpha.W, got {x.shape[-1]} vs {list(alpha.shape)[-1:]}.")


@operation(kind=Kind.ELEMENTWISE, controls="memory_config output_tensor", cost=flops_per_element(2))
@with_reference(InOrder(rounds_once(lambda x, alpha, beta: x + torch.sin(alpha * x) ** 2 / (beta + 1e-9))))
def snake_beta(input_tensor: Operand, alpha: Operand, beta: Operand) -> Local:
    """x + sin(alpha x)^2 / (beta + 1e-9), with broadcasting; what TT-NN adds to beta is not known."""
    _check_snake(input_tensor, alpha, beta)
    rank = broadcast_rank("snake_beta", input_tensor, alpha, beta)

    def compute(x: torch.Tensor, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return x + torch.sin(a * x).square() / (b + _TINY)

    return Local(compute, broadcast_rank=rank)


@operation(
    kind=Kind.PRODUCT,
    factors=(1, 2),
    controls="memory_config dtype optional_output_tensor",
    tuning="compute_kernel_config core_grid output_tile",
)
@with_reference(golden.addmm)
def addmm(
    input_tensor: Operand,
    mat1_tensor: Operand,
    mat2_tensor: Operand,
    *,
    alpha: float = 1.0,
    beta: float = 1.0,
    program_config: MatmulProgramConfig | None = None,
) -> Local:
    """beta * input + alpha * mat1 @ mat2; an activation of the program config comes right behind the product."""
    if alpha == 0:
        raise MeshError("addmm: alpha parameter cannot be 0: ttnn.multiply(input_tensor, beta) is what is left then.")
    for operand in (input_tensor, mat1_tensor, mat2_tensor):
        if not facts(operand.dtype).is_float:
            raise MeshError(
                f"addmm: only floating-point types are supported for {operand.name}, got {operand.dtype}: use "
                "ttnn.typecast."
            )
    rank = _product_rank(None if beta == 0 else input_tensor, mat1_tensor, mat2_tensor)
    check_blocks("addmm", -(-mat1_tensor.shape[-1] // TILE_SIZE), program_config)
    fused = None if program_config is None else program_config.activation
    last = None if fused is None else activation_function(fused, "addmm")

    def compute(x: torch.Tensor, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        made = product(a, b)
        total = alpha * (made if last is None else last(made))
        return total if beta == 0 else beta * x + total

    rule = _addmm_rule if last is None else rules.of_whole(_addmm_rule)
    return Local(compute, rule, broadcast_rank=rank, cost=matmul_cost(mat1_tensor.shape[-1]))


def _product_rank(addend: Operand | None, a: Operand, b: Operand) -> int:
    if a.rank < 2 or b.rank < 2 or a.shape[-1] != b.shape[-2]:
        raise MeshError(
            f"addmm: mat1_tensor {list(a.shape)} and mat2_tensor {list(b.shape)} do not multiply on each device."
        )
    batch = check_broadcast("addmm", [(a.name, a.shape[:-2] or (1,)), (b.name, b.shape[:-2] or (1,))])
    lead = batch[len(batch) - max(a.rank, b.rank) + 2 :]
    shape = (*lead, a.shape[-2], b.shape[-1])
    if addend is not None and not _fits(addend.shape, shape):
        raise MeshError(
            "input_tensor must have shape matching one of result of mat1_tensor @ mat2_tensor: addmm got "
            f"{list(addend.shape)} for a product {list(shape)}."
        )
    return len(shape)


def _fits(own: tuple[int, ...], shape: tuple[int, ...]) -> bool:
    """Whether it goes into the shape, 1 standing for all."""
    return len(own) <= len(shape) and all(n in (1, whole) for n, whole in zip(own[::-1], shape[::-1], strict=False))


@rules.labelled(dim_labels.reordered(rules.matmul.labels, (1, 2, 0)))
def _addmm_rule(at: rules.Situation) -> rules.Placement:
    order = (1, 2, 0)
    try:
        return rules.matmul(_some(at, *order))
    except rules.UsesPartial as use:
        is_own = use.index == rules.UsesPartial.OWN_PRODUCT
        raise rules.UsesPartial(use.index if is_own else order[use.index], use.is_share, use.is_bias) from None
