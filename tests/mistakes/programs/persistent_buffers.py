"""Asynchronous collectives: buffers and semaphores that serve call after call."""

import torch
from catalogue import Told, mistake, right, unknowable

import softmesh as ttnn

TILES = ttnn.TILE_LAYOUT


def cores(first, last):
    return ttnn.CoreRangeSet([ttnn.CoreRange(ttnn.CoreCoord(*first), ttnn.CoreCoord(*last))])


ALL = cores((0, 0), (7, 7))
LEFT, RIGHT = cores((0, 0), (3, 7)), cores((4, 0), (7, 7))


def split(mesh, value=1.0):
    mapper = ttnn.ShardTensor2dMesh(mesh, tuple(mesh.shape), dims=(None, -1))
    return ttnn.from_torch(torch.full((128, 128), value), layout=TILES, device=mesh, mesh_mapper=mapper)


def buffer(mesh):
    return ttnn.zeros((128, 128), ttnn.float32, TILES, mesh)


def semaphores(mesh, count=2, where=ALL):
    return [ttnn.create_global_semaphore(mesh, where, 0) for _ in range(count)]


def gathered(x, counting, out=None, **options):
    return ttnn.experimental.all_gather_async(
        x,
        persistent_output_buffer=out,
        dim=1,
        multi_device_global_semaphore=counting,
        cluster_axis=1,
        topology=ttnn.Topology.Linear,
        **options,
    )


# -- results that were overwritten -----------------------------------------------------------------


@mistake(
    Told.WARNING,
    "in a persistent buffer, which experimental.all_gather_async",
    "take two buffers in turn",
    symptom="The first result shows the values of the second call.",
    mend="Use a result before its buffer is used again, or take two buffers in turn.",
)
def a_result_is_used_after_its_buffer_was_used_again(mesh):
    counting, out = semaphores(mesh, 4), buffer(mesh)
    first = gathered(split(mesh), counting[:2], out)
    second = gathered(split(mesh, 3.0), counting[2:], out)
    ttnn.add(first, second)


@mistake(
    Told.WARNING,
    "get_device_tensors: the tensor (128, 128) is the result of experimental.all_gather_async",
    symptom="What the host reads of the first result belongs to the second.",
    mend="Read a result before its buffer is used again.",
)
def a_result_is_read_after_its_buffer_was_used_again(mesh):
    counting, out = semaphores(mesh, 4), buffer(mesh)
    first = gathered(split(mesh), counting[:2], out)
    gathered(split(mesh, 3.0), counting[2:], out)
    ttnn.to_torch(ttnn.get_device_tensors(first)[0])


@mistake(
    Told.WARNING,
    "to_torch: the tensor (128, 128) is the result of experimental.all_gather_async",
    symptom="Shards that were taken earlier show the values of the second call.",
    mend="Read the shards of a result before its buffer is used again.",
)
def shards_of_a_result_are_read_after_its_buffer_was_used_again(mesh):
    counting, out = semaphores(mesh, 4), buffer(mesh)
    shards = ttnn.get_device_tensors(gathered(split(mesh), counting[:2], out))
    gathered(split(mesh, 3.0), counting[2:], out)
    ttnn.to_torch(shards[0])


@mistake(
    Told.WARNING,
    "relu: the tensor (1, 1, 128, 128) is the result of experimental.all_gather_async",
    symptom="The reshaped result shows the values of the second call.",
    mend="A reshape lies in the same memory: use it before the buffer is used again.",
)
def a_reshaped_result_is_used_after_its_buffer_was_used_again(mesh):
    counting, out = semaphores(mesh, 4), buffer(mesh)
    first = ttnn.unsqueeze_to_4D(gathered(split(mesh), counting[:2], out))
    gathered(split(mesh, 3.0), counting[2:], out)
    ttnn.relu(first)


@right
def a_reshaped_result_is_used_and_changed_in_place(mesh):
    counting, barriers, out = semaphores(mesh, 4), semaphores(mesh), buffer(mesh)
    of_the_buffer = ttnn.unsqueeze_to_4D(out)
    for turn in range(2):
        whole = gathered(split(mesh), counting[2 * turn : 2 * turn + 2], out, barrier_semaphore=barriers[turn])
        reshaped = ttnn.reshape(ttnn.unsqueeze_to_4D(whole), (1, 128, 128))
        ttnn.add(reshaped, 1.0, output_tensor=reshaped)
        ttnn.relu(reshaped)
        ttnn.relu(of_the_buffer)


