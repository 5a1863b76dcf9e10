"""scatter, scatter_add, TOSA's gather and scatter, indexed_fill: writes to places that a tensor names."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from softmesh.dispatch.cost_rules import moves_bytes
from softmesh.dispatch.operand import Operand
from softmesh.dispatch.operation import operation
from softmesh.dispatch.plan import Local
from softmesh.errors import ArgumentError, ArgumentValueError, MeshError
from softmesh.kinds import Kind
from softmesh.ops.golden import golden_data_movement as golden
from softmesh.ops.golden import golden_training
from softmesh.ops.golden.golden_functions import with_reference
from softmesh.placement import dim_labels, rules
from softmesh.placement.placements import placed
from softmesh.tensor.broadcasting import expand_mesh_dims

_OPTIONS: dict[str, Any] = {"kind": Kind.LOOKUP, "cost": moves_bytes, "controls": "memory_config"}
_REDUCTIONS = {
    "add": "sum",
    "sum": "sum",
    "multiply": "prod",
    "prod": "prod",
    "amin": "amin",
    "amax": "amax",
}


def _check_index(op: str, index: Operand) -> None:
    if index.is_float:
        raise ArgumentError(f"{op}: {index.name} must hold integers, got {index.dtype}")


def check_bounds(op: str, index: torch.Tensor, extent: int) -> torch.Tensor:
    """As torch's index, each within the extent."""
    places = index.long()
    if places.numel() and (int(places.min()) < 0 or int(places.max()) >= extent):
        raise MeshError(f"{op}: an index lies outside of the {extent} places on each device.")
    return places


@placed("As the operands, which are split alike along any dim but the one it writes along; otherwise Local.")
def _alike(dim: int) -> rules.SingleRule:
    """Operands that are split alike along any dim but this one."""

    @rules.labelled(dim_labels.moved(lambda at: None if at == dim else at, passes="", of_all=True))
    def rule(at: rules.Situation) -> rules.Placement:
        rules.refuse_partial(at)
        words = {word for word in at.words if word is not rules.REPLICATE}
        word = words.pop()
        if words or not isinstance(word, rules.Shard) or word.dim == dim:
            return rules.LOCAL
        extents = {shape[word.dim] for shape in at.shapes if shape is not None}
        return word if len(extents) == 1 else rules.LOCAL

    return rule


