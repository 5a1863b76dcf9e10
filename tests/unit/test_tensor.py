"""Tensor and TensorSpec: the member table, operators, indexing, and how a tensor is held."""

from __future__ import annotations

import gc
import re
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch

import softmesh as ttnn
from softmesh import (
    BufferType,
    CoreCoord,
    CoreRange,
    CoreRangeSet,
    MeshCoordinate,
    MeshDevice,
    MeshShape,
    Shape,
    StorageType,
    Tensor,
    TensorMemoryLayout,
    TensorSpec,
)
from softmesh.tensor.device_allocation import deallocate
from softmesh.tensor.methods import (
    get_memory_config,
    has_tile_padding,
    is_sharded,
    is_tensor_storage_on_device,
)

GRID = CoreRangeSet([CoreRange(CoreCoord(0, 0), CoreCoord(1, 3))])


@pytest.fixture(scope="module")
def mesh() -> Iterator[MeshDevice]:
    with ttnn.create_mesh_device(MeshShape(2, 4), physical_device_ids=range(60, 68)) as mesh_device:
        yield mesh_device


@pytest.fixture(scope="module")
def device() -> Iterator[MeshDevice]:
    with ttnn.manage_device(device_id=70) as one:
        yield one


def exactly(text: str) -> str:
    return re.escape(text)


def counting(*shape: int) -> torch.Tensor:
    return torch.arange(torch.Size(shape).numel(), dtype=torch.float32).reshape(shape)


# -- what it is ------------------------------------------------------------------------------------


def test_shape_is_that_of_one_device(mesh: MeshDevice):
    split = ttnn.from_torch(counting(8, 6), device=mesh, mesh_mapper=ttnn.ShardTensorToMesh(mesh, 0))
    assert split.shape == Shape([1, 6])
    assert split.shape == (1, 6) == split.shape
    assert split.logical_volume() == 6


def test_the_spec_answers_as_property_and_as_getter(mesh: MeshDevice):
    x = ttnn.from_torch(counting(3, 40), dtype=ttnn.bfloat16, layout=ttnn.TILE_LAYOUT, device=mesh)
    assert x.padded_shape == [32, 64]
    assert x.dtype is x.get_dtype() is ttnn.bfloat16
    assert x.layout is x.get_layout() is ttnn.TILE_LAYOUT
    assert x.tile == x.get_tile() == ttnn.Tile((32, 32))
    assert x.spec == TensorSpec([3, 40], ttnn.bfloat16, ttnn.TILE_LAYOUT)
    assert x.memory_config() == ttnn.DRAM_MEMORY_CONFIG
    assert x.volume() == 32 * 64
    assert x.logical_volume() == 120


def test_every_tensor_has_an_id_which_can_be_set():
    first, second = ttnn.zeros([2]), ttnn.zeros([2])
    assert first.tensor_id != second.tensor_id
    first.tensor_id = 7
    assert first.tensor_id == 7
    with pytest.raises(TypeError, match="tensor_id must be an int, got 'seven'"):
        first.tensor_id = "seven"


@pytest.mark.parametrize(
    ("dtype", "size"),
    [
        (ttnn.bfloat16, 2),
        (ttnn.float32, 4),
        (ttnn.uint32, 4),
        (ttnn.uint8, 1),
        (ttnn.uint16, 2),
        (ttnn.int32, 4),
        (ttnn.int8, 1),
        (ttnn.fp8_e4m3, 1),
    ],
)
def test_element_size_counts_bytes(dtype: ttnn.DataType, size: int):
    assert ttnn.from_torch(torch.ones(2), dtype=dtype).element_size() == size


@pytest.mark.parametrize("dtype", [ttnn.bfloat8_b, ttnn.bfloat4_b])
def test_block_formats_have_no_element_size(dtype: ttnn.DataType):
    with pytest.raises(ValueError, match="no element size"):
        ttnn.from_torch(torch.ones(2), dtype=dtype).element_size()


@pytest.mark.parametrize(
    ("shape", "padded"),
    [
        ((5,), [32, 32]),
        ((3, 5), [32, 32]),
        ((), [32, 32]),
        ((0,), [32, 0]),
        ((1, 3, 40, 50), [1, 3, 64, 64]),
    ],
)
def test_tiles_pad_the_last_two_dims(shape: tuple[int, ...], padded: list[int]):
    x = ttnn.from_torch(torch.ones(shape), layout=ttnn.TILE_LAYOUT)
    assert list(x.padded_shape) == padded
    assert x.shape == shape
    assert x.volume() == torch.Size(padded).numel()
    assert has_tile_padding(x) == (x.volume() != x.logical_volume())


@pytest.mark.parametrize(("shape", "padded"), [((3, 5), [3, 5]), ((5,), [5]), ((), [1])])
def test_row_major_pads_nothing(shape: tuple[int, ...], padded: list[int]):
    x = ttnn.from_torch(torch.ones(shape))
    assert list(x.padded_shape) == padded
    assert not has_tile_padding(x)


def test_a_small_tile_pads_less():
    x = ttnn.from_torch(torch.ones(3, 20), layout=ttnn.TILE_LAYOUT, tile=ttnn.Tile((4, 16)))
    assert list(x.padded_shape) == [4, 32]
    assert x.tile == ttnn.Tile((4, 16))


def test_has_tile_padding_asks_for_one_dim_too():
    x = ttnn.from_torch(torch.ones(2, 32, 5), layout=ttnn.TILE_LAYOUT)
    assert [has_tile_padding(x, dim=d) for d in (0, 1, 2, -1, -2)] == [False, False, True, True, False]
    with pytest.raises(RuntimeError, match="dim=3 is out of range for Shape"):
        has_tile_padding(x, dim=3)


# -- where it is -----------------------------------------------------------------------------------


def test_storage_types_have_the_numbers_of_ttnn():
    assert (StorageType.HOST.value, StorageType.DEVICE.value) == (0, 1)
    assert str(StorageType.HOST) == repr(StorageType.HOST) == "StorageType.HOST"


