"""The captures under way and the traces of a mesh, and what must not happen in between."""

from __future__ import annotations

from typing import TYPE_CHECKING

from softmesh import epoch
from softmesh.errors import MeshError
from softmesh.runtime.traces.recording import Recording
from softmesh.runtime.traces.trace import Trace
from softmesh.runtime.traces.trace_id import MeshTraceId

if TYPE_CHECKING:
    from softmesh.runtime.device import MeshDevice


class Captures:
    """`recordings` by queue, so that an op asks one empty dict while nobody records."""

    def __init__(self) -> None:
        self.recordings: dict[int, Recording] = {}
        self.traces: dict[int, Trace] = {}
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
        raise MeshError(
            f"{said} {doing} was called on queue {queue}, on which trace {int(recording.number)} is being recorded "
            f"since {recording.site}: a trace holds launches only. Do it before ttnn.begin_trace_capture or after "
            "ttnn.end_trace_capture."
        )


WRITES = "Writes are not supported during trace capture."
READS = "Reads are not supported during trace capture."
EVENT_SYNCHRONIZATION = "Event Synchronization is not supported during trace capture."
BLOCKING = "Blocking is not supported when recording a trace."


def begun(device: MeshDevice, queue: int, recording: Recording) -> None:
    if queue in device.captures.recordings:
        raise MeshError(
            f"CQ {queue} is already being used for tracing tid {int(recording.number)}: the capture begun at "
            f"{device.captures.recordings[queue].site} has not ended. Call ttnn.end_trace_capture for it first."
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
