"""reshape, view, squeeze, unsqueeze: the same elements of each device under another shape."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch

from softmesh.dispatch import part_work
from softmesh.dispatch.cost_rules import moves_bytes
from softmesh.dispatch.operand import Operand
from softmesh.dispatch.operation import Operation, operation
from softmesh.dispatch.plan import Local
from softmesh.dispatch.signature import listed
from softmesh.errors import ArgumentError, MeshError
from softmesh.hardware import TileReshapeMapMode
from softmesh.hardware.memory_config import MemoryConfig, ShardSpec, TensorMemoryLayout
from softmesh.hardware.shape import Shape
from softmesh.kinds import Kind
from softmesh.ops import gradients
from softmesh.ops.golden import golden_data_movement as golden
from softmesh.ops.golden.golden_functions import InOrder, with_reference
from softmesh.placement import rules
from softmesh.tensor.dtype import Layout
from softmesh.tensor.padding import with_padding
from softmesh.tensor.spec import TensorSpec

_OPTIONS: dict[str, Any] = {"cost": moves_bytes, "precision": "data", "on_host": True}


def new_shape(op: str, operand: Operand, shape: Sequence[int]) -> tuple[int, ...]:
    """`shape` with its -1 worked out; the volume must stay."""
    sizes = [int(n) for n in shape]
    volume = math.prod(operand.shape)
    unknown = [i for i, n in enumerate(sizes) if n == -1]
    known = math.prod(n for n in sizes if n != -1)
    if len(unknown) == 1 and known and volume % known == 0:
        sizes[unknown[0]] = volume // known
    elif unknown:
        raise MeshError(
            f"Invalid arguments to reshape: {op} of {list(operand.shape)} to {list(shape)}: one -1 at most."
        )
    if any(n < 0 for n in sizes) or math.prod(sizes) != volume:
        raise MeshError(
            f"Invalid arguments to reshape: {op} of {list(operand.shape)} ({volume} elements on each device) to "
            f"{list(shape)} ({math.prod(sizes)} elements): the numbers of elements must agree."
        )
    return tuple(sizes)


def reshape_local(op: str, operand: Operand, shape: Sequence[int]) -> Local:
    sizes, rank = new_shape(op, operand, shape), operand.rank
    return Local(lambda x: x.reshape(*x.shape[: x.dim() - rank], *sizes), rules.reshaping, keeps_memory=True)


def _seen_as(op: str, operand: Operand, shape: Sequence[int], padded: Sequence[int] | None) -> Local:
    """A reshape; or, with a padded shape and another volume, other bounds between values and padding."""
    if padded is None or -1 in shape or math.prod(shape) == math.prod(operand.shape):
        return reshape_local(op, operand, shape)
    spec, sizes, room = operand.spec, tuple(shape), tuple(padded)
    is_view = math.prod(room) == math.prod(spec.padded_shape) and len(room) == len(sizes)
    if operand.layout is Layout.TILE and not operand.on_host:
        in_tiles = len(room) > 1 and not any(n % edge for n, edge in zip(room[-2:], spec.tile.tile_shape, strict=True))
        is_view = is_view and in_tiles and room[-1] == spec.padded_shape[-1]
    if not is_view or any(n > m for n, m in zip(sizes, room, strict=True)):
        raise MeshError(
            f"Attempting to reshape between two shapes with different volumes: {op} of {list(operand.shape)} (padded "
            f"{list(spec.padded_shape)}) to {list(shape)} (padded {list(padded)}): the padded volumes, and in tiles "
            "the padded widths, must agree."
        )
    rank = operand.rank
    inside: tuple[Any, ...] = (..., *(slice(0, n) for n in sizes))

    def compute(x: torch.Tensor) -> torch.Tensor:
        return with_padding(x, spec).reshape(*x.shape[: x.dim() - rank], *room)[inside]

    changed = [d for d, pair in enumerate(zip(operand.shape, sizes, strict=False)) if pair[0] != pair[1]]
    rule = rules.resizing(changed) if len(sizes) == rank else rules.opaque
    return Local(compute, rule, keeps_memory=True)


def _register_reshape(op: str, controls: str) -> Operation:
    @with_reference(golden.reshape)
    def define(
        input_tensor: Operand,
        shape: Sequence[int],
        padded_shape: Sequence[int] | None = None,
        *,
        reshape_tile_mode: TileReshapeMapMode = TileReshapeMapMode.CACHE,
    ) -> Local:
        """The same elements, row-major, under another shape; one extent may be -1.

        With `padded_shape`, TT-NN's second form, another part of the padded tensor may be taken for its values.

        >>> y = ttnn.reshape(split(8, 64, dim=0), (1, 1, 2, 64))
        >>> y.shape, ttnn.placements(y)
        (Shape([1, 1, 2, 64]), (Replicate, Shard(2)))
        """
        return _seen_as(op, input_tensor, shape, padded_shape)

    tuning, aliases = "pad_value sub_core_grids skip_padding_fill", {"logical_shape": "shape"}
    return operation(
        op,
        kind=Kind.RESHAPE,
        gradient=gradients.of_reshape,
        part_work=part_work.RESHAPES,
        native="ReshapeViewDeviceOperation",
        **_OPTIONS,
        controls=controls,
        tuning=tuning,
        argument_aliases=aliases,
    )(define)


reshape = _register_reshape("reshape", "memory_config queue_id")
_register_reshape("experimental.quasar.reshape", "memory_config")


@operation(kind=Kind.RESHAPE, gradient=gradients.of_reshape, part_work=part_work.RESHAPES, **_OPTIONS, controls="")
@with_reference(golden.reshape)
def view(input_tensor: Operand, shape: Sequence[int]) -> Local:
    """As reshape, where no value moves. Values are not shared with the input: a later write to it is not seen here."""
    return _view("view", input_tensor, shape)


@operation(
    "experimental.view",
    kind=Kind.RESHAPE,
    gradient=gradients.of_reshape,
    part_work=part_work.RESHAPES,
    **_OPTIONS,
    controls="",
    argument_aliases={"N": "shape"},
)
@with_reference(golden.reshape)
def experimental_view(
    input_tensor: Operand,
    shape: Sequence[int] | int,
    C: int | None = None,
    H: int | None = None,
    W: int | None = None,
) -> Local:
    """`view` by a shape, or by four extents N, C, H, W; shards of whole rows may be cut into rows of another length."""
    wanted = _four("experimental.view", shape, C, H, W)
    place = _other_rows(input_tensor.spec, wanted)
    if place is None:
        return _view("experimental.view", input_tensor, wanted)
    return replace(reshape_local("experimental.view", input_tensor, wanted), memory_config=place)


def _other_rows(spec: TensorSpec, shape: Sequence[int]) -> MemoryConfig | None:
    """The same elements on each core in rows of another length, where shards are whole rows and that comes out even."""
    config, shards = spec.memory_config, spec.memory_config.shard_spec
    in_rows = spec.layout is Layout.ROW_MAJOR and config.memory_layout is TensorMemoryLayout.HEIGHT_SHARDED
    if not in_rows or shards is None or not len(shape) or shape[-1] in (-1, spec.shape[-1]):
        return None
    elements = math.prod(shards.shape)
    if shards.shape[1] != spec.shape[-1] or elements % shape[-1]:
        return None
    cut = ShardSpec(shards.grid, [elements // shape[-1], shape[-1]], shards.orientation)
    return MemoryConfig(config.memory_layout, config.buffer_type, cut)


def _view(op: str, input_tensor: Operand, shape: Sequence[int]) -> Local:
    """Refused where rows would be cut anew: pages stay as they are. Where there are none, any shape will do."""
    before, volume = input_tensor.shape, math.prod(input_tensor.shape)
    if isinstance(shape, Shape) and math.prod(shape) != volume:
        raise MeshError(f"Invalid view, logical volumes are changing from {volume} to {math.prod(shape)}")
    after = new_shape(op, input_tensor, shape)
    if before == after or not volume:
        return reshape_local(op, input_tensor, after)
    if input_tensor.on_host:
        raise MeshError("View requires the tensor be stored on device, use reshape instead")
    last = [shape[-1] if shape else 1 for shape in (before, after)]
    if last[0] != last[1]:
        raise MeshError(
            "The last dimension can not change in view, attempting to change last dimension from "
            f"{last[0]} to {last[1]}, use reshape instead"
        )
    rows = [shape[-2] if len(shape) > 1 else 1 for shape in (before, after)]
    height = input_tensor.spec.tile.height
    if input_tensor.layout is Layout.TILE and rows[0] != rows[1] and any(n % height for n in rows):
        raise MeshError(f"Invalid second last dims for TILED reshape, from {rows[0]} to {rows[1]}, use reshape instead")
    return reshape_local(op, input_tensor, after)


def _four(op: str, first: Sequence[int] | int, *others: int | None) -> Sequence[int]:
    if not isinstance(first, int):
        return first
    given = [first, *(n for n in others if n is not None)]
    if len(given) != 4:
        raise ArgumentError(f"{op}(): incompatible function arguments: give one shape or four extents, got {given}")
    return given


@operation(kind=Kind.RESHAPE, **_OPTIONS, controls="memory_config")
@with_reference(golden.reshape_on_device)
def reshape_on_device(input_tensor: Operand, W: int, Z: int, Y: int, X: int) -> Local:
    """reshape to four extents."""
    return reshape_local("reshape_on_device", input_tensor, (W, Z, Y, X))


@operation(kind=Kind.RESHAPE, rule=rules.permuting, gradient=gradients.of_reshape, **_OPTIONS, controls="")
@with_reference(golden.unsqueeze)
def unsqueeze(input_tensor: Operand, dim: int) -> Local:
    """
    >>> y = ttnn.unsqueeze(split(8, 64, dim=1), 0)
    >>> y.shape, ttnn.placements(y)
    (Shape([1, 8, 16]), (Replicate, Shard(2)))
    """
    rank = input_tensor.rank
    if not -rank - 1 <= dim <= rank:
        raise MeshError(f"Dimension out of range (expected to be in range of [{-rank - 1},{rank}], but got {dim})")
    shape = list(input_tensor.shape)
    at = dim % (rank + 1)
    shape.insert(at, 1)
    local = reshape_local("unsqueeze", input_tensor, shape)
    return replace(local, rule=rules.permuting(_after_insert(rank, at)))


def _after_insert(rank: int, at: int) -> list[int]:
    """For each dim of the result the dim it came from; -1 for the new one."""
    order = list(range(rank))
    order.insert(at, -1)
    return order


@operation(kind=Kind.RESHAPE, rule=rules.permuting, gradient=gradients.of_reshape, **_OPTIONS, controls="")
@with_reference(InOrder(lambda x: x.reshape((1,) * (4 - x.dim()) + tuple(x.shape))))
def unsqueeze_to_4D(tensor: Operand) -> Local:
    """
    >>> y = ttnn.unsqueeze_to_4D(split(8, 64, dim=1))
    >>> y.shape, ttnn.placements(y)
    (Shape([1, 1, 8, 16]), (Replicate, Shard(3)))
    """
    if tensor.rank > 4:
        raise MeshError(f"unsqueeze_to_4D: tensor of shape {list(tensor.shape)} already has more than 4 dims.")
    missing = 4 - tensor.rank
    local = reshape_local("unsqueeze_to_4D", tensor, (1,) * missing + tensor.shape)
    return replace(local, rule=rules.permuting([-1] * missing + list(range(tensor.rank))))


@operation(kind=Kind.RESHAPE, gradient=gradients.of_reshape, **_OPTIONS, controls="")
@with_reference(golden.squeeze)
def squeeze(input_tensor: Operand, dim: int | Sequence[int] | None = None) -> Local:
    """Drop dims of extent 1: one, several, or (None) all.

    >>> y = ttnn.squeeze(split(1, 8, 64, dim=2), 0)
    >>> y.shape, ttnn.placements(y)
    (Shape([8, 16]), (Replicate, Shard(1)))
    """
    if not input_tensor.rank:  # of which 0 and -1 are dims to be dropped
        for at in [] if dim is None else listed(dim):
            if at not in (0, -1):
                raise MeshError(f"Dimension out of range (expected to be of [-1, 0], but got {at})")
        return reshape_local("squeeze", input_tensor, ())
    chosen = input_tensor.dims(dim)
    dropped = {d for d in chosen if input_tensor.shape[d] == 1}
    kept = [n for d, n in enumerate(input_tensor.shape) if d not in dropped]
    return reshape_local("squeeze", input_tensor, kept)