def test_a_host_tensor_has_no_device(mesh: MeshDevice):
    host = ttnn.from_torch(torch.ones(8, 2), mesh_mapper=ttnn.ShardTensorToMesh(mesh, 0))
    assert host.storage_type() is StorageType.HOST
    assert host.device() is None
    assert host.devices() == [None]
    assert not is_tensor_storage_on_device(host)
    assert get_memory_config(host) is None


def test_a_device_tensor_names_its_mesh_and_its_coordinates(mesh: MeshDevice):
    x = ttnn.from_torch(torch.ones(3, 2), device=mesh, mesh_mapper=ttnn.ShardTensorToMesh(mesh, 0))
    assert x.storage_type() is StorageType.DEVICE
    assert x.device() is mesh
    assert x.devices() == [mesh]
    assert x.device_coords() == [MeshCoordinate(0, 0), MeshCoordinate(0, 1), MeshCoordinate(0, 2)]
    assert is_tensor_storage_on_device(x)
    assert get_memory_config(x) == ttnn.DRAM_MEMORY_CONFIG


@pytest.mark.parametrize(
    "method", ["buffer_address", "buffer_page_size", "buffer_num_pages", "buffer_aligned_page_size"]
)
def test_a_host_tensor_has_no_buffer(method: str):
    host = ttnn.zeros([2, 2])
    with pytest.raises(RuntimeError, match=f"StorageType::HOST doesn't support {method} method"):
        getattr(host, method)()


def test_a_host_tensor_has_no_device_coords():
    with pytest.raises(RuntimeError, match="StorageType::HOST doesn't support device_coords"):
        ttnn.zeros([2, 2]).device_coords()


def test_pages_are_tiles_or_rows(device: MeshDevice):
    tiled = ttnn.zeros([2, 40, 50], ttnn.bfloat16, ttnn.TILE_LAYOUT, device)
    assert (tiled.buffer_page_size(), tiled.buffer_num_pages()) == (2048, 2 * 2 * 2)
    rows = ttnn.zeros([3, 5], ttnn.float32, ttnn.ROW_MAJOR_LAYOUT, device)
    assert (rows.buffer_page_size(), rows.buffer_num_pages()) == (20, 3)
    assert rows.buffer_aligned_page_size() == 32
    in_l1 = ttnn.zeros([3, 5], ttnn.bfloat16, ttnn.ROW_MAJOR_LAYOUT, device, ttnn.L1_MEMORY_CONFIG)
    assert in_l1.buffer_aligned_page_size() == 16
    blocks = ttnn.zeros([32, 64], ttnn.bfloat8_b, ttnn.TILE_LAYOUT, device)
    assert (blocks.buffer_page_size(), blocks.buffer_num_pages()) == (1088, 2)


def test_a_buffer_address_is_stable_shared_by_shards_and_nobody_elses(mesh: MeshDevice):
    x, y = ttnn.zeros([2, 2], device=mesh), ttnn.zeros([2, 2], device=mesh)
    assert x.buffer_address() == x.buffer_address() != y.buffer_address()
    assert {shard.buffer_address() for shard in ttnn.get_device_tensors(x)} == {x.buffer_address()}


def test_the_host_buffer_hands_out_shards_by_coordinate(mesh: MeshDevice):
    host = ttnn.from_torch(counting(6, 2), mesh_mapper=ttnn.ShardTensorToMesh(mesh, 0))
    buffer = host.host_buffer()
    assert buffer.shape() == MeshShape(2, 4)
    assert buffer.is_local(MeshCoordinate(1, 3))
    assert torch.equal(ttnn.to_torch(buffer.get_shard(MeshCoordinate(1, 1))), counting(6, 2)[5:6])
    assert buffer.get_shard(MeshCoordinate(1, 2)) is None


def test_the_host_buffer_of_a_plain_tensor_is_1x1():
    assert ttnn.zeros([2]).host_buffer().shape() == MeshShape([1, 1])


def test_a_device_tensor_has_no_host_buffer(device: MeshDevice):
    with pytest.raises(RuntimeError, match=r"host_buffer: the tensor is on a device .* ttnn\.from_device"):
        ttnn.zeros([2], device=device).host_buffer()


# -- deallocation ----------------------------------------------------------------------------------


def test_a_deallocated_tensor_keeps_its_spec_and_loses_device_and_values(device: MeshDevice):
    x = ttnn.ones([32, 32], ttnn.float32, device=device)
    assert x.is_allocated()
    x.deallocate()
    x.deallocate()
    assert not x.is_allocated()
    assert x.device() is None
    assert x.devices() == []
    assert x.shape == [32, 32]
    assert x.storage_type() is StorageType.DEVICE
    assert get_memory_config(x) is None
    expected = (
        "ttnn.Tensor(<buffer is not allocated>, shape=Shape([32, 32]), dtype=DataType::FLOAT32, "
        "layout=Layout::ROW_MAJOR)"
    )
    assert repr(x) == str(x) == expected


def test_without_force_a_shared_tensor_stays(mesh: MeshDevice):
    x = ttnn.ones([2, 2], device=mesh)
    shard = ttnn.get_device_tensors(x)[3]
    x.deallocate()
    assert x.is_allocated()
    del shard
    gc.collect()
    x.deallocate()
    assert not x.is_allocated()


def test_the_function_deallocates_by_force(mesh: MeshDevice):
    x = ttnn.ones([2, 2], device=mesh)
    shards = ttnn.get_device_tensors(x)
    deallocate(x, force=False)
    assert x.is_allocated()
    deallocate(x)
    deallocate(x)
    assert not shards[0].is_allocated()


RETURNS_ITS_OPERAND = {
    "in place": lambda x: ttnn.add_(x, 1.0),
    "softmax in place": lambda x: ttnn.softmax_in_place(x),
    "attention": lambda x: ttnn.transformer.attention_softmax_(x, head_size=32, attention_mask=None),
    "output tensor": lambda x: ttnn.relu(x, output_tensor=x),
    "a slice of all": lambda x: x[:, :, :, :],
    "on the device already": lambda x: ttnn.to_device(x, x.device()),
}


