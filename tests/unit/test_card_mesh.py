"""The five functions over cards: opening, buffers, workloads, all_reduce and all_gather."""

from __future__ import annotations

import threading

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import softmesh as ttnn
from softmesh.collectives import mode_collectives
from softmesh.drivers import ProgramSpec, byte_rack, virtual_rack
from softmesh.errors import ArgumentError, ArgumentValueError, MeshError
from softmesh.metal import all_gather, all_reduce, create_mesh_buffer, enqueue_mesh_workload, open_mesh_device
from softmesh.metal.card_mesh import CardsError

RACKS = {"bytearray": byte_rack, "virtual": virtual_rack}
DTYPES = [ttnn.bfloat16, ttnn.bfloat4_b, ttnn.bfloat8_b, ttnn.float32, ttnn.int32, ttnn.uint8, ttnn.uint16]


@pytest.fixture(scope="module", params=sorted(RACKS))
def mesh(request):
    with open_mesh_device((2, 2), drivers=RACKS[request.param](4)) as opened:
        yield opened


@pytest.fixture(scope="module")
def bigger():
    with open_mesh_device((2, 4)) as opened:
        yield opened


def coordinates(mesh):
    return [card.coordinate for card in mesh.cards]


def random_values(shape, dtype, seed=0):
    generator = torch.Generator().manual_seed(seed)
    if dtype in (ttnn.int32, ttnn.uint8, ttnn.uint16):
        return torch.randint(0, 250, shape, generator=generator)
    return torch.randn(shape, generator=generator)


def everywhere(mesh):
    return ttnn.MeshCoordinateRange(mesh.shape)


def test_a_mesh_has_cards_0_to_n_row_major_unless_told_otherwise(mesh):
    assert mesh.get_device_ids() == [0, 1, 2, 3]
    assert list(map(tuple, coordinates(mesh))) == [(0, 0), (0, 1), (1, 0), (1, 1)]
    with open_mesh_device(ttnn.MeshShape(1, 2), device_ids=[5, 2]) as other:
        assert other.get_device_ids() == [5, 2]


@pytest.mark.parametrize(
    ("ids", "message"),
    [
        ([1, 1], "names card 1 twice"),
        ([0], "names 1 cards, and a mesh of"),
        ([0, -1], "must not be negative"),
        ([0, "b"], "must be an int"),
    ],
)
def test_ids_that_cannot_be_are_refused(ids, message):
    with pytest.raises((MeshError, ArgumentError), match=message):
        open_mesh_device((1, 2), device_ids=ids)


def test_shapes_that_cannot_be_are_refused():
    with pytest.raises(MeshError, match="no cards"):
        open_mesh_device((2, 0))
    with pytest.raises(ArgumentError, match="shape must be a list of ints"):
        open_mesh_device("2x2")
    with pytest.raises(ArgumentError, match=r"no argument 'device_id'\. Did you mean 'device_ids'"):
        open_mesh_device((1, 1), device_id=[0])


def test_a_card_has_one_owner_at_a_time():
    rack = virtual_rack(2)
    with open_mesh_device((1, 2), drivers=rack), pytest.raises(MeshError, match="card 0 is open already"):
        open_mesh_device((1, 2), drivers=rack)
    with open_mesh_device((1, 2), drivers=rack) as mesh:
        assert mesh.is_open
    assert not mesh.is_open
    with pytest.raises(MeshError, match="the mesh is closed"):
        create_mesh_buffer(mesh, global_shape=(32, 32))


def test_a_buffer_has_one_address_on_all_cards_and_lies_in_the_banks_by_pages(mesh):
    buffer = create_mesh_buffer(mesh, "sharded", (640, 64), (320, 32), ttnn.bfloat16)
    handles = list(buffer.memory.handles.values())
    assert {handle.address for handle in handles} == {buffer.address}
    assert (buffer.num_pages, buffer.page_size) == (10, 2048)
    assert handles[0].locate(9) == (1, buffer.address + 2048)
    other = create_mesh_buffer(mesh, "replicated", (32, 32))
    assert other.address == buffer.address + 2 * 2048
    buffer.deallocate()
    buffer.deallocate()
    assert not buffer.is_allocated
    with pytest.raises(MeshError, match="was deallocated"):
        buffer.read()
    assert create_mesh_buffer(mesh, "replicated", (32, 32)).address < other.address


