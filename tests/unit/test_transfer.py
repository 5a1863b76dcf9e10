"""Moving data: between torch, host and mesh, tensor by tensor and shard by shard."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch

import softmesh as ttnn
from softmesh import (
    MeshCoordinate,
    MeshDevice,
    MeshShape,
    PlacementReplicate,
    PlacementShard,
    Shape,
    StorageType,
    Tensor,
    TensorSpec,
)

ROW_MAJOR, TILE = ttnn.ROW_MAJOR_LAYOUT, ttnn.TILE_LAYOUT


@pytest.fixture(scope="module")
def mesh() -> Iterator[MeshDevice]:
    with ttnn.create_mesh_device(MeshShape(2, 4), physical_device_ids=range(80, 88)) as mesh_device:
        yield mesh_device


@pytest.fixture(scope="module")
def line() -> Iterator[MeshDevice]:
    with ttnn.create_mesh_device(MeshShape(1, 4), physical_device_ids=range(90, 94)) as mesh_device:
        yield mesh_device


def exactly(text: str) -> str:
    return re.escape(text)


def counting(*shape: int) -> torch.Tensor:
    return torch.arange(math.prod(shape), dtype=torch.float32).reshape(shape)


def split(values: torch.Tensor, mesh: MeshDevice, dim: int = 0, **options: Any) -> Tensor:
    mapper = ttnn.ShardTensorToMesh(mesh, dim)
    return ttnn.from_torch(values, device=mesh, mesh_mapper=mapper, **options)


def values_of(tensor: Tensor) -> list[torch.Tensor]:
    return [ttnn.to_torch(shard) for shard in ttnn.get_device_tensors(tensor)]


# -- from_torch ------------------------------------------------------------------------------------


def test_nothing_in_nothing_out():
    assert ttnn.from_torch(None) is None


@pytest.mark.parametrize(
    ("kind", "dtype"),
    [
        (torch.float32, ttnn.float32),
        (torch.bfloat16, ttnn.bfloat16),
        (torch.float16, ttnn.bfloat16),
        (torch.int32, ttnn.int32),
        (torch.int64, ttnn.uint32),
        (torch.int16, ttnn.uint16),
        (torch.uint8, ttnn.uint8),
        (torch.int8, ttnn.int8),
        (torch.bool, ttnn.uint8),
        (torch.uint16, ttnn.uint16),
        (torch.uint32, ttnn.uint32),
    ],
)
def test_the_dtype_follows_torch_unless_given(kind: torch.dtype, dtype: ttnn.DataType):
    x = ttnn.from_torch(torch.ones(2, 2).to(kind))
    assert x.dtype is dtype
    assert x.layout is ROW_MAJOR
    assert x.to_list() == [[1, 1], [1, 1]]


def test_float64_needs_a_dtype():
    with pytest.raises(TypeError, match=r"torch\.float64 has no dtype of its own; pass one"):
        ttnn.from_torch(torch.ones(2, dtype=torch.float64))
    assert ttnn.from_torch(torch.ones(2, dtype=torch.float64), dtype=ttnn.float32).to_list() == [1, 1]


@pytest.mark.parametrize(
    "array",
    [
        np.arange(6, dtype=np.float32).reshape(2, 3),
        np.arange(12, dtype=np.float32).reshape(2, 6)[:, ::2] / 2,
        np.arange(6, dtype=np.float32)[::-1].reshape(2, 3)[::-1, ::-1],
        np.array(3.0, dtype=np.float32),
    ],
    ids=["plain", "strided", "backwards", "scalar"],
)
def test_numpy_arrays_are_accepted(array: np.ndarray):
    assert np.array_equal(ttnn.from_torch(array).to_numpy(), array)


def test_a_read_only_array_is_accepted_and_not_written():
    array = np.ones(3, dtype=np.float32)
    array.flags.writeable = False
    assert ttnn.from_torch(array).to_list() == [1, 1, 1]


def test_non_contiguous_tensors_are_fine():
    assert torch.equal(ttnn.from_torch(counting(4, 6).t()[::2]).to_torch(), counting(4, 6).t()[::2])


def test_parameters_lose_their_gradient():
    x = ttnn.from_torch(torch.nn.Parameter(torch.ones(2)))
    assert not x.to_torch().requires_grad


@pytest.mark.parametrize(
    "wrong",
    [
        [1.0, 2.0],
        (1.0,),
        1.0,
        "ones",
        np.float32(1),
        np.array(["a"]),
        np.array([None]),
        torch.ones(2, 2).to_sparse(),
        torch.empty(2, device="meta"),
    ],
    ids=["list", "tuple", "float", "str", "numpy scalar", "words", "objects", "sparse", "meta"],
)
def test_what_is_no_dense_real_array_is_rejected(wrong: Any):
    with pytest.raises(ttnn.ArgumentError, match="tensor"):
        ttnn.from_torch(wrong)


@pytest.mark.parametrize(("dtype", "kind"), [(torch.complex64, "5, bits: 64"), (torch.float8_e4m3fn, "10, bits: 8")])
def test_numbers_that_no_dtype_holds_are_rejected(dtype: torch.dtype, kind: str):
    with pytest.raises(RuntimeError, match=f"got unexpected dlpack dtype. code: {kind}"):
        ttnn.from_torch(torch.ones(2).to(dtype))


def test_the_tensor_does_not_share_memory_with_torch():
    values = torch.ones(2, 2)
    x = ttnn.from_torch(values)
    values.zero_()
    assert x.to_list() == [[1, 1], [1, 1]]
    handed_out = x.to_torch()
    handed_out.zero_()
    assert x.to_list() == [[1, 1], [1, 1]]


def test_device_is_keyword_only(mesh: MeshDevice):
    with pytest.raises(TypeError, match="positional"):
        ttnn.from_torch(torch.ones(2), ttnn.float32, mesh)


@pytest.mark.parametrize("layout", [None, TILE, ROW_MAJOR])
@pytest.mark.parametrize("dtype", [ttnn.bfloat8_b, ttnn.bfloat4_b])
def test_block_formats_lie_in_tiles_whatever_layout_is_asked_for(dtype: ttnn.DataType, layout: ttnn.Layout | None):
    assert ttnn.from_torch(torch.ones(2, 2), dtype=dtype, layout=layout).layout is TILE


@pytest.mark.parametrize(
    ("dtype", "values", "rounded"),
    [
        (ttnn.bfloat8_b, [1.6, 2.5], [1.59375, 2.5]),
        (ttnn.bfloat8_b, [-3.5, 300.7], [-4, 300]),
        (ttnn.bfloat4_b, [-3.5, 300.7], [0, 320]),
        (ttnn.bfloat4_b, [1.6, 2.5], [1.5, 2.5]),
        (ttnn.bfloat8_b, [1.9999], [1.984375]),
        (ttnn.bfloat4_b, [1.9999], [1.75]),
        (ttnn.bfloat8_b, [math.inf, 1.0], [math.inf, 0]),
    ],
)
def test_block_formats_round_on_the_way_in(dtype: ttnn.DataType, values: list[float], rounded: list[float]):
    assert ttnn.from_torch(torch.tensor([values]), dtype=dtype).to_list() == [rounded]


def test_padding_takes_part_in_the_shared_exponent():
    small = torch.full((1, 3), 0.01)
    assert ttnn.from_torch(small, dtype=ttnn.bfloat8_b, pad_value=1000).to_list() == [[0, 0, 0]]
    assert ttnn.from_torch(small, dtype=ttnn.bfloat8_b).to_torch().min() > 0.0099


@pytest.mark.parametrize(
    ("dtype", "values", "stored"),
    [
        (ttnn.uint16, [70000.0, -3.5, 2.9], [65535, 0, 2]),
        (ttnn.uint8, [300.7, -3.5, math.inf], [255, 0, 0]),
        (ttnn.int8, [200.0, 3e9], [127, -128]),
        (ttnn.uint32, [-3.5], [4294967293]),
        (ttnn.int32, [math.nan, math.inf], [-2147483648, -2147483648]),
    ],
)
def test_floats_become_integers_as_the_host_converts_them(dtype: ttnn.DataType, values: list[float], stored: list[int]):
    assert ttnn.from_torch(torch.tensor(values), dtype=dtype).to_list() == stored


def test_a_bfloat16_source_is_bounded_too():
    assert ttnn.from_torch(torch.tensor([-2.0]).bfloat16(), dtype=ttnn.uint16).to_list() == [0]


@pytest.mark.parametrize("source", [torch.float16, torch.float64])
def test_other_floats_become_block_floats_through_bfloat16(source: torch.dtype):
    assert ttnn.from_torch(torch.tensor([[63.875]], dtype=source), dtype=ttnn.bfloat8_b).to_list() == [[64.0]]
    assert ttnn.from_torch(torch.tensor([[63.875]]), dtype=ttnn.bfloat8_b).to_list() == [[63.5]]


def test_float32_becomes_block_floats_in_shards_through_bfloat16():
    cores = ttnn.CoreRangeSet([ttnn.CoreRange(ttnn.CoreCoord(0, 0), ttnn.CoreCoord(0, 0))])
    config = ttnn.MemoryConfig(
        ttnn.TensorMemoryLayout.HEIGHT_SHARDED,
        ttnn.BufferType.L1,
        ttnn.ShardSpec(cores, (32, 32), ttnn.ShardOrientation.ROW_MAJOR),
    )
    values = torch.full((32, 32), 63.875)
    assert ttnn.from_torch(values, dtype=ttnn.bfloat8_b, memory_config=config).to_torch()[0, 0] == 64


def test_int64_keeps_its_low_32_bits():
    assert ttnn.from_torch(torch.tensor([2**32 + 5, -1])).to_list() == [5, 2**32 - 1]


def test_fp8_takes_float32_in_rows_only():
    assert ttnn.from_torch(torch.ones(2), dtype=ttnn.fp8_e4m3).layout is ROW_MAJOR
    with pytest.raises(RuntimeError, match=r"source dtype torch\.bfloat16 is not supported when"):
        ttnn.from_torch(torch.ones(2).bfloat16(), dtype=ttnn.fp8_e4m3)
    with pytest.raises(RuntimeError, match="Only ROW_MAJOR layout is supported for FP8_E4M3 dtype!"):
        ttnn.from_torch(torch.ones(2), dtype=ttnn.fp8_e4m3, layout=TILE)


def test_fp8_is_read_by_way_of_float32():
    x = ttnn.from_torch(torch.tensor([[1.0625, 19.0, 0.0156, math.inf]]), dtype=ttnn.fp8_e4m3)
    assert ttnn.to_torch(ttnn.to_dtype(x, ttnn.float32)).tolist() == [[1.0, 20.0, 0.0, 448.0]]
    assert ttnn.to_dtype(ttnn.from_torch(torch.ones(2)), ttnn.fp8_e4m3).dtype is ttnn.fp8_e4m3
    with pytest.raises(RuntimeError, match="FP8_E4M3 single-device to_torch is not supported"):
        ttnn.to_torch(x)
    with pytest.raises(RuntimeError, match=r"Tensor.to_list\(\): FP8_E4M3 is not supported"):
        x.to_list()
    for make in (lambda: ttnn.to_layout(x, TILE), lambda: x.to(TILE)):
        with pytest.raises(RuntimeError, match="pad: FP8_E4M3 is not supported"):
            make()


@pytest.mark.parametrize(("source", "target"), [(ttnn.fp8_e4m3, ttnn.bfloat16), (ttnn.int32, ttnn.fp8_e4m3)])
def test_fp8_converts_to_and_from_float32_only(source: ttnn.DataType, target: ttnn.DataType):
    x = ttnn.from_torch(torch.ones(2), dtype=source)
    with pytest.raises(RuntimeError, match="FP8_E4M3 cross-type conversion is only supported to/from FLOAT32"):
        ttnn.to_dtype(x, target)


@pytest.mark.parametrize("re_laid", [ttnn.to_layout, lambda x, layout: x.to(layout)])
def test_block_formats_of_the_host_stay_in_tiles(re_laid: Callable[[ttnn.Tensor, ttnn.Layout], ttnn.Tensor]):
    whole = ttnn.from_torch(torch.rand(32, 64), dtype=ttnn.bfloat8_b)
    kept = re_laid(whole, ROW_MAJOR)
    assert (kept.layout, kept.dtype) == (TILE, ttnn.bfloat8_b)
    assert torch.equal(ttnn.to_torch(kept), ttnn.to_torch(whole))
    with pytest.raises(RuntimeError, match="Tensor layout must be ROW_MAJOR for unpadding"):
        re_laid(ttnn.from_torch(torch.ones(2, 2), dtype=ttnn.bfloat8_b), ROW_MAJOR)


def test_tiles_of_another_size_are_taken_apart_where_they_fill_whole_ones():
    def tiled(rows: int) -> ttnn.Tensor:
        return ttnn.from_torch(torch.ones(rows, 32), ttnn.bfloat16, layout=TILE, tile=ttnn.Tile((16, 32)))

    assert ttnn.to_layout(tiled(32), ROW_MAJOR).layout is ROW_MAJOR
    with pytest.raises(RuntimeError, match="Last 2 dims of input shape must be multiples of 32"):
        ttnn.to_layout(tiled(16), ROW_MAJOR)


def test_col_tilize_transposes_first():
    x = ttnn.from_torch(counting(2, 3), dtype=ttnn.bfloat8_b, col_tilize=True)
    assert x.shape == [3, 2]
    assert torch.equal(x.to_torch(), counting(2, 3).t())


@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        ({"dtype": ttnn.bfloat16}, "requires BFP dtype"),
        ({"spec": TensorSpec([2, 2], ttnn.bfloat8_b, TILE)}, "is not supported with spec"),
        ({"dtype": ttnn.bfloat8_b, "layout": ROW_MAJOR}, "requires layout to be None or ttnn.TILE_LAYOUT"),
    ],
)
def test_col_tilize_is_for_block_formats_without_a_spec(wrong: dict[str, Any], text: str):
    with pytest.raises(RuntimeError, match=f"col_tilize=True {text}"):
        ttnn.from_torch(torch.ones(2, 2), col_tilize=True, **wrong)
    with pytest.raises(RuntimeError, match=r"col_tilize=True requires tensor.ndim >= 2"):
        ttnn.from_torch(torch.ones(2), ttnn.bfloat8_b, col_tilize=True)


def test_a_spec_gives_dtype_layout_memory_and_tile(mesh: MeshDevice):
    spec = TensorSpec([2, 3], ttnn.bfloat16, TILE, ttnn.BufferType.L1, ttnn.Tile((16, 32)))
    x = ttnn.from_torch(counting(2, 3), spec=spec, device=mesh)
    assert x.spec == spec


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("dtype", ttnn.bfloat16),
        ("layout", TILE),
        ("memory_config", ttnn.L1_MEMORY_CONFIG),
        ("tile", ttnn.Tile((32, 32))),
    ],
)
def test_a_spec_excludes_what_it_says_itself(name: str, value: Any):
    spec = TensorSpec([2, 3], ttnn.bfloat16, TILE)
    expected = f"ttnn.from_torch: {name} must be None when spec is specified"
    with pytest.raises(RuntimeError, match=exactly(expected)):
        ttnn.from_torch(counting(2, 3), spec=spec, **{name: value})


def test_a_spec_has_the_shape_of_the_tensor():
    with pytest.raises(RuntimeError, match=exactly("spec has shape Shape([2, 4]), the tensor (2, 3)")):
        ttnn.from_torch(counting(2, 3), spec=TensorSpec([2, 4], ttnn.bfloat16, TILE))


def test_without_a_mapper_every_device_gets_the_whole(mesh: MeshDevice):
    x = ttnn.from_torch(counting(2, 3), device=mesh)
    assert len(x.device_coords()) == 8
    assert all(torch.equal(value, counting(2, 3)) for value in values_of(x))
    assert x.storage.data is not None
    assert x.storage.data.numel() == 6


def test_a_mapper_without_a_device_gives_a_distributed_host_tensor(mesh: MeshDevice):
    config = ttnn.create_sharded_memory_config([32, 32], ttnn.CoreGrid(x=1, y=1), ttnn.ShardStrategy.HEIGHT)
    host = ttnn.from_torch(counting(8, 32, 32), memory_config=config, mesh_mapper=ttnn.ShardTensorToMesh(mesh, 0))
    assert host.storage_type() is StorageType.HOST
    assert host.shape == [1, 32, 32]
    assert host.memory_config() == config
    assert ttnn.to_device(host, mesh).memory_config() == config


def test_tile_padding_is_applied_to_each_shard(mesh: MeshDevice):
    x = split(torch.ones(1, 1, 40, 320), mesh, 3, layout=TILE)
    assert x.shape == [1, 1, 40, 40]
    assert x.padded_shape == [1, 1, 64, 64]


@pytest.mark.parametrize("shape", [(), (0,), (0, 3), (1,), (2, 0, 3), (1, 2, 3, 4, 5)])
def test_any_shape_goes_there_and_back(mesh: MeshDevice, shape: tuple[int, ...]):
    values = torch.ones(shape)
    for layout in (ROW_MAJOR, TILE):
        x = ttnn.from_torch(values, layout=layout, device=mesh)
        assert x.shape == shape
        assert torch.equal(ttnn.to_torch(ttnn.get_device_tensors(x)[7]), values)


# -- to_torch --------------------------------------------------------------------------------------


def test_to_torch_converts_to_a_torch_dtype():
    x = ttnn.from_torch(torch.tensor([1.5]), dtype=ttnn.bfloat16)
    assert ttnn.to_torch(x, torch.float64).dtype is torch.float64
    assert ttnn.to_torch(x, dtype=torch.float32).tolist() == [1.5]


def test_the_device_argument_of_to_torch_is_ignored(mesh: MeshDevice):
    assert ttnn.to_torch(ttnn.from_torch(torch.ones(2)), device=mesh).tolist() == [1, 1]


def test_torch_rank_strips_leading_ones():
    x = ttnn.from_torch(counting(1, 1, 2, 3))
    assert ttnn.to_torch(x, torch_rank=2).shape == (2, 3)
    assert ttnn.to_torch(x, torch_rank=3).shape == (1, 2, 3)
    assert ttnn.to_torch(x, torch_rank=4).shape == (1, 1, 2, 3)
    for rank in (1, 0, 5):
        with pytest.raises(RuntimeError, match="ttnn: Unable to squeeze to desired rank!"):
            ttnn.to_torch(x, torch_rank=rank)


@pytest.mark.parametrize("distributed", ["split", "replicated", "on the host"])
def test_several_devices_need_a_composer(mesh: MeshDevice, distributed: str):
    x = ttnn.from_torch(torch.ones(8, 2), device=mesh) if distributed == "replicated" else split(torch.ones(8, 2), mesh)
    x = ttnn.from_device(x) if distributed == "on the host" else x
    expected = (
        "Can't convert a tensor distributed on MeshShape([2, 4]) mesh to row-major logical tensor. "
        "Supply a mesh composer to concatenate multi-device shards."
    )
    with pytest.raises(RuntimeError, match=exactly(expected)):
        ttnn.to_torch(x)


@pytest.mark.parametrize(
    ("dims", "composer"),
    [
        ((0, None), "softmesh.compose(t)"),
        ((0, 1), "mesh_composer=ttnn.ConcatMesh2dToTensor(mesh_device, mesh_shape=(2, 4), dims=(0, 1))"),
        ((None, None), "ttnn.to_torch(ttnn.get_device_tensors(t)[0])"),
    ],
)
def test_the_error_names_the_composer_that_fits(mesh: MeshDevice, dims: Any, composer: str):
    mapper = ttnn.ShardTensor2dMesh(mesh, (2, 4), dims)
    x = ttnn.from_torch(torch.ones(8, 8), device=mesh, mesh_mapper=mapper)
    with pytest.raises(RuntimeError, match=exactly(composer)):
        ttnn.to_torch(x)


def test_the_error_for_a_line_of_shards_names_a_line_composer(mesh: MeshDevice):
    expected = exactly("mesh_composer=ttnn.ConcatMeshToTensor(mesh_device, dim=1)")
    with pytest.raises(RuntimeError, match=expected):
        ttnn.to_torch(split(torch.ones(2, 8), mesh, 1))


def test_one_device_needs_no_composer_and_ignores_its_dims(mesh: MeshDevice):
    submesh = mesh.create_submesh(MeshShape(1, 1))
    x = ttnn.from_torch(counting(2, 3), device=submesh)
    assert torch.equal(ttnn.to_torch(x), counting(2, 3))
    composer = ttnn.ConcatMeshToTensor(submesh, dim=7)
    assert torch.equal(ttnn.to_torch(x, mesh_composer=composer), counting(2, 3))


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"dtype": ttnn.bfloat16}, "dtype must be a torch dtype such as torch.float32"),
        ({"torch_rank": "two"}, "torch_rank must be an int, got 'two'"),
        ({"mesh_composer": 0}, "mesh_composer must be a composer such as ttnn.ConcatMeshToTensor"),
        ({"mesh_compser": 0}, "it has no argument 'mesh_compser'. Did you mean 'mesh_composer'?"),
    ],
)
def test_wrong_arguments_of_to_torch_are_named(wrong: dict[str, Any], message: str):
    with pytest.raises(ttnn.ArgumentError, match=exactly(message)):
        ttnn.to_torch(ttnn.zeros([1, 2]), **wrong)


def test_compose_derives_the_composer(mesh: MeshDevice):
    values = counting(8, 8)
    for dims in ((0, 1), (1, 0), (0, None), (None, 1), (None, None)):
        mapper = ttnn.ShardTensor2dMesh(mesh, (2, 4), dims)
        assert torch.equal(ttnn.compose(ttnn.from_torch(values, device=mesh, mesh_mapper=mapper)), values)
    assert torch.equal(ttnn.compose(split(values, mesh, 1)), values)


def test_compose_refuses_what_makes_no_whole(mesh: MeshDevice):
    x = split(counting(2, 16), mesh, 1)
    local = x[:, :1]
    with pytest.raises(RuntimeError, match="values of their own that make no single tensor"):
        ttnn.compose(local)


# -- to_device, from_device, to_layout -------------------------------------------------------------


def test_an_undistributed_host_tensor_goes_to_every_device(mesh: MeshDevice):
    x = ttnn.to_device(ttnn.from_torch(counting(2, 2)), mesh)
    assert [value.tolist() for value in values_of(x)] == [counting(2, 2).tolist()] * 8


def test_a_distributed_host_tensor_goes_shard_by_shard(mesh: MeshDevice):
    host = ttnn.from_torch(counting(8, 2), mesh_mapper=ttnn.ShardTensorToMesh(mesh, 0))
    x = ttnn.to_device(host, mesh, ttnn.L1_MEMORY_CONFIG, queue_id=0)
    assert torch.equal(torch.cat(values_of(x)), counting(8, 2))
    assert x.memory_config() == ttnn.L1_MEMORY_CONFIG
    assert x.tensor_topology() == host.tensor_topology()


def test_what_is_on_a_device_stays(mesh: MeshDevice):
    x = ttnn.ones([2, 2], device=mesh)
    assert ttnn.to_device(x, mesh) is x


def test_a_smaller_distribution_occupies_its_corner_of_a_bigger_mesh(mesh: MeshDevice, line: MeshDevice):
    host = ttnn.from_torch(counting(4, 2), mesh_mapper=ttnn.ShardTensorToMesh(line, 0))
    x = ttnn.to_device(host, mesh)
    assert x.device_coords() == [MeshCoordinate(0, column) for column in range(4)]
    assert torch.equal(torch.cat(values_of(x)), counting(4, 2))


def test_coordinates_that_the_mesh_does_not_have_are_refused(mesh: MeshDevice, line: MeshDevice):
    host = ttnn.from_torch(counting(8, 2), mesh_mapper=ttnn.ShardTensorToMesh(mesh, 0))
    expected = "Coordinate MeshCoordinate([1, 0]) not found in mesh MeshShape([1, 4])"
    with pytest.raises(RuntimeError, match=exactly(expected)):
        ttnn.to_device(host, line)
    with pytest.raises(RuntimeError, match=exactly(expected)):
        ttnn.from_torch(counting(8, 2), device=line, mesh_mapper=ttnn.ShardTensorToMesh(mesh, 0))
    assert torch.equal(ttnn.compose(ttnn.to_device(host, mesh)), counting(8, 2))


def test_from_device_keeps_shards_spec_and_topology(mesh: MeshDevice):
    x = split(counting(8, 2), mesh, layout=TILE, dtype=ttnn.bfloat16)
    host = ttnn.from_device(x, blocking=True)
    assert host.storage_type() is StorageType.HOST
    assert host.spec == x.spec
    assert host.tensor_topology() == x.tensor_topology()
    assert ttnn.from_device(host) is host
    assert torch.equal(ttnn.compose(ttnn.to_device(host, mesh)).float(), counting(8, 2))


def test_a_copy_on_the_host_does_not_follow_the_device(mesh: MeshDevice):
    x = ttnn.from_torch(torch.zeros(2, 2), device=mesh)
    host = ttnn.from_device(x)
    ttnn.copy_host_to_device_tensor(ttnn.from_torch(torch.ones(2, 2)), x)
    assert values_of(host)[0].sum() == 0


def test_to_layout_lays_out_anew_on_host_and_mesh(mesh: MeshDevice):
    host = ttnn.from_torch(counting(2, 2), dtype=ttnn.bfloat16)
    tiled = ttnn.to_layout(host, TILE)
    assert (tiled.layout, tiled.dtype) == (TILE, ttnn.bfloat16)
    there = ttnn.to_layout(ttnn.to_device(host, mesh), TILE, ttnn.float32, memory_config=ttnn.L1_MEMORY_CONFIG)
    assert (there.layout, there.dtype) == (TILE, ttnn.float32)
    assert there.memory_config() == ttnn.L1_MEMORY_CONFIG
    back = ttnn.to_layout(there, layout=ROW_MAJOR)
    assert back.padded_shape == [2, 2]


# -- allocation and copies -------------------------------------------------------------------------


@pytest.mark.parametrize(
    "allocate",
    [
        lambda mesh: ttnn.allocate_tensor_on_device(TensorSpec([2, 3], ttnn.float32, ROW_MAJOR), mesh),
        lambda mesh: ttnn.allocate_tensor_on_device(
            tensor_spec=TensorSpec([2, 3], ttnn.float32, ROW_MAJOR), mesh_device=mesh
        ),
        lambda mesh: ttnn.allocate_tensor_on_device(Shape([2, 3]), ttnn.float32, ROW_MAJOR, mesh),
        lambda mesh: ttnn.allocate_tensor_on_device(
            shape=[2, 3], dtype=ttnn.float32, layout=ROW_MAJOR, mesh_device=mesh, memory_config=None
        ),
    ],
)
def test_allocation_takes_a_spec_or_its_parts(mesh: MeshDevice, allocate: Callable[[MeshDevice], Tensor]):
    x = allocate(mesh)
    assert x.spec == TensorSpec([2, 3], ttnn.float32, ROW_MAJOR)
    assert x.device() is mesh
    topology = x.tensor_topology()
    assert topology.distribution_shape() == MeshShape(2, 4)
    assert topology.placements() == [PlacementReplicate(), PlacementReplicate()]
    assert topology.mesh_coords() == list(MeshShape(2, 4).coordinates())


def test_allocation_on_the_host_is_distributed_over_the_mesh(mesh: MeshDevice):
    spec = TensorSpec([2, 3], ttnn.bfloat16, TILE)
    for host in (
        ttnn.allocate_tensor_on_host(spec, mesh),
        ttnn.allocate_tensor_on_host([2, 3], ttnn.bfloat16, TILE, mesh, None),
    ):
        assert host.storage_type() is StorageType.HOST
        assert host.spec == spec
        assert host.host_buffer().shape() == MeshShape(2, 4)
        assert host.tensor_topology().distribution_shape() == MeshShape(2, 4)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("ab", ttnn.float32, ROW_MAJOR), "shape must be a list of ints, got 'ab'"),
        (([-1, 2], ttnn.float32, ROW_MAJOR), "shape must not be negative"),
        (([2, 2], "float32", ROW_MAJOR), "dtype must be a ttnn dtype such as ttnn.bfloat16, got 'float32'"),
        (([2, 2], ttnn.float32, None), "layout must be ttnn.TILE_LAYOUT or ttnn.ROW_MAJOR_LAYOUT, got None"),
        (([2, 2], ttnn.float32, ROW_MAJOR, "mesh"), "mesh_device must be a MeshDevice"),
        ((TensorSpec([2], ttnn.float32, ROW_MAJOR), None), "mesh_device must be a MeshDevice"),
    ],
)
def test_a_wrong_allocation_names_the_argument(arguments: tuple[Any, ...], message: str):
    for allocate in (ttnn.allocate_tensor_on_device, ttnn.allocate_tensor_on_host):
        with pytest.raises(ttnn.ArgumentError, match=exactly(message)):
            allocate(*arguments)


def test_a_host_tensor_is_copied_into_a_device_tensor_in_place(mesh: MeshDevice):
    x = ttnn.allocate_tensor_on_device([1, 2], ttnn.float32, ROW_MAJOR, mesh)
    address, shard = x.buffer_address(), ttnn.get_device_tensors(x)[5]
    host = ttnn.from_torch(counting(8, 2), mesh_mapper=ttnn.ShardTensorToMesh(mesh, 0))
    assert ttnn.copy_host_to_device_tensor(host, x, cq_id=0) is None
    assert x.buffer_address() == address
    assert torch.equal(torch.cat(values_of(x)), counting(8, 2))
    assert torch.equal(ttnn.to_torch(shard), counting(8, 2)[5:6])
    ttnn.copy_host_to_device_tensor(ttnn.from_torch(torch.full((1, 2), 9.0)), x)
    assert [value.tolist() for value in values_of(x)] == [[[9, 9]]] * 8


def test_a_copy_to_one_shard_leaves_the_others(mesh: MeshDevice):
    x = ttnn.from_torch(torch.zeros(1, 2), device=mesh)
    ttnn.copy_host_to_device_tensor(ttnn.from_torch(torch.ones(1, 2)), ttnn.get_device_tensors(x)[6])
    assert [int(value.sum()) for value in values_of(x)] == [0, 0, 0, 0, 0, 0, 2, 0]


def test_a_copy_that_covers_some_devices_leaves_the_others(mesh: MeshDevice, line: MeshDevice):
    x = ttnn.from_torch(torch.full((1, 2), -1.0), device=mesh)
    host = ttnn.from_torch(counting(4, 2), mesh_mapper=ttnn.ShardTensorToMesh(line, 0))
    ttnn.copy_host_to_device_tensor(host, x)
    assert torch.equal(torch.cat(values_of(x)), torch.cat([counting(4, 2), torch.full((4, 2), -1.0)]))


def test_values_in_another_order_of_devices_find_their_places(mesh: MeshDevice):
    x, y = split(torch.zeros(8, 2), mesh), split(counting(8, 2), mesh)
    shards = ttnn.get_device_tensors(x)
    backwards = ttnn.combine_device_tensors(tensors=ttnn.get_device_tensors(y)[::-1])
    ttnn.copy(backwards, x)
    assert torch.equal(torch.cat(values_of(x)), counting(8, 2))
    assert torch.equal(torch.cat([ttnn.to_torch(shard) for shard in shards]), counting(8, 2))


def test_copies_work_on_meshes_of_any_rank():
    with ttnn.create_mesh_device(MeshShape(2, 2, 2)) as cube:
        x = ttnn.from_torch(torch.zeros(2), device=cube)
        ttnn.copy_host_to_device_tensor(ttnn.from_torch(torch.ones(2)), x)
        assert torch.equal(ttnn.compose(x), torch.ones(2))


@pytest.mark.parametrize(
    ("host", "message"),
    [
        (lambda: ttnn.zeros([2, 3], ttnn.float32), "Host tensor has different shape"),
        (lambda: ttnn.zeros([2, 2], ttnn.bfloat16), "Host tensor has different dtype"),
        (lambda: ttnn.zeros([2, 2], ttnn.float32, TILE), "Host tensor has different page config"),
    ],
)
def test_copies_want_the_same_spec(mesh: MeshDevice, host: Callable[[], Tensor], message: str):
    x = ttnn.from_torch(torch.ones(2, 2), device=mesh)
    with pytest.raises(RuntimeError, match=message):
        ttnn.copy_host_to_device_tensor(host(), x)
    with pytest.raises(RuntimeError, match=message):
        ttnn.copy_device_to_host_tensor(x, host())
    assert torch.equal(ttnn.compose(x), torch.ones(2, 2))


def test_copies_want_one_tensor_on_each_side(mesh: MeshDevice):
    host, x = ttnn.from_torch(torch.ones(2, 2)), ttnn.from_torch(torch.ones(2, 2), device=mesh)
    for copy in (
        lambda: ttnn.copy_host_to_device_tensor(x, host),
        lambda: ttnn.copy_host_to_device_tensor(host, host),
        lambda: ttnn.copy_device_to_host_tensor(host, x),
        lambda: ttnn.copy_device_to_host_tensor(x, x),
    ):
        with pytest.raises(RuntimeError, match="needs one tensor on the host and one on a device"):
            copy()


def test_a_device_tensor_is_copied_into_a_host_tensor_in_place(mesh: MeshDevice):
    x = split(counting(8, 2), mesh)
    host = ttnn.allocate_tensor_on_host(x.spec, mesh)
    assert ttnn.copy_device_to_host_tensor(x, host, blocking=True, cq_id=None) is None
    assert torch.equal(ttnn.compose(host), counting(8, 2))
    assert host.storage_type() is StorageType.HOST


def test_one_shard_is_copied_into_a_plain_host_tensor(mesh: MeshDevice):
    shard = ttnn.get_device_tensors(split(counting(8, 2), mesh))[3]
    plain = ttnn.from_torch(torch.zeros(1, 2))
    ttnn.copy_device_to_host_tensor(shard, plain)
    assert torch.equal(ttnn.to_torch(plain), counting(8, 2)[3:4])


def test_several_shards_do_not_fit_a_plain_host_tensor(mesh: MeshDevice):
    with pytest.raises(RuntimeError, match=r"make it with ttnn\.allocate_tensor_on_host"):
        ttnn.copy_device_to_host_tensor(split(counting(8, 2), mesh), ttnn.from_torch(torch.zeros(1, 2)))


# -- shards ----------------------------------------------------------------------------------------


def test_device_shards_report_their_parent_but_one_coordinate(mesh: MeshDevice):
    x = split(counting(8, 2), mesh)
    shards = ttnn.get_device_tensors(x)
    assert [shard.device_coords() for shard in shards] == [[c] for c in MeshShape(2, 4).coordinates()]
    for i, shard in enumerate(shards):
        assert shard.device() is mesh
        assert shard.shape == [1, 2]
        assert shard.tensor_topology() == x.tensor_topology()
        assert torch.equal(ttnn.to_torch(shard), counting(8, 2)[i : i + 1])


def test_shards_come_in_order_of_the_occupied_coordinates(mesh: MeshDevice):
    shards = ttnn.get_device_tensors(split(counting(6, 1), mesh))
    assert [int(ttnn.to_torch(shard)) for shard in shards] == [0, 1, 2, 3, 4, 5]


def test_host_shards_are_plain_tensors(mesh: MeshDevice):
    host = ttnn.from_torch(counting(8, 2), mesh_mapper=ttnn.ShardTensorToMesh(mesh, 0))
    shard = ttnn.get_device_tensors(host)[2]
    assert shard.host_buffer().shape() == MeshShape(1, 1)
    assert shard.tensor_topology().distribution_shape() == MeshShape([1])
    assert torch.equal(ttnn.to_torch(shard), counting(8, 2)[2:3])
    plain = ttnn.from_torch(torch.ones(2))
    assert len(ttnn.get_device_tensors(plain)) == 1


def test_ops_on_a_shard_run_on_its_device_alone(mesh: MeshDevice):
    x = split(counting(8, 32), mesh, layout=TILE)
    doubled = ttnn.get_device_tensors(x)[4] * 2
    assert doubled.device_coords() == [MeshCoordinate(1, 0)]
    assert torch.equal(ttnn.to_torch(doubled), counting(8, 32)[4:5] * 2)


def test_combining_shards_undoes_taking_them(mesh: MeshDevice):
    x = split(counting(8, 2), mesh)
    together = ttnn.combine_device_tensors(tensors=ttnn.get_device_tensors(x))
    composer = ttnn.ConcatMeshToTensor(mesh, dim=0)
    assert torch.equal(ttnn.to_torch(together, mesh_composer=composer), counting(8, 2))
    assert together.buffer_address() == x.buffer_address()


@pytest.mark.parametrize("count", [1, 3])
def test_some_shards_combine_into_a_line(mesh: MeshDevice, count: int):
    shards = ttnn.get_device_tensors(split(counting(8, 2), mesh))[2 : 2 + count]
    some = ttnn.combine_device_tensors(tensors=shards)
    topology = some.tensor_topology()
    assert topology.distribution_shape() == MeshShape([count])
    assert list(map(repr, topology.placements())) == ["PlacementShard(0)"]
    assert topology.mesh_coords() == some.device_coords() == [s.device_coords()[0] for s in shards]
    assert torch.equal(torch.cat(values_of(some)), counting(8, 2)[2 : 2 + count])


def test_combining_is_keyword_only(mesh: MeshDevice):
    with pytest.raises(TypeError):
        ttnn.combine_device_tensors(ttnn.get_device_tensors(ttnn.ones([2], device=mesh)))


@pytest.mark.parametrize(
    ("shards", "message"),
    [
        (lambda x, y: [], "At least one tensor shard must be provided"),
        (lambda x, y: [ttnn.zeros([1, 2])], "All tensor shards must be on device"),
        (
            lambda x, y: [x[0], ttnn.typecast(x[1], ttnn.bfloat16)],
            "All tensor shards must have the same spec",
        ),
        (lambda x, y: [x[0], y[1]], "tensor shards must be allocated on the same mesh buffer."),
        (lambda x, y: [x[0], x[0]], "Found a tensor shard at duplicate coordinate MeshCoordinate([0, 0])"),
    ],
)
def test_shards_that_do_not_combine_say_why(mesh: MeshDevice, shards: Callable[[Any, Any], list[Tensor]], message: str):
    x, y = (ttnn.get_device_tensors(split(counting(8, 2), mesh)) for _ in range(2))
    with pytest.raises(RuntimeError, match=exactly(message)):
        ttnn.combine_device_tensors(tensors=shards(x, y))


def test_host_shards_make_a_distributed_host_tensor(mesh: MeshDevice):
    shards = [ttnn.from_torch(row) for row in counting(8, 1, 2)]
    host = ttnn.from_host_shards(shards, MeshShape(2, 4))
    topology = host.tensor_topology()
    assert topology.distribution_shape() == MeshShape([8])
    assert list(map(repr, topology.placements())) == ["PlacementShard(0)"]
    assert host.host_buffer().shape() == MeshShape(2, 4)
    assert torch.equal(ttnn.compose(ttnn.to_device(host, mesh)), counting(8, 2))


def test_a_single_host_shard_and_rank_0_shards_are_fine():
    one = ttnn.from_host_shards([ttnn.from_torch(torch.ones(2))], MeshShape(1, 1))
    assert torch.equal(ttnn.to_torch(one), torch.ones(2))
    scalars = ttnn.from_host_shards([ttnn.from_torch(torch.tensor(float(i))) for i in range(2)], MeshShape(1, 2))
    assert [float(value) for value in values_of(scalars)] == [0, 1]


@pytest.mark.parametrize(
    ("shards", "message"),
    [
        (lambda mesh: [ttnn.zeros([2])] * 3, "Number of tensor shards must match mesh size"),
        (lambda mesh: [], "Number of tensor shards must match mesh size"),
        (lambda mesh: [ttnn.zeros([2], device=mesh)] * 4, "All tensor shards must be on host"),
        (
            lambda mesh: [ttnn.zeros([2])] * 3 + [ttnn.zeros([3])],
            "All tensor shards must have the same tensor spec",
        ),
        (
            lambda mesh: [ttnn.from_torch(torch.ones(8), mesh_mapper=ttnn.ShardTensorToMesh(mesh, 0))] * 4,
            "tensors[0] is already distributed over 8 devices",
        ),
    ],
)
def test_host_shards_that_do_not_fit_say_why(
    mesh: MeshDevice, shards: Callable[[MeshDevice], list[Tensor]], message: str
):
    with pytest.raises(RuntimeError, match=exactly(message)):
        ttnn.from_host_shards(shards(mesh), MeshShape(1, 4))


def test_a_mesh_without_devices_has_no_shards():
    with pytest.raises(RuntimeError, match="Number of tensor shards must match mesh size"):
        ttnn.from_host_shards([], MeshShape(0, 4))


# -- creation --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("create", "value"),
    [
        (lambda **options: ttnn.zeros([2, 3], **options), 0),
        (lambda **options: ttnn.ones([2, 3], **options), 1),
        (lambda **options: ttnn.full([2, 3], 2.5, **options), 2.5),
        (lambda **options: ttnn.empty([2, 3], **options), None),
        (lambda **options: ttnn.arange(0, 6, **options), None),
    ],
)
def test_creation_defaults_to_bfloat16_rows_and_replicates(
    mesh: MeshDevice, create: Callable[..., Tensor], value: float | None
):
    host = create()
    assert (host.dtype, host.layout, host.device()) == (ttnn.bfloat16, ROW_MAJOR, None)
    x = create(device=mesh)
    assert x.device() is mesh
    assert x.tensor_topology().distribution_shape() == MeshShape([8])
    assert x.tensor_topology().placements() == [PlacementReplicate()]
    if value is not None:
        assert ttnn.compose(x).tolist() == [[value] * 3] * 2


def test_rand_defaults_to_tiles(mesh: MeshDevice):
    x = ttnn.rand([4, 4], device=mesh)
    assert (x.dtype, x.layout) == (ttnn.bfloat16, TILE)
    assert 0 <= float(ttnn.compose(x).min()) <= float(ttnn.compose(x).max()) <= 1


@pytest.mark.parametrize("like", [ttnn.zeros_like, ttnn.ones_like, ttnn.empty_like, lambda t: ttnn.full_like(t, 3)])
def test_like_keeps_form_and_placement(mesh: MeshDevice, like: Callable[[Tensor], Tensor]):
    x = split(counting(8, 2), mesh, layout=TILE, dtype=ttnn.float32)
    y = like(x)
    assert y.spec == x.spec
    assert ttnn.placements(y) == ttnn.placements(x)
    assert y.device_coords() == x.device_coords()


# -- distribute_tensor, aggregate_tensor -----------------------------------------------------------


def test_distribute_tensor_splits_on_the_host_or_onto_a_mesh(mesh: MeshDevice):
    plain = ttnn.from_torch(counting(8, 2), dtype=ttnn.bfloat16, layout=TILE)
    mapper = ttnn.ShardTensorToMesh(mesh, 0)
    host = ttnn.distribute_tensor(plain, mapper)
    assert host.storage_type() is StorageType.HOST
    assert (host.shape, host.dtype, host.layout) == ([1, 2], ttnn.bfloat16, TILE)
    there = ttnn.distribute_tensor(plain, mapper, mesh)
    assert there.device() is mesh
    assert torch.equal(ttnn.compose(there).float(), counting(8, 2))


def test_distribute_tensor_takes_host_tensors_and_unwrapped_mappers(mesh: MeshDevice):
    plain = ttnn.from_torch(counting(8, 2))
    expected = "TensorToMesh only supports host tensors; got storage type: StorageType::DEVICE"
    with pytest.raises(RuntimeError, match=exactly(expected)):
        ttnn.distribute_tensor(ttnn.to_device(plain, mesh), ttnn.ShardTensorToMesh(mesh, 0))
    wrapper = ttnn.ReplicateTensorToMesh(mesh)
    with pytest.raises(TypeError, match=r"take it out of its wrapper with \.unwrap\(\)"):
        ttnn.distribute_tensor(plain, wrapper)
    assert torch.equal(ttnn.compose(ttnn.distribute_tensor(plain, wrapper.unwrap())), counting(8, 2))


def test_what_is_distributed_is_not_distributed_again(mesh: MeshDevice):
    host = ttnn.from_torch(counting(8, 2), mesh_mapper=ttnn.ShardTensorToMesh(mesh, 0))
    with pytest.raises(RuntimeError, match="tensor is already distributed over 8 devices"):
        ttnn.distribute_tensor(host, ttnn.ShardTensorToMesh(mesh, 1))


def test_block_formats_share_exponents_within_a_shard_only(mesh: MeshDevice):
    values = torch.ones(1, 16)
    values[0, 0] = 1000
    plain = ttnn.from_torch(values, dtype=ttnn.bfloat16)
    host = ttnn.distribute_tensor(ttnn.to_dtype(plain, ttnn.float32), ttnn.ShardTensorToMesh(mesh, 1))
    assert ttnn.compose(ttnn.to_dtype(ttnn.to_layout(host, TILE), ttnn.bfloat4_b))[0].tolist() == [896, 0] + [1] * 14


def test_aggregate_tensor_makes_a_plain_host_tensor(mesh: MeshDevice):
    x = split(counting(8, 2), mesh, layout=TILE)
    whole = ttnn.aggregate_tensor(x, ttnn.ConcatMeshToTensor(mesh, 0))
    assert whole.storage_type() is StorageType.HOST
    assert whole.host_buffer().shape() == MeshShape(1, 1)
    assert (whole.shape, whole.layout) == ([8, 2], TILE)
    assert torch.equal(ttnn.to_torch(whole), counting(8, 2))
    assert list(map(repr, x.tensor_topology().placements())) == [repr(PlacementShard(0))]


def test_aggregating_a_partial_warns_like_composing_it(mesh: MeshDevice):
    x = split(torch.ones(32, 256), mesh, 1, layout=TILE)
    total = ttnn.sum(x, dim=1)
    composer = ttnn.ConcatMeshToTensor(mesh, 0)
    for attempt in (
        lambda: ttnn.aggregate_tensor(total, composer),
        lambda: ttnn.to_torch(total, mesh_composer=composer),
        lambda: ttnn.compose(total),
    ):
        with pytest.warns(ttnn.PartialWarning, match=r"ttnn\.all_reduce"):
            attempt()
