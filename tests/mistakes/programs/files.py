"""Files: tensors, caches and checkpoints that are damaged, missing or cannot be written."""

import re

import torch
from catalogue import Told, mistake, right

import softmesh as ttnn
from softmesh.train import checkpoints

TORN = "Loads without a word, and the model is quietly worse."
STOPS = "The program stops with an error of the operating system, far from its cause."


def dumped(folder, name="x.tensorbin"):
    x = ttnn.from_torch(torch.arange(4096.0).reshape(64, 64), dtype=ttnn.bfloat16, layout=ttnn.TILE_LAYOUT)
    ttnn.dump_tensor(folder / name, x)
    return folder / name


def saved(folder, step=1):
    """A checkpoint: its folder, what was saved and the file of a part."""
    mesh = ttnn.open_mesh_device(ttnn.MeshShape(1, 2))
    weight = ttnn.from_torch(torch.ones(8, 8), dtype=ttnn.float32, layout=ttnn.TILE_LAYOUT, device=mesh)
    checkpoints.save(folder / "run", [weight], step=step)
    return folder / "run", weight, next((folder / "run").glob("step-*/part-*"))


def flip(path, at):
    content = bytearray(path.read_bytes())
    content[at] ^= 4
    path.write_bytes(content)


@mistake(
    Told.ERROR,
    "Cannot validate tensor data; this most likely indicates data corruption",
    symptom=TORN,
    mend="Write the file anew from its source.",
)
def a_flipped_bit_in_the_values_of_a_tensor_file(folder):
    path = dumped(folder)
    flip(path, -100)
    ttnn.load_tensor(path)


@mistake(Told.ERROR, "x.tensorbin", symptom=TORN, mend="Write the file anew from its source.")
def a_flipped_bit_in_the_header_of_a_tensor_file(folder):
    path = dumped(folder)
    flip(path, 60)
    ttnn.load_tensor(path)


@right
def a_tensor_file_is_loaded_twice(folder):
    path = dumped(folder)
    ttnn.load_tensor(path)
    ttnn.load_tensor(path)


@mistake(
    Told.ERROR,
    "truncated or corrupt",
    symptom="A crash while loading, or values of zero at the end of a weight.",
    mend="Copy or write the file again; the disk or the network dropped its end.",
)
def a_tensor_file_that_was_cut_short(folder):
    path = dumped(folder)
    path.write_bytes(path.read_bytes()[:1000])
    ttnn.load_tensor(path)


@right
def a_tensor_file_with_bytes_behind_it(folder):
    path = dumped(folder)
    path.write_bytes(path.read_bytes() + bytes(100))
    ttnn.load_tensor(path)


@mistake(Told.ERROR, "The folder must exist and be writable", symptom=STOPS, mend="Make the folder first.")
def a_folder_that_is_not_there(folder):
    dumped(folder / "none")


@right
def a_tensor_is_dumped_over_an_older_file(folder):
    dumped(folder)
    dumped(folder)


@mistake(Told.ERROR, "Cannot create a temporary file", symptom=STOPS, mend="Choose another name.")
def a_name_with_a_zero_in_it(folder):
    dumped(folder, "a\0.tensorbin")


@right
def a_name_with_a_space_in_it(folder):
    dumped(folder, "a 0.tensorbin")


@mistake(Told.ERROR, "of the cache cannot be made", symptom=STOPS, mend="Name a folder, or a path in one.")
def a_cache_in_a_folder_that_is_a_file(folder):
    ttnn.as_tensor(torch.ones(2, 2), ttnn.bfloat16, cache_file_name=dumped(folder) / "cache")


@right
def a_cache_in_a_folder_that_is_not_there_yet(folder):
    ttnn.as_tensor(torch.ones(2, 2), ttnn.bfloat16, cache_file_name=folder / "sub" / "cache")


@mistake(
    Told.ERROR,
    "is damaged: its checksum is",
    symptom=TORN,
    mend="Go back to the checkpoint before; `checkpoints.load` names the part.",
)
def a_flipped_bit_in_a_part_of_a_checkpoint(folder):
    run, weight, part = saved(folder)
    flip(part, -5)
    checkpoints.load(run, [weight])


@right
def a_checkpoint_is_loaded(folder):
    run, weight, _ = saved(folder)
    checkpoints.load(run, [weight])


@mistake(
    Told.REMARK,
    "has no checksums, because an older softmesh saved it",
    symptom="Damage to such a checkpoint cannot be noticed.",
    mend="Save it again.",
)
def a_checkpoint_of_before_there_were_checksums(folder):
    run, weight, part = saved(folder)
    index = part.parent / "index.json"
    index.write_text(re.sub(r', "checksum": "[0-9a-f]+"', "", index.read_text()))
    checkpoints.load(run, [weight])


@right
def the_latest_of_two_checkpoints_is_loaded(folder):
    saved(folder)
    run, weight, _ = saved(folder, step=2)
    checkpoints.load(run, [weight])


@mistake(
    Told.ERROR,
    "Unable to load the tensor from",
    "The file does not exist",
    symptom=STOPS,
    mend="Look at the path, and at the folder the program was started in.",
)
def a_tensor_file_that_is_not_there(folder):
    ttnn.load_tensor(folder / "x.tensorbin")


@mistake(Told.ERROR, "is too small to be valid: it has 0 bytes", symptom=STOPS, mend="Write the file again.")
def a_tensor_file_that_is_empty(folder):
    (folder / "x.tensorbin").write_bytes(b"")
    ttnn.load_tensor(folder / "x.tensorbin")


