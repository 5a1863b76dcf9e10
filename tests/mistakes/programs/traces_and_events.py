"""Queues and traces: what cannot be recorded, and what is replayed on memory that is gone."""

import torch
from catalogue import Told, mistake, right

import softmesh as ttnn

TILES = ttnn.TILE_LAYOUT
REPLAYED = "The replay does what was recorded, with old addresses and without the transfer: old or torn values."


def put(mesh):
    return ttnn.from_torch(torch.ones(32, 32), layout=TILES, device=mesh, mesh_mapper=ttnn.ReplicateTensorToMesh(mesh))


def captured(mesh, x):
    ttnn.relu(x)
    number = ttnn.begin_trace_capture(mesh, cq_id=0)
    y = ttnn.relu(x)
    ttnn.end_trace_capture(mesh, number, cq_id=0)
    return number, y


@right
def a_trace_is_replayed_and_read(mesh):
    x = put(mesh)
    number, y = captured(mesh, x)
    ttnn.execute_trace(mesh, number, cq_id=0, blocking=True)
    ttnn.to_torch(ttnn.get_device_tensors(y)[0])
    ttnn.release_trace(mesh, number)


@right
def new_inputs_are_written_between_replays(mesh):
    x = put(mesh)
    number, y = captured(mesh, x)
    for value in (1.0, 2.0):
        ttnn.copy_host_to_device_tensor(ttnn.from_torch(torch.full((32, 32), value), layout=TILES), x)
        ttnn.execute_trace(mesh, number, cq_id=0, blocking=True)
        ttnn.to_torch(ttnn.get_device_tensors(y)[0])


@right
def random_numbers_are_drawn_behind_results_that_are_dropped(mesh):
    """They take no memory on a chip, and nothing lies where a result was."""
    x = put(mesh)

    def step():
        ttnn.relu(x)
        ttnn.bernoulli(x, seed=4)
        return ttnn.experimental.dropout(x, 0.1, 1 / 0.9, 5)

    step()
    number = ttnn.begin_trace_capture(mesh, cq_id=0)
    y = step()
    ttnn.end_trace_capture(mesh, number, cq_id=0)
    for _ in range(2):
        ttnn.execute_trace(mesh, number, cq_id=0, blocking=True)
        ttnn.to_torch(ttnn.get_device_tensors(y)[0])


@right
def random_numbers_are_drawn_in_a_trace(mesh):
    x = put(mesh)

    def step():
        kept = ttnn.experimental.dropout(ttnn.bernoulli(x, seed=3), 0.1, 1 / 0.9, 5)
        return ttnn.add(kept, ttnn.rand((32, 32), mesh, layout=TILES, seed=7))

    step()
    number = ttnn.begin_trace_capture(mesh, cq_id=0)
    y = step()
    ttnn.end_trace_capture(mesh, number, cq_id=0)
    for _ in range(2):
        ttnn.execute_trace(mesh, number, cq_id=0, blocking=True)
        ttnn.to_torch(ttnn.get_device_tensors(y)[0])


@mistake(
    Told.ERROR,
    "Writes are not supported during trace capture. from_torch was called on queue 0",
    symptom=REPLAYED,
    mend="Write inputs before the capture begins, into tensors that stay.",
)
def a_tensor_is_written_while_a_trace_is_recorded(mesh):
    ttnn.begin_trace_capture(mesh, cq_id=0)
    put(mesh)


@mistake(
    Told.ERROR,
    "Reads are not supported during trace capture",
    symptom=REPLAYED,
    mend="Read results after the capture has ended and was executed.",
)
def a_tensor_is_read_while_a_trace_is_recorded(mesh):
    x = put(mesh)
    ttnn.begin_trace_capture(mesh, cq_id=0)
    ttnn.to_torch(ttnn.get_device_tensors(x)[0])


@mistake(
    Told.ERROR,
    "Reads are not supported during trace capture. print was called on queue 0",
    symptom=REPLAYED,
    mend="Print it after the trace has run.",
)
def a_tensor_is_printed_while_a_trace_is_recorded(mesh):
    x = put(mesh)
    ttnn.relu(x)
    ttnn.begin_trace_capture(mesh, cq_id=0)
    str(ttnn.relu(x))


@mistake(
    Told.ERROR,
    "Tensor is not allocated: get_device_tensors needs its values, and it was deallocated at",
    symptom="Values of whatever the trace has put there since.",
    mend="Free no tensor in a capture that is read behind a replay.",
)
def what_a_capture_has_freed_is_read(mesh):
    x, kept = put(mesh), []

    def work():
        kept.append(ttnn.relu(x))
        result = ttnn.add(kept[-1], 1.0)
        ttnn.deallocate(kept[-1])
        return result

    work()
    number = ttnn.begin_trace_capture(mesh, cq_id=0)
    result = work()
    ttnn.end_trace_capture(mesh, number, cq_id=0)
    ttnn.execute_trace(mesh, number, cq_id=0, blocking=True)
    ttnn.to_torch(ttnn.get_device_tensors(kept[-1])[0])
    ttnn.deallocate(result)


