"""What the ops that write into caches share: which devices write, where the rows go, and what stays split."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from softmesh.arguments import checked_all
from softmesh.dispatch.cost_rules import moves_bytes
from softmesh.dispatch.definition import Arguments
from softmesh.dispatch.operand import Operand
from softmesh.dispatch.signature import Signature
from softmesh.errors import MeshError
from softmesh.mesh import MeshCoordinate
from softmesh.ops.attention.pages import read_as
from softmesh.placement import rules
from softmesh.tensor.dtype import Layout
from softmesh.tensor.implied import chosen_devices
from softmesh.tensor.tensor import Tensor

Data = torch.Tensor | None
OPTIONS: dict[str, Any] = {
    "cost": moves_bytes,
    "precision": "data",
    "controls": "",
    "tuning": "compute_kernel_config",
}


def _on_chosen_devices(signature: Signature, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Arguments:
    """`mesh_coords` names the devices that write; the others keep what they have."""
    coords = kwargs.get("mesh_coords")
    if coords is None:
        return args, kwargs
    wanted = "mesh coordinates such as ttnn.MeshCoordinate(0, 1)"
    listed = checked_all(signature.op, "mesh_coords", coords, (MeshCoordinate,), wanted)
    cache = args[0] if args else kwargs.get(signature.names[0])
    device = cache.device() if isinstance(cache, Tensor) else None
    chosen = None if device is None else chosen_devices(device, listed, signature.op)
    return args, kwargs | {"mesh_coords": chosen}


ON_CHOSEN_DEVICES: dict[str, Any] = {**OPTIONS, "rearrange": _on_chosen_devices}


def check_cache(op: str, cache: Operand) -> None:
    if cache.rank != 4 or cache.layout is not Layout.TILE:
        raise MeshError(
            f"{op}: {cache.name} must have 4 dims and TILE layout, got {list(cache.shape)}, {cache.layout}."
        )


def check_inside(op: str, numbers: torch.Tensor, extent: int, what: str) -> None:
    last = int(numbers.max())
    if last >= extent:
        raise MeshError(f"{op}: {last} does not lie within the {extent} {what} on each device.")


def write_rows(
    cache: torch.Tensor,
    place: torch.Tensor,
    row: torch.Tensor,
    values: torch.Tensor,
    is_written: torch.Tensor,
) -> None:
    """values (*axes, n, heads, width) into cache (*axes, places, heads, rows, width); the others are (*axes, n)."""
    heads = torch.arange(cache.shape[-3], device=cache.device)
    shape = (*cache.shape[:-4], *values.shape[-3:-1])
    index = [*_axes(cache, len(shape)), place.unsqueeze(-1), heads, row.unsqueeze(-1)]
    _write(cache, index, values, is_written.unsqueeze(-1), shape)


def write_blocks(
    cache: torch.Tensor, place: torch.Tensor, values: torch.Tensor, is_written: torch.Tensor
) -> None:
    """values (*axes, n, heads, rows, width) as whole blocks of the cache; the others are (*axes, n)."""
    shape = (*cache.shape[:-4], values.shape[-4])
    _write(cache, [*_axes(cache, len(shape)), place], values, is_written, shape)


def _axes(cache: torch.Tensor, rank: int) -> list[torch.Tensor]:
    """An index for each mesh axis, in `rank` dims."""
    lead = cache.dim() - 4
    return [
        torch.arange(cache.shape[axis], device=cache.device).reshape(-1, *(1,) * (rank - 1 - axis))
        for axis in range(lead)
    ]


def _write(
    cache: torch.Tensor,
    index: Sequence[torch.Tensor],
    values: torch.Tensor,
    is_written: torch.Tensor,
    shape: Sequence[int],
) -> None:
    where = [part.expand(shape) for part in index]
    if not bool(is_written.all()):
        chosen = is_written.expand(shape)
        where = [part[chosen] for part in where]
        values = values.expand(*shape, *cache.shape[len(where) :])[chosen]
    cache.index_put_(tuple(where), values)


def kept(cache: torch.Tensor, view: torch.Tensor) -> torch.Tensor:
    """The cache, after what was written to another reading of its tiles."""
    if view.untyped_storage().data_ptr() != cache.untyped_storage().data_ptr():
        cache.copy_(read_as(view, cache.shape[-4:]))
    return cache


def writing_rule(
    alike: Mapping[int, int], by_user: Sequence[int], *, is_shared: bool = False
) -> rules.SingleRule:
    """Of a cache, what is written, and other operands: a split that they share stays.

    `alike` has for each dim of the cache that of the input; dim 0 are users (or their blocks), along which the
    operands `by_user` run too, unless all users share one cache. An operand that is not mentioned only tells
    which devices write: what all of them shared is then shared no longer.
    """

    def rule(at: rules.Situation) -> rules.Placement:
        rules.refuse_partial(at)
        cache, values = at.words[:2]
        splits: set[rules.Placement] = {cache} if isinstance(cache, rules.Shard) else set()
        if isinstance(values, rules.Shard):
            splits |= {values.at(dim) for dim, own in alike.items() if own == values.dim} or {rules.LOCAL}
        splits |= {word for i in by_user if isinstance(word := at.words[i], rules.Shard)}
        if len(splits) != 1:
            return rules.LOCAL
        word = splits.pop()
        is_known = isinstance(word, rules.Shard) and word.dim in alike
        return word if is_known and not (is_shared and word is rules.Shard(0)) else rules.LOCAL

    return rule
