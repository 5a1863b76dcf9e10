"""Collectives with a named device: broadcast, point_to_point and reduce_to_root; and all_broadcast."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import product
from typing import Any

import torch

from softmesh.collectives.collective_spec import CollectiveSpec, GroupComputation, axes_in_words, check_line
from softmesh.collectives.device_groups import Group, local_placement, replicated_placement, shares_one_value
from softmesh.collectives.overload_signatures import Arguments, overloaded_collective
from softmesh.collectives.torch_expressions import picked
from softmesh.collectives.ttnn_collectives import checked_axis, why_alone
from softmesh.collectives.undefined_results import poison, writing_one_device
from softmesh.diagnosis.undefined_memory import warn_if_undefined
from softmesh.dispatch.call_cache import Call
from softmesh.dispatch.definition import AfterRunning, Definition
from softmesh.dispatch.operand import Operand
from softmesh.dispatch.operation import Operation
from softmesh.dispatch.signature import BoundCall
from softmesh.errors import MeshError
from softmesh.kinds import Kind
from softmesh.mesh import MeshCoordinate, MeshShape
from softmesh.placement.distribution import Distribution, distribution
from softmesh.placement.pieces import stored_index
from softmesh.placement.placements import LOCAL
from softmesh.placement.tensor_topology import topology_of
from softmesh.tensor.dtype import DataType, Layout
from softmesh.tensor.undefined import mark, undefined_in

_ENDS = ("input_tensor", "sender_coord", "receiver_coord")
_PAGE_ALIGNMENT = 16  # bytes the fabric writes at once


def _check_line(op: str, group: Group) -> None:
    """Without an axis the pieces must be dealt along a line."""
    label = group.dist.label
    if group.cluster_axis is None and not _is_line(label):
        raise MeshError(
            f"{op} op is only supported for a linear tensor topology shape: the tensor is distributed as "
            f"{MeshShape(label)}. Name the axis, cluster_axis={axes_in_words(len(group.dist.mesh))}."
        )
    _check_company(op, group)


def _is_line(shape: Sequence[int]) -> bool:
    return sum(n > 1 for n in shape) <= 1


def _check_company(op: str, group: Group) -> None:
    label = group.dist.label
    if group.size < 2:
        raise MeshError(
            f"{op} op will only work for num_devices > 1, but has {group.size}, shape: {MeshShape(label)}: "
            f"{why_alone(group)}"
        )


def position_of(dist: Distribution, coord: MeshCoordinate) -> int | None:
    """Where the device comes in the flattened grid; None where it holds nothing."""
    coords = dist.coordinates()
    return coords.index(coord) if coord in coords else None


def _reading_the_sender(op: Definition, call: BoundCall) -> AfterRunning | None:
    """Of other devices it reads the sender alone; groups without it keep what they have, undefined or not."""
    arguments, tensor = call.named, call.tensors[0]
    sender, axis = arguments["sender_coord"], arguments["cluster_axis"]
    if not isinstance(sender, MeshCoordinate):
        return None  # about to be refused
    warn_if_undefined(tensor, op.name, frozenset([sender]))
    undefined = undefined_in(tensor)
    if undefined is None or axis is None:
        return None
    at = _across(sender, axis)
    others = frozenset(coord for coord in undefined.coords if _across(coord, axis) != at)
    return lambda made: mark(made[0], undefined.within(others))


def _across(coord: MeshCoordinate, axis: int) -> tuple[int, ...]:
    """Which group along the axis the device is in."""
    return tuple(at for i, at in enumerate(coord) if i != axis)


@overloaded_collective(
    "broadcast",
    "input_tensor sender_coord | num_links? memory_config? topology? cluster_axis? subdevice_id?",
    kind=Kind.BROADCAST,
    undefined=_reading_the_sender,
)
def broadcast(
    input_tensor: Operand, sender_coord: MeshCoordinate, *, cluster_axis: int | None = None
) -> CollectiveSpec:
    """The sender's group gets the sender's piece; other groups keep their own."""

    def move(group: Group) -> GroupComputation:
        _check_line("broadcast", group)
        check_line("broadcast", group.dist.mesh, cluster_axis)
        label = group.dist.label if cluster_axis is None else None
        alike = replicated_placement(group, label=label)
        sender = position_of(group.dist, sender_coord)
        if sender is None:
            raise MeshError(
                f"broadcast: sender_coord {sender_coord} holds no piece of the tensor, which lies on "
                f"{len(group.dist.coordinates())} devices of {MeshShape(group.dist.mesh)}."
            )
        others = [n for axis, n in enumerate(group.dist.grid) if axis not in group.axes]
        if shares_one_value(group) or all(n == 1 for n in others):
            at = stored_index(group.dist, sender)
            return GroupComputation(lambda data: picked(data, group, [at[axis] for axis in group.axes]), (alike,))
        return GroupComputation(_spread_in_own_group(group, sender), (_all_local(group),), topology_of(alike))

    axis = checked_axis("broadcast", cluster_axis)
    return CollectiveSpec(axis, move, needs_line=False, names_a_device=True, keeps_one_piece=True)


def _all_local(group: Group) -> Distribution:
    dist = group.dist
    return distribution(dist.mesh, dist.grid, (LOCAL,) * dist.lead, dist.coords, dist.mesh)


def _spread_in_own_group(group: Group, sender: int) -> Callable[[torch.Tensor], torch.Tensor]:
    dist = group.dist
    source = stored_index(dist, sender)
    place = stored_index(_all_local(group), sender)
    members = tuple(slice(None) if axis in group.axes else at for axis, at in enumerate(place))

    def compute(data: torch.Tensor) -> torch.Tensor:
        out = data.expand(*dist.grid, *data.shape[dist.lead :]).clone()
        out[members] = data[source]
        return out

    return compute


@overloaded_collective(
    "all_broadcast",
    "input_tensor | cluster_axis? subdevice_id? memory_config? num_links? topology? use_l1_small_for_semaphores?",
    kind=Kind.ALL_BROADCAST,
    results="list[Tensor]",
)
def all_broadcast(input_tensor: Operand, *, cluster_axis: int | None = None) -> CollectiveSpec:
    """A tensor for each member: the i-th holds, on all of them, what member i had.

    Without an axis on a mesh that is no line, members are counted row by row.
    """

    def move(group: Group) -> GroupComputation:
        check = _check_line if _is_line(group.dist.mesh) else _check_company
        check("all_broadcast", group)
        dist = replicated_placement(group, label=group.dist.label if cluster_axis is None else None)
        places = list(product(*(range(n) for n in group.extents)))
        return GroupComputation(lambda data: [picked(data, group, at) for at in places], (dist,) * len(places))

    return CollectiveSpec(checked_axis("all_broadcast", cluster_axis), move, needs_line=False)


class _PointToPoint(Operation):
    """From a device to itself, into the tensor that it comes from, nothing moves."""

    def invoke(self, args: tuple[Any, ...], kwargs: dict[str, Any], call: Call | None) -> Any:
        tensor, sender, receiver = (*args, *(kwargs.get(name) for name in _ENDS[len(args) :]))[:3]
        target = kwargs.get("output_tensor")
        if target is None or target is not tensor or sender != receiver:
            return super().invoke(args, kwargs, call)
        target.check_allocated(self.name)
        return target


@overloaded_collective(
    "point_to_point",
    "input_tensor sender_coord receiver_coord | output_tensor? intermediate_tensor? topology?",
    kind=Kind.POINT_TO_POINT,
    operation_class=_PointToPoint,
    controls="",
    output="output_tensor",
    patches="output_tensor",
    scratch="intermediate_tensor",
    **writing_one_device("receiver_coord", sender="sender_coord"),
)
def point_to_point(
    input_tensor: Operand,
    sender_coord: MeshCoordinate,
    receiver_coord: MeshCoordinate,
    *,
    output_tensor: Operand | None = None,
) -> CollectiveSpec:
    """The receiver gets the sender's piece. Nothing is written anywhere else."""
    _check_aligned_pages(input_tensor)
    filler = poison(input_tensor.dtype)

    def move(group: Group) -> GroupComputation:
        dist = group.dist
        ends = [_held(group, role, coord) for role, coord in (("sender", sender_coord), ("receiver", receiver_coord))]
        _check_same_line(sender_coord, receiver_coord)
        source, target = stored_index(dist, ends[0]), ends[1]
        devices = len(dist.coordinates())

        def compute(data: torch.Tensor, kept: torch.Tensor | None = None) -> torch.Tensor:
            local = data.shape[dist.lead :]
            if kept is None:
                out = data.new_full((devices, *local), filler)
            else:
                out = kept.expand(*dist.grid, *local).reshape(devices, *local).clone()
            out[target] = data[source]
            return out.reshape(*dist.grid, *local)

        return GroupComputation(compute, (local_placement(group),), topology_of(dist))

    ends = sender_coord, receiver_coord
    return CollectiveSpec(None, move, needs_fabric=sender_coord != receiver_coord, needs_line=False, ends=ends)


