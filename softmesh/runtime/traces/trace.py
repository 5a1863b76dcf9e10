"""Trace: a recorded capture, compiled and ready for replay; the memory it overwrites; and the captures of a mesh."""

from __future__ import annotations

import weakref
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import torch

from softmesh import epoch, value_free
from softmesh.callsite import CallSite, resolved
from softmesh.errors import MeshError
from softmesh.native.gpu_kernels import small_too
from softmesh.runtime.grad_mode import GRADIENTS, without_gradients
from softmesh.runtime.memory.pool import next_number
from softmesh.runtime.traces.cuda_graph import GraphedReplay
from softmesh.runtime.traces.overwritten_memory import OverwrittenMemory
from softmesh.runtime.traces.recording import MeshTraceId, Recording
from softmesh.runtime.traces.replay_codegen import ReplayCode
from softmesh.runtime.traces.steps import Act, Compute, Memory, Step

if TYPE_CHECKING:
    from softmesh.runtime.device import MeshDevice
    from softmesh.runtime.memory.allocations import Allocation, Claim, Span
    from softmesh.runtime.memory.pool import Pool
    from softmesh.runtime.queues.sub_devices import SubDeviceManagerId


class WrittenMemory:
    """`numbers` are those of the allocations that the trace itself writes to; among them semaphores, its `counters`."""

    def __init__(self, results: Iterable[Span | None], counters: Sequence[Span]) -> None:
        self.numbers: set[int] = set()
        self._owners: list[weakref.ref[Any]] = []
        extents: dict[Pool, list[tuple[int, int]]] = {}
        self.counters = counters
        for span in (*results, *counters):
            if span is not None and span.pool is not None:
                self.numbers.add(span.number)
                self._owners.append(span.owner)
                extents.setdefault(span.pool, []).append((span.start, span.end))
        self._extents = {pool: _merged(found) for pool, found in extents.items()}

    def counts_in(self, allocation: Allocation) -> bool:
        """Whether it was given the memory of a semaphore."""
        return any(
            one.pool is not None
            and one.pool.region.buffer_type is allocation.buffer_type
            and allocation.address < one.end
            and one.start < allocation.end
            for one in self.counters
        )

    def overwritten_since(self, number: int) -> list[Allocation]:
        """What others allocated after the allocation of this number, and a replay writes to."""
        if not any(map(_is_free, self._owners)):
            return []

        def is_meant(extents: list[tuple[int, int]], start: int, claim: Claim) -> bool:
            return claim.number not in self.numbers and _meets(extents, start, claim.size)

        return [
            allocation
            for pool, extents in self._extents.items()
            for allocation in pool.since(number, partial(is_meant, extents))
        ]


def _is_free(owner: weakref.ref[Any]) -> bool:
    """Whether its memory can be another's by now."""
    place = getattr(owner(), "span", None)
    return place is None or place() is None


def _merged(extents: list[tuple[int, int]]) -> list[tuple[int, int]]:
    merged: list[tuple[int, int]] = []
    for start, end in sorted(extents):
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((start, end))
    return merged


def _meets(extents: list[tuple[int, int]], start: int, size: int) -> bool:
    """Whether the last extent that begins before the end of these bytes reaches beyond their start."""
    before = bisect_left(extents, (start + size,)) - 1
    return before >= 0 and extents[before][1] > start


BYTES_PER_LAUNCH = 1024  # no launch takes less: what does not fit here fits no chip


