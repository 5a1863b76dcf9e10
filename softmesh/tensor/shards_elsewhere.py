"""Host copies of shards that other processes hold: of which tensor each is a piece, and where it lies.

A program that takes a tensor apart, and puts it together or writes to its pieces one by one, is the same program on
every process: what it does with a copy is done by the process that holds the shard.
"""

from __future__ import annotations

from typing import NamedTuple
from weakref import WeakKeyDictionary, ref

from softmesh.mesh import MeshCoordinate
from softmesh.tensor.storage import Storage
from softmesh.tensor.tensor import Tensor


class Elsewhere(NamedTuple):
    parent: ref[Storage]
    coord: MeshCoordinate  # in the whole mesh


_COPIES: WeakKeyDictionary[Storage, Elsewhere] = WeakKeyDictionary()


def note_copy(copy: Tensor, parent: Storage, coord: MeshCoordinate) -> Tensor:
    _COPIES[copy.storage] = Elsewhere(ref(parent), coord)
    return copy


def shard_of(copy: Tensor) -> tuple[Storage, MeshCoordinate] | None:
    """The tensor's storage and the place in its mesh; None where this is no such copy."""
    found = _COPIES.get(copy.storage)
    parent = None if found is None else found.parent()
    return None if found is None or parent is None else (parent, found.coord)