def test_a_replicated_buffer_is_whole_on_each_card(mesh):
    values = random_values((3, 5, 70), ttnn.float32)
    buffer = create_mesh_buffer(mesh, "replicated", (3, 5, 70), dtype=ttnn.float32)
    buffer.write(values)
    for coordinate in coordinates(mesh):
        assert torch.equal(buffer.read_shard(coordinate), values)
    assert torch.equal(buffer.read(), values)


def test_copies_that_differ_have_no_one_value(mesh):
    buffer = create_mesh_buffer(mesh, "replicated", (32, 32))
    buffer.write(torch.ones(32, 32))
    buffer.write_shard(ttnn.MeshCoordinate(1, 0), torch.zeros(32, 32))
    with pytest.raises(MeshError, match=r"card \(0, 0\).* and card \(1, 0\).* hold different values"):
        buffer.read()


@pytest.mark.parametrize(
    ("shard", "held"),
    [
        ((32, 32), {(0, 0): (0, 0), (0, 1): (0, 1), (1, 0): (1, 0), (1, 1): (1, 1)}),
        ((64, 32), {(0, 0): (0, 0), (0, 1): (0, 1)}),
        ((0, 32), {(0, 0): (0, 0), (0, 1): (0, 1), (1, 0): (0, 0), (1, 1): (0, 1)}),
        ((32, 0), {(0, 0): (0, 0), (0, 1): (1, 0), (1, 0): (0, 0), (1, 1): (1, 0)}),
        ((0, 0), dict.fromkeys([(0, 0), (0, 1), (1, 0), (1, 1)], (0, 0))),
    ],
)
def test_shards_are_dealt_row_major_and_a_zero_replicates(mesh, shard, held):
    values = random_values((64, 64), ttnn.float32)
    buffer = create_mesh_buffer(mesh, "sharded", (64, 64), shard, ttnn.float32)
    buffer.write(values)
    height, width = shard[0] or 64, shard[1] or 64
    assert {tuple(card.coordinate) for card in buffer.holders} == held.keys()
    for place, (row, column) in held.items():
        expected = values[row * height : (row + 1) * height, column * width : (column + 1) * width]
        assert torch.equal(buffer.read_shard(ttnn.MeshCoordinate(place)), expected)
    assert torch.equal(buffer.read(), values)


@given(
    st.tuples(st.integers(1, 70), st.integers(1, 70)),
    st.sampled_from([(1, 1), (2, 4), (1, 8), (8, 1), (2, 1), (4, 2), (1, 3), (0, 4), (3, 0), (0, 0)]),
    st.sampled_from([*((dtype, ttnn.TILE_LAYOUT) for dtype in DTYPES), (ttnn.float32, ttnn.ROW_MAJOR_LAYOUT)]),
)
@settings(max_examples=30, deadline=None)
def test_any_sharded_buffer_round_trips(bigger, shard, grid, kind):
    dtype, layout = kind
    whole = tuple(n * max(count, 1) for n, count in zip(shard, grid, strict=True))
    cut = tuple(n if count else 0 for n, count in zip(shard, grid, strict=True))
    buffer = create_mesh_buffer(bigger, "sharded", whole, cut, dtype, tensor_layout=layout)
    values = random_values(whole, dtype)
    buffer.write(values)
    once = buffer.read()
    for card in buffer.holders:
        held = buffer.read_shard(card.coordinate)
        alone = ttnn.from_torch(values[buffer.part_of(card)], dtype=dtype, layout=layout)
        assert torch.equal(held, ttnn.to_torch(alone))
        assert torch.equal(held, once[buffer.part_of(card)])
    buffer.write(once)
    assert torch.equal(buffer.read(), once)
    buffer.deallocate()


@pytest.mark.parametrize(
    ("layout", "whole", "shard", "message"),
    [
        ("sharded", (64, 64), (48, 32), "Global buffer shape must be aligned with the shard shape"),
        ("sharded", (320, 32), (64, 32), "The sharded tensor does not fit on the Mesh"),
        ("sharded", (32, 96), (0, 32), "The sharded tensor does not fit on the Mesh"),
        ("sharded", (64, 64), None, "a global_shape and a shard_shape"),
        ("sharded", (2, 64, 64), (1, 64, 64), "a global_shape and a shard_shape"),
        ("replicated", (64, 64), (32, 32), "leave out shard_shape"),
        ("replicate", (64, 64), None, "must be 'replicated' or 'sharded'"),
        ("replicated", (), None, "global_shape must be positive"),
        ("replicated", (0, 4), None, "global_shape must be positive"),
    ],
)
def test_layouts_that_cannot_be_are_refused(mesh, layout, whole, shard, message):
    with pytest.raises((MeshError, ArgumentError, ArgumentValueError), match=message):
        create_mesh_buffer(mesh, layout, whole, shard)


