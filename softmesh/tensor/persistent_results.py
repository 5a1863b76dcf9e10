"""Detects stale reads of persistent buffers: a tensor whose values a later call into the same buffer overwrote.

A collective that is given a persistent buffer writes into it and returns a tensor that lies there. The next call with
the same buffer overwrites that tensor too, and whoever still holds it reads the values of the other call.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple
from weakref import WeakKeyDictionary, WeakSet, ref

from softmesh.callsite import RawSite, raw_call_site, resolved
from softmesh.strictness import doubt, warn_or_raise

if TYPE_CHECKING:
    from softmesh.tensor.storage import Storage
    from softmesh.tensor.tensor import Tensor


class Result(NamedTuple):
    tensor: ref[Tensor]
    op: str
    site: RawSite
    call: object  # one for the result and its views


class Overwritten(NamedTuple):
    result: Result
    op: str  # that came after it
    site: RawSite


class Results:
    """Of one buffer: the latest result in it, and earlier ones that somebody still holds."""

    __slots__ = ("__weakref__", "latest", "stale", "views")

    def __init__(self) -> None:
        self.latest: Result | None = None
        self.views: list[Result] = []  # of the latest: what else lies in its memory
        self.stale: list[Overwritten] = []

    @property
    def needs_look(self) -> bool:
        return bool(self.stale)

    def note(self, tensor: Tensor, op: str) -> None:
        self.latest = self.result(tensor, op)

    def overwrite(self, op: str) -> None:
        held = self._held()
        if held:
            site = raw_call_site()
            self.stale += [Overwritten(one, op, site) for one in held]
        self.latest, self.views = None, []

    def renew(self, result: Result) -> None:
        """A replay has written it again."""
        if self.latest is not None and self.latest is not result:
            self.overwrite("a replay of a trace")
        self.stale = [one for one in self.stale if one.result.call is not result.call]
        self.latest = result

    def result(self, tensor: Tensor, op: str) -> Result:
        return Result(ref(tensor, self._forgetter()), op, raw_call_site(), object())

    def shows_latest(self, tensor: Tensor) -> bool:
        return any(one.tensor() is tensor for one in self._held())

    def note_views(self, views: Sequence[Tensor]) -> None:
        """They show what the latest result does, for as long as it does."""
        assert self.latest is not None
        self.views = [one for one in self.views if one.tensor() is not None]
        for view in views:
            self.views.append(self.latest._replace(tensor=ref(view, self._forgetter())))
            view.storage.notes = self

    def _held(self) -> list[Result]:
        """The latest result and its views, as far as somebody has them."""
        latest = () if self.latest is None else (self.latest, *self.views)
        return [one for one in latest if one.tensor() is not None]

    def _forgetter(self) -> Callable[[ref[Tensor]], None]:
        mine = ref(self)

        def forget(gone: ref[Tensor]) -> None:
            results = mine()
            if results is not None:
                results.stale = [one for one in results.stale if one.result.tensor is not gone]

        return forget


def handed_out(buffer: Tensor, op: str) -> Tensor:
    """The result of a call that wrote into the buffer: a tensor of its own, in the same memory."""
    results = _results_in(buffer)
    results.overwrite(op)
    result = buffer.same_memory()
    results.note(result, op)
    return result


def recorded_out(buffer: Tensor, op: str) -> tuple[Tensor, Callable[[], None]]:
    """The result of a call that a trace records, and what each replay is to call."""
    results, tensor = _results_in(buffer), buffer.same_memory()
    result = results.result(tensor, op)
    return tensor, lambda: results.renew(result)


def _results_in(buffer: Tensor) -> Results:
    storage = buffer.storage
    results = storage.notes if isinstance(storage.notes, Results) else Results()
    storage.notes = results
    return results


class _Lost(NamedTuple):
    op: str
    site: RawSite
    result: ref[Storage] | None  # only if this is read, too; otherwise it may be a way to write to the other tensor


# Tensors whose values a call wrote over through a view of them, and memory in which such a call's results lie. Filled
# in strict mode only: a program may mean the result when it reads the other tensor.
_LOST: WeakKeyDictionary[Storage, _Lost] = WeakKeyDictionary()
_SERVING: WeakSet[Storage] = WeakSet()
_READ: WeakSet[Storage] = WeakSet()  # since a call wrote to them


def note_lost(buffer: Tensor, op: str, operands: Sequence[Tensor], *, is_buffer: bool) -> None:
    """A call is about to write to a tensor; whatever else has values in its memory loses them.

    `is_buffer`: it is there for results. Who computes with what lies in that memory means to change it.
    """
    _LOST.pop(buffer.storage, None)
    _READ.discard(buffer.storage)
    sharers = buffer.storage.sharers()
    used = [one.storage for one in operands if not (is_buffer and one.storage is buffer.storage)]
    is_change = any(one is other for one in used for other in sharers)
    for other in sharers:
        is_another = other is not buffer.storage and other not in _SERVING and other.undefined is None
        if is_another and not is_change and other.data is not None and bool(other.data.any()):
            _LOST[other] = _Lost(op, raw_call_site(), None if is_buffer else ref(buffer.storage))
        _SERVING.add(other)


def note_read(tensors: Sequence[Tensor]) -> None:
    if _LOST:
        _READ.update(one.storage for one in tensors)


def note_written(storage: Storage) -> None:
    """It was given values of its own."""
    _LOST.pop(storage, None)
    _SERVING.discard(storage)


def doubt_lost(tensor: Tensor, doing: str) -> None:
    lost = _LOST.get(tensor.storage)
    if lost is not None and (lost.result is None or lost.result() in _READ):
        doubt(
            f"{doing}: the values of the tensor {tuple(tensor.shape)} are gone: {lost.op} ({resolved(lost.site)}) was "
            "given a view of it to write into, and its result lies there. Give it a buffer of its own, or read the "
            "result through the tensor that the call returned.",
        )


def note_views(tensor: Tensor, views: Sequence[Tensor]) -> None:
    """Tensors that lie in the same memory: shards, reshapes that move nothing. Of a buffer itself they are none."""
    results = tensor.storage.notes
    if isinstance(results, Results) and results.shows_latest(tensor):
        results.note_views(views)


def note_overwritten(buffer: Tensor, op: str) -> None:
    """Something else is written there; through the latest result itself, it shows what was written."""
    results = buffer.storage.notes
    if isinstance(results, Results) and not results.shows_latest(buffer):
        results.overwrite(op)


def warn_if_overwritten(tensor: Tensor, doing: str) -> None:
    results = tensor.storage.notes
    stale = results.stale if isinstance(results, Results) else []
    found = next((one for one in stale if one.result.tensor() is tensor), None)
    if found is not None:
        made, op, site = found
        warn_or_raise(
            f"{doing}: the tensor {tuple(tensor.shape)} is the result of {made.op} ({resolved(made.site)}) in a "
            f"persistent buffer, which {op} ({resolved(site)}) has overwritten since: these are the values of that "
            "call. Use the result before the buffer is used again, or take two buffers in turn.",
        )
