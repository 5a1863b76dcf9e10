"""Laws of mesh buffers: whatever is written comes back, and lies where the rules say, whichever way it is cut."""

from __future__ import annotations

import itertools

import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import mesh_of

import softmesh as ttnn
from softmesh import BufferType, MeshCoordinate, ShardDistributionStrategy, ShardOrientation
from softmesh.metal import (
    BufferDistributionSpec,
    BufferShardingArgs,
    DeviceLocalBufferConfig,
    EnqueueReadMeshBuffer,
    EnqueueWriteMeshBuffer,
    MeshBuffer,
    ReadShard,
    ReplicatedBufferConfig,
    Shape2D,
    ShardedBufferConfig,
    TensorBytes,
    WriteShard,
)
from softmesh.placement.process_blocks import Block
from softmesh.runtime.buffers.mesh_memory import MeshMemory
from softmesh.runtime.buffers.paged_memory import Interleaved, PageLayout
from softmesh.runtime.buffers.sharded_layout import ShardedLayout
from softmesh.tensor.dtype import FACTS

LAWS = settings(max_examples=40, deadline=None)
MESHES = [(1, 1), (1, 3), (2, 2), (2, 3)]
ORIENTATIONS = st.sampled_from([ShardOrientation.ROW_MAJOR, ShardOrientation.COL_MAJOR])


def numbers(size: int, seed: int) -> torch.Tensor:
    return torch.randint(0, 256, (size,), dtype=torch.uint8, generator=torch.Generator().manual_seed(seed))


