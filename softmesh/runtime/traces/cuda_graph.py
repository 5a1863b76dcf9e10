"""A trace on a GPU as CUDA graphs: captured at its second replay, and launched as a whole from then on.

A graph reads and writes the memory that it found at its capture. So before a launch what has moved since is copied to
where it lay, and afterwards the tensors hold what the graph wrote. A step that needs the host between launches (a
kernel in Python, a value that is read back) cuts the trace: graphs before and behind it, itself as ever. Memory that
somebody else reads, such as a transposed view of the last result or of an input, must not be written over: such a
replay runs step by step, into new memory.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from traceback import walk_tb
from typing import Any

import torch

from softmesh.errors import GpuRemark
from softmesh.native.gpu_kernels import small_too
from softmesh.runtime.gpu_value_cache import note_replay, recording
from softmesh.runtime.traces.replay_codegen import SOURCE_NAME, ReplayCode
from softmesh.runtime.traces.steps import Act, Constant, Memory, Step
from softmesh.storage_owners import storage_owners, without_view_base

Find = Callable[[int], Memory | None]  # the memory of a slot, while anybody holds it


class _Value:
    """Stands for a memory that the program has dropped, between two parts of a trace."""

    def __init__(self) -> None:
        self.data: torch.Tensor | None = None
        self.dist: Any = None

    def tell_sharers(self) -> None:
        """Nobody shares it."""


class GraphedReplay:
    """`kept` are the slots of results, `external` those of memories that were there before; `card` is the GPU."""

    def __init__(
        self, name: str, steps: Sequence[Step], kept: set[int], external: set[int], find: Find, card: torch.device
    ) -> None:
        self._card = card
        self._name, self._steps, self._kept, self._external, self._find = name, steps, kept, external, find
        self._between: dict[int, _Value] = {}
        self._cuts = {at: "it runs on the host" for at, step in enumerate(steps) if _needs_host(step)}
        self._parts: list[_Part] = []
        self._is_captured = False

    def replay(self, results: Sequence[int], placed: Sequence[Any]) -> None:
        """Run it; `results` are the slots of what it makes, and `placed` their distributions."""
        if self._is_captured:
            for part in self._parts:
                part.run()
        else:
            self._capture_and_run()
        note_replay()
        for slot, dist in zip(results, placed, strict=True):
            memory = self._find(slot)
            if memory is not None:
                memory.dist = dist
                memory.tell_sharers()

    def _memory(self, slot: int) -> Any:
        found = self._find(slot)
        return self._between.setdefault(slot, _Value()) if found is None else found

    def _cut(self, first: int, last: int) -> list[_Part]:
        """The longest runs of steps that need no host, and each of the others by itself."""
        bounds: list[tuple[int, int]] = []
        for at in range(first, last):
            if at in self._cuts or not bounds or bounds[-1][0] in self._cuts:
                bounds.append((at, at + 1))
            else:
                bounds[-1] = (bounds[-1][0], at + 1)
        return [self._part(*ends) for ends in bounds]

    def _part(self, first: int, last: int) -> _Part:
        steps = self._steps[first:last]
        made = {slot for step in steps for slot in _writes(step)}
        needed = self._kept | {slot for step in self._steps[last:] for slot in _reads(step)}
        before = {slot for step in self._steps[:first] for slot in _writes(step)} | self._external
        code = ReplayCode(steps, (made - self._external) & needed, before)
        changes = sorted({slot for step in steps if isinstance(step, Act) for slot in step.changes})
        results = sorted((made - self._external) & needed)
        return _Part(code, (first, last), results, changes, self._memory, first in self._cuts)

    def _capture_and_run(self) -> None:
        """Each part as a graph, which is launched: what follows is captured with the values that it will find.

        A step that cannot be captured cuts its part, of which nothing has run by then.
        """
        parts: list[_Part] = []
        waiting = self._cut(0, len(self._steps))
        while waiting:
            part = waiting.pop(0)
            with torch.cuda.device(self._card):  # a capture is of the current one, whatever the tensors lie on
                failed = part.capture()
            if failed is not None:
                self._cuts[failed[0]] = failed[1]
                waiting = self._cut(part.first, part.last) + waiting
                continue
            part.run()
            parts.append(part)
        self._parts, self._is_captured = parts, True
        if self._cuts:
            told = "; ".join(f"{self._steps[at].name or 'a step'}: {why}" for at, why in sorted(self._cuts.items())[:4])
            more = f" and {len(self._cuts) - 4} more" if len(self._cuts) > 4 else ""
            warnings.warn(
                f"{self._name} is replayed as {sum(not part.is_plain for part in self._parts)} CUDA graphs, cut at "
                f"{len(self._cuts)} of its {len(self._steps)} steps, which run one by one: {told}{more}.",
                GpuRemark,
                stacklevel=2,
            )


@dataclass
class _Place:
    """Where a graph expects a memory, and where it leaves it. `owners` of that place are the graph's own."""

    before: torch.Tensor
    after: torch.Tensor
    dist: Any
    owners: int


