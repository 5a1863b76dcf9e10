"""Queues, events, traces and overlapping meshes."""

import torch
from catalogue import Told, mistake, right

import softmesh as ttnn

TILES = ttnn.TILE_LAYOUT


def two_queues():
    return ttnn.open_mesh_device(ttnn.MeshShape(2, 4), trace_region_size=1 << 20, num_command_queues=2)


def copies(mesh):
    made = ttnn.from_torch(torch.ones(32, 32), layout=TILES, device=mesh)
    ttnn.synchronize_device(mesh)
    return made


def on_host(value=2.0):
    return ttnn.from_torch(torch.full((32, 32), value), layout=TILES)


def read(tensor, **options):
    return ttnn.to_torch(ttnn.get_device_tensors(tensor)[0], **options)


# -- two queues ------------------------------------------------------------------------------------


@mistake(
    Told.SANITIZER,
    "queue 0 reads what queue 1 may still be writing",
    "ttnn.wait_for_event(0, event)",
    symptom="The op computes with the old input, or half of the new one.",
    mend="Record an event behind the write, and let the queue of the op wait for it.",
)
def an_input_is_written_on_the_other_queue():
    mesh = two_queues()
    x = copies(mesh)
    ttnn.copy_host_to_device_tensor(on_host(), x, cq_id=1)
    ttnn.relu(x)


@mistake(
    Told.SANITIZER,
    "queue 1 reads what queue 0 may still be writing",
    symptom="The host reads the output before it is computed.",
    mend="Let the reading queue wait for an event that is recorded behind the op.",
)
def an_output_is_read_on_the_other_queue():
    mesh = two_queues()
    read(ttnn.relu(copies(mesh)), cq_id=1)


@mistake(
    Told.SANITIZER,
    "queue 0 reads what queue 1 may still be writing",
    symptom="The event was over before the write began: nothing is ordered by it.",
    mend="Record the event behind the write.",
)
def an_event_is_recorded_before_the_write():
    mesh = two_queues()
    x = copies(mesh)
    event = ttnn.record_event(mesh, 1)
    ttnn.copy_host_to_device_tensor(on_host(), x, cq_id=1)
    ttnn.wait_for_event(0, event)
    ttnn.relu(x)


@mistake(
    Told.SANITIZER,
    "queue 1 writes what queue 0 may still be reading",
    symptom="The second input reaches the op that should have had the first.",
    mend="Let the writing queue wait for an event that is recorded behind the op.",
)
def the_next_input_is_written_while_the_op_reads():
    mesh = two_queues()
    x = copies(mesh)
    for _ in range(2):
        ttnn.copy_host_to_device_tensor(on_host(), x, cq_id=1)
        ttnn.wait_for_event(0, ttnn.record_event(mesh, 1))
        ttnn.relu(x)


@mistake(
    Told.SANITIZER,
    "reused memory: queue 0 writes what queue 1 may still be reading",
    symptom="What arrives on the host is another tensor, that was given the same memory.",
    mend="Wait for the read before the tensor is deallocated.",
)
def memory_is_freed_while_the_other_queue_reads_it():
    mesh = two_queues()
    x, y = copies(mesh), copies(mesh)
    ttnn.from_device(x, blocking=False, queue_id=1)
    ttnn.deallocate(x)
    ttnn.relu(y)


@right
def events_go_both_ways():
    mesh = two_queues()
    x, done = copies(mesh), ttnn.record_event(mesh, 0)
    for _ in range(3):
        ttnn.wait_for_event(1, done)
        ttnn.copy_host_to_device_tensor(on_host(), x, cq_id=1)
        ttnn.wait_for_event(0, ttnn.record_event(mesh, 1))
        y = ttnn.relu(x)
        done = ttnn.record_event(mesh, 0)
    ttnn.wait_for_event(1, done)
    read(y, cq_id=1)


@right
def the_host_waits_between_two_queues():
    mesh = two_queues()
    x = copies(mesh)
    ttnn.copy_host_to_device_tensor(on_host(), x, cq_id=1)
    ttnn.synchronize_device(mesh)
    read(ttnn.relu(x))


# -- reads that do not block -------------------------------------------------------------------------