@mistake(
    Told.ERROR,
    "Tensor is not allocated: get_device_tensors needs its values, and it was deallocated at",
    symptom="Works until something else is given that memory.",
    mend="Free the output of a trace when it is replayed no more.",
)
def the_output_of_a_trace_is_freed_and_read_behind_a_replay(mesh):
    x = put(mesh)
    number, y = captured(mesh, x)
    ttnn.deallocate(y)
    ttnn.execute_trace(mesh, number, cq_id=0, blocking=True)
    ttnn.to_torch(ttnn.get_device_tensors(y)[0])


@mistake(
    Told.ERROR,
    "runs here for the first time with these shapes, dtypes and arguments",
    symptom="Kernels are uploaded in the middle of the capture: it fails, or the replay runs half of them.",
    mend="Run the same calls once before the capture.",
)
def an_op_runs_for_the_first_time_while_a_trace_is_recorded(mesh):
    x = ttnn.reshape(put(mesh), (1, 1, 32, 32))
    ttnn.begin_trace_capture(mesh, cq_id=0)
    ttnn.tanh(x)


@mistake(
    Told.ERROR,
    "reads a tensor that has been deallocated since",
    symptom="The replay reads what lies there by now.",
    mend="Keep every input of a trace until it is released.",
)
def an_input_of_a_trace_is_freed(mesh):
    x = put(mesh)
    number, _ = captured(mesh, x)
    ttnn.deallocate(x)
    ttnn.execute_trace(mesh, number, cq_id=0)


@mistake(
    Told.ERROR,
    "reads a tensor that has been deallocated since",
    "the Python variable too",
    symptom="Python frees the tensor with its last name; the replay reads what lies there by now.",
    mend="Keep the inputs of a trace in variables that live as long as the trace.",
)
def the_last_name_of_an_input_of_a_trace_is_gone(mesh):
    number, _ = captured(mesh, put(mesh))
    ttnn.execute_trace(mesh, number, cq_id=0)


@mistake(
    Told.ERROR,
    "Trace",
    "released",
    symptom="The replay runs commands that were written over.",
    mend="Release a trace when it is replayed no more.",
)
def a_trace_is_replayed_after_its_release(mesh):
    number, _ = captured(mesh, put(mesh))
    ttnn.release_trace(mesh, number)
    ttnn.execute_trace(mesh, number, cq_id=0)


@mistake(
    Told.ERROR,
    "CQ 0 is already being used for tracing",
    symptom="The first capture is lost.",
    mend="End one capture before the next begins.",
)
def a_capture_within_a_capture(mesh):
    ttnn.begin_trace_capture(mesh, cq_id=0)
    ttnn.begin_trace_capture(mesh, cq_id=0)


@right
def one_capture_after_the_other(mesh):
    x = put(mesh)
    for _ in range(2):
        number, _ = captured(mesh, x)
        ttnn.execute_trace(mesh, number, cq_id=0)


@mistake(
    Told.ERROR,
    "cq_id 1 is out of range: this mesh was opened with 1 command queue",
    symptom="A crash in the dispatcher.",
    mend="open_mesh_device(..., num_command_queues=2).",
)
def a_queue_that_is_not_there(mesh):
    ttnn.from_torch(torch.ones(32, 32), layout=TILES, device=mesh, cq_id=1)


@right
def a_second_queue_with_an_event_between():
    mesh = ttnn.open_mesh_device(ttnn.MeshShape(1, 2), num_command_queues=2)
    x = put(mesh)
    done = ttnn.record_event(mesh, 0)
    ttnn.wait_for_event(1, done)
    ttnn.copy_host_to_device_tensor(ttnn.from_torch(torch.ones(32, 32), layout=TILES), x, cq_id=1)
    written = ttnn.record_event(mesh, 1)
    ttnn.wait_for_event(0, written)
    ttnn.relu(x)


@mistake(
    Told.SANITIZER,
    "queue",
    symptom="The op reads old, new or torn values, in some runs only.",
    mend="Record an event on the queue that writes, and let the queue that reads wait for it.",
)
def two_queues_without_an_event():
    mesh = ttnn.open_mesh_device(ttnn.MeshShape(1, 2), num_command_queues=2)
    x = put(mesh)
    ttnn.copy_host_to_device_tensor(ttnn.from_torch(torch.ones(32, 32), layout=TILES), x, cq_id=1)
    ttnn.relu(x)