def _held(group: Group, role: str, coord: MeshCoordinate) -> int:
    position = position_of(group.dist, coord)
    if position is None:
        raise MeshError(
            f"Mesh device must contain {role} coordinate device: {coord} holds no piece of the tensor, which lies "
            f"on {len(group.dist.coordinates())} devices of {MeshShape(group.dist.mesh)}."
        )
    return position


def _check_aligned_pages(operand: Operand) -> None:
    if operand.spec.memory_config.is_sharded():
        raise MeshError(
            "Point to point does not yet support sharded configs: point_to_point got "
            f"{operand.spec.memory_config.memory_layout}. Use ttnn.sharded_to_interleaved(tensor) first."
        )
    page = operand.spec.page_size()
    if page % _PAGE_ALIGNMENT:
        raise MeshError(
            f"Tensor page size must be {_PAGE_ALIGNMENT} byte aligned: rows of {list(operand.shape)} "
            f"{operand.dtype} take {page} bytes. Pad the last dim, or use ttnn.TILE_LAYOUT."
        )


def _check_same_line(sender: MeshCoordinate, receiver: MeshCoordinate) -> None:
    a, b = tuple(sender), tuple(receiver)
    if len(a) == len(b) and sum(m != n for m, n in zip(a, b, strict=True)) > 1:
        raise MeshError(
            f"Routing coordinates {sender} and {receiver} invalid for 1D fabric: point_to_point runs along one row "
            "or column. Send in two steps, over the device where the row of one crosses the column of the other."
        )


