"""CUDA streams as command queues: the first queue is torch's default stream, each other one has its own.

Only where a mesh on a GPU was opened with several queues. What a queue launches runs in order; between queues nothing
is ordered but by events, as on a chip. What the host reads waits for all of them: it is not to see half of anything.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from typing import Any

import torch

from softmesh.runtime.queues import queue_id

SEVERAL_QUEUES: list[torch.device] = []  # the GPU of a mesh that was opened with several queues, once there is one


def open_streams(device: torch.device) -> None:
    """From now on a thread that chooses another queue chooses its stream too."""
    SEVERAL_QUEUES[:] = [device]
    queue_id.on_change = _switch


@cache
def _stream(device: torch.device, queue: int) -> torch.cuda.Stream:
    return torch.cuda.default_stream(device) if queue == 0 else torch.cuda.Stream(device)


def stream_of(device: torch.device, queue: int) -> torch.cuda.Stream:
    """The stream of a queue; the current one where no mesh has several queues."""
    return _stream(device, queue) if SEVERAL_QUEUES else torch.cuda.current_stream(device)


def _switch(queue: int) -> None:
    torch.cuda.set_stream(_stream(SEVERAL_QUEUES[0], queue))


@contextmanager
def on_queue(queue: int) -> Iterator[None]:
    """What is launched in a `with` block goes to this queue."""
    if not SEVERAL_QUEUES or _is_current(queue):
        yield
        return
    with torch.cuda.stream(_stream(SEVERAL_QUEUES[0], queue)):
        yield


def _is_current(queue: int) -> bool:
    return torch.cuda.current_stream(SEVERAL_QUEUES[0]) == _stream(SEVERAL_QUEUES[0], queue)


def other_queue(named: Mapping[str, Any]) -> int | None:
    """The queue that a call names by keyword, if it is another than the one at work."""
    given = named.get("queue_id", named.get("cq_id"))
    if not SEVERAL_QUEUES or not isinstance(given, int | queue_id.QueueId) or isinstance(given, bool):
        return None
    return None if _is_current(int(given)) else int(given)


def wait_for_all_queues(queues: int) -> None:
    """Let the current stream wait for what all queues have launched so far."""
    if SEVERAL_QUEUES:
        current = torch.cuda.current_stream(SEVERAL_QUEUES[0])
        for queue in range(queues):
            current.wait_stream(_stream(SEVERAL_QUEUES[0], queue))
