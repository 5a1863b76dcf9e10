"""update_padded_kv_cache: KV caches of long sequences whose positions the devices of a mesh axis hold in turn.

With n devices and chunks of L positions, device d holds the positions [cL n + dL, cL n + (d + 1) L) as its own
positions [cL, (c + 1) L), for c = 0, 1, ... A cache is [slots * layers, heads, length, width], row
slot * layers + layer of it one slot's cache of one layer.
"""

from __future__ import annotations

from typing import Any

import torch

from softmesh.dispatch.argument_forms import (
    ON_MESH_AXES,
    named_by_position,
    one_after_the_other,
    with_mesh_axes,
)
from softmesh.dispatch.operand import Operand, Value
from softmesh.dispatch.operation import operation
from softmesh.dispatch.plan import Local
from softmesh.errors import MeshError, NotModelled
from softmesh.kinds import Kind
from softmesh.ops.kv_cache.kv_cache import OPTIONS, Data, check_inside, write_rows
from softmesh.placement import dim_labels, rules
from softmesh.tensor.convert import round_to

_UPDATE = "experimental.deepseek_prefill.update_padded_kv_cache"
_ZERO = "experimental.deepseek_prefill.zero_padded_kv_cache"
_PLAIN: dict[str, Any] = OPTIONS | {"tuning": ""}
Number = torch.Tensor | int


def _on_axis(at: int, form: str) -> dict[str, Any]:
    """Options for two forms, by numbers and by tensors, of an op that knows its place along `cluster_axis`."""
    by_tensors = named_by_position(at, form.replace("?", ""))
    return {**ON_MESH_AXES, "rearrange": one_after_the_other(by_tensors, with_mesh_axes), "forms": (form,)}


