"""moreh_layer_norm and moreh_group_norm, with the mean and the inverse deviation they used, and their gradients."""

from __future__ import annotations

import math
from typing import Any

import torch

from softmesh.dispatch import part_work
from softmesh.dispatch.cost_rules import flops_per_element
from softmesh.dispatch.operand import Operand
from softmesh.dispatch.operation import operation
from softmesh.dispatch.plan import Local
from softmesh.errors import MeshError
from softmesh.kinds import Kind
from softmesh.ops.device_batches import asked_for, delivered, on_each_device
from softmesh.placement import rules

_STATISTICS = ("output", "mean", "rstd")
_GRADIENTS = ("input_grad", "gamma_grad", "beta_grad")


def _normalized(x: torch.Tensor, dims: list[int], eps: float) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """The norm, the mean and the inverse deviation along the dims, which stay with extent 1."""
    mean = x.mean(dims, keepdim=True)
    rstd = (x - mean).square().mean(dims, keepdim=True).add(eps).rsqrt()
    return (x - mean) * rstd, mean, rstd


@operation(
    kind=Kind.NORM,
    rule=rules.opaque,
    cost=flops_per_element(8),
    controls="memory_config",
    tuning="output mean rstd compute_kernel_config",
    floats_only=True,
    results="list[Tensor | None]",
    writes=" ".join(_STATISTICS),
    present=delivered(*_STATISTICS, only_given=("mean", "rstd")),
)
def moreh_layer_norm(
    input: Operand,
    normalized_dims: int,
    eps: float = 1e-5,
    gamma: Operand | None = None,
    beta: Operand | None = None,
) -> Local:
    """[the norm over the last dims, mean, inverse deviation]; the latter two where output tensors are given."""
    dims = _last_dims(input, normalized_dims)
    inner = input.shape[dims[0] :]
    outer = input.shape[: dims[0]] or (1,)

    def one(x: torch.Tensor, factor: torch.Tensor | None, shift: torch.Tensor | None) -> list[torch.Tensor]:
        made, mean, rstd = _normalized(x, dims, eps)
        made = made if factor is None else made * factor.reshape(inner)
        made = made if shift is None else made + shift.reshape(inner)
        return [made, mean.reshape(outer), rstd.reshape(outer)]

    return Local(on_each_device(one, input, gamma, beta))


def _last_dims(operand: Operand, count: int) -> list[int]:
    if not 1 <= count <= operand.rank:
        raise MeshError(
            f"{operand.op}: normalized_dims={count} must be between 1 and the rank of {list(operand.shape)}."
        )
    return list(range(-count, 0))


def _slopes(
    grad: torch.Tensor, x: torch.Tensor, mean: torch.Tensor, rstd: torch.Tensor, dims: list[int]
) -> tuple[torch.Tensor, torch.Tensor]:
    """The gradient through a norm that was multiplied by nothing, and the norm itself."""
    made = (x - mean) * rstd
    inner = grad - grad.mean(dims, keepdim=True) - made * (grad * made).mean(dims, keepdim=True)
    return inner * rstd, made


@operation(
    kind=Kind.NORM,
    rule=rules.opaque,
    part_work=part_work.UNNOTICED,
    cost=flops_per_element(16),
    controls="memory_config",
    tuning="input_grad gamma_grad beta_grad compute_kernel_config",
    floats_only=True,
    results="list[Tensor | None]",
    reads="output_grad",
    writes=" ".join(_GRADIENTS),
    present=delivered(*_GRADIENTS, only_given=("gamma_grad", "beta_grad")),
)
def moreh_layer_norm_backward(
    output_grad: Operand,
    input: Operand,
    mean: Operand,
    rstd: Operand,
    normalized_dims: int,
    *,
    gamma: Operand | None = None,
) -> Local:
    """[gradient of input, of gamma, of beta]; the latter two where output tensors are given."""
    dims = _last_dims(input, normalized_dims)
    inner = input.shape[dims[0] :]
    kept = (*input.shape[: dims[0]], *(1,) * len(dims))

    def one(
        grad: torch.Tensor, x: torch.Tensor, m: torch.Tensor, r: torch.Tensor, factor: torch.Tensor | None
    ) -> list[torch.Tensor]:
        weighed = grad if factor is None else grad * factor.reshape(inner)
        slope, made = _slopes(weighed, x, m.reshape(kept), r.reshape(kept), dims)
        flat = (-1, *inner)
        return [slope, (grad * made).reshape(flat).sum(0), grad.reshape(flat).sum(0)]

    return Local(on_each_device(one, output_grad, input, mean, rstd, gamma))


