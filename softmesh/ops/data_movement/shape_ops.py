"""reshape, squeeze, permute, transpose, concat, split, repeat, roll, gather: on each device, mostly views."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch

from softmesh.dispatch.cost_rules import moves_bytes
from softmesh.dispatch.operand import Operand
from softmesh.dispatch.operation import operation
from softmesh.dispatch.plan import Local
from softmesh.errors import ArgumentError, MeshError
from softmesh.hardware import TileReshapeMapMode
from softmesh.hardware.memory_config import TensorMemoryLayout
from softmesh.placement import rules
from softmesh.tensor.dtype import Layout
from softmesh.tensor.padding import with_padding

_OPTIONS: dict[str, Any] = {"cost": moves_bytes, "precision": "data", "on_host": True}
_BY_LOGICAL_SHAPE = {"logical_shape": "shape"}


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


@operation(
    **_OPTIONS,
    controls="memory_config queue_id",
    tuning="pad_value sub_core_grids skip_padding_fill",
    argument_aliases=_BY_LOGICAL_SHAPE,
)
def reshape(
    input_tensor: Operand,
    shape: Sequence[int],
    padded_shape: Sequence[int] | None = None,
    *,
    reshape_tile_mode: TileReshapeMapMode = TileReshapeMapMode.CACHE,
) -> Local:
    """The same elements, row-major, under another shape; one extent may be -1.

    With `padded_shape`, TT-NN's second form, another part of the padded tensor may be taken for its values.
    """
    return _seen_as("reshape", input_tensor, shape, padded_shape)


def _seen_as(op: str, operand: Operand, shape: Sequence[int], padded: Sequence[int] | None) -> Local:
    """A reshape; or, with a padded shape and another volume, other bounds between values and padding."""
    if padded is None or -1 in shape or math.prod(shape) == math.prod(operand.shape):
        return reshape_local(op, operand, shape)
    spec, sizes, room = operand.spec, tuple(shape), tuple(padded)
    is_view = math.prod(room) == math.prod(spec.padded_shape) and len(room) == len(sizes)
    if operand.layout is Layout.TILE and not operand.on_host:
        in_tiles = len(room) > 1 and not any(
            n % edge for n, edge in zip(room[-2:], spec.tile.tile_shape, strict=True)
        )
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


@operation(**_OPTIONS, controls="")
def view(input_tensor: Operand, shape: Sequence[int]) -> Local:
    """As reshape. Values are not shared with the input: a later write to it is not seen here."""
    return reshape_local("view", input_tensor, shape)


@operation("experimental.view", **_OPTIONS, controls="", argument_aliases={"N": "shape"})
def experimental_view(
    input_tensor: Operand,
    shape: Sequence[int] | int,
    C: int | None = None,
    H: int | None = None,
    W: int | None = None,
) -> Local:
    """`view` by a shape, or by four extents N, C, H, W."""
    return reshape_local("experimental.view", input_tensor, _four("experimental.view", shape, C, H, W))


def _four(op: str, first: Sequence[int] | int, *others: int | None) -> Sequence[int]:
    if not isinstance(first, int):
        return first
    given = [first, *(n for n in others if n is not None)]
    if len(given) != 4:
        raise ArgumentError(
            f"{op}(): incompatible function arguments: give one shape or four extents, got {given}"
        )
    return given


@operation(**_OPTIONS, controls="memory_config")
def reshape_on_device(input_tensor: Operand, W: int, Z: int, Y: int, X: int) -> Local:
    """reshape to four extents."""
    return reshape_local("reshape_on_device", input_tensor, (W, Z, Y, X))


@operation(
    "experimental.quasar.reshape",
    **_OPTIONS,
    controls="memory_config",
    tuning="pad_value sub_core_grids skip_padding_fill",
    argument_aliases=_BY_LOGICAL_SHAPE,
)
def quasar_reshape(
    input_tensor: Operand,
    shape: Sequence[int],
    padded_shape: Sequence[int] | None = None,
    *,
    reshape_tile_mode: TileReshapeMapMode = TileReshapeMapMode.CACHE,
) -> Local:
    return _seen_as("experimental.quasar.reshape", input_tensor, shape, padded_shape)


@operation(**_OPTIONS, controls="")
def unsqueeze(input_tensor: Operand, dim: int) -> Local:
    rank = input_tensor.rank
    if not -rank - 1 <= dim <= rank:
        raise MeshError(
            f"Dimension out of range (expected to be in range of [{-rank - 1},{rank}], but got {dim})"
        )
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


@operation(**_OPTIONS, controls="")
def unsqueeze_to_4D(tensor: Operand) -> Local:
    if tensor.rank > 4:
        raise MeshError(
            f"unsqueeze_to_4D: tensor of shape {list(tensor.shape)} already has more than 4 dims."
        )
    missing = 4 - tensor.rank
    local = reshape_local("unsqueeze_to_4D", tensor, (1,) * missing + tensor.shape)
    return replace(local, rule=rules.permuting([-1] * missing + list(range(tensor.rank))))


@operation(**_OPTIONS, controls="")
def squeeze(input_tensor: Operand, dim: int | Sequence[int] | None = None) -> Local:
    """Drop dims of extent 1: one, several, or (None) all."""
    chosen = input_tensor.dims(dim)
    dropped = {d for d in chosen if input_tensor.shape[d] == 1}
    kept = [n for d, n in enumerate(input_tensor.shape) if d not in dropped]
    return reshape_local("squeeze", input_tensor, kept)


@operation(**_OPTIONS, controls="memory_config queue_id", tuning="pad_value")
def permute(input_tensor: Operand, dims: Sequence[int]) -> Local:
    order = input_tensor.dims(list(dims), "dims")
    if len(order) != input_tensor.rank:
        raise MeshError(
            f"permute: The number of dimensions in the tensor input does not match the length of the desired "
            f"ordering: dims={list(dims)} for a tensor of shape {list(input_tensor.shape)}."
        )
    rank = input_tensor.rank

    def compute(x: torch.Tensor) -> torch.Tensor:
        lead = x.dim() - rank
        return x.permute(*range(lead), *(lead + d for d in order))

    return Local(compute, rules.permuting(order))


@operation(**_OPTIONS, controls="memory_config queue_id", tuning="pad_value")
def transpose(input_tensor: Operand, dim1: int, dim2: int) -> Local:
    a, b = input_tensor.dim(dim1, "dim1"), input_tensor.dim(dim2, "dim2")
    order = list(range(input_tensor.rank))
    order[a], order[b] = order[b], order[a]
    rank = input_tensor.rank
    return Local(lambda x: x.transpose(a - rank, b - rank), rules.permuting(order))


@operation(**_OPTIONS, controls="")
def narrow(input_tensor: Operand, dim: int, start: int, length: int) -> Local:
    d = input_tensor.dim(dim)
    n = input_tensor.shape[d]
    begin = start + n if start < 0 else start
    if not 0 <= begin <= begin + length <= n:
        raise MeshError(
            f"narrow: start={start}, length={length} do not lie within dim {dim} of {n} elements."
        )
    whole = begin == 0 and length == n
    at = d - input_tensor.rank
    return Local(lambda x: x.narrow(at, begin, length), rules.resizing([] if whole else [d]))


@operation(**_OPTIONS, controls="memory_config output_tensor", tuning="sub_core_grids")
def concat(tensors: Operand | Sequence[Operand], dim: int = 0, *, groups: int = 1) -> Local:
    """Join several tensors along `dim`, on each device.

    With `groups`, each of two is cut into so many runs along the last dim, and these take turns: a0 b0 a1 b1.
    """
    parts = [tensors] if isinstance(tensors, Operand) else list(tensors)
    first = parts[0]
    d = first.dim(dim)
    for part in parts[1:]:
        same = [n for i, n in enumerate(part.shape) if i != d] == [
            n for i, n in enumerate(first.shape) if i != d
        ]
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
        return Local(lambda *xs: join(xs, at), rules.resizing([d] if len(parts) > 1 else []))
    _check_groups(parts, at, groups)

    def in_turns(*xs: torch.Tensor) -> torch.Tensor:
        runs = zip(*(x.chunk(groups, at) for x in xs), strict=True)
        return join([run for several in runs for run in several], at)

    return Local(in_turns, rules.resizing([d]))


def _check_groups(parts: Sequence[Operand], at: int, groups: int) -> None:
    in_rows = all(
        part.spec.memory_config.memory_layout is TensorMemoryLayout.HEIGHT_SHARDED for part in parts
    )
    if not in_rows or len(parts) != 2 or at != -1:
        raise MeshError(
            "Groups > 1 is only supported on height-sharded tensors (two of them, along the last dim): concat got "
            f"groups={groups} for {len(parts)} tensors, dim {at}."
        )
    if groups < 1 or any(part.shape[-1] % groups for part in parts):
        raise MeshError(
            f"concat: groups={groups} must divide {[part.shape[-1] for part in parts]}, the widths."
        )


def join(parts: Sequence[torch.Tensor], at: int) -> torch.Tensor:
    """torch.cat for parts whose mesh dims may be stored once in some and spread in others."""
    lead = [max(extents) for extents in zip(*(p.shape[:at] for p in parts), strict=True)]
    return torch.cat([p.expand(*lead, *p.shape[at:]) for p in parts], at)


@operation(**_OPTIONS, controls="memory_config")
def stack(input_tensors: Operand | Sequence[Operand], dim: int) -> Local:
    parts = [input_tensors] if isinstance(input_tensors, Operand) else list(input_tensors)
    first = parts[0]
    for part in parts[1:]:
        if part.shape != first.shape:
            raise MeshError(f"stack: shapes differ: {list(first.shape)} and {part.name} {list(part.shape)}.")
    rank = first.rank
    if not -rank - 1 <= dim <= rank:
        raise MeshError(
            f"Dimension out of range (expected to be in range of [{-rank - 1},{rank}], but got {dim})"
        )
    at = dim % (rank + 1)

    def compute(*xs: torch.Tensor) -> torch.Tensor:
        return join([x.unsqueeze(at - rank - 1) for x in xs], at - rank - 1)

    def rule(situation: rules.Situation) -> rules.Placement:
        word = rules.resizing([])(situation)
        return word.at(word.dim + (word.dim >= at)) if isinstance(word, rules.Shard) else word

    return Local(compute, rule)


@operation(**_OPTIONS, controls="memory_config")
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


@operation(**_OPTIONS, controls="")
def chunk(input_tensor: Operand, chunks: int, dim: int) -> Local:
    """`chunks` equal pieces along `dim`; the last may be shorter."""
    d = input_tensor.dim(dim)
    n = input_tensor.shape[d]
    if chunks < 1:
        raise MeshError(f"chunk: chunks must be positive, got {chunks}.")
    size = -(-n // chunks)
    return _split(input_tensor, d, [min(size, n - start) for start in range(0, n, max(size, 1))])


@operation(**_OPTIONS, controls="memory_config optional_output_tensor")
def repeat(input_tensor: Operand, repeat_dims: Sequence[int]) -> Local:
    counts = [int(n) for n in repeat_dims]
    rank = input_tensor.rank
    if len(counts) < rank or any(n < 0 for n in counts):
        raise MeshError(
            f"repeat: repeat_dims={counts} must hold one count, 0 or more, for each of the {rank} dims of "
            f"{list(input_tensor.shape)}."
        )
    added = len(counts) - rank

    def compute(x: torch.Tensor) -> torch.Tensor:
        lead = x.shape[: x.dim() - rank]
        x = x.reshape(*lead, *(1,) * added, *x.shape[len(lead) :])
        return x.repeat(*(1,) * len(lead), *counts)

    return Local(compute, rules.resizing([i - added for i, n in enumerate(counts) if n != 1], shift=added))


@operation(**_OPTIONS, controls="memory_config")
def repeat_interleave(input_tensor: Operand, repeats: int, dim: int) -> Local:
    d = input_tensor.dim(dim)
    at = d - input_tensor.rank
    return Local(lambda x: x.repeat_interleave(repeats, at), rules.resizing([d] if repeats != 1 else []))


@operation(**_OPTIONS, controls="memory_config")
def expand(input_tensor: Operand, output_shape: Sequence[int]) -> Local:
    """Repeat dims of extent 1 up to `output_shape`; -1 keeps an extent."""
    rank, sizes = input_tensor.rank, [int(n) for n in output_shape]
    added = len(sizes) - rank
    if added < 0:
        raise MeshError(
            f"expand: output_shape {sizes} has fewer dims than the tensor {list(input_tensor.shape)}."
        )
    for i, n in enumerate(input_tensor.shape):
        want = sizes[added + i]
        sizes[added + i] = n if want == -1 else want
        if n not in (1, sizes[added + i]):
            raise MeshError(
                f"expand: dim {i} of {list(input_tensor.shape)} has {n} elements and cannot become {want}."
            )
    touched = [i for i, n in enumerate(input_tensor.shape) if sizes[added + i] != n]

    def compute(x: torch.Tensor) -> torch.Tensor:
        lead = x.shape[: x.dim() - rank]
        x = x.reshape(*lead, *(1,) * added, *x.shape[len(lead) :])
        return x.expand(*lead, *sizes)

    return Local(compute, rules.resizing(touched, shift=added))


@operation(**_OPTIONS, controls="memory_config")
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
    cost=moves_bytes,
    precision="data",
    controls="memory_config out",
    tuning="sparse_grad sub_core_grids",
)
def gather_(input: Operand, dim: int, index: Operand) -> Local:
    """Elements picked along `dim` by an index tensor of the same rank, on each device."""
    d = input.dim(dim)
    at = d - input.rank
    if index.rank != input.rank:
        raise MeshError(
            f"gather: index {list(index.shape)} and input {list(input.shape)} must have one rank."
        )
    if index.is_float:
        raise ArgumentError(f"gather: index must hold integers, got {index.dtype}")
    rank = input.rank

    def compute(x: torch.Tensor, i: torch.Tensor) -> torch.Tensor:
        lead = [max(a, b) for a, b in zip(x.shape[:-rank], i.shape[:-rank], strict=True)]
        x, i = x.expand(*lead, *x.shape[-rank:]), i.expand(*lead, *i.shape[-rank:])
        for other in range(-rank, 0):
            if other != at:
                x = x.narrow(other, 0, i.shape[other])
        return torch.gather(x, at, i.long())

    def rule(situation: rules.Situation) -> rules.Placement:
        if isinstance(situation.word, rules.Partial) and situation.words[1] is rules.REPLICATE:
            return situation.word
        word = rules.elementwise(situation)
        splits = [w for w in situation.words if isinstance(w, rules.Shard)]
        return rules.LOCAL if any(split.dim == d for split in splits) else word

    return Local(compute, rule, dtypes=(input.dtype,))