@pytest.mark.parametrize("op", RETURNS_ITS_OPERAND.values(), ids=list(RETURNS_ITS_OPERAND))
def test_what_an_op_hands_back_outlives_a_deallocation_that_is_not_forced(mesh, op):
    x = ttnn.rand((1, 1, 32, 32), mesh)
    y = op(x)
    x.deallocate()  # as torch-ttnn does with every operand it is done with
    assert y.is_allocated()
    del x
    y.deallocate()
    assert not y.is_allocated()
    again = ttnn.rand((1, 1, 32, 32), mesh)
    other = op(again)
    ttnn.deallocate(again)
    assert not other.is_allocated()


def test_deallocating_a_result_leaves_its_operand(device: MeshDevice):
    x = ttnn.from_torch(counting(2, 3), device=device)
    y = ttnn.reshape(x, [3, 2])
    deallocate(y)
    assert torch.equal(ttnn.to_torch(x), counting(2, 3))


# -- memory config ---------------------------------------------------------------------------------


def test_a_memory_config_is_carried_along(device: MeshDevice):
    config = ttnn.create_sharded_memory_config([64, 64], ttnn.CoreGrid(x=2, y=2), ttnn.ShardStrategy.BLOCK)
    x = ttnn.from_torch(counting(64, 64), layout=ttnn.TILE_LAYOUT, device=device, memory_config=config)
    assert x.memory_config() == config
    assert x.is_sharded()
    assert is_sharded(x)
    assert ttnn.from_device(x).memory_config() == config
    assert torch.equal(ttnn.to_torch(x), counting(64, 64))


def test_interleaved_tensors_are_not_sharded_however_they_are_distributed(mesh: MeshDevice):
    x = ttnn.from_torch(counting(8, 2), device=mesh, mesh_mapper=ttnn.ShardTensorToMesh(mesh, 0))
    assert not x.is_sharded()
    assert not is_sharded(x)


@pytest.mark.parametrize(
    "config",
    [
        ttnn.L1_BLOCK_SHARDED_MEMORY_CONFIG,
        ttnn.L1_HEIGHT_SHARDED_MEMORY_CONFIG,
        ttnn.L1_WIDTH_SHARDED_MEMORY_CONFIG,
    ],
)
def test_a_sharded_config_without_a_shard_spec_is_refused(device: MeshDevice, config: ttnn.MemoryConfig):
    expected = "ttnn.from_torch: Shard spec must not be None for sharded tensors"
    with pytest.raises(RuntimeError, match=exactly(expected)):
        ttnn.from_torch(torch.ones(32, 32), layout=ttnn.TILE_LAYOUT, device=device, memory_config=config)


# -- to and from plain values ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("dtype", "kind"),
    [
        (ttnn.bfloat16, torch.bfloat16),
        (ttnn.float32, torch.float32),
        (ttnn.uint32, torch.uint32),
        (ttnn.bfloat8_b, torch.float32),
        (ttnn.bfloat4_b, torch.float32),
        (ttnn.uint8, torch.uint8),
        (ttnn.uint16, torch.uint16),
        (ttnn.int32, torch.int32),
        (ttnn.int8, torch.int8),
    ],
)
def test_to_torch_gives_the_torch_type_of_the_dtype(dtype: ttnn.DataType, kind: torch.dtype):
    x = ttnn.from_torch(torch.ones(2, 2), dtype=dtype)
    assert x.to_torch().dtype is kind
    assert x.to_torch().tolist() == [[1, 1], [1, 1]]
    assert x.to_list() == [[1, 1], [1, 1]]
    assert x.to_numpy().tolist() == [[1, 1], [1, 1]]
    assert ttnn.from_torch(torch.ones(1), dtype=dtype).item() == 1


def test_methods_that_read_values_take_a_composer(mesh: MeshDevice):
    x = ttnn.from_torch(counting(8, 2), device=mesh, mesh_mapper=ttnn.ShardTensorToMesh(mesh, 0))
    composer = ttnn.ConcatMeshToTensor(mesh, 0)
    assert torch.equal(x.to_torch(mesh_composer=composer), counting(8, 2))
    assert np.array_equal(x.to_numpy(composer), counting(8, 2).numpy())
    with pytest.raises(RuntimeError, match="Supply a mesh composer to concatenate multi-device shards"):
        x.to_torch()


def test_numpy_gets_bfloat16_as_float32():
    assert ttnn.from_torch(torch.ones(2), dtype=ttnn.bfloat16).to_numpy().dtype == np.float32


def test_item_wants_exactly_one_element():
    assert ttnn.from_torch(torch.tensor([[2.5]])).item() == 2.5
    assert ttnn.from_torch(torch.tensor(2.5)).item() == 2.5
    expected = "tensor.item() requires tensor to have exactly one element, but got 12 elements"
    with pytest.raises(RuntimeError, match=exactly(expected)):
        ttnn.from_torch(torch.ones(3, 4)).item()


def test_values_come_with_their_padding_on_request():
    x = ttnn.from_torch(torch.full((2, 3), 5.0), layout=ttnn.TILE_LAYOUT)
    padded = x.to_torch_with_padded_shape()
    assert padded.shape == (32, 32)
    assert padded.sum() == 30
    filled = ttnn.from_torch(torch.full((2, 3), 5.0), layout=ttnn.TILE_LAYOUT, pad_value=-1)
    assert filled.to_torch_with_padded_shape()[0, :5].tolist() == [5, 5, 5, -1, -1]
    assert filled.to_torch().tolist() == [[5, 5, 5], [5, 5, 5]]
    line = ttnn.from_torch(torch.ones(5), dtype=ttnn.uint16, layout=ttnn.TILE_LAYOUT)
    assert line.to_torch_with_padded_shape().to(torch.int64).sum() == 5


def test_the_pad_value_travels_to_the_device_and_back(device: MeshDevice):
    x = ttnn.from_torch(torch.ones(2, 3), layout=ttnn.TILE_LAYOUT, device=device, pad_value=9)
    assert x.cpu().to_torch_with_padded_shape()[31, 31] == 9


# -- to, cpu ---------------------------------------------------------------------------------------


