"""One device's piece for others: broadcast, all_broadcast, point_to_point."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product

import torch

from softmesh.collectives.across import Across, Moved
from softmesh.collectives.core import alone_in_words, checked_axis
from softmesh.collectives.expressions import picked
from softmesh.collectives.fabric_needs import axes_in_words
from softmesh.collectives.groups import Group
from softmesh.collectives.labels import keeping, replicating, shares_one_value
from softmesh.collectives.spelling import spelled
from softmesh.collectives.undefined import poison, writing_one_device
from softmesh.dispatch.bound_call import BoundCall
from softmesh.dispatch.operand import Operand
from softmesh.dispatch.signature import Signature
from softmesh.dispatch.undefined_values import Marking
from softmesh.errors import MeshError
from softmesh.mesh import MeshCoordinate, MeshShape
from softmesh.placement.distribution import Distribution, distribution
from softmesh.placement.pieces import stored_index
from softmesh.placement.topology import topology_of
from softmesh.placement.words import LOCAL
from softmesh.tensor.undefined import mark, undefined_in, warn_if_undefined

_PAGE_ALIGNMENT = 16  # bytes the fabric writes at once


def _check_line(op: str, group: Group) -> None:
    """Without an axis the pieces must be dealt along a line."""
    label = group.dist.label
    if group.cluster_axis is None and sum(n > 1 for n in label) > 1:
        raise MeshError(
            f"{op} op is only supported for a linear tensor topology shape: the tensor is distributed as "
            f"{MeshShape(label)}. Name the axis, cluster_axis={axes_in_words(len(group.dist.mesh))}."
        )
    if group.size < 2:
        raise MeshError(
            f"{op} op will only work for num_devices > 1, but has {group.size}, shape: {MeshShape(label)}: "
            f"{alone_in_words(group)}"
        )


def position_of(dist: Distribution, coord: MeshCoordinate) -> int | None:
    """Where the device comes in the flattened grid; None where it holds nothing."""
    coords = dist.coordinates()
    return coords.index(coord) if coord in coords else None


def _reading_the_sender(op: str, signature: Signature, call: BoundCall) -> Marking | None:
    """Of other devices it reads the sender alone; groups without it keep what they have, undefined or not."""
    arguments, tensor = call.named, call.tensors[0]
    sender, axis = arguments["sender_coord"], arguments["cluster_axis"]
    if not isinstance(sender, MeshCoordinate):
        return None  # about to be refused
    warn_if_undefined(tensor, op, frozenset([sender]))
    undefined = undefined_in(tensor)
    if undefined is None or axis is None:
        return None
    at = _across(sender, axis)
    others = frozenset(coord for coord in undefined.coords if _across(coord, axis) != at)
    return lambda made: mark(made[0], undefined.within(others))


def _across(coord: MeshCoordinate, axis: int) -> tuple[int, ...]:
    """Which group along the axis the device is in."""
    return tuple(at for i, at in enumerate(coord) if i != axis)


@spelled(
    "broadcast",
    "input_tensor sender_coord | num_links? memory_config? topology? cluster_axis? subdevice_id?",
    undefined=_reading_the_sender,
)
def broadcast(
    input_tensor: Operand, sender_coord: MeshCoordinate, *, cluster_axis: int | None = None
) -> Across:
    """The sender's group gets the sender's piece; other groups keep their own."""

    def move(group: Group) -> Moved:
        _check_line("broadcast", group)
        label = group.dist.label if cluster_axis is None else None
        alike = replicating(group, label=label)
        sender = position_of(group.dist, sender_coord)
        if sender is None:
            raise MeshError(
                f"broadcast: sender_coord {sender_coord} holds no piece of the tensor, which lies on "
                f"{len(group.dist.coordinates())} devices of {MeshShape(group.dist.mesh)}."
            )
        others = [n for axis, n in enumerate(group.dist.grid) if axis not in group.axes]
        if shares_one_value(group) or all(n == 1 for n in others):
            at = stored_index(group.dist, sender)
            return Moved(lambda data: picked(data, group, [at[axis] for axis in group.axes]), (alike,))
        return Moved(_spread_in_own_group(group, sender), (_all_local(group),), topology_of(alike))

    return Across(checked_axis("broadcast", cluster_axis), move, names_a_device=True)


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


@spelled(
    "all_broadcast",
    "input_tensor | cluster_axis? subdevice_id? memory_config? num_links? topology? use_l1_small_for_semaphores?",
)
def all_broadcast(input_tensor: Operand, *, cluster_axis: int | None = None) -> Across:
    """A tensor for each member: the i-th holds, on all of them, what member i had."""

    def move(group: Group) -> Moved:
        _check_line("all_broadcast", group)
        dist = replicating(group, label=group.dist.label if cluster_axis is None else None)
        places = list(product(*(range(n) for n in group.extents)))
        return Moved(lambda data: [picked(data, group, at) for at in places], (dist,) * len(places))

    return Across(checked_axis("all_broadcast", cluster_axis), move)


@spelled(
    "point_to_point",
    "input_tensor sender_coord receiver_coord | output_tensor? intermediate_tensor? topology?",
    controls="",
    output="output_tensor",
    **writing_one_device("receiver_coord", sender="sender_coord"),
)
def point_to_point(
    input_tensor: Operand,
    sender_coord: MeshCoordinate,
    receiver_coord: MeshCoordinate,
    *,
    output_tensor: Operand | None = None,
) -> Across:
    """The receiver gets the sender's piece. Nothing is written anywhere else."""
    _check_pages(input_tensor)
    filler = poison(input_tensor.dtype)

    def move(group: Group) -> Moved:
        dist = group.dist
        ends = [
            _held(group, role, coord)
            for role, coord in (("sender", sender_coord), ("receiver", receiver_coord))
        ]
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

        return Moved(compute, (keeping(group),), topology_of(dist))

    ends = sender_coord, receiver_coord
    return Across(None, move, needs_fabric=sender_coord != receiver_coord, needs_line=False, ends=ends)


def _held(group: Group, role: str, coord: MeshCoordinate) -> int:
    position = position_of(group.dist, coord)
    if position is None:
        raise MeshError(
            f"Mesh device must contain {role} coordinate device: {coord} holds no piece of the tensor, which lies "
            f"on {len(group.dist.coordinates())} devices of {MeshShape(group.dist.mesh)}."
        )
    return position


def _check_pages(operand: Operand) -> None:
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
