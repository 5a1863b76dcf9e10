"""Ranks of one mesh that do not make the same calls."""

import os
import threading
import time
from contextlib import suppress

import torch
from catalogue import Told, mistake, right

import softmesh as ttnn

OTHER = "runs another program than the rest: call number"
HANG = "All ranks wait for ever, or the next collective hangs; no rank says why."
MIXED = "Ranks hold different values of what should be one tensor, or hang."
LATER = "Addresses differ from then on: a collective writes over other tensors, calls later."
TILES, ROWS = ttnn.TILE_LAYOUT, ttnn.ROW_MAJOR_LAYOUT
CORES = ttnn.CoreRangeSet([ttnn.CoreRange(ttnn.CoreCoord(0, 0), ttnn.CoreCoord(3, 3))])


def put(mesh, dims=(None, -1), layout=TILES, value=1.0):
    mapper = ttnn.ShardTensor2dMesh(mesh, tuple(mesh.shape), dims=dims)
    return ttnn.from_torch(torch.full((128, 128), value), layout=layout, device=mesh, mesh_mapper=mapper)


def copies(mesh):
    return ttnn.from_torch(torch.ones(32, 128), layout=TILES, device=mesh, mesh_mapper=ttnn.ReplicateTensorToMesh(mesh))


@mistake(
    Told.ERROR,
    OTHER,
    "in all_gather(",
    "in all_reduce(",
    symptom=HANG,
    mend="Take collectives out of branches that depend on the rank.",
)
def one_leaves_out_a_sum_of_copies(mesh, rank):
    x = copies(mesh)
    for step in range(5):
        if rank == 0 or step != 2:
            x = ttnn.all_reduce(x, cluster_axis=1)
    ttnn.all_gather(put(mesh), 1, cluster_axis=1)


@right
def all_of_them_sum_copies(mesh, rank):
    x = copies(mesh)
    for _ in range(5):
        x = ttnn.all_reduce(x, cluster_axis=1)
    ttnn.all_gather(put(mesh), 1, cluster_axis=1)


@mistake(
    Told.ERROR,
    OTHER,
    "made no more calls",
    symptom=HANG,
    mend="All ranks make the last call too, or none.",
)
def one_leaves_out_the_last_sum(mesh, rank):
    x = copies(mesh)
    if rank == 0:
        ttnn.all_reduce(x, cluster_axis=1)
    ttnn.synchronize_device(mesh)


@mistake(
    Told.ERROR,
    OTHER,
    "dim=0",
    "dim=1",
    symptom=MIXED,
    mend="One dim on all ranks; do not compute it from the rank.",
)
def gathers_along_another_dim(mesh, rank):
    ttnn.all_gather(put(mesh), rank, cluster_axis=1)


@mistake(
    Told.ERROR,
    OTHER,
    "dim=0",
    "dim=1",
    symptom=MIXED,
    mend="One dim on all ranks.",
)
def scatters_along_another_dim(mesh, rank):
    ttnn.reduce_scatter(put(mesh), rank, cluster_axis=1)


@right
def the_dim_is_counted_from_either_end_by_all(mesh, rank):
    ttnn.all_gather(put(mesh), -1, cluster_axis=1)
    ttnn.reduce_scatter(put(mesh), 0, cluster_axis=1)


@mistake(
    Told.ERROR,
    OTHER,
    "topology=Linear",
    symptom=HANG,
    mend="One topology for all ranks: read it from the configuration that all share.",
)
def another_topology(mesh, rank):
    ttnn.all_gather(put(mesh), 1, cluster_axis=1, topology=ttnn.Topology.Linear if rank else None)


@mistake(
    Told.ERROR,
    OTHER,
    "num_links=1",
    symptom=HANG,
    mend="One number of links for all ranks.",
)
def another_number_of_links(mesh, rank):
    ttnn.all_gather(put(mesh), 1, cluster_axis=1, num_links=1 if rank else None)


@mistake(
    Told.ERROR,
    OTHER,
    "L1",
    "DRAM",
    symptom=LATER,
    mend="One memory config on all ranks.",
)
def another_memory(mesh, rank):
    memory = ttnn.L1_MEMORY_CONFIG if rank else ttnn.DRAM_MEMORY_CONFIG
    ttnn.all_gather(put(mesh), 1, cluster_axis=1, memory_config=memory)