def test_to_moves_to_a_device_and_cpu_back(mesh: MeshDevice):
    host = ttnn.from_torch(counting(2, 2))
    for moved in (host.to(mesh), host.to(device=mesh), host.to(mesh, ttnn.L1_MEMORY_CONFIG, 0)):
        assert moved.device() is mesh
    assert host.to(mesh, mem_config=ttnn.L1_MEMORY_CONFIG).memory_config() == ttnn.L1_MEMORY_CONFIG
    back = host.to(mesh).cpu(blocking=True, cq_id=None)
    assert back.storage_type() is StorageType.HOST
    assert torch.equal(ttnn.to_torch(ttnn.get_device_tensors(back)[0]), counting(2, 2))


def test_to_lays_a_host_tensor_out_anew():
    host = ttnn.from_torch(counting(2, 2))
    for tiled in (host.to(ttnn.TILE_LAYOUT), host.to(target_layout=ttnn.TILE_LAYOUT)):
        assert tiled.layout is ttnn.TILE_LAYOUT
        assert list(tiled.padded_shape) == [32, 32]
        assert torch.equal(tiled.to_torch(), counting(2, 2))
    assert host.layout is ttnn.ROW_MAJOR_LAYOUT


def test_to_lays_out_on_the_host_only(device: MeshDevice):
    x = ttnn.ones([2, 2], device=device)
    with pytest.raises(RuntimeError, match=r"StorageType::DEVICE\): use ttnn\.to_layout"):
        x.to(ttnn.TILE_LAYOUT)


@pytest.mark.parametrize("silly", [None, "cpu", 3, torch.float32])
def test_to_wants_a_device_or_a_layout(silly: object):
    with pytest.raises(TypeError, match="expected a MeshDevice or a Layout, got"):
        ttnn.zeros([2]).to(silly)


# -- reshape, pad, unpad ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    "reshaped",
    [
        lambda x: x.reshape(1, 2, 3, 4),
        lambda x: x.reshape([1, 2, 3, 4]),
        lambda x: x.reshape((1, 2, -1, 4)),
        lambda x: x.reshape(Shape([1, 2, 3, 4])),
        lambda x: x.reshape(-1, 2, 3, 4),
    ],
)
def test_reshape_takes_extents_a_list_or_a_shape(reshaped: Callable[[Tensor], Tensor]):
    x = reshaped(ttnn.from_torch(counting(4, 6)))
    assert x.shape == [1, 2, 3, 4]
    assert torch.equal(x.to_torch(), counting(1, 2, 3, 4))


@pytest.mark.parametrize("shape", [(5, 5), (-1, -1), (-1, 7)])
def test_reshape_keeps_the_number_of_elements(shape: tuple[int, int]):
    with pytest.raises(RuntimeError, match="Invalid arguments to reshape"):
        ttnn.from_torch(counting(4, 6)).reshape(shape)


def test_pad_keeps_the_logical_shape_and_unpad_cuts():
    x = ttnn.from_torch(counting(1, 1, 2, 3))
    padded = x.pad([1, 1, 4, 5], [0, 0, 0, 0], 7)
    assert padded.shape == [1, 1, 2, 3]
    assert padded.padded_shape == [1, 1, 4, 5]
    assert padded.volume() == 20
    assert padded.to_torch_with_padded_shape()[0, 0].tolist() == [
        [0, 1, 2, 7, 7],
        [3, 4, 5, 7, 7],
        [7, 7, 7, 7, 7],
        [7, 7, 7, 7, 7],
    ]
    assert torch.equal(padded.to_torch(), counting(1, 1, 2, 3))
    cut = padded.unpad([0, 0, 1, 1], [1, 1, 3, 4])
    assert cut.to_torch()[0, 0].tolist() == [[4, 5, 7], [7, 7, 7]]
    assert torch.equal(padded.unpad([0, 0, 0, 0], [1, 1, 2, 3]).to_torch(), x.to_torch())


def test_pad_moves_the_values_to_where_they_start(device: MeshDevice, mesh: MeshDevice):
    x = ttnn.from_torch(counting(2, 3))
    padded = x.pad([4, 5], [1, 2], 7)
    assert (padded.shape, padded.padded_shape) == ([2, 3], [4, 5])
    assert padded.to_torch().tolist() == [[7, 7, 7], [7, 7, 0]]
    whole = [[7, 7, 7, 7, 7], [7, 7, 0, 1, 2], [7, 7, 3, 4, 5], [7, 7, 7, 7, 7]]
    assert padded.to_torch_with_padded_shape().tolist() == whole
    assert torch.equal(padded.unpad([1, 2], [3, 5]).to_torch(), counting(2, 3))
    assert padded.to(device).cpu().to_torch().tolist() == [[7, 7, 7], [7, 7, 0]]
    split = ttnn.from_torch(counting(8, 3), mesh_mapper=ttnn.ShardTensorToMesh(mesh, 0))
    with pytest.raises(RuntimeError, match="goes one piece at a time"):
        split.pad([4, 5], [1, 2], 7)


def test_pad_to_tile_and_back_through_the_device(device: MeshDevice):
    x = ttnn.from_torch(counting(1, 1, 3, 5))
    padded = x.pad_to_tile(0.0)
    assert padded.shape == [1, 1, 3, 5]
    assert padded.padded_shape == [1, 1, 32, 32]
    there = padded.to(ttnn.TILE_LAYOUT).to(device)
    back = there.cpu().to(ttnn.ROW_MAJOR_LAYOUT)
    assert back.padded_shape == [1, 1, 32, 32]
    assert torch.equal(back.unpad_from_tile([1, 1, 3, 5]).to_torch(), counting(1, 1, 3, 5))


def test_unpadding_a_split_dim_leaves_pieces_without_a_whole(mesh: MeshDevice):
    host = ttnn.from_torch(counting(8, 2, 4), mesh_mapper=ttnn.ShardTensorToMesh(mesh, 0))
    kept = host.unpad([0, 0, 0], [1, 2, 3])
    assert ttnn.placements(kept) == ttnn.placements(host)
    assert torch.equal(ttnn.compose(kept), counting(8, 2, 4)[:, :, :3])
    columns = ttnn.from_torch(counting(2, 16), mesh_mapper=ttnn.ShardTensorToMesh(mesh, 1))
    assert set(map(repr, ttnn.placements(columns.unpad([0, 0], [2, 1])))) == {"Local"}