def test_values_of_another_shape_are_refused(mesh):
    buffer = create_mesh_buffer(mesh, "replicated", (32, 32))
    with pytest.raises(ArgumentValueError, match=r"values have shape \(32, 31\), and the buffer \(32, 32\)"):
        buffer.write(torch.zeros(32, 31))


def test_memory_that_does_not_exist_is_refused(mesh):
    with pytest.raises(ArgumentError, match="'dram' and 'l1'"):
        create_mesh_buffer(mesh, "replicated", (32, 32), mem="sram")


def scaled(core):
    address, pages, factor = core.args
    held = core.pages(address, 4096)
    for page in range(core.index, pages, core.count):
        held[page] = (torch.frombuffer(held[page], dtype=torch.float32) * factor).numpy().tobytes()


def test_a_workload_runs_each_program_on_its_range_only(mesh):
    values = random_values((64, 64), ttnn.float32)
    buffer = create_mesh_buffer(mesh, "sharded", (64, 64), (32, 32), ttnn.float32)
    buffer.write(values)
    program = ProgramSpec({"compute": scaled}, cores=2)
    top = ttnn.MeshCoordinateRange(ttnn.MeshCoordinate(0, 0), ttnn.MeshCoordinate(0, 1))
    corner = ttnn.MeshCoordinate(1, 1)
    work = {top: (program, [buffer.address, 1, 2]), corner: (program, [buffer.address, 1, 3])}
    enqueue_mesh_workload(mesh, work)
    expected = values * torch.tensor([[2.0, 2.0], [1.0, 3.0]]).repeat_interleave(32, 0).repeat_interleave(32, 1)
    assert torch.equal(buffer.read(), expected)


def test_cards_work_at_the_same_time():
    """Kernels of all cards meet: none of them can end before all have begun."""
    meeting = threading.Barrier(4)

    def meet(core):
        meeting.wait(timeout=60)

    with open_mesh_device((2, 2), drivers=byte_rack(4)) as mesh:
        enqueue_mesh_workload(mesh, {everywhere(mesh): ProgramSpec({"reader": meet}, cores=1)})


def test_a_workload_that_does_not_block_is_waited_for_later():
    gate = threading.Event()

    def wait(core):
        assert gate.wait(timeout=60)

    with open_mesh_device((1, 2), drivers=byte_rack(2)) as mesh:
        program = ProgramSpec({"reader": wait}, cores=1)
        work = enqueue_mesh_workload(mesh, {everywhere(mesh): program}, blocking=False)
        assert not work.done()
        gate.set()
        work.wait()
        assert work.done()
        mesh.synchronize()


def test_a_program_is_compiled_once_for_each_card(monkeypatch):
    with open_mesh_device((1, 2), drivers=byte_rack(2)) as mesh:
        compiled = []
        for card in mesh.cards:
            real = card.driver.compile
            monkeypatch.setattr(
                card.driver, "compile", lambda spec, real=real: compiled.append(spec.name) or real(spec)
            )
        program = ProgramSpec({"reader": lambda core: None}, cores=1, name="idle")
        for _ in range(3):
            enqueue_mesh_workload(mesh, {everywhere(mesh): program})
        assert compiled == ["idle", "idle"]


def test_workloads_that_cannot_be_are_refused(mesh):
    program = ProgramSpec({"reader": lambda core: None}, cores=1)
    overlapping = {everywhere(mesh): program, ttnn.MeshCoordinate(0, 1): program}
    with pytest.raises(MeshError, match=r"overlaps with the previously added range"):
        enqueue_mesh_workload(mesh, overlapping)
    with pytest.raises(MeshError, match="does not lie in a mesh"):
        enqueue_mesh_workload(mesh, {ttnn.MeshCoordinate(2, 0): program})
    with pytest.raises(MeshError, match="has no programs"):
        enqueue_mesh_workload(mesh, {})
    with pytest.raises(ArgumentError, match="a workload is a dict"):
        enqueue_mesh_workload(mesh, [program])
    with pytest.raises(ArgumentError, match="a program is a ProgramSpec"):
        enqueue_mesh_workload(mesh, {everywhere(mesh): lambda core: None})
    with pytest.raises(CardsError, match="cores=500: this card has 130 cores"):
        enqueue_mesh_workload(mesh, {everywhere(mesh): ProgramSpec({"reader": scaled}, cores=500)})