@mistake(
    Told.ERROR,
    OTHER,
    "cluster_axis=0",
    "cluster_axis=1",
    symptom=HANG,
    mend="One axis on all ranks.",
)
def another_axis(mesh, rank):
    ttnn.all_reduce(put(mesh), cluster_axis=rank)
    ttnn.synchronize_device(mesh)


@mistake(
    Told.ERROR,
    OTHER,
    "ROW_MAJOR",
    "TILE",
    symptom="Each rank sends pages of another size: garbage, or a hang.",
    mend="One layout on all ranks.",
)
def another_layout(mesh, rank):
    ttnn.all_gather(put(mesh, layout=ROWS if rank else TILES), 1, cluster_axis=1)


@mistake(
    Told.ERROR,
    OTHER,
    "MeshCoordinate([0, 0])",
    "MeshCoordinate([0, 2])",
    symptom="Devices end up with values of different senders, and one sender waits for ever.",
    mend="One root on all ranks.",
)
def another_root(mesh, rank):
    ttnn.broadcast(put(mesh), ttnn.MeshCoordinate(0, 2 * rank), cluster_axis=1)


@right
def one_root(mesh, rank):
    ttnn.broadcast(put(mesh), ttnn.MeshCoordinate(0, 2), cluster_axis=1)


@mistake(
    Told.ERROR,
    OTHER,
    "MeshCoordinate([0, 3])",
    symptom=HANG,
    mend="The same sender and receiver on all ranks; it is one call of the whole mesh.",
)
def other_ends(mesh, rank):
    x = put(mesh)
    ends = (ttnn.MeshCoordinate(0, 0), ttnn.MeshCoordinate(0, 3))
    ttnn.point_to_point(x, *(ends if rank else reversed(ends)))
    ttnn.synchronize_device(mesh)


@mistake(
    Told.ERROR,
    OTHER,
    "in all_reduce(",
    symptom="Sums of different tensors are mixed: ranks hold different copies of what should be one value.",
    mend="Go through lists, not through sets or dicts whose order differs between processes.",
)
def sums_of_equal_shape_in_another_order(mesh, rank):
    a, b = put(mesh, value=1.0), put(mesh, value=2.0)
    for x in (a, b) if rank else (b, a):
        ttnn.all_reduce(x, cluster_axis=1)


@right
def sums_of_equal_shape_in_one_order(mesh, rank):
    for x in (put(mesh, value=1.0), put(mesh, value=2.0)):
        ttnn.all_reduce(x, cluster_axis=1)


@mistake(
    Told.ERROR,
    OTHER,
    "on memory at",
    symptom=LATER,
    mend="Allocate in one order on all ranks.",
)
def the_order_of_allocations(mesh, rank):
    shapes = [(32, 128), (64, 256)] if rank else [(64, 256), (32, 128)]
    kept = [ttnn.zeros(shape, layout=TILES, device=mesh) for shape in shapes]
    x = put(mesh)
    ttnn.all_reduce(x, cluster_axis=1)
    ttnn.all_reduce(kept[rank], cluster_axis=1)


@mistake(
    Told.ERROR,
    OTHER,
    "on memory at",
    symptom=LATER,
    mend="Allocate and free alike on all ranks, also what only one of them needs.",
)
def memory_that_one_keeps(mesh, rank):
    x = put(mesh)
    extra = ttnn.zeros((32, 32), layout=TILES, device=mesh) if rank else None
    y = ttnn.add(x, 1.0)
    ttnn.all_reduce(y, cluster_axis=1)
    del extra


@mistake(
    Told.ERROR,
    OTHER,
    "create_global_semaphore(",
    symptom=LATER,
    mend="Make semaphores on all ranks.",
)
def a_semaphore_on_one_rank(mesh, rank):
    made = ttnn.create_global_semaphore(mesh, CORES, 0) if rank else None
    ttnn.all_reduce(put(mesh), cluster_axis=1)
    del made


@mistake(
    Told.ERROR,
    OTHER,
    "create_global_semaphore(",
    symptom=HANG,
    mend="One initial value on all ranks.",
)
def another_first_value_of_a_semaphore(mesh, rank):
    made = ttnn.create_global_semaphore(mesh, CORES, rank)
    ttnn.all_reduce(put(mesh), cluster_axis=1)
    del made


@right
def a_semaphore_on_all_ranks(mesh, rank):
    made = ttnn.create_global_semaphore(mesh, CORES, 0)
    ttnn.all_reduce(put(mesh), cluster_axis=1)
    del made


