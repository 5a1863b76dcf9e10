"""What each rank computes for itself, and must do like the others."""

import torch
from catalogue import Told, mistake, right

import softmesh as ttnn

TILES = ttnn.TILE_LAYOUT
L1, DRAM = ttnn.L1_MEMORY_CONFIG, ttnn.DRAM_MEMORY_CONFIG
OTHER = "runs another program than the rest: call number"
LIES = "Every collective succeeds, and ranks add up results of different computations."
LATER = "Addresses differ from then on: a collective writes over other tensors, calls later."


def put(mesh, value=1.0):
    mapper = ttnn.ShardTensor2dMesh(mesh, tuple(mesh.shape), dims=(None, -1))
    return ttnn.from_torch(torch.full((128, 128), value), layout=TILES, device=mesh, mesh_mapper=mapper)


def copies(mesh, values):
    return ttnn.from_torch(values, layout=TILES, device=mesh, mesh_mapper=ttnn.ReplicateTensorToMesh(mesh))


@mistake(Told.LOCKSTEP, OTHER, "in relu(", "in gelu(", symptom=LIES, mend="One activation on all ranks.")
def another_op(mesh, rank):
    x = put(mesh)
    ttnn.all_reduce(ttnn.relu(x) if rank else ttnn.gelu(x), cluster_axis=1)


@mistake(Told.LOCKSTEP, OTHER, "in add(", symptom=LIES, mend="One number on all ranks.")
def another_number(mesh, rank):
    ttnn.all_reduce(ttnn.add(put(mesh), 1.0 + rank), cluster_axis=1)


@mistake(Told.LOCKSTEP, OTHER, "in typecast(", symptom=LIES, mend="One dtype on all ranks.")
def another_dtype(mesh, rank):
    ttnn.typecast(put(mesh), ttnn.bfloat16 if rank else ttnn.bfloat8_b)


@mistake(Told.LOCKSTEP, OTHER, "in add(", symptom=LATER, mend="One memory config on all ranks.")
def memory_of_an_op_differs(mesh, rank):
    ttnn.add(put(mesh), 1.0, memory_config=L1 if rank else DRAM)


@mistake(Told.LOCKSTEP, OTHER, "in matmul(", symptom=LIES, mend="One compute config on all ranks.")
def another_precision(mesh, rank):
    fidelity = ttnn.MathFidelity.HiFi4 if rank else ttnn.MathFidelity.LoFi
    x = ttnn.all_gather(put(mesh), 1, cluster_axis=1)
    ttnn.matmul(x, x, compute_kernel_config=ttnn.WormholeComputeKernelConfig(math_fidelity=fidelity))


@mistake(Told.LOCKSTEP, OTHER, "in concat(", symptom=LIES, mend="Go through a list, not through a set.")
def tensors_in_another_order(mesh, rank):
    x, y = put(mesh), put(mesh)
    ttnn.concat([x, y] if rank else [y, x], dim=0)


@mistake(Told.LOCKSTEP, OTHER, "in deallocate(", symptom=LATER, mend="Free in one order on all ranks.")
def memory_is_freed_in_another_order(mesh, rank):
    x, y = put(mesh), put(mesh)
    for tensor in (x, y) if rank else (y, x):
        ttnn.deallocate(tensor)


@mistake(Told.LOCKSTEP, OTHER, symptom=LATER, mend="Free on all ranks.")
def memory_is_freed_by_one(mesh, rank):
    x = put(mesh)
    if rank:
        ttnn.deallocate(x)
    ttnn.relu(put(mesh))


@mistake(Told.LOCKSTEP, OTHER, "in add(", symptom=LATER, mend="Make the same ops on all ranks.")
def an_op_more(mesh, rank):
    x = put(mesh)
    if rank:
        x = ttnn.add(x, 0.0)
    ttnn.relu(x)


@mistake(Told.LOCKSTEP, OTHER, "in mesh_partition(", symptom=LIES, mend="One axis on all ranks.")
def another_axis_of_a_partition(mesh, rank):
    ttnn.mesh_partition(copies(mesh, torch.ones(128, 128)), 1, rank)


@mistake(
    Told.LOCKSTEP,
    OTHER,
    "replicated values",
    symptom="Ranks hold different copies of what should be one weight; results depend on the device that is read.",
    mend="Load or draw it from one source: the same file, the same seed.",
)
def copies_that_differ(mesh, rank):
    ttnn.all_reduce(copies(mesh, torch.full((32, 128), 1.0 + rank)), cluster_axis=1)


@mistake(
    Told.LOCKSTEP,
    OTHER,
    "replicated values",
    symptom="Each rank starts from other weights.",
    mend="torch.manual_seed with one number on all ranks.",
)
def weights_of_another_seed(mesh, rank):
    torch.manual_seed(rank)
    copies(mesh, torch.rand(32, 32))


@mistake(
    Told.LOCKSTEP,
    OTHER,
    "replicated values",
    symptom="Each rank goes on with other inputs.",
    mend="Let one rank decide and broadcast, or compute it alike.",
)
def inputs_that_are_written_over_differ(mesh, rank):
    x = copies(mesh, torch.ones(32, 128))
    new = torch.full((32, 128), 1.0 + rank)
    ttnn.copy_host_to_device_tensor(ttnn.from_torch(new, layout=TILES, mesh_mapper=ttnn.ReplicateTensorToMesh(mesh)), x)


