"""Ranks of one mesh that do not make the same calls."""

import time

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
    x = ttnn.from_torch(torch.full((32, 128), 1.0 + rank), layout=TILES, device=mesh, mesh_mapper=mapper)
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