@mistake(
    Told.ERROR,
    OTHER,
    "execute_trace(",
    symptom=HANG,
    mend="Replay as often on all ranks; end a generation by a decision that all of them make.",
)
def a_replay_more(mesh, rank):
    x = put(mesh)
    ttnn.all_reduce(x, cluster_axis=1)
    number = ttnn.begin_trace_capture(mesh, cq_id=0)
    y = ttnn.all_reduce(x, cluster_axis=1)
    ttnn.end_trace_capture(mesh, number, cq_id=0)
    for _ in range(1 + rank):
        ttnn.execute_trace(mesh, number, cq_id=0, blocking=False)
    ttnn.all_gather(y, 1, cluster_axis=1)


@right
def as_many_replays(mesh, rank):
    x = put(mesh)
    ttnn.all_reduce(x, cluster_axis=1)
    number = ttnn.begin_trace_capture(mesh, cq_id=0)
    y = ttnn.all_reduce(x, cluster_axis=1)
    ttnn.end_trace_capture(mesh, number, cq_id=0)
    for _ in range(3):
        ttnn.execute_trace(mesh, number, cq_id=0, blocking=False)
    ttnn.all_gather(y, 1, cluster_axis=1)
    ttnn.release_trace(mesh, number)


@mistake(
    Told.ERROR,
    OTHER,
    "in all_reduce(",
    "in reduce_scatter(",
    symptom=HANG,
    mend="One collective on all ranks.",
)
def another_collective(mesh, rank):
    x = put(mesh)
    if rank:
        ttnn.all_reduce(x, cluster_axis=1)
    else:
        ttnn.reduce_scatter(x, 1, cluster_axis=1)


@mistake(
    Told.ERROR,
    OTHER,
    "in gathers",
    symptom="The thread dies, the program goes on with what it did not make, and ends as if all were well.",
    mend="One dim on all ranks; let a thread hand its errors to the program (concurrent.futures does).",
)
def a_thread_that_gathers_along_another_dim(mesh, rank):
    def gathers():
        with suppress(RuntimeError):
            ttnn.all_gather(put(mesh), rank, cluster_axis=1)

    thread = threading.Thread(target=gathers)
    thread.start()
    thread.join()


@right
def a_thread_that_gathers(mesh, rank):
    thread = threading.Thread(target=lambda: ttnn.all_gather(put(mesh), 1, cluster_axis=1))
    thread.start()
    thread.join()


@right
def one_call_on_two_lines(mesh, rank):
    x = put(mesh)
    if rank:
        ttnn.all_reduce(x, cluster_axis=1)
    else:
        ttnn.all_reduce(x, cluster_axis=1)


@right
def one_rank_is_slow(mesh, rank):
    x = put(mesh)
    for _ in range(3):
        time.sleep(0.05 * rank)
        x = ttnn.all_reduce(x, cluster_axis=1)


@right
def one_rank_reads_what_all_have(mesh, rank):
    x = ttnn.all_reduce(put(mesh), cluster_axis=1)
    if rank == 0:
        ttnn.to_torch(ttnn.get_device_tensors(x)[0])
    ttnn.all_reduce(x, cluster_axis=1)


@right
def one_rank_works_on_devices_of_its_own(mesh, rank):
    for sub in mesh.create_submeshes(ttnn.MeshShape(1, 1)):
        if not sub.is_remote_only() and rank == 0:
            ttnn.relu(ttnn.ones((32, 32), device=sub, layout=TILES))
    ttnn.all_reduce(put(mesh), cluster_axis=1)


@right
def ranks_hold_other_values(mesh, rank):
    mapper = ttnn.ShardTensor2dMesh(mesh, tuple(mesh.shape), dims=(None, -1))
    x = ttnn.from_torch(torch.arange(32.0 * 128).reshape(32, 128), layout=TILES, device=mesh, mesh_mapper=mapper)
    ttnn.all_gather(x, 1, cluster_axis=1)


@right
def memory_is_reused(mesh, rank):
    for _ in range(4):
        x = put(mesh)
        y = ttnn.all_reduce(x, cluster_axis=1)
        ttnn.deallocate(x)
        del y


@mistake(
    Told.REPORT,
    "rank 1 made no more calls",
    symptom=HANG,
    mend="All ranks make the last call too, or none.",
)
def a_call_that_one_rank_makes_before_the_program_ends(mesh, rank):
    if rank == 0:
        ttnn.all_reduce(copies(mesh), cluster_axis=1)


