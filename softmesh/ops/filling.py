"""Values by place: a constant, a corner of another value, one side of a diagonal."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from softmesh.dispatch.checked_function import checked_function
from softmesh.dispatch.cost_rules import moves_bytes
from softmesh.dispatch.operand import Operand, Value
from softmesh.dispatch.operation import operation
from softmesh.dispatch.plan import Local
from softmesh.errors import MeshError
from softmesh.hardware.memory_config import DRAM_MEMORY_CONFIG, MemoryConfig
from softmesh.ops.creation import full
from softmesh.placement import rules
from softmesh.runtime.device import MeshDevice
from softmesh.tensor.dtype import DataType, Layout
from softmesh.tensor.tensor import Tensor

_OPTIONS: dict[str, Any] = {"cost": moves_bytes, "precision": "data"}


def _as_split(at: rules.Situation) -> rules.Placement:
    """Of values that no operand decides: split where the operand is, the same everywhere else."""
    return at.word if isinstance(at.word, rules.Shard) else rules.REPLICATE


@operation(**_OPTIONS, controls="memory_config output_tensor", tuning="sub_core_grids")
def fill(input_tensor: Operand, fill_value: Value) -> Local:
    """`fill_value` in the shape, dtype and split of the tensor."""

    def compute(x: torch.Tensor, value: float) -> torch.Tensor:
        kind = torch.float32 if isinstance(value, float) else torch.int64
        return torch.full(x.shape, value, dtype=kind, device=x.device)

    return Local(compute, _as_split)


def _corner(op: str, sizes: Sequence[int], corner: Sequence[int]) -> Local:
    """[N, C, H, W], row-major: one value in the first rows and columns, another elsewhere."""
    if min(sizes) < 1 or any(not 0 <= n <= extent for n, extent in zip(corner, sizes[2:], strict=True)):
        raise MeshError(f"{op}: a corner of {list(corner)} does not fit into {list(sizes)}.")

    def compute(x: torch.Tensor, high: float = 1.0, low: float = 0.0) -> torch.Tensor:
        lead = x.shape[:-4]
        values = torch.full((*lead, *sizes), low, device=x.device)
        values[..., : corner[0], : corner[1]] = high
        return values

    return Local(compute, lambda at: rules.REPLICATE, layouts=(Layout.ROW_MAJOR,))


def _check_four(op: str, operand: Operand) -> None:
    if operand.rank != 4:
        raise MeshError(f"{op}: any {list(operand.shape)} must have 4 dims; its values do not matter.")


@operation(**_OPTIONS, controls="memory_config")
def fill_rm(
    N: int, C: int, H: int, W: int, hOnes: int, wOnes: int, any: Operand, val_hi: Value, val_lo: Value
) -> Local:
    """[N, C, H, W] with val_hi in the first hOnes rows and wOnes columns, val_lo elsewhere; `any` gives the device."""
    _check_four("fill_rm", any)
    return _corner("fill_rm", (N, C, H, W), (hOnes, wOnes))


@operation(**_OPTIONS, controls="memory_config")
def fill_ones_rm(N: int, C: int, H: int, W: int, hOnes: int, wOnes: int, any: Operand) -> Local:
    """As `fill_rm`, with 1 and 0."""
    _check_four("fill_ones_rm", any)
    return _corner("fill_ones_rm", (N, C, H, W), (hOnes, wOnes))


def _triangle(op: str, operand: Operand, diagonal: int, is_lower: bool) -> Local:
    if operand.rank < 2:
        raise MeshError(f"{op}: {operand.name} {list(operand.shape)} must have two dims or more.")
    cut = torch.tril if is_lower else torch.triu
    last = operand.rank - 2

    def rule(at: rules.Situation) -> rules.Placement:
        """Which side of the diagonal a value of a split matrix is on, a piece does not know."""
        return rules.LOCAL if isinstance(at.word, rules.Shard) and at.word.dim >= last else rules.linear(at)

    return Local(lambda x: cut(x, diagonal), rule)


@operation(**_OPTIONS, controls="memory_config")
def tril(input_tensor: Operand, *, diagonal: int = 0) -> Local:
    """0 above the diagonal of the last two dims."""
    return _triangle("tril", input_tensor, diagonal, is_lower=True)


@operation(**_OPTIONS, controls="memory_config")
def triu(input_tensor: Operand, *, diagonal: int = 0) -> Local:
    """0 below the diagonal of the last two dims."""
    return _triangle("triu", input_tensor, diagonal, is_lower=False)


@checked_function
def moreh_full(
    shape: Sequence[int],
    fill_value: float,
    device: MeshDevice,
    *,
    dtype: DataType = DataType.BFLOAT16,
    layout: Layout = Layout.TILE,
    memory_config: MemoryConfig = DRAM_MEMORY_CONFIG,
) -> Tensor:
    """`fill_value` everywhere, in tiles unless asked otherwise."""
    return full(shape, fill_value, dtype, layout, device, memory_config)


@operation(**_OPTIONS, controls="")
def composite_example(input_tensor: Operand) -> Local:
    """TT-NN's example of an op that is made of others: a copy."""
    return Local(torch.clone, rules.keeping)


@checked_function
def composite_example_multiple_return(
    input_tensor: Tensor, return_output1: bool = True, return_output2: bool = True
) -> list[Tensor | None]:
    """TT-NN's example of an op of several results: copies, those that are asked for."""
    return [composite_example(input_tensor) if yes else None for yes in (return_output1, return_output2)]