@mistake(
    Told.SANITIZER,
    "the host uses what queue 0 may still be writing",
    "ttnn.synchronize_device(mesh_device, 0)",
    symptom="The host tensor holds zeros, or what it held before.",
    mend="Wait for the read: synchronize_device, an event, or blocking=True.",
)
def a_read_that_does_not_block_is_used_at_once(mesh):
    arriving = ttnn.relu(copies(mesh)).cpu(blocking=False)
    ttnn.to_torch(ttnn.get_device_tensors(arriving)[0])


@mistake(
    Told.SANITIZER,
    "the host uses what queue 0 may still be writing",
    symptom="The host has waited for a queue that had nothing to do with it.",
    mend="Wait for the queue that the read was put on.",
)
def the_host_waits_for_the_wrong_queue():
    mesh = two_queues()
    arriving = ttnn.relu(copies(mesh)).cpu(blocking=False)
    ttnn.synchronize_device(mesh, 1)
    ttnn.to_torch(ttnn.get_device_tensors(arriving)[0])


@mistake(
    Told.SANITIZER,
    "the host uses what queue 0 may still be writing",
    "the host uses it: print",
    symptom="What is printed is not what the tensor holds a moment later.",
    mend="Wait for the read before its result is printed.",
)
def a_read_that_does_not_block_is_printed(mesh):
    str(ttnn.relu(copies(mesh)).cpu(blocking=False))


@mistake(
    Told.SANITIZER,
    "the host uses what queue 0 may still be writing",
    "the host uses it: dump_tensor",
    symptom="The file holds zeros, or half of the tensor.",
    mend="Wait for the read before its result goes to a file.",
)
def a_read_that_does_not_block_is_saved(mesh, folder):
    ttnn.dump_tensor(folder / "late.tensorbin", ttnn.relu(copies(mesh)).cpu(blocking=False))


@mistake(
    Told.SANITIZER,
    "the host uses what queue 0 may still be writing",
    symptom="Shards are put together before they are there.",
    mend="Wait for the read before its shards are used.",
)
def shards_of_a_read_that_does_not_block_are_put_together(mesh):
    shards = ttnn.get_device_tensors(ttnn.relu(copies(mesh)).cpu(blocking=False))
    ttnn.to_torch(ttnn.from_host_shards(shards, mesh.shape), mesh_composer=ttnn.ConcatMeshToTensor(mesh, dim=0))


@right
def shards_are_put_together_and_used_when_the_read_is_over(mesh, folder):
    arriving = ttnn.relu(copies(mesh)).cpu(blocking=False)
    whole = ttnn.from_host_shards(ttnn.get_device_tensors(arriving), mesh.shape)
    ttnn.synchronize_device(mesh)
    str(whole)
    ttnn.dump_tensor(folder / "whole.tensorbin", arriving)


@right
def a_read_that_does_not_block_is_waited_for(mesh):
    arriving = ttnn.relu(copies(mesh)).cpu(blocking=False)
    ttnn.synchronize_device(mesh)
    ttnn.to_torch(ttnn.get_device_tensors(arriving)[0])


# -- traces ------------------------------------------------------------------------------------------


def captured(mesh, work):
    work()
    trace = ttnn.begin_trace_capture(mesh, cq_id=0)
    result = work()
    ttnn.end_trace_capture(mesh, trace, cq_id=0)
    return trace, result


@mistake(
    Told.WARNING,
    "is made by a trace that has not run yet",
    "Call ttnn.execute_trace first",
    symptom="The output holds what was in that memory before: a capture computes nothing.",
    mend="Replay the trace before its output is read.",
)
def the_output_of_a_trace_is_read_before_it_runs(mesh):
    x = copies(mesh)
    _, y = captured(mesh, lambda: ttnn.relu(x))
    read(y)


@mistake(
    Told.WARNING,
    "is made by a trace that has not run yet",
    symptom="All that is computed from the output is made of old memory.",
    mend="Replay the trace first.",
)
def the_output_of_a_trace_is_worked_with_before_it_runs(mesh):
    x = copies(mesh)
    _, y = captured(mesh, lambda: ttnn.relu(x))
    read(ttnn.add(y, 1.0))


@mistake(
    Told.WARNING,
    "was never ended",
    "ttnn.end_trace_capture(mesh_device, trace_id, cq_id)",
    symptom="Nothing of what was called has run, and there is no trace.",
    mend="End every capture that begins.",
)
def a_capture_is_never_ended(mesh):
    x = copies(mesh)
    ttnn.relu(x)
    ttnn.begin_trace_capture(mesh, cq_id=0)
    ttnn.relu(x)
    ttnn.close_mesh_device(mesh)