@mistake(
    Told.ERROR,
    OTHER,
    "FABRIC_1D_RING",
    symptom="Routers wait for links that the other side did not train: opening the mesh hangs.",
    mend="One fabric config for all ranks of a mesh.",
)
def another_fabric(rank):
    ttnn.set_fabric_config(ttnn.FabricConfig.FABRIC_1D_RING if rank else ttnn.FabricConfig.FABRIC_1D)
    ttnn.all_reduce(put(ttnn.open_mesh_device(ttnn.MeshShape(2, 4))), cluster_axis=1)


@right
def another_fabric_for_the_next_mesh(rank):
    for fabric in (ttnn.FabricConfig.FABRIC_1D_RING, ttnn.FabricConfig.FABRIC_1D):
        ttnn.set_fabric_config(fabric)
        mesh = ttnn.open_mesh_device(ttnn.MeshShape(2, 4))
        ttnn.all_reduce(put(mesh), cluster_axis=1)
        ttnn.close_mesh_device(mesh)
        ttnn.set_fabric_config(ttnn.FabricConfig.DISABLED)


@mistake(
    Told.ERROR,
    OTHER,
    "reset_global_semaphore_value(",
    symptom=HANG,
    mend="Set semaphores back on all ranks.",
)
def a_semaphore_is_set_back_by_one(mesh, rank):
    semaphore = ttnn.create_global_semaphore(mesh, CORES, 0)
    if rank:
        ttnn.reset_global_semaphore_value(semaphore, 0)
    ttnn.all_reduce(put(mesh), cluster_axis=1)


@right
def a_semaphore_is_set_back_by_all(mesh, rank):
    semaphore = ttnn.create_global_semaphore(mesh, CORES, 0)
    for _ in range(3):
        ttnn.reset_global_semaphore_value(semaphore, 0)
        ttnn.all_reduce(put(mesh), cluster_axis=1)


@mistake(
    Told.ERROR,
    OTHER,
    "create_sub_device_manager(",
    symptom="Ops of one rank run on other cores, whose semaphores nobody raises: a hang.",
    mend="Load the same sub-devices on all ranks.",
)
def sub_devices_on_one_rank(mesh, rank):
    if rank:
        mesh.load_sub_device_manager(mesh.create_sub_device_manager([ttnn.SubDevice([CORES])], 0))
    ttnn.all_reduce(put(mesh), cluster_axis=1)


@mistake(
    Told.ERROR,
    OTHER,
    "clear_loaded_sub_device_manager(",
    symptom=LATER,
    mend="Clear sub-devices on all ranks at the same place.",
)
def sub_devices_are_cleared_by_one(mesh, rank):
    mesh.load_sub_device_manager(mesh.create_sub_device_manager([ttnn.SubDevice([CORES])], 0))
    if rank:
        mesh.clear_loaded_sub_device_manager()
    ttnn.all_reduce(put(mesh), cluster_axis=1)


@right
def sub_devices_on_all_ranks(mesh, rank):
    mesh.load_sub_device_manager(mesh.create_sub_device_manager([ttnn.SubDevice([CORES])], 0))
    mesh.set_sub_device_stall_group([ttnn.SubDeviceId(0)])
    mesh.clear_loaded_sub_device_manager()
    ttnn.all_reduce(put(mesh), cluster_axis=1)


@mistake(Told.ERROR, OTHER, "remove_sub_device_manager(", symptom=LATER, mend="Remove managers on all ranks.")
def sub_devices_are_removed_by_one(mesh, rank):
    manager = mesh.create_sub_device_manager([ttnn.SubDevice([CORES])], 0)
    if rank:
        mesh.remove_sub_device_manager(manager)


def circular_buffer(mesh, size=2048):
    sender, receiver = ttnn.CoreCoord(0, 0), ttnn.CoreCoord(1, 0)
    return ttnn.create_global_circular_buffer(
        mesh, [(sender, ttnn.CoreRangeSet([ttnn.CoreRange(receiver, receiver)]))], size
    )


@mistake(Told.ERROR, OTHER, "create_global_circular_buffer(", symptom=LATER, mend="Make global buffers on all ranks.")
def a_global_circular_buffer_on_one_rank(mesh, rank):
    made = circular_buffer(mesh) if rank else None
    ttnn.all_reduce(put(mesh), cluster_axis=1)
    del made