DATA = (
    "Some rows are worked on twice and others never: the loss looks well, and the model learns from part of the data."
)
ONE_ORDER = "One seed on all ranks for what is split between them, or shuffle on one and broadcast the order."


def split(mesh, values, dim=0):
    mapper = ttnn.ShardTensorToMesh(mesh, dim=dim)
    return ttnn.from_torch(values, layout=TILES, device=mesh, mesh_mapper=mapper)


@mistake(Told.LOCKSTEP, OTHER, "all values of the host", symptom=DATA, mend=ONE_ORDER)
def a_batch_is_shuffled_by_a_seed_of_each_rank(mesh, rank):
    order = torch.randperm(8 * 32, generator=torch.Generator().manual_seed(rank))
    split(mesh, torch.arange(8.0 * 32)[order].reshape(8, 32))


@mistake(Told.LOCKSTEP, OTHER, "all values of the host", symptom=DATA, mend=ONE_ORDER)
def another_batch_of_the_data_on_one_rank(mesh, rank):
    data = torch.arange(16.0 * 32).reshape(16, 32)
    x = split(mesh, data[:8])
    batch = ttnn.from_torch(data[8 * rank :][:8], layout=TILES, mesh_mapper=ttnn.ShardTensorToMesh(mesh, dim=0))
    ttnn.copy_host_to_device_tensor(batch, x)


@mistake(
    Told.LOCKSTEP,
    OTHER,
    "all values of the host",
    symptom="The weight that is put together of all parts is none that anybody drew or saved.",
    mend="torch.manual_seed with one number on all ranks, or one file.",
)
def split_weights_of_another_seed(mesh, rank):
    torch.manual_seed(rank)
    mapper = ttnn.ShardTensorToMesh(mesh, dim=1)
    ttnn.to_device(ttnn.from_torch(torch.rand(32, 256), layout=TILES, mesh_mapper=mapper), mesh)


@right
def a_batch_is_shuffled_by_one_seed(mesh, rank):
    order = torch.randperm(8 * 32, generator=torch.Generator().manual_seed(5))
    x = split(mesh, torch.arange(8.0 * 32)[order].reshape(8, 32))
    order = torch.randperm(8, generator=torch.Generator().manual_seed(6))
    values = torch.arange(8.0 * 32).reshape(8, 32)[order]
    batch = ttnn.from_torch(values, layout=TILES, mesh_mapper=ttnn.ShardTensorToMesh(mesh, dim=0))
    ttnn.copy_host_to_device_tensor(batch, x)


@right
def split_weights_of_one_seed(mesh, rank):
    torch.manual_seed(7)
    split(mesh, torch.rand(32, 256), dim=1)
    torch.manual_seed(rank)  # what a rank draws for itself afterwards is its own affair
    torch.rand(3)


@right
def weights_of_one_seed(mesh, rank):
    torch.manual_seed(0)
    copies(mesh, torch.rand(32, 32))


@mistake(
    Told.LOCKSTEP,
    OTHER,
    "all values of the host",
    symptom="The same program in one process, or over other ranks, has other inputs.",
    mend="Hand all of the values to every rank; one that can load its own part alone runs without SOFTMESH_LOCKSTEP.",
)
def each_rank_makes_up_all_inputs(mesh, rank):
    ttnn.all_gather(put(mesh, 1.0 + rank), 1, cluster_axis=1)


@right
def copies_of_no_number(mesh, rank):
    copies(mesh, torch.full((32, 128), float("nan")))


@right
def one_rank_prints(mesh, rank):
    x = ttnn.all_reduce(put(mesh), cluster_axis=1)
    if rank == 0:
        str(x)
    ttnn.all_reduce(x, cluster_axis=1)


@right
def one_rank_waits_for_an_event(mesh, rank):
    x = put(mesh)
    event = ttnn.record_event(mesh, 0)
    if rank:
        ttnn.event_synchronize(event)
    ttnn.all_reduce(x, cluster_axis=1)


@right
def one_rank_has_work_on_the_host(mesh, rank):
    if rank == 0:
        [ttnn.from_torch(torch.ones(32, 32), layout=TILES) for _ in range(3)]
    ttnn.all_reduce(put(mesh), cluster_axis=1)


@right
def layers_of_a_model(mesh, rank):
    x = put(mesh)
    for _ in range(3):
        x = ttnn.gelu(ttnn.all_reduce(ttnn.multiply(x, 0.5), cluster_axis=1))


@right
def memory_is_freed_by_all(mesh, rank):
    x, y = put(mesh), put(mesh)
    ttnn.deallocate(x)
    ttnn.relu(y)


@right
def tokens_go_into_a_cache_in_empty_memory(mesh, rank):
    cache = ttnn.empty((2, 1, 64, 32), ttnn.bfloat16, ttnn.TILE_LAYOUT, mesh)
    mapper = ttnn.ShardTensor2dMesh(mesh, tuple(mesh.shape), dims=(None, 2))
    token = ttnn.from_torch(
        torch.ones(1, 2, 4, 32), ttnn.bfloat16, layout=ttnn.TILE_LAYOUT, device=mesh, mesh_mapper=mapper
    )
    for position in range(4):
        ttnn.experimental.paged_update_cache(cache, token, update_idxs=[position] * 2)
        attend = ttnn.transformer.scaled_dot_product_attention_decode
        heads = attend(token, cache, cache, cur_pos=[position] * 2)
        [ttnn.to_torch(shard) for shard in ttnn.get_device_tensors(ttnn.all_gather(heads, 2, cluster_axis=1))]