@st.composite
def shardings(draw: st.DrawFn) -> tuple[ttnn.MeshDevice, ShardedBufferConfig]:
    """Any sharded config that fits its mesh."""
    mesh = mesh_of(draw(st.sampled_from(MESHES)))
    rows, columns = mesh.shape
    orientation = draw(ORIENTATIONS)
    copied_down, copied_across = draw(st.booleans()), draw(st.booleans())
    room = rows * columns
    if copied_down != copied_across:
        room = rows if orientation is ShardOrientation.COL_MAJOR else columns
    down = 1 if copied_down else draw(st.integers(1, room))
    across = 1 if copied_across else draw(st.integers(1, room // down))
    height, width, datum = draw(st.integers(1, 3)), draw(st.integers(1, 3)), draw(st.integers(1, 5))
    whole = Shape2D(height * down, width * across)
    shard = Shape2D(0 if copied_down else height, 0 if copied_across else width)
    return mesh, ShardedBufferConfig(whole.height * whole.width * datum, whole, shard, orientation)


def holders(mesh: ttnn.MeshDevice, config: ShardedBufferConfig, shard: int) -> list[MeshCoordinate]:
    """The devices of one shard, by the rules as they are told."""
    rows, columns = mesh.shape
    by_column = config.shard_orientation is ShardOrientation.COL_MAJOR
    match sum(config.replicated_dims()), by_column:
        case 2, _:
            return list(mesh.shape.coordinates())
        case 1, True:
            return [MeshCoordinate(shard, column) for column in range(columns)]
        case 1, False:
            return [MeshCoordinate(row, shard) for row in range(rows)]
        case _, True:
            return [MeshCoordinate(shard % rows, shard // rows)]
    return [MeshCoordinate(shard // columns, shard % columns)]


@LAWS
@given(shardings(), st.integers(0, 2**31))
def test_any_sharded_config_splits_by_the_rules_and_round_trips(made, seed):
    mesh, config = made
    height, width = config.physical_shard_shape()
    datum, (down, across) = config.compute_datum_size_bytes(), config.shard_grid()
    buffer = MeshBuffer.create(config, DeviceLocalBufferConfig(height * width * datum), mesh)
    queue = mesh.mesh_command_queue()
    data = numbers(config.global_size, seed)
    EnqueueWriteMeshBuffer(queue, buffer, data)
    cube = data.view(*config.global_buffer_shape, datum)
    for shard in range(down * across):
        y, x = shard // across * height, shard % across * width
        block = cube[y : y + height, x : x + width].reshape(-1)
        for coord in holders(mesh, config, shard):
            assert torch.equal(ReadShard(queue, None, buffer, coord), block)
    if not any(config.replicated_dims()):
        assert torch.equal(EnqueueReadMeshBuffer(queue, None, buffer), data)


@LAWS
@given(shardings(), st.data())
def test_processes_that_share_a_mesh_hold_together_what_one_would(made, data):
    mesh, config = made
    rows, columns = mesh.shape
    hosts = data.draw(st.sampled_from([(1, 1), (rows, 1), (1, columns), (rows, columns)]))
    size = config.global_size // config.shard_grid().height // config.shard_grid().width
    layout = PageLayout(BufferType.DRAM, size, size, 1, Interleaved(1, 1))
    host, back = numbers(config.global_size, 0), torch.zeros(config.global_size, dtype=torch.uint8)
    alone = MeshMemory(layout, 0, (rows, columns), torch.device("cpu"))
    ShardedLayout(config, rows, columns).scatter(host, alone)
    for at in itertools.product(*map(range, hosts)):
        block = Block((rows, columns), hosts, at)
        part, own = (
            ShardedLayout(config, rows, columns, block),
            MeshMemory(layout, 0, block.shape, torch.device("cpu")),
        )
        part.scatter(host, own)
        slices = tuple(slice(a, a + n) for a, n in zip(block.origin, block.shape, strict=True))
        assert torch.equal(own.materialise(), alone.materialise()[slices])
        if not any(config.replicated_dims()):
            part.gather(back, own.materialise())
    if not any(config.replicated_dims()):
        assert torch.equal(back, host)


@LAWS
@given(shardings(), st.data())
def test_a_write_to_one_device_changes_that_device_only(made, data):
    mesh, config = made
    height, width = config.physical_shard_shape()
    size = height * width * config.compute_datum_size_bytes()
    buffer = MeshBuffer.create(config, DeviceLocalBufferConfig(size), mesh)
    queue = mesh.mesh_command_queue()
    EnqueueWriteMeshBuffer(queue, buffer, numbers(config.global_size, 0))
    before = {coord: ReadShard(queue, None, buffer, coord) for coord in mesh.shape.coordinates()}
    chosen = data.draw(st.sampled_from(sorted(before, key=tuple)))
    before[chosen] = numbers(size, 1)
    WriteShard(queue, buffer, before[chosen], chosen)
    for coord, held in before.items():
        assert torch.equal(ReadShard(queue, None, buffer, coord), held)


STRATEGIES = [ShardDistributionStrategy.ROUND_ROBIN_1D, ShardDistributionStrategy.CONTIGUOUS_1D]


@st.composite
def page_configs(draw: st.DrawFn) -> tuple[int, DeviceLocalBufferConfig]:
    """How many pages a device holds, and how they lie in its banks."""
    page, kind = draw(st.integers(1, 80)), draw(st.sampled_from([BufferType.DRAM, BufferType.L1]))
    if draw(st.booleans()):
        return draw(st.integers(1, 200)), DeviceLocalBufferConfig(page, kind)
    rank = draw(st.integers(1, 3))
    shape = tuple(draw(st.lists(st.integers(1, 5), min_size=rank, max_size=rank)))
    shard = tuple(draw(st.integers(1, n)) for n in shape)
    cores = tuple(ttnn.CoreCoord(x, 0) for x in range(draw(st.integers(1, 6))))
    spec = BufferDistributionSpec(shape, shard, cores, draw(st.sampled_from(STRATEGIES)))
    pages = 1
    for n in shape:
        pages *= n
    return pages, DeviceLocalBufferConfig(page, kind, BufferShardingArgs(spec))


@LAWS
@given(page_configs())
def test_every_page_has_a_place_of_its_own_inside_the_allocation(made):
    pages, local = made
    mesh = mesh_of((1, 1))
    buffer = MeshBuffer.create(ReplicatedBufferConfig(pages * local.page_size), local, mesh)
    memory = buffer.memory
    places = [memory.locate(page) for page in range(pages)]
    assert len(set(places)) == pages
    room = buffer.get_reference_buffer().aligned_size_per_bank()
    for page, (bank, address) in enumerate(places):
        assert 0 <= bank < mesh.allocator().get_num_banks(local.buffer_type)
        assert buffer.address() <= address <= buffer.address() + room - memory.aligned_page_size
        assert (address - buffer.address()) % mesh.allocator().get_alignment(local.buffer_type) == 0
        assert memory.page_at(bank, address) == (page, 0)
        assert memory.page_at(bank, address + local.page_size - 1) == (page, local.page_size - 1)


@LAWS
@given(page_configs(), st.integers(1, 64), st.integers(0, 2**31))
def test_a_view_with_any_pages_reads_what_lies_at_each_address(made, page, seed):
    pages, local = made
    mesh = mesh_of((1, 1))
    queue = mesh.mesh_command_queue()
    buffer = MeshBuffer.create(ReplicatedBufferConfig(pages * local.page_size), local, mesh)
    data = numbers(pages * local.page_size, seed)
    EnqueueWriteMeshBuffer(queue, buffer, data)
    alignment = mesh.allocator().get_alignment(local.buffer_type)
    per_bank = buffer.get_reference_buffer().aligned_size_per_bank()
    stride = -(-page // alignment) * alignment
    count = per_bank // stride  # as many as one bank has room for
    if not count:
        return
    config = DeviceLocalBufferConfig(page, local.buffer_type)
    view = MeshBuffer.create(ReplicatedBufferConfig(count * page), config, mesh, buffer.address())
    seen = ReadShard(queue, None, view, MeshCoordinate(0, 0)).view(count, page)
    for number in range(count):
        bank, address = view.memory.locate(number)
        for offset in {0, page // 2, page - 1}:
            place = buffer.memory.page_at(bank, address + offset)
            expected = 0 if place is None else data[place[0] * local.page_size + place[1]]
            assert seen[number, offset] == expected


DTYPES = [dtype for dtype in FACTS if dtype is not ttnn.fp8_e4m3]


@LAWS
@given(st.sampled_from(DTYPES), st.booleans(), st.lists(st.integers(1, 40), max_size=2), st.data())
def test_a_tensors_bytes_are_its_values(dtype, tiled, shape, data):
    mesh = mesh_of((2, 2))
    layout = ttnn.TILE_LAYOUT if tiled or FACTS[dtype].is_block else ttnn.ROW_MAJOR_LAYOUT
    values = torch.randint(0, 100, (2, *shape)).float()
    mapper = ttnn.ShardTensorToMesh(mesh, dim=0) if data.draw(st.booleans()) else None
    tensor = ttnn.from_torch(values, dtype=dtype, layout=layout, device=mesh, mesh_mapper=mapper)
    copy = ttnn.from_torch(torch.zeros_like(values), dtype=dtype, layout=layout, device=mesh, mesh_mapper=mapper)
    source, target = TensorBytes(tensor), TensorBytes(copy)
    target.data.copy_(source.data)
    target.store()
    pieces = zip(ttnn.get_device_tensors(tensor), ttnn.get_device_tensors(copy), strict=True)
    assert all(torch.equal(ttnn.to_torch(one), ttnn.to_torch(other)) for one, other in pieces)
    assert ttnn.placements(copy) == ttnn.placements(tensor)
