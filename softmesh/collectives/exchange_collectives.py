"""All-to-all, halo exchange (neighbor_pad_async) and re-slicing: members of a group swap parts of their pieces."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from softmesh.collectives.collective_spec import CollectiveSpec, GroupComputation
from softmesh.collectives.device_groups import Group, group_of, scattered_placement
from softmesh.collectives.overload_signatures import Arguments, overloaded_collective
from softmesh.collectives.torch_expressions import dealt, exchanged, gathered
from softmesh.collectives.ttnn_collectives import checked_axis
from softmesh.dispatch.operand import Operand
from softmesh.errors import MeshError
from softmesh.fabric import settings
from softmesh.hardware.memory_config import BufferType
from softmesh.kinds import Kind
from softmesh.mesh import MeshShape
from softmesh.placement.distribution import Distribution
from softmesh.placement.placements import LOCAL, Shard
from softmesh.placement.tensor_topology import topology_of
from softmesh.tensor.dtype import Layout

_TILE, _HALF_TILE = 32, 16  # the least that is sent of a tile: its width, and one face of its height


def _swapped(op: str, operand: Operand, in_dim: int, out_dim: int, axis: int | None) -> CollectiveSpec:
    joins, cuts = operand.dim(in_dim, "in_dim"), operand.dim(out_dim, "out_dim")
    short = op.rpartition(".")[2]

    def move(group: Group) -> GroupComputation:
        if operand.shape[cuts] % group.size:
            raise MeshError(
                f"{short}: dim {cuts} of {list(operand.shape)} must be divisible by {group.size}, the devices that "
                f"share it. Pad it to a multiple of {group.size}."
            )
        dist = _swapped_words(group, joins, cuts)
        return GroupComputation(lambda data: exchanged(data, group, joins, cuts), (dist,), topology_of(group.dist))

    return CollectiveSpec(checked_axis(op, axis), move, joins=joins)


def _swapped_words(group: Group, joins: int, cuts: int) -> Distribution:
    """What was split along one dim is now split along the other."""
    dist = group.dist
    was_split = all(dist.placements[axis] is Shard(joins) for axis in group.axes if dist.grid[axis] > 1)
    is_tangled = [
        axis not in group.axes and isinstance(word, Shard) and word.dim in (joins, cuts)
        for axis, word in enumerate(dist.placements)
    ]
    own = Shard(cuts) if was_split and not any(is_tangled) else LOCAL
    words = group.words_with(own)
    return dist.with_placements(
        tuple(LOCAL if tangled else word for word, tangled in zip(words, is_tangled, strict=True))
    )


@overloaded_collective(
    "experimental.all_to_all_async",
    "input_tensor persistent_intermediate_buffer persistent_output_buffer in_dim out_dim "
    "multi_device_global_semaphore | num_links? memory_config? topology? subdevice_id?",
    kind=Kind.ALL_TO_ALL,
    output="persistent_output_buffer",
    scratch="persistent_intermediate_buffer",
    receives="persistent_output_buffer",
)
def all_to_all_async(input_tensor: Operand, in_dim: int, out_dim: int) -> CollectiveSpec:
    """Each member cuts its piece along `out_dim` and joins what it gets along `in_dim`, into the buffer given.

    What is not whole tiles in DRAM goes another way on chips: all pieces to all members, for which they must lie
    along a line.
    """
    if input_tensor.dim(in_dim) == input_tensor.dim(out_dim):
        raise MeshError(f"AllToAllAsync: in_dim and out_dim must be different, got in_dim={in_dim}, out_dim={out_dim}.")
    swapping = _swapped("experimental.all_to_all_async", input_tensor, in_dim, out_dim, None)

    def move(group: Group) -> GroupComputation:
        label = group.dist.label
        if sum(n > 1 for n in label) > 1 and not _is_native(input_tensor, in_dim, out_dim, group.size):
            raise MeshError(
                "all_broadcast op is only supported for a linear tensor topology shape: all_to_all_async got a "
                f"tensor that is distributed as {MeshShape(label)}, of which {list(input_tensor.shape)} are not "
                "whole tiles in DRAM. Distribute it along one dim, or use all_to_all_async_generic along an axis."
            )
        return swapping.move(group)

    return CollectiveSpec(None, move, joins=swapping.joins)


def _is_native(operand: Operand, in_dim: int, out_dim: int, devices: int) -> bool:
    """Whether parts of tiles in interleaved DRAM are sent as they are."""
    config, rank = operand.spec.memory_config, operand.rank
    if operand.layout is not Layout.TILE or config.is_sharded() or config.buffer_type is not BufferType.DRAM:
        return False
    units = {rank - 2: _HALF_TILE, rank - 1: _TILE}
    extents = {operand.dim(in_dim): 1, operand.dim(out_dim): devices}
    return all(operand.shape[at] % (units.get(at, 1) * parts) == 0 for at, parts in extents.items())


def _check_axis_given(op: str, given: Arguments) -> None:
    config = settings.active().config
    if given.get("cluster_axis") is None and settings.is_two_dimensional(config):
        raise MeshError(f"{op}: cluster_axis is mandatory under {config}: give 0 or 1.")


@overloaded_collective(
    "experimental.all_to_all_async_generic",
    "input_tensor in_dim out_dim | persistent_output_buffer? num_links? memory_config? topology? subdevice_id? "
    "cluster_axis?",
    kind=Kind.ALL_TO_ALL,
    output="persistent_output_buffer",
    receives="persistent_output_buffer",
    check=_check_axis_given,
)
def all_to_all_async_generic(
    input_tensor: Operand, in_dim: int, out_dim: int, *, cluster_axis: int | None = None
) -> CollectiveSpec:
    """Each member cuts its piece along `out_dim`, sends chunk i to member i, joins what it gets along `in_dim`."""
    op = "experimental.all_to_all_async_generic"
    short = "all_to_all_async_generic"
    joins, cuts = input_tensor.dim(in_dim, "in_dim"), input_tensor.dim(out_dim, "out_dim")
    if joins == cuts:
        raise MeshError(f"{short}: in_dim and out_dim must be different, got {in_dim} and {out_dim}.")
    if input_tensor.layout is not Layout.TILE:
        raise MeshError(
            f"{short}: needs TILE layout, got {input_tensor.layout}. Use ttnn.to_layout(tensor, ttnn.TILE_LAYOUT)."
        )
    swapping = _swapped(op, input_tensor, in_dim, out_dim, cluster_axis)

    def move(group: Group) -> GroupComputation:
        moved = swapping.move(group)
        _check_tiles(short, input_tensor, joins, cuts, group.size)
        return moved

    return CollectiveSpec(swapping.cluster_axis, move, joins=swapping.joins)


def _check_tiles(op: str, operand: Operand, joins: int, cuts: int, size: int) -> None:
    shape = list(operand.shape)
    shape[joins] *= size
    shape[cuts] //= size
    for name, result in (("input", operand.shape), ("result", shape)):
        if len(result) > 1 and (result[-1] % _TILE or result[-2] % _HALF_TILE):
            raise MeshError(
                f"{op}: the last dim must be a multiple of 32 and the one before of 16, the {name} is {list(result)}."
            )


@overloaded_collective(
    "experimental.neighbor_pad_async",
    "input_tensor dim:ints padding_left:ints padding_right:ints padding_mode cluster_axis:ints neighbor_semaphore "
    "barrier_semaphore | num_links:ints? memory_config? topology? persistent_output_buffer? logical_h? t_front_pad?",
    kind=Kind.NEIGHBOURS,
    output="persistent_output_buffer",
    receives="persistent_output_buffer",
)
def neighbor_pad_async(
    input_tensor: Operand,
    dim: Sequence[int],
    padding_left: Sequence[int],
    padding_right: Sequence[int],
    padding_mode: str,
    cluster_axis: Sequence[int],
    *,
    logical_h: int | None = None,
    t_front_pad: int | None = None,
) -> CollectiveSpec:
    """Each piece is extended by rows of its neighbours; at the ends by zeros or by its own edge.

    Rows of a piece from `logical_h` on, counted over all pieces along dim[0], become 0, for neighbours along dim[1]
    too. `t_front_pad` frames of 0 are put in front, along the dim before dim[0].
    """
    op = "experimental.neighbor_pad_async"
    lists = (dim, padding_left, padding_right, cluster_axis)
    if not 1 <= len(dim) <= 2 or any(len(given) != len(dim) for given in lists):
        raise MeshError(
            f"{op}: dim, padding_left, padding_right and cluster_axis need one entry for each padded dim, 1 or 2; "
            f"got {', '.join(str(list(given)) for given in lists)}."
        )
    if padding_mode not in ("zeros", "replicate"):
        raise MeshError(f"{op}: padding_mode must be 'zeros' or 'replicate', got {padding_mode!r}.")
    dims = [input_tensor.dim(one) for one in dim]
    if len({*dims}) != len(dims) or len({*cluster_axis}) != len(dims):
        raise MeshError(f"{op}: dim {list(dim)} and cluster_axis {list(cluster_axis)} must each name one only once.")
    for at, left, right in zip(dims, padding_left, padding_right, strict=True):
        extent = input_tensor.shape[at]
        if not (0 <= left <= extent and 0 <= right <= extent):
            raise MeshError(
                f"{op}: padding {left} and {right} along dim {at} must be 0 to {extent}: a neighbour has no more rows."
            )
    for axis in cluster_axis:
        checked_axis(op, axis)
    _check_pictures(op, input_tensor, dims, t_front_pad or 0)

    def move(group: Group) -> GroupComputation:
        rank = len(group.dist.mesh)
        if max(cluster_axis) >= rank:
            raise MeshError(f"{op}: cluster axis {max(cluster_axis)} is out of range for mesh shape rank {rank}.")
        groups = [group_of(group.dist, axis) for axis in cluster_axis]

        def compute(data: torch.Tensor) -> torch.Tensor:
            for i, (one, at, left, right) in enumerate(zip(groups, dims, padding_left, padding_right, strict=True)):
                data = _padded(data, one, at, left, right, padding_mode == "replicate")
                if logical_h and i == 0:
                    data = _without_rows(data, one, at, (left, right), logical_h)
            if t_front_pad:
                front = dims[0] - 1 - input_tensor.rank
                data = torch.nn.functional.pad(data, (0, 0) * (-front - 1) + (t_front_pad, 0))
            return data

        return GroupComputation(compute, (_padded_words(groups, dims),), topology_of(group.dist))

    return CollectiveSpec(cluster_axis[0], move)


def _check_pictures(op: str, operand: Operand, dims: Sequence[int], frames: int) -> None:
    """Rows of pixels, whole in memory; frames are put before the only sequence of them."""
    if operand.layout is not Layout.ROW_MAJOR or operand.spec.memory_config.is_sharded():
        raise MeshError(
            f"{op}: takes ROW_MAJOR tensors that are not sharded, got {operand.layout}, "
            f"{operand.spec.memory_config.memory_layout}: use ttnn.to_layout and ttnn.sharded_to_interleaved."
        )
    if max(dims) == operand.rank - 1 or list(dims) != sorted(dims):
        raise MeshError(
            f"{op}: dim {list(dims)} of {list(operand.shape)} must rise and leave out the last dim, the channels."
        )
    if frames and (dims[0] == 0 or any(n != 1 for n in operand.shape[: dims[0] - 1])):
        raise MeshError(
            f"{op}: t_front_pad={frames} puts frames in front of the dim before dim {dims[0]} of "
            f"{list(operand.shape)}, which needs a batch of 1."
        )


def _without_rows(data: torch.Tensor, group: Group, dim: int, padding: tuple[int, int], end: int) -> torch.Tensor:
    """0 in the rows of each piece, within its padding, that lie at `end` or behind it in all pieces together."""
    at = group.lead + dim
    left, right = padding
    rows = data.shape[at] - left - right
    extents = [n if axis in group.axes else 1 for axis, n in enumerate(group.dist.grid)]
    place = torch.arange(group.size, device=data.device).reshape(*extents, 1)
    row = torch.arange(-left, rows + right, device=data.device)
    is_hidden = (row >= 0) & (row < rows) & (place * rows + row >= end)
    shape = [*extents, *(1,) * dim, -1, *(1,) * (data.dim() - at - 1)]
    return data.masked_fill(is_hidden.reshape(shape), 0)


def _padded(data: torch.Tensor, group: Group, dim: int, left: int, right: int, repeats_edge: bool) -> torch.Tensor:
    if not group.axes:  # an axis of one device
        line, axis, at = data.unsqueeze(0), 0, group.lead + dim + 1
    else:
        axis = group.axes[0]
        line = group.full(data).flatten(axis, group.axes[-1])
        at = group.lead + dim + 1 - len(group.axes)
    members, extent = line.shape[axis], line.shape[at]
    from_left = _shifted(line.narrow(at, extent - left, left), line.narrow(axis, 0, 1).narrow(at, 0, 1), axis, at)
    end = line.narrow(axis, members - 1, 1).narrow(at, extent - 1, 1)
    from_right = _shifted(line.narrow(at, 0, right), end, axis, at, backwards=True)
    if not repeats_edge:
        from_left.narrow(axis, 0, 1).zero_()
        from_right.narrow(axis, members - 1, 1).zero_()
    padded = torch.cat([from_left, line, from_right], at)
    return padded.squeeze(0) if not group.axes else padded.unflatten(axis, group.extents)


def _shifted(rows: torch.Tensor, edge: torch.Tensor, axis: int, at: int, *, backwards: bool = False) -> torch.Tensor:
    """Each member's rows on the next one (the one before, if backwards); the edge fills the end left over."""
    members = rows.shape[axis]
    shape = list(edge.shape)
    shape[at] = rows.shape[at]
    end = edge.expand(shape)
    passed = rows.narrow(axis, 1 if backwards else 0, members - 1)
    return torch.cat([passed, end] if backwards else [end, passed], axis)