def in_rank_order(shards, dtype):
    total = shards[0].float() if dtype not in (ttnn.int32, ttnn.uint8, ttnn.uint16) else shards[0].to(torch.int64)
    for shard in shards[1:]:
        total = total + shard.to(total.dtype)
    return total


@pytest.mark.parametrize("dtype", DTYPES)
def test_all_reduce_adds_in_rank_order_and_both_modes_agree_to_the_bit(mesh, dtype):
    sums = {}
    for mode in ("host", "fabric"):
        buffer = create_mesh_buffer(mesh, "sharded", (80, 100), (40, 50), dtype)
        buffer.write(random_values((80, 100), dtype))
        shards = [buffer.read_shard(coordinate) for coordinate in coordinates(mesh)]
        result = all_reduce(buffer, mode=mode)
        assert (result.layout, result.global_shape, result.address) == (
            "replicated",
            (40, 50),
            buffer.address,
        )
        sums[mode] = result.read()
        if dtype in (ttnn.bfloat16, ttnn.float32):
            assert torch.equal(sums[mode], in_rank_order(shards, dtype).to(shards[0].dtype))
    assert torch.equal(sums["host"], sums["fabric"])


def test_all_reduce_of_cards_is_that_of_a_tensor_over_the_host(mesh):
    values = random_values((64, 64), ttnn.bfloat16)
    buffer = create_mesh_buffer(mesh, "sharded", (64, 64), (32, 32))
    buffer.write(values)
    with ttnn.create_mesh_device(ttnn.MeshShape(2, 2)) as virtual:
        mapper = ttnn.ShardTensor2dMesh(virtual, (2, 2), dims=(0, 1))
        tensor = ttnn.from_torch(
            values, dtype=ttnn.bfloat16, layout=ttnn.TILE_LAYOUT, device=virtual, mesh_mapper=mapper
        )
        whole = all_reduce(tensor, mode="host")
        assert torch.equal(ttnn.to_torch(ttnn.get_device_tensors(whole)[0]), all_reduce(buffer).read())
        gathered = all_gather(tensor, mode="host", dim=1)
        assert gathered.shape == mode_collectives.all_gather(tensor, 1, "host").shape


def test_a_replicated_buffer_takes_part_once_for_each_card(mesh):
    buffer = create_mesh_buffer(mesh, "replicated", (32, 32), dtype=ttnn.float32)
    for rank, coordinate in enumerate(coordinates(mesh)):
        buffer.write_shard(coordinate, torch.full((32, 32), 10.0**rank))
    assert set(all_reduce(buffer, "fabric").read().flatten().tolist()) == {1111.0}


@pytest.mark.parametrize("mode", ["fabric", "host"])
@pytest.mark.parametrize(("shard", "expected"), [((32, 32), 111.0), ((0, 32), 22.0)])
def test_cards_without_a_shard_add_nothing_and_get_the_sum(mode, shard, expected):
    """Three shards on four cards; or two, each on both rows."""
    columns = 3 if shard[0] else 2
    with open_mesh_device((2, 2), drivers=byte_rack(4)) as mesh:
        buffer = create_mesh_buffer(mesh, "sharded", (32, 32 * columns), shard, ttnn.float32)
        buffer.write(torch.tensor([1.0, 10.0, 100.0])[:columns].repeat_interleave(32).expand(32, -1))
        summed = all_reduce(buffer, mode)
        assert len(summed.holders) == 4
        assert set(summed.read().flatten().tolist()) == {expected}


@pytest.mark.parametrize("mode", ["fabric", "host"])
@pytest.mark.parametrize("dim", [0, 1, -1])
def test_all_gather_lays_shards_side_by_side_in_rank_order(mesh, mode, dim):
    values = random_values((128, 128), ttnn.bfloat16)
    buffer = create_mesh_buffer(mesh, "sharded", (128, 128), (64, 64))
    buffer.write(values)
    shards = [buffer.read_shard(coordinate) for coordinate in coordinates(mesh)]
    whole = all_gather(buffer, mode=mode, dim=dim)
    assert torch.equal(whole.read(), torch.cat(shards, dim))
    assert torch.equal(buffer.read(), values.to(torch.bfloat16))


