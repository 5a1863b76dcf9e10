"""Along a dim, in order: sorting, running products and averages, sums over all that lies before."""

from __future__ import annotations

from typing import Any

import torch

from softmesh.dispatch.cost_rules import flops_per_element
from softmesh.dispatch.operand import Operand
from softmesh.dispatch.operation import operation
from softmesh.dispatch.plan import Local
from softmesh.errors import MeshError
from softmesh.placement import rules
from softmesh.tensor.dtype import DataType, Layout

_LARGEST_UINT16 = 65535


@operation(cost=flops_per_element(16), controls="memory_config out", precision="native")
def sort(input_tensor: Operand, dim: int = -1, descending: bool = False, stable: bool = False) -> Local:
    """[values in order, the places they come from] along `dim`; places as uint16, uint32 above 65,535.

    Equal values keep their order; TT-NN promises that for `stable=True` only.
    """
    at = input_tensor.from_end(dim)
    is_long = input_tensor.shape[at] > _LARGEST_UINT16
    index_type = DataType.UINT32 if is_long else DataType.UINT16
    return Local(
        lambda x: list(torch.sort(x, dim=at, descending=bool(descending), stable=True)),
        rules.within(at),
        dtypes=(input_tensor.dtype, index_type),
    )


@operation(cost=flops_per_element(1), controls="dtype memory_config out")
def cumprod(input_tensor: Operand, dim: int, *, reverse_order: bool = False) -> Local:
    """Running products along `dim`; from the end with `reverse_order`."""
    at = input_tensor.from_end(dim)

    def compute(x: torch.Tensor) -> torch.Tensor:
        return x.flip(at).cumprod(at).flip(at) if reverse_order else x.cumprod(at)

    return Local(compute, rules.within(at))


def running(dims: tuple[int, ...]) -> rules.SingleRule:
    """Linear, and mixing values along `dims`."""

    def rule(at: rules.Situation) -> rules.Placement:
        mixed = {dim % len(at.shape) for dim in dims}
        if isinstance(at.word, rules.Shard) and at.word.dim in mixed:
            return rules.LOCAL
        return rules.linear(at)

    return rule


@operation(cost=flops_per_element(1), controls="memory_config output")
def moreh_cumsum(input: Operand, dim: int) -> Local:
    """Running sums along `dim`."""
    at = input.from_end(dim)
    return Local(lambda x: x.cumsum(at), running((at,)))


@operation("experimental.intimg", cost=flops_per_element(2), controls="", floats_only=True)
def integral_image(input_tensor: Operand) -> Local:
    """[N, H, W, C]: at each pixel the sum of all above and to the left of it, its own row and column included."""
    if input_tensor.rank != 4:
        raise MeshError(f"experimental.intimg: input_tensor {list(input_tensor.shape)} must be [N, H, W, C].")
    return Local(lambda x: x.cumsum(-3).cumsum(-2), running((-3, -2)))


def averaging_matrix(length: int, alpha: float, like: torch.Tensor) -> torch.Tensor:
    """(length, length): what each value counts in the average at each later place."""
    places = torch.arange(length, device=like.device)
    age = places.unsqueeze(0) - places.unsqueeze(1)  # of row's value at column's place
    weights = torch.pow(torch.tensor(alpha, dtype=torch.float64), age.clamp_min(0).double())
    return torch.where(age >= 0, (1 - alpha) * weights, 0.0).to(like.dtype)


_LONGEST_BLOCK = 256  # values that one product averages: beyond it, blocks follow each other


@operation(
    cost=flops_per_element(3),
    controls="out memory_config",
    tuning="core_grid compute_kernel_config",
    floats_only=True,
)
def ema(input_tensor: Operand, alpha: float) -> Local:
    """y[t] = alpha * y[t - 1] + (1 - alpha) * x[t] along the last dim, from y = 0 before the first.

    What TT-NN starts from is not documented.
    """
    if not 0 <= alpha <= 1:
        raise MeshError(f"ema: alpha={alpha} must lie between 0 and 1.")

    def compute(x: torch.Tensor) -> torch.Tensor:
        blocks: list[torch.Tensor] = []
        for block in x.split(_LONGEST_BLOCK, -1):
            average = block @ averaging_matrix(block.shape[-1], alpha, x)
            if blocks:
                fading = alpha ** torch.arange(1, block.shape[-1] + 1, device=x.device, dtype=x.dtype)
                average = average + blocks[-1][..., -1:] * fading
            blocks.append(average)
        return torch.cat(blocks, -1)

    return Local(compute, running((-1,)))


_NON_ZERO_WIDTH = 8  # of the tensor in which TT-NN counts them
_NON_ZERO: dict[str, Any] = {
    "dtypes": (DataType.UINT32, DataType.UINT32),
    "layouts": (Layout.ROW_MAJOR, Layout.ROW_MAJOR),
}


@operation(controls="memory_config", precision="data")
def nonzero(input_tensor: Operand) -> Local:
    """[1, 1, 1, X] row-major -> [how many are not 0, their places first in order and 0 after them], as uint32.

    The first result is [1, 1, 1, 8], with the number at its first place and 0 at the others.
    """
    if input_tensor.shape[:-1] != (1, 1, 1) or input_tensor.layout is not Layout.ROW_MAJOR:
        raise MeshError(
            f"nonzero: input_tensor must be [1, 1, 1, X] in ROW_MAJOR layout, got {list(input_tensor.shape)}, "
            f"{input_tensor.layout}."
        )
    length = input_tensor.shape[-1]

    def compute(x: torch.Tensor) -> list[torch.Tensor]:
        found = x != 0
        places = torch.arange(length, device=x.device)
        order = torch.where(found, places, length).sort(-1).values
        count = found.sum(-1, keepdim=True)
        return [
            torch.nn.functional.pad(count, (0, _NON_ZERO_WIDTH - 1)),
            torch.where(order < length, order, 0),
        ]

    return Local(compute, rules.opaque, **_NON_ZERO)
