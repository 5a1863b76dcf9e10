"""moreh_arange, moreh_getitem and moreh_fold: numbers in a row, values by index, patches put together."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F

from softmesh.arguments import refused
from softmesh.dispatch.cost_rules import moves_bytes
from softmesh.dispatch.operand import Operand
from softmesh.dispatch.operation import OPERATIONS, operation
from softmesh.dispatch.plan import Local
from softmesh.errors import MeshError
from softmesh.hardware.memory_config import DRAM_MEMORY_CONFIG, MemoryConfig
from softmesh.kinds import Kind
from softmesh.ops.device_batches import on_each_device
from softmesh.placement import rules
from softmesh.runtime.device import MeshDevice
from softmesh.tensor.dtype import DataType, Layout
from softmesh.tensor.from_torch_values import created
from softmesh.tensor.tensor import Tensor

_MOVES: dict[str, Any] = {"cost": moves_bytes, "precision": "data"}


def moreh_arange(
    start: float = 0,
    end: float | None = None,
    step: float = 1,
    device: MeshDevice | None = None,
    *,
    output: Tensor | None = None,
    untilize_out: bool = False,
    dtype: DataType = DataType.BFLOAT16,
    memory_config: MemoryConfig = DRAM_MEMORY_CONFIG,
) -> Tensor:
    """[1, n] in tiles, or [n] in rows with `untilize_out`: start, start + step, ... before end."""
    if end is None or (device is None and output is None):
        raise refused("moreh_arange", "give start, end, step and a device")
    if not step or (end - start) * step < 0:
        raise MeshError(f"moreh_arange: step {step} does not lead from {start} to {end}.")
    count = math.ceil((end - start) / step)
    values = start + step * torch.arange(count, dtype=torch.float64)
    layout = Layout.ROW_MAJOR if untilize_out else Layout.TILE
    mesh = output.device() if device is None and output is not None else device
    shaped = values if untilize_out else values.unsqueeze(0)
    made = created("moreh_arange", shaped, dtype, layout, mesh, memory_config, None)
    if output is None:
        return made
    shaped_alike = OPERATIONS["reshape"](made, list(output.shape))
    filled: Tensor = OPERATIONS["assign"](shaped_alike, output_tensor=output)
    return filled


@operation(kind=Kind.LOOKUP, rule=rules.opaque, **_MOVES, controls="output memory_config")
def moreh_getitem(
    input: Operand | None = None, index_tensors: Sequence[Operand] = (), index_dims: Sequence[int] = ()
) -> Local:
    """input[..., index, ...]: what the indices say along the dims, which follow each other; the others whole."""
    if input is None or not index_tensors or len(index_tensors) != len(index_dims):
        raise MeshError("moreh_getitem: give input, index_tensors, and index_dims with a dim for each of them.")
    dims = [input.dim(dim, "index_dims") for dim in index_dims]
    if dims != list(range(dims[0], dims[0] + len(dims))):
        raise MeshError(f"moreh_getitem: The index dims {list(index_dims)} must be consecutive.")

    def one(x: torch.Tensor, *indices: torch.Tensor) -> torch.Tensor:
        at: list[Any] = [slice(None)] * x.dim()
        for dim, index in zip(dims, indices, strict=True):
            at[dim] = index.reshape(-1).long()
        return x[tuple(at)]

    return Local(on_each_device(one, input, *index_tensors), fills_target=True)


@operation(
    kind=Kind.MOVEMENT,
    rule=rules.opaque,
    cost=moves_bytes,
    controls="output memory_config",
    positional="output output_size kernel_size dilation padding stride memory_config",
    floats_only=True,
)
def moreh_fold(
    input: Operand,
    *,
    output_size: Sequence[int] = (),
    kernel_size: Sequence[int] = (),
    dilation: Sequence[int] = (1, 1),
    padding: Sequence[int] = (0, 0),
    stride: Sequence[int] = (1, 1),
) -> Local:
    """[N, C * kernel, patches] to [N, C, *output_size]: where patches overlap, their sum."""
    if len(output_size) != 2 or len(kernel_size) != 2:
        raise MeshError("moreh_fold: output_size and kernel_size must each be two numbers.")
    sizes = [tuple(int(n) for n in part) for part in (output_size, kernel_size, dilation, padding, stride)]

    def compute(x: torch.Tensor) -> torch.Tensor:
        own = input.rank
        lead = x.shape[: x.dim() - own]
        made = F.fold(x.reshape(-1, *x.shape[-2:]), *sizes)
        return made.reshape(*lead, *x.shape[len(lead) : x.dim() - 2], *made.shape[1:])

    return Local(compute)
