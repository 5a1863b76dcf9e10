"""permute, transpose, concat, split, repeat, roll, gather: on each device, mostly views."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch

from softmesh.dispatch import part_work
from softmesh.dispatch.cost_rules import moves_bytes
from softmesh.dispatch.operand import Operand
from softmesh.dispatch.operation import operation
from softmesh.dispatch.part_work import PartWork
from softmesh.dispatch.plan import Local
from softmesh.errors import ArgumentError, MeshError
from softmesh.hardware.memory_config import MemoryConfig, ShardSpec, TensorMemoryLayout
from softmesh.kinds import Kind
from softmesh.ops import gradients
from softmesh.ops.golden import golden_data_movement as golden
from softmesh.ops.golden.golden_functions import with_reference
from softmesh.placement import dim_labels, rules
from softmesh.placement.placements import placed
from softmesh.tensor.broadcasting import concat_on_mesh, expand_mesh_dims
from softmesh.tensor.spec import TensorSpec
from softmesh.tensor.tile import padded_shape

_OPTIONS: dict[str, Any] = {"cost": moves_bytes, "precision": "data", "on_host": True}


def _handed_on(operand: Operand) -> Local:
    """Where there is nothing to move TT-NN returns the tensor itself, unless it is wanted in other memory."""
    spec = operand.spec
    return Local(
        lambda x: x,
        rules.keeping,
        memory_config=spec.memory_config,
        keeps_memory=True,
        pad_value=spec.pad_value,
        padded_shape=tuple(spec.padded_shape),
    )


@operation(
    kind=Kind.MOVEMENT,
    rule=rules.permuting,
    gradient=gradients.of_permute,
    native="PermuteDeviceOperation",
    **_OPTIONS,
    controls="memory_config queue_id",
    tuning="pad_value",
)
@with_reference(golden.permute)
def permute(input_tensor: Operand, dims: Sequence[int]) -> Local:
    """
    >>> y = ttnn.permute(split(2, 8, 64, dim=2), (0, 2, 1))
    >>> y.shape, ttnn.placements(y)
    (Shape([2, 16, 8]), (Replicate, Shard(1)))
    """
    order = input_tensor.dims(list(dims), "dims")
    if len(order) != input_tensor.rank:
        raise MeshError(
            f"permute: The number of dimensions in the tensor input does not match the length of the desired "
            f"ordering: dims={list(dims)} for a tensor of shape {list(input_tensor.shape)}."
        )
    rank = input_tensor.rank
    if list(order) == list(range(rank)):
        return _handed_on(input_tensor)

    def compute(x: torch.Tensor) -> torch.Tensor:
        lead = x.dim() - rank
        return x.permute(*range(lead), *(lead + d for d in order))

    return Local(compute, rules.permuting(order))


@operation(
    kind=Kind.MOVEMENT,
    rule=rules.permuting,
    gradient=gradients.of_transpose,
    native="PermuteDeviceOperation",
    **_OPTIONS,
    controls="memory_config queue_id",
    tuning="pad_value",
)
@with_reference(golden.transpose)
def transpose(input_tensor: Operand, dim1: int, dim2: int) -> Local:
    """
    >>> y = ttnn.transpose(split(8, 64, dim=1), 0, 1)
    >>> y.shape, ttnn.placements(y)
    (Shape([16, 8]), (Replicate, Shard(0)))
    """
    a, b = input_tensor.dim(dim1, "dim1"), input_tensor.dim(dim2, "dim2")
    if a == b:
        return _handed_on(input_tensor)
    order = list(range(input_tensor.rank))
    order[a], order[b] = order[b], order[a]
    rank = input_tensor.rank
    return Local(lambda x: x.transpose(a - rank, b - rank), rules.permuting(order))


@operation(
    kind=Kind.MOVEMENT, rule=rules.resizing, part_work=part_work.CUTS_PLACES, **_OPTIONS, controls="", cuts_columns=True
)
@with_reference(golden.narrow)
def narrow(input_tensor: Operand, dim: int, start: int, length: int) -> Local:
    d = input_tensor.dim(dim)
    n = input_tensor.shape[d]
    begin = start + n if start < 0 else start
    if not 0 <= begin <= begin + length <= n:
        raise MeshError(f"narrow: start={start}, length={length} do not lie within dim {dim} of {n} elements.")
    whole = begin == 0 and length == n
    at = d - input_tensor.rank
    shape = (*input_tensor.shape[:d], length, *input_tensor.shape[d + 1 :])
    return Local(
        lambda x: x.narrow(at, begin, length),
        rules.resizing([] if whole else [d]),
        memory_config=_sharded_as(input_tensor.spec, shape),
    )


def _sharded_as(spec: TensorSpec, shape: Sequence[int]) -> MemoryConfig | None:
    """On the cores of the input, where a tensor of this smaller shape is cut as that is."""
    config, shards = spec.memory_config, spec.memory_config.shard_spec
    if shards is None:
        return None
    whole = padded_shape(tuple(shape), spec.layout, spec.tile)
    rows, columns = math.prod(whole[:-1]), whole[-1]
    height, width = min(shards.shape[0], rows), min(shards.shape[1], columns)
    smaller = ShardSpec(shards.grid, [height, width], shards.orientation)
    return MemoryConfig(config.memory_layout, config.buffer_type, smaller)


@operation(
    kind=Kind.MOVEMENT,
    rule=rules.resizing,
    gradient=gradients.of_concat,
    part_work=part_work.JOINS,
    **_OPTIONS,
    controls="memory_config output_tensor",
    tuning="sub_core_grids",
    joins_columns=True,
)
@with_reference(golden.concat)
def concat(tensors: Operand | Sequence[Operand], dim: int = 0, *, groups: int = 1) -> Local:
    """Join several tensors along `dim`, on each device.

    With `groups`, each of two is cut into so many runs along the last dim, and these take turns: a0 b0 a1 b1.

    >>> y = ttnn.concat([split(8, 64, dim=1), split(8, 64, dim=1)], dim=0)
    >>> y.shape, ttnn.placements(y)
    (Shape([16, 16]), (Replicate, Shard(1)))
    """
    parts = [tensors] if isinstance(tensors, Operand) else list(tensors)
    first = parts[0]
    d = first.dim(dim)
    if len(parts) == 1:
        return _handed_on(first)
    for part in parts[1:]:
        same = [n for i, n in enumerate(part.shape) if i != d] == [n for i, n in enumerate(first.shape) if i != d]
        if part.rank != first.rank or not same:
            raise MeshError(
                f"concat: All dimensions must be the same size except for the dimension along which the contenation "
                f"is taking place: {first.name} is {list(first.shape)}, {part.name} is {list(part.shape)}, dim={dim}."
            )
        if part.dtype is not first.dtype or part.layout is not first.layout:
            raise MeshError(
                f"concat: tensors must agree in dtype and layout: {first.name} is {first.dtype} {first.layout}, "
                f"{part.name} is {part.dtype} {part.layout}."
            )
    at = d - first.rank
    if groups == 1:
        return Local(lambda *xs: concat_on_mesh(xs, at), rules.resizing([d]))
    _check_groups(parts, at, groups)

    def in_turns(*xs: torch.Tensor) -> torch.Tensor:
        runs = zip(*(x.chunk(groups, at) for x in xs), strict=True)
        return concat_on_mesh([run for several in runs for run in several], at)

    return Local(in_turns, rules.resizing([d]))


def _check_groups(parts: Sequence[Operand], at: int, groups: int) -> None:
    in_rows = all(part.spec.memory_config.memory_layout is TensorMemoryLayout.HEIGHT_SHARDED for part in parts)
    if not in_rows or len(parts) != 2 or at != -1:
        raise MeshError(
            "Groups > 1 is only supported on height-sharded tensors (two of them, along the last dim): concat got "
            f"groups={groups} for {len(parts)} tensors, dim {at}."
        )
    if groups < 1 or any(part.shape[-1] % groups for part in parts):
        raise MeshError(f"concat: groups={groups} must divide {[part.shape[-1] for part in parts]}, the widths.")


@operation(kind=Kind.MOVEMENT, part_work=part_work.JOINS, **_OPTIONS, controls="")
@placed("Split as the operands are, where they are split alike; otherwise Local.")
@with_reference(golden.stack)
def stack(input_tensors: Operand | Sequence[Operand], dim: int) -> Local:
    """
    >>> y = ttnn.stack([split(8, 64, dim=1), split(8, 64, dim=1)], dim=0)
    >>> y.shape, ttnn.placements(y)
    (Shape([2, 8, 16]), (Replicate, Shard(2)))
    """
    parts = [input_tensors] if isinstance(input_tensors, Operand) else list(input_tensors)
    first = parts[0]
    for part in parts[1:]:
        if part.shape != first.shape:
            raise MeshError(f"stack: shapes differ: {list(first.shape)} and {part.name} {list(part.shape)}.")
    rank = first.rank
    if not -rank - 1 <= dim <= rank:
        raise MeshError(f"Dimension out of range (expected to be in range of [{-rank - 1},{rank}], but got {dim})")
    at = dim % (rank + 1)

    def compute(*xs: torch.Tensor) -> torch.Tensor:
        return concat_on_mesh([x.unsqueeze(at - rank - 1) for x in xs], at - rank - 1)

    @rules.labelled(dim_labels.moved(lambda dim: dim + (dim >= at), of_all=True))
    def rule(situation: rules.Situation) -> rules.Placement:
        word = rules.resizing([])(situation)
        return word.at(word.dim + (word.dim >= at)) if isinstance(word, rules.Shard) else word

    return Local(compute, rule)


@operation(
    kind=Kind.MOVEMENT,
    rule=rules.resizing,
    part_work=part_work.CUTS_PIECES,
    **_OPTIONS,
    controls="memory_config",
    cuts_columns=True,
    results="list[Tensor]",
)
@with_reference(golden.split)
def split(input_tensor: Operand, split_size: int | Sequence[int], dim: int = 0) -> Local:
    """Pieces of `split_size` along `dim` (the last may be shorter), or of the sizes listed."""
    d = input_tensor.dim(dim)
    n = input_tensor.shape[d]
    if isinstance(split_size, int):
        if split_size < 1:
            raise MeshError(f"split: split_size must be positive, got {split_size}.")
        sizes = [min(split_size, n - start) for start in range(0, n, split_size)]
    else:
        sizes = [int(size) for size in split_size]
        if sum(sizes) != n:
            raise MeshError(f"split: sizes {sizes} add up to {sum(sizes)}, dim {dim} has {n} elements.")
    return _split(input_tensor, d, sizes)


def _split(operand: Operand, d: int, sizes: list[int]) -> Local:
    at = d - operand.rank
    return Local(
        lambda x: list(x.split(sizes, at)),
        rules.resizing([d] if len(sizes) > 1 else []),
        dtypes=(operand.dtype,) * len(sizes),
        layouts=(operand.layout,) * len(sizes),
    )


@operation(
    kind=Kind.MOVEMENT,
    rule=rules.resizing,
    part_work=part_work.CUTS_PIECES,
    **_OPTIONS,
    controls="",
    cuts_columns=True,
    results="list[Tensor]",
)
@with_reference(golden.chunk)
def chunk(input_tensor: Operand, chunks: int, dim: int) -> Local:
    """`chunks` equal pieces along `dim`; the last may be shorter."""
    d = input_tensor.dim(dim)
    n = input_tensor.shape[d]
    if chunks < 1:
        raise MeshError(f"chunk: chunks must be positive, got {chunks}.")
    size = -(-n // chunks)
    return _split(input_tensor, d, [min(size, n - start) for start in range(0, n, max(size, 1))])


@operation(
    kind=Kind.MOVEMENT,
    rule=rules.resizing,
    part_work=part_work.REPEATS,
    **_OPTIONS,
    controls="memory_config optional_output_tensor",
    tuning="implementation",
)
@with_reference(golden.repeat)
def repeat(input_tensor: Operand, repeat_dims: Sequence[int]) -> Local:
    """
    >>> y = ttnn.repeat(split(8, 64, dim=1), (2, 1))
    >>> y.shape, ttnn.placements(y)
    (Shape([16, 16]), (Replicate, Shard(1)))
    """
    counts = [int(n) for n in repeat_dims]
    rank = input_tensor.rank
    if len(counts) < rank or any(n < 0 for n in counts):
        raise MeshError(
            f"repeat: repeat_dims={counts} must hold one count, 0 or more, for each of the {rank} dims of "
            f"{list(input_tensor.shape)}."
        )
    added = len(counts) - rank
    if not added and all(n == 1 for n in counts):
        return _handed_on(input_tensor)

    def compute(x: torch.Tensor) -> torch.Tensor:
        lead = x.shape[: x.dim() - rank]
        x = x.reshape(*lead, *(1,) * added, *x.shape[len(lead) :])
        return x.repeat(*(1,) * len(lead), *counts)

    return Local(compute, rules.resizing([i - added for i, n in enumerate(counts) if n != 1], shift=added))


@operation(kind=Kind.MOVEMENT, rule=rules.repeating_each, **_OPTIONS, controls="memory_config")
@with_reference(golden.repeat_interleave)
def repeat_interleave(input_tensor: Operand, repeats: int, dim: int) -> Local:
    d = input_tensor.dim(dim)
    at = d - input_tensor.rank
    return Local(lambda x: x.repeat_interleave(repeats, at), rules.repeating_each([d]))


@operation(kind=Kind.MOVEMENT, rule=rules.resizing, part_work=part_work.REPEATS, **_OPTIONS, controls="memory_config")
@with_reference(golden.expand)
def expand(input_tensor: Operand, output_shape: Sequence[int]) -> Local:
    """Repeat dims of extent 1 up to `output_shape`; -1 keeps an extent."""
    rank, sizes = input_tensor.rank, [int(n) for n in output_shape]
    added = len(sizes) - rank
    if added < 0:
        raise MeshError(f"expand: output_shape {sizes} has fewer dims than the tensor {list(input_tensor.shape)}.")
    for i, n in enumerate(input_tensor.shape):
        want = sizes[added + i]
        sizes[added + i] = n if want == -1 else want
        if n not in (1, sizes[added + i]):
            raise MeshError(f"expand: dim {i} of {list(input_tensor.shape)} has {n} elements and cannot become {want}.")
    touched = [i for i, n in enumerate(input_tensor.shape) if sizes[added + i] != n]

    def compute(x: torch.Tensor) -> torch.Tensor:
        lead = x.shape[: x.dim() - rank]
        x = x.reshape(*lead, *(1,) * added, *x.shape[len(lead) :])
        return x.expand(*lead, *sizes)

    return Local(compute, rules.resizing(touched, shift=added))


_ROLLS = PartWork("moves what leaves its own part to the other end of it, and not to its neighbour")


@operation(kind=Kind.MOVEMENT, rule=rules.resizing, part_work=_ROLLS, **_OPTIONS, controls="memory_config")
@with_reference(golden.roll)
def roll(input_tensor: Operand, shifts: int | Sequence[int], dim: int | Sequence[int] | None = None) -> Local:
    """Rotate along dims; without `dim`, the flattened tensor."""
    rank = input_tensor.rank
    if dim is None:
        sizes = input_tensor.shape
        by = shifts if isinstance(shifts, int) else sum(shifts)

        def flat(x: torch.Tensor) -> torch.Tensor:
            lead = x.shape[: x.dim() - rank]
            return x.reshape(*lead, -1).roll(by, -1).reshape(*lead, *sizes)

        return Local(flat, rules.resizing(range(rank)))
    dims = input_tensor.dims(dim)
    several = [shifts] * len(dims) if isinstance(shifts, int) else [int(s) for s in shifts]
    if len(several) != len(dims):
        raise MeshError(f"roll: {len(several)} shifts for {len(dims)} dims.")
    return Local(lambda x: x.roll(several, [d - rank for d in dims]), rules.resizing(dims))


@operation(
    "gather",
    kind=Kind.LOOKUP,
    cost=moves_bytes,
    precision="data",
    controls="memory_config out",
    tuning="sparse_grad sub_core_grids",
)
@placed("Split as input and index are, where that lines up; split along the dim it picks along, Local.")
@with_reference(golden.gather)
def gather_(input: Operand, dim: int, index: Operand) -> Local:
    """Elements picked along `dim` by an index tensor of the same rank, on each device."""
    d = input.dim(dim)
    at = d - input.rank
    if index.rank != input.rank:
        raise MeshError(f"gather: index {list(index.shape)} and input {list(input.shape)} must have one rank.")
    if index.is_float:
        raise ArgumentError(f"gather: index must hold integers, got {index.dtype}")
    rank = input.rank

    def compute(x: torch.Tensor, i: torch.Tensor) -> torch.Tensor:
        x, i = expand_mesh_dims(rank, x, i)
        for other in range(-rank, 0):
            if other != at:
                x = x.narrow(other, 0, i.shape[other])
        return torch.gather(x, at, i.long())

    mixed = [dim for dim in range(rank) if dim == d or input.shape[dim] != index.shape[dim]]

    @rules.labelled(dim_labels.aligned(without=mixed, passes=dim_labels.FIRST))
    def rule(situation: rules.Situation) -> rules.Placement:
        if isinstance(situation.word, rules.Partial) and situation.words[1] is rules.REPLICATE:
            return situation.word
        word = rules.elementwise(situation)
        splits = [w for w in situation.words if isinstance(w, rules.Shard)]
        return rules.LOCAL if any(split.dim == d for split in splits) else word

    return Local(compute, rule, dtypes=(input.dtype,))