@pytest.mark.parametrize(
    ("attempt", "message"),
    [
        (lambda x: x.pad([1, 2], [0, 0], 0), "pad: Shape([2, 3]) does not fit into [1, 2]"),
        (lambda x: x.pad([4, 4, 4], [0, 0, 0], 0), "does not fit into [4, 4, 4]"),
        (lambda x: x.pad([4, 4], [3, 0], 0), "does not fit into [4, 4] from [3, 0] on"),
        (lambda x: x.unpad([0, 0], [2, 4]), "does not lie within the padded shape [2, 3]"),
        (lambda x: x.unpad([1, 0], [1, 3]), "does not lie within the padded shape [2, 3]"),
        (lambda x: x.pad_to_tile(0).unpad_from_tile([2]), "must equal the padded shape [32, 32]"),
        (lambda x: x.pad([64, 64], [0, 0], 0).unpad_from_tile([2, 3]), "leaves off whole tiles of [64, 64]"),
        (lambda x: x.to(ttnn.TILE_LAYOUT).unpad([0, 0], [1, 1]), "must be ROW_MAJOR for unpadding"),
    ],
)
def test_padding_that_does_not_fit_says_why(attempt: Callable[[Tensor], Tensor], message: str):
    with pytest.raises(RuntimeError, match=exactly(message)):
        attempt(ttnn.from_torch(torch.ones(2, 3)))


def test_tiles_are_padded_already():
    tiled = ttnn.from_torch(torch.ones(2, 3), layout=ttnn.TILE_LAYOUT)
    assert tiled.pad([64, 64], [0, 0], 1).padded_shape == [32, 32]


def test_padding_is_for_host_tensors(device: MeshDevice):
    x = ttnn.ones([2, 2], device=device)
    for attempt in (
        lambda: x.pad([4, 4], [0, 0], 0),
        lambda: x.pad_to_tile(0),
        lambda: x.unpad([0, 0], [1, 1]),
    ):
        with pytest.raises(RuntimeError, match=r"the tensor is on a device \(StorageType::DEVICE\)"):
            attempt()


def test_a_pad_value_is_a_number():
    with pytest.raises(TypeError, match="the pad value must be a number, got 'zero'"):
        ttnn.zeros([2, 2]).pad_to_tile("zero")


# -- constructors ----------------------------------------------------------------------------------


def test_a_tensor_from_a_list_takes_shape_dtype_and_layout(device: MeshDevice):
    values = [float(i) for i in range(6)]
    host = Tensor(values, [2, 3], ttnn.float32, ttnn.ROW_MAJOR_LAYOUT)
    assert torch.equal(host.to_torch(), counting(2, 3))
    assert host.device() is None
    there = Tensor(values, [2, 3], ttnn.bfloat16, ttnn.TILE_LAYOUT, device)
    assert there.device() is device
    in_l1 = Tensor(values, [2, 3], ttnn.bfloat16, ttnn.TILE_LAYOUT, device, ttnn.L1_MEMORY_CONFIG)
    assert in_l1.memory_config() == ttnn.L1_MEMORY_CONFIG
    small = Tensor(values, [2, 3], ttnn.bfloat16, ttnn.TILE_LAYOUT, ttnn.Tile((16, 32)))
    assert list(small.padded_shape) == [16, 32]
    named = Tensor(data=[1, 2], shape=[2], data_type=ttnn.int32, layout=ttnn.ROW_MAJOR_LAYOUT)
    assert named.to_list() == [1, 2]


def test_a_list_must_fill_its_shape():
    with pytest.raises(RuntimeError, match="Buffer size 3 differs from shape volume 4"):
        Tensor([1.0, 2.0, 3.0], [2, 2], ttnn.float32, ttnn.ROW_MAJOR_LAYOUT)


def test_a_tensor_from_torch_or_numpy_takes_the_same_options(mesh: MeshDevice):
    x = Tensor(counting(8, 2), ttnn.bfloat16, mesh, ttnn.TILE_LAYOUT, ttnn.L1_MEMORY_CONFIG)
    assert (x.dtype, x.device(), x.layout) == (ttnn.bfloat16, mesh, ttnn.TILE_LAYOUT)
    assert x.memory_config() == ttnn.L1_MEMORY_CONFIG
    split = Tensor(counting(8, 2).numpy(), data_type=ttnn.float32, mesh_mapper=ttnn.ShardTensorToMesh(mesh, 0))
    assert split.shape == [1, 2]
    turned = Tensor(torch.ones(2, 3), ttnn.bfloat8_b, col_tilize=True)
    assert turned.shape == [3, 2]


def test_a_tensor_from_a_tensor_stands_for_the_same_values():
    x = ttnn.from_torch(counting(2, 2))
    assert torch.equal(Tensor(x).to_torch(), counting(2, 2))


@pytest.mark.parametrize(
    "arguments",
    [
        (),
        (None,),
        (3.0,),
        ("abc",),
        ([1.0],),
        ([1.0], [1]),
        (["a"], [1], ttnn.float32, ttnn.ROW_MAJOR_LAYOUT),
        ([[1.0]], [1], ttnn.int32, ttnn.ROW_MAJOR_LAYOUT, "device"),
        ([1.0], "1", ttnn.float32, ttnn.ROW_MAJOR_LAYOUT),
        ([1.0], [1], "float32", ttnn.ROW_MAJOR_LAYOUT),
        (torch.ones(2), "bfloat16"),
        (torch.ones(2), None, "cpu"),
    ],
)
def test_a_tensor_from_something_else_is_a_type_error_of_ours(arguments: tuple[Any, ...]):
    with pytest.raises(ttnn.ArgumentError, match=r"\(\): incompatible function arguments|expected a DataType"):
        Tensor(*arguments)