def _groups(operand: Operand, num_groups: int) -> tuple[int, ...]:
    """[N, groups, channels of one, H, W]."""
    if operand.rank != 4 or num_groups < 1 or operand.shape[1] % num_groups:
        raise MeshError(
            f"{operand.op}: {operand.name} {list(operand.shape)} must be [N, C, H, W] with channels for "
            f"num_groups={num_groups}."
        )
    n, c, h, w = operand.shape
    return n, num_groups, c // num_groups, h, w


def _asked(default: tuple[bool, ...], names: tuple[str, ...]) -> Any:
    def present(op: str, results: list[Any], given: dict[str, Any]) -> list[Any]:
        required = given["are_required_outputs"]
        wanted = asked_for(op, "are_required_outputs", required) if required is not None else []
        return delivered(*names)(op, results, given | {"are_required_outputs": wanted or list(default)})

    return present


def _group_options(names: tuple[str, ...], controls: str) -> dict[str, Any]:
    configs = " ".join(f"{name}_memory_config" for name in names)
    return {
        "cost": flops_per_element(12),
        "controls": controls,
        "tuning": f"are_required_outputs {' '.join(names)} {configs} compute_kernel_config",
        "floats_only": True,
        "results": "list[Tensor | None]",
        "writes": " ".join(names),
        "present": _asked((True, False, False), names),
    }


@operation(kind=Kind.NORM, rule=rules.opaque, **_group_options(_STATISTICS, "memory_config"))
def moreh_group_norm(
    input: Operand,
    num_groups: int,
    eps: float = 1e-5,
    gamma: Operand | None = None,
    beta: Operand | None = None,
) -> Local:
    """[the norm of each group of channels, mean and inverse deviation as [1, 1, N, groups]]: what is required."""
    split, shape = _groups(input, num_groups), input.shape
    sizes, channels = (1, 1, *split[:2]), (1, shape[1], 1, 1)

    def one(x: torch.Tensor, factor: torch.Tensor | None, shift: torch.Tensor | None) -> list[torch.Tensor]:
        made, mean, rstd = _normalized(x.reshape(split), [-3, -2, -1], eps)
        made = made.reshape(shape)
        made = made if factor is None else made * factor.reshape(channels)
        made = made if shift is None else made + shift.reshape(channels)
        return [made, mean.reshape(sizes), rstd.reshape(sizes)]

    return Local(on_each_device(one, input, gamma, beta))


@operation(
    kind=Kind.NORM,
    rule=rules.opaque,
    part_work=part_work.UNNOTICED,
    **_group_options(_GRADIENTS, ""),
    reads="output_grad",
)
def moreh_group_norm_backward(
    output_grad: Operand,
    input: Operand,
    mean: Operand,
    rstd: Operand,
    num_groups: int,
    *,
    gamma: Operand | None = None,
) -> Local:
    """[gradient of input, of gamma and of beta as [1, 1, 1, C]]: those that are required."""
    split, shape = _groups(input, num_groups), input.shape
    kept, channels = (*split[:2], 1, 1, 1), (1, shape[1], 1, 1)
    if math.prod(mean.shape) != math.prod(split[:2]) or mean.shape != rstd.shape:
        raise MeshError(f"moreh_group_norm_backward: mean {list(mean.shape)} must have a value for each group.")

    def one(
        grad: torch.Tensor, x: torch.Tensor, m: torch.Tensor, r: torch.Tensor, factor: torch.Tensor | None
    ) -> list[torch.Tensor]:
        weighed = grad if factor is None else grad * factor.reshape(channels)
        at = x.reshape(split)
        slope, made = _slopes(weighed.reshape(split), at, m.reshape(kept), r.reshape(kept), [-3, -2, -1])
        by_channel = [(grad * made.reshape(shape)).sum((0, 2, 3)), grad.sum((0, 2, 3))]
        return [slope.reshape(shape), *(one.reshape(1, 1, 1, -1) for one in by_channel)]

    return Local(on_each_device(one, output_grad, input, mean, rstd, gamma))