@mistake(
    Told.WARNING,
    "which copy_host_to_device_tensor",
    "has overwritten since",
    symptom="The op works with what the host wrote, not with the gathered tensor.",
    mend="Write inputs into tensors of their own, not into a collective's buffer.",
)
def the_host_writes_into_a_buffer_whose_result_is_used(mesh):
    out = buffer(mesh)
    whole = gathered(split(mesh), semaphores(mesh), out)
    ttnn.copy_host_to_device_tensor(ttnn.from_torch(torch.ones(128, 128), layout=TILES), out)
    ttnn.relu(whole)


@mistake(
    Told.WARNING,
    "which multiply",
    "has overwritten since",
    symptom="The sum is computed of the product that took the buffer.",
    mend="Give the op an output tensor that is no collective's buffer.",
)
def an_op_writes_into_a_buffer_whose_result_is_used(mesh):
    out = buffer(mesh)
    whole = gathered(split(mesh), semaphores(mesh), out)
    ttnn.multiply(buffer(mesh), 2.0, output_tensor=out)
    ttnn.sum(whole)


@mistake(
    Told.WARNING,
    "buffer_tensor is the input tensor too",
    symptom="Neighbours overwrite what this chip has not sent yet: the sum has some contributions twice.",
    mend="Allocate a buffer of its own for what passes through.",
)
def the_buffer_of_a_sum_is_its_input(mesh):
    x = ttnn.matmul(split(mesh), ttnn.from_torch(torch.ones(32, 128), layout=TILES, device=mesh))
    one = semaphores(mesh, 1)[0]
    ttnn.experimental.all_reduce_async(x, x, cluster_axis=1, mesh_device=mesh, multi_device_global_semaphore=one)


@right
def a_result_is_used_before_its_buffer_is_used_again(mesh):
    counting, barriers, out = semaphores(mesh, 4), semaphores(mesh), buffer(mesh)
    for turn in range(2):
        whole = gathered(split(mesh), counting[2 * turn : 2 * turn + 2], out, barrier_semaphore=barriers[turn])
        ttnn.relu(whole)


@right
def the_buffer_itself_is_read_by_its_own_name(mesh):
    counting, barriers, out = semaphores(mesh, 4), semaphores(mesh), buffer(mesh)
    for turn in range(2):
        gathered(split(mesh), counting[2 * turn : 2 * turn + 2], out, barrier_semaphore=barriers[turn])
    ttnn.relu(out)


@right
def a_result_is_changed_in_place(mesh):
    whole = gathered(split(mesh), semaphores(mesh), buffer(mesh))
    ttnn.copy_host_to_device_tensor(ttnn.from_torch(torch.ones(128, 128), layout=TILES), whole)
    ttnn.to_torch(ttnn.get_device_tensors(whole)[0])


@right
def a_buffer_is_written_by_a_trace_again_and_again(mesh):
    x, counting, out = split(mesh), semaphores(mesh), buffer(mesh)
    gathered(x, counting, out)
    ttnn.synchronize_device(mesh)
    trace = ttnn.begin_trace_capture(mesh, cq_id=0)
    whole = gathered(x, counting, out)
    ttnn.end_trace_capture(mesh, trace, cq_id=0)
    for _ in range(2):
        ttnn.execute_trace(mesh, trace, cq_id=0, blocking=True)
        ttnn.to_torch(ttnn.get_device_tensors(whole)[0])
    ttnn.release_trace(mesh, trace)


# -- chips that run ahead --------------------------------------------------------------------------


@mistake(
    Told.SANITIZER,
    "a chip that is ahead writes into a buffer that others still use",
    "barrier_semaphore",
    symptom="Now and then a chip computes with parts of the next step's values.",
    mend="Give a barrier_semaphore, take two buffers in turn, or wait in between.",
)
def a_buffer_is_used_again_without_a_barrier(mesh):
    counting, out, x = semaphores(mesh, 4), buffer(mesh), split(mesh)
    for turn in range(2):
        ttnn.relu(gathered(x, counting[2 * turn : 2 * turn + 2], out))


@mistake(
    Told.SANITIZER,
    "a chip that is ahead counts on a semaphore that others still count on",
    "two sets of semaphores in turn",
    symptom="A hang, or values that had not come yet, on some runs.",
    mend="Take two sets of semaphores in turn, or a barrier_semaphore.",
)
def the_same_semaphores_are_used_in_two_calls_in_a_row(mesh):
    counting, x = semaphores(mesh), split(mesh)
    gathered(x, counting, buffer(mesh))
    gathered(x, counting, buffer(mesh))


