"""moreh_layer_norm and moreh_group_norm: norms over several dims, with mean and 1 / deviation where they are wanted."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from softmesh.dispatch.cost_rules import flops_per_element
from softmesh.dispatch.operand import Operand
from softmesh.dispatch.operation import OPERATIONS, Operation, operation
from softmesh.dispatch.plan import Local
from softmesh.errors import MeshError
from softmesh.placement import rules
from softmesh.placement.sentences import placed

_STATISTICS = ("output", "mean", "rstd")


def _handed_out(op: str, found: list[Any], given: dict[str, Any]) -> list[Any]:
    """[output, mean, 1 / deviation]: written into the tensors given for them, None where nobody asked for one."""
    required = given.get("are_required_outputs")
    if required is not None and (not isinstance(required, list | tuple) or len(required) != len(_STATISTICS)):
        raise MeshError(f"{op}: are_required_outputs={required!r} must say True or False for each of {_STATISTICS}.")
    handed: list[Any] = []
    for at, (name, result) in enumerate(zip(_STATISTICS, found, strict=True)):
        target = given[name]
        is_wanted = at == 0 or target is not None if required is None else required[at]
        kept = result if target is None else OPERATIONS["assign"](result, output_tensor=target)
        handed.append(kept if is_wanted else None)
    return handed


def _moreh_norm(name: str, choices: str = "") -> Callable[[Callable[..., Local]], Operation]:
    return operation(
        f"moreh_{name}",
        aliases=(f"operations.moreh.{name}",),
        cost=flops_per_element(8),
        controls="memory_config",
        tuning=f"{' '.join(_STATISTICS)} {choices} compute_kernel_config",
        floats_only=True,
        present=_handed_out,
        results="list[Tensor | None]",
    )


def _standardised(x: torch.Tensor, dims: tuple[int, ...], eps: float) -> tuple[torch.Tensor, ...]:
    """x as it deviates from its mean over `dims`, that mean, and 1 / deviation, with the dims kept."""
    mean = x.mean(dims, keepdim=True)
    centred = x - mean
    rstd = torch.rsqrt(centred.square().mean(dims, keepdim=True) + eps)
    return centred * rstd, mean, rstd


@placed("Split as the operand is; split along a dim that it normalises, or with a weight that is split, Local.")
def _outside_of(first_normalised: int, moved: int) -> rules.Rule:
    """Splits of dims before the normalised ones stay; in the statistics they stand `moved` dims further on."""

    def rule(at: rules.Situation) -> list[rules.Placement]:
        rules.refuse_partial(at)
        word = at.words[0]
        has_own_weights = any(w not in (None, rules.REPLICATE) for w in at.words[1:])
        if has_own_weights or not isinstance(word, rules.Shard) or word.dim >= first_normalised:
            return [rules.LOCAL] * 3
        return [word, *[word.at(word.dim + moved)] * 2]

    return rule


@_moreh_norm("layer_norm")
def moreh_layer_norm(
    input: Operand, normalized_dims: int, eps: float = 1e-5, gamma: Operand | None = None, beta: Operand | None = None
) -> Local:
    """[output, mean, rstd] of a layer norm over the last `normalized_dims` dims.

    mean and rstd come without these dims, and only where tensors for them are given; else they are None.
    """
    if not 1 <= normalized_dims <= input.rank:
        raise MeshError(
            f"moreh_layer_norm: normalized_dims={normalized_dims} must be 1 to {input.rank}, the rank of input "
            f"{list(input.shape)}."
        )
    normalised = input.shape[-normalized_dims:]
    for operand in (gamma, beta):
        if operand is not None and operand.spec.logical_volume() != torch.Size(normalised).numel():
            raise MeshError(
                f"moreh_layer_norm: {operand.name} {list(operand.shape)} must hold a value for each of the normalised "
                f"{list(normalised)}."
            )
    ranks = [0 if operand is None else operand.rank for operand in (gamma, beta)]
    dims = tuple(range(-normalized_dims, 0))
    kept = input.shape[:-normalized_dims] or (1,)
    lead = input.rank - normalized_dims

    def fitted(values: torch.Tensor, own_rank: int) -> torch.Tensor:
        return values.reshape(*values.shape[: values.dim() - own_rank], *(1,) * lead, *normalised)

    def compute(x: torch.Tensor, g: torch.Tensor | None, b: torch.Tensor | None) -> list[torch.Tensor]:
        normed, mean, rstd = _standardised(x, dims, eps)
        normed = normed if g is None else normed * fitted(g, ranks[0])
        normed = normed if b is None else normed + fitted(b, ranks[1])
        mesh = x.shape[: x.dim() - input.rank]
        return [normed, mean.reshape(*mesh, *kept), rstd.reshape(*mesh, *kept)]

    return Local(compute, _outside_of(lead, 0))


@_moreh_norm("group_norm", "are_required_outputs")
def moreh_group_norm(
    input: Operand, num_groups: int, eps: float = 1e-5, gamma: Operand | None = None, beta: Operand | None = None
) -> Local:
    """[output, mean, rstd] of images [N, C, H, W], normalised in each of `num_groups` groups of channels.

    mean and rstd are [1, 1, N, num_groups]; `are_required_outputs` says which of the three are made, the first alone
    where it is not given.
    """
    if input.rank != 4 or num_groups < 1 or input.shape[1] % num_groups:
        raise MeshError(
            f"moreh_group_norm: num_groups={num_groups} must divide the channels C of input {list(input.shape)}, "
            "which must be [N, C, H, W]."
        )
    images, channels, *_ = input.shape
    for operand in (gamma, beta):
        if operand is not None and operand.spec.logical_volume() != channels:
            raise MeshError(f"moreh_group_norm: {operand.name} {list(operand.shape)} must hold {channels} values.")
    ranks = [0 if operand is None else operand.rank for operand in (gamma, beta)]

    def fitted(values: torch.Tensor, own_rank: int) -> torch.Tensor:
        return values.reshape(*values.shape[: values.dim() - own_rank], 1, channels, 1, 1)

    def compute(x: torch.Tensor, g: torch.Tensor | None, b: torch.Tensor | None) -> list[torch.Tensor]:
        groups = x.unflatten(-3, (num_groups, -1))
        normed, mean, rstd = _standardised(groups, (-3, -2, -1), eps)
        normed = normed.flatten(-4, -3)
        normed = normed if g is None else normed * fitted(g, ranks[0])
        normed = normed if b is None else normed + fitted(b, ranks[1])
        shape = (*x.shape[:-4], 1, 1, images, num_groups)
        return [normed, mean.reshape(shape), rstd.reshape(shape)]

    return Local(compute, _outside_of(1, 2))
