"""Mesh buffers: where their bytes go, who owns them, and what a tensor's bytes are."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import numpy as np
import pytest
import torch

import softmesh as ttnn
from softmesh import BufferType, MeshCoordinate, MeshShape, ShardOrientation
from softmesh.metal import (
    BufferDistributionSpec,
    BufferRegion,
    BufferShardingArgs,
    DeviceLocalBufferConfig,
    DistributedHostBuffer,
    EnqueueReadMeshBuffer,
    EnqueueWriteMeshBuffer,
    GlobalCircularBuffer,
    MeshBuffer,
    MeshBufferLayout,
    ReadShard,
    ReplicatedBufferConfig,
    Shape2D,
    ShardDataTransfer,
    ShardedBufferConfig,
    ShardSpecBuffer,
    TensorBytes,
    WriteShard,
)

PAGE = 64


@pytest.fixture(scope="module")
def mesh() -> Iterator[ttnn.MeshDevice]:
    with ttnn.create_mesh_device(MeshShape(2, 4)) as mesh_device:
        yield mesh_device


@pytest.fixture
def queue(mesh: ttnn.MeshDevice) -> ttnn.metal.MeshCommandQueue:
    return mesh.mesh_command_queue()


def numbers(size: int, seed: int = 0) -> torch.Tensor:
    return torch.randint(0, 256, (size,), dtype=torch.uint8, generator=torch.Generator().manual_seed(seed))


def replicated(mesh: ttnn.MeshDevice, pages: int = 4, **local: object) -> MeshBuffer:
    return MeshBuffer.create(ReplicatedBufferConfig(pages * PAGE), DeviceLocalBufferConfig(PAGE, **local), mesh)


def sharded(
    mesh: ttnn.MeshDevice,
    whole: tuple[int, int],
    shard: tuple[int, int],
    orientation: ShardOrientation = ShardOrientation.ROW_MAJOR,
    datum: int = 4,
) -> MeshBuffer:
    config = ShardedBufferConfig(whole[0] * whole[1] * datum, Shape2D(*whole), Shape2D(*shard), orientation)
    height, width = config.physical_shard_shape()
    return MeshBuffer.create(config, DeviceLocalBufferConfig(height * width * datum), mesh)


def on_device(queue: ttnn.metal.MeshCommandQueue, buffer: MeshBuffer, row: int, column: int) -> torch.Tensor:
    return ReadShard(queue, None, buffer, MeshCoordinate(row, column))


# -- layouts ---------------------------------------------------------------------------------------


def test_a_replicated_buffer_gives_every_device_the_same_bytes_and_keeps_them_once(mesh, queue):
    buffer, data = replicated(mesh), numbers(4 * PAGE)
    EnqueueWriteMeshBuffer(queue, buffer, data)
    assert all(torch.equal(on_device(queue, buffer, *place), data) for place in [(0, 0), (0, 3), (1, 2)])
    assert buffer.memory.data.shape[:2] == (1, 1)


def test_writing_to_one_device_leaves_the_others_as_they_were(mesh, queue):
    buffer, data, other = replicated(mesh), numbers(4 * PAGE), numbers(4 * PAGE, seed=1)
    EnqueueWriteMeshBuffer(queue, buffer, data)
    WriteShard(queue, buffer, other, MeshCoordinate(1, 2))
    assert torch.equal(on_device(queue, buffer, 1, 2), other)
    assert torch.equal(on_device(queue, buffer, 1, 1), data)
    EnqueueWriteMeshBuffer(queue, buffer, data)
    assert torch.equal(on_device(queue, buffer, 1, 2), data)
    assert buffer.memory.data.shape[:2] == (1, 1)


# (orientation, shape of the whole, shape of a shard) -> the number of the shard on each device, None without one
PLACES = [
    (ShardOrientation.ROW_MAJOR, (2, 4), (1, 1), [[0, 1, 2, 3], [4, 5, 6, 7]]),
    (ShardOrientation.COL_MAJOR, (2, 4), (1, 1), [[0, 2, 4, 6], [1, 3, 5, 7]]),
    (ShardOrientation.ROW_MAJOR, (6, 1), (1, 1), [[0, 1, 2, 3], [4, 5, None, None]]),
    (ShardOrientation.COL_MAJOR, (1, 5), (1, 1), [[0, 2, 4, None], [1, 3, None, None]]),
    (ShardOrientation.ROW_MAJOR, (1, 3), (0, 1), [[0, 1, 2, None], [0, 1, 2, None]]),
    (ShardOrientation.ROW_MAJOR, (4, 2), (1, 0), [[0, 1, 2, 3], [0, 1, 2, 3]]),
    (ShardOrientation.COL_MAJOR, (1, 2), (0, 1), [[0, 0, 0, 0], [1, 1, 1, 1]]),
    (ShardOrientation.COL_MAJOR, (2, 3), (1, 0), [[0, 0, 0, 0], [1, 1, 1, 1]]),
    (ShardOrientation.ROW_MAJOR, (3, 5), (0, 0), [[0, 0, 0, 0], [0, 0, 0, 0]]),
    (ShardOrientation.COL_MAJOR, (3, 5), (0, 0), [[0, 0, 0, 0], [0, 0, 0, 0]]),
]


@pytest.mark.parametrize(("orientation", "whole", "shard", "places"), PLACES)
def test_shards_go_to_the_devices_that_the_orientation_says(mesh, queue, orientation, whole, shard, places):
    buffer = sharded(mesh, whole, shard, orientation)
    data = numbers(buffer.size()).view(*whole, 4)
    EnqueueWriteMeshBuffer(queue, buffer, data)
    height, width = buffer.physical_shard_shape()
    shards = [
        data[y : y + height, x : x + width].reshape(-1)
        for y in range(0, whole[0], height)
        for x in range(0, whole[1], width)
    ]
    nothing = torch.zeros_like(shards[0])
    for row, line in enumerate(places):
        for column, number in enumerate(line):
            held = on_device(queue, buffer, row, column)
            assert torch.equal(held, nothing if number is None else shards[number])


def test_devices_without_a_shard_keep_what_they_hold_when_the_others_are_written_again(mesh, queue):
    buffer = sharded(mesh, (1, 3), (0, 1))
    own = numbers(4, seed=3)
    WriteShard(queue, buffer, own, MeshCoordinate(1, 3))
    EnqueueWriteMeshBuffer(queue, buffer, numbers(buffer.size()))
    assert torch.equal(on_device(queue, buffer, 1, 3), own)


def test_a_datum_may_be_a_whole_tile(mesh, queue):
    config = ShardedBufferConfig(8 * 16 * 4096, Shape2D(8, 16), Shape2D(4, 4))
    buffer = MeshBuffer.create(config, DeviceLocalBufferConfig(4096, BufferType.L1, bottom_up=False), mesh)
    data = numbers(config.global_size)
    EnqueueWriteMeshBuffer(queue, buffer, data, blocking=False)
    assert torch.equal(EnqueueReadMeshBuffer(queue, None, buffer), data)
    assert (buffer.datum_size_bytes(), buffer.num_pages(), buffer.device_local_size()) == (4096, 16, 65536)


def test_sizes_are_of_one_copy_and_of_one_device(mesh):
    one, cut = replicated(mesh), sharded(mesh, (4, 8), (2, 0))
    assert (one.size(), one.device_local_size(), one.num_pages()) == (4 * PAGE, 4 * PAGE, 4)
    assert (cut.size(), cut.device_local_size()) == (128, 64)
    assert cut.replicated_dims() == (False, True)
    assert cut.physical_shard_shape() == Shape2D(2, 8)
    assert (one.global_layout(), cut.global_layout()) == (
        MeshBufferLayout.REPLICATED,
        MeshBufferLayout.SHARDED,
    )
    assert cut.global_shard_spec() is cut.global_config()
    for ask in (one.global_shard_spec, one.datum_size_bytes, one.physical_shard_shape, one.replicated_dims):
        with pytest.raises(RuntimeError, match="for a sharded buffer"):
            ask()


def test_a_buffer_without_bytes_is_legal_and_takes_no_memory(mesh, queue):
    before = mesh.allocator().live()
    empty = MeshBuffer.create(ReplicatedBufferConfig(0), DeviceLocalBufferConfig(PAGE), mesh)
    EnqueueWriteMeshBuffer(queue, empty, b"")
    assert (empty.address(), empty.num_pages(), len(mesh.allocator().live())) == (0, 0, len(before))
    assert on_device(queue, empty, 0, 0).numel() == 0


# -- what cannot be --------------------------------------------------------------------------------


def test_shapes_that_do_not_divide_are_refused():
    with pytest.raises(RuntimeError, match="Global buffer shape must be aligned with the shard shape"):
        ShardedBufferConfig(6 * 4, Shape2D(2, 3), Shape2D(1, 2))


@pytest.mark.parametrize(
    ("whole", "shard", "orientation"),
    [
        ((3, 3), (1, 1), ShardOrientation.ROW_MAJOR),
        ((1, 5), (0, 1), ShardOrientation.ROW_MAJOR),
        ((1, 3), (0, 1), ShardOrientation.COL_MAJOR),
    ],
)
def test_more_shards_than_devices_are_refused(mesh, whole, shard, orientation):
    with pytest.raises(RuntimeError, match="The sharded tensor does not fit on the Mesh"):
        sharded(mesh, whole, shard, orientation)


def test_a_page_size_must_divide_what_a_device_holds(mesh):
    for page in (0, 48):
        with pytest.raises(RuntimeError, match=f"page_size={page} does not divide"):
            MeshBuffer.create(ReplicatedBufferConfig(64), DeviceLocalBufferConfig(page), mesh)


def test_a_sharded_buffer_needs_a_mesh_of_two_dims():
    with (
        ttnn.create_mesh_device(MeshShape([2])) as line,
        pytest.raises(RuntimeError, match="rows and columns"),
    ):
        sharded(line, (2, 1), (1, 1))


def test_shards_outside_the_grid_have_no_bank(mesh):
    columns, rows = mesh.compute_with_storage_grid_size().x, mesh.compute_with_storage_grid_size().y
    outside = ttnn.CoreRangeSet([ttnn.CoreRange((0, rows), (0, rows))])
    with pytest.raises(
        RuntimeError,
        match=rf"Invalid shard grid: shard core \(0, {rows}\) has no L1 bank .* which has {columns * rows} of them",
    ):
        ttnn.create_global_semaphore(mesh, outside, 0)


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda mesh: MeshBuffer(), "MeshBuffer.create"),
        (lambda mesh: MeshBuffer.create(64, DeviceLocalBufferConfig(64), mesh), "mesh_buffer_config must be"),
        (lambda mesh: MeshBuffer.create(ReplicatedBufferConfig(64), 64, mesh), "device_local_config must be"),
        (lambda mesh: replicated("mesh"), "mesh_device must be a MeshDevice"),
        (lambda mesh: ReplicatedBufferConfig(-1), "cannot be negative"),
        (lambda mesh: ShardedBufferConfig(4, (2, 2, 2), (1, 1)), "Shape2D"),
        (lambda mesh: DeviceLocalBufferConfig(64, "L1"), "buffer_type must be"),
        (lambda mesh: ShardDataTransfer((0, 0)), "shard_coord must be"),
    ],
)
def test_arguments_of_the_wrong_kind_are_named(mesh, call, said):
    with pytest.raises(TypeError, match=said):
        call(mesh)


# -- memory ----------------------------------------------------------------------------------------


def test_a_buffer_gives_its_memory_back_when_deallocated_or_dropped(mesh):
    before = len(mesh.allocator().live())
    first, second = replicated(mesh), replicated(mesh)
    assert first.address() != second.address()
    assert len(mesh.allocator().live()) == before + 2
    first.deallocate()
    first.deallocate()
    assert not first.is_allocated()
    del second
    gc.collect()
    assert len(mesh.allocator().live()) == before


def test_dram_fills_from_below_and_l1_from_above_unless_told_otherwise(mesh):
    def order(**local: object) -> bool:
        one, other = replicated(mesh, **local), replicated(mesh, **local)
        return one.address() < other.address()

    assert order()
    assert not order(buffer_type=BufferType.L1)
    assert not order(bottom_up=False)
    assert order(buffer_type=BufferType.L1, bottom_up=True)


def test_a_deallocated_buffer_cannot_be_read(mesh, queue):
    buffer = replicated(mesh)
    buffer.deallocate()
    with pytest.raises(RuntimeError, match="is not allocated"):
        on_device(queue, buffer, 0, 0)


def test_a_buffer_ends_with_its_mesh():
    mesh = ttnn.open_mesh_device(MeshShape(1, 1))
    buffer = replicated(mesh)
    mesh.close()
    assert not buffer.is_allocated()
    with pytest.raises(RuntimeError, match="is closed"):
        buffer.check_allocated("reading")
    del mesh
    gc.collect()
    with pytest.raises(RuntimeError, match="the mesh of this buffer is gone"):
        buffer.device()


def test_a_buffer_from_before_a_reshape_is_refused():
    with ttnn.create_mesh_device(MeshShape(1, 4)) as mesh:
        buffer = replicated(mesh)
        mesh.reshape(MeshShape(4, 1))
        with pytest.raises(NotImplementedError, match="create buffers after reshaping"):
            on_device(mesh.mesh_command_queue(), buffer, 0, 0)


def test_buffers_of_sub_devices_must_be_loaded_sharded_and_on_their_cores(mesh):
    mine = ttnn.CoreRangeSet([ttnn.CoreRange((0, 0), (1, 0))])
    manager = mesh.create_sub_device_manager([ttnn.SubDevice([mine])], 3200)
    local = {"buffer_type": BufferType.L1, "sub_device_id": ttnn.SubDeviceId(0)}
    with pytest.raises(RuntimeError, match="must be sharded in L1"):
        replicated(mesh, **local)
    mesh.load_sub_device_manager(manager)
    try:
        with pytest.raises(RuntimeError, match="lies outside SubDeviceId"):
            replicated(mesh, **local, sharding_args=on_cores((0, 0), (3, 0)))
        buffer = replicated(mesh, pages=2, **local, sharding_args=on_cores((0, 0), (1, 0)))
        assert buffer.address() < mesh.allocator().get_base_allocator_addr(BufferType.L1)
        with pytest.raises(RuntimeError, match="Cannot switch sub device managers while"):
            mesh.clear_loaded_sub_device_manager()
        buffer.deallocate()
    finally:
        mesh.clear_loaded_sub_device_manager()


def on_cores(start: tuple[int, int], end: tuple[int, int]) -> BufferShardingArgs:
    """One page on each core of a row."""
    cores = ttnn.CoreRangeSet([ttnn.CoreRange(start, end)])
    spec = ttnn.ShardSpec(cores, [1, 16], ShardOrientation.ROW_MAJOR)
    shards = ShardSpecBuffer(spec, Shape2D(1, 16), Shape2D(cores.num_cores(), 1))
    return BufferShardingArgs(shards, ttnn.TensorMemoryLayout.HEIGHT_SHARDED)


# -- views -----------------------------------------------------------------------------------------


def test_a_view_at_an_address_sees_the_bytes_that_are_there_and_frees_nothing(mesh, queue):
    buffer, data = replicated(mesh, pages=48), numbers(48 * PAGE)
    EnqueueWriteMeshBuffer(queue, buffer, data)
    local = DeviceLocalBufferConfig(PAGE)
    view = MeshBuffer.create(ReplicatedBufferConfig(24 * PAGE), local, mesh, buffer.address())
    assert (view.get_backing_buffer(), view.owns_data()) == (None, False)
    assert torch.equal(on_device(queue, view, 0, 1), data[: 24 * PAGE])
    WriteShard(queue, view, data[: 24 * PAGE].flip(0), MeshCoordinate(0, 1))
    assert torch.equal(on_device(queue, buffer, 0, 1)[: 24 * PAGE], data[: 24 * PAGE].flip(0))
    assert torch.equal(on_device(queue, buffer, 0, 0), data)
    view.deallocate()
    assert buffer.is_allocated()
    assert mesh.allocator().at(BufferType.DRAM, buffer.address()) is not None


def test_a_view_may_begin_inside_a_buffer(mesh, queue):
    banks = mesh.allocator().get_num_banks(BufferType.DRAM)
    buffer, data = replicated(mesh, pages=2 * banks), numbers(2 * banks * PAGE)
    EnqueueWriteMeshBuffer(queue, buffer, data)
    second = buffer.address() + PAGE
    view = MeshBuffer.create(ReplicatedBufferConfig(banks * PAGE), DeviceLocalBufferConfig(PAGE), mesh, second)
    assert torch.equal(on_device(queue, view, 1, 1), data[banks * PAGE :])


def test_a_view_with_other_pages_reads_the_same_memory_bank_by_bank(mesh, queue):
    buffer, data = replicated(mesh, pages=2), numbers(2 * PAGE)
    EnqueueWriteMeshBuffer(queue, buffer, data)
    local = DeviceLocalBufferConfig(PAGE // 2)
    view = MeshBuffer.create(ReplicatedBufferConfig(PAGE), local, mesh, buffer.address())
    assert torch.equal(on_device(queue, view, 0, 0), torch.cat([data[: PAGE // 2], data[PAGE : PAGE * 3 // 2]]))
    WriteShard(queue, view, bytes(PAGE), MeshCoordinate(1, 3))
    changed = on_device(queue, buffer, 1, 3)
    assert not changed[: PAGE // 2].any()
    assert torch.equal(changed[PAGE // 2 : PAGE], data[PAGE // 2 : PAGE])
    assert torch.equal(on_device(queue, view, 0, 0), torch.cat([data[: PAGE // 2], data[PAGE : PAGE * 3 // 2]]))


def test_a_view_with_other_pages_may_begin_inside_a_buffer(mesh, queue):
    banks = mesh.allocator().get_num_banks(BufferType.DRAM)
    buffer, data = replicated(mesh, pages=2 * banks), numbers(2 * banks * PAGE)
    EnqueueWriteMeshBuffer(queue, buffer, data)
    second = buffer.address() + PAGE
    view = MeshBuffer.create(ReplicatedBufferConfig(32), DeviceLocalBufferConfig(32), mesh, second)
    assert torch.equal(on_device(queue, view, 0, 0), data[banks * PAGE : banks * PAGE + 32])


def test_views_where_nobody_owns_the_memory_see_each_others_bytes(mesh, queue):
    address = mesh.allocator().get_base_allocator_addr(BufferType.DRAM) + 2**28
    config = (ReplicatedBufferConfig(PAGE), DeviceLocalBufferConfig(PAGE), mesh, address)
    one, other = MeshBuffer.create(*config), MeshBuffer.create(*config)
    EnqueueWriteMeshBuffer(queue, one, numbers(PAGE))
    assert torch.equal(on_device(queue, other, 0, 2), numbers(PAGE))


def test_a_view_beyond_the_buffer_it_begins_in_is_refused(mesh):
    buffer = replicated(mesh)
    with pytest.raises(RuntimeError, match="reaches beyond the buffer"):
        MeshBuffer.create(ReplicatedBufferConfig(48 * PAGE), DeviceLocalBufferConfig(PAGE), mesh, buffer.address())


# -- pages on each device --------------------------------------------------------------------------


def test_interleaved_pages_go_round_all_banks(mesh):
    banks = mesh.allocator().get_num_banks(BufferType.DRAM)
    buffer = MeshBuffer.create(ReplicatedBufferConfig(20 * 40), DeviceLocalBufferConfig(40), mesh)
    held = buffer.get_device_buffer(MeshCoordinate(1, 0))
    assert (held.aligned_page_size(), held.size(), held.num_pages()) == (64, 800, 20)
    assert held.aligned_size() == 20 * 64
    assert held.aligned_size_per_bank() == 128
    assert held.page_address(1, banks + 1) == buffer.address() + 64
    assert buffer.memory.locate(banks + 1) == (1, buffer.address() + 64)
    assert buffer.memory.page_at(1, buffer.address() + 64 + 39) == (banks + 1, 39)
    assert buffer.memory.page_at(1, buffer.address() + 64 + 40) is None
    assert buffer.memory.page_at(banks - 1, buffer.address() + 64) is None
    with pytest.raises(RuntimeError, match="lies in bank 3, not in bank 0"):
        held.page_address(0, 3)


def test_a_view_of_a_region_counts_its_own_pages(mesh):
    buffer = replicated(mesh, pages=8).get_reference_buffer()
    part = buffer.view(BufferRegion(2 * PAGE, 3 * PAGE))
    assert (part.num_pages(), part.size(), part.address()) == (3, 3 * PAGE, buffer.address())
    assert part.view(BufferRegion(PAGE, PAGE)).page_address(3, 0) == buffer.page_address(3, 3)
    for region in (BufferRegion(1, PAGE), BufferRegion(0, PAGE + 1), BufferRegion(7 * PAGE, 2 * PAGE)):
        with pytest.raises(RuntimeError, match="Region"):
            buffer.view(region)


def test_sharded_pages_lie_on_the_cores_of_their_shards(mesh):
    buffer = replicated(mesh, pages=3, buffer_type=BufferType.L1, sharding_args=on_cores((1, 2), (3, 2)))
    allocator = mesh.allocator()
    for page in range(3):
        (bank,) = allocator.get_bank_ids_from_logical_core(BufferType.L1, ttnn.CoreCoord(1 + page, 2))
        assert buffer.memory.locate(page) == (bank, buffer.address())
        assert buffer.memory.page_at(bank, buffer.address() + 5) == (page, 5)
    assert buffer.memory.num_banks == 3


def test_block_shards_follow_the_rows_of_cores_or_the_columns(mesh):
    cores = ttnn.CoreRangeSet([ttnn.CoreRange((0, 0), (2, 1))])

    def core_of(page: int, orientation: ShardOrientation, shape: Shape2D) -> ttnn.CoreCoord:
        spec = ShardSpecBuffer(ttnn.ShardSpec(cores, [1, 2], orientation), Shape2D(1, 1), shape)
        args = BufferShardingArgs(spec, ttnn.TensorMemoryLayout.BLOCK_SHARDED)
        local = DeviceLocalBufferConfig(PAGE, BufferType.L1, args)
        size = shape.height * shape.width * PAGE
        buffer = MeshBuffer.create(ReplicatedBufferConfig(size), local, mesh)
        bank, _ = buffer.memory.locate(page)
        return mesh.allocator().get_logical_core_from_bank_id(bank)

    assert core_of(4, ShardOrientation.ROW_MAJOR, Shape2D(2, 6)) == (2, 0)
    assert core_of(6, ShardOrientation.ROW_MAJOR, Shape2D(2, 6)) == (0, 1)
    assert core_of(4, ShardOrientation.ROW_MAJOR, Shape2D(2, 4)) == (
        0,
        1,
    )  # the last column of cores has none
    assert core_of(2, ShardOrientation.COL_MAJOR, Shape2D(3, 4)) == (0, 1)
    assert core_of(4, ShardOrientation.COL_MAJOR, Shape2D(3, 4)) == (1, 0)
    with pytest.raises(RuntimeError, match="do not fit a grid of 2 x 3 cores"):
        core_of(0, ShardOrientation.ROW_MAJOR, Shape2D(3, 4))


def test_shards_of_any_rank_are_dealt_round_the_cores(mesh):
    cores = (ttnn.CoreCoord(0, 0), ttnn.CoreCoord(1, 0))
    spec = BufferDistributionSpec((2, 3, 2), (1, 2, 2), cores)
    local = DeviceLocalBufferConfig(PAGE, BufferType.DRAM, BufferShardingArgs(spec))
    buffer = MeshBuffer.create(ReplicatedBufferConfig(12 * PAGE), local, mesh)
    held = buffer.get_reference_buffer()
    assert held.num_dev_pages() == 4 * 4
    assert held.aligned_size_per_bank() == 2 * 4 * PAGE
    assert buffer.memory.locate(4) == (1, buffer.address())  # the second shard, half empty
    assert buffer.memory.locate(6) == (0, buffer.address() + 4 * PAGE)
    assert buffer.memory.page_at(1, buffer.address() + 2 * PAGE) is None


# -- the host's side -------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["torch", "numpy", "bytes", "bytearray", "memoryview"])
def test_bytes_may_come_from_anything_that_holds_them(mesh, queue, kind):
    data = torch.arange(PAGE, dtype=torch.int32)
    raw = data.numpy().tobytes()
    given = {
        "torch": data.view(8, 8).t().contiguous().t(),
        "numpy": data.numpy().astype(np.int32),
        "bytes": raw,
        "bytearray": bytearray(raw),
        "memoryview": memoryview(raw),
    }[kind]
    buffer = replicated(mesh)
    EnqueueWriteMeshBuffer(queue, buffer, given)
    assert torch.equal(on_device(queue, buffer, 0, 0).view(torch.int32), data)


def test_a_read_fills_what_it_is_given(mesh, queue):
    buffer = sharded(mesh, (2, 4), (1, 1))
    data = numbers(32)
    EnqueueWriteMeshBuffer(queue, buffer, data)
    words, array, grown = torch.zeros(8, dtype=torch.int32), np.zeros(32, np.uint8), bytearray(b"xyz")
    for destination in (words, array, grown):
        assert EnqueueReadMeshBuffer(queue, destination, buffer) is destination
    assert words.numpy().tobytes() == array.tobytes() == bytes(grown) == data.numpy().tobytes()
    with pytest.raises(RuntimeError, match="has 16 bytes, and 32 are needed"):
        EnqueueReadMeshBuffer(queue, torch.zeros(16, dtype=torch.uint8), buffer)
    with pytest.raises(TypeError, match="must be None, a bytearray"):
        EnqueueReadMeshBuffer(queue, bytes(32), buffer)


def test_a_source_that_is_too_short_is_refused(mesh, queue):
    with pytest.raises(RuntimeError, match="src has 10 bytes, and 256 are needed"):
        EnqueueWriteMeshBuffer(queue, replicated(mesh), bytes(10))
    with pytest.raises(TypeError, match="src must be"):
        EnqueueWriteMeshBuffer(queue, replicated(mesh), [1, 2, 3])


def test_a_region_of_one_device_is_written_and_read(mesh, queue):
    buffer, data = replicated(mesh), numbers(4 * PAGE)
    queue.enqueue_write_mesh_buffer(buffer, torch.zeros(4 * PAGE, dtype=torch.uint8))
    region, coord = BufferRegion(PAGE, 2 * PAGE), MeshCoordinate(0, 3)
    queue.enqueue_write_shards(buffer, [ShardDataTransfer(coord).host_data(data).region(region)], True)
    assert torch.equal(on_device(queue, buffer, 0, 3)[PAGE : 3 * PAGE], data[: 2 * PAGE])
    assert not on_device(queue, buffer, 0, 2).any()
    wanted = ShardDataTransfer(coord).region(region)
    queue.enqueue_read_shards([wanted], buffer, True)
    assert torch.equal(wanted.host_data(), data[: 2 * PAGE])


def test_a_rectangle_of_devices_gets_the_same_bytes(mesh, queue):
    buffer, data = replicated(mesh), numbers(4 * PAGE)
    queue.enqueue_write_mesh_buffer(buffer, torch.zeros(4 * PAGE, dtype=torch.uint8))
    box = ttnn.MeshCoordinateRange(MeshCoordinate(0, 1), MeshCoordinate(1, 2))
    queue.enqueue_write_shard_to_sub_grid(buffer, data, box, False)
    assert torch.equal(on_device(queue, buffer, 1, 1), data)
    assert not on_device(queue, buffer, 1, 3).any()
    whole = ttnn.MeshCoordinateRange(mesh.shape)
    queue.enqueue_write_shard_to_sub_grid(buffer, data[:PAGE].flip(0), whole, False, BufferRegion(PAGE, PAGE))
    assert torch.equal(on_device(queue, buffer, 1, 1)[PAGE : 2 * PAGE], data[:PAGE].flip(0))
    cut = sharded(mesh, (2, 4), (1, 1))
    queue.enqueue_write_shard_to_sub_grid(cut, data, box, False)
    assert torch.equal(EnqueueReadMeshBuffer(queue, None, cut), data[:32])


def test_host_shards_go_to_their_devices_and_come_back(mesh, queue):
    buffer = replicated(mesh)
    host = DistributedHostBuffer.create(mesh.shape)
    places = [MeshCoordinate(0, 1), MeshCoordinate(1, 3)]
    for seed, place in enumerate(places):
        host.emplace_shard(place, numbers(4 * PAGE, seed))
    EnqueueWriteMeshBuffer(queue, buffer, bytes(4 * PAGE), False)
    queue.enqueue_write(buffer, host, False)
    back = DistributedHostBuffer.create(mesh.shape)
    queue.enqueue_read(buffer, back, [*places, MeshCoordinate(0, 0)], True)
    assert torch.equal(back.get_shard(places[1]), numbers(4 * PAGE, 1))
    assert not back.get_shard(MeshCoordinate(0, 0)).any()
    assert back.get_shard(MeshCoordinate(1, 0)) is None
    assert back.shard_coords() == [MeshCoordinate(0, 0), *places]


def test_host_shards_may_be_one_tensor_with_the_mesh_in_front(mesh, queue):
    buffer, values = replicated(mesh), torch.randn(2, 4, PAGE)
    queue.enqueue_write(buffer, DistributedHostBuffer.of(values, mesh.shape), True)
    back = DistributedHostBuffer.create(mesh.shape)
    queue.enqueue_read(buffer, back, None, True)
    assert torch.equal(back.stacked()[1].view(torch.float32).view(2, 4, PAGE), values)
    with pytest.raises(RuntimeError, match="each device holds 256 bytes"):
        queue.enqueue_write(buffer, DistributedHostBuffer.of(values[..., :3], mesh.shape), True)
    with pytest.raises(RuntimeError, match="the host buffer is for"):
        queue.enqueue_read(buffer, DistributedHostBuffer.create(MeshShape(1, 2)), None, True)


# -- tensors ---------------------------------------------------------------------------------------


def test_a_tile_is_stored_face_after_face(mesh):
    values = torch.arange(32 * 32, dtype=torch.float32).view(32, 32)
    tensor = ttnn.from_torch(values, dtype=ttnn.float32, layout=ttnn.TILE_LAYOUT, device=mesh)
    (tile,) = TensorBytes(tensor).data.cpu().view(torch.float32).reshape(1, 1024)
    faces = [values[:16, :16], values[:16, 16:], values[16:, :16], values[16:, 16:]]
    assert torch.equal(tile, torch.cat([face.flatten() for face in faces]))


def test_a_block_float_tile_has_its_exponents_first(mesh):
    values = torch.zeros(32, 32)
    values[0, 0], values[0, 1], values[0, 16] = 1.0, -0.5, 8.0
    for dtype, one, half in ((ttnn.bfloat8_b, 0x40, 0xA0), (ttnn.bfloat4_b, 0x4, 0xA)):
        tensor = ttnn.from_torch(values, dtype=dtype, layout=ttnn.TILE_LAYOUT, device=mesh)
        page = TensorBytes(tensor).data.flatten()
        assert page.numel() == ttnn.tile_size(dtype)
        assert (page[0], page[16]) == (127, 130)
        first = [one, half] if dtype is ttnn.bfloat8_b else [one | half << 4]
        assert page[64 : 64 + len(first)].tolist() == first


def test_rows_are_pages_and_shards_cut_them(mesh):
    values = torch.arange(4 * 8, dtype=torch.int32).view(4, 8)
    rows = ttnn.from_torch(values, dtype=ttnn.int32, device=mesh)
    assert torch.equal(TensorBytes(rows).data.cpu().view(torch.int32).reshape(4, 8), values)
    cores = ttnn.CoreRangeSet([ttnn.CoreRange((0, 0), (1, 1))])
    shards = ttnn.ShardSpec(cores, [2, 4], ShardOrientation.ROW_MAJOR)
    config = ttnn.MemoryConfig(ttnn.TensorMemoryLayout.BLOCK_SHARDED, BufferType.L1, shards)
    cut = ttnn.from_torch(values, dtype=ttnn.int32, device=mesh, memory_config=config)
    held = TensorBytes(cut)
    assert held.data.shape == (1, 1, 8, 16)
    assert torch.equal(held.data.cpu().view(torch.int32)[0, 0, 5], values[2, 4:])
    bank, address = held.locate(5)
    assert mesh.allocator().get_logical_core_from_bank_id(bank) == (1, 1)
    assert address == cut.buffer_address()


def test_what_is_written_into_a_tensors_bytes_becomes_its_values(mesh):
    tensor = ttnn.from_torch(torch.ones(2, 40), dtype=ttnn.bfloat16, layout=ttnn.TILE_LAYOUT, device=mesh)
    held = TensorBytes(tensor)
    held.data.view(torch.bfloat16)[..., 0, 0] = 5
    held.store()
    first = ttnn.to_torch(ttnn.get_device_tensors(tensor)[0])
    assert (first[0, 0], first[0, 1], first.shape) == (5, 1, (2, 40))
    assert ttnn.placements(tensor) == (ttnn.Replicate(), ttnn.Replicate())
    held.materialise()[1, 2, 0, :2] = 0
    held.store()
    changed = [ttnn.to_torch(piece)[0, 0].item() for piece in ttnn.get_device_tensors(tensor)]
    assert changed == [5, 5, 5, 5, 5, 5, 0, 5]


def test_bytes_follow_the_tensor_when_its_values_change(mesh):
    tensor = ttnn.from_torch(torch.ones(1, 16), dtype=ttnn.float32, device=mesh)
    held = TensorBytes(tensor)
    assert held.data.view(torch.float32)[0, 0, 0, 0] == 1
    ttnn.copy_host_to_device_tensor(ttnn.from_torch(torch.full((1, 16), 2.0), dtype=ttnn.float32), tensor)
    assert held.data.view(torch.float32)[0, 0, 0, 0] == 2


def test_a_tensor_on_some_devices_has_bytes_there_only(mesh):
    mapper = ttnn.ShardTensorToMesh(mesh, dim=0)
    tensor = ttnn.from_torch(torch.ones(3, 16), dtype=ttnn.float32, device=mesh, mesh_mapper=mapper)
    held = TensorBytes(tensor)
    assert held.data.view(torch.float32)[..., 0, 0].tolist() == [[1, 1, 1, 0], [0, 0, 0, 0]]
    held.data.view(torch.float32)[0, 1] = 7
    held.store()
    assert ttnn.to_torch(tensor, mesh_composer=ttnn.ConcatMeshToTensor(mesh, dim=0))[:, 0].tolist() == [
        1,
        7,
        1,
    ]


def test_a_mesh_buffer_at_a_tensors_address_is_the_tensor(mesh, queue):
    tensor = ttnn.from_torch(torch.zeros(32, 64), dtype=ttnn.bfloat8_b, layout=ttnn.TILE_LAYOUT, device=mesh)
    other = ttnn.from_torch(torch.rand(32, 64), dtype=ttnn.bfloat8_b, layout=ttnn.TILE_LAYOUT, device=mesh)
    page = tensor.buffer_page_size()
    config = ReplicatedBufferConfig(2 * page), DeviceLocalBufferConfig(page), mesh
    target = MeshBuffer.create(*config, tensor.buffer_address())
    source = MeshBuffer.create(*config, other.buffer_address())
    WriteShard(queue, target, on_device(queue, source, 0, 0), MeshCoordinate(1, 1))
    wanted = ttnn.to_torch(ttnn.get_device_tensors(other)[0])
    pieces = [ttnn.to_torch(piece) for piece in ttnn.get_device_tensors(tensor)]
    assert torch.equal(pieces[5], wanted)
    assert not pieces[4].any()


# -- semaphores and circular buffers ---------------------------------------------------------------


def test_a_global_semaphore_is_a_word_at_one_address_on_all_its_cores(mesh):
    cores = ttnn.CoreRangeSet([ttnn.CoreRange((0, 0), (2, 1))])
    one, other = (ttnn.create_global_semaphore(mesh, cores, value) for value in (3, 4))
    assert ttnn.get_global_semaphore_address(one) != ttnn.get_global_semaphore_address(other)
    assert one.buffer.memory.data.view(torch.int32).flatten().tolist() == [3] * 6
    ttnn.reset_global_semaphore_value(one, 2**32 - 1)
    assert one.buffer.memory.data.flatten().tolist() == [255] * 24
    assert (one.value, one.device()) == (2**32 - 1, mesh)
    with pytest.raises(TypeError, match="must be 0 to"):
        ttnn.reset_global_semaphore_value(one, -1)
    with pytest.raises(RuntimeError, match="can only be created for L1 buffer types"):
        ttnn.create_global_semaphore(mesh, cores, 0, BufferType.DRAM)
    with pytest.raises(RuntimeError, match="names no core"):
        ttnn.create_global_semaphore(mesh, ttnn.CoreRangeSet([]), 0)


def test_a_global_circular_buffer_lies_on_its_senders_and_receivers(mesh):
    receivers = ttnn.CoreRangeSet([ttnn.CoreRange((1, 0), (2, 0))])
    made = ttnn.create_global_circular_buffer(mesh, [(ttnn.CoreCoord(0, 0), receivers)], 2048)
    assert isinstance(made, GlobalCircularBuffer)
    assert (made.size(), made.all_cores().num_cores()) == (2048, 3)
    assert made.sender_cores() == ttnn.CoreRangeSet([ttnn.CoreRange((0, 0), (0, 0))])
    assert made.receiver_cores() == receivers
    assert made.buffer_address() != made.config_address()
    assert mesh.allocator().at(BufferType.L1, made.buffer_address()).bytes_per_bank == 2048


@pytest.mark.parametrize(
    ("mapping", "size", "kind", "error", "said"),
    [
        ([], 64, BufferType.L1, RuntimeError, "names no sender"),
        ([((0, 0), None)], 64, BufferType.L1, TypeError, "sender 0 must be a ttnn.CoreCoord"),
        ("cores", 64, BufferType.L1, TypeError, "must be of a list of"),
        ("both", 64, BufferType.L1, RuntimeError, "core 0-0 has two parts"),
        ("fine", 0, BufferType.L1, TypeError, "must be positive"),
        ("fine", 64, BufferType.DRAM, RuntimeError, "can only be created for L1"),
    ],
)
def test_a_global_circular_buffer_refuses_what_cannot_be(mesh, mapping, size, kind, error, said):
    cores = ttnn.CoreRangeSet([ttnn.CoreRange((0, 0), (1, 0))])
    made = {"both": [(ttnn.CoreCoord(0, 0), cores)], "fine": [(ttnn.CoreCoord(5, 0), cores)]}
    given = made.get(mapping, mapping) if isinstance(mapping, str) else mapping
    with pytest.raises(error, match=said):
        ttnn.create_global_circular_buffer(mesh, given, size, kind)


@pytest.mark.parametrize("layout", [ttnn.ROW_MAJOR_LAYOUT, ttnn.TILE_LAYOUT])
def test_what_is_done_to_bytes_is_not_done_to_the_tensor_before_they_are_stored(device, layout):
    values = torch.randn(32, 32)
    tensor = ttnn.from_torch(values, dtype=ttnn.float32, layout=layout, device=device)
    held = TensorBytes(tensor)
    held.data.zero_()
    assert torch.equal(ttnn.to_torch(tensor), values)
    held.store()
    assert not ttnn.to_torch(tensor).any()
    held.data.fill_(1)
    assert not ttnn.to_torch(tensor).any()
