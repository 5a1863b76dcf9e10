"""Asynchronous collectives in traces: chips that run ahead between two replays."""

from catalogue import Told, mistake, right
from programs.persistent_buffers import buffer, gathered, semaphores, split
from programs.queues_and_traces import captured

import softmesh as ttnn


def a_trace_that_gathers(mesh, sets, calls, buffers=1, barrier=None):
    """Calls in a row, each with the next set of semaphores and the next buffer."""
    x, counting = split(mesh), [semaphores(mesh) for _ in range(sets)]
    outs = [buffer(mesh) for _ in range(buffers)]
    options = {} if barrier is None else {"barrier_semaphore": barrier}

    def work():
        for turn in range(calls):
            y = ttnn.relu(gathered(x, counting[turn % sets], outs[turn % buffers], **options))
        return y

    return captured(mesh, work)


@mistake(
    Told.SANITIZER,
    "a chip that is ahead",
    "replayed at",
    symptom="Replays in a row give other results than replays that are waited for, now and then.",
    mend="Give a barrier_semaphore, two buffers in turn, or wait between two replays.",
)
def a_trace_with_one_buffer_is_replayed_in_a_row(mesh):
    trace, _ = a_trace_that_gathers(mesh, sets=2, calls=1)
    for _ in range(2):
        ttnn.execute_trace(mesh, trace, cq_id=0, blocking=False)


@mistake(
    Told.SANITIZER,
    "a chip that is ahead counts on a semaphore that others still count on",
    "replayed at",
    symptom="The last collective of a replay and the first of the next count on one semaphore: a hang, now and then.",
    mend="Use an even number of sets in turn over the whole trace, or barrier semaphores.",
)
def the_last_and_the_first_collective_of_a_trace_share_semaphores(mesh):
    trace, _ = a_trace_that_gathers(mesh, sets=2, calls=3, buffers=3)
    for _ in range(2):
        ttnn.execute_trace(mesh, trace, cq_id=0, blocking=False)


@right
def a_trace_that_takes_all_in_turn_is_replayed_in_a_row(mesh):
    trace, y = a_trace_that_gathers(mesh, sets=2, calls=4, buffers=2)
    for _ in range(3):
        ttnn.execute_trace(mesh, trace, cq_id=0, blocking=False)
    ttnn.to_torch(ttnn.get_device_tensors(y)[0])


@right
def a_trace_with_one_buffer_and_a_barrier_is_replayed_in_a_row(mesh):
    trace, y = a_trace_that_gathers(mesh, sets=1, calls=2, barrier=semaphores(mesh, 1)[0])
    for _ in range(3):
        ttnn.execute_trace(mesh, trace, cq_id=0, blocking=False)
    ttnn.to_torch(ttnn.get_device_tensors(y)[0])


@right
def a_trace_with_one_buffer_is_replayed_and_waited_for(mesh):
    trace, y = a_trace_that_gathers(mesh, sets=1, calls=1)
    for blocking in (True, False):
        ttnn.execute_trace(mesh, trace, cq_id=0, blocking=blocking)
        ttnn.to_torch(ttnn.get_device_tensors(y)[0])
    ttnn.execute_trace(mesh, trace, cq_id=0, blocking=True)
    ttnn.execute_trace(mesh, trace, cq_id=0, blocking=False)
    ttnn.event_synchronize(ttnn.record_event(mesh, 0))
    ttnn.execute_trace(mesh, trace, cq_id=0, blocking=False)
