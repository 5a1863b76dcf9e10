"""batch_norm of images, with the running statistics that training updates."""

from __future__ import annotations

from typing import Any, cast

import torch

from softmesh.arguments import checked_function
from softmesh.dispatch import part_work
from softmesh.dispatch.cost_rules import flops_per_element
from softmesh.dispatch.operand import Operand
from softmesh.dispatch.operation import operation
from softmesh.dispatch.plan import Local
from softmesh.errors import MeshError
from softmesh.hardware.memory_config import MemoryConfig
from softmesh.kinds import Kind
from softmesh.placement import dim_labels, rules
from softmesh.tensor.convert import round_to
from softmesh.tensor.tensor import Tensor


def _check_channels(images: Operand, *others: Operand | None) -> None:
    if images.rank != 4:
        raise MeshError(f"batch_norm: input {list(images.shape)} must be [N, C, H, W].")
    wanted = (1, images.shape[1], 1, 1)
    for operand in others:
        if operand is not None and operand.shape != wanted:
            raise MeshError(f"batch_norm: {operand.name} {list(operand.shape)} must be {list(wanted)}.")


@operation(
    "batch_norm",
    kind=Kind.NORM,
    rule=rules.elementwise,
    part_work=part_work.UNNOTICED,
    cost=flops_per_element(4),
    controls="memory_config output",
    floats_only=True,
)
def _batch_norm(
    input: Operand,
    mean: Operand,
    variance: Operand,
    *,
    eps: float,
    weight: Operand | None = None,
    bias: Operand | None = None,
) -> Local:
    """(x - mean) / sqrt(variance + eps) * weight + bias, for each channel of [N, C, H, W]."""
    _check_channels(input, mean, variance, weight, bias)

    def compute(x: torch.Tensor, m: torch.Tensor, v: torch.Tensor, w: Any, b: Any) -> torch.Tensor:
        result = (x - m) * torch.rsqrt(v + eps)
        result = result if w is None else result * w
        return result if b is None else result + b

    return Local(compute)


@operation(
    "prim.batch_statistics",
    kind=Kind.NORM,
    cost=flops_per_element(3),
    controls="",
    floats_only=True,
    results="list[Tensor]",
)
def _statistics(input: Operand) -> Local:
    """The mean of each channel and the mean square distance from it, over batch and pixels."""
    _check_channels(input)

    def compute(x: torch.Tensor) -> list[torch.Tensor]:
        mean = x.mean((-4, -2, -1), keepdim=True)
        return [mean, (x - mean).square().mean((-4, -2, -1), keepdim=True)]

    @rules.labelled(dim_labels.moved({1: 1}.get, passes=""))
    def rule(at: rules.Situation) -> rules.Placement:
        rules.refuse_partial(at)
        return at.word if isinstance(at.word, rules.Shard) and at.word.dim == 1 else rules.LOCAL

    return Local(compute, rule)


@operation(
    "prim.running_statistics",
    kind=Kind.NORM,
    rule=rules.elementwise,
    part_work=part_work.UNNOTICED,
    controls="",
    precision="data",
    updates="running",
)
def _follow(running: Operand, batch: Operand, *, momentum: float, followed: str = "both") -> Local:
    """running = (1 - momentum) * running + momentum * batch, in place.

    One program serves both statistics, or the one that is `followed`.
    """
    dtype = running.dtype

    def compute(kept: torch.Tensor, new: torch.Tensor) -> torch.Tensor:
        return kept.copy_(round_to((1 - momentum) * kept.float() + momentum * new.float(), dtype))

    return Local(compute)


@checked_function
def batch_norm(
    input: Tensor,
    *,
    running_mean: Tensor | None = None,
    running_var: Tensor | None = None,
    training: bool = False,
    eps: float = 1e-5,
    momentum: float = 0.1,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    output: Tensor | None = None,
    memory_config: MemoryConfig | None = None,
    compute_kernel_config: object = None,
) -> Tensor:
    """[N, C, H, W] by running statistics [1, C, 1, 1]; in training by those of this batch on each device.

    Training also moves the running statistics towards the batch's, in place, each by its own: as in TT-NN the
    variance is the plain mean square, where torch divides by one less.
    """
    mean, variance = running_mean, running_var
    if training:
        mean, variance = _statistics(input)
        followed = "variance" if running_mean is None else "mean" if running_var is None else "both"
        for running, batch in ((running_mean, mean), (running_var, variance)):
            if running is not None:
                _follow(running, batch, momentum=momentum, followed=followed)
    if mean is None or variance is None:
        raise MeshError(
            "running_mean and running_var must be defined in evaluation mode: give batch_norm both, or training=True."
        )
    given = {"eps": eps, "weight": weight, "bias": bias, "output": output, "memory_config": memory_config}
    return cast(Tensor, _batch_norm(input, mean, variance, **given))