@mistake(Told.ERROR, OTHER, "4096)", "2048)", symptom=LATER, mend="One size on all ranks.")
def another_size_of_a_global_circular_buffer(mesh, rank):
    circular_buffer(mesh, 4096 if rank else 2048)


@right
def a_global_circular_buffer_on_all_ranks(mesh, rank):
    made = circular_buffer(mesh)
    ttnn.all_reduce(put(mesh), cluster_axis=1)
    del made


@mistake(Told.ERROR, OTHER, "release_trace(", symptom=LATER, mend="Release traces on all ranks.")
def a_trace_is_released_by_one(mesh, rank):
    x = copies(mesh)
    y = ttnn.add(x, 1.0)
    number = ttnn.begin_trace_capture(mesh, cq_id=0)
    ttnn.add(x, 1.0, output_tensor=y)
    ttnn.end_trace_capture(mesh, number, cq_id=0)
    if rank:
        ttnn.release_trace(mesh, number)


@mistake(Told.ERROR, OTHER, "execute_trace(", symptom=HANG, mend="Replay the same trace on all ranks.")
def another_trace_is_replayed(mesh, rank):
    x = put(mesh)
    ttnn.all_reduce(x, cluster_axis=1)
    numbers, results = [], []
    for _ in range(2):
        numbers.append(ttnn.begin_trace_capture(mesh, cq_id=0))
        results.append(ttnn.all_reduce(x, cluster_axis=1))
        ttnn.end_trace_capture(mesh, numbers[-1], cq_id=0)
    ttnn.execute_trace(mesh, numbers[rank], cq_id=0, blocking=True)


@mistake(Told.ERROR, OTHER, "in all_reduce(", symptom=HANG, mend="Capture the same calls on all ranks.")
def another_call_is_captured(mesh, rank):
    x, y = put(mesh), put(mesh)
    ttnn.all_reduce(x, cluster_axis=1)
    number = ttnn.begin_trace_capture(mesh, cq_id=0)
    ttnn.all_reduce(x if rank else y, cluster_axis=1)
    ttnn.end_trace_capture(mesh, number, cq_id=0)


@mistake(
    Told.ERROR,
    OTHER,
    "create_submesh(",
    symptom="The collectives of the submesh wait for ranks that never made it.",
    mend="Cut submeshes that lie over several ranks alike on all of them.",
)
def other_submeshes(mesh, rank):
    mesh.create_submeshes(ttnn.MeshShape(2, 2) if rank else ttnn.MeshShape(1, 4))
    ttnn.all_reduce(put(mesh), cluster_axis=1)


@right
def rows_as_submeshes(mesh, rank):
    for row in mesh.create_submeshes(ttnn.MeshShape(1, 4)):
        x = ttnn.from_torch(torch.ones(32, 128), device=row, mesh_mapper=ttnn.ShardTensorToMesh(row, 1))
        ttnn.all_reduce(x)


@mistake(
    Told.ERROR,
    OTHER,
    "on the 1x4 submesh of device 0",
    "on the 1x4 submesh of device 4",
    symptom="Reads and sums of two submeshes are mixed as soon as hosts wait for each other within them.",
    mend="Go through submeshes in one order on all ranks.",
)
def submeshes_in_another_order(mesh, rank):
    rows = mesh.create_submeshes(ttnn.MeshShape(1, 4))
    for row in reversed(rows) if rank else rows:
        x = ttnn.from_torch(torch.ones(32, 128), device=row, mesh_mapper=ttnn.ShardTensorToMesh(row, 1))
        ttnn.all_reduce(x)


@mistake(
    Told.ERROR,
    OTHER,
    "in get_device_tensors(",
    "in all_reduce(",
    symptom="To read a tensor of which other hosts hold parts is a gather over all hosts: the one that reads waits.",
    mend="Read it on all ranks and print on one; or all_gather it first.",
)
def one_rank_reads_what_others_hold(mesh, rank):
    x = put(mesh)
    if rank:
        ttnn.to_torch(ttnn.get_device_tensors(x)[0])
    ttnn.all_reduce(x, cluster_axis=1)


@right
def all_ranks_read_and_one_prints(mesh, rank):
    x = put(mesh)
    parts = [ttnn.to_torch(part) for part in ttnn.get_device_tensors(x)]
    if rank == 0:
        str(parts)
    ttnn.all_reduce(x, cluster_axis=1)