class Trace:
    """It reads the memories it found (`inputs`), and writes those it made that somebody still holds."""

    def __init__(
        self,
        recording: Recording,
        manager: SubDeviceManagerId,
        card: torch.device | None = None,
        is_shared: bool = False,
    ) -> None:
        """`manager` is the sub-device manager that was active, the only one it can run under.

        `card` is the GPU whose graphs it becomes after a first replay, which warms up what they launch.
        `is_shared`: between ranks, which wait for each other in its steps.
        """
        self.number: MeshTraceId = recording.number
        self.queue = recording.queue
        self.site: CallSite = recording.site
        self.size = recording.launches * BYTES_PER_LAUNCH
        self.manager = manager
        self.began, self.ended = recording.began, next_number()
        self.written = WrittenMemory(recording.spans, recording.counters)
        self._overwritten = OverwrittenMemory(self.began)
        self.room: tuple[Any, int] | None = None  # the pool and the address that it takes
        outputs, found = recording.made(), recording.externals()
        self._outputs = [outputs[slot] for slot in sorted(outputs)]
        steps = recording.steps
        if value_free.is_on and not is_shared:
            steps = [_once(step) for step in steps if not _is_idle(step, found | outputs)]
        lines = ReplayCode(steps, outputs, found)
        self._replay = lines.function()
        self._memories = [(found | outputs)[slot] for slot in lines.memories]
        acts = (step for step in recording.steps if isinstance(step, Act))
        changed = {slot for act in acts for slot in act.changes}
        self._changed = [found[slot] for slot in sorted(changed & found.keys())]
        self._placed = [recording.distribution(slot) or _placement((found | outputs)[slot]) for slot in lines.memories]
        self._output_placed = [_placement(ref) for ref in self._outputs]
        self._steps, self._slots = recording.steps, found | outputs
        self._held = recording.held
        self.numbers = recording.numbers
        self._unwritten = recording.unwritten
        self._first_written = recording.first_written
        self._renewals = recording.renewals
        self._has_run = False
        self._result_slots = sorted(outputs)
        self._graphs: GraphedReplay | None = None
        self._card = card

    def inputs(self) -> list[Memory]:
        """What it takes its values from, as far as it is still there."""
        return [memory for ref in self._memories if (memory := ref()) is not None]

    def changed(self) -> list[Memory]:
        """What was there before and is written to."""
        return [memory for ref in self._changed if (memory := ref()) is not None]

    def outputs(self) -> list[Memory]:
        return [memory for ref in self._outputs if (memory := ref()) is not None]

    def await_replay(self) -> None:
        """What it makes is not there before it runs."""
        for memory in self._awaiting():
            memory.await_replay(self.site)

    def _awaiting(self) -> list[Memory]:
        return [*self.outputs(), *(memory for ref in self._first_written if (memory := ref()) is not None)]

    def replay(self) -> None:
        if not self._has_run:
            self._warn_if_unwritten()
        memories = [ref() for ref in self._memories]
        as_captured = True
        for memory, placed in zip(memories, self._placed, strict=True):
            if memory is None or memory.data is None or memory.dist is not placed:
                # a label is how TT-NN prints it, and no more
                now = self._present(memory).dist.with_label(placed.label)
                as_captured = as_captured and now is placed
        if GRADIENTS.in_use and torch.is_grad_enabled():
            without_gradients(partial(self._run, memories, as_captured))  # a replay has no way back to its inputs
        else:
            self._run(memories, as_captured)
        if not self._has_run:
            self._has_run = True
            for memory in self._awaiting():
                memory.replayed()

    def replay_among(self, captures: Captures) -> None:
        """Replay it beside others, each of which may write where the others read."""
        if captures.has_overwritten:
            for memory in self.inputs():
                memory.warn_if_overwritten(f"execute_trace: what was captured at {self.site} reads")
        self.replay()
        if captures.has_overwritten:
            for memory in (*self.outputs(), *self.changed()):
                memory.replayed()
        for renew in self._renewals:
            renew()
        self._overwritten.mark(self, captures)

    def _warn_if_unwritten(self) -> None:
        own = {id(memory) for memory in self._awaiting()}
        for given in self.inputs():
            if id(given) not in own:
                given.warn_if_unreplayed(f"execute_trace: what was captured at {self.site} reads what is made")
        for ref in self._unwritten:
            if (memory := ref()) is not None:
                memory.warn_if_unwritten(f"execute_trace: what was captured at {self.site} reads")

    def _run(self, memories: list[Memory | None], as_captured: bool) -> None:
        if not as_captured:
            self._run_step_by_step()
            return
        if self._graphs is not None:
            self._graphs.replay(self._result_slots, self._output_placed)
            return
        if self._card is not None:
            with small_too():
                values = self._replay(*memories)
            self._graphs = self._graphed(self._card)
        else:
            values = self._replay(*memories)
        for ref, value, placed in zip(self._outputs, values, self._output_placed, strict=True):
            output = ref()
            if output is not None and output.data is not None:  # it was not deallocated since
                output.data, output.dist = value, placed
                output.tell_sharers()

    def _graphed(self, card: torch.device) -> GraphedReplay:
        slots = self._slots
        external = {slot for slot in slots if slot not in self._result_slots}

        def find(slot: int) -> Memory | None:
            ref = slots.get(slot)
            return None if ref is None else ref()

        name = f"Trace {int(self.number)}, captured at {self.site},"
        return GraphedReplay(name, self._steps, set(self._result_slots), external, find, card)

    def _run_step_by_step(self) -> None:
        """Each device computes on the piece that it holds now, though its inputs are spread in another way."""
        memories: dict[int, Memory] = {}

        def lookup(slot: int) -> Memory:
            known = memories.get(slot)
            return known if known is not None else self._present(self._slots[slot]())

        for step in self._steps:
            if step.again is None:
                self._act_as_captured(step)
            elif isinstance(step, Act):
                step.again(lookup)
            else:
                for slot, made in zip(step.writes, step.again(lookup), strict=True):
                    held = self._slots[slot]() if slot in self._slots else None
                    if held is None or held.data is None:
                        memories[slot] = made
                        continue
                    held.data, held.dist = made.data, made.dist
                    memories[slot] = held

    def _act_as_captured(self, step: Step) -> None:
        if isinstance(step, Compute) or step.reads:
            raise MeshError(
                f"Trace {int(self.number)}, captured at {self.site}, reads tensors that are distributed otherwise than "
                "at the capture, and holds a call that cannot be planned anew. Overwrite inputs with values that are "
                "distributed as at the capture."
            )
        step.call()

    def _present(self, memory: Memory | None) -> Memory:
        if memory is None or memory.data is None:
            freed = None if memory is None else memory.freed
            at = "" if freed is None else f" (at {resolved(freed)})"
            raise MeshError(
                f"Trace {int(self.number)}, captured at {self.site}, reads a tensor that has been deallocated since"
                f"{at}; on a chip its memory may hold anything by now. Keep every tensor that the captured ops read "
                "(the Python variable too) until ttnn.release_trace; or, where the model frees its input, allocate it "
                "anew before ttnn.end_trace_capture (ttnn.allocate_tensor_on_device(spec, mesh_device)) and see that "
                "buffer_address() is what it was."
            )
        return memory


