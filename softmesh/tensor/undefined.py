"""Undefined values: marks pieces of a tensor that nothing has written, and warns whoever reads them.

A mark lies with the storage, and goes along with what each device makes of its own piece.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache, reduce
from typing import TYPE_CHECKING, NamedTuple

from softmesh.callsite import CallSite, user_call_site
from softmesh.errors import MeshError, SoftmeshWarning
from softmesh.mesh import MeshCoordinate
from softmesh.placement.distribution import Distribution
from softmesh.placement.pieces import pieces_at
from softmesh.strictness import doubt, is_strict, warn_or_raise
from softmesh.tensor.written_part import WrittenPart

if TYPE_CHECKING:
    from softmesh.tensor.tensor import Tensor

LEAVING_LISTENERS: list[Callable[[Tensor], None]] = []  # called with each tensor whose values leave its devices
_SHOWN = 4


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


def chosen(condition: Undefined | None, values: Undefined | None) -> Undefined | None:
    """The mark of what a condition selects from values; that may be the part of them that was written."""
    if condition is None:
        return values and values._replace(in_rows=True)
    both = condition if values is None else condition._replace(coords=condition.coords | values.coords)
    return both._replace(in_rows=condition.in_rows and (values is None or values.in_rows))


def hidden_in(tensor: Tensor) -> Undefined | None:
    """The mark of what is decided by the values of the tensor: where a NaN stands now, none will."""
    undefined = undefined_in(tensor)
    left = undefined and undefined.within(frozenset(_still_undefined(tensor, undefined)))
    return left and left._replace(is_hidden=True)


def joined(marks: Iterable[Undefined | None]) -> Undefined | None:
    """The mark of what is made of tensors with these marks, where every device reads its own piece."""
    return reduce(_joined, marks, None)


def _joined(a: Undefined | None, b: Undefined | None) -> Undefined | None:
    if a is None or b is None or a is b:
        return a or b
    return a._replace(coords=a.coords | b.coords, in_rows=a.in_rows or b.in_rows, is_hidden=a.is_hidden or b.is_hidden)


def mark(result: Tensor, undefined: Undefined | None) -> None:
    """Devices that the result is not on have nothing to do with it, and marks of other shards stay."""
    if undefined is not None:
        storage = result.storage
        storage.undefined = _joined(storage.undefined, undefined.within(devices_of(result.view_distribution())))


def mark_unwritten(result: Tensor, op: str) -> None:
    """Of a tensor that is memory and nothing more, as TT-NN's `empty` makes it."""
    if result.storage.device is not None:
        devices = devices_of(result.view_distribution())
        result.storage.undefined = Undefined(op, user_call_site(), devices, is_unwritten=True)


def warn_if_undefined(tensor: Tensor, doing: str, among: frozenset[MeshCoordinate] | None = None) -> None:
    """Called where values leave for the host or for other devices; `among`: those of these devices only."""
    undefined = undefined_in(tensor)
    if undefined is not None and among is not None:
        undefined = undefined.within(among)
    if undefined is None:
        return
    found = _still_undefined(tensor, undefined)
    if not found:
        return
    named = ", ".join(map(repr, _in_whole_mesh(tensor, found[:_SHOWN])))
    more = f" and {len(found) - _SHOWN} more" if len(found) > _SHOWN else ""
    what = "rows of it were" if undefined.in_rows else "it was"
    if undefined.is_unwritten:
        warn_of_unwritten(undefined, f"{doing}: the tensor {tuple(tensor.shape)} is made of")
        return
    if undefined.overwritten is not None:
        warn_of_overwritten(undefined, f"{doing}: the tensor {tuple(tensor.shape)} is made of")
        return
    if undefined.is_unreplayed:
        warn_of_unreplayed(undefined, f"{doing}: the tensor {tuple(tensor.shape)} is made")
        return
    warn_or_raise(
        f"{doing}: the tensor {tuple(tensor.shape)} holds undefined values on {named}{more}: {what} never written "
        f"there by {undefined.op} ({undefined.site}). On silicon this reads what the memory held before; here it "
        "is NaN, or the largest integer. Read the shards that were written with ttnn.get_device_tensors(t), or give "
        f"{undefined.op} an output tensor whose contents are known.",
        SoftmeshWarning,
        MeshError,
    )