for argument, one, another in (
    ("reliability", (), (ttnn.FabricReliabilityMode.RELAXED_INIT,)),
    ("num_planes", (ttnn.FabricReliabilityMode.STRICT_INIT, 1), (ttnn.FabricReliabilityMode.STRICT_INIT, 2)),
):

    @mistake(
        Told.ERROR,
        OTHER,
        f"{argument}=",
        symptom="Routers are set up differently on both sides of a link: opening the mesh hangs, or packets are lost.",
        mend="One fabric config with one set of options for all ranks of a mesh.",
    )
    def program(rank, options=(one, another)):
        ttnn.set_fabric_config(ttnn.FabricConfig.FABRIC_1D, *options[rank])
        ttnn.synchronize_device(ttnn.open_mesh_device(ttnn.MeshShape(2, 4)))

    program.__name__ = f"another_{argument}_of_the_fabric"
    program.__doc__ = f"A fabric with another {argument} on one rank"

for argument, one, another in (
    ("l1_small_size", 0, 32768),
    ("trace_region_size", 0, 1 << 20),
    ("num_command_queues", 1, 2),
):

    @mistake(
        Told.ERROR,
        OTHER,
        f"{argument}=",
        symptom=LATER,
        mend="Open the mesh with the same options on all ranks.",
    )
    def program(rank, argument=argument, values=(one, another)):
        ttnn.set_fabric_config(ttnn.FabricConfig.FABRIC_1D)
        ttnn.synchronize_device(ttnn.open_mesh_device(ttnn.MeshShape(2, 4), **{argument: values[rank]}))

    program.__name__ = f"another_{argument}_of_the_mesh"
    program.__doc__ = f"A mesh with another {argument} on one rank"


@right
def a_mesh_with_options(rank):
    ttnn.set_fabric_config(ttnn.FabricConfig.FABRIC_1D, ttnn.FabricReliabilityMode.RELAXED_INIT)
    mesh = ttnn.open_mesh_device(ttnn.MeshShape(2, 4), l1_small_size=32768, num_command_queues=2)
    ttnn.all_reduce(put(mesh), cluster_axis=1)


@mistake(
    Told.ERROR,
    OTHER,
    symptom="The process that makes more calls hangs when the others have gone.",
    mend="Make the same calls before a mesh is dropped.",
)
def a_mesh_is_dropped_too_early(rank):
    ttnn.set_fabric_config(ttnn.FabricConfig.FABRIC_1D)
    mesh = ttnn.open_mesh_device(ttnn.MeshShape(2, 4))
    if rank:
        ttnn.all_reduce(copies(mesh), cluster_axis=1)
    del mesh
    ttnn.open_mesh_device(ttnn.MeshShape(2, 4))


@right
def meshes_one_after_the_other(rank):
    ttnn.set_fabric_config(ttnn.FabricConfig.FABRIC_1D)
    for _ in range(3):
        mesh = ttnn.open_mesh_device(ttnn.MeshShape(2, 4))
        ttnn.all_reduce(copies(mesh), cluster_axis=1)
        ttnn.close_mesh_device(mesh)


@right
def an_error_that_all_ranks_catch(mesh, rank):
    with suppress(RuntimeError):
        ttnn.all_gather(put(mesh), 7, cluster_axis=1)
    ttnn.all_reduce(put(mesh), cluster_axis=1)


@right
def many_sums(mesh, rank):
    x = copies(mesh)
    for _ in range(300):
        ttnn.all_reduce(x, cluster_axis=1)
    ttnn.all_gather(put(mesh), 1, cluster_axis=1)


@mistake(
    Told.REPORT,
    "rank 1 raised MeshError: this process has closed descriptors that it had not opened",
    symptom="The job never ends: MPI waits for an answer of mpirun.",
    mend="Close what the program opened, and nothing else.",
)
def descriptors_are_closed_that_others_opened(mesh, rank):
    if rank == 1:
        os.closerange(3, 4096)


@mistake(
    Told.REPORT,
    "The ranks of one mesh have different environments: SOFTMESH_STRICT is unset on rank 0, '1' on rank 1",
    symptom="One rank stops where the others go on, or each works on another machine.",
    mend="Set such variables for all ranks: in the shell, or in global_env of the rank bindings.",
)
def strict_on_one_rank_alone(rank):
    os.environ.update({"SOFTMESH_STRICT": "1"} if rank else {})
    ttnn.open_mesh_device(ttnn.MeshShape(2, 4))
