"""Programs of two ranks that hold one mesh together: those that would hang or lie on the machine, and right ones.

Run by test_ranks_that_disagree.py as every rank of a job. Each case is a program as a user would write it.
"""

import sys
import time

import torch
import ttnn

TILES, ROWS = ttnn.TILE_LAYOUT, ttnn.ROW_MAJOR_LAYOUT
CORES = ttnn.CoreRangeSet([ttnn.CoreRange(ttnn.CoreCoord(0, 0), ttnn.CoreCoord(3, 3))])
WRONG, RIGHT = [], []


def put(mesh, dims=(None, -1), layout=TILES, value=1.0):
    mapper = ttnn.ShardTensor2dMesh(mesh, tuple(mesh.shape), dims=dims)
    return ttnn.from_torch(torch.full((128, 128), value), layout=layout, device=mesh, mesh_mapper=mapper)


def copies(mesh):
    return ttnn.from_torch(torch.ones(32, 128), layout=TILES, device=mesh, mesh_mapper=ttnn.ReplicateTensorToMesh(mesh))


def wrong(case):
    WRONG.append(case)
    return case


def right(case):
    RIGHT.append(case)
    return case


@wrong
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


@wrong
def one_leaves_out_the_last_sum(mesh, rank):
    x = copies(mesh)
    if rank == 0:
        ttnn.all_reduce(x, cluster_axis=1)
    ttnn.synchronize_device(mesh)


@wrong
def gathers_along_another_dim(mesh, rank):
    ttnn.all_gather(put(mesh), rank, cluster_axis=1)


@wrong
def scatters_along_another_dim(mesh, rank):
    ttnn.reduce_scatter(put(mesh), rank, cluster_axis=1)


@right
def the_dim_is_counted_from_either_end_by_all(mesh, rank):
    ttnn.all_gather(put(mesh), -1, cluster_axis=1)
    ttnn.reduce_scatter(put(mesh), 0, cluster_axis=1)


@wrong
def another_topology(mesh, rank):
    ttnn.all_gather(put(mesh), 1, cluster_axis=1, topology=ttnn.Topology.Linear if rank else None)


@wrong
def another_number_of_links(mesh, rank):
    ttnn.all_gather(put(mesh), 1, cluster_axis=1, num_links=1 if rank else None)


@wrong
def another_memory(mesh, rank):
    memory = ttnn.L1_MEMORY_CONFIG if rank else ttnn.DRAM_MEMORY_CONFIG
    ttnn.all_gather(put(mesh), 1, cluster_axis=1, memory_config=memory)


@wrong
def another_axis(mesh, rank):
    ttnn.all_reduce(put(mesh), cluster_axis=rank)
    ttnn.synchronize_device(mesh)


@wrong
def another_layout(mesh, rank):
    ttnn.all_gather(put(mesh, layout=ROWS if rank else TILES), 1, cluster_axis=1)


@wrong
def another_root(mesh, rank):
    ttnn.broadcast(put(mesh), ttnn.MeshCoordinate(0, 2 * rank), cluster_axis=1)


@right
def one_root(mesh, rank):
    ttnn.broadcast(put(mesh), ttnn.MeshCoordinate(0, 2), cluster_axis=1)


@wrong
def other_ends(mesh, rank):
    x = put(mesh)
    ends = (ttnn.MeshCoordinate(0, 0), ttnn.MeshCoordinate(0, 3))
    ttnn.point_to_point(x, *(ends if rank else reversed(ends)))
    ttnn.synchronize_device(mesh)


@wrong
def sums_of_equal_shape_in_another_order(mesh, rank):
    a, b = put(mesh, value=1.0), put(mesh, value=2.0)
    for x in (a, b) if rank else (b, a):
        ttnn.all_reduce(x, cluster_axis=1)


@right
def sums_of_equal_shape_in_one_order(mesh, rank):
    for x in (put(mesh, value=1.0), put(mesh, value=2.0)):
        ttnn.all_reduce(x, cluster_axis=1)


@wrong
def the_order_of_allocations(mesh, rank):
    shapes = [(32, 128), (64, 256)] if rank else [(64, 256), (32, 128)]
    kept = [ttnn.zeros(shape, layout=TILES, device=mesh) for shape in shapes]
    x = put(mesh)
    ttnn.all_reduce(x, cluster_axis=1)
    ttnn.all_reduce(kept[rank], cluster_axis=1)


@wrong
def memory_that_one_keeps(mesh, rank):
    x = put(mesh)
    extra = ttnn.zeros((32, 32), layout=TILES, device=mesh) if rank else None
    y = ttnn.add(x, 1.0)
    ttnn.all_reduce(y, cluster_axis=1)
    del extra


@wrong
def a_semaphore_on_one_rank(mesh, rank):
    made = ttnn.create_global_semaphore(mesh, CORES, 0) if rank else None
    ttnn.all_reduce(put(mesh), cluster_axis=1)
    del made


@wrong
def another_first_value_of_a_semaphore(mesh, rank):
    made = ttnn.create_global_semaphore(mesh, CORES, rank)
    ttnn.all_reduce(put(mesh), cluster_axis=1)
    del made


@right
def a_semaphore_on_all_ranks(mesh, rank):
    made = ttnn.create_global_semaphore(mesh, CORES, 0)
    ttnn.all_reduce(put(mesh), cluster_axis=1)
    del made


@wrong
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


@wrong
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


def one_ends_early(mesh, rank):
    """Run alone: what is noticed when the program ends."""
    if rank == 0:
        ttnn.all_reduce(copies(mesh), cluster_axis=1)


WRONG_END = "runs another program than the rest: call number"


def outcome(case, rank):
    """What is said of a case: nothing, or the first words of the error."""
    options = {"trace_region_size": 1 << 20}
    try:
        mesh = ttnn.open_mesh_device(ttnn.MeshShape(2, 4), **options)
        try:
            case(mesh, rank)
            ttnn.synchronize_device(mesh)
        finally:
            ttnn.close_mesh_device(mesh)
    except RuntimeError as error:
        text = str(error)
        return "noticed" if WRONG_END in text and __file__ in text else text
    return "nothing"


def main():
    ttnn.init_distributed_context()
    rank = int(ttnn.distributed_context_get_rank())
    ttnn.set_fabric_config(ttnn.FabricConfig.FABRIC_1D)
    if sys.argv[1:]:  # one case alone, and nobody catches what it raises
        with ttnn.create_mesh_device(ttnn.MeshShape(2, 4)) as mesh:
            globals()[sys.argv[1]](mesh, rank)
        return
    for case in (*WRONG, *RIGHT):
        said = outcome(case, rank)
        print(f"{case.__name__}: {said}", flush=True)
    ttnn.set_fabric_config(ttnn.FabricConfig.DISABLED)
    ttnn.set_fabric_config(ttnn.FabricConfig.FABRIC_1D_RING if rank else ttnn.FabricConfig.FABRIC_1D)
    print(f"another_fabric: {outcome(lambda mesh, _: ttnn.all_reduce(put(mesh), cluster_axis=1), rank)}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
