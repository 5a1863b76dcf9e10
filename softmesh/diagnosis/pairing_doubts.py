"""Doubts of operands that belong together, part by part, and are not split alike: targets, caches, masks.

All of them are told under SOFTMESH_STRICT=1 only: what all devices share may be meant for each of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from softmesh.dispatch.definition import Definition
from softmesh.kinds import Kind
from softmesh.placement.distribution import Distribution
from softmesh.placement.placements import LOCAL, Placement, Replicate, Shard

Pair = tuple[Sequence[int], Distribution]  # an operand: its shape on each device, and where it lies

_CACHES = {  # the dim of heads of what is written to them
    **dict.fromkeys(("fill_cache", "kv_cache.fill_cache_for_user_", "experimental.paged_fill_cache"), 1),
    **dict.fromkeys(("update_cache", "kv_cache.update_cache_for_token_"), 1),
    **dict.fromkeys(("experimental.paged_update_cache", "experimental.paged_fused_update_cache"), None),
}
_ATTENTION = "scaled_dot_product_attention"
_HEADS, _SEQUENCE = 1, 2  # dims of a cache


def of_pairs(op: Definition, operands: Mapping[str, Pair], made: Distribution) -> Iterator[str]:
    """`operands` by their names, in order."""
    pairs, name = list(operands.values()), op.name
    if op.kind is Kind.LOSS and len(pairs) > 1:
        yield from _of_targets(op.same_as or name.rpartition(".")[2], pairs[0], pairs[1])
    elif name in _CACHES and len(pairs) > 1:
        yield from _of_a_cache(name, pairs, made)
    elif _ATTENTION in name and len(pairs) > 1:
        yield from _of_heads(name, pairs[0], pairs[1], made)
        if "attn_mask" in operands:
            yield from _of_a_mask(name, pairs[0], operands["attn_mask"])


def _word(pair: Pair, axis: int) -> Placement | None:
    """Along an axis of several devices."""
    dist = pair[1]
    return dist.placements[axis] if axis < dist.lead and dist.devices[axis] > 1 else None


def _of_targets(op: str, predictions: Pair, targets: Pair) -> Iterator[str]:
    """Samples are dim 0 of both; of equal shapes all dims belong together."""
    shape, other = predictions[0], targets[0]
    dims = range(len(shape)) if tuple(shape) == tuple(other) else range(1)
    for axis in range(predictions[1].lead):
        word, own = _word(predictions, axis), _word(targets, axis)
        split = next((one.dim for one in (word, own) if isinstance(one, Shard)), None)
        if word == own or LOCAL in (word, own) or split is None or split not in dims or shape[split] == 1:
            continue
        where = [f"dim {one.dim} of" if isinstance(one, Shard) else "no dim of" for one in (word, own)]
        yield (
            f"{op}: over mesh axis {axis} {where[0]} the predictions {list(shape)} is split, and {where[1]} the "
            f"targets {list(other)}: every device compares its part with targets of others. Split both alike."
        )
        return


def _of_a_cache(op: str, pairs: Sequence[Pair], made: Distribution) -> Iterator[str]:
    (shape, _), (written, _), *others = pairs
    for axis, result in enumerate(made.placements):
        cache, values = _word(pairs[0], axis), _word(pairs[1], axis)
        told_apart = any(not isinstance(_word(other, axis), Replicate | None) for other in others)
        is_dealt = "fill" in op and values == cache == Shard(_SEQUENCE)  # each device fills its part of the sequence
        if not isinstance(cache, Shard) or values is LOCAL or told_apart or is_dealt:
            continue
        if cache.dim == _SEQUENCE and shape[_SEQUENCE] > 1:
            yield (
                f"{op}: dim {cache.dim}, the sequence, of the cache is split over mesh axis {axis}, and every device "
                "writes to the same place of its own part. Split the cache by heads or users, or give each device "
                "places of its own."
            )
        elif isinstance(values, Shard) and result is LOCAL:
            yield (
                f"{op}: over mesh axis {axis} dim {cache.dim} of the cache {list(shape)} is split, and dim "
                f"{values.dim} of what is written to it {list(written)}: they do not belong to "
                "each other. Split both by heads, or both by users."
            )
        elif cache.dim == _HEADS and isinstance(values, Replicate) and (heads := _CACHES[op]) and written[heads] > 1:
            yield (
                f"{op}: dim {cache.dim}, the heads, of the cache is split over mesh axis {axis}, and what is written "
                f"to it {list(written)} is the same on all devices: all parts get the keys or values of the same "
                "heads. Split the weights that make them by heads."
            )


def _of_heads(op: str, queries: Pair, keys: Pair, made: Distribution) -> Iterator[str]:
    """Of a decode step, heads of queries are dim 2."""
    dim = 2 if "decode" in op else _HEADS
    for axis, result in enumerate(made.placements):
        word, other = _word(queries, axis), _word(keys, axis)
        if result is LOCAL and isinstance(word, Shard) and word.dim == dim and isinstance(other, Replicate):
            yield (
                f"{op}: dim {dim}, the heads, of the queries {list(queries[0])} is split over mesh axis {axis}, and "
                f"the keys {list(keys[0])} are the same on all {made.devices[axis]} devices: every part of the queries "
                f"begins at the first heads of the keys. Split dim {_HEADS} of keys and values over this axis, too."
            )


def _of_a_mask(op: str, queries: Pair, mask: Pair) -> Iterator[str]:
    """(users, heads, queries, keys), beside queries (users, heads, queries, width)."""
    shape, given = queries[0], mask[0]
    for axis in range(queries[1].lead):
        word = _word(queries, axis)
        if not isinstance(word, Shard) or word.dim == len(shape) - 1 or not isinstance(_word(mask, axis), Replicate):
            continue
        if 1 < given[word.dim] == shape[word.dim]:
            yield (
                f"{op}: dim {word.dim} of the queries is split over mesh axis {axis}, and the mask {list(given)} is "
                f"the same on all {queries[1].devices[axis]} devices: every part is masked as the first one. Split the "
                f"mask along dim {word.dim}, too."
            )