def test_an_unknown_keyword_of_the_constructor_is_named():
    with pytest.raises(ttnn.ArgumentError, match="unexpected keyword argument 'dtyp'"):
        Tensor(torch.ones(2), dtyp=ttnn.float32)


# -- operators -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "operation",
    [
        lambda a, b: a + b,
        lambda a, b: a - b,
        lambda a, b: a * b,
        lambda a, b: a / b,
        lambda a, b: a @ b,
        lambda a, b: 3 + a,
        lambda a, b: 3 - a,
        lambda a, b: 3 * a,
        lambda a, b: 3 / (a + 1),
        lambda a, b: a + 2,
        lambda a, b: a - 2.5,
    ],
)
def test_arithmetic_operators_agree_with_torch(device: MeshDevice, operation: Callable[[Any, Any], Any]):
    a, b = counting(32, 32) / 100, counting(32, 32).flip(0) / 100 + 1
    x, y = (ttnn.from_torch(t, layout=ttnn.TILE_LAYOUT, device=device) for t in (a, b))
    assert torch.allclose(ttnn.to_torch(operation(x, y)), operation(a, b), rtol=1e-5)


@pytest.mark.parametrize(
    "compare",
    [
        lambda a, b: a == b,
        lambda a, b: a != b,
        lambda a, b: a > b,
        lambda a, b: a >= b,
        lambda a, b: a < b,
        lambda a, b: a <= b,
    ],
)
def test_comparisons_give_tensors_of_ones_and_zeros(device: MeshDevice, compare: Callable[[Any, Any], Any]):
    a, b = torch.tensor([[1.0, 2.0, 3.0]]), torch.tensor([[3.0, 2.0, 1.0]])
    x, y = (ttnn.from_torch(t, layout=ttnn.TILE_LAYOUT, device=device) for t in (a, b))
    result = compare(x, y)
    assert isinstance(result, Tensor)
    assert torch.equal(ttnn.to_torch(result), compare(a, b).float())


@pytest.mark.parametrize(
    "missing",
    [
        lambda x: -x,
        lambda x: abs(x),
        lambda x: x**2,
        lambda x: x // 2,
        lambda x: x % 2,
        lambda x: len(x),
        lambda x: float(x),
        lambda x: x.__setitem__(0, 1),
        lambda x: x.T,
        lambda x: x.ndim,
        lambda x: x + "1",
        lambda x: x + None,
        lambda x: [1] * x,
        lambda x: x @ 3 @ [1],
    ],
)
def test_operators_that_ttnn_does_not_have_are_missing(device: MeshDevice, missing: Callable[[Any], Any]):
    x = ttnn.ones([32, 32], ttnn.float32, ttnn.TILE_LAYOUT, device)
    with pytest.raises((TypeError, AttributeError)):
        missing(x)


def test_item_assignment_is_missing(device: MeshDevice):
    x = ttnn.ones([2, 2], device=device)
    with pytest.raises(TypeError, match="does not support item assignment"):
        x[0] = 1


def test_a_tensor_is_always_true_and_hashes_by_identity():
    zero, same = ttnn.from_torch(torch.zeros(1)), ttnn.from_torch(torch.zeros(1))
    assert bool(zero) is True
    assert len({zero, same}) == 2
    assert hash(zero) == hash(zero)


def test_iteration_goes_through_indexing(device: MeshDevice):
    rows = list(ttnn.from_torch(counting(3, 2), device=device))
    assert [ttnn.to_torch(row).tolist() for row in rows] == counting(3, 2).tolist()


def test_ops_on_host_tensors_fail():
    host = ttnn.from_torch(torch.ones(32, 32), layout=ttnn.TILE_LAYOUT)
    expected = "Input tensor A must be on device, got storage type: StorageType::HOST"
    for attempt in (
        lambda: host + host,
        lambda: ttnn.relu(host),
        lambda: host @ host,
        lambda: ttnn.softmax(host),
    ):
        with pytest.raises(RuntimeError, match=exactly(expected)):
            attempt()


def test_an_op_names_the_operand_that_is_on_the_host(device: MeshDevice):
    x = ttnn.ones([32, 32], layout=ttnn.TILE_LAYOUT, device=device)
    host = ttnn.ones([32, 32], layout=ttnn.TILE_LAYOUT)
    with pytest.raises(RuntimeError, match="Input tensor B must be on device"):
        ttnn.add(x, host)


# -- indexing --------------------------------------------------------------------------------------

INDICES: list[Any] = [
    1,
    -1,
    slice(1, 3),
    (slice(None), 2),
    (1, 2, 3),
    (..., 0),
    (0, ...),
    (1, ..., slice(2, 4)),
    ...,
    (slice(0, 2), slice(1, 2), slice(None)),
    [1, 2],
]


@pytest.mark.parametrize("index", INDICES, ids=repr)
@pytest.mark.parametrize("where", ["host", "device"])
def test_indexing_agrees_with_torch(device: MeshDevice, index: Any, where: str):
    values = counting(3, 4, 5)
    x = ttnn.from_torch(values, device=device if where == "device" else None)
    expected = values[tuple(index) if isinstance(index, list) else index]
    picked = x[index]
    assert isinstance(picked, Tensor)
    assert tuple(picked.shape) == tuple(expected.shape)
    assert torch.equal(ttnn.to_torch(picked), expected)


@pytest.mark.parametrize("index", [slice(None, None, 2), slice(-2, None), slice(None, -1), (0, slice(1, -1, 2))])
def test_device_tensors_take_steps_and_negative_bounds(device: MeshDevice, index: Any):
    values = counting(4, 6)
    assert torch.equal(ttnn.to_torch(ttnn.from_torch(values, device=device)[index]), values[index])