@mistake(
    Told.SANITIZER,
    "a chip that is ahead counts on a semaphore that others still count on",
    symptom="A hang, or values that had not come yet, on some runs.",
    mend="Give the barrier_semaphore that was meant, not None.",
)
def a_barrier_that_is_none(mesh):
    counting, x = semaphores(mesh), split(mesh)
    for _ in range(2):
        gathered(x, counting, buffer(mesh), barrier_semaphore=None)


@mistake(
    Told.SANITIZER,
    "a chip that is ahead writes into a buffer that others still use",
    symptom="Sums of some chips have a neighbour's contribution of the next step.",
    mend="Each call in a row needs an intermediate buffer of its own, or a barrier_semaphore.",
)
def the_same_scratch_is_used_in_two_sums_in_a_row(mesh):
    mapper = ttnn.ReplicateTensorToMesh(mesh)
    scratch = ttnn.from_torch(torch.zeros(128, 512), layout=TILES, device=mesh, mesh_mapper=mapper)
    one, other = semaphores(mesh, 2)
    w = ttnn.from_torch(torch.ones(32, 128), layout=TILES, device=mesh)
    x = ttnn.matmul(split(mesh), w)
    for counting in (one, other):
        ttnn.experimental.all_reduce_async(
            x, scratch, cluster_axis=1, mesh_device=mesh, multi_device_global_semaphore=counting
        )


@right
def two_buffers_and_two_sets_of_semaphores_in_turn(mesh):
    counting, buffers, x = semaphores(mesh, 4), [buffer(mesh), buffer(mesh)], split(mesh)
    for turn in (0, 1, 0, 1):
        ttnn.relu(gathered(x, counting[2 * turn : 2 * turn + 2], buffers[turn]))


@right
def one_buffer_with_a_barrier(mesh):
    counting, barrier, out, x = semaphores(mesh), semaphores(mesh, 1)[0], buffer(mesh), split(mesh)
    for _ in range(3):
        ttnn.relu(gathered(x, counting, out, barrier_semaphore=barrier))


@right
def one_buffer_and_a_host_that_waits(mesh):
    counting, out, x = semaphores(mesh), buffer(mesh), split(mesh)
    for _ in range(2):
        ttnn.relu(gathered(x, counting, out))
        ttnn.synchronize_device(mesh)


@right
def one_buffer_whose_result_is_read_by_the_host_each_time(mesh):
    counting, out, x = semaphores(mesh), buffer(mesh), split(mesh)
    for _ in range(2):
        ttnn.to_torch(ttnn.get_device_tensors(gathered(x, counting, out))[0])


@right
def semaphores_are_set_back_between_two_calls(mesh):
    counting, x = semaphores(mesh), split(mesh)
    for _ in range(2):
        gathered(x, counting, buffer(mesh))
        ttnn.synchronize_device(mesh)
        for semaphore in counting:
            ttnn.reset_global_semaphore_value(semaphore, 0)


@right
def another_collective_comes_between(mesh):
    counting, out, x = semaphores(mesh), buffer(mesh), split(mesh)
    for _ in range(2):
        ttnn.relu(gathered(x, counting, out))
        ttnn.all_gather(x, 1, cluster_axis=1)


# -- cores that have the semaphore -----------------------------------------------------------------


@mistake(
    Told.WARNING,
    "1 of which are among those that the op may run on",
    symptom="The op counts in L1 that belongs to something else: a hang, or another tensor is damaged.",
    mend="Make semaphores on all cores of the grid, or of the sub-device.",
)
def a_semaphore_on_one_core(mesh):
    gathered(split(mesh), semaphores(mesh, 2, cores((0, 0), (0, 0))))


def halved(mesh):
    halves = [ttnn.SubDevice([LEFT]), ttnn.SubDevice([RIGHT])]
    mesh.load_sub_device_manager(mesh.create_sub_device_manager(halves, 3200))


@mistake(
    Told.WARNING,
    "0 of which are among those that the op may run on",
    symptom="The op waits for ever for a semaphore that lies on other cores.",
    mend="Make semaphores on the cores of the sub-device that the op runs on.",
)
def a_semaphore_of_another_sub_device(mesh):
    halved(mesh)
    gathered(split(mesh), semaphores(mesh, 2, LEFT), subdevice_id=ttnn.SubDeviceId(1))