@mistake(
    Told.ERROR,
    "Reads are not supported during trace capture",
    symptom="The read hangs or returns old memory.",
    mend="Read after the capture has ended and the trace has run.",
)
def the_host_reads_while_a_trace_is_captured(mesh):
    x = copies(mesh)
    ttnn.relu(x)
    ttnn.begin_trace_capture(mesh, cq_id=0)
    read(ttnn.relu(x))


@mistake(
    Told.ERROR,
    "Writes are not supported during trace capture",
    symptom="The write is lost, or stops the capture.",
    mend="Set semaphores back before the capture.",
)
def a_semaphore_is_set_back_while_a_trace_is_captured(mesh):
    where = ttnn.CoreRangeSet([ttnn.CoreRange(ttnn.CoreCoord(0, 0), ttnn.CoreCoord(7, 7))])
    semaphore = ttnn.create_global_semaphore(mesh, where, 0)
    ttnn.begin_trace_capture(mesh, cq_id=0)
    ttnn.reset_global_semaphore_value(semaphore, 0)


@mistake(
    Told.ERROR,
    "reads a tensor that has been deallocated since",
    symptom="Replays read whatever was given that memory.",
    mend="Keep the inputs of a trace until it is released, and overwrite them in place.",
)
def an_input_of_a_trace_is_replaced_by_a_new_tensor(mesh):
    x = copies(mesh)
    trace, _ = captured(mesh, lambda: ttnn.relu(x))
    x = copies(mesh)
    ttnn.execute_trace(mesh, trace, cq_id=0, blocking=True)


@mistake(
    Told.WARNING,
    "is made of memory that a replay has written over",
    "Allocate it before ttnn.begin_trace_capture",
    symptom="A tensor that was made after the capture changes at each replay.",
    mend="Allocate it before the capture, or deallocate it before the replay.",
)
def a_replay_overwrites_what_was_allocated_later(mesh):
    x = copies(mesh)

    def work():
        between = ttnn.relu(x)
        result = ttnn.add(between, 1.0)
        ttnn.deallocate(between)
        return result

    trace, _ = captured(mesh, work)
    later = copies(mesh)
    ttnn.execute_trace(mesh, trace, cq_id=0, blocking=True)
    read(later)


@right
def a_trace_runs_before_its_output_is_read(mesh):
    x = copies(mesh)
    trace, y = captured(mesh, lambda: ttnn.relu(x))
    for _ in range(2):
        ttnn.copy_host_to_device_tensor(on_host(), x)
        ttnn.execute_trace(mesh, trace, cq_id=0, blocking=False)
        read(y)
    ttnn.release_trace(mesh, trace)


@right
def the_output_of_a_trace_is_the_input_of_the_next(mesh):
    x = copies(mesh)
    first, y = captured(mesh, lambda: ttnn.relu(x))
    ttnn.execute_trace(mesh, first, cq_id=0, blocking=True)
    second, z = captured(mesh, lambda: ttnn.add(y, 1.0))
    for trace in (first, second):
        ttnn.execute_trace(mesh, trace, cq_id=0, blocking=True)
    read(z)
    for trace in (first, second):
        ttnn.release_trace(mesh, trace)


# -- overlapping meshes ------------------------------------------------------------------------------


@mistake(
    Told.SANITIZER,
    "which a tensor of another mesh on the same chips has overwritten",
    symptom="A tensor of the whole mesh holds a submesh's values on some chips.",
    mend="Keep tensors on one of them at a time, and bring over what is needed.",
)
def a_tensor_of_a_submesh_lies_over_one_of_the_mesh(mesh):
    x = copies(mesh)
    part = mesh.create_submesh(ttnn.MeshShape(1, 4))
    copies(part)
    read(x)


@mistake(
    Told.SANITIZER,
    "which a tensor of another mesh on the same chips has overwritten",
    symptom="Two models on overlapping submeshes damage each other's tensors.",
    mend="Take submeshes that do not overlap, or deallocate and quiesce in between.",
)
def two_submeshes_share_chips(mesh):
    row, square = mesh.create_submesh(ttnn.MeshShape(1, 4)), mesh.create_submesh(ttnn.MeshShape(2, 2))
    x, _ = copies(row), copies(square)
    ttnn.relu(x)


@right
def submeshes_that_share_no_chip(mesh):
    for part in mesh.create_submeshes(ttnn.MeshShape(1, 4)):
        read(ttnn.relu(copies(part)))