@mistake(
    Told.ERROR,
    "Tensor header size is too large; this most likely indicates data corruption",
    symptom="The host asks for exabytes of memory.",
    mend="Give a file that ttnn.dump_tensor wrote.",
)
def a_tensor_file_that_is_a_text(folder):
    (folder / "x.tensorbin").write_text("hello world" * 100)
    ttnn.load_tensor(folder / "x.tensorbin")


@mistake(
    Told.ERROR,
    "must have .tensorbin extension",
    symptom="A pickle is run as a program.",
    mend="torch.load(..., weights_only=True), then ttnn.from_torch.",
)
def a_file_of_torch_is_loaded(folder):
    torch.save(torch.ones(3), folder / "x.pt")
    ttnn.load_tensor(folder / "x.pt")


@right
def a_file_of_torch_becomes_a_tensor(folder):
    torch.save(torch.ones(3), folder / "x.pt")
    ttnn.from_torch(torch.load(folder / "x.pt", weights_only=True))


@mistake(
    Told.ERROR,
    "is too small to be valid: it has 4 bytes",
    symptom="Weights of an aborted run are taken for good ones.",
    mend="Delete the file that the message names; it is written anew.",
)
def a_cache_file_of_a_run_that_was_killed(folder):
    ttnn.as_tensor(torch.ones(2, 2), ttnn.bfloat16, cache_file_name=folder / "cache")
    next(folder.iterdir()).write_bytes(b"junk")
    ttnn.as_tensor(torch.ones(2, 2), ttnn.bfloat16, cache_file_name=folder / "cache")


@mistake(
    Told.ERROR,
    "as_tensor: the cache cannot be looked for",
    symptom="A raw OSError, from a line of the library.",
    mend="A shorter name.",
)
def a_name_of_a_cache_file_that_is_too_long(folder):
    ttnn.as_tensor(torch.ones(2, 2), ttnn.bfloat16, cache_file_name=folder / ("weights" * 100))


@mistake(
    Told.ERROR,
    "Unable to load the tensor from",
    "The file does not exist",
    symptom="A raw OSError, from a line of the library.",
    mend="A shorter name.",
)
def a_name_of_a_tensor_file_that_is_too_long(folder):
    ttnn.load_tensor(folder / f"{'weights' * 100}.tensorbin")


@right
def a_cache_file_is_used_again(folder):
    for _ in range(2):
        ttnn.as_tensor(torch.ones(2, 2), ttnn.bfloat16, cache_file_name=folder / "cache")


for dtype in (ttnn.bfloat16, ttnn.float32, ttnn.bfloat8_b, ttnn.int32):

    @right
    def program(folder, dtype=dtype):
        mesh = ttnn.open_mesh_device(ttnn.MeshShape(1, 2))
        mapper = ttnn.ShardTensorToMesh(mesh, 0)
        x = ttnn.from_torch(torch.ones(64, 32), dtype, layout=ttnn.TILE_LAYOUT, device=mesh, mesh_mapper=mapper)
        ttnn.dump_tensor(folder / "x.tensorbin", ttnn.from_device(x))
        ttnn.load_tensor(folder / "x.tensorbin", device=mesh)

    program.__doc__ = f"Shards in {dtype.name.lower()} are dumped and loaded"


def weight(folder, values, name="layer", **how):
    return ttnn.as_tensor(values, ttnn.bfloat16, layout=ttnn.TILE_LAYOUT, cache_file_name=folder / name, **how)


ANOTHER = "The file is loaded and the tensor ignored: a layer computes with the weights of another one."
APART = "A cache_file_name of its own for each tensor, which also tells how it was preprocessed."


@mistake(
    Told.WARNING,
    "holds a tensor [64, 32], and [128, 32] is given",
    "Give each tensor a cache_file_name of its own",
    symptom=ANOTHER,
    mend=APART,
)
def two_layers_of_different_shapes_share_a_cache(folder):
    weight(folder, torch.zeros(64, 32))
    weight(folder, torch.ones(128, 32))


@mistake(
    Told.STRICT,
    "holds [64, 32] with other values than the tensor that is given",
    symptom=ANOTHER,
    mend=APART,
)
def two_layers_of_one_shape_share_a_cache(folder):
    for seed in (0, 1):
        weight(folder, torch.randn(64, 32, generator=torch.Generator().manual_seed(seed)))


@mistake(Told.STRICT, "with other values than the tensor that is given", symptom=ANOTHER, mend=APART)
def weights_are_cached_before_the_preprocessing_changed(folder):
    values = torch.arange(1024.0).reshape(32, 32)
    weight(folder, values)
    weight(folder, values, preprocess=lambda tensor: tensor.T)


@mistake(Told.STRICT, "with other values than the tensor that is given", symptom=ANOTHER, mend=APART)
def weights_of_a_trained_model_meet_the_cache_of_the_untrained_one(folder, mesh):
    mapper = ttnn.ShardTensorToMesh(mesh, dim=0)
    for values in (torch.ones(256, 32), torch.full((256, 32), 1.5)):
        weight(folder, values, device=mesh, memory_config=ttnn.DRAM_MEMORY_CONFIG, mesh_mapper=mapper)


@right
def a_cache_is_read_with_the_tensor_that_it_was_made_of(folder, mesh):
    values = torch.arange(2048.0).reshape(64, 32)
    values[0, 0] = torch.nan
    for _ in range(2):
        weight(folder, values, preprocess=lambda tensor: tensor.T.contiguous())
        weight(folder, values, "split", mesh_mapper=ttnn.ShardTensor2dMesh(mesh, (2, 4), dims=(None, 0)))
        weight(folder, values, "copies", mesh_mapper=ttnn.ReplicateTensorToMesh(mesh))


@right
def a_cache_is_read_without_a_tensor(folder):
    weight(folder, torch.ones(64, 32))
    for nothing in (None, torch.zeros(1), torch.empty(64, 32, device="meta")):
        weight(folder, nothing)