def _once(step: Step) -> Step:
    """Without values a replay need not repeat what makes large tensors: they are shapes."""
    return replace(step, call=value_free.computed_once(step.call)) if isinstance(step, Compute) else step


def _is_idle(step: Step, memories: Mapping[int, weakref.ref[Memory]]) -> bool:
    """Whether it writes to nothing but memory that has no values."""
    if not isinstance(step, Act) or step.by_address or not step.changes:
        return False
    changed = [memories[slot]() if slot in memories else None for slot in step.changes]
    return all(one is not None and one.data is not None and value_free.is_value_free(one.data) for one in changed)


def _placement(ref: weakref.ref[Memory]) -> Any:
    memory = ref()
    return None if memory is None else memory.dist


# The captures under way and the traces of a mesh, and what is refused while a queue is being recorded.


class Captures:
    """`recordings` by queue, so that an op asks one empty dict while nobody records."""

    def __init__(self) -> None:
        self.recordings: dict[int, Recording] = {}
        self.traces: dict[int, Trace] = {}
        self.has_overwritten = False  # whether a replay has ever written over a tensor that was made later
        self.corruptible: set[int] = set()  # numbers of allocations whose values a replay may destroy

    @property
    def bytes_held(self) -> int:
        return sum(trace.size for trace in self.traces.values())


def recording_on(device: MeshDevice | None, queue: int) -> Recording | None:
    return None if device is None else device.captures.recordings.get(queue)


def refuse_while_recording(device: MeshDevice | None, queue: int, said: str, doing: str) -> None:
    """`said` is the chip's own sentence."""
    recording = recording_on(device, queue)
    if recording is not None:
        number = int(recording.number)
        raise MeshError(
            f"{said} {doing} was called on queue {queue}, on which trace {number} is being recorded since "
            f"{recording.site}: a trace holds launches only. Do it before ttnn.begin_trace_capture or after "
            f"ttnn.end_trace_capture(mesh_device, {number}, cq_id={queue})."
        )


WRITES = "Writes are not supported during trace capture."
READS = "Reads are not supported during trace capture."
EVENT_SYNCHRONIZATION = "Event Synchronization is not supported during trace capture."
BLOCKING = "Blocking is not supported when recording a trace."


def begun(device: MeshDevice, queue: int, recording: Recording) -> None:
    under_way = device.captures.recordings.get(queue)
    if under_way is not None:
        number = int(under_way.number)
        raise MeshError(
            f"CQ {queue} is already being used for tracing tid {number}: the capture begun at {under_way.site} has not "
            f"ended. Where an error or Ctrl-C left it open, ttnn.end_trace_capture(mesh_device, {number}, "
            f"cq_id={queue}) ends it, and ttnn.release_trace(mesh_device, {number}) forgets it."
        )
    recorded = (one.number for one in device.captures.recordings.values())
    if int(recording.number) in device.captures.traces or recording.number in recorded:
        raise MeshError(
            f"Trace already exists for tid {int(recording.number)} on this mesh: leave the id out, or call "
            "ttnn.release_trace first."
        )
    device.captures.recordings[queue] = recording
    epoch.invalidate()


def ended(device: MeshDevice, queue: int, number: MeshTraceId) -> Recording:
    recording = recording_on(device, queue)
    if recording is None or recording.number != number:
        under_way = "nothing is" if recording is None else f"{recording.number} is"
        raise MeshError(
            f"CQ {queue} is not being used for tracing tid {int(number)}: {under_way} being recorded there. End a "
            "capture with the id that ttnn.begin_trace_capture returned, on the same queue."
        )
    del device.captures.recordings[queue]
    epoch.invalidate()
    recording.give_back()
    return recording
