"""Follows columns that torch.cat joined on the host, in strict mode: does each device get a part of every piece?

A fused weight of queries, keys and values that is cut as it stands gives the first devices queries only. The same calls
are right if the pieces of each device were put side by side before, so the join itself is watched: the split of
a tensor finds the pieces that it was made of.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import accumulate
from typing import NamedTuple
from weakref import WeakKeyDictionary, WeakSet, finalize

import torch

from softmesh.callsite import CallSite, user_call_site
from softmesh.placement.distribution import Distribution
from softmesh.placement.placements import Shard
from softmesh.runtime.joins_on_host import pieces_along
from softmesh.strictness import doubt, is_strict
from softmesh.tensor.storage import Storage
from softmesh.tensor.tensor import Tensor


class _Cut(NamedTuple):
    """The pieces that a dim of this extent was joined of; none if they were put in order, for whatever devices."""

    extent: int
    pieces: tuple[int, ...]
    devices: int


# Results of products, whose columns are in the order of a weight's: devices may join theirs to what they hold of it.
_PRODUCTS: WeakSet[Storage] = WeakSet()
_HEADS: WeakSet[Storage] = WeakSet()  # such columns with a dim of their own: one head on each device
CUTS: WeakKeyDictionary[Storage, _Cut] = WeakKeyDictionary()


class _OpenJoin:
    """A doubt of weights whose parts were joined on each device; it is told at the end unless a product takes them."""

    def __init__(self, text: str) -> None:
        self.seen = {"meant": False}
        finalize(self, _tell_join, self.seen, text, user_call_site())


def _tell_join(seen: dict[str, bool], text: str, site: CallSite) -> None:
    if not seen["meant"]:
        doubt(text, at=site)


_JOINS: WeakKeyDictionary[Storage, _OpenJoin] = WeakKeyDictionary()


def note_split(made: Tensor, source: torch.Tensor) -> None:
    """Note which pieces of `source` each device of a new tensor has."""
    dist = made.storage.dist
    words = {word.dim for word in dist.placements if isinstance(word, Shard)}
    if not is_strict() or not words:
        return
    for dim in {*words, source.dim() - 1}:
        devices, pieces = _parts_along(dist, dim), pieces_along(source, dim)
        is_cut = len(words) == 1 and devices > 1 and source.shape[dim] % devices == 0
        if pieces is not None and (is_cut or not pieces):
            CUTS[made.storage] = _Cut(source.shape[dim], pieces, devices)


def _parts_along(dist: Distribution, dim: int) -> int:
    count = 1
    for word, devices in zip(dist.placements, dist.devices, strict=True):
        count *= devices if isinstance(word, Shard) and word.dim == dim else 1
    return count


def carry_pieces(operands: Sequence[Tensor], made: Sequence[Tensor]) -> bool:
    """Let results whose columns are those of an operand, or of its rows, remember its pieces; True if one does."""
    cuts = [CUTS[one.storage] for one in operands if one.storage in CUTS]
    for result in made if CUTS else ():
        CUTS.pop(result.storage, None)
        found = next((one for one in cuts if _lies_along_columns(one, result)), None)
        if found is not None:
            CUTS[result.storage] = found
    return any(result.storage in CUTS for result in made)


def _lies_along_columns(cut: _Cut, tensor: Tensor) -> bool:
    last = len(tensor.shape) - 1
    devices = _parts_along(tensor.storage.dist, last)
    is_split = not cut.pieces or cut.devices == devices
    return last >= 0 and is_split and cut.extent == tensor.shape[last] * devices


def _cut_of_columns(tensor: Tensor) -> _Cut | None:
    cut = CUTS.get(tensor.storage)
    return cut if cut is not None and _lies_along_columns(cut, tensor) else None


def doubt_cut_pieces(op: str, operands: Sequence[Tensor]) -> None:
    """Warn where columns are cut into heads or pieces, and devices have other ones than each other."""
    cut = next(filter(None, map(_cut_of_columns, operands)), None)
    if cut is None or _is_even(cut):
        return
    doubt(
        f"{op}: the {cut.extent} columns were joined of {' + '.join(map(str, cut.pieces))} by torch.cat and cut in "
        f"{cut.devices} parts of {cut.extent // cut.devices} as they stand: each device takes its part for queries, "
        "keys and values, and has other columns. On the host, put the queries, keys and values of each device side by "
        "side, q0 k0 v0 q1 k1 v1, and split that.",
    )


def note_product(result: Tensor) -> None:
    _PRODUCTS.add(result.storage)


def carry_order(source: Tensor, result: Tensor) -> None:
    if source.storage in _PRODUCTS and source.shape == result.shape:
        _PRODUCTS.add(result.storage)
    is_head = source.storage in _PRODUCTS and source.shape[-1] == result.shape[-1] and result.shape[-2] == 1
    cut = _cut_of_columns(source)
    is_in_order = cut is not None and not cut.pieces and tuple(source.shape)[-1:] != tuple(result.shape)[-1:]
    if (is_head and source.shape[-2] > 1) or is_in_order or source.storage in _HEADS:
        _HEADS.add(result.storage)


def are_columns_of_products(tensors: Sequence[Tensor]) -> bool:
    """True if what is split are columns that products made: the weights may have been put in order for that."""
    return all(
        one.storage in _PRODUCTS
        and all(not isinstance(word, Shard) or word.dim == len(one.shape) - 1 for word in one.storage.dist.placements)
        for one in tensors
    )


def may_be_weights(tensors: Sequence[Tensor]) -> bool:
    return all(len(one.shape) > 1 and math.prod(tuple(one.shape)[:-2]) == 1 for one in tensors)


def note_open_join(joined: Tensor, text: str) -> None:
    _JOINS[joined.storage] = _OpenJoin(text)


def follow_joins(operands: Sequence[Tensor], made: Sequence[Tensor], is_moved: bool) -> None:
    """Let weights that were joined on each device be meant where a product takes them, and their bias with them."""
    for at, one in enumerate(operands if _JOINS else ()):
        join = _JOINS.get(one.storage)
        if join is None:
            continue
        if at and _is_factor(one, operands, made[0]):
            join.seen["meant"] = True
            devices = _parts_along(made[0].storage.dist, len(made[0].shape) - 1)
            CUTS[made[0].storage] = _Cut(made[0].shape[-1] * devices, (), devices)
        elif is_moved:
            _JOINS.update((result.storage, join) for result in made)


def _is_factor(weight: Tensor, operands: Sequence[Tensor], result: Tensor) -> bool:
    """True for the weight of a product, or its bias."""
    is_alike = result.shape[-1] == weight.shape[-1]
    ordered = (_cut_of_columns(one) for one in operands if one is not weight)
    is_bias = any(cut is not None and not cut.pieces for cut in ordered) or len(operands) > 2
    return is_alike and (operands[0].shape[-1] == weight.shape[-2] or (is_bias and weight.shape[-2] == 1))


def may_be_cut(fused: Tensor) -> bool:
    """True if each device has all of a head, or torch.cat put several pieces for each device side by side."""
    if fused.storage in _HEADS:
        return True
    cut = _cut_of_columns(fused)
    return cut is not None and (not cut.pieces or len(cut.pieces) > cut.devices) and _is_even(cut)


def are_of_each_device(tensor: Tensor) -> bool:
    """True if columns that were put in order for each device have dims of their own by now."""
    return tensor.storage in _HEADS


def _is_even(cut: _Cut) -> bool:
    """True if no piece lies on several devices, and pieces begin at the same columns of each part."""
    if not cut.pieces:
        return True
    part = cut.extent // cut.devices
    starts: list[set[int]] = [set() for _ in range(cut.devices)]
    for at in accumulate((0, *cut.pieces[:-1])):
        starts[at // part].add(at % part)
    return 0 in starts[0] and all(one == starts[0] for one in starts)
