"""The buffers and tensors that a launch meets, by address."""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable

from softmesh.hardware.memory_config import BufferType
from softmesh.kernels.engine.memory import BufferMemory, Memory
from softmesh.kernels.engine.tensor_memory import TensorMemory
from softmesh.runtime.buffers.finding import LaidOut
from softmesh.runtime.queues.workload import Touched
from softmesh.tensor.device_pages import TensorBytes

Find = Callable[[BufferType, int], LaidOut | None]


class Memories:
    """Those that it has met so far."""

    def __init__(self, find: Find) -> None:
        self._find = find
        self._starts: defaultdict[BufferType, list[int]] = defaultdict(list)
        self._known: defaultdict[BufferType, list[Memory]] = defaultdict(list)

    def at(self, buffer_type: BufferType, address: int) -> Memory | None:
        """The memory that covers an address."""
        place = bisect_right(self._starts[buffer_type], address)
        if place and address < self._known[buffer_type][place - 1].end:
            return self._known[buffer_type][place - 1]
        found = self._find(buffer_type, address)
        return None if found is None else self.add(found)

    def add(self, paged: LaidOut) -> Memory:
        kind = paged.buffer_type
        place = bisect_right(self._starts[kind], paged.address)
        memory = _memory_for(paged)
        self._starts[kind].insert(place, paged.address)
        self._known[kind].insert(place, memory)
        return memory

    def _all(self) -> list[Memory]:
        return [memory for known in self._known.values() for memory in known]

    def write_back(self) -> None:
        """The launch went well. What it moved is taken out of memory that changes before any of it does."""
        met = self._all()
        blocks = {memory.block() for memory in met if isinstance(memory, BufferMemory) and memory.was_read}
        written = [memory for memory in met if memory.was_written]
        if blocks:
            for memory in written:
                memory.separate(blocks)
        for memory in written:
            memory.write_back()

    def store(self) -> None:
        """After `write_back`."""
        for memory in self._all():
            memory.store()

    def touched(self) -> Touched:
        met = self._all()
        return Touched(
            tuple(memory.paged for memory in met if memory.was_read),
            tuple(memory.paged for memory in met if memory.was_written),
        )


def _memory_for(paged: LaidOut) -> Memory:
    if isinstance(paged, TensorBytes) and paged.is_whole:
        return TensorMemory(paged)
    return BufferMemory(paged)
