"""Tensors on the host that a queue may still be filling: the results of reads that do not block."""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from softmesh.runtime.sanitizer.clock import Clock
from softmesh.runtime.sanitizer.history import History, Touch

if TYPE_CHECKING:
    from softmesh.tensor.storage import Storage


class HostMemory:
    """Only what is being filled is known here: everything else the host alone reads and writes."""

    def __init__(self) -> None:
        self.filling: dict[int, tuple[weakref.ref[Storage], History]] = {}

    def fill(self, storage: Storage, touch: Touch, clock: Clock) -> Sequence[Touch]:
        """A queue writes to it, some time; those that write to it too, in no order."""
        if id(storage) not in self.filling:
            self._remember(storage, History())
        return self.filling[id(storage)][1].add(touch, clock)

    def share(self, storage: Storage, others: Iterable[Storage]) -> None:
        """Others are made of the same memory."""
        if id(storage) in self.filling:
            for other in others:
                self._remember(other, self.filling[id(storage)][1])

    def unfinished(self, storage: Storage, host: Clock) -> list[Touch]:
        """The writes that the host cannot know to be over."""
        known = self.filling.get(id(storage))
        if known is None:
            return []
        unfinished = [touch for touch in known[1].touches if not host.knows(touch.step, None)]
        if not unfinished:
            del self.filling[id(storage)]
        return unfinished

    def _remember(self, storage: Storage, history: History) -> None:
        key, filling = id(storage), self.filling
        filling[key] = (weakref.ref(storage, lambda _: filling.pop(key, None)), history)
