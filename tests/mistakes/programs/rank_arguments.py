"""Arguments of collectives that are not the same on every rank."""

import torch
from catalogue import Told, mistake, right

import softmesh as ttnn

TILES = ttnn.TILE_LAYOUT
L1, DRAM = ttnn.L1_MEMORY_CONFIG, ttnn.DRAM_MEMORY_CONFIG
CORES = ttnn.CoreRangeSet([ttnn.CoreRange(ttnn.CoreCoord(0, 0), ttnn.CoreCoord(3, 3))])
PRECISE = ttnn.WormholeComputeKernelConfig(math_fidelity=ttnn.MathFidelity.HiFi4)
FIRST, LAST = ttnn.MeshCoordinate(0, 0), ttnn.MeshCoordinate(0, 3)
OTHER = "runs another program than the rest: call number"
HANG = "All ranks wait for ever in this collective or the next; no rank says why."
TORN = "Packets arrive where nobody expects them: torn tensors, or a hang some calls later."


def put(mesh):
    mapper = ttnn.ShardTensor2dMesh(mesh, tuple(mesh.shape), dims=(None, -1))
    return ttnn.from_torch(torch.ones(128, 128), layout=TILES, device=mesh, mesh_mapper=mapper)


# The collective and what all ranks give it, the argument that differs, on one rank and on the other.
DIFFERENT = [
    (ttnn.all_gather, {"dim": 1}, "sub_core_grids", None, CORES, TORN),
    (ttnn.all_gather, {"dim": 1}, "chunks_per_sync", None, 2, TORN),
    (ttnn.all_gather, {"dim": 1}, "num_workers_per_link", None, 2, TORN),
    (ttnn.all_gather, {"dim": 1}, "num_buffers_per_channel", None, 2, TORN),
    (ttnn.all_gather, {"dim": 1}, "subdevice_id", None, ttnn.SubDeviceId(0), HANG),
    (ttnn.all_gather, {"dim": 1}, "use_l1_small_for_semaphores", False, True, TORN),
    (ttnn.all_reduce, {}, "memory_config", L1, DRAM, TORN),
    (ttnn.all_reduce, {}, "num_links", None, 1, HANG),
    (ttnn.all_reduce, {}, "topology", None, ttnn.Topology.Linear, HANG),
    (ttnn.reduce_scatter, {"dim": 1}, "memory_config", L1, DRAM, TORN),
    (ttnn.reduce_scatter, {"dim": 1}, "intermediate_memory_config", L1, DRAM, TORN),
    (ttnn.reduce_scatter, {"dim": 1}, "compute_kernel_config", None, PRECISE, "Ranks round sums differently."),
    (ttnn.all_broadcast, {}, "memory_config", L1, DRAM, TORN),
    (ttnn.all_broadcast, {}, "num_links", 1, 2, HANG),
    (ttnn.broadcast, {"sender_coord": FIRST}, "num_links", None, 1, HANG),
    (ttnn.point_to_point, {"sender_coord": FIRST}, "receiver_coord", ttnn.MeshCoordinate(0, 1), LAST, HANG),
]
for op, given, argument, one, another, symptom in DIFFERENT:

    @mistake(Told.ERROR, OTHER, argument, symptom=symptom, mend=f"Give {argument} alike on all ranks.")
    def program(mesh, rank, op=op, given=given, argument=argument, values=(one, another)):
        axis = {} if op is ttnn.point_to_point else {"cluster_axis": 1}
        chosen = {} if values[rank] is None else {argument: values[rank]}
        op(put(mesh), **axis, **given, **chosen)
        ttnn.synchronize_device(mesh)

    program.__name__ = f"another_{argument}_of_{op.name}"
    program.__doc__ = f"A call of {op.name} with another {argument} on one rank"

    @right
    def program(mesh, rank, op=op, given=given, argument=argument, value=another):
        axis = {} if op is ttnn.point_to_point else {"cluster_axis": 1}
        op(put(mesh), **axis, **given, **{argument: value})

    program.__name__ = f"one_{argument}_of_{op.name}"


@mistake(
    Told.ERROR,
    OTHER,
    "output_tensor",
    symptom=TORN,
    mend="Give an output tensor on all ranks, or on none.",
)
def an_output_tensor_on_one_rank(mesh, rank):
    made = ttnn.zeros((128, 128), layout=TILES, device=mesh, dtype=ttnn.float32)
    given = {"output_tensor": made} if rank else {}
    ttnn.all_gather(put(mesh), 1, cluster_axis=1, **given)


