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
    "nothing was written to since ttnn.empty",
    symptom=OLD,
    mend="An op in place reads what it overwrites: ttnn.zeros, or write to it first.",
)
def empty_memory_is_changed_in_place(mesh):
    x = ttnn.empty((32, 32), ttnn.bfloat16, TILES, mesh)
    ttnn.add_(x, 1.0)
    read(x)


@right
def memory_that_is_filled_or_taken_for_a_shape(mesh):
    x = ttnn.empty((32, 32), ttnn.bfloat16, TILES, mesh)
    read(ttnn.fill(x, 2.0))
    read(ttnn.ones_like(x))
    ttnn.add_(ttnn.fill(x, 2.0), 1.0)


def replayed(mesh, x):
    ttnn.relu(x)
    trace = ttnn.begin_trace_capture(mesh, cq_id=0)
    y = ttnn.relu(x)
    ttnn.end_trace_capture(mesh, trace, cq_id=0)
    return trace, y


@mistake(
    Told.WARNING,
    "execute_trace: what was captured at",
    "nothing was written to since ttnn.empty",
    symptom=OLD,
    mend="Write the inputs of a trace before it runs.",
)
def a_trace_runs_on_empty_memory(mesh):
    x = ttnn.empty((32, 32), ttnn.bfloat16, TILES, mesh)
    trace, _ = replayed(mesh, x)
    ttnn.execute_trace(mesh, trace, cq_id=0, blocking=True)


@right
def the_empty_input_of_a_trace_is_written_before_it_runs(mesh):
    x = ttnn.empty((32, 32), ttnn.bfloat16, TILES, mesh)
    trace, y = replayed(mesh, x)
    ttnn.copy_host_to_device_tensor(ttnn.from_torch(torch.ones(32, 32), ttnn.bfloat16, layout=TILES), x)
    ttnn.execute_trace(mesh, trace, cq_id=0, blocking=True)
    read(y)
    ttnn.release_trace(mesh, trace)


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
    ttnn.fill_cache(cache, copies(mesh, (1, 1, 64, 64)), 0)
    read(cache)


@right
def memory_of_zeros_is_read(mesh):
    read(ttnn.add(ttnn.zeros((32, 32), ttnn.bfloat16, TILES, mesh), 1.0))


@right
def empty_memory_is_only_there(mesh):
    made = ttnn.empty((32, 32), ttnn.bfloat16, TILES, mesh)
    ttnn.deallocate(made)


# -- memory that is no longer there, or never was ------------------------------------------------

STALE = "The memory holds other tensors by now: numbers of another layer, in some runs only."
NO_ROOM = "The runtime stops with a size in bytes and no word of what fills the memory."


@mistake(
    Told.ERROR,
    "Tensor is not allocated: relu needs its values, and it was deallocated at",
    symptom=STALE,
    mend="Deallocate after the last use.",
)
def memory_is_used_after_it_was_freed(mesh):
    x = copies(mesh)
    ttnn.deallocate(x)
    ttnn.relu(x)


@mistake(
    Told.ERROR,
    "It shared its memory with another tensor",
    symptom=STALE,
    mend="A reshape is a view: free neither before both are used.",
)
def a_view_outlives_its_memory(mesh):
    x = copies(mesh)
    y = ttnn.reshape(x, (1, 128, 128))
    ttnn.deallocate(x)
    ttnn.relu(y)


@right
def a_view_is_used_and_then_freed(mesh):
    x = copies(mesh)
    ttnn.relu(ttnn.reshape(x, (1, 128, 128)))
    ttnn.deallocate(x)
    ttnn.deallocate(x)


@mistake(
    Told.ERROR,
    "is closed. Open it again with ttnn.open_mesh_device",
    symptom="A crash, or a wait for chips that answer no more.",
    mend="Close the mesh when all tensors were read.",
)
def a_tensor_outlives_its_mesh(mesh):
    x = copies(mesh)
    ttnn.close_mesh_device(mesh)
    ttnn.to_torch(x)


@right
def a_tensor_is_read_before_its_mesh_is_closed(mesh):
    host = ttnn.from_device(copies(mesh))
    ttnn.close_mesh_device(mesh)
    ttnn.to_torch(ttnn.get_device_tensors(host)[0])


