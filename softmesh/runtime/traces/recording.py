"""Recording: what runs on a queue between the beginning and the end of a trace capture; and MeshTraceId.

The device runs nothing while it records. Here the calls do run, because what comes next needs to know
their results' shapes; memory that was there before is restored at the end.
"""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from softmesh.arguments import checked_int
from softmesh.callsite import CallSite
from softmesh.runtime.memory.allocations import Span
from softmesh.runtime.memory.pool import next_number
from softmesh.runtime.queues.queue_id import NumberedId
from softmesh.runtime.traces.recorded_numbers import RecordedNumber
from softmesh.runtime.traces.steps import Act, Again, Compute, Memory, Read, Source, Step

_NUMBERS = itertools.count()


class MeshTraceId(NumberedId):
    """
    >>> int(MeshTraceId(3))
    3
    """

    __slots__ = ()

    def __init__(self, value: int) -> None:
        super().__init__(checked_int("MeshTraceId", "value", value))

    @classmethod
    def next(cls) -> MeshTraceId:
        return cls(next(_NUMBERS))


class Recording:
    def __init__(self, number: MeshTraceId, queue: int, site: CallSite) -> None:
        self.number = number
        self.queue = queue
        self.site = site
        self.steps: list[Step] = []
        self.launches = 0
        self.began = next_number()  # what is allocated from here on has a higher number
        self.spans: list[Span | None] = []  # the memory of all that the steps write
        self.counters: list[Span] = []  # semaphores that the steps count on
        self.held: list[Memory] = []  # what the steps change, where it lies: the program may drop it
        self.unwritten: list[weakref.ref[Memory]] = []  # that the steps read, and nothing was written to yet
        self.first_written: list[weakref.ref[Memory]] = []  # that nothing was written to before
        self.renewals: list[Callable[[], None]] = []  # of results in persistent buffers, behind each replay
        self.numbers: list[RecordedNumber] = []  # that say where the steps write
        self.taken_back: dict[int, weakref.ref[Memory]] = {}  # by slot: allocated where an input was freed
        self._slots: dict[int, int] = {}  # id of a memory -> its slot
        self._memories: list[weakref.ref[Memory]] = []  # by slot; what the program drops is free at once
        self._found: dict[int, tuple[Span | None, Any]] = {}  # by slot: where it lay, and how it was distributed
        self._made: set[int] = set()  # slots
        self._saved: dict[int, tuple[Memory, Any, Any]] = {}

    def slot(self, memory: Memory) -> int:
        known = self._slots.get(id(memory))
        if known is None or self._memories[known]() is not memory:  # an id lives as long as its object
            known = len(self._memories)
            self._found[known] = memory.span(), memory.dist
            self._memories.append(weakref.ref(memory))
            self._slots[id(memory)] = known  # the last: Ctrl-C may come before
        return known

    def compute(
        self,
        call: Callable[..., Any],
        reads: Sequence[Source],
        made: Sequence[Memory],
        finishes: Sequence[Callable[..., Any] | None],
        *,
        is_several: bool,
        again: Again | None = None,
        name: str = "",
    ) -> None:
        writes = tuple(self.slot(memory) for memory in made)
        self._made.update(writes)
        self.spans += [memory.span() for memory in made]
        fits = self._is_like_first(reads, made[0])
        self.steps.append(Compute(call, tuple(reads), writes, tuple(finishes), is_several, fits, again, name))
        self.launches += 1

    def _is_like_first(self, reads: Sequence[Source], made: Memory) -> bool:
        first = self._memories[reads[0].slot]() if reads and isinstance(reads[0], Read) else None
        if first is None or first.data is None or made.data is None:
            return False
        return first.data.shape == made.data.shape and first.data.dtype is made.data.dtype

    def act(
        self,
        call: Callable[..., object],
        reads: Sequence[Source],
        changed: Iterable[Memory],
        again: Again | None = None,
        name: str = "",
        is_torch: bool = False,
    ) -> None:
        """With nothing read and nothing changed, the call finds its memories by address."""
        written = list(changed)
        self.held += written
        changes = tuple(self.slot(memory) for memory in written)
        self.spans += [memory.span() for memory in written]
        by_address = not reads and not changes
        self.steps.append(Act(call, tuple(reads), changes, by_address, again, name, is_torch))
        self.launches += 1

    def counts_on(self, semaphore: Span | None) -> None:
        if semaphore is not None and semaphore not in self.counters:
            self.counters.append(semaphore)

    def save_before_write(self, memory: Memory) -> None:
        """Before a call writes to memory that was there already: let it write to a copy."""
        if id(memory) in self._saved or self.slot(memory) in self._made or memory.data is None:
            return
        self._saved[id(memory)] = (memory, memory.data, memory.dist)
        memory.data = memory.data.clone()

    def give_back(self) -> None:
        for memory, data, dist in self._saved.values():
            memory.data, memory.dist = data, dist
        self._saved.clear()

    def externals(self) -> dict[int, weakref.ref[Memory]]:
        """Memories that were there before, by slot; and what was allocated in the place of one that was freed."""
        found = {slot: ref for slot, ref in enumerate(self._memories) if slot not in self._made}
        for slot, known in found.items():
            memory = known()
            if memory is None or memory.data is None:
                found[slot] = self._taken_back(slot) or known
        return found

    def distribution(self, slot: int) -> Any:
        """As the capture found it, of what was allocated anew since; None for all else."""
        return self._found[slot][1] if slot in self.taken_back else None

    def _taken_back(self, slot: int) -> weakref.ref[Memory] | None:
        """A model frees its input, and the program allocates it anew at the same address before the capture ends.

        Replays read by address: whatever is written there by then is their input.
        """
        span, _ = self._found[slot]
        allocation = None if span is None or span.pool is None else span.pool.at(span.start)
        if span is None or allocation is None or allocation.number < self.began or allocation.address != span.start:
            return None
        owner: Any = allocation.owner
        is_result = any(memory() is owner for memory in self._memories)
        if is_result or getattr(owner, "spec", None) != span.what or owner.data is None:
            return None
        self.taken_back[slot] = found = weakref.ref(owner)
        self.unwritten.append(found)
        return found

    def made(self) -> dict[int, weakref.ref[Memory]]:
        """Memories that the steps made and that are still there, by slot."""
        found = {slot: ref for slot, ref in enumerate(self._memories) if slot in self._made}
        return {slot: ref for slot, ref in found.items() if (memory := ref()) is not None and memory.data is not None}