# reduce_to_root: the partial results of an attention, merged on one device.


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


@overloaded_collective(
    "reduce_to_root",
    "input_tensor_l input_tensor_s input_tensor_m root_coord | scale_fp32? topology? output_tensor_l? "
    "output_tensor_s? output_tensor_m? intermediate_tensor? input_mux_cores?",
    kind=Kind.REDUCE,
    controls="",
    output=_outputs,
    patches="output_tensor_l output_tensor_s output_tensor_m",
    scratch="intermediate_tensor",
    precision="float32",
    **writing_one_device("root_coord"),
    results="list[Tensor]",
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
) -> CollectiveSpec:
    """Weighted values, sums and maxima of four devices, as one softmax over all of them would have them."""
    operands = (input_tensor_l, input_tensor_s, input_tensor_m)
    _check(operands)
    blocks = input_tensor_s.shape[-1] // _BLOCK

    def move(group: Group) -> GroupComputation:
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
            each = [group.members(part).unflatten(-1, (blocks, -1)) for part in data[:3] if part is not None]
            of = [tuple(part[i] for part in each) for i in range(_DEVICES)]
            halves = [_merged(of[a], of[b], scale_fp32) for a, b in _ORDER]
            values, sums, maxima = _merged(halves[0], halves[1], scale_fp32)
            results = (values / sums[..., :1], sums, maxima)
            merged = [result.flatten(-2) for result in results]
            return [_at_root(part, kept, group) for part, kept in zip(merged, data[3:], strict=True)]

        return GroupComputation(compute, (local_placement(group),) * 3, topology_of(dist))

    layouts = (Layout.TILE,) * 3
    dtypes = tuple(operand.dtype for operand in operands)
    return CollectiveSpec(None, move, needs_line=False, dtypes=dtypes, layouts=layouts)


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


def _merged(a: tuple[torch.Tensor, ...], b: tuple[torch.Tensor, ...], scale: float) -> tuple[torch.Tensor, ...]:
    """The first column of a block speaks for all of it."""
    maxima = torch.maximum(a[2], b[2])
    weights = [torch.exp((part[2] - maxima)[..., :1] * scale) for part in (a, b)]
    values, sums = (a[i] * weights[0] + b[i] * weights[1] for i in (0, 1))
    return values, sums, maxima


def _at_root(result: torch.Tensor, kept: torch.Tensor | None, group: Group) -> torch.Tensor:
    if kept is None:
        out = result.new_full((_DEVICES, *result.shape), poison(DataType.BFLOAT16))
    else:
        out = group.members(kept).clone()
    out[_ROOT] = result
    return out.reshape(*group.dist.grid, *result.shape)