class _Part:
    """Steps one after the other, as one function and as one graph."""

    def __init__(
        self,
        code: ReplayCode,
        bounds: tuple[int, int],
        results: list[int],
        changes: list[int],
        memory: Callable[[int], Any],
        is_plain: bool,
    ) -> None:
        self._function, self._slots, self._lines = code.function(), code.memories, code.steps_of
        self.first, self.last = bounds
        self._results, self._changes, self._memory = results, changes, memory
        self.is_plain = is_plain
        self._graph: torch.cuda.CUDAGraph | None = None
        self._places: dict[int, _Place] = {}
        self._made: list[torch.Tensor] = []
        self._owners: list[tuple[torch.Tensor, int]] = []

    def run(self) -> None:
        if self._graph is None or self._has_readers() or not self._bring_inputs():
            self._store(self._function(*map(self._memory, self._slots)))
            return
        self._graph.replay()
        for slot in self._changes:
            memory, place = self._memory(slot), self._places[slot]
            memory.data, memory.dist = place.after, place.dist
            memory.tell_sharers()
        self._store(self._made)
        if not self._owners:
            written = [self._places[slot].after for slot in self._changes] + self._made
            self._owners = [(data, _owners(data)) for data in written]

    def _store(self, values: Sequence[torch.Tensor]) -> None:
        for slot, value in zip(self._results, values, strict=True):
            self._memory(slot).data = value

    def _has_readers(self) -> bool:
        """Whether anybody reads what the graph will write over who did not after its first launch."""
        return any(_owners(data) > known for data, known in self._owners)

    def _bring_inputs(self) -> bool:
        """Copy what has moved to where the graph reads it; False where that has another form, or others read there."""
        for slot, place in self._places.items():
            now, there = self._memory(slot).data, place.before
            if now is there:
                continue
            if now.shape != there.shape or now.dtype is not there.dtype:
                return False
            if now.data_ptr() != there.data_ptr() or now.stride() != there.stride():
                if _owners(there) > place.owners:
                    return False
                there.copy_(now)
        return True

    def capture(self) -> tuple[int, str] | None:
        """None if it went well, or where it did not need to; else the step that failed, and why."""
        if self.is_plain:
            return None
        memories = [self._memory(slot) for slot in self._slots]
        for memory in memories:
            if not memory.data.requires_grad:
                memory.data = without_view_base(memory.data)  # so that its readers can be counted
        for slot in self._changes:
            memory = self._memory(slot)
            if hasattr(memory, "writable"):
                memory.writable()  # a copy is made before, or each replay would begin with what was copied
        before = [(memory.data, memory.dist) for memory in memories]
        others = [_owners(data) - _OWNERS_OF_ITS_OWN for data, _ in before]
        graph, usual = torch.cuda.CUDAGraph(), torch.cuda.current_stream()
        try:
            with recording(), small_too(), torch.cuda.graph(graph, capture_error_mode="thread_local"):
                made = self._function(*memories)
        except (RuntimeError, ValueError, TypeError) as error:
            torch.cuda.set_stream(usual)  # torch leaves that of the capture behind where its end fails, too
            for memory, (data, dist) in zip(memories, before, strict=True):
                memory.data, memory.dist = data, dist
            torch.cuda.synchronize()
            at, cause = self._failing_step(error)
            return self.first + at, str(cause).partition("\n")[0]
        self._graph, self._made = graph, list(made)
        for slot, memory, (data, dist), readers in zip(self._slots, memories, before, others, strict=True):
            self._places[slot] = _Place(data, memory.data, memory.dist, _owners(data) - readers)
            memory.data, memory.dist = data, dist
        return None

    def _failing_step(self, error: BaseException) -> tuple[int, BaseException]:
        """The step that failed, and how: the end of a capture that failed is an error by itself."""
        seen: BaseException | None = error
        while seen is not None:
            lines = [line for frame, line in walk_tb(seen.__traceback__) if frame.f_code.co_filename == SOURCE_NAME]
            if lines:
                return self._lines.get(lines[-1], 0), seen
            seen = seen.__context__
        return 0, error


def _needs_host(step: Step) -> bool:
    return isinstance(step, Act) and not step.is_torch


def _writes(step: Step) -> tuple[int, ...]:
    return step.changes if isinstance(step, Act) else step.writes


def _reads(step: Step) -> set[int]:
    slots = {source.slot for source in step.reads if not isinstance(source, Constant)}
    return slots | set(step.changes) if isinstance(step, Act) else slots


def _owners(data: torch.Tensor) -> int:
    return storage_owners(data.untyped_storage()._cdata)


_OWNERS_OF_ITS_OWN = 2  # of data that nobody else reads: the tensor, and the storage that is asked for
