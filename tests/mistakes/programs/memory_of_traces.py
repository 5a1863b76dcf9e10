"""Traces: memory that replays write over, and buffers that several traces share."""

import torch
from catalogue import Told, mistake, right

import softmesh as ttnn

TILES = ttnn.TILE_LAYOUT
OVER = "is made of memory that a replay has written over"
CORES = ttnn.CoreRangeSet([ttnn.CoreRange(ttnn.CoreCoord(0, 0), ttnn.CoreCoord(7, 7))])
CHANGES = "The tensor is right before the replay and another one behind it."


def copies(mesh, value=1.0):
    made = ttnn.from_torch(torch.full((32, 32), value), layout=TILES, device=mesh)
    ttnn.synchronize_device(mesh)
    return made


def read(tensor):
    return ttnn.to_torch(ttnn.get_device_tensors(tensor)[0])


def captured(mesh, work):
    work()
    ttnn.synchronize_device(mesh)
    trace = ttnn.begin_trace_capture(mesh, cq_id=0)
    result = work()
    ttnn.end_trace_capture(mesh, trace, cq_id=0)
    return trace, result


def layered(x):
    """An activation is freed on the way: what is allocated next lies there."""
    between = ttnn.relu(x)
    result = ttnn.add(between, 1.0)
    ttnn.deallocate(between)
    return result


def replay(mesh, *traces):
    for trace in traces:
        ttnn.execute_trace(mesh, trace, cq_id=0, blocking=True)


# -- tensors that were made behind a capture -----------------------------------------------------------


@mistake(
    Told.WARNING,
    OVER,
    "Allocate it before ttnn.begin_trace_capture",
    symptom=CHANGES,
    mend="Load all weights before the first capture.",
)
def a_weight_is_loaded_behind_a_capture(mesh):
    x = copies(mesh)
    trace, y = captured(mesh, lambda: layered(x))
    w = copies(mesh)
    replay(mesh, trace)
    read(ttnn.matmul(y, w))


@mistake(Told.WARNING, OVER, symptom=CHANGES, mend="Use a result before the next replay, or keep it on the host.")
def a_result_is_kept_over_a_replay(mesh):
    x = copies(mesh)
    trace, y = captured(mesh, lambda: layered(x))
    replay(mesh, trace)
    kept = ttnn.multiply(y, 2.0)
    replay(mesh, trace)
    read(kept)


@mistake(
    Told.WARNING,
    OVER,
    symptom="The running sum loses what was added before each replay.",
    mend="Allocate what is added up over replays before the capture.",
)
def a_sum_over_replays_lies_where_they_write(mesh):
    x = copies(mesh)
    trace, y = captured(mesh, lambda: layered(x))
    total = copies(mesh, 0.0)
    for _ in range(2):
        replay(mesh, trace)
        ttnn.add(total, y, output_tensor=total)
    read(total)


@right
def a_sum_over_replays_was_made_before_the_capture(mesh):
    x, total = copies(mesh), copies(mesh, 0.0)
    trace, y = captured(mesh, lambda: layered(x))
    for _ in range(2):
        replay(mesh, trace)
        ttnn.add(total, y, output_tensor=total)
    read(total)


@right
def results_are_used_before_the_next_replay(mesh):
    x = copies(mesh)
    trace, y = captured(mesh, lambda: layered(x))
    for _ in range(3):
        replay(mesh, trace)
        token = ttnn.multiply(y, 0.5)
        ttnn.copy(token, x)
        read(token)


@right
def a_tensor_behind_a_capture_is_written_before_each_use(mesh):
    x = copies(mesh)
    trace, y = captured(mesh, lambda: layered(x))
    mask = copies(mesh)
    for value in (1.0, 2.0):
        replay(mesh, trace)
        ttnn.copy_host_to_device_tensor(ttnn.from_torch(torch.full((32, 32), value), layout=TILES), mask)
        read(ttnn.multiply(y, mask))


@right
def a_released_trace_writes_over_nothing(mesh):
    x = copies(mesh)
    trace, _ = captured(mesh, lambda: layered(x))
    replay(mesh, trace)
    ttnn.release_trace(mesh, trace)
    later = copies(mesh)
    read(later)


# -- two traces ------------------------------------------------------------------------------------


@mistake(
    Told.WARNING,
    "execute_trace: what was captured at",
    "memory that a replay has written over",
    symptom="The second trace computes with what the first has left there.",
    mend="Allocate the inputs of all traces before the first capture.",
)
def an_input_of_the_second_trace_lies_where_the_first_writes(mesh):
    x = copies(mesh)
    first, _ = captured(mesh, lambda: layered(x))
    late = copies(mesh)
    second, z = captured(mesh, lambda: ttnn.exp(late))
    replay(mesh, first, second)
    read(z)


@mistake(
    Told.WARNING,
    OVER,
    symptom="The output of one trace changes when the other runs.",
    mend="Read the output of a trace before another trace runs.",
)
def the_output_of_the_second_trace_is_read_behind_the_first(mesh):
    x = copies(mesh)
    first, _ = captured(mesh, lambda: layered(x))
    second, z = captured(mesh, lambda: ttnn.exp(x))
    replay(mesh, second, first)
    read(z)