@pytest.mark.parametrize(
    ("index", "error", "message"),
    [
        (5, IndexError, "Index 5 (converted to 5) is out of bounds for dimension 0 of size 3"),
        (-4, IndexError, "Index -4 (converted to -1) is out of bounds for dimension 0 of size 3"),
        ((0, 9), IndexError, "Index 9 (converted to 9) is out of bounds for dimension 1 of size 4"),
        ((0, 0, 0), IndexError, "Too many indices for tensor of dimension 2"),
        ((..., 0, ...), ValueError, "Only one ellipsis ('...') is allowed in a slice."),
        (None, TypeError, "not by None"),
        ((0, None), TypeError, "not by None"),
        ("a", TypeError, "not by 'a'"),
        (1.0, TypeError, "not by 1.0"),
        (True, TypeError, "not by True"),
    ],
)
@pytest.mark.parametrize("where", ["host", "device"])
def test_a_wrong_index_says_what_is_wrong(
    device: MeshDevice, index: Any, error: type[Exception], message: str, where: str
):
    x = ttnn.from_torch(counting(3, 4), device=device if where == "device" else None)
    with pytest.raises(error, match=exactly(message)) as caught:
        x[index]
    assert isinstance(caught.value, ttnn.SoftmeshError)
    assert torch.equal(ttnn.to_torch(x), counting(3, 4))


def test_host_tensors_take_no_steps_and_no_negative_bounds():
    host = ttnn.from_torch(counting(4, 4))
    with pytest.raises(RuntimeError, match="Host tensors cannot be accessed with non-unit stride"):
        host[::2]
    with pytest.raises(RuntimeError, match="negative bounds"):
        host[-2:]


def test_indexing_a_split_tensor_cuts_on_each_device(mesh: MeshDevice):
    values = counting(8, 4)
    x = ttnn.from_torch(values, device=mesh, mesh_mapper=ttnn.ShardTensorToMesh(mesh, 0))
    assert torch.equal(ttnn.compose(x[:, 1:3]), values[:, 1:3])


@pytest.mark.parametrize("dim", [5, -4])
def test_unsqueeze_names_the_range_of_dims(device: MeshDevice, dim: int):
    expected = f"Dimension out of range (expected to be in range of [-3,2], but got {dim})"
    with pytest.raises(RuntimeError, match=exactly(expected)):
        ttnn.unsqueeze(ttnn.ones([2, 2], device=device), dim)


@pytest.mark.parametrize("op", [ttnn.view, ttnn.reshape])
def test_view_and_reshape_of_a_wrong_volume_are_invalid(device: MeshDevice, op: Callable[..., Tensor]):
    with pytest.raises(RuntimeError, match="Invalid arguments to reshape"):
        op(ttnn.ones([2, 2], device=device), [3, 2])


# -- printing --------------------------------------------------------------------------------------


def test_one_device_prints_without_a_header(device: MeshDevice):
    x = ttnn.from_torch(torch.tensor([1.0, 2.0]), device=device)
    expected = "ttnn.Tensor([ 1.0000,  2.0000], shape=Shape([2]), dtype=DataType::FLOAT32, layout=Layout::ROW_MAJOR)"
    assert str(x) == repr(x) == expected
    assert repr(ttnn.from_torch(torch.tensor(1.0))).startswith("ttnn.Tensor( 1.0000, shape=Shape([])")
    assert repr(ttnn.from_torch(torch.ones(0, 3))).startswith("ttnn.Tensor([], shape=Shape([0, 3])")


def test_shards_on_a_mesh_print_with_device_and_coordinate(mesh: MeshDevice):
    values = torch.tensor([[1.0], [2.0]])
    x = ttnn.from_torch(values, device=mesh, mesh_mapper=ttnn.ShardTensorToMesh(mesh, 0))
    end = "shape=Shape([1, 1]), dtype=DataType::FLOAT32, layout=Layout::ROW_MAJOR)"
    assert str(x) == (
        f"device_id: 60, MeshCoordinate([0, 0])\nttnn.Tensor([[ 1.0000]], {end}\n"
        f"device_id: 61, MeshCoordinate([0, 1])\nttnn.Tensor([[ 2.0000]], {end}"
    )
    assert str(ttnn.from_device(x)) == f"ttnn.Tensor([[ 1.0000]], {end}\nttnn.Tensor([[ 2.0000]], {end}"


# -- TensorSpec ------------------------------------------------------------------------------------


def test_a_spec_answers_its_parts_and_compares_by_value():
    spec = TensorSpec([3, 40], ttnn.bfloat16, ttnn.TILE_LAYOUT, BufferType.L1, ttnn.Tile((16, 32)))
    assert spec.shape == Shape([3, 40])
    assert (spec.dtype, spec.layout, spec.tile) == (ttnn.bfloat16, ttnn.TILE_LAYOUT, ttnn.Tile((16, 32)))
    assert spec.memory_config == ttnn.L1_MEMORY_CONFIG
    same = TensorSpec(
        shape=Shape([3, 40]),
        dtype=ttnn.bfloat16,
        layout=ttnn.TILE_LAYOUT,
        buffer_type=BufferType.L1,
        tile=ttnn.Tile((16, 32)),
    )
    assert spec == same
    assert hash(spec) == hash(same)
    assert spec != TensorSpec([3, 41], ttnn.bfloat16, ttnn.TILE_LAYOUT, BufferType.L1, ttnn.Tile((16, 32)))
    assert spec != "spec"


def test_a_spec_is_given_a_memory_layout_or_nd_shards_by_position_or_name():
    shards = ttnn.ShardSpec(GRID, [32, 64], ttnn.ShardOrientation.ROW_MAJOR)
    layout = TensorMemoryLayout.HEIGHT_SHARDED
    config = ttnn.MemoryConfig(layout, BufferType.L1, shards)
    parts = ([256, 64], ttnn.bfloat16, ttnn.TILE_LAYOUT)
    assert TensorSpec(*parts, layout, shards, BufferType.L1).memory_config == config
    named = TensorSpec(*parts, memory_layout=layout, shard_spec=shards, buffer_type=BufferType.L1)
    assert named.memory_config == config
    nd = ttnn.NdShardSpec(Shape([32, 64]), GRID)
    assert (
        TensorSpec(*parts, nd, BufferType.L1).memory_config
        == TensorSpec(*parts, layout, shards, BufferType.L1).memory_config
    )
    assert TensorSpec(*parts, nd_shard_spec=nd).memory_config.nd_shard_spec == nd


