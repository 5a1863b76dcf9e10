"""TT-NN's basic collectives: all_gather, all_reduce, reduce_scatter and mesh_partition.

Each says what a member of a group gets, and how the result is placed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from softmesh.arguments import refused
from softmesh.collectives.collective_operation import NOTHING_IS_SENT, collective
from softmesh.collectives.collective_spec import CollectiveSpec, GroupComputation
from softmesh.collectives.device_groups import (
    Group,
    replicated_placement,
    scattered_placement,
    shares_one_value,
    ttnn_label,
)
from softmesh.collectives.torch_expressions import AllGather, AllReduce, ReduceScatter, partitioned
from softmesh.dispatch.operand import Operand
from softmesh.errors import MeshError
from softmesh.kinds import Kind
from softmesh.mesh import MeshShape
from softmesh.placement.distribution import whole
from softmesh.placement.placements import REPLICATE, Shard
from softmesh.placement.tensor_topology import topology_of
from softmesh.tensor.dtype import Layout

_LINKS = "num_links topology"
_WORKERS = "chunks_per_sync num_workers_per_link num_buffers_per_channel use_l1_small_for_semaphores"


def route_of(given: Mapping[str, Any]) -> dict[str, Any]:
    """The topology and the links that a call named, for the collective that it is made of."""
    return {name: given.get(name) for name in ("topology", "num_links")}


def checked_axis(op: str, axis: int | None) -> int | None:
    if axis is not None and axis < 0:
        raise refused(op, f"cluster_axis must be 0 or more, got {axis}")
    return axis


def checked_size(op: str, group: Group, what: str) -> None:
    if group.size < 2:
        raise MeshError(f"{op} {what} will only work for num_devices > 1, got {group.size}: {why_alone(group)}")


def why_alone(group: Group) -> str:
    """Why a group has one member, and what to do about it."""
    mesh = MeshShape(whole(group.dist).mesh)
    if group.cluster_axis is None:
        return f"the tensor lies on one device of {mesh}. Leave the call out: there is nobody to send to."
    longer = [f"cluster_axis={axis}" for axis, n in enumerate(mesh) if n > 1]
    remedy = f"Use {' or '.join(longer)}, or leave" if longer else "Leave"
    return f"axis {group.cluster_axis} of {mesh} has one device. {remedy} the call out: there is nobody to send to."


def dims_in_words(rank: int) -> str:
    return f"takes {-rank} to {rank - 1}" if rank else "has no dims to choose from"


@collective(
    kind=Kind.ALL_GATHER,
    controls="memory_config output_tensor",
    tuning=f"subdevice_id sub_core_grids {_LINKS} {_WORKERS}",
)
def all_gather(input_tensor: Operand, dim: int, *, cluster_axis: int | None = None) -> CollectiveSpec:
    """Every member gets the pieces of all, side by side along `dim`.

    >>> y = ttnn.all_gather(split(8, 64, dim=1), dim=1, cluster_axis=1)
    >>> y.shape, ttnn.placements(y)
    (Shape([8, 64]), (Replicate, Replicate))
    """
    rank = input_tensor.rank
    if not -rank <= dim < rank:
        raise MeshError(
            f"Invalid gather dim {dim} for {rank}D input tensor: all_gather of {list(input_tensor.shape)} "
            f"{dims_in_words(rank)}."
        )
    at = dim % rank

    def move(group: Group) -> GroupComputation:
        checked_size("all_gather", group, "collective")
        label = group.dist.label if cluster_axis is None else None
        dist = replicated_placement(group, at, label)
        topology = ttnn_label(group, dist, REPLICATE)
        return GroupComputation(AllGather(group, at), (dist,), topology)

    axis = checked_axis("all_gather", cluster_axis)
    is_native = _is_native_gather(input_tensor, at)
    return CollectiveSpec(axis, move, needs_line=is_native, ignores_topology=True, joins=at)


def _is_native_gather(operand: Operand, at: int) -> bool:
    """Whether whole tiles are joined. Else TT-NN broadcasts the pieces, axis after axis, and concatenates them."""
    sides = dict(zip((operand.rank - 2, operand.rank - 1), operand.spec.tile.tile_shape, strict=True))
    return operand.layout is Layout.TILE and operand.shape[at] % sides.get(at, 1) == 0


@collective(
    kind=Kind.ALL_REDUCE, native="AllReduceAsyncDeviceOperation", tuning=f"subdevice_id {_LINKS}", precision="native"
)
def all_reduce(input_tensor: Operand, *, cluster_axis: int | None = None) -> CollectiveSpec:
    """Every member gets the sum over the group; it is stored once. Without an axis, over one after the other.

    >>> y = ttnn.all_reduce(ttnn.matmul(split(8, 64, dim=1), split(64, 128, dim=0)), cluster_axis=1)
    >>> y.shape, ttnn.placements(y)
    (Shape([8, 128]), (Replicate, Replicate))
    """

    def move(group: Group) -> GroupComputation:
        return GroupComputation(AllReduce(group), (replicated_placement(group),), only_sums=True)

    return CollectiveSpec(checked_axis("all_reduce", cluster_axis), move, needs_line=False)


@collective(
    kind=Kind.REDUCE_SCATTER,
    controls="memory_config output_tensor",
    tuning=f"subdevice_id intermediate_memory_config {_LINKS} {_WORKERS} compute_kernel_config",
    precision="native",
)
def reduce_scatter(input_tensor: Operand, dim: int, *, cluster_axis: int | None = None) -> CollectiveSpec:
    """Member g gets chunk g, along `dim`, of the sum over the group.

    >>> x = ttnn.matmul(split(32, 64, dim=1), split(64, 128, dim=0))
    >>> y = ttnn.reduce_scatter(x, dim=1, cluster_axis=1)
    >>> y.shape, ttnn.placements(y)
    (Shape([32, 32]), (Replicate, Shard(1)))
    """
    rank, shape = input_tensor.rank, input_tensor.shape
    if rank < 2:
        raise MeshError(
            f"reduce_scatter: needs tensors of rank 2 or more, got {list(shape)}. Use ttnn.unsqueeze(tensor, 0)."
        )
    if not -rank <= dim < rank:
        raise MeshError(
            f"Index is out of bounds for the rank, should be between 0 and {rank - 1} however is {dim}: "
            f"reduce_scatter of {list(shape)}."
        )
    at = dim % rank

    def move(group: Group) -> GroupComputation:
        if shape[at] % group.size:
            raise MeshError(
                f"Dimension {at} must be divisible by ring_size: reduce_scatter deals {shape[at]} elements to "
                f"{group.size} devices. Pad it to a multiple of {group.size}."
            )
        dist = scattered_placement(group, at, from_one_value=True)
        label = ttnn_label(group, dist, Shard(at))
        return GroupComputation(ReduceScatter(group, at), (dist,), label, only_sums=True)

    return CollectiveSpec(checked_axis("reduce_scatter", cluster_axis), move, needs_line=False)


@collective(kind=Kind.PARTITION, positional="cluster_axis", **NOTHING_IS_SENT)
def mesh_partition(input_tensor: Operand, dim: int, *, cluster_axis: int | None = None) -> CollectiveSpec:
    """Member g keeps chunk g, along `dim`, of its own piece. Nothing is sent.

    >>> y = ttnn.mesh_partition(whole(8, 128), dim=1, cluster_axis=1)
    >>> y.shape, ttnn.placements(y)
    (Shape([8, 32]), (Replicate, Shard(1)))
    """
    rank, shape = input_tensor.rank, input_tensor.shape
    if not -rank <= dim < rank:
        raise MeshError(
            f"dim must be less than the rank of the input tensor: mesh_partition got dim={dim} for {list(shape)}, "
            f"which {dims_in_words(rank)}."
        )
    checked_axis("mesh_partition", cluster_axis)
    if cluster_axis not in (None, 0, 1):
        raise MeshError(f"Only support cluster axis of None, 0 or 1: mesh_partition got {cluster_axis}.")
    at = dim % rank

    def move(group: Group) -> GroupComputation:
        if shape[at] % group.size:
            raise MeshError(
                f"input shape {input_tensor.spec.shape} must be divisible by cluster axis size {group.size}: "
                f"mesh_partition cuts dim {at} of {shape[at]} elements. Pad it to a multiple of {group.size}."
            )
        _check_tiles(input_tensor, at, shape[at] // group.size, group.size)
        dist = scattered_placement(group, at, from_one_value=shares_one_value(group))
        label = ttnn_label(group, dist, Shard(at), combines=False)
        if group.size == 1:
            return GroupComputation(lambda data: data, (group.dist,), topology_of(group.dist), keeps_memory=True)
        return GroupComputation(lambda data: partitioned(data, group, at), (dist,), label)

    return CollectiveSpec(cluster_axis, move, needs_fabric=False)


def _check_tiles(operand: Operand, at: int, chunk: int, devices: int) -> None:
    """Tiles are cut between, not through."""
    if operand.layout.name != "TILE" or at < operand.rank - 2 or devices == 1:
        return
    height, width = operand.spec.tile.tile_shape
    side, extent = ("width", width) if at == operand.rank - 1 else ("height", height)
    if chunk % extent:
        raise MeshError(
            f"Can only slice tilized tensor with {side} begin index aligned to tiles: mesh_partition would cut dim "
            f"{at} every {chunk} elements, tiles are {extent}. Use ttnn.to_layout(tensor, ttnn.ROW_MAJOR_LAYOUT) first."
        )
