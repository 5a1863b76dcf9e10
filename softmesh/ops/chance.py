"""Ops that draw: dropout and bernoulli. A seed repeats itself; the numbers are torch's, not the chip's."""

from __future__ import annotations

from typing import cast

import torch

from softmesh.arguments import checked, checked_int
from softmesh.dispatch.checked_function import checked_function
from softmesh.dispatch.cost_rules import flops_per_element
from softmesh.dispatch.operand import Operand, Value
from softmesh.dispatch.operation import operation
from softmesh.dispatch.plan import Local
from softmesh.errors import MeshError
from softmesh.hardware.memory_config import MemoryConfig
from softmesh.placement import rules
from softmesh.placement.distribution import Distribution
from softmesh.placement.words import LOCAL, REPLICATE, Placement, Shard
from softmesh.tensor.dtype import DataType
from softmesh.tensor.spec import make_spec
from softmesh.tensor.storage import Storage
from softmesh.tensor.tensor import Tensor


@operation("experimental.dropout", cost=flops_per_element(2), controls="memory_config output_tensor")
def _dropout(input_tensor: Operand, draws: Operand, probability: Value, scale: Value) -> Local:
    """The input times `scale` where its draw is not below the probability, else 0."""

    def compute(x: torch.Tensor, drawn: torch.Tensor, threshold: float, factor: float) -> torch.Tensor:
        return torch.where(drawn < threshold, 0.0, x * factor)

    return Local(compute, rules.elementwise)


@checked_function
def dropout(
    input_tensor: Tensor,
    probability: float,
    scale: float,
    seed: int,
    *,
    use_per_device_seed: bool = True,
    memory_config: MemoryConfig | None = None,
    output_tensor: Tensor | None = None,
) -> Tensor:
    """0 with this probability, else the input times `scale`; each device draws for itself unless told otherwise."""
    if not 0 <= probability <= 1:
        raise MeshError(f"experimental.dropout: probability={probability} must lie between 0 and 1.")
    drawn = _draws("experimental.dropout", input_tensor, seed, use_per_device_seed)
    given = {"memory_config": memory_config, "output_tensor": output_tensor}
    return cast(Tensor, _dropout(input_tensor, drawn, float(probability), float(scale), **given))


@operation("bernoulli", controls="output dtype memory_config", tuning="compute_kernel_config")
def _bernoulli(input: Operand, draws: Operand) -> Local:
    """1 where the draw is below the input, else 0."""
    return Local(lambda x, drawn: drawn < x, rules.elementwise)


@checked_function
def bernoulli(
    input: Tensor,
    seed: int = 0,
    *,
    output: Tensor | None = None,
    dtype: DataType | None = None,
    memory_config: MemoryConfig | None = None,
    compute_kernel_config: object = None,
) -> Tensor:
    """1 with the probability that the input has at each place, else 0; seed 0 draws from torch's generator."""
    drawn = _draws("bernoulli", input, seed, True)
    kwargs = {"output": output, "dtype": dtype, "memory_config": memory_config}
    return cast(Tensor, _bernoulli(input, drawn, compute_kernel_config=compute_kernel_config, **kwargs))


def _draws(op: str, like: Tensor, seed: int, per_device: bool) -> Tensor:
    """Uniform in [0, 1): the same for all devices, or each device its own."""
    checked(op, "input_tensor", like, Tensor, "a ttnn.Tensor").check_readable(op)
    number = checked_int(op, "seed", seed)
    device = like.storage.device
    if device is None:
        raise MeshError(
            f"{op}: the input must be on a device: move it with ttnn.to_device(tensor, mesh_device)."
        )
    dist = _own(like.view_distribution(), per_device)
    first = device.get_device_ids()[0] if per_device and device.get_device_ids() else 0
    generator = torch.Generator().manual_seed(number + first) if number else None
    values = torch.rand((*dist.extents, *like.shape), generator=generator).to(device.torch_device)
    spec = make_spec(tuple(like.shape), DataType.FLOAT32, like.layout, tile=like.tile)
    return Tensor.make(Storage(values, dist, device), spec)


def _own(dist: Distribution, per_device: bool) -> Distribution:
    """Where pieces differ, their draws do: a split stays one, what all devices share they share no longer."""
    words: list[Placement] = []
    for word in dist.placements:
        words.append((word if isinstance(word, Shard) else LOCAL) if per_device else REPLICATE)
    return dist.with_placements(tuple(words))
