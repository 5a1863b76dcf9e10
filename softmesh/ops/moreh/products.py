"""moreh_bmm, moreh_matmul, moreh_linear and the gradients of products and of moreh_dot."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch

from softmesh.dispatch.cost_rules import flops_per_element, matmul_cost
from softmesh.dispatch.operand import Operand
from softmesh.dispatch.operation import operation
from softmesh.dispatch.plan import Local
from softmesh.errors import MeshError
from softmesh.kinds import Kind
from softmesh.ops.device_batches import asked_for, delivered, gradients_on_each_device, on_each_device
from softmesh.ops.matmul.batched_gemm import product
from softmesh.placement import rules

_made = partial(
    operation, kind=Kind.PRODUCT, controls="output memory_config", tuning="compute_kernel_config", needs_tile=True
)
_CONFIGURED = "are_required_outputs compute_kernel_config"


def _check_inner(op: str, a: Operand, inner: int, b: Operand, other: int) -> None:
    if inner != other:
        raise MeshError(f"{op}: {a.name} {list(a.shape)} and {b.name} {list(b.shape)} do not multiply.")


@_made(factors=(0, 1))
def moreh_bmm(input: Operand, mat2: Operand) -> Local:
    """The products of two batches of matrices."""
    if input.rank != 3 or mat2.rank != 3 or input.shape[0] != mat2.shape[0]:
        raise MeshError(f"moreh_bmm: {list(input.shape)} and {list(mat2.shape)} must be two batches of matrices.")
    _check_inner("moreh_bmm", input, input.shape[-1], mat2, mat2.shape[-2])
    return Local(product, cost=matmul_cost(input.shape[-1]))


@_made(factors=(0, 1))
def moreh_matmul(
    input: Operand,
    other: Operand,
    *,
    transpose_input: bool = False,
    transpose_other: bool = False,
    bias: Operand | None = None,
) -> Local:
    """input @ other + bias, of matrices or, both, of vectors; the dims in front broadcast.

    A bias has one value, or one for each column.
    """
    inner = input.shape[-2 if transpose_input and input.rank > 1 else -1]
    _check_inner("moreh_matmul", input, inner, other, other.shape[-1 if transpose_other or other.rank == 1 else -2])

    def one(a: torch.Tensor, b: torch.Tensor, addend: torch.Tensor | None) -> torch.Tensor:
        a = a.mT if transpose_input and a.dim() > 1 else a
        b = b.mT if transpose_other and b.dim() > 1 else b
        made = torch.matmul(a, b)
        return made if addend is None else made + addend.reshape(-1)

    plain = not (transpose_input or transpose_other) and input.rank > 1 and other.rank > 1
    rule = rules.matmul if plain else rules.opaque
    cost = matmul_cost(inner)
    return Local(on_each_device(one, input, other, bias), rule, fills_target=True, cost=cost)


@_made(rule=rules.opaque, factors=(0, 1))
def moreh_linear(input: Operand, weight: Operand, *, bias: Operand | None = None) -> Local:
    """input @ weight^T + bias."""
    _check_inner("moreh_linear", input, input.shape[-1], weight, weight.shape[-1])

    return Local(on_each_device(_affine, input, weight, bias), cost=matmul_cost(input.shape[-1]))


def _affine(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
    """A bias has one value, or one for each column, whatever dims of extent 1 stand in front of them."""
    made = torch.matmul(x, weight.mT)
    return made if bias is None else made + bias.reshape(-1)


# -- gradients --------------------------------------------------------------------------------------


def _backward(into: tuple[str, ...], **options: Any) -> Any:
    configs = " ".join(f"{name}_memory_config" for name in into)
    return operation(
        kind=Kind.PRODUCT,
        rule=rules.opaque,
        cost=flops_per_element(4),
        controls="memory_config",
        tuning=" ".join((*into, _CONFIGURED, configs)),
        floats_only=True,
        results="list[Tensor | None]",
        reads="output_grad",
        writes=" ".join(into),
        present=delivered(*into, **options),
    )


def _of_product(gradient: Operand, a: Operand, b: Operand) -> Local:
    return Local(gradients_on_each_device(torch.matmul, gradient, a, b))


@_backward(("input_grad", "mat2_grad"))
def moreh_bmm_backward(output_grad: Operand, input: Operand, mat2: Operand) -> Local:
    """[gradient of input, of mat2]."""
    return _of_product(output_grad, input, mat2)


@_backward(("input_a_grad", "input_b_grad"))
def moreh_matmul_backward(output_grad: Operand, input_a: Operand, input_b: Operand) -> Local:
    """[gradient of input_a, of input_b], summed over the dims along which each was repeated."""
    return _of_product(output_grad, input_a, input_b)


@_backward(("input_grad", "other_grad"), only_given=("input_grad", "other_grad"))
def moreh_dot_backward(output_grad: Operand, input: Operand, other: Operand) -> Local:
    """[gradient of input, of other], each where an output tensor for it is given."""

    def one(grad: torch.Tensor, x: torch.Tensor, y: torch.Tensor) -> list[torch.Tensor]:
        return [grad.reshape(()) * y, grad.reshape(()) * x]

    return Local(on_each_device(one, output_grad, input, other))


def _linear_gradients(op: str, results: list[Any], given: dict[str, Any]) -> list[Any]:
    """That of the bias where there is one."""
    names = ("input_grad", "weight_grad", "bias_grad")
    has_bias = len(results) == len(names)
    required = given["are_required_outputs"]
    wanted = asked_for(op, "are_required_outputs", required) if required is not None else []
    named = given | {"are_required_outputs": (wanted or [True] * len(names))[: len(results)]}
    made = delivered(*names[: len(results)])(op, results, named)
    return made if has_bias else [*made, None]


@operation(
    kind=Kind.PRODUCT,
    rule=rules.opaque,
    cost=flops_per_element(4),
    controls="",
    tuning="are_required_outputs input_grad weight_grad bias_grad input_grad_memory_config weight_grad_memory_config "
    "bias_grad_memory_config compute_kernel_config",
    floats_only=True,
    results="list[Tensor | None]",
    reads="output_grad",
    unread="bias",
    writes="input_grad weight_grad bias_grad",
    present=_linear_gradients,
)
def moreh_linear_backward(
    output_grad: Operand, input: Operand, weight: Operand, *, bias: Operand | None = None
) -> Local:
    """[gradient of input, of weight, of bias or None]."""
    operands = output_grad, input, weight, bias
    return Local(gradients_on_each_device(_affine, *operands))