@right
def the_output_of_each_trace_is_read_behind_it(mesh):
    x = copies(mesh)
    first, y = captured(mesh, lambda: layered(x))
    second, z = captured(mesh, lambda: ttnn.exp(x))
    for _ in range(2):
        replay(mesh, first)
        read(y)
        replay(mesh, second)
        read(z)


@right
def inputs_of_two_traces_were_there_before_both(mesh):
    x, late = copies(mesh), copies(mesh)
    first, y = captured(mesh, lambda: layered(x))
    second, z = captured(mesh, lambda: layered(late))
    for _ in range(2):
        replay(mesh, first)
        read(y)
        replay(mesh, second)
        read(z)


@right
def one_trace_fills_a_cache_and_the_other_reads_it(mesh):
    cache = ttnn.zeros((1, 1, 64, 32), ttnn.float32, TILES, mesh)
    prompt = ttnn.zeros((1, 1, 32, 32), ttnn.float32, TILES, mesh)
    prefill, _ = captured(mesh, lambda: ttnn.fill_cache(cache, prompt, 0))
    decode, out = captured(mesh, lambda: ttnn.sum(ttnn.multiply(cache, 2.0), dim=-1))
    for _ in range(2):
        replay(mesh, prefill, decode, decode)
        read(out)


# -- persistent buffers of collectives ------------------------------------------------------------------


def gathers(mesh, buffers):
    """A trace for each buffer, which gathers into it."""
    mapper = ttnn.ShardTensor2dMesh(mesh, tuple(mesh.shape), dims=(None, -1))
    x = ttnn.from_torch(torch.ones(32, 128), layout=TILES, device=mesh, mesh_mapper=mapper)
    semaphores = [ttnn.create_global_semaphore(mesh, CORES, 0) for _ in range(2 * len(buffers))]
    ttnn.synchronize_device(mesh)

    def gathered(at):
        return ttnn.experimental.all_gather_async(
            x,
            persistent_output_buffer=buffers[at],
            dim=1,
            multi_device_global_semaphore=semaphores[2 * at : 2 * at + 2],
            cluster_axis=1,
            topology=ttnn.Topology.Linear,
        )

    made = []
    for at in range(len(buffers)):
        gathered(at)
        ttnn.synchronize_device(mesh)
        trace = ttnn.begin_trace_capture(mesh, cq_id=0)
        result = gathered(at)
        ttnn.end_trace_capture(mesh, trace, cq_id=0)
        made.append((trace, result))
    return made


def buffer(mesh):
    return ttnn.zeros((32, 128), ttnn.float32, TILES, mesh)


@mistake(
    Told.WARNING,
    "in a persistent buffer, which a replay of a trace",
    "take two buffers in turn",
    symptom="The first trace's result shows what the second has gathered.",
    mend="A buffer for each trace, or read the result before the other trace runs.",
)
def two_traces_gather_into_one_buffer(mesh):
    out = buffer(mesh)
    (first, y), (second, _) = gathers(mesh, [out, out])
    replay(mesh, first, second)
    read(y)


@right
def two_traces_gather_into_one_buffer_and_are_read_in_turn(mesh):
    out = buffer(mesh)
    for _ in range(2):
        for trace, result in gathers(mesh, [out, out]):
            replay(mesh, trace)
            read(result)


@right
def two_traces_gather_into_buffers_of_their_own(mesh):
    (first, y), (second, z) = gathers(mesh, [buffer(mesh), buffer(mesh)])
    for _ in range(2):
        replay(mesh, first, second)
        read(y)
        read(z)


# -- models that free their input --------------------------------------------------------------------


def a_model_that_frees_its_input(x):
    hidden = ttnn.relu(x)
    ttnn.deallocate(x)
    return ttnn.add(hidden, 1.0, memory_config=ttnn.DRAM_MEMORY_CONFIG)


def in_l1(mesh):
    return ttnn.to_memory_config(copies(mesh), ttnn.L1_MEMORY_CONFIG)


def captured_with_its_input(mesh, allocated):
    """The program allocates the input anew before the capture ends, and finds it where it was."""
    a_model_that_frees_its_input(in_l1(mesh))
    x = in_l1(mesh)
    spec, address = x.spec, x.buffer_address()
    trace = ttnn.begin_trace_capture(mesh, cq_id=0)
    y = a_model_that_frees_its_input(x)
    x = allocated(spec)
    ttnn.end_trace_capture(mesh, trace, cq_id=0)
    assert x.buffer_address() == address
    return trace, x, y


@right
def a_model_frees_its_input_and_the_memory_is_taken_back(mesh):
    trace, x, y = captured_with_its_input(mesh, lambda spec: ttnn.allocate_tensor_on_device(spec, mesh))
    for value in (1.0, 2.0):
        ttnn.copy_host_to_device_tensor(ttnn.from_torch(torch.full((32, 32), value), layout=TILES), x)
        ttnn.execute_trace(mesh, trace, cq_id=0, blocking=False)
        read(y)
    ttnn.release_trace(mesh, trace)


