"""Marks of undefined values: pieces of a tensor that nothing has written.

A mark lies with the storage, and goes along with what each device makes of its own piece. `diagnosis.undefined_memory`
warns whoever reads it.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from softmesh.callsite import CallSite, user_call_site
from softmesh.mesh import MeshCoordinate
from softmesh.placement.distribution import Distribution
from softmesh.tensor.written_part import WrittenPart

if TYPE_CHECKING:
    from softmesh.tensor.tensor import Tensor


class Hooks:
    """What `softmesh.diagnosis`, which stands above, has to say of a tensor or of memory that is marked."""

    leaving: Callable[[Tensor, str, frozenset[MeshCoordinate] | None], None]
    of_memory: Callable[[Undefined, str], None]


HOOKS = Hooks()
LEAVING_LISTENERS: list[Callable[[Tensor], None]] = []  # called with each tensor whose values leave its devices


class Overwriting(NamedTuple):
    replayed: CallSite
    allocated: CallSite | None  # the memory that the replay has written over


class Undefined(NamedTuple):
    """`in_rows`: not all of a piece. What other ops make of it is undefined where the NaN still stands, if it can;
    `is_hidden`: it does no longer, as a yes or no was made of it. `is_unwritten`: memory that was allocated and nothing
    more; here it holds zeros, and the first write of any kind ends it. `written`: the first write left some of that
    memory as it was; what depends on the rest is found by diagnosis.partial_writes. `is_unreplayed`: the result of a
    call that a trace has recorded; on a chip it is computed by a replay and not before. `overwritten`: the replay that
    has written over it; here it keeps its values.
    """

    op: str
    site: CallSite
    coords: frozenset[MeshCoordinate]
    in_rows: bool = False
    is_hidden: bool = False
    is_unwritten: bool = False
    is_unreplayed: bool = False
    written: WrittenPart | None = None
    overwritten: Overwriting | None = None

    @property
    def ends_with_a_write(self) -> bool:
        return self.is_unwritten or self.is_unreplayed or self.written is not None or self.overwritten is not None

    def without(self, coord: MeshCoordinate) -> Undefined | None:
        """After a write to one device."""
        return self.within(self.coords - {coord})

    def within(self, coords: frozenset[MeshCoordinate]) -> Undefined | None:
        left = self.coords & coords
        return self._replace(coords=left) if left else None


@lru_cache(maxsize=256)
def devices_of(dist: Distribution) -> frozenset[MeshCoordinate]:
    return frozenset(dist.coordinates())


def undefined_in(tensor: Tensor) -> Undefined | None:
    """The mark, as far as it is about the pieces this tensor stands for, and about all of what they hold."""
    undefined = tensor.storage.undefined
    if undefined is not None and undefined.written is not None:
        return None
    if undefined is None or tensor.shard_positions is None:
        return undefined
    return undefined.within(devices_of(tensor.view_distribution()))


def joined(a: Undefined | None, b: Undefined | None) -> Undefined | None:
    """The mark of what is made of tensors with these marks, where every device reads its own piece."""
    if a is None or b is None or a is b:
        return a or b
    return a._replace(coords=a.coords | b.coords, in_rows=a.in_rows or b.in_rows, is_hidden=a.is_hidden or b.is_hidden)


def mark(result: Tensor, undefined: Undefined | None) -> None:
    """Devices that the result is not on have nothing to do with it, and marks of other shards stay."""
    if undefined is not None:
        storage = result.storage
        storage.undefined = joined(storage.undefined, undefined.within(devices_of(result.view_distribution())))


def mark_unwritten(result: Tensor, op: str) -> None:
    """Of a tensor that is memory and nothing more, as TT-NN's `empty` makes it."""
    if result.storage.device is not None:
        devices = devices_of(result.view_distribution())
        result.storage.undefined = Undefined(op, user_call_site(), devices, is_unwritten=True)


def note_leaving(tensor: Tensor) -> None:
    """Tell listeners that values leave the devices, for the host or for another mesh. Every kind of read calls this."""
    for listener in LEAVING_LISTENERS:
        listener(tensor)


def warn_before_leaving(tensor: Tensor, doing: str, among: frozenset[MeshCoordinate] | None = None) -> None:
    """Called where values leave for the host or for another mesh, and nobody knows how much of them is looked at."""
    note_leaving(tensor)
    if tensor.storage.undefined is not None:
        HOOKS.leaving(tensor, doing, among)


def is_unwritten(tensor: Tensor) -> bool:
    """Whether it is memory and nothing more."""
    undefined = tensor.storage.undefined
    return undefined is not None and undefined.is_unwritten
