"""Writing keys and values into the caches that attention reads, in place."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from softmesh.errors import ArgumentError, MeshError
from softmesh.ops.cost import moves_bytes
from softmesh.ops.operand import Operand, Value
from softmesh.ops.plan import Local
from softmesh.ops.registry import operation
from softmesh.placement import rules
from softmesh.tensor.convert import round_to

_OPTIONS: dict[str, Any] = {"cost": moves_bytes, "precision": "data", "controls": "", "needs_tile": True}


def _writing(alike: Mapping[int, int]) -> rules.Rule:
    """A split that cache and input share stays (`alike`: cache dim to input dim); what one of them has once fits it."""

    def rule(at: rules.Situation) -> rules.Placement:
        for index, word in enumerate(at.words):
            if isinstance(word, rules.Partial):
                raise rules.UsesPartial(index)
        cache, values = at.words[0], at.words[1]
        splits: set[rules.Placement] = {cache} if isinstance(cache, rules.Shard) else set()
        if isinstance(values, rules.Shard):
            splits |= {values.at(dim) for dim, own in alike.items() if own == values.dim} or {rules.LOCAL}
        word = splits.pop() if len(splits) == 1 else rules.LOCAL
        return word if isinstance(word, rules.Shard) and word.dim in alike else rules.LOCAL

    return rule


def _check_pair(op: str, cache: Operand, values: Operand) -> None:
    for operand in (cache, values):
        if operand.rank != 4:
            raise MeshError(f"{op}: {operand.name} must have 4 dims, got {list(operand.shape)}.")
    if values.shape[0] != 1:
        raise MeshError(f"{op}: dim 0 of {values.name} {list(values.shape)} must be 1.")
    if (values.shape[1], values.shape[3]) != (cache.shape[1], cache.shape[3]):
        raise MeshError(
            f"{op}: {values.name} {list(values.shape)} and {cache.name} {list(cache.shape)} must agree in heads "
            "(dim 1) and width of a head (dim 3) on each device."
        )


def _check_int(op: str, **arguments: Value) -> None:
    for name, value in arguments.items():
        if isinstance(value, bool) or not isinstance(value, int):
            raise ArgumentError(f"{op}: {name} must be an int, got {value!r}")


def _check_within(op: str, argument: str, first: int, count: int, extent: int, what: str) -> None:
    if not 0 <= first <= first + count <= extent:
        several = f"{count} from {argument}={first} on do" if count > 1 else f"{argument}={first} does"
        raise MeshError(f"{op}: {several} not lie within the {extent} {what} of the cache on each device.")


@operation(**_OPTIONS, writes="cache_tensor")
def fill_cache(
    cache_tensor: Operand, input_tensor: Operand, batch_idx: Value, *, update_idx: Value = 0
) -> Local:
    """Write [1, heads, s, width] at cache[batch_idx, :, update_idx : update_idx + s]; returns the cache."""
    _check_pair("fill_cache", cache_tensor, input_tensor)
    _check_int("fill_cache", batch_idx=batch_idx, update_idx=update_idx)
    if cache_tensor.dtype is not input_tensor.dtype:
        raise MeshError(
            f"Input and cache tensors must have same dtype! fill_cache got {input_tensor.dtype} for a cache of "
            f"{cache_tensor.dtype}: use ttnn.typecast on the input."
        )
    (users, _, length, _), count = cache_tensor.shape, input_tensor.shape[2]

    def compute(cache: torch.Tensor, values: torch.Tensor, user: int, start: int) -> torch.Tensor:
        _check_within("fill_cache", "batch_idx", user, 1, users, "users")
        _check_within("fill_cache", "update_idx", start, count, length, "positions")
        cache.select(-4, user).narrow(-2, start, count).copy_(values.select(-4, 0))
        return cache

    return Local(compute, _writing({0: 0, 1: 1, 3: 3}))


@operation(**_OPTIONS, tuning="compute_kernel_config", writes="cache")
def update_cache(cache: Operand, input: Operand, update_idx: Value, *, batch_offset: int = 0) -> Local:
    """Write one token of each user, [1, heads, users, width], at cache[:, :, update_idx]; returns the cache.

    The cache's first user is row `batch_offset` of the input, whose other rows are not read: TT-NN pads
    users to a tile of 32.
    """
    _check_pair("update_cache", cache, input)
    _check_int("update_cache", update_idx=update_idx, batch_offset=batch_offset)
    (users, _, length, _), dtype = cache.shape, cache.dtype
    if not 0 <= batch_offset <= batch_offset + users <= input.shape[2]:
        raise MeshError(
            f"update_cache: input {list(input.shape)} must hold the {users} users of the cache from row "
            f"batch_offset={batch_offset} on; it has {input.shape[2]} rows on each device."
        )

    def compute(cache: torch.Tensor, values: torch.Tensor, position: int) -> torch.Tensor:
        _check_within("update_cache", "update_idx", position, 1, length, "positions")
        tokens = values.select(-4, 0).narrow(-2, batch_offset, users).transpose(-3, -2)
        cache.select(-2, position).copy_(round_to(tokens, dtype))
        return cache

    return Local(compute, _writing({0: 2, 1: 1, 3: 3}))