def test_all_gather_over_the_fabric_keeps_padding_that_lies_across(mesh):
    values = random_values((2, 40, 32), ttnn.bfloat8_b)
    buffer = create_mesh_buffer(mesh, "replicated", (2, 40, 32), dtype=ttnn.bfloat8_b)
    buffer.write(values)
    for dim in (0, 2):
        found = all_gather(buffer, mode="fabric", dim=dim).read()
        assert torch.equal(found, torch.cat([buffer.read()] * 4, dim))
    with pytest.raises(MeshError, match="meet inside one along dim 1"):
        all_gather(buffer, mode="fabric", dim=1)
    assert list(all_gather(buffer, mode="host", dim=1).shard_shape) == [2, 160, 32]


def test_collectives_work_on_rows_and_in_l1(mesh):
    values = random_values((8, 64), ttnn.float32)
    for options in ({"tensor_layout": ttnn.ROW_MAJOR_LAYOUT}, {"mem": "l1"}):
        buffer = create_mesh_buffer(mesh, "replicated", (8, 64), dtype=ttnn.float32, **options)
        buffer.write(values)
        assert torch.equal(all_reduce(buffer, "fabric").read(), values + values + values + values)
    rows = create_mesh_buffer(mesh, "replicated", (8, 64), tensor_layout=ttnn.ROW_MAJOR_LAYOUT)
    with pytest.raises(MeshError, match="meet inside one along dim 1"):
        all_gather(rows, mode="fabric", dim=1)
    assert all_gather(rows, mode="fabric", dim=0).global_shape == (32, 64)


def test_a_ring_around_the_grid_serves_where_ranks_have_no_ring():
    """Cabled (0,0)-(0,1)-(1,1)-(1,0): neighbours on the grid, not in rank order."""
    values = random_values((64, 64), ttnn.float32)
    with open_mesh_device((2, 2), [0, 1, 3, 2], drivers=byte_rack(4)) as mesh:
        buffer = create_mesh_buffer(mesh, "sharded", (64, 64), (32, 32), ttnn.float32)
        buffer.write(values)
        shards = [buffer.read_shard(coordinate) for coordinate in coordinates(mesh)]
        assert torch.equal(all_gather(buffer, "fabric", dim=0).read(), torch.cat(shards))


def test_a_single_card_reduces_and_gathers_to_itself():
    with open_mesh_device((1, 1)) as mesh:
        buffer = create_mesh_buffer(mesh, "replicated", (32, 32), dtype=ttnn.float32)
        buffer.write(torch.ones(32, 32))
        for mode in ("host", "fabric"):
            assert torch.equal(all_gather(buffer, mode, 0).read(), torch.ones(32, 32))
            assert torch.equal(all_reduce(buffer, mode).read(), torch.ones(32, 32))


def test_modes_and_dims_that_cannot_be_are_refused(mesh):
    buffer = create_mesh_buffer(mesh, "replicated", (32, 32))
    with pytest.raises(ArgumentError, match="mode must be 'host' or 'fabric', got 'nccl'"):
        all_reduce(buffer, mode="nccl")
    with pytest.raises(MeshError, match="dim=2 must lie between -2 and 1"):
        all_gather(buffer, dim=2)
    with pytest.raises(ArgumentError, match=r"a buffer of softmesh\.metal\.create"):
        all_reduce(torch.zeros(3))


def test_an_own_program_adds_where_one_is_given(mesh):
    buffer = create_mesh_buffer(mesh, "replicated", (32, 32), dtype=ttnn.float32)
    buffer.write(torch.full((32, 32), 3.0))

    def largest(core):
        own, scratch, out, rank, ranks, pages, page_size, banks, *_ = core.args
        mine, others, target = (core.pages(a, page_size, banks=banks) for a in (own, scratch, out))
        for page in range(core.index, pages, core.count):
            shards = [mine[page] if r == rank else others[r * pages + page] for r in range(ranks)]
            values = [torch.frombuffer(shard, dtype=torch.float32) for shard in shards]
            target[page] = torch.stack(values).amax(0).numpy().tobytes()

    buffer.write_shard(ttnn.MeshCoordinate(1, 0), torch.full((32, 32), 8.0))
    program = ProgramSpec({"compute": largest}, cores=1, name="largest")
    assert set(all_reduce(buffer, "fabric", program=program).read().flatten().tolist()) == {8.0}