@right
def an_output_tensor_on_all_ranks(mesh, rank):
    made = ttnn.zeros((128, 128), layout=TILES, device=mesh, dtype=ttnn.float32)
    ttnn.all_gather(put(mesh), 1, cluster_axis=1, output_tensor=made)


def gathered(mesh, semaphores, **others):
    return ttnn.experimental.all_gather_async(
        put(mesh),
        dim=1,
        multi_device_global_semaphore=semaphores,
        cluster_axis=1,
        topology=ttnn.Topology.Linear,
        **others,
    )


def semaphores_of(mesh):
    return [ttnn.create_global_semaphore(mesh, CORES, 0) for _ in range(4)]


@mistake(Told.ERROR, OTHER, "GlobalSemaphore at", symptom=HANG, mend="Choose semaphores by one rule on all ranks.")
def other_semaphores(mesh, rank):
    semaphores = semaphores_of(mesh)
    gathered(mesh, semaphores[:2] if rank else semaphores[2:])


@mistake(Told.ERROR, OTHER, "barrier_semaphore", symptom=HANG, mend="A barrier semaphore on all ranks, or on none.")
def a_barrier_semaphore_on_one_rank(mesh, rank):
    semaphores = semaphores_of(mesh)
    gathered(mesh, semaphores[:2], **({"barrier_semaphore": semaphores[2]} if rank else {}))


@right
def the_same_semaphores_on_all_ranks(mesh, rank):
    semaphores = semaphores_of(mesh)
    gathered(mesh, semaphores[:2], barrier_semaphore=semaphores[2])


@right
def arguments_by_name_or_by_place(mesh, rank):
    if rank:
        ttnn.all_gather(put(mesh), 1, cluster_axis=1)
    else:
        ttnn.all_gather(input_tensor=put(mesh), dim=1, cluster_axis=1)


def of_tiles(mesh, height):
    return ttnn.from_torch(torch.ones(32, 128), layout=TILES, tile=ttnn.Tile((height, 32)), device=mesh)


@mistake(Told.ERROR, OTHER, "Tile with shape: [16, 32]", symptom=TORN, mend="One tile for a tensor on all ranks.")
def another_tile(mesh, rank):
    ttnn.all_reduce(of_tiles(mesh, 16 if rank else 32), cluster_axis=1)


@right
def one_tile_of_another_size(mesh, rank):
    ttnn.all_reduce(of_tiles(mesh, 16), cluster_axis=1)


def cut(mesh, rows):
    grid = ttnn.CoreGrid(x=1, y=128 // rows)
    shards = ttnn.create_sharded_memory_config(
        (rows, 32), grid, ttnn.ShardStrategy.HEIGHT, use_height_and_width_as_shard_shape=True
    )
    return ttnn.to_memory_config(put(mesh), shards)


@mistake(Told.ERROR, OTHER, "HEIGHT_SHARDED", symptom=TORN, mend="Cut a tensor into the same shards on all ranks.")
def another_shard_of_the_input(mesh, rank):
    ttnn.all_gather(cut(mesh, 32 if rank else 64), 1, cluster_axis=1, memory_config=DRAM)


@right
def one_shard_of_the_input(mesh, rank):
    ttnn.all_gather(cut(mesh, 32), 1, cluster_axis=1, memory_config=DRAM)


def summed_on(queue):
    ttnn.set_fabric_config(ttnn.FabricConfig.FABRIC_1D)
    mesh = ttnn.open_mesh_device(ttnn.MeshShape(2, 4), num_command_queues=2)
    x = put(mesh)
    ttnn.synchronize_device(mesh)
    with ttnn.command_queue(queue):
        ttnn.all_reduce(x, cluster_axis=1)
    ttnn.synchronize_device(mesh)


@mistake(
    Told.ERROR,
    OTHER,
    "on queue 1",
    symptom="On one host the collective runs before what it was meant to follow; now and then it hangs.",
    mend="One queue for a call on all ranks.",
)
def another_queue(rank):
    summed_on(rank)


@right
def the_second_queue_on_all_ranks(rank):
    summed_on(1)
