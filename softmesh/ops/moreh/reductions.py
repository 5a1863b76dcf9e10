"""moreh_sum, moreh_mean, moreh_norm and the soft maxima, with their gradients; moreh_cumsum_backward."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch

from softmesh.arguments import checked_ints
from softmesh.dispatch import part_work
from softmesh.dispatch.cost_rules import flops_per_element
from softmesh.dispatch.definition import Arguments, Definition
from softmesh.dispatch.operand import Operand
from softmesh.dispatch.operation import Operation, operation
from softmesh.dispatch.plan import Local
from softmesh.dispatch.signature import Signature
from softmesh.errors import MeshError
from softmesh.kinds import Kind
from softmesh.ops.device_batches import delivered_alone, on_each_device
from softmesh.ops.reduction.reduction import scan_rule
from softmesh.placement import rules

Dims = int | Sequence[int] | None
_reduced = partial(
    operation,
    kind=Kind.REDUCTION,
    cost=flops_per_element(1),
    controls="output memory_config",
    tuning="compute_kernel_config",
)
_gradient = partial(
    operation,
    kind=Kind.REDUCTION,
    rule=rules.opaque,
    cost=flops_per_element(1),
    controls="memory_config",
    tuning="input_grad compute_kernel_config",
    writes="input_grad",
    present=delivered_alone("input_grad"),
)


def _from_end(operand: Operand, dim: Dims) -> list[int]:
    """No dims, or an empty list of them, are all."""
    chosen = None if isinstance(dim, Sequence) and not len(dim) else dim
    return [d - operand.rank for d in operand.dims(chosen)]


@_reduced()
def moreh_sum(input: Operand, dim: Dims = None, *, keepdim: bool = False) -> Local:
    """The sum along the dims, of all of them by default."""
    dims = _from_end(input, dim)
    rule = rules.reducing("sum", dims, keepdim)
    return Local(lambda x: x.sum(dims, keepdim=keepdim) if dims else x, rule, fills_target=True)


@_reduced(floats_only=True)
def moreh_mean(input: Operand, *, dim: Dims = None, keepdim: bool = False, divisor: int | None = None) -> Local:
    """The sum along the dims over their extent, or over `divisor`."""
    dims = _from_end(input, dim)
    count = math.prod(input.shape[d] for d in dims) if divisor is None else divisor
    rule = rules.reducing("avg" if divisor is None else "sum", dims, keepdim)
    return Local(lambda x: (x.sum(dims, keepdim=keepdim) if dims else x) / count, rule, fills_target=True)


def _spread(op: str, gradient: Operand, shape: tuple[int, ...], dim: Dims, divisor: int) -> Local:
    """The gradient of a sum: the same for all that was summed."""
    rank = len(shape)
    chosen = range(rank) if dim is None or (isinstance(dim, Sequence) and not len(dim)) else dim
    dims = sorted({d % rank for d in (chosen if isinstance(chosen, Sequence) else [chosen])})
    kept = tuple(1 if d in dims else n for d, n in enumerate(shape))
    if math.prod(gradient.shape) != math.prod(kept):
        raise MeshError(
            f"{op}: output_grad {list(gradient.shape)} does not belong to a sum of {list(shape)} over {dims}."
        )
    own = gradient.rank

    def compute(grad: torch.Tensor) -> torch.Tensor:
        lead = grad.shape[: grad.dim() - own]
        each = grad if divisor == 1 else grad / divisor
        return each.reshape(*lead, *kept).expand(*lead, *shape)

    return Local(compute)


def _with_shape(signature: Signature, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Arguments:
    """The shape of what was summed, from whichever argument tells it."""
    told = [kwargs.get(name) for name in ("input_grad_shape", "input", "input_grad")]
    found = next((getattr(one, "shape", one) for one in told if one is not None), None)
    if found is None:
        raise MeshError(f"{signature.op}: what was summed is not known: give input, its shape or input_grad.")
    found = checked_ints(signature.op, "input_grad_shape", found)
    return args, {name: value for name, value in kwargs.items() if name != "input_grad_shape"} | {
        "input_grad_shape": found
    }


@_gradient(
    tuning="input input_grad compute_kernel_config",
    reads="output_grad",
    unread="input",
    rearrange=_with_shape,
    provided=("input_grad_shape",),
)
def moreh_sum_backward(
    output_grad: Operand, *, dim: Dims = None, keepdim: bool = False, input_grad_shape: Sequence[int] = ()
) -> Local:
    """The gradient of what moreh_sum summed, which `input` or `input_grad` has the shape of."""
    return _spread("moreh_sum_backward", output_grad, tuple(input_grad_shape), dim, 1)


@_gradient(reads="output_grad", rearrange=_with_shape)
def moreh_mean_backward(
    output_grad: Operand, *, dim: Dims = None, keepdim: bool = False, input_grad_shape: Sequence[int] = ()
) -> Local:
    """The gradient of what moreh_mean averaged, of the shape `input_grad_shape`, or else that of `input_grad`."""
    shape = tuple(int(n) for n in input_grad_shape)
    chosen = range(len(shape)) if dim is None or (isinstance(dim, Sequence) and not len(dim)) else dim
    dims = chosen if isinstance(chosen, Sequence) else [chosen]
    return _spread("moreh_mean_backward", output_grad, shape, dim, math.prod(shape[d] for d in dims))


@_gradient(kind=Kind.SCAN, rule=scan_rule, reads="output_grad")
def moreh_cumsum_backward(output_grad: Operand, dim: int) -> Local:
    """Running sums from the end."""
    at = output_grad.from_end(dim)
    return Local(lambda grad: grad.flip(at).cumsum(at).flip(at), scan_rule((at,)))


# -- norms ------------------------------------------------------------------------------------------


def _norm(x: torch.Tensor, p: float, dims: list[int], keepdim: bool) -> torch.Tensor:
    """The sum of |x|^p to the power of 1/p; of infinite p the largest, or the smallest; of 0 how many are not 0."""
    size = x.abs()
    if not dims:
        return (x != 0).to(x.dtype) if p == 0 else size
    if math.isinf(p):
        return size.amax(dims, keepdim=keepdim) if p > 0 else size.amin(dims, keepdim=keepdim)
    if p == 0:
        return (x != 0).to(x.dtype).sum(dims, keepdim=keepdim)
    return size.pow(p).sum(dims, keepdim=keepdim).pow(1 / p)


@_reduced(part_work=part_work.NORMALIZES, floats_only=True)
def moreh_norm(input: Operand, p: float, *, dim: Dims = None, keepdim: bool = False) -> Local:
    """The p-norm along the dims, of all of them by default."""
    dims = _from_end(input, dim)
    rule = rules.reducing(None, dims, keepdim)
    return Local(lambda x: _norm(x, p, dims, keepdim), rule, fills_target=True)


@_gradient(floats_only=True, reads="output output_grad")
def moreh_norm_backward(
    input: Operand, output: Operand, output_grad: Operand, p: float, *, dim: Dims = None, keepdim: bool = False
) -> Local:
    """The gradient of what moreh_norm took the norm of."""
    dims = _from_end(input, dim)
    kept = tuple(1 if d - input.rank in dims else n for d, n in enumerate(input.shape))

    def one(x: torch.Tensor, norm: torch.Tensor, grad: torch.Tensor) -> torch.Tensor:
        norm, grad, size = norm.reshape(kept), grad.reshape(kept), x.abs()
        if p == 0:
            return torch.zeros_like(x)
        if math.isinf(p):
            same = (size == norm).to(x.dtype)
            return x.sign() * same * grad / same.sum(dims, keepdim=True)
        slope = x.sign() * size.pow(p - 1) * grad / norm.pow(p - 1)
        return torch.where((norm == 0) | ((size == 0) & (p < 1)), 0.0, slope)

    return Local(on_each_device(one, input, output, output_grad))


def _norm_of_all(inputs: Sequence[Operand], p: float) -> Local:
    """The norm of several tensors together, on each device."""

    def one(*tensors: torch.Tensor) -> torch.Tensor:
        return _norm(torch.cat([tensor.flatten() for tensor in tensors]), p, [-1], True)

    return Local(on_each_device(one, *inputs), rules.opaque)


_CLIP = "moreh_clip_grad_norm"
norm_of_all = Operation(
    Definition(
        _CLIP,
        Kind.REDUCTION,
        _norm_of_all,
        Signature(_CLIP, _norm_of_all, ["memory_config"], []),
        flops_per_element(2),
        floats_only=True,
    )
)


@operation(
    kind=Kind.ELEMENTWISE,
    cost=flops_per_element(4),
    controls="output memory_config",
    tuning="compute_kernel_config",
    floats_only=True,
)
def moreh_abs_pow(input: Operand, p: float) -> Local:
    """|x| to the power of p."""
    return Local(lambda x: x.abs().pow(p))


# -- soft maxima ------------------------------------------------------------------------------------

_FORWARD: dict[str, Callable[[torch.Tensor, int], torch.Tensor]] = {
    "moreh_softmax": torch.softmax,
    "moreh_softmin": lambda x, at: torch.softmax(-x, at),
    "moreh_logsoftmax": torch.log_softmax,
}
_BACKWARD: dict[str, Callable[[torch.Tensor, torch.Tensor, int], torch.Tensor]] = {
    "moreh_softmax": lambda y, grad, at: (grad - (grad * y).sum(at, keepdim=True)) * y,
    "moreh_softmin": lambda y, grad, at: -(grad - (grad * y).sum(at, keepdim=True)) * y,
    "moreh_logsoftmax": lambda y, grad, at: grad - grad.sum(at, keepdim=True) * y.exp(),
}


def _register(name: str) -> None:
    def define(input_tensor: Operand, dim: int) -> Local:
        at = input_tensor.from_end(dim)
        return Local(lambda x: _FORWARD[name](x, at), rules.within(at))

    def define_backward(output_tensor: Operand, output_grad_tensor: Operand, dim: int) -> Local:
        at = output_tensor.from_end(dim)
        return Local(lambda y, grad: _BACKWARD[name](y, grad, at), rules.within(at))

    define.__doc__ = f"{name.removeprefix('moreh_')} along a dim."
    define_backward.__doc__ = f"The gradient of {name}, from its result."
    tuning = "op strategy compute_kernel_config"
    options: dict[str, Any] = {"kind": Kind.NORM, "rule": rules.within, "floats_only": True}
    cost = flops_per_element(5)
    operation(name, cost=cost, controls="output_tensor memory_config", tuning=tuning, **options)(define)
    operation(
        f"{name}_backward",
        part_work=part_work.UNNOTICED,
        cost=cost,
        controls="memory_config",
        tuning=f"input_grad_tensor {tuning}",
        reads="output_tensor output_grad_tensor",
        writes="input_grad_tensor",
        present=delivered_alone("input_grad_tensor"),
        **options,
    )(define_backward)


for _name in _FORWARD:
    _register(_name)