@mistake(
    Told.WARNING,
    "barrier_semaphore lies on the cores",
    symptom="The barrier lets chips through that have not come, or none at all.",
    mend="Make the barrier on the cores that sub_core_grids names.",
)
def a_barrier_on_other_cores_than_the_op(mesh):
    barrier = semaphores(mesh, 1, cores((7, 7), (7, 7)))[0]
    gathered(split(mesh), semaphores(mesh), barrier_semaphore=barrier, sub_core_grids=cores((0, 0), (3, 3)))


@mistake(
    Told.WARNING,
    "are the same semaphore, which would count for both",
    symptom="The barrier counts arrived data: chips begin too early.",
    mend="Make a semaphore for the barrier alone.",
)
def the_barrier_counts_data_too(mesh):
    counting = semaphores(mesh)
    gathered(split(mesh), counting, barrier_semaphore=counting[0])


@right
def semaphores_on_the_sub_device_of_the_op(mesh):
    halved(mesh)
    gathered(split(mesh), semaphores(mesh, 2, RIGHT), subdevice_id=ttnn.SubDeviceId(1))


@right
def semaphores_on_more_cores_than_the_op_takes(mesh):
    gathered(split(mesh), semaphores(mesh), sub_core_grids=cores((0, 0), (3, 3)))


# -- sub-devices -----------------------------------------------------------------------------------


@mistake(
    Told.SANITIZER,
    "sub-device 0 of queue 0 reads what sub-device 1 of queue 0 may still be writing",
    "ttnn.wait_for_event(0, ttnn.record_event(mesh_device, 0))",
    symptom="The op begins before the collective on the other cores has ended.",
    mend="Wait for an event, or synchronize_device with the sub-device.",
)
def a_result_of_another_sub_device_is_used_at_once(mesh):
    halved(mesh)
    whole = gathered(split(mesh), semaphores(mesh, 2, RIGHT), subdevice_id=ttnn.SubDeviceId(1))
    ttnn.relu(whole)


@mistake(
    Told.SANITIZER,
    "sub-device 0 of queue 0 reads what sub-device 1 of queue 0 may still be writing",
    symptom="The host has waited, but for the cores that had nothing to do.",
    mend="Name the sub-device that runs the collective.",
)
def the_host_waits_for_the_wrong_sub_device(mesh):
    halved(mesh)
    whole = gathered(split(mesh), semaphores(mesh, 2, RIGHT), subdevice_id=ttnn.SubDeviceId(1))
    ttnn.synchronize_device(mesh, sub_device_ids=[ttnn.SubDeviceId(0)])
    ttnn.relu(whole)


@mistake(
    Told.SANITIZER,
    "queue 0 reads what sub-device 1 of queue 0 may still be writing",
    symptom="The host reads the tensor before it is there.",
    mend="Put the sub-device into the stall group, or leave the stall group as it is.",
)
def a_read_does_not_wait_for_the_sub_device(mesh):
    halved(mesh)
    x = split(mesh)
    mesh.set_sub_device_stall_group([ttnn.SubDeviceId(0)])
    whole = gathered(x, semaphores(mesh, 2, RIGHT), subdevice_id=ttnn.SubDeviceId(1))
    ttnn.to_torch(ttnn.get_device_tensors(whole)[0])


@right
def the_host_waits_for_the_sub_device_of_the_collective(mesh):
    halved(mesh)
    whole = gathered(split(mesh), semaphores(mesh, 2, RIGHT), subdevice_id=ttnn.SubDeviceId(1))
    ttnn.synchronize_device(mesh, sub_device_ids=[ttnn.SubDeviceId(1)])
    ttnn.relu(whole)


@right
def an_event_comes_between_two_sub_devices(mesh):
    halved(mesh)
    whole = gathered(split(mesh), semaphores(mesh, 2, RIGHT), subdevice_id=ttnn.SubDeviceId(1))
    ttnn.wait_for_event(0, ttnn.record_event(mesh, 0))
    ttnn.relu(whole)


@right
def a_read_waits_for_the_sub_device_it_stalls_for(mesh):
    halved(mesh)
    mesh.set_sub_device_stall_group([ttnn.SubDeviceId(1)])
    whole = gathered(split(mesh), semaphores(mesh, 2, RIGHT), subdevice_id=ttnn.SubDeviceId(1))
    ttnn.to_torch(ttnn.get_device_tensors(whole)[0])