def _padded_words(groups: Sequence[Group], dims: Sequence[int]) -> Distribution:
    dist = groups[0].dist
    axes = {axis for group in groups for axis in group.axes}
    words = [
        LOCAL if axis in axes or (isinstance(word, Shard) and word.dim in dims) else word
        for axis, word in enumerate(dist.placements)
    ]
    return dist.with_placements(tuple(words))


@overloaded_collective(
    "experimental.slice_reshard_async",
    "input_tensor dim output_dim_offset output_dim_shape cluster_axis final_semaphore barrier_semaphore | num_links? "
    "memory_config? topology?",
    kind=Kind.NEIGHBOURS,
    rule=scattered_placement,
)
def slice_reshard_async(
    input_tensor: Operand, dim: int, output_dim_offset: int, output_dim_shape: int, cluster_axis: int
) -> CollectiveSpec:
    """The members' pieces joined along `dim`, a slice of that, split equally again; rows past the end are 0."""
    op = "experimental.slice_reshard_async"
    if input_tensor.layout is not Layout.ROW_MAJOR:
        raise MeshError(
            f"Unsupported input tensor layout {input_tensor.layout.cpp_name}. {op} takes ROW_MAJOR: use "
            "ttnn.to_layout(tensor, ttnn.ROW_MAJOR_LAYOUT)."
        )
    at = input_tensor.dim(dim)

    def move(group: Group) -> GroupComputation:
        whole = input_tensor.shape[at] * group.size
        if output_dim_offset < 0 or output_dim_shape < 1:
            raise MeshError(
                f"{op}: output_dim_offset={output_dim_offset} must be 0 or more, and output_dim_shape="
                f"{output_dim_shape} 1 or more."
            )
        if output_dim_shape % group.size:
            raise MeshError(
                f"{op}: output_dim_shape={output_dim_shape} cannot be shared by {group.size} devices: "
                f"take a multiple of {group.size}."
            )

        def compute(data: torch.Tensor) -> torch.Tensor:
            joined = gathered(data, group, at)
            there = max(min(output_dim_shape, whole - output_dim_offset), 0)
            kept = joined.narrow(group.lead + at, min(output_dim_offset, whole), there)
            after = (0, 0) * (input_tensor.rank - at - 1) + (0, output_dim_shape - there)
            return dealt(torch.nn.functional.pad(kept, after), group, at)

        return GroupComputation(compute, (scattered_placement(group, at, from_one_value=True),))

    return CollectiveSpec(checked_axis(op, cluster_axis), move)
