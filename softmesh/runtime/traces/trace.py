"""A trace: recorded steps, ready to be replayed on what their inputs hold by then."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any

import torch

from softmesh.callsite import CallSite, resolved
from softmesh.errors import MeshError
from softmesh.runtime.grad_mode import GRADIENTS
from softmesh.runtime.memory.pool import next_number
from softmesh.runtime.traces.recording import Recording
from softmesh.runtime.traces.steps import Act, Memory
from softmesh.runtime.traces.straight_line import StraightLine
from softmesh.runtime.traces.trace_id import MeshTraceId
from softmesh.runtime.traces.written import Written

if TYPE_CHECKING:
    from softmesh.runtime.queues.sub_devices import SubDeviceManagerId

BYTES_PER_LAUNCH = 1024  # no launch takes less: what does not fit here fits no chip


class Trace:
    """It reads the memories it found (`inputs`), and writes those it made that somebody still holds."""

    def __init__(self, recording: Recording, manager: SubDeviceManagerId) -> None:
        """`manager` is the sub-device manager that was active, the only one it can run under."""
        self.number: MeshTraceId = recording.number
        self.queue = recording.queue
        self.site: CallSite = recording.site
        self.size = recording.launches * BYTES_PER_LAUNCH
        self.manager = manager
        self.began, self.ended = recording.began, next_number()
        self.written = Written(recording.spans)
        self.room: tuple[Any, int] | None = None  # the pool and the address that it takes
        outputs, found = recording.made(), recording.externals()
        self._outputs = [outputs[slot] for slot in sorted(outputs)]
        lines = StraightLine(recording.steps, outputs, found)
        self._replay = lines.function()
        self._memories = [(found | outputs)[slot] for slot in lines.memories]
        acts = (step for step in recording.steps if isinstance(step, Act))
        changed = {slot for act in acts for slot in act.changes}
        self._changed = [found[slot] for slot in sorted(changed & found.keys())]
        self._placed = [_placement(ref) for ref in self._memories]

    def inputs(self) -> list[Memory]:
        """What it takes its values from, as far as it is still there."""
        return [memory for ref in self._memories if (memory := ref()) is not None]

    def changed(self) -> list[Memory]:
        """What was there before and is written to."""
        return [memory for ref in self._changed if (memory := ref()) is not None]

    def outputs(self) -> list[Memory]:
        return [memory for ref in self._outputs if (memory := ref()) is not None]

    def replay(self) -> None:
        memories = [ref() for ref in self._memories]
        for memory, placed in zip(memories, self._placed, strict=True):
            if memory is None or memory.data is None or memory.dist is not placed:
                self._check(memory, placed)
        if GRADIENTS.in_use and torch.is_grad_enabled():
            with torch.no_grad():  # as it was recorded: a replay has no way back to its inputs
                values = self._replay(*memories)
        else:
            values = self._replay(*memories)
        for ref, value in zip(self._outputs, values, strict=True):
            output = ref()
            if output is not None:
                output.data = value

    def _check(self, memory: Memory | None, placed: Any) -> None:
        if memory is None or memory.data is None:
            freed = None if memory is None else memory.freed
            at = "" if freed is None else f" (at {resolved(freed)})"
            raise MeshError(
                f"Trace {int(self.number)}, captured at {self.site}, reads a tensor that has been deallocated since"
                f"{at}; on a chip its memory may hold anything by now. Keep every tensor that the captured ops read "
                "(the Python variable too) until ttnn.release_trace."
            )
        if memory.dist.with_label(placed.label) is not placed:  # a label is how TT-NN prints it, and no more
            raise MeshError(
                f"Trace {int(self.number)}, captured at {self.site}, reads a tensor that was {placed} and is now "
                f"{memory.dist}. Overwrite inputs with values that are distributed as at the capture."
            )


def _placement(ref: weakref.ref[Memory]) -> Any:
    memory = ref()
    return None if memory is None else memory.dist