def test_sharding_methods_return_new_specs_in_the_same_memory():
    spec = TensorSpec([256, 128], ttnn.bfloat16, ttnn.TILE_LAYOUT, BufferType.L1)
    height, width, block = spec.height_sharded(GRID), spec.width_sharded(GRID), spec.block_sharded(GRID)
    assert height.memory_config.memory_layout is TensorMemoryLayout.HEIGHT_SHARDED
    assert height.memory_config.shard_spec.shape == [32, 128]
    assert width.memory_config.memory_layout is TensorMemoryLayout.WIDTH_SHARDED
    assert width.memory_config.shard_spec.shape == [256, 32]
    assert block.memory_config.memory_layout is TensorMemoryLayout.BLOCK_SHARDED
    assert block.memory_config.shard_spec.shape == [64, 64]
    assert spec.block_sharded(CoreRange(CoreCoord(0, 0), CoreCoord(1, 3))) == block
    assert {s.memory_config.buffer_type for s in (height, width, block)} == {BufferType.L1}
    assert spec.memory_config == ttnn.L1_MEMORY_CONFIG


def test_nd_sharding_methods_cut_the_dims_they_are_told():
    spec = TensorSpec([4, 64, 128], ttnn.bfloat16, ttnn.TILE_LAYOUT)
    cut = spec.sharded([1, 32, 128], GRID)
    assert list(cut.memory_config.nd_shard_spec.shard_shape) == [1, 32, 128]
    assert spec.sharded(ttnn.NdShardSpec(Shape([1, 32, 128]), GRID)) == cut
    assert list(spec.sharded_across_dims([0, -1], GRID).memory_config.nd_shard_spec.shard_shape) == [
        1,
        64,
        32,
    ]
    assert spec.sharded_across_dims_except([1], GRID) == spec.sharded_across_dims([0, 2], GRID)


def test_a_tensor_takes_its_form_from_a_sharded_spec(device: MeshDevice):
    spec = TensorSpec([64, 64], ttnn.bfloat16, ttnn.TILE_LAYOUT, BufferType.L1).height_sharded(GRID)
    x = ttnn.from_torch(torch.ones(64, 64), spec=spec, device=device)
    assert x.spec == spec
    assert x.is_sharded()


@pytest.mark.parametrize(
    ("attempt", "message"),
    [
        (lambda: TensorSpec("ab", ttnn.bfloat16, ttnn.TILE_LAYOUT), "shape must be a list of ints, got 'ab'"),
        (lambda: TensorSpec([1.5], ttnn.bfloat16, ttnn.TILE_LAYOUT), "shape[0] must be an int, got 1.5"),
        (lambda: TensorSpec([2], "bfloat16", ttnn.TILE_LAYOUT), "dtype must be a ttnn dtype"),
        (lambda: TensorSpec([2], ttnn.bfloat16, "TILE"), "layout must be ttnn.TILE_LAYOUT or"),
        (
            lambda: TensorSpec([2], ttnn.bfloat16, ttnn.TILE_LAYOUT, "L1"),
            "after shape, dtype and layout come",
        ),
        (
            lambda: TensorSpec([2], ttnn.bfloat16, ttnn.TILE_LAYOUT, memory=1),
            "after shape, dtype and layout come",
        ),
        (
            lambda: TensorSpec([2], ttnn.bfloat16, ttnn.TILE_LAYOUT, buffer_type=1),
            "buffer_type must be a ttnn.",
        ),
        (lambda: TensorSpec([2], ttnn.bfloat16, ttnn.TILE_LAYOUT, tile=(32, 32)), "tile must be a ttnn.Tile"),
        (lambda: TensorSpec([2, 2], ttnn.bfloat16, ttnn.TILE_LAYOUT).height_sharded(None), "grid must be"),
        (lambda: TensorSpec([2, 2], ttnn.bfloat16, ttnn.TILE_LAYOUT).sharded([1, 1], None), "grid must be"),
    ],
)
def test_a_spec_of_wrong_parts_names_the_part(attempt: Callable[[], TensorSpec], message: str):
    with pytest.raises(ttnn.ArgumentError, match=exactly(message)):
        attempt()


def test_a_spec_of_a_block_format_is_tiled():
    with pytest.raises(RuntimeError, match="Layout must be Layout::TILE for bfloat8_b or bfloat4_b!"):
        TensorSpec([2, 2], ttnn.bfloat4_b, ttnn.ROW_MAJOR_LAYOUT)


# -- dtypes ----------------------------------------------------------------------------------------


def test_to_dtype_is_for_the_host_and_brings_block_formats_into_tiles(device: MeshDevice):
    host = ttnn.from_torch(torch.tensor([[1.6, 2.5] * 16] * 32))
    blocks = ttnn.to_dtype(host, ttnn.bfloat8_b)
    assert (blocks.dtype, blocks.layout) == (ttnn.bfloat8_b, ttnn.TILE_LAYOUT)
    assert blocks.to_list()[31][:2] == [1.59375, 2.5]
    expected = "implicitly changed physical shape from (3, 5) to (32, 32) due to alignment constraints."
    with pytest.raises(RuntimeError, match=exactly(expected)):
        ttnn.to_dtype(ttnn.from_torch(torch.ones(3, 5)), ttnn.bfloat8_b)
    bounded = ttnn.to_dtype(ttnn.from_torch(torch.tensor([-2.2])), ttnn.uint16)
    assert bounded.to_list() == [0]
    expected = "Expected Tensor with HostStorage, got StorageType::DEVICE"
    with pytest.raises(RuntimeError, match=exactly(expected)):
        ttnn.to_dtype(ttnn.to_device(host, device), ttnn.bfloat16)


def test_typecast_works_on_host_and_device(device: MeshDevice):
    host = ttnn.from_torch(torch.tensor([[1.0, 2.0]]), layout=ttnn.TILE_LAYOUT)
    for x in (host, ttnn.to_device(host, device)):
        cast = ttnn.typecast(x, ttnn.int32)
        assert cast.dtype is ttnn.int32
        assert ttnn.to_torch(cast).tolist() == [[1, 2]]