@right
def a_submesh_is_used_after_the_mesh_has_come_to_rest(mesh):
    read(ttnn.relu(copies(mesh)))
    part = mesh.create_submesh(ttnn.MeshShape(1, 4))
    mesh.quiesce_devices()
    read(ttnn.relu(copies(part)))
    mesh.quiesce_devices()


# -- more that is right ------------------------------------------------------------------------------


@right
def an_output_is_read_on_the_other_queue_behind_an_event():
    mesh = two_queues()
    y = ttnn.relu(copies(mesh))
    ttnn.wait_for_event(1, ttnn.record_event(mesh, 0))
    read(y, cq_id=1)


@right
def an_event_is_recorded_behind_the_write():
    mesh = two_queues()
    x = copies(mesh)
    ttnn.copy_host_to_device_tensor(on_host(), x, cq_id=1)
    event = ttnn.record_event(mesh, 1)
    ttnn.wait_for_event(0, event)
    ttnn.relu(x)


@right
def memory_is_freed_once_the_other_queue_has_read_it():
    mesh = two_queues()
    x, y = copies(mesh), copies(mesh)
    ttnn.from_device(x, blocking=False, queue_id=1)
    ttnn.synchronize_device(mesh, 1)
    ttnn.deallocate(x)
    ttnn.relu(y)


@right
def a_read_that_does_not_block_is_waited_for_by_an_event(mesh):
    arriving = ttnn.relu(copies(mesh)).cpu(blocking=False)
    ttnn.event_synchronize(ttnn.record_event(mesh, 0))
    ttnn.to_torch(ttnn.get_device_tensors(arriving)[0])


@right
def what_was_allocated_before_a_capture_stays(mesh):
    x, earlier = copies(mesh), copies(mesh)
    trace, y = captured(mesh, lambda: ttnn.relu(x))
    ttnn.execute_trace(mesh, trace, cq_id=0, blocking=True)
    read(earlier)
    read(y)
    ttnn.release_trace(mesh, trace)


@right
def a_trace_is_fed_on_the_other_queue_between_events():
    mesh = two_queues()
    x = copies(mesh)
    trace, y = captured(mesh, lambda: ttnn.relu(x))
    done = ttnn.record_event(mesh, 0)
    for _ in range(2):
        ttnn.wait_for_event(1, done)
        ttnn.copy_host_to_device_tensor(on_host(), x, cq_id=1)
        ttnn.wait_for_event(0, ttnn.record_event(mesh, 1))
        ttnn.execute_trace(mesh, trace, cq_id=0, blocking=False)
        done = ttnn.record_event(mesh, 0)
    read(y)
    ttnn.release_trace(mesh, trace)


@right
def what_warmed_up_before_a_capture_has_run_when_the_capture_ends():
    mesh = two_queues()
    x = copies(mesh)
    trace, y = captured(mesh, lambda: ttnn.relu(x))
    ttnn.copy_host_to_device_tensor(on_host(), x, cq_id=1)
    ttnn.wait_for_event(0, ttnn.record_event(mesh, 1))
    ttnn.execute_trace(mesh, trace, cq_id=0, blocking=True)
    read(y, cq_id=1)
    ttnn.release_trace(mesh, trace)


@right
def semaphores_are_set_back_before_a_capture(mesh):
    where = ttnn.CoreRangeSet([ttnn.CoreRange(ttnn.CoreCoord(0, 0), ttnn.CoreCoord(7, 7))])
    ttnn.reset_global_semaphore_value(ttnn.create_global_semaphore(mesh, where, 0), 0)
    x = copies(mesh)
    trace, _ = captured(mesh, lambda: ttnn.relu(x))
    ttnn.release_trace(mesh, trace)


@right
def a_tensor_goes_from_the_mesh_to_a_submesh_over_the_host(mesh):
    x = ttnn.from_device(copies(mesh))
    part = mesh.create_submesh(ttnn.MeshShape(1, 4))
    mesh.quiesce_devices()
    y = ttnn.from_torch(ttnn.to_torch(ttnn.get_device_tensors(x)[0]), layout=TILES, device=part)
    read(ttnn.relu(y))
    mesh.quiesce_devices()


@right
def a_submesh_is_used_alone(mesh):
    part = mesh.create_submesh(ttnn.MeshShape(2, 2))
    x = copies(part)
    read(ttnn.add(x, ttnn.relu(x)))