@mistake(
    Told.ERROR,
    "Out of Memory: Not enough space to allocate",
    "L1 buffer",
    symptom=NO_ROOM,
    mend="Keep what is large in DRAM, or free results as they are used; the message lists what is there.",
)
def more_than_l1_holds(mesh):
    [ttnn.empty((4096, 4096), ttnn.bfloat16, TILES, mesh, ttnn.L1_MEMORY_CONFIG) for _ in range(8)]


@mistake(
    Told.ERROR,
    "Out of Memory: Not enough space to allocate",
    "DRAM buffer",
    symptom=NO_ROOM,
    mend="Split the weights over more devices, or keep them in bfloat8_b.",
)
def more_than_dram_holds(mesh):
    [ttnn.empty((32768, 32768), ttnn.bfloat16, TILES, mesh) for _ in range(8)]


@right
def as_much_as_dram_holds(mesh):
    [ttnn.empty((32768, 32768), ttnn.bfloat16, TILES, mesh) for _ in range(5)]


@mistake(
    Told.ERROR,
    "Out of Memory: Not enough space to allocate",
    "across 1 banks",
    symptom=NO_ROOM,
    mend="Spread the shards over more cores.",
)
def a_shard_larger_than_a_core(mesh):
    one = ttnn.CoreGrid(x=1, y=1)
    config = ttnn.create_sharded_memory_config((2048, 2048), core_grid=one, strategy=ttnn.ShardStrategy.HEIGHT)
    ttnn.to_memory_config(copies(mesh, (2048, 2048)), config)


@right
def shards_on_many_cores(mesh):
    many = ttnn.CoreGrid(x=8, y=8)
    config = ttnn.create_sharded_memory_config((2048, 2048), core_grid=many, strategy=ttnn.ShardStrategy.BLOCK)
    ttnn.to_memory_config(copies(mesh, (2048, 2048)), config)


@mistake(
    Told.ERROR,
    "Operands to eltwise binary need to be on the same device!",
    symptom="The op reads an address of its own mesh, where something else lies.",
    mend="Bring one operand over: ttnn.to_device(ttnn.from_device(x), mesh).",
)
def operands_on_two_meshes():
    left, right_mesh = (ttnn.open_mesh_device(ttnn.MeshShape(1, 2)) for _ in range(2))
    ttnn.add(copies(left), copies(right_mesh))


@right
def an_operand_is_brought_over():
    left, right_mesh = (ttnn.open_mesh_device(ttnn.MeshShape(1, 2)) for _ in range(2))
    ttnn.add(copies(left), ttnn.to_device(ttnn.from_device(copies(right_mesh)), left))


@mistake(
    Told.ERROR,
    "Input tensor B must be on device, got storage type: StorageType::HOST",
    symptom="A crash, or values of whatever lies at that address.",
    mend="ttnn.to_device, or device=mesh in from_torch.",
)
def an_operand_on_the_host(mesh):
    ttnn.add(copies(mesh, (32, 32)), ttnn.from_torch(torch.ones(32, 32), layout=TILES))


@right
def both_operands_on_the_mesh(mesh):
    ttnn.add(copies(mesh), copies(mesh))


@mistake(
    Told.ERROR,
    "the output tensor has shape Shape([64, 64]), the result [128, 128]",
    symptom="What lies behind the output tensor is written over.",
    mend="Allocate outputs with the shape of the result.",
)
def an_output_tensor_that_is_too_small(mesh):
    ttnn.add(copies(mesh), 1.0, output_tensor=copies(mesh, (64, 64)))


@right
def an_output_tensor_that_fits(mesh):
    read(ttnn.add(copies(mesh), 1.0, output_tensor=copies(mesh)))


@mistake(
    Told.ERROR,
    "Host tensor has different shape",
    symptom="Part of the old values stay, or other tensors are written over.",
    mend="Copy tensors of one shape, dtype and layout.",
)
def a_host_tensor_of_another_shape_is_written(mesh):
    ttnn.copy_host_to_device_tensor(ttnn.from_torch(torch.ones(64, 64), layout=TILES), copies(mesh, (32, 32)))


@right
def a_host_tensor_of_the_same_shape_is_written(mesh):
    ttnn.copy_host_to_device_tensor(ttnn.from_torch(torch.ones(64, 64), layout=TILES), copies(mesh, (64, 64)))