def global_rows(
    op: str, start: Number, place: torch.Tensor, devices: int, rows: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """For the chunk that begins at position `start`: the positions of a device's rows, and where it holds them.

    Both are (*axes, rows). A start within a device's share would leave rows of two stretches on it, in an order that
    is not known.
    """
    first = torch.as_tensor(start, device=place.device).long()
    if bool((first % rows).any()):
        raise NotModelled(
            f"{op}: kv_actual_global={int(first.max())} must be a multiple of {rows}, the rows of each device: how a "
            "chunk that begins elsewhere is dealt out is not modelled."
        )
    stretch = rows * devices
    own = place.long() * rows
    number = first // stretch + (own < first % stretch)
    at = torch.arange(rows, device=place.device)
    return number * stretch + own + at, number * rows + at


@operation(
    _UPDATE,
    kind=Kind.CACHE,
    **_PLAIN,
    patches="cache",
    positional="slot_idx layer_idx num_layers kv_actual_global cluster_axis valid_global tp_axis rope scales",
    **_on_axis(
        2,
        "cache input slot_idx kv_actual_global layer_idx num_layers cluster_axis valid_global? tp_axis? rope? scales?",
    ),
)
def update_padded_kv_cache(
    cache: Operand,
    input: Operand,
    *,
    slot_idx: Value,
    kv_actual_global: Value,
    valid_global: Value | None = None,
    place: Operand | None = None,
    layer_idx: int,
    num_layers: int,
    cluster_axis: int | None,
    tp_axis: int | None = None,
    rope: Operand | None = None,
    scales: Operand | None = None,
    devices: int = 1,
) -> Local:
    """Write each device's rows [1, heads, s, width] of the chunk that begins at position `kv_actual_global`.

    Positions from `valid_global` on are padding, and not written. Numbers may be tensors of one on each device.
    """
    if tp_axis is not None or rope is not None or scales is not None:
        raise NotModelled(
            f"{_UPDATE}: tp_axis, rope and scales are not modelled: gather the rows, and pack them with "
            "ttnn.experimental.deepseek_prefill.pack_scaled_fp8_kv_cache first."
        )
    _check_pair(cache, input)
    rows, dtype, length = input.shape[2], cache.dtype, cache.shape[2]

    def compute(
        cache: torch.Tensor,
        values: torch.Tensor,
        slot: Number,
        start: Number,
        end: Number | None,
        place: Data,
        *unused: Data,
    ) -> torch.Tensor:
        where = _place(place, cache)
        position, row = global_rows(_UPDATE, start, where, devices, rows)
        check_inside(_UPDATE, row, length, "positions of the cache")
        batch = _batch(_UPDATE, slot, num_layers, layer_idx, cache)
        is_written = torch.ones_like(position, dtype=torch.bool) if end is None else position < end
        tokens = round_to(values, dtype).squeeze(-4).transpose(-3, -2)
        write_rows(cache, batch, row, tokens, is_written)
        return cache

    return Local(compute, _rule)


@operation(
    _ZERO,
    kind=Kind.CACHE,
    **_PLAIN,
    patches="cache",
    positional="slot_idx layer_idx num_layers valid_global chunk_size_global cluster_axis pad_align",
    **_on_axis(
        1,
        "cache slot_idx valid_global layer_idx num_layers chunk_size_global cluster_axis pad_align?",
    ),
)
def zero_padded_kv_cache(
    cache: Operand,
    *,
    slot_idx: Value,
    valid_global: Value,
    place: Operand | None = None,
    layer_idx: int,
    num_layers: int,
    chunk_size_global: int,
    cluster_axis: int,
    pad_align: int = 128,
    devices: int = 1,
) -> Local:
    """Set the positions from `valid_global` on to 0, up to the next multiple of `pad_align`."""
    if chunk_size_global % devices or chunk_size_global < devices or pad_align < 1:
        raise MeshError(
            f"{_ZERO}: chunk_size_global={chunk_size_global} must be a multiple of the {devices} devices along "
            f"cluster_axis={cluster_axis}, and pad_align={pad_align} at least 1."
        )
    share, length = chunk_size_global // devices, cache.shape[2]

    def compute(cache: torch.Tensor, slot: Number, valid: Number, place: Data) -> torch.Tensor:
        where = _place(place, cache)
        row = torch.arange(length, device=cache.device)
        position = row // share * chunk_size_global + where.long() * share + row % share
        end = -(-valid // pad_align) * pad_align
        is_padding = (position >= valid) & (position < end)
        batch = _batch(_ZERO, slot, num_layers, layer_idx, cache)
        zeros = torch.zeros(length, *cache.shape[-3:-2], cache.shape[-1], dtype=cache.dtype, device=cache.device)
        write_rows(cache, batch, row, zeros, is_padding)
        return cache

    return Local(compute, _rule)


def _place(place: Data, cache: torch.Tensor) -> torch.Tensor:
    return torch.zeros(1, dtype=torch.int64, device=cache.device) if place is None else place


def _batch(op: str, slot: Number, layers: int, layer: int, cache: torch.Tensor) -> torch.Tensor:
    if not 0 <= layer < layers:
        raise MeshError(f"{op}: layer_idx={layer} must lie within num_layers={layers}.")
    batch = torch.as_tensor(slot, device=cache.device).long() * layers + layer
    check_inside(op, batch, cache.shape[-4], "slots and layers of the cache")
    return batch


def _check_pair(cache: Operand, values: Operand) -> None:
    if cache.rank != 4 or values.rank != 4 or values.shape[0] != 1:
        raise MeshError(
            f"{_UPDATE}: cache {list(cache.shape)} must be [slots * layers, heads, length, width], and input "
            f"{list(values.shape)} [1, heads, s, width]."
        )
    if (values.shape[1], values.shape[3]) != (cache.shape[1], cache.shape[3]):
        raise MeshError(
            f"{_UPDATE}: input {list(values.shape)} and cache {list(cache.shape)} must agree in heads (dim 1) and "
            "width (dim 3) on each device."
        )


@rules.labelled(dim_labels.table({dim: [(0, dim), (1, dim)] for dim in (1, 3)}))
def _rule(at: rules.Situation) -> rules.Placement:
    """Along the axis of the sequence the caches are parts of one, in turns: a split of dim 2 to those who know it."""
    rules.refuse_partial(at)
    cache, *others = at.words
    if isinstance(cache, rules.Shard) and cache.dim != 2:
        same = all(word in (None, rules.REPLICATE, cache) for word in others)
        return cache if same else rules.LOCAL
    return rules.LOCAL