def _scattered(op: str, operand: Operand, dim: int, index: Operand, source: Operand, reduction: str | None) -> Local:
    d, rank = operand.dim(dim), operand.rank
    _check_index(op, index)
    fits = index.rank == source.rank == rank and index.shape == source.shape
    if not fits or any(i > n for e, (i, n) in enumerate(zip(index.shape, operand.shape, strict=True)) if e != d):
        raise MeshError(
            f"{op}: index {list(index.shape)} and src {list(source.shape)} must be of one shape, not larger than input "
            f"{list(operand.shape)} in any dim but dim={dim}."
        )
    at = d - rank

    def compute(x: torch.Tensor, i: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
        x, i, values = expand_mesh_dims(rank, x, i, values)
        places = check_bounds(op, i, operand.shape[d])
        if reduction is None:
            return x.scatter(at, places, values.to(x.dtype))
        return x.scatter_reduce(at, places, values.to(x.dtype), reduction)

    return Local(compute, _alike(d))


@operation(**_OPTIONS, tuning="sub_core_grids", rule=_alike)
@with_reference(golden.scatter)
def scatter(input: Operand, dim: int, index: Operand, src: Operand, *, reduce: str | None = None) -> Local:
    """A copy of input with src[i] written at index[i] along `dim`, or combined with what is there.

    `reduce` is "add", "multiply", "amin" or "amax". Which of several values for one place stays without it is not
    said by TT-NN; here the last.
    """
    if reduce is not None and reduce not in _REDUCTIONS:
        raise ArgumentValueError(f"scatter: reduce must be one of {sorted(_REDUCTIONS)}, got {reduce!r}")
    return _scattered("scatter", input, dim, index, src, None if reduce is None else _REDUCTIONS[reduce])


@operation(**_OPTIONS, tuning="sub_core_grids", rule=_alike)
@with_reference(golden.scatter_add)
def scatter_add(input: Operand, dim: int, index: Operand, src: Operand) -> Local:
    """A copy of input with src[i] added at index[i] along `dim`."""
    return _scattered("scatter_add", input, dim, index, src, "sum")


def _check_tosa(op: str, values: Operand, index: Operand) -> None:
    _check_index(op, index)
    if values.rank != 3 or index.rank != 2 or values.shape[0] != index.shape[0]:
        raise MeshError(
            f"{op}: input {list(values.shape)} must be [N, K, C] and index {list(index.shape)} [N, W], with one N."
        )


_BATCH_AND_CHANNELS: dict[int, Sequence[tuple[int, int | None]]] = {
    0: [(0, 0), (1, 0), (2, 0)],
    2: [(0, 2), (2, 2)],
}


@operation(**_OPTIONS, precision="data", rule=rules.along)
def tosa_gather(input: Operand, index: Operand) -> Local:
    """[N, K, C] by [N, W]: [N, W, C], the rows that the index names."""
    _check_tosa("tosa_gather", input, index)

    def compute(x: torch.Tensor, i: torch.Tensor) -> torch.Tensor:
        x, i = expand_mesh_dims(3, x, i.unsqueeze(-1))
        places = check_bounds("tosa_gather", i, input.shape[1])
        return x.gather(-2, places.expand(*places.shape[:-1], x.shape[-1]))

    return Local(compute, rules.along(_BATCH_AND_CHANNELS), dtypes=(input.dtype,))


@operation(**_OPTIONS, rule=rules.along)
def tosa_scatter(input: Operand, index: Operand, src: Operand) -> Local:
    """[N, K, C] with the rows that [N, W] names replaced by those of [N, W, C]."""
    _check_tosa("tosa_scatter", input, index)
    (n, _, channels), width = input.shape, index.shape[1]
    if src.shape != (n, width, channels):
        raise MeshError(f"tosa_scatter: src {list(src.shape)} must be {[n, width, channels]}.")

    def compute(x: torch.Tensor, i: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
        x, i, values = expand_mesh_dims(3, x, i.unsqueeze(-1), values)
        places = check_bounds("tosa_scatter", i, input.shape[1]).expand(values.shape)
        return x.scatter(-2, places, values.to(x.dtype))

    return Local(compute, rules.along(_BATCH_AND_CHANNELS))


# -- parts of a batch: some replaced (indexed_fill), or all added up (fast_reduce_nc) ----------------


@operation(kind=Kind.LOOKUP, cost=moves_bytes, precision="data", controls="memory_config")
@with_reference(golden.indexed_fill)
def indexed_fill(batch_id: Operand, input_tensor_a: Operand, input_tensor_b: Operand, *, dim: int = 0) -> Local:
    """a, with the entries that `batch_id` names along `dim` replaced by those of b, in their order."""
    a, b = input_tensor_a, input_tensor_b
    if not -a.rank <= dim < a.rank:
        raise MeshError(
            f"indexed_fill: dim {dim} is out of bounds for rank {a.rank} of input_tensor_a {list(a.shape)}."
        )
    d = a.dim(dim)
    count = batch_id.spec.logical_volume()
    if batch_id.is_float or count != batch_id.shape[-1]:
        raise MeshError(f"indexed_fill: batch_id {list(batch_id.shape)} {batch_id.dtype} must be one row of integers.")
    if a.dtype is not b.dtype or b.shape != (*a.shape[:d], count, *a.shape[d + 1 :]):
        raise MeshError(
            f"indexed_fill: input_tensor_b {list(b.shape)} {b.dtype} must be like input_tensor_a {list(a.shape)} "
            f"{a.dtype}, with {count} entries along dim {dim}, one for each of batch_id."
        )
    at, extent = d - a.rank, a.shape[d]

    def compute(ids: torch.Tensor, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        lead = a.dim() - len(input_tensor_a.shape)
        if int(ids.max()) >= extent or int(ids.min()) < 0:
            raise MeshError(
                f"indexed_fill: batch_id names {int(ids.max())}, and dim {dim} of input_tensor_a has {extent}."
            )
        where = ids.reshape(*ids.shape[:lead], *(count if i == d else 1 for i in range(a.dim() - lead)))
        where, whole, new = expand_mesh_dims(a.dim() - lead, where.long(), a, b)
        return whole.scatter(at, where.expand(new.shape), new)

    @rules.labelled(
        dim_labels.table({dim: [(1, dim), (2, dim)] for dim in range(a.rank) if dim != d}, passes=((1, 2),))
    )
    def rule(situation: rules.Situation) -> rules.Placement:
        """What is replaced is the same on every device that holds a slice along another dim."""
        if situation.words[0] is not rules.REPLICATE:
            return rules.opaque(situation)
        return rules.among(situation, (1, 2), rules.resizing([d]))

    return Local(compute, rule, dtypes=(a.dtype,), layouts=(a.layout,), memory_config=a.spec.memory_config)


def _register_index_fill(name: str) -> None:
    def define(input: Operand, dim: int, index: Operand, value: float) -> Local:
        d = input.dim(dim)
        if index.is_float or index.rank != 1:
            raise MeshError(f"{name}: index {list(index.shape)} {index.dtype} must be one row of integers.")

        size, behind = input.shape[d], input.rank - d - 1

        def compute(x: torch.Tensor, places: torch.Tensor) -> torch.Tensor:
            wanted = places.remainder(size).unsqueeze(-1) == torch.arange(size, device=x.device)
            is_filled = wanted.any(-2)  # of each device's index, along dim
            lead = is_filled.shape[:-1]
            return torch.where(is_filled.reshape(*lead, *(1,) * d, size, *(1,) * behind), value, x)

        @rules.labelled(dim_labels.moved(lambda at: None if at == d else at))
        def rule(at: rules.Situation) -> rules.Placement:
            if at.words[1] is not rules.REPLICATE:
                return rules.opaque(at)
            return rules.resizing([d])(rules.Situation(at.words[:1], at.shapes[:1], at.out_shapes))

        return Local(compute, rule)

    with_reference(golden_training.index_fill)(define)
    define.__doc__ = "The input with `value` at the places of `dim` that the index names."
    operation(name, kind=Kind.LOOKUP, cost=moves_bytes, precision="data", controls="memory_config")(define)


for _name in ("index_fill", "index_fill_new"):
    _register_index_fill(_name)