@right
def all_ops_run_on_the_first_sub_device(mesh):
    halved(mesh)
    whole = gathered(split(mesh), semaphores(mesh, 2, LEFT), subdevice_id=ttnn.SubDeviceId(0))
    ttnn.to_torch(ttnn.get_device_tensors(ttnn.relu(whole))[0])


# -- buffers that are views of other tensors -------------------------------------------------------


def whole(mesh, value=1.0):
    return ttnn.from_torch(torch.full((128, 128), value), layout=TILES, device=mesh)


def viewed(tensor, *shape):
    return ttnn.experimental.view(tensor, shape)


OVER = "The tensor holds the result of the collective, where the program expects its own values."
OF_ITS_OWN = "Give the collective a buffer of its own."


@mistake(
    Told.STRICT,
    "relu: the values of the tensor (1, 128, 128) are gone",
    "a buffer of its own",
    symptom=OVER,
    mend=OF_ITS_OWN,
)
def a_buffer_is_a_view_of_a_tensor_that_is_used_later(mesh):
    base = ttnn.reshape(whole(mesh), (1, 128, 128))
    gathered(split(mesh), semaphores(mesh), viewed(base, 128, 128))
    ttnn.relu(base)


@mistake(Told.STRICT, "to_torch: the values of the tensor (1, 128, 128) are gone", symptom=OVER, mend=OF_ITS_OWN)
def a_tensor_is_a_buffer_whose_view_is_read_later(mesh):
    base = whole(mesh)
    view = viewed(base, 1, 128, 128)
    gathered(split(mesh), semaphores(mesh), base)
    ttnn.to_torch(ttnn.get_device_tensors(view)[0])


@mistake(
    Told.STRICT, "relu: the values of the tensor (1, 128, 128) are gone: all_gather", symptom=OVER, mend=OF_ITS_OWN
)
def the_output_of_a_collective_is_a_view_of_a_tensor_that_is_used_later(mesh):
    base = ttnn.reshape(whole(mesh), (1, 128, 128))
    ttnn.all_gather(split(mesh), 1, cluster_axis=1, output_tensor=viewed(base, 128, 128))
    ttnn.relu(base)


@mistake(Told.STRICT, "add: the values of the tensor (1, 128, 128) are gone: matmul", symptom=OVER, mend=OF_ITS_OWN)
def a_product_and_the_residual_lie_in_one_memory(mesh):
    residual = ttnn.reshape(whole(mesh), (1, 128, 128))
    x = whole(mesh)
    product = ttnn.matmul(x, x, optional_output_tensor=viewed(residual, 128, 128))
    ttnn.add(viewed(product, 1, 128, 128), residual)


@unknowable(
    "An op that is given a view to write into is a way to change the tensor behind it. It is reported if the program "
    "reads the op's result, too.",
    symptom=OVER,
    mend=OF_ITS_OWN,
)
def the_output_of_an_op_is_a_view_and_its_result_is_not_read(mesh):
    base = ttnn.reshape(whole(mesh), (1, 128, 128))
    ttnn.add(whole(mesh), 1.0, output_tensor=viewed(base, 128, 128))
    ttnn.relu(base)


@right
def a_tensor_is_changed_through_a_view(mesh):
    base = ttnn.reshape(whole(mesh), (1, 128, 128))
    view = viewed(base, 128, 128)
    ttnn.add(view, 1.0, output_tensor=view)
    ttnn.relu(view)
    ttnn.relu(base)


@right
def an_output_is_written_and_read_again_and_again(mesh):
    x, out = whole(mesh), whole(mesh)
    for _ in range(2):
        ttnn.relu(ttnn.add(x, 1.0, output_tensor=out))
        ttnn.all_gather(split(mesh), 1, cluster_axis=1, output_tensor=out)
        ttnn.relu(out)


@right
def a_buffer_of_zeros_is_seen_through_a_view(mesh):
    out = buffer(mesh)
    flat = viewed(out, 1, 128, 128)
    for value in (1.0, 2.0):
        gathered(split(mesh, value), semaphores(mesh), out)
        ttnn.relu(flat)
        ttnn.synchronize_device(mesh)


@right
def a_tensor_is_written_anew_behind_the_collective(mesh):
    base = ttnn.reshape(whole(mesh), (1, 128, 128))
    result = gathered(split(mesh), semaphores(mesh), viewed(base, 128, 128))
    ttnn.relu(result)
    ttnn.copy_host_to_device_tensor(ttnn.from_torch(torch.ones(1, 128, 128), layout=TILES), base)
    ttnn.relu(base)
