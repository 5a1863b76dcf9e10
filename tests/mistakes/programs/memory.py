"""Memory: what nothing was written to, and what is no longer there."""

import torch
from catalogue import Told, mistake, right

import softmesh as ttnn

TILES = ttnn.TILE_LAYOUT
OLD = "Values of whatever was there before: other ones in each run."


def copies(mesh, shape=(128, 128)):
    mapper = ttnn.ReplicateTensorToMesh(mesh)
    return ttnn.from_torch(torch.ones(*shape), layout=TILES, device=mesh, mesh_mapper=mapper)


def read(tensor):
    return ttnn.to_torch(ttnn.get_device_tensors(tensor)[0])


@mistake(
    Told.WARNING,
    "nothing was written to since ttnn.empty",
    symptom=OLD,
    mend="Write to it first, or make it with ttnn.zeros.",
)
def empty_memory_is_read(mesh):
    read(ttnn.empty((32, 32), ttnn.bfloat16, TILES, mesh))


@mistake(
    Told.WARNING,
    "nothing was written to since ttnn.empty",
    symptom=OLD,
    mend="Write to it before an op reads it, or make it with ttnn.zeros.",
)
def what_is_made_of_empty_memory_is_read(mesh):
    read(ttnn.relu(ttnn.add(ttnn.empty((32, 32), ttnn.bfloat16, TILES, mesh), 1.0)))


@mistake(
    Told.WARNING,
    "nothing was written to since ttnn.empty_like",
    symptom=OLD,
    mend="ttnn.zeros_like, or write to it first.",
)
def memory_like_another_is_read(mesh):
    read(ttnn.empty_like(copies(mesh)))


@mistake(
    Told.WARNING,
    "nothing was written to since ttnn.allocate_tensor_on_device",
    symptom=OLD,
    mend="ttnn.copy_host_to_device_tensor before it is read.",
)
def allocated_memory_is_read(mesh):
    read(ttnn.allocate_tensor_on_device((32, 32), ttnn.bfloat16, TILES, mesh))


@mistake(
    Told.WARNING,
    "all_gather",
    "nothing was written to since ttnn.empty",
    symptom=OLD,
    mend="Write to it before it is sent.",
)
def empty_memory_is_gathered(mesh):
    ttnn.all_gather(ttnn.empty((32, 32), ttnn.bfloat16, TILES, mesh), 1, cluster_axis=1)


@right
def empty_memory_is_an_output(mesh):
    made = ttnn.empty((128, 128), ttnn.float32, TILES, mesh)
    ttnn.add(copies(mesh), 1.0, output_tensor=made)
    read(made)


@right
def empty_memory_is_written_by_the_host(mesh):
    made = ttnn.allocate_tensor_on_device((32, 32), ttnn.bfloat16, TILES, mesh)
    ttnn.copy_host_to_device_tensor(ttnn.from_torch(torch.ones(32, 32), ttnn.bfloat16, layout=TILES), made)
    read(ttnn.relu(made))


@right
def empty_memory_is_copied_to(mesh):
    made = ttnn.empty((128, 128), ttnn.float32, TILES, mesh)
    ttnn.copy(copies(mesh), made)
    read(made)


@right
def empty_memory_is_a_cache_that_is_filled(mesh):
    cache = ttnn.empty((1, 1, 64, 64), ttnn.float32, TILES, mesh)
    ttnn.fill_cache(cache, copies(mesh, (1, 1, 32, 64)), 0)
    read(cache)


@right
def memory_of_zeros_is_read(mesh):
    read(ttnn.add(ttnn.zeros((32, 32), ttnn.bfloat16, TILES, mesh), 1.0))


@right
def empty_memory_is_only_there(mesh):
    made = ttnn.empty((32, 32), ttnn.bfloat16, TILES, mesh)
    ttnn.deallocate(made)
