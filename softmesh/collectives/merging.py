"""reduce_to_root: the partial results of an attention, merged on one device."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from softmesh.collectives.across import Across, Moved
from softmesh.collectives.groups import Group
from softmesh.collectives.labels import keeping
from softmesh.collectives.sending import position_of
from softmesh.collectives.spelling import Arguments, spelled
from softmesh.collectives.undefined import poison, writing_one_device
from softmesh.dispatch.operand import Operand
from softmesh.errors import MeshError
from softmesh.mesh import MeshCoordinate, MeshShape
from softmesh.placement.topology import topology_of
from softmesh.tensor.dtype import DataType, Layout

_DEVICES = 4
_ROOT = 1  # along the line
_BLOCK = 32  # columns for which one sum and one maximum stand
_ORDER = ((0, 1), (3, 2))  # each pair is merged, then the two results


def _outputs(arguments: Arguments) -> list[Any] | None:
    outputs = [arguments.get(f"output_tensor_{part}") for part in "lsm"]
    if all(output is None for output in outputs):
        return None
    if None in outputs:
        raise MeshError("reduce_to_root: give output_tensor_l, output_tensor_s and output_tensor_m, or none.")
    return outputs


@spelled(
    "reduce_to_root",
    "input_tensor_l input_tensor_s input_tensor_m root_coord | scale_fp32? topology? output_tensor_l? "
    "output_tensor_s? output_tensor_m? intermediate_tensor? input_mux_cores?",
    controls="",
    output=_outputs,
    precision="float32",
    **writing_one_device("root_coord"),
)
def reduce_to_root(
    input_tensor_l: Operand,
    input_tensor_s: Operand,
    input_tensor_m: Operand,
    root_coord: MeshCoordinate,
    *,
    scale_fp32: float = 1.0,
    output_tensor_l: Operand | None = None,
    output_tensor_s: Operand | None = None,
    output_tensor_m: Operand | None = None,
) -> Across:
    """Weighted values, sums and maxima of four devices, as one softmax over all of them would have them."""
    operands = (input_tensor_l, input_tensor_s, input_tensor_m)
    _check(operands)
    blocks = input_tensor_s.shape[-1] // _BLOCK

    def move(group: Group) -> Moved:
        dist = group.dist
        is_line = sum(n > 1 for n in dist.mesh) <= 1
        if group.size != _DEVICES or not is_line:
            raise MeshError(
                f"reduce_to_root: needs exactly {_DEVICES} devices in a line, got {MeshShape(dist.mesh)}. "
                "Open or cut out a mesh of 4x1."
            )
        if position_of(dist, root_coord) != _ROOT:
            raise MeshError(
                f"reduce_to_root: the root must be the second device of the line, {dist.coordinates()[_ROOT]}; "
                f"got root_coord={root_coord}."
            )

        def compute(*data: torch.Tensor | None) -> list[torch.Tensor]:
            each = [
                _members(part, group).unflatten(-1, (blocks, -1)) for part in data[:3] if part is not None
            ]
            of = [tuple(part[i] for part in each) for i in range(_DEVICES)]
            halves = [_merged(of[a], of[b], scale_fp32) for a, b in _ORDER]
            values, sums, maxima = _merged(halves[0], halves[1], scale_fp32)
            results = (values / sums[..., :1], sums, maxima)
            merged = [result.flatten(-2) for result in results]
            return [_at_root(part, kept, group) for part, kept in zip(merged, data[3:], strict=True)]

        return Moved(compute, (keeping(group),) * 3, topology_of(dist))

    layouts = (Layout.TILE,) * 3
    dtypes = tuple(operand.dtype for operand in operands)
    return Across(None, move, needs_line=False, dtypes=dtypes, layouts=layouts)


def _check(operands: Sequence[Operand]) -> None:
    for operand in operands:
        if operand.dtype is not DataType.BFLOAT16 or operand.layout is not Layout.TILE:
            raise MeshError(
                f"reduce_to_root: {operand.name} must be bfloat16 in TILE layout, got {operand.dtype} in "
                f"{operand.layout}."
            )
    values, sums, maxima = (operand.shape for operand in operands)
    if sums != maxima or values[:-1] != sums[:-1] or sums[-1] % _BLOCK or values[-1] % (sums[-1] // _BLOCK):
        raise MeshError(
            f"reduce_to_root: input_tensor_s {list(sums)} and input_tensor_m {list(maxima)} must have one shape, "
            f"{_BLOCK} columns for each block of input_tensor_l {list(values)}."
        )


def _members(data: torch.Tensor, group: Group) -> torch.Tensor:
    """(4, *local)"""
    return group.full(data).reshape(group.size, *data.shape[group.lead :])


def _merged(
    a: tuple[torch.Tensor, ...], b: tuple[torch.Tensor, ...], scale: float
) -> tuple[torch.Tensor, ...]:
    """The first column of a block speaks for all of it."""
    maxima = torch.maximum(a[2], b[2])
    weights = [torch.exp((part[2] - maxima)[..., :1] * scale) for part in (a, b)]
    values, sums = (a[i] * weights[0] + b[i] * weights[1] for i in (0, 1))
    return values, sums, maxima


def _at_root(result: torch.Tensor, kept: torch.Tensor | None, group: Group) -> torch.Tensor:
    if kept is None:
        out = result.new_full((_DEVICES, *result.shape), poison(DataType.BFLOAT16))
    else:
        out = _members(kept, group).clone()
    out[_ROOT] = result
    return out.reshape(*group.dist.grid, *result.shape)
