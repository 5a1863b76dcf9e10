"""Bad input: an error of the softmesh family that names the argument, both sides and the remedy.

After each the tensors involved are as they were.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch

import softmesh as ttnn
from softmesh import MeshCoordinate, MeshDevice, MeshShape, Tensor
from softmesh.tensor.device_allocation import deallocate
from softmesh.tensor.methods import get_memory_config, has_tile_padding, is_sharded

TILE = ttnn.TILE_LAYOUT


class Scene(NamedTuple):
    """Tensors to go wrong with, and the values they must keep."""

    mesh: MeshDevice
    twin: MeshDevice  # another mesh of the same shape
    line: MeshDevice
    wide: Tensor  # 32 x 64
    square: Tensor  # 32 x 32
    rows: Tensor  # row-major
    vector: Tensor
    ids: Tensor
    split: Tensor
    abroad: Tensor  # on the twin mesh
    host: Tensor
    dead: Tensor

    def values(self) -> dict[str, torch.Tensor]:
        tensors = {name: t for name, t in self._asdict().items() if isinstance(t, Tensor) and name != "dead"}
        return {name: ttnn.compose(t) for name, t in tensors.items()}


def set_scene(mesh: MeshDevice, twin: MeshDevice, line: MeshDevice) -> Scene:
    def ramp(*shape: int) -> torch.Tensor:
        return torch.arange(torch.Size(shape).numel(), dtype=torch.float32).reshape(shape) / 64

    dead = ttnn.ones([32, 64], layout=TILE, device=mesh)
    dead.deallocate(force=True)
    return Scene(
        mesh,
        twin,
        line,
        wide=ttnn.from_torch(ramp(32, 64), layout=TILE, device=mesh),
        square=ttnn.from_torch(ramp(32, 32), layout=TILE, device=mesh),
        rows=ttnn.from_torch(ramp(32, 32), device=mesh),
        vector=ttnn.from_torch(ramp(32), layout=TILE, device=mesh),
        ids=ttnn.from_torch(torch.arange(32, dtype=torch.int32).reshape(1, 32), device=mesh),
        split=ttnn.from_torch(ramp(256, 32), layout=TILE, device=mesh, mesh_mapper=ttnn.ShardTensorToMesh(mesh, 0)),
        abroad=ttnn.from_torch(ramp(32, 64), layout=TILE, device=twin),
        host=ttnn.from_torch(ramp(32, 64), layout=TILE),
        dead=dead,
    )


@pytest.fixture(scope="module")
def scene() -> Iterator[Scene]:
    with (
        ttnn.create_mesh_device(MeshShape(2, 4), physical_device_ids=range(140, 148)) as mesh,
        ttnn.create_mesh_device(MeshShape(2, 4), physical_device_ids=range(150, 158)) as twin,
        ttnn.create_mesh_device(MeshShape(1, 4), physical_device_ids=range(160, 164)) as line,
    ):
        yield set_scene(mesh, twin, line)


def refuses(scene: Scene, attempt: Callable[[Scene], Any], *fragments: str) -> ttnn.SoftmeshError:
    """Fails with an error of ours that says all of this, and leaves every tensor as it was."""
    before = scene.values()
    with pytest.raises(ttnn.SoftmeshError) as caught:
        attempt(scene)
    for fragment in fragments:
        assert fragment in str(caught.value)
    assert not isinstance(caught.value, AssertionError | AttributeError)
    for name, values in scene.values().items():
        assert torch.equal(values, before[name]), f"{name} was changed"
    return caught.value


# -- the issue's own list --------------------------------------------------------------------------

WRONG_DTYPE: dict[str, tuple[Callable[[Scene], Any], tuple[str, ...]]] = {
    "bits of floats": (
        lambda s: ttnn.bitwise_and(s.wide, s.wide),
        ("input_tensor_a", "is not supported for binary operation", "DataType.FLOAT32"),
    ),
    "floats as row numbers": (
        lambda s: ttnn.embedding(s.wide, s.square),
        ("input_tensor", "ttnn.uint32", "DataType.FLOAT32"),
    ),
    "floats as indices": (
        lambda s: ttnn.gather(s.wide, 0, s.wide),
        ("index must hold integers", "DataType.FLOAT32"),
    ),
    "a torch dtype": (
        lambda s: ttnn.typecast(s.wide, torch.float32),
        ("dtype must be a ttnn", "torch.float32"),
    ),
    "a name": (lambda s: ttnn.add(s.wide, s.wide, dtype="float32"), ("dtype must be a ttnn", "'float32'")),
    "of the output tensor": (
        lambda s: ttnn.add(s.wide, s.wide, dtype=ttnn.bfloat16, output_tensor=s.wide),
        ("output tensor is DataType.FLOAT32", "dtype=DataType.BFLOAT16"),
    ),
    "of a copy": (
        lambda s: ttnn.copy_host_to_device_tensor(ttnn.to_dtype(s.host, ttnn.bfloat16), s.wide),
        ("Host tensor has different dtype", "BFLOAT16 on the host", "FLOAT32 on the device"),
    ),
    "float64 without a choice": (
        lambda s: ttnn.from_torch(torch.ones(2, dtype=torch.float64)),
        ("torch.float64", "dtype=ttnn.float32"),
    ),
    "complex": (lambda s: ttnn.from_torch(torch.ones(2, dtype=torch.complex64)), ("torch.complex64",)),
}


@pytest.mark.parametrize("case", WRONG_DTYPE)
def test_a_wrong_dtype_names_the_argument_and_the_dtype(scene: Scene, case: str):
    attempt, fragments = WRONG_DTYPE[case]
    refuses(scene, attempt, *fragments)


WRONG_RANK_OR_DIM: dict[str, tuple[Callable[[Scene], Any], tuple[str, ...]]] = {
    "a vector in a matmul": (
        lambda s: ttnn.matmul(s.vector, s.square),
        ("rank 2 or more", "input_tensor_a [32]", "input_tensor_b [32, 32]", "unsqueeze"),
    ),
    "a table of rank 1": (
        lambda s: ttnn.embedding(s.ids, s.vector),
        ("weight must be (rows, width)", "[32]"),
    ),
    "softmax": (lambda s: ttnn.softmax(s.wide, dim=5), ("dim=5", "input_tensor", "[32, 64]", "-2 to 1")),
    "transpose": (lambda s: ttnn.transpose(s.wide, 0, 2), ("dim2=2", "[32, 64]", "-2 to 1")),
    "concat": (lambda s: ttnn.concat([s.wide, s.wide], dim=3), ("dim=3", "tensors[0]", "-2 to 1")),
    "sum": (lambda s: ttnn.sum(s.wide, dim=-4), ("dim=-4", "[32, 64]", "-2 to 1")),
    "a dim twice": (lambda s: ttnn.sum(s.wide, dim=[0, -2]), ("names a dim twice",)),
    "permute": (lambda s: ttnn.permute(s.wide, (0,)), ("dims=[0]", "[32, 64]")),
    "split off the end": (
        lambda s: ttnn.slice(s.wide, [0, 0], [40, 64]),
        ("[0:40]", "dim 0", "32 elements"),
    ),
    "too few bounds": (lambda s: ttnn.slice(s.wide, [0], [32]), ("2 dims", "[32, 64]")),
    "too many": (lambda s: ttnn.topk(s.wide, k=100), ("k=100", "between 1 and 64")),
    "the split dim": (
        lambda s: ttnn.from_torch(torch.ones(8, 8), mesh_mapper=ttnn.ShardTensorToMesh(s.mesh, 2)),
        ("Invalid dimension index; got dims: {2}, tensor dimension: 2", "(8, 8)", "-2 to 1"),
    ),
    "the composed dim": (
        lambda s: ttnn.to_torch(s.split, mesh_composer=ttnn.ConcatMeshToTensor(s.mesh, 5)),
        ("Invalid dimension index; got dims: {5}, tensor dimension: 2", "-2 to 1"),
    ),
    "torch_rank": (
        lambda s: ttnn.to_torch(s.host, torch_rank=1),
        ("Unable to squeeze to desired rank!", "(32, 64)", "rank 1"),
    ),
    "an index": (lambda s: s.wide[40], ("Index 40", "dimension 0 of size 32")),
}


@pytest.mark.parametrize("case", WRONG_RANK_OR_DIM)
def test_a_wrong_rank_or_dim_names_shape_and_range(scene: Scene, case: str):
    attempt, fragments = WRONG_RANK_OR_DIM[case]
    refuses(scene, attempt, *fragments)


WRONG_LAYOUT: dict[str, tuple[Callable[[Scene], Any], tuple[str, ...]]] = {
    "rows in a matmul": (
        lambda s: ttnn.matmul(s.rows, s.rows),
        (
            "must be tilized",
            "Layout.ROW_MAJOR",
            "Shape([32, 32])",
            "ttnn.to_layout(tensor, ttnn.TILE_LAYOUT)",
        ),
    ),
    "block floats in rows": (
        lambda s: ttnn.TensorSpec([2, 2], ttnn.bfloat8_b, ttnn.ROW_MAJOR_LAYOUT),
        ("Layout must be Layout::TILE", "layout=ttnn.TILE_LAYOUT"),
    ),
    "no whole tiles": (
        lambda s: ttnn.tilize(s.rows[:3, :3]),
        ("[3, 3]", "32x32", "ttnn.tilize_with_zero_padding"),
    ),
    "a name": (lambda s: ttnn.to_layout(s.wide, "TILE"), ("layout must be ttnn.TILE_LAYOUT", "'TILE'")),
    "of a copy": (
        lambda s: ttnn.copy_host_to_device_tensor(s.host.to(ttnn.ROW_MAJOR_LAYOUT), s.wide),
        ("different page config", "ROW_MAJOR on the host", "TILE on the device"),
    ),
    "sharded without shards": (
        lambda s: ttnn.to_device(s.host, s.mesh, ttnn.L1_HEIGHT_SHARDED_MEMORY_CONFIG),
        ("Shard spec must not be None", "ttnn.create_sharded_memory_config"),
    ),
}


@pytest.mark.parametrize("case", WRONG_LAYOUT)
def test_a_wrong_layout_names_the_right_one(scene: Scene, case: str):
    attempt, fragments = WRONG_LAYOUT[case]
    refuses(scene, attempt, *fragments)


UNEVEN: dict[str, tuple[Callable[[Scene], Any], tuple[str, ...]]] = {
    "over a line": (
        lambda s: ttnn.from_torch(torch.ones(9, 4), mesh_mapper=ttnn.ShardTensorToMesh(s.mesh, 0)),
        ("Shard shape mismatch", "dim 0 has 9 elements", "8 devices", "Pad it to 16", "softmesh.lenient()"),
    ),
    "over columns": (
        lambda s: ttnn.from_torch(
            torch.ones(2, 6), device=s.mesh, mesh_mapper=ttnn.ShardTensor2dMesh(s.mesh, (2, 4), (0, 1))
        ),
        ("number of chunks 6", "mesh dimension size 8", "dim 1 has 6 elements", "Pad it to 8"),
    ),
    "on the host": (
        lambda s: ttnn.distribute_tensor(ttnn.from_torch(torch.ones(9, 4)), ttnn.ShardTensorToMesh(s.mesh, 0)),
        ("Shard shape mismatch", "dim 0 has 9 elements"),
    ),
    "submeshes": (
        lambda s: s.mesh.create_submeshes(MeshShape(2, 3)),
        ("MeshShape([2, 4]) is not divisible by submesh shape MeshShape([2, 3]) along dimension 1",),
    ),
    "cores": (
        lambda s: ttnn.create_sharded_memory_config([33, 64], ttnn.CoreGrid(x=2, y=2), ttnn.ShardStrategy.HEIGHT),
        ("Invalid sharding core_grid", "33 x 64"),
    ),
}


@pytest.mark.parametrize("case", UNEVEN)
def test_what_does_not_divide_names_both_sizes_and_a_way_out(scene: Scene, case: str):
    attempt, fragments = UNEVEN[case]
    refuses(scene, attempt, *fragments)


@pytest.mark.parametrize(
    "attempt",
    [
        lambda s: ttnn.add(s.wide, s.abroad),
        lambda s: s.wide * s.abroad,
        lambda s: ttnn.matmul(s.square, s.abroad),
        lambda s: ttnn.concat([s.wide, s.abroad], dim=0),
        lambda s: ttnn.where(s.wide, s.wide, s.abroad),
        lambda s: ttnn.add(s.wide, s.wide, output_tensor=s.abroad),
        lambda s: ttnn.assign(s.wide, s.abroad),
    ],
)
def test_tensors_of_two_meshes_do_not_meet_in_one_op(scene: Scene, attempt: Callable[[Scene], Any]):
    refuses(
        scene,
        attempt,
        "need to be on the same device!",
        f"mesh ids [{scene.mesh.id()}",
        str(scene.twin.id()),
        "ttnn.to_device(ttnn.from_device(tensor), mesh_device)",
    )


@pytest.mark.parametrize(
    "attempt",
    [
        lambda s: ttnn.relu(s.dead),
        lambda s: s.wide + s.dead,
        lambda s: ttnn.concat([s.wide, s.dead], dim=0),
        lambda s: ttnn.add(s.wide, s.wide, output_tensor=s.dead),
        lambda s: ttnn.to_torch(s.dead),
        lambda s: ttnn.compose(s.dead),
        lambda s: ttnn.from_device(s.dead),
        lambda s: s.dead.cpu(),
        lambda s: s.dead[0],
        lambda s: s.dead.reshape([64, 32]),
        lambda s: s.dead.to_list(),
        lambda s: s.dead.buffer_address(),
        lambda s: ttnn.get_device_tensors(s.dead),
        lambda s: ttnn.combine_device_tensors(tensors=[s.dead]),
        lambda s: ttnn.copy_host_to_device_tensor(s.host, s.dead),
        lambda s: ttnn.copy_device_to_host_tensor(s.dead, s.host),
        lambda s: ttnn.aggregate_tensor(s.dead, ttnn.ConcatMeshToTensor(s.mesh, 0)),
        lambda s: ttnn.dump_tensor("never-written.tensorbin", s.dead),
        lambda s: ttnn.to_memory_config(s.dead, ttnn.L1_MEMORY_CONFIG),
    ],
)
def test_a_deallocated_tensor_says_that_it_was(scene: Scene, attempt: Callable[[Scene], Any]):
    refuses(scene, attempt, "Tensor is not allocated", "deallocated", "Shape([32, 64])")


@pytest.mark.parametrize(
    "attempt",
    [
        lambda s: ttnn.from_torch(torch.ones(8, 2), device=s.line, mesh_mapper=ttnn.ShardTensorToMesh(s.mesh, 0)),
        lambda s: ttnn.to_device(
            ttnn.from_torch(torch.ones(8, 2), mesh_mapper=ttnn.ShardTensorToMesh(s.mesh, 0)), s.line
        ),
        lambda s: ttnn.distribute_tensor(s.host, ttnn.ShardTensorToMesh(s.mesh, 0), s.line),
        lambda s: ttnn.to_device(ttnn.from_device(s.split), s.line),
        lambda s: ttnn.as_tensor(
            torch.ones(8, 2),
            device=s.line,
            memory_config=ttnn.DRAM_MEMORY_CONFIG,
            mesh_mapper=ttnn.ShardTensorToMesh(s.mesh, 0),
        ),
    ],
)
def test_a_mapper_for_another_mesh_names_both_meshes(scene: Scene, attempt: Callable[[Scene], Any]):
    refuses(
        scene,
        attempt,
        "Coordinate MeshCoordinate([1, 0]) not found in mesh MeshShape([1, 4])",
        "distributed for a mesh MeshShape([2, 4])",
        "Map it for the mesh it goes to",
    )


def test_a_composer_for_another_mesh_names_both_meshes(scene: Scene):
    line = ttnn.from_torch(torch.ones(4, 2), device=scene.line, mesh_mapper=ttnn.ShardTensorToMesh(scene.line, 0))
    refuses(
        scene,
        lambda s: ttnn.to_torch(line, mesh_composer=ttnn.ConcatMeshToTensor(s.mesh, 0)),
        "is out of bounds for shape MeshShape([1, 4])",
        "MeshShape([2, 4])",
    )


MISFITS: dict[str, tuple[Callable[[Scene], Any], tuple[str, ...]]] = {
    "add": (
        lambda s: ttnn.add(s.wide, s.square),
        ("input_tensor_a [32, 64]", "input_tensor_b [32, 32]", "dim -1", "64 against 32", "on each device"),
    ),
    "where": (
        lambda s: ttnn.where(s.wide, s.square, s.square),
        ("predicate [32, 64]", "true_value [32, 32]"),
    ),
    "matmul": (
        lambda s: ttnn.matmul(s.wide, s.wide),
        ("The width of the first tensor must be equal to the height of the second tensor", "64 against 32"),
    ),
    "bias": (lambda s: ttnn.linear(s.square, s.wide, bias=s.vector), ("bias [32]", "width 64")),
    "concat": (
        lambda s: ttnn.concat([s.wide, s.square], dim=0),
        ("tensors[0] is [32, 64]", "tensors[1] is [32, 32]"),
    ),
    "weight": (lambda s: ttnn.layer_norm(s.wide, weight=s.vector), ("weight [32]", "64 values")),
    "output tensor": (
        lambda s: ttnn.add(s.wide, s.wide, output_tensor=s.square),
        ("output tensor has shape Shape([32, 32])", "[32, 64]", "allocate it"),
    ),
    "reshape": (
        lambda s: ttnn.reshape(s.wide, [3, 3]),
        ("Invalid arguments to reshape", "2048 elements", "9 elements"),
    ),
    "split": (lambda s: ttnn.split(s.wide, [1, 2], dim=0), ("[1, 2]", "add up to 3", "32 elements")),
    "copy": (
        lambda s: ttnn.copy_host_to_device_tensor(s.host, s.square),
        ("Host tensor has different shape", "Shape([32, 64]) on the host", "Shape([32, 32]) on the device"),
    ),
    "spec": (
        lambda s: ttnn.from_torch(torch.ones(2, 2), spec=s.wide.spec),
        ("spec has shape Shape([32, 64])", "(2, 2)"),
    ),
}


@pytest.mark.parametrize("case", MISFITS)
def test_shapes_that_do_not_fit_name_both_sides(scene: Scene, case: str):
    attempt, fragments = MISFITS[case]
    refuses(scene, attempt, *fragments)


@pytest.mark.parametrize(
    ("attempt", "wrong", "right"),
    [
        (lambda s: ttnn.add(s.wide, s.wide, memory_confg=None), "memory_confg", "memory_config"),
        (lambda s: ttnn.softmax(s.wide, dims=1), "dims", "dim"),
        (lambda s: ttnn.matmul(s.wide, s.wide, transpose_B=True), "transpose_B", "transpose_b"),
        (lambda s: ttnn.from_torch(torch.ones(2), dtyp=ttnn.bfloat16), "dtyp", "dtype"),
        (lambda s: ttnn.from_torch(torch.ones(2), mesh_maper=None), "mesh_maper", "mesh_mapper"),
        (lambda s: ttnn.to_torch(s.host, mesh_compose=None), "mesh_compose", "mesh_composer"),
        (lambda s: ttnn.as_tensor(torch.ones(2), cache_filename="x"), "cache_filename", "cache_file_name"),
        (lambda s: ttnn.to_device(s.host, devise=s.mesh), "devise", "device"),
        (lambda s: ttnn.from_device(s.wide, block=True), "block", "blocking"),
        (lambda s: ttnn.open_mesh_device(meshshape=MeshShape(1, 1)), "meshshape", "mesh_shape"),
        (lambda s: ttnn.open_device(device=0), "device", "device_id"),
        (lambda s: ttnn.copy_host_to_device_tensor(s.host, s.wide, cqid=0), "cqid", "cq_id"),
        (lambda s: deallocate(s.wide, forced=True), "forced", "force"),
        (lambda s: ttnn.load_tensor(filename="x.tensorbin"), "filename", "file_name"),
        (lambda s: MeshShape(s_0=1, s1=2), "s_0", "s0"),
    ],
)
def test_an_unknown_keyword_is_answered_with_the_nearest_spelling(
    scene: Scene, attempt: Callable[[Scene], Any], wrong: str, right: str
):
    error = refuses(scene, attempt, f"Did you mean '{right}'?")
    assert isinstance(error, TypeError)
    assert wrong in str(error)


# -- the wrong kind of thing -----------------------------------------------------------------------

SILLY: dict[str, Any] = {
    "None": None,
    "a string": "x",
    "a float": 2.5,
    "a list": [1, 2],
    "an empty list": [],
    "a tuple": (None,),
    "a dict": {},
    "an object": object(),
    "a numpy float": np.float32(2),
    "a numpy array": np.ones(3),
    "a torch tensor": torch.ones(2, 3),
    "a function": len,
    "bytes": b"x",
    "a coordinate": MeshCoordinate(0, 0),
}

# (function, its good arguments, the argument to spoil, what may stand in its place)
KINDS: dict[str, tuple[Callable[..., Any], Callable[[Scene], dict[str, Any]], str, tuple[str, ...]]] = {
    "from_torch tensor": (
        ttnn.from_torch,
        lambda s: {},
        "tensor",
        ("None", "a torch tensor", "a numpy array"),
    ),
    "from_torch dtype": (ttnn.from_torch, lambda s: {"tensor": torch.ones(2, 2)}, "dtype", ("None",)),
    "from_torch layout": (ttnn.from_torch, lambda s: {"tensor": torch.ones(2, 2)}, "layout", ("None",)),
    "from_torch device": (ttnn.from_torch, lambda s: {"tensor": torch.ones(2, 2)}, "device", ("None",)),
    "from_torch tile": (ttnn.from_torch, lambda s: {"tensor": torch.ones(2, 2)}, "tile", ("None",)),
    "from_torch spec": (ttnn.from_torch, lambda s: {"tensor": torch.ones(2, 2)}, "spec", ("None",)),
    "from_torch memory_config": (
        ttnn.from_torch,
        lambda s: {"tensor": torch.ones(2, 2)},
        "memory_config",
        ("None",),
    ),
    "from_torch mesh_mapper": (
        ttnn.from_torch,
        lambda s: {"tensor": torch.ones(2, 2)},
        "mesh_mapper",
        ("None",),
    ),
    "from_torch pad_value": (
        ttnn.from_torch,
        lambda s: {"tensor": torch.ones(2, 2)},
        "pad_value",
        ("None", "a float", "a numpy float"),
    ),
    "from_torch col_tilize": (
        ttnn.from_torch,
        lambda s: {"tensor": torch.ones(2, 2), "dtype": ttnn.bfloat8_b},
        "col_tilize",
        (),
    ),
    "to_torch tensor": (ttnn.to_torch, lambda s: {}, "tensor", ()),
    "to_torch dtype": (ttnn.to_torch, lambda s: {"tensor": s.host}, "dtype", ("None",)),
    "to_torch torch_rank": (ttnn.to_torch, lambda s: {"tensor": s.host}, "torch_rank", ("None",)),
    "to_torch mesh_composer": (ttnn.to_torch, lambda s: {"tensor": s.host}, "mesh_composer", ("None",)),
    "to_device tensor": (ttnn.to_device, lambda s: {"device": s.mesh}, "tensor", ()),
    "to_device device": (ttnn.to_device, lambda s: {"tensor": s.host}, "device", ()),
    "to_device memory_config": (
        ttnn.to_device,
        lambda s: {"tensor": s.host, "device": s.mesh},
        "memory_config",
        ("None",),
    ),
    "from_device tensor": (ttnn.from_device, lambda s: {}, "tensor", ()),
    "deallocate tensor": (deallocate, lambda s: {}, "tensor", ()),
    "compose tensor": (ttnn.compose, lambda s: {}, "tensor", ()),
    "placements tensor": (ttnn.placements, lambda s: {}, "tensor", ()),
    "get_device_tensors tensor": (ttnn.get_device_tensors, lambda s: {}, "tensor", ()),
    "combine_device_tensors tensors": (
        ttnn.combine_device_tensors,
        lambda s: {},
        "tensors",
        ("an empty list",),
    ),
    "from_host_shards tensors": (
        ttnn.from_host_shards,
        lambda s: {"mesh_shape": MeshShape(1, 2)},
        "tensors",
        ("an empty list",),
    ),
    "from_host_shards mesh_shape": (
        ttnn.from_host_shards,
        lambda s: {"tensors": [s.host, s.host]},
        "mesh_shape",
        (),
    ),
    "distribute_tensor tensor": (
        ttnn.distribute_tensor,
        lambda s: {"mapper": ttnn.ShardTensorToMesh(s.mesh, 0)},
        "tensor",
        (),
    ),
    "distribute_tensor mapper": (ttnn.distribute_tensor, lambda s: {"tensor": s.host}, "mapper", ()),
    "aggregate_tensor tensor": (
        ttnn.aggregate_tensor,
        lambda s: {"composer": ttnn.ConcatMeshToTensor(s.mesh, 0)},
        "tensor",
        (),
    ),
    "aggregate_tensor composer": (ttnn.aggregate_tensor, lambda s: {"tensor": s.split}, "composer", ()),
    "allocate shape": (
        ttnn.allocate_tensor_on_device,
        lambda s: {"dtype": ttnn.float32, "layout": TILE, "mesh_device": s.mesh},
        "shape",
        ("a list", "an empty list", "a dict", "bytes", "a coordinate"),
    ),
    "allocate dtype": (
        ttnn.allocate_tensor_on_device,
        lambda s: {"shape": [2], "layout": TILE, "mesh_device": s.mesh},
        "dtype",
        (),
    ),
    "allocate layout": (
        ttnn.allocate_tensor_on_device,
        lambda s: {"shape": [2], "dtype": ttnn.float32, "mesh_device": s.mesh},
        "layout",
        (),
    ),
    "allocate mesh_device": (
        ttnn.allocate_tensor_on_device,
        lambda s: {"shape": [2], "dtype": ttnn.float32, "layout": TILE},
        "mesh_device",
        (),
    ),
    "copy host_tensor": (
        ttnn.copy_host_to_device_tensor,
        lambda s: {"device_tensor": s.wide},
        "host_tensor",
        (),
    ),
    "copy device_tensor": (
        ttnn.copy_host_to_device_tensor,
        lambda s: {"host_tensor": s.host},
        "device_tensor",
        (),
    ),
    "dump tensor": (ttnn.dump_tensor, lambda s: {"file_name": "x.tensorbin"}, "tensor", ()),
    "dump file_name": (ttnn.dump_tensor, lambda s: {"tensor": s.host}, "file_name", ("a string",)),
    "load file_name": (ttnn.load_tensor, lambda s: {}, "file_name", ("a string",)),
    "as_tensor tensor": (ttnn.as_tensor, lambda s: {}, "tensor", ("a torch tensor", "a numpy array")),
    "as_tensor preprocess": (
        ttnn.as_tensor,
        lambda s: {"tensor": torch.ones(2)},
        "preprocess",
        ("None", "a function"),
    ),
    "open_mesh_device mesh_shape": (ttnn.open_mesh_device, lambda s: {}, "mesh_shape", ("None",)),
    "open_mesh_device offset": (
        ttnn.open_mesh_device,
        lambda s: {"mesh_shape": MeshShape(1, 1)},
        "offset",
        ("None", "a coordinate"),
    ),
    "open_mesh_device num_command_queues": (
        ttnn.open_mesh_device,
        lambda s: {"mesh_shape": MeshShape(1, 1)},
        "num_command_queues",
        (),
    ),
    "open_mesh_device l1_small_size": (
        ttnn.open_mesh_device,
        lambda s: {"mesh_shape": MeshShape(1, 1)},
        "l1_small_size",
        (),
    ),
    "open_device device_id": (ttnn.open_device, lambda s: {}, "device_id", ()),
    "close_mesh_device": (ttnn.close_mesh_device, lambda s: {}, "mesh_device", ()),
    "synchronize_device": (ttnn.synchronize_device, lambda s: {}, "device", ()),
    "SetDefaultDevice": (ttnn.SetDefaultDevice, lambda s: {}, "device", ("None",)),
    "has_tile_padding tensor": (has_tile_padding, lambda s: {}, "tensor", ()),
    "has_tile_padding dim": (has_tile_padding, lambda s: {"tensor": s.wide}, "dim", ("None",)),
    "is_sharded tensor": (is_sharded, lambda s: {}, "tensor", ()),
    "get_memory_config tensor": (get_memory_config, lambda s: {}, "tensor", ()),
    "TensorSpec shape": (
        ttnn.TensorSpec,
        lambda s: {"dtype": ttnn.float32, "layout": TILE},
        "shape",
        ("a list", "an empty list", "a dict", "a coordinate"),
    ),
    "TensorSpec dtype": (ttnn.TensorSpec, lambda s: {"shape": [2], "layout": TILE}, "dtype", ()),
    "TensorSpec layout": (ttnn.TensorSpec, lambda s: {"shape": [2], "dtype": ttnn.float32}, "layout", ()),
    "ShardTensorToMesh mesh_device": (ttnn.ShardTensorToMesh, lambda s: {"dim": 0}, "mesh_device", ()),
    "ShardTensorToMesh dim": (
        ttnn.ShardTensorToMesh,
        lambda s: {"mesh_device": s.mesh},
        "dim",
        ("None",),
    ),
    "ConcatMeshToTensor mesh_device": (ttnn.ConcatMeshToTensor, lambda s: {"dim": 0}, "mesh_device", ()),
}


@pytest.mark.parametrize("case", KINDS)
def test_an_argument_of_the_wrong_kind_is_named(scene: Scene, case: str):
    function, good, name, fine = KINDS[case]
    expected = name if function not in (ttnn.ShardTensorToMesh, ttnn.ConcatMeshToTensor) else "must be|expected"
    expected = {"composer": "mesh_composer", "dtype": "dtype|DataType"}.get(name, expected)
    for what, value in SILLY.items():
        if what in fine:
            continue
        with pytest.raises(TypeError, match=expected) as caught:
            function(**good(scene), **({name: value}))
        assert isinstance(caught.value, ttnn.SoftmeshError), f"{case}={what}: {caught.value!r}"


@pytest.mark.parametrize("what", [name for name in SILLY if name not in ("a float", "a function")])
@pytest.mark.parametrize("op", ["relu", "softmax", "add", "matmul", "reshape", "sum", "layer_norm", "to_layout"])
def test_ops_want_tensors(scene: Scene, op: str, what: str):
    operation = getattr(ttnn, op)
    others = {"reshape": ([64, 32],), "to_layout": (TILE,), "add": (1.0,), "matmul": (None,)}.get(op, ())
    refuses(scene, lambda s: operation(SILLY[what], *others), f"{op}()", "ttnn.Tensor")


@pytest.mark.parametrize("what", ["a string", "a dict", "an object", "a torch tensor", "bytes"])
def test_a_number_is_wanted_where_no_tensor_is(scene: Scene, what: str):
    refuses(scene, lambda s: ttnn.add(s.wide, SILLY[what]), "input_tensor_b", "number")


def test_missing_arguments_are_named(scene: Scene):
    refuses(scene, lambda s: ttnn.matmul(s.wide), "argument 'input_tensor_b' is missing")
    refuses(scene, lambda s: ttnn.transpose(s.wide, 0), "argument 'dim2' is missing")
    refuses(scene, lambda s: ttnn.add(s.wide, s.wide, input_tensor_a=s.wide), "'input_tensor_a' is given twice")
    refuses(scene, lambda s: ttnn.relu(s.wide, s.wide), "takes 1 positional arguments (input_tensor), got 2")


def test_a_long_value_does_not_fill_the_message(scene: Scene):
    error = refuses(scene, lambda s: ttnn.to_device(s.host, torch.zeros(100, 100)), "device must be")
    assert len(str(error)) < 300
    assert "got a torch.Tensor [100, 100]" in str(error)


def test_the_remedy_of_an_unknown_activation_is_its_neighbour(scene: Scene):
    refuses(
        scene,
        lambda s: ttnn.linear(s.square, s.wide, activation="gelo"),
        "activation 'gelo' is not known",
        "Did you mean 'gelu'?",
    )


def test_a_failed_op_leaves_its_output_tensor_alone(scene: Scene):
    target = ttnn.from_torch(torch.full((32, 64), 7.0), layout=TILE, device=scene.mesh)
    refuses(scene, lambda s: ttnn.add(s.wide, s.square, output_tensor=target), "broadcast")
    assert torch.equal(ttnn.compose(target), torch.full((32, 64), 7.0))
    ttnn.add(scene.wide, 1.0, output_tensor=target)
    assert torch.equal(ttnn.compose(target), ttnn.compose(scene.wide) + 1)


def test_every_error_of_the_family_can_be_caught_in_ttnns_way(scene: Scene):
    pairs: list[tuple[Callable[[], Any], type[Exception]]] = [
        (lambda: ttnn.relu(scene.dead), RuntimeError),
        (lambda: ttnn.relu(None), TypeError),
        (lambda: scene.wide[99], IndexError),
        (lambda: scene.wide[..., ...], ValueError),
    ]
    for attempt, builtin in pairs:
        with pytest.raises(builtin) as caught:
            attempt()
        assert isinstance(caught.value, ttnn.SoftmeshError)
        assert re.search(r"\w", str(caught.value))