@right
def empty_memory_for_an_output_is_taken_in_a_capture(mesh):
    x = copies(mesh)

    def work():
        return ttnn.add(x, 1.0, output_tensor=ttnn.empty((32, 32), ttnn.float32, TILES, mesh))

    trace, y = captured(mesh, work)
    replay(mesh, trace)
    read(y)


@mistake(
    Told.WARNING,
    "execute_trace: what was captured at",
    "nothing was written to since ttnn.allocate_tensor_on_device",
    symptom="The first result is made of what the capture has left there.",
    mend="Write the input before the first replay.",
)
def the_memory_is_taken_back_and_nothing_written_there(mesh):
    trace, x, _ = captured_with_its_input(mesh, lambda spec: ttnn.allocate_tensor_on_device(spec, mesh))
    replay(mesh, trace)
    ttnn.deallocate(x)


def like_it(mesh):
    return ttnn.allocate_tensor_on_device((1, 32), ttnn.float32, TILES, mesh, ttnn.L1_MEMORY_CONFIG)


@mistake(
    Told.ERROR,
    "reads a tensor that has been deallocated since",
    "allocate it anew before ttnn.end_trace_capture",
    symptom="The replay takes whatever lies there now for its input.",
    mend="Allocate a tensor like the input in its place, and compare the addresses.",
)
def another_tensor_takes_the_memory_of_the_input(mesh):
    trace, x, _ = captured_with_its_input(mesh, lambda _: like_it(mesh))
    replay(mesh, trace)
    ttnn.deallocate(x)


# -- what a trace is still to make -------------------------------------------------------------------


@mistake(
    Told.WARNING,
    "execute_trace: what was captured at",
    "by a trace that has not run yet",
    symptom="The second trace works with what its input held before.",
    mend="Replay the trace that makes the input first.",
)
def the_second_trace_is_replayed_before_the_first(mesh):
    x = copies(mesh)
    _, y = captured(mesh, lambda: ttnn.relu(x))
    second, _ = captured(mesh, lambda: ttnn.exp(y))
    replay(mesh, second)


def captured_into(mesh, out):
    x = copies(mesh)
    ttnn.add(x, 1.0, output_tensor=copies(mesh))
    trace = ttnn.begin_trace_capture(mesh, cq_id=0)
    ttnn.add(x, 1.0, output_tensor=out)
    ttnn.end_trace_capture(mesh, trace, cq_id=0)
    return trace, x


@mistake(
    Told.WARNING,
    "is made by a trace that has not run yet",
    symptom="Values of whatever was in that memory before.",
    mend="Replay the trace before what it writes is read.",
)
def empty_memory_that_only_a_capture_has_written_is_read(mesh):
    out = ttnn.empty((32, 32), ttnn.float32, TILES, mesh)
    captured_into(mesh, out)
    read(out)


@right
def empty_memory_that_a_replay_has_written_is_read(mesh):
    out = ttnn.empty((32, 32), ttnn.float32, TILES, mesh)
    trace, _x = captured_into(mesh, out)
    for _ in range(2):
        replay(mesh, trace)
        read(out)


# -- semaphores that nobody keeps --------------------------------------------------------------------


def captured_with_semaphores_of_its_own(mesh):
    """The trace and its result; what it counts on goes with this function."""
    ((trace, result),) = gathers(mesh, [buffer(mesh)])
    return trace, result


@mistake(
    Told.WARNING,
    "execute_trace: what was captured at",
    "counts on a semaphore that is gone",
    symptom="The replay hangs, or a tensor in L1 changes by small numbers.",
    mend="Keep the semaphores of a trace until it is released.",
)
def semaphores_of_a_trace_are_dropped(mesh):
    x = copies(mesh)
    trace, _ = captured_with_semaphores_of_its_own(mesh)
    in_their_place = ttnn.to_memory_config(x, ttnn.L1_MEMORY_CONFIG)
    replay(mesh, trace)
    ttnn.deallocate(in_their_place)


@right
def semaphores_of_a_trace_are_kept(mesh):
    mapper = ttnn.ShardTensor2dMesh(mesh, tuple(mesh.shape), dims=(None, -1))
    x = ttnn.from_torch(torch.ones(32, 128), layout=TILES, device=mesh, mesh_mapper=mapper)
    two = [ttnn.create_global_semaphore(mesh, CORES, 0) for _ in range(2)]
    out, gather = buffer(mesh), ttnn.experimental.all_gather_async
    trace, y = captured(
        mesh,
        lambda: gather(x, persistent_output_buffer=out, dim=1, multi_device_global_semaphore=two, cluster_axis=1),
    )
    in_l1 = ttnn.to_memory_config(copies(mesh), ttnn.L1_MEMORY_CONFIG)
    replay(mesh, trace)
    read(y)
    read(in_l1)