def note_leaving(tensor: Tensor) -> None:
    """Tell listeners that values leave the devices, for the host or for another mesh. Every kind of read calls this."""
    for listener in LEAVING_LISTENERS:
        listener(tensor)


def warn_before_leaving(tensor: Tensor, doing: str, among: frozenset[MeshCoordinate] | None = None) -> None:
    """Called where values leave for the host or for another mesh, and nobody knows how much of them is looked at."""
    note_leaving(tensor)
    warn_if_undefined(tensor, doing, among)
    if is_strict():
        _doubt_part(tensor, doing)


def warn_of_unwritten(undefined: Undefined | None, doing: str) -> None:
    if undefined is not None and undefined.is_unwritten:
        warn_or_raise(
            f"{doing} memory that nothing was written to since ttnn.{undefined.op} ({undefined.site}). On silicon this "
            "reads what the memory held before; here it is 0. Write to it first (ttnn.copy_host_to_device_tensor, or "
            "as an op's output tensor), or make it with ttnn.zeros.",
            SoftmeshWarning,
            MeshError,
        )


def is_unwritten(tensor: Tensor) -> bool:
    """Whether it is memory and nothing more."""
    undefined = tensor.storage.undefined
    return undefined is not None and undefined.is_unwritten


def warn_of_unreplayed(undefined: Undefined | None, doing: str) -> None:
    if undefined is not None and undefined.is_unreplayed:
        warn_or_raise(
            f"{doing} by a trace that has not run yet, captured at {undefined.site}. A capture records calls and runs "
            "none of them: on silicon this reads what the memory held before; here it is what was there, or what the "
            "calls gave. Call ttnn.execute_trace first.",
            SoftmeshWarning,
            MeshError,
        )


def warn_of_overwritten(undefined: Undefined | None, doing: str) -> None:
    overwriting = None if undefined is None else undefined.overwritten
    if undefined is not None and overwriting is not None:
        made = f" at {overwriting.allocated}" if overwriting.allocated else ""
        warn_or_raise(
            f"{doing} memory that a replay has written over ({overwriting.replayed}): it was allocated{made} where the "
            f"capture that began at {undefined.site} had put a result that was freed again, and each replay writes "
            "that result anew. Here it keeps its values. Allocate it before ttnn.begin_trace_capture, or use it before "
            "the replay.",
            SoftmeshWarning,
            MeshError,
        )


def _doubt_part(tensor: Tensor, doing: str) -> None:
    """Who reads all of it may look at the part that was written only."""
    undefined, data = tensor.storage.undefined, tensor.storage.data
    if undefined is None or undefined.written is None or data is None:
        return
    written, dist = undefined.written.like(data), tensor.view_distribution()
    if written is None or pieces_at(written, tensor.storage.dist, dist.coordinates()).all():
        return
    doubt(
        f"{doing}: of the tensor {tuple(tensor.shape)} some was never written since ttnn.{undefined.op} "
        f"({undefined.site}). On silicon that part reads what the memory held before; here it is 0, or made of 0. Read "
        "what was written only (ttnn.slice), or make it with ttnn.zeros.",
        SoftmeshWarning,
    )


def _in_whole_mesh(tensor: Tensor, coords: Sequence[MeshCoordinate]) -> Sequence[MeshCoordinate]:
    """Where devices of this process's part lie in the mesh that several processes hold."""
    device = tensor.storage.device
    if device is None or device.block is None or tensor.storage.dist.spread is None:
        return coords
    origin = device.block.origin
    return [MeshCoordinate([first + at for first, at in zip(origin, coord, strict=True)]) for coord in coords]


def _still_undefined(tensor: Tensor, undefined: Undefined) -> Sequence[MeshCoordinate]:
    if 0 in tensor.shape:
        return []
    coords = tensor.view_distribution().coordinates()
    if undefined.in_rows and not undefined.is_hidden and (pieces := tensor.pieces()).is_floating_point():
        poisoned = pieces.isnan().flatten(1).any(1).tolist()
        coords = tuple(coord for coord, is_poisoned in zip(coords, poisoned, strict=True) if is_poisoned)
    return [coord for coord in coords if coord in undefined.coords]
