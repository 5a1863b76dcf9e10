"""The experimental families: every way of calling them, against loops over devices."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

import softmesh as ttnn
from softmesh.collectives import (
    async_collectives,
    exchange_collectives,
    fused_collectives,
    ring_gathers,
    scatter_buffers,
)
from softmesh.collectives.argument_checks import ReduceType
from softmesh.collectives.published_names import COMPOSITES
from softmesh.collectives.semaphores import (
    create_global_semaphore,
    get_global_semaphore_address,
    reset_global_semaphore_value,
)
from softmesh.dispatch.operation import OPERATIONS

TILE, ROWS = ttnn.TILE_LAYOUT, ttnn.ROW_MAJOR_LAYOUT
CORES = ttnn.CoreRangeSet([ttnn.CoreRange(ttnn.CoreCoord(0, 0), ttnn.CoreCoord(3, 3))])


@pytest.fixture
def mesh(idle_machine: None) -> Iterator[ttnn.MeshDevice]:
    ttnn.set_fabric_config(ttnn.FabricConfig.FABRIC_1D)
    with ttnn.create_mesh_device(ttnn.MeshShape(2, 4)) as opened:
        yield opened


@pytest.fixture
def line(idle_machine: None) -> Iterator[ttnn.MeshDevice]:
    ttnn.set_fabric_config(ttnn.FabricConfig.FABRIC_1D_RING)
    with ttnn.create_mesh_device(ttnn.MeshShape(1, 8)) as opened:
        yield opened


def semaphores(mesh: ttnn.MeshDevice, count: int = 2) -> list[Any]:
    return [create_global_semaphore(mesh, CORES, 0) for _ in range(count)]


def others(given: Any) -> Any:
    """As many more, for what else a call counts."""
    if not isinstance(given, list):
        return create_global_semaphore(given.device(), CORES, 0)
    return [others(one) for one in given]


def numbers(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape)))


def put(
    pieces: torch.Tensor,
    mesh: ttnn.MeshDevice,
    layout: ttnn.Layout = TILE,
    dtype: ttnn.DataType = ttnn.float32,
) -> ttnn.Tensor:
    """pieces (devices, *local)."""
    flat = pieces.reshape(-1, *pieces.shape[2:])
    mapper = ttnn.ShardTensorToMesh(mesh, dim=0)
    return ttnn.from_torch(flat, dtype=dtype, layout=layout, device=mesh, mesh_mapper=mapper)


def shards(tensor: ttnn.Tensor) -> list[torch.Tensor]:
    return [ttnn.to_torch(shard) for shard in ttnn.get_device_tensors(tensor)]


def row_of(device: int) -> list[int]:
    return [device // 4 * 4 + column for column in range(4)]


def joined(x: torch.Tensor, dim: int, *, backwards: bool = False) -> list[torch.Tensor]:
    """What gathering along the rows of a 2x4 mesh gives each device."""
    step = -1 if backwards else 1
    return [torch.cat([x[d] for d in row_of(device)[::step]], dim) for device in range(8)]


def summed(x: torch.Tensor) -> list[torch.Tensor]:
    return [sum(x[d] for d in row_of(device)) for device in range(8)]  # type: ignore[misc]


def assert_shards(tensor: ttnn.Tensor, wanted: list[torch.Tensor]) -> None:
    for got, one in zip(shards(tensor), wanted, strict=True):
        torch.testing.assert_close(got, one)


# -- all_gather ------------------------------------------------------------------------------------

GATHER_CALLS: dict[str, Callable[[Any, ttnn.Tensor, ttnn.MeshDevice, list[Any]], ttnn.Tensor]] = {
    "b, by name": lambda op, x, mesh, s: op(
        x, persistent_output_buffer=None, dim=3, multi_device_global_semaphore=s, cluster_axis=1
    ),
    "b, by position": lambda op, x, mesh, s: op(x, None, 3, s, cluster_axis=1, num_links=1),
    "b, without the buffer": lambda op, x, mesh, s: op(
        x, dim=3, multi_device_global_semaphore=s, cluster_axis=1, topology=ttnn.Topology.Linear
    ),
    "c, by position": lambda op, x, mesh, s: op(x, 3, 1, mesh, ttnn.Topology.Linear, s),
    "c, by name": lambda op, x, mesh, s: op(
        x,
        3,
        cluster_axis=1,
        mesh_device=mesh,
        topology=ttnn.Topology.Linear,
        multi_device_global_semaphore=s,
        barrier_semaphore=semaphores(mesh, 1)[0],
        num_links=1,
        memory_config=ttnn.L1_MEMORY_CONFIG,
        subdevice_id=ttnn.SubDeviceId(0),
    ),
}


@pytest.mark.parametrize("call", GATHER_CALLS.values(), ids=GATHER_CALLS)
def test_every_form_of_all_gather_async_gathers_along_the_axis(mesh, call):
    x = numbers(8, 1, 1, 32, 32)
    result = call(async_collectives.all_gather_async, put(x, mesh), mesh, semaphores(mesh))
    assert_shards(result, joined(x, 3))
    assert call(async_collectives.all_gather_async_reversed, put(x, mesh), mesh, semaphores(mesh)).shape == [
        1,
        1,
        32,
        128,
    ]


@pytest.mark.parametrize("call", GATHER_CALLS.values(), ids=GATHER_CALLS)
def test_the_reversed_gather_begins_with_the_last_member(mesh, call):
    x = numbers(8, 1, 1, 32, 32)
    result = call(async_collectives.all_gather_async_reversed, put(x, mesh), mesh, semaphores(mesh))
    assert_shards(result, joined(x, 3, backwards=True))


def test_the_form_without_an_axis_gathers_over_a_line(line):
    x = numbers(8, 1, 1, 32, 32)
    result = async_collectives.all_gather_async(put(x, line), 2, semaphores(line))
    assert_shards(result, [torch.cat(list(x), 2)] * 8)
    assert ttnn.placements(result) == (ttnn.Replicate(), ttnn.Replicate())


def test_a_persistent_buffer_is_the_tensor_written_and_returned(mesh):
    x = numbers(8, 1, 1, 32, 32)
    for name in ("persistent_output_buffer", "persistent_output_tensor"):
        buffer = put(torch.zeros(8, 1, 1, 32, 128), mesh)
        address = buffer.buffer_address()
        form = (
            {"dim": 3, "cluster_axis": 1}
            if name == "persistent_output_buffer"
            else {"dim": 3, "cluster_axis": 1, "mesh_device": mesh, "topology": ttnn.Topology.Linear}
        )
        result = async_collectives.all_gather_async(
            put(x, mesh), multi_device_global_semaphore=semaphores(mesh), **form, **{name: buffer}
        )
        assert result.buffer_address() == buffer.buffer_address()
        assert buffer.buffer_address() == address
        assert_shards(buffer, joined(x, 3))


def test_a_buffer_of_the_wrong_shape_is_refused(mesh):
    buffer = put(torch.zeros(8, 1, 1, 32, 64), mesh)
    with pytest.raises(RuntimeError, match=r"64\].*128\]|128\].*64\]"):
        async_collectives.all_gather_async(
            put(numbers(8, 1, 1, 32, 32), mesh), buffer, 3, semaphores(mesh), cluster_axis=1
        )


def test_the_default_gather_takes_two_semaphores_and_the_llama_path_one(mesh):
    x = put(numbers(8, 1, 1, 32, 32), mesh)
    gather = async_collectives.all_gather_async
    with pytest.raises(RuntimeError, match="Default implementation requires 2 semaphores"):
        gather(x, None, 3, semaphores(mesh, 1), cluster_axis=1)
    with pytest.raises(RuntimeError, match="Default implementation requires 2 semaphores"):
        gather(x, None, 3, semaphores(mesh, 1)[0], cluster_axis=1)
    one = semaphores(mesh, 1)[0]
    assert gather(x, None, 3, one, cluster_axis=1, use_optimal_ccl_for_llama=True).shape == [1, 1, 32, 128]
    with pytest.raises(RuntimeError, match="takes 1 semaphore, got 2"):
        gather(x, None, 3, semaphores(mesh), cluster_axis=1, use_optimal_ccl_for_llama=True)


def test_a_gather_by_broadcast_wants_ones_before_its_dim(mesh):
    x = put(numbers(8, 1, 1, 32, 32), mesh)
    gather = async_collectives.all_gather_async
    assert gather(x, None, 2, semaphores(mesh), cluster_axis=1, use_broadcast=True).shape == [1, 1, 128, 32]
    with pytest.raises(RuntimeError, match="preceding page-ordered dimensions are singleton"):
        gather(x, None, 3, semaphores(mesh), cluster_axis=1, use_broadcast=True)


def test_a_call_that_fits_no_form_says_why_for_each(mesh):
    x = put(numbers(8, 1, 1, 32, 32), mesh)
    with pytest.raises(TypeError, match=r"form 1: .*form 2: .*form 3: ") as error:
        async_collectives.all_gather_async(x, 3)
    assert "'multi_device_global_semaphore' is missing" in str(error.value)
    with pytest.raises(TypeError, match=r"multi_device_global_semaphore\[0\] must be a semaphore"):
        async_collectives.all_gather_async(x, 3, ["one", "two"])
    with pytest.raises(TypeError, match="Did you mean 'cluster_axis'"):
        async_collectives.all_gather_async(x, None, 3, semaphores(mesh), cluster_axes=1)


def test_the_mesh_named_must_be_that_of_the_tensor(mesh):
    part = mesh.create_submesh(ttnn.MeshShape(1, 4))
    x = put(numbers(8, 1, 1, 32, 32), mesh)
    with pytest.raises(RuntimeError, match="give the tensor's own mesh"):
        async_collectives.all_gather_async(x, 3, 1, part, ttnn.Topology.Linear, semaphores(mesh))


def test_calls_that_differ_only_in_semaphores_and_buffers_are_one_program(mesh):
    x = put(numbers(8, 1, 1, 32, 32), mesh)
    mesh.clear_program_cache()
    for _ in range(3):
        async_collectives.all_gather_async(x, None, 3, semaphores(mesh), cluster_axis=1)
    assert mesh.num_program_cache_entries() == 1
    async_collectives.all_gather_async(x, None, 2, semaphores(mesh), cluster_axis=1)
    assert mesh.num_program_cache_entries() == 2


def test_the_strided_and_the_high_bandwidth_gather_give_the_same_values(mesh):
    x = numbers(8, 1, 1, 32, 32)
    strided = async_collectives.strided_all_gather_async(
        put(x, mesh), None, 3, semaphores(mesh), cluster_axis=1, mm_cores_y=2, mm_block_ht=1, mm_block_wt=1
    )
    assert_shards(strided, joined(x, 3))
    output = put(torch.zeros(8, 1, 1, 32, 128), mesh)
    assert async_collectives.high_bw_all_gather(put(x, mesh), 3, output, cluster_axis=1) is output
    assert_shards(output, joined(x, 3))
    with pytest.raises(NotImplementedError, match="input_batch_index is not modelled"):
        async_collectives.high_bw_all_gather(put(x, mesh), 3, output, cluster_axis=1, input_batch_index=0)


def of_others(x: torch.Tensor, length: int, held: float) -> list[torch.Tensor]:
    """Pieces of 32 rows joined along dim 2 of `length`, in which a device's own range stays what was held."""
    whole = [torch.nn.functional.pad(one, (0, 0, 0, length - 128), value=held) for one in joined(x, 2)]
    for device, one in enumerate(whole):
        one[:, :, device % 4 * 32 : device % 4 * 32 + 32] = held
    return whole


def test_keys_and_values_of_the_others_are_gathered_into_buffers_that_may_be_longer(mesh):
    keys, values = numbers(8, 1, 2, 32, 32), numbers(8, 1, 2, 32, 64)
    buffers = [put(torch.full((8, 1, 2, length, width), -1.0), mesh) for length, width in ((128, 32), (160, 64))]
    result = ring_gathers.ring_attention_all_gather_async(
        [put(keys, mesh), put(values, mesh)],
        persistent_output_buffer=buffers,
        dim=2,
        multi_device_global_semaphore=semaphores(mesh),
        cluster_axis=1,
        mesh_device=mesh,
        topology=ttnn.Topology.Linear,
        num_links=1,
    )
    assert all(a is b for a, b in zip(result, buffers, strict=True))
    assert_shards(result[0], of_others(keys, 128, -1.0))
    assert_shards(result[1], of_others(values, 160, -1.0))
    with pytest.raises(RuntimeError, match="one buffer for each tensor"):
        ring_gathers.ring_attention_all_gather_async(
            [put(keys, mesh)],
            buffers,
            2,
            multi_device_global_semaphore=semaphores(mesh),
            cluster_axis=1,
            mesh_device=mesh,
            topology=ttnn.Topology.Linear,
        )


# -- reduce_scatter and all_reduce -----------------------------------------------------------------


def scattered(x: torch.Tensor, dim: int) -> list[torch.Tensor]:
    return [whole.chunk(4, dim)[device % 4] for device, whole in enumerate(summed(x))]


def test_reduce_scatter_async_deals_out_the_sum(mesh):
    x = numbers(8, 1, 1, 32, 128)
    result = async_collectives.reduce_scatter_minimal_async(
        put(x, mesh),
        persistent_output_buffers=None,
        dim=3,
        multi_device_global_semaphore=semaphores(mesh, 3),
        barrier_semaphore=semaphores(mesh, 1)[0],
        num_links=1,
        memory_config=ttnn.DRAM_MEMORY_CONFIG,
        intermediate_memory_config=ttnn.L1_MEMORY_CONFIG,
        topology=ttnn.Topology.Linear,
        cluster_axis=1,
        chunks_per_sync=2,
    )
    assert_shards(result, scattered(x, 3))
    strided = async_collectives.strided_reduce_scatter_async(
        put(x, mesh), None, 3, semaphores(mesh, 3), mm_block_ht=1, mm_block_wt=1, cluster_axis=1
    )
    assert_shards(strided, scattered(x, 3))


def test_the_second_persistent_buffer_of_a_reduce_scatter_is_the_output(line):
    x = numbers(8, 1, 1, 32, 256)
    tensor, output = put(x, line), put(torch.zeros(8, 1, 1, 32, 32), line)
    first, last = scatter_buffers.reduce_scatter_minimal_async_create_intermediate_buffer(tensor, 3)
    call = async_collectives.reduce_scatter_minimal_async
    for buffers in ([first, output, last], [first, output]):
        assert call(tensor, buffers, 3, semaphores(line, 3)).buffer_address() == output.buffer_address()
        assert_shards(output, list(x.sum(0).chunk(8, 3)))
    assert_shards(call(tensor, [first], 3, semaphores(line, 3)), list(x.sum(0).chunk(8, 3)))
    with pytest.raises(RuntimeError, match="Expected 3 semaphores but got 2"):
        call(tensor, None, 3, semaphores(line, 2))


def test_the_first_persistent_buffer_of_a_reduce_scatter_has_one_of_two_forms(line):
    x = numbers(8, 1, 1, 32, 256)
    tensor, output = put(x, line), put(torch.zeros(8, 1, 1, 32, 32), line)
    call = async_collectives.reduce_scatter_minimal_async
    for shape in ((1, 1, 32, 256), (2, 1, 32, 256), (2, 1, 1, 32, 256)):
        like_the_operand = ttnn.zeros(shape, ttnn.bfloat16, TILE, line)
        assert_shards(call(tensor, [like_the_operand, output], 3, semaphores(line, 3)), list(x.sum(0).chunk(8, 3)))
        with pytest.raises(RuntimeError, match="penult intermediate is not applicable"):
            call(tensor, [like_the_operand, output, output], 3, semaphores(line, 3))
    with pytest.raises(RuntimeError, match="matches neither reduce-scatter intermediate layout"):
        call(tensor, [ttnn.zeros((1, 1, 32, 64), ttnn.bfloat16, TILE, line), output], 3, semaphores(line, 3))


@pytest.mark.parametrize(
    ("shape", "dim", "dtype", "wanted"),
    [
        ((1, 1, 32, 512), 3, ttnn.bfloat16, [[8, 8 * 2048], [1, 8 * 2048]]),
        ((1, 3, 64, 2560), 3, ttnn.bfloat16, [[8 * 3 * 3, 8 * 2048], [3 * 3, 8 * 2048]]),
        ((1, 16, 32, 64), 1, ttnn.bfloat8_b, [[8 * 2, 8 * 1088], [2, 8 * 1088]]),
        ((32, 2048), 1, ttnn.float32, [[8 * 2, 4 * 4096], [2, 4 * 4096]]),
    ],
)
def test_intermediate_buffers_have_pages_of_tiles(line, shape, dim, dtype, wanted):
    tensor = ttnn.from_torch(torch.zeros(shape), dtype, layout=TILE, device=line)
    made = scatter_buffers.reduce_scatter_minimal_async_create_intermediate_buffer(tensor, dim)
    assert [list(one.shape) for one in made] == wanted
    assert {(one.dtype, one.layout) for one in made} == {(ttnn.uint8, ROWS)}


def test_intermediate_buffers_are_for_rings_and_not_for_the_first_dim(line):
    make = scatter_buffers.reduce_scatter_minimal_async_create_intermediate_buffer
    message = "only applies to the contiguous fast path"
    with pytest.raises(RuntimeError, match=message):
        make(put(numbers(8, 8, 1, 32, 32), line), 0)
    with pytest.raises(RuntimeError, match=message):
        make(put(numbers(8, 1, 1, 32, 256), line), 3, topology=ttnn.Topology.Linear)


def test_the_direct_reduce_scatter_runs_around_a_ring(line):
    x = numbers(8, 1, 1, 32, 256)
    tensor = put(x, line)
    wanted = list(x.sum(0).chunk(8, 3))
    direct = scatter_buffers.reduce_scatter_minimal_direct
    assert_shards(direct(tensor, 3), wanted)
    buffers = scatter_buffers.reduce_scatter_minimal_direct_create_persistent_buffers(tensor, 3)
    output, staging = buffers
    assert direct(tensor, 3, persistent_buffers=buffers).buffer_address() == output.buffer_address()
    assert_shards(output, wanted)
    grid = line.compute_with_storage_grid_size()
    assert list(staging.shape) == [16 * grid.x * grid.y, 4 * 4096]
    assert staging.memory_config().shard_spec.shape == [16, 4 * 4096]
    with pytest.raises(RuntimeError, match=r"must be \{output, staging\}, got 1"):
        direct(tensor, 3, persistent_buffers=[output])
    with pytest.raises(RuntimeError, match=r"Persistent staging tensor spec .* does not match the computed"):
        direct(tensor, 3, persistent_buffers=[output, output])
    with pytest.raises(RuntimeError, match=r"Persistent output tensor spec .* does not match the computed"):
        direct(tensor, 3, persistent_buffers=[put(x, line), staging])


@pytest.mark.parametrize(
    ("tiles", "place"), [(64, ttnn.L1_MEMORY_CONFIG), (1024, ttnn.DRAM_MEMORY_CONFIG)], ids=["L1", "DRAM"]
)
def test_staging_that_is_too_large_for_every_core_is_interleaved(line, tiles, place):
    tensor = ttnn.from_torch(torch.zeros(32 * tiles, 256), ttnn.bfloat16, layout=TILE, device=line)
    staging = scatter_buffers.reduce_scatter_minimal_direct_create_staging_buffer(tensor, 1)
    assert (list(staging.shape), staging.memory_config()) == ([2 * tiles, 8 * 2048], place)


def test_the_direct_reduce_scatter_needs_an_axis_that_closes(mesh):
    x = put(numbers(8, 1, 1, 32, 256), mesh)
    with pytest.raises(RuntimeError, match="requires an explicit cluster_axis"):
        scatter_buffers.reduce_scatter_minimal_direct(x, 3)
    with pytest.raises(RuntimeError, match=r"supports Ring topology only: axis 1 .* does not wrap around"):
        scatter_buffers.reduce_scatter_minimal_direct(x, 3, cluster_axis=1)


def test_a_list_of_tensors_side_by_side_is_scattered_as_one(mesh):
    x = numbers(8, 1, 1, 32, 128)
    halves = [put(half.contiguous(), mesh) for half in x.chunk(2, 4)]
    result = fused_collectives.deepseek_moe_reduce_scatter(halves, ttnn.DRAM_MEMORY_CONFIG, 3, cluster_axis=1)
    assert_shards(result, scattered(x, 3))


def test_an_empty_list_of_tensors_is_refused(mesh):
    with pytest.raises(RuntimeError, match="input_tensors is empty"):
        fused_collectives.deepseek_moe_reduce_scatter([], ttnn.DRAM_MEMORY_CONFIG, 3, cluster_axis=1)


def test_llama_reduce_scatter_runs_along_the_last_dim(mesh):
    x = numbers(8, 1, 1, 32, 128)
    tensor, packets = put(x, mesh), put(torch.zeros(8, 1, 1, 32, 32), mesh)
    rest = (semaphores(mesh, 1)[0], ttnn.SubDeviceId(0), 1, mesh)
    assert_shards(fused_collectives.llama_reduce_scatter(tensor, packets, 3, *rest), scattered(x, 3))
    with pytest.raises(RuntimeError, match="runs along dim 3 only"):
        fused_collectives.llama_reduce_scatter(tensor, packets, 2, *rest)


def test_every_form_of_all_reduce_async_sums_over_the_group(mesh):
    x = numbers(8, 1, 1, 32, 32)
    s = semaphores(mesh)
    reduce = async_collectives.all_reduce_async
    forms = {
        "b": reduce(put(x, mesh), 1, mesh, s, others(s), others(s), ReduceType.Sum, num_links=1),
        "b by name": reduce(
            put(x, mesh),
            cluster_axis=1,
            mesh_device=mesh,
            barrier_semaphores=semaphores(mesh),
            rs_global_semaphores=semaphores(mesh),
            ag_global_semaphores=semaphores(mesh),
            math_op=ReduceType.Sum,
        ),
        "b without semaphores": reduce(put(x, mesh), cluster_axis=1, mesh_device=mesh, math_op=ReduceType.Sum),
        "c": reduce(put(x, mesh), put(x, mesh), cluster_axis=1, mesh_device=mesh, multi_device_global_semaphore=s[0]),
    }
    for result in forms.values():
        assert_shards(result, summed(x))
        assert ttnn.placements(result)[1] is ttnn.Replicate()


def test_all_reduce_async_into_another_dtype(mesh):
    x = numbers(8, 1, 1, 32, 32)
    result = async_collectives.all_reduce_async(
        put(x, mesh), put(x, mesh), 1, mesh, semaphores(mesh)[0], dtype=ttnn.bfloat16
    )
    assert result.dtype is ttnn.bfloat16
    assert_shards(result, [one.bfloat16() for one in summed(x)])


def test_all_reduce_async_counts_its_devices_and_only_adds(line):
    x, s = numbers(8, 1, 1, 32, 32), semaphores(line)
    result = async_collectives.all_reduce_async(put(x, line), 8, s, others(s), others(s), ReduceType.Sum)
    assert_shards(result, [x.sum(0)] * 8)
    with pytest.raises(RuntimeError, match="num_devices=4, and the tensor lies on 8 devices"):
        async_collectives.all_reduce_async(put(x, line), 4, s, others(s), others(s), ReduceType.Sum)
    with pytest.raises(RuntimeError, match=r"math_op must be ReduceType.Sum, got ReduceType.Max"):
        async_collectives.all_reduce_async(put(x, line), 8, s, others(s), others(s), ReduceType.Max)


# -- exchanges -------------------------------------------------------------------------------------


def swapped(x: torch.Tensor, group: list[int], in_dim: int, out_dim: int) -> list[torch.Tensor]:
    return [torch.cat([x[d].chunk(len(group), out_dim)[i] for d in group], in_dim) for i in range(len(group))]


def test_all_to_all_swaps_the_dim_that_is_split(line):
    whole = numbers(1, 1, 512, 512)
    mapper = ttnn.ShardTensorToMesh(line, dim=2)
    x = ttnn.from_torch(whole, layout=TILE, device=line, mesh_mapper=mapper)
    result = exchange_collectives.all_to_all_async_generic(x, 2, 3)
    assert result.shape == [1, 1, 512, 64]
    assert_shards(result, list(whole.chunk(8, 3)))
    assert ttnn.placements(result)[1] is ttnn.Shard(3)
    assert torch.equal(ttnn.compose(result), whole)


def test_all_to_all_along_an_axis_leaves_other_rows_alone(mesh):
    x = numbers(8, 1, 1, 64, 128)
    result = exchange_collectives.all_to_all_async_generic(put(x, mesh), 2, 3, cluster_axis=1)
    wanted = [*swapped(x, row_of(0), 2, 3), *swapped(x, row_of(4), 2, 3)]
    assert_shards(result, wanted)
    assert ttnn.Local() in ttnn.placements(result)


def test_all_to_all_async_writes_its_output_buffer(line):
    x = numbers(8, 1, 1, 32, 256)
    scratch, output = (put(torch.zeros(8, 1, 1, 256, 32), line) for _ in range(2))
    one = semaphores(line, 1)[0]
    result = exchange_collectives.all_to_all_async(put(x, line), scratch, output, 2, 3, one)
    assert result.buffer_address() == output.buffer_address()
    assert_shards(output, swapped(x, list(range(8)), 2, 3))


@pytest.mark.parametrize(
    ("shape", "in_dim", "out_dim", "layout"),
    [
        ((2, 1, 64, 32), 1, 2, TILE),
        ((1, 8, 5, 6), 3, 1, ROWS),
        ((16, 3), 1, 0, ROWS),
        ((1, 1, 40, 24), 2, 3, TILE),
        ((1, 8, 2, 33), 0, 1, TILE),
    ],
)
def test_all_to_all_async_swaps_any_two_dims_in_any_layout(line, shape, in_dim, out_dim, layout):
    x = numbers(8, *shape)
    result = list(shape)
    result[in_dim] *= 8
    result[out_dim] //= 8
    scratch, output = (put(torch.zeros(8, *result), line, layout) for _ in range(2))
    one = semaphores(line, 1)[0]
    exchange_collectives.all_to_all_async(put(x, line, layout), scratch, output, in_dim, out_dim, one)
    assert_shards(output, swapped(x, list(range(8)), in_dim, out_dim))


def test_all_to_all_async_takes_two_different_dims(line):
    x, scratch, output = (put(numbers(8, 1, 1, 32, 256), line) for _ in range(3))
    message = "AllToAllAsync: in_dim and out_dim must be different, "
    with pytest.raises(RuntimeError, match=message):
        exchange_collectives.all_to_all_async(x, scratch, output, 2, -2, semaphores(line, 1)[0])


def test_all_to_all_async_of_what_is_dealt_in_two_dims_wants_whole_tiles(idle_machine):
    ttnn.set_fabric_config(ttnn.FabricConfig.FABRIC_2D)
    with ttnn.create_mesh_device(ttnn.MeshShape(2, 4)) as mesh:
        mapper = ttnn.ShardTensor2dMesh(mesh, (2, 4), dims=(2, 3))
        one = semaphores(mesh, 1)[0]
        x, scratch, output = (
            ttnn.from_torch(numbers(1, 1, 16, 32), layout=ROWS, device=mesh, mesh_mapper=mapper) for _ in range(3)
        )
        with pytest.raises(RuntimeError, match="all_broadcast op is only supported for a linear tensor"):
            exchange_collectives.all_to_all_async(x, scratch, output, 2, 3, one)


def test_all_to_all_wants_tiles_and_extents_that_divide(mesh):
    call = exchange_collectives.all_to_all_async_generic
    with pytest.raises(RuntimeError, match="needs TILE layout"):
        call(put(numbers(8, 1, 1, 64, 128), mesh, ROWS), 2, 3, cluster_axis=1)
    with pytest.raises(RuntimeError, match="must be divisible by 4"):
        call(put(numbers(8, 1, 1, 64, 34), mesh), 2, 3, cluster_axis=1)
    with pytest.raises(RuntimeError, match="multiple of 32"):
        call(put(numbers(8, 1, 1, 64, 64), mesh), 2, 3, cluster_axis=1)


def test_all_to_all_under_a_fabric_of_two_dims_needs_an_axis(idle_machine):
    ttnn.set_fabric_config(ttnn.FabricConfig.FABRIC_2D)
    with ttnn.create_mesh_device(ttnn.MeshShape(2, 4)) as mesh:
        x = put(numbers(8, 1, 1, 64, 256), mesh)
        with pytest.raises(RuntimeError, match=r"cluster_axis is mandatory under FabricConfig\.FABRIC_2D"):
            exchange_collectives.all_to_all_async_generic(x, 2, 3)


def haloed(
    pieces: list[torch.Tensor], group: list[int], dim: int, left: int, right: int, mode: str
) -> dict[int, torch.Tensor]:
    whole = torch.cat([pieces[d] for d in group], dim)
    extent = pieces[0].shape[dim]
    first, last = whole.narrow(dim, 0, 1), whole.narrow(dim, whole.shape[dim] - 1, 1)
    scale = 1 if mode == "replicate" else 0
    padded = torch.cat([first * scale] * left + [whole] + [last * scale] * right, dim)
    return {d: padded.narrow(dim, i * extent, left + extent + right) for i, d in enumerate(group)}


@pytest.mark.parametrize("mode", ["zeros", "replicate"])
@pytest.mark.parametrize(("left", "right"), [(1, 1), (2, 0), (0, 3)])
def test_pieces_are_extended_by_rows_of_their_neighbours(mesh, mode, left, right):
    x = numbers(8, 2, 4, 3, 8)
    result = exchange_collectives.neighbor_pad_async(
        put(x, mesh, ROWS),
        [1],
        [left],
        [right],
        mode,
        [1],
        semaphores(mesh, 1),
        semaphores(mesh, 1),
        num_links=[1],
    )
    wanted = {
        **haloed(list(x), row_of(0), 1, left, right, mode),
        **haloed(list(x), row_of(4), 1, left, right, mode),
    }
    assert_shards(result, [wanted[d] for d in range(8)])
    assert ttnn.placements(result)[1] is ttnn.Local()


@pytest.mark.parametrize("mode", ["zeros", "replicate"])
def test_two_dims_are_extended_with_their_corners(mesh, mode):
    x = numbers(8, 1, 4, 5, 8)
    semaphore = semaphores(mesh, 2)
    result = exchange_collectives.neighbor_pad_async(
        put(x, mesh, ROWS), [1, 2], [1, 2], [1, 1], mode, [0, 1], semaphore, semaphores(mesh, 2)
    )
    once = {d: piece for c in range(4) for d, piece in haloed(list(x), [c, c + 4], 1, 1, 1, mode).items()}
    pieces = [once[d] for d in range(8)]
    wanted = {**haloed(pieces, row_of(0), 2, 2, 1, mode), **haloed(pieces, row_of(4), 2, 2, 1, mode)}
    assert_shards(result, [wanted[d] for d in range(8)])


@pytest.mark.parametrize("end", [5, 8, 11])
def test_rows_behind_the_picture_are_zero_and_sent_as_zero(mesh, end):
    x = 1 + numbers(8, 1, 4, 5, 8)
    two, one = semaphores(mesh, 2), semaphores(mesh, 1)
    given = put(x, mesh, ROWS), [1, 2], [1, 2], [1, 1], "zeros", [0, 1], two, one
    result = exchange_collectives.neighbor_pad_async(*given, logical_h=end)
    once = {d: piece for c in range(4) for d, piece in haloed(list(x), [c, c + 4], 1, 1, 1, "zeros").items()}
    for d, piece in once.items():
        shown = max(0, min(4, end - d // 4 * 4))
        piece[:, 1 + shown : 5] = 0
    pieces = [once[d] for d in range(8)]
    wanted = {**haloed(pieces, row_of(0), 2, 2, 1, "zeros"), **haloed(pieces, row_of(4), 2, 2, 1, "zeros")}
    assert_shards(result, [wanted[d] for d in range(8)])


def test_frames_of_zero_are_put_in_front(mesh):
    x = 1 + numbers(8, 1, 2, 4, 3, 8)
    one = semaphores(mesh, 1)
    given = put(x, mesh, ROWS), [2], [1], [0], "zeros", [0], one, others(one)
    plain = exchange_collectives.neighbor_pad_async(*given)
    result = exchange_collectives.neighbor_pad_async(*given, t_front_pad=3)
    assert_shards(result, [torch.nn.functional.pad(p, (0, 0, 0, 0, 0, 0, 3, 0)) for p in shards(plain)])


def test_halos_of_a_tensor_that_all_share_and_on_an_axis_of_one_device(line):
    values = numbers(1, 4, 8)
    x = ttnn.from_torch(values, device=line)
    s = semaphores(line, 1)
    along = exchange_collectives.neighbor_pad_async(x, [1], [1], [1], "zeros", [1], s, others(s))
    wanted = haloed([values] * 8, list(range(8)), 1, 1, 1, "zeros")
    assert_shards(along, [wanted[d] for d in range(8)])
    across = exchange_collectives.neighbor_pad_async(x, [1], [1], [1], "replicate", [0], s, others(s))
    assert_shards(across, [haloed([values], [0], 1, 1, 1, "replicate")[0]] * 8)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"padding_left": [5]}, "must be 0 to 4: a neighbour has no more rows"),
        ({"padding_mode": "wrap"}, "must be 'zeros' or 'replicate', got 'wrap'"),
        ({"padding_right": [1, 1]}, "one entry for each padded dim"),
        ({"dim": [4]}, "dim=4 is out of range"),
        ({"dim": [3]}, "must rise and leave out the last dim"),
        ({"dim": [2], "t_front_pad": 1}, "needs a batch of 1"),
        ({"cluster_axis": [2]}, "cluster axis 2 is out of range for mesh shape rank 2"),
        ({"num_links": [0]}, "num_links must be greater than 0"),
    ],
)
def test_halos_that_cannot_be_are_refused(mesh, change, message):
    s = semaphores(mesh, 1)
    call = {
        "dim": [1],
        "padding_left": [1],
        "padding_right": [1],
        "padding_mode": "zeros",
        "cluster_axis": [1],
        "neighbor_semaphore": s,
        "barrier_semaphore": others(s),
    }
    with pytest.raises(RuntimeError, match=message):
        exchange_collectives.neighbor_pad_async(put(numbers(8, 2, 4, 3, 8), mesh, ROWS), **{**call, **change})


def test_a_slice_of_the_whole_is_dealt_out_again(mesh):
    x = numbers(8, 1, 5, 8)
    one = semaphores(mesh, 1)[0]
    result = exchange_collectives.slice_reshard_async(put(x, mesh, ROWS), 1, 3, 12, 1, one, others(one))
    wanted = [whole.narrow(1, 3, 12).chunk(4, 1)[d % 4] for d, whole in enumerate(joined(x, 1))]
    assert_shards(result, wanted)
    assert ttnn.placements(result)[1] is ttnn.Shard(1)


def test_along_an_axis_of_one_device_each_keeps_its_own_slice(line):
    x, one = numbers(8, 1, 5, 8), semaphores(line, 1)[0]
    tensor = ttnn.from_torch(torch.cat(list(x), 1), device=line, mesh_mapper=ttnn.ShardTensorToMesh(line, dim=1))
    result = exchange_collectives.slice_reshard_async(tensor, 1, 1, 3, 0, one, others(one))
    assert_shards(result, [piece[:, 1:4] for piece in x])
    assert_shards(
        async_collectives.reduce_scatter_minimal_async(tensor, None, 1, semaphores(line, 3), cluster_axis=0),
        list(x),
    )


@pytest.mark.parametrize("offset", [10, 20, 24])
def test_rows_of_a_slice_behind_the_last_are_zero(mesh, offset):
    x, one = 1 + numbers(8, 1, 5, 8), semaphores(mesh, 1)[0]
    result = exchange_collectives.slice_reshard_async(put(x, mesh, ROWS), 1, offset, 12, 1, one, others(one))
    rows = [torch.cat([x[d] for d in row_of(first)], 1) for first in (0, 4)]
    padded = [torch.nn.functional.pad(whole, (0, 0, 0, 20))[:, offset : offset + 12] for whole in rows]
    assert_shards(result, [*padded[0].chunk(4, 1), *padded[1].chunk(4, 1)])


@pytest.mark.parametrize(
    ("layout", "offset", "shape", "message"),
    [
        (TILE, 0, 4, r"Unsupported input tensor layout Layout::TILE\."),
        (ROWS, -1, 12, "must be 0 or more"),
        (ROWS, 0, 6, "cannot be shared by 4 devices"),
    ],
)
def test_a_slice_that_cannot_be_dealt_is_refused(mesh, layout, offset, shape, message):
    one = semaphores(mesh, 1)[0]
    with pytest.raises(RuntimeError, match=message):
        exchange_collectives.slice_reshard_async(
            put(numbers(8, 1, 5, 8), mesh, layout), 1, offset, shape, 1, one, others(one)
        )


# -- with products ---------------------------------------------------------------------------------


def test_a_gather_fused_with_a_product_returns_both(line):
    x, weight, bias = numbers(8, 1, 1, 32, 32), numbers(1, 1, 256, 64), numbers(1, 1, 1, 64)
    gathered, product = fused_collectives.all_gather_matmul_async(
        put(x, line),
        ttnn.from_torch(weight, layout=TILE, device=line),
        None,
        3,
        semaphores(line),
        ttnn.CoreCoord(0, 4),
        bias=ttnn.from_torch(bias, layout=TILE, device=line),
        activation="relu",
        memory_config_mm=ttnn.L1_MEMORY_CONFIG,
        topology=ttnn.Topology.Ring,
    )
    whole = torch.cat(list(x), 3)
    assert_shards(gathered, [whole] * 8)
    assert_shards(product, [(whole @ weight + bias).relu()] * 8)
    assert product.memory_config() == ttnn.L1_MEMORY_CONFIG


@pytest.mark.parametrize("scratch_rows", [64, 32])
def test_a_product_fused_with_a_reduce_scatter_writes_the_buffer(line, scratch_rows):
    """The scratch buffer holds all of the product, or one batch of it."""
    x, weight = numbers(2, 1, 64, 256), numbers(1, 1, 256, 256)
    scratch = ttnn.zeros((2, 1, scratch_rows, 256), ttnn.float32, TILE, line)
    output = ttnn.zeros((2, 1, 64, 32), ttnn.float32, TILE, line)
    product, result = fused_collectives.matmul_reduce_scatter_async(
        ttnn.from_torch(x, layout=TILE, device=line, mesh_mapper=ttnn.ShardTensorToMesh(line, dim=3)),
        ttnn.from_torch(weight, layout=TILE, device=line, mesh_mapper=ttnn.ShardTensorToMesh(line, dim=2)),
        scratch,
        output,
        3,
        semaphores(line, 3),
        ttnn.CoreCoord(0, 4),
    )
    assert product.shape == [2, 1, 64, 256]
    assert result.buffer_address() == output.buffer_address()
    for got, wanted in zip(shards(output), (x @ weight).chunk(8, 3), strict=True):
        torch.testing.assert_close(got, wanted, rtol=1e-4, atol=1e-4)


# -- semaphores ------------------------------------------------------------------------------------


def test_semaphores_have_addresses_of_their_own_and_a_value_to_reset(mesh):
    first, second = semaphores(mesh)
    assert get_global_semaphore_address(first) != get_global_semaphore_address(second)
    reset_global_semaphore_value(first, 3)
    assert (first.value, second.value) == (3, 0)


def test_semaphores_refuse_what_they_are_not(mesh):
    with pytest.raises(TypeError, match=r"cores must be a ttnn\.CoreRangeSet"):
        create_global_semaphore(mesh, (0, 0), 0)
    with pytest.raises(TypeError, match="initial_value must be 0 to 4294967295, got -1"):
        create_global_semaphore(mesh, CORES, -1)
    with pytest.raises(TypeError, match="global_semaphore must be a semaphore"):
        reset_global_semaphore_value(7, 0)


def test_functions_of_several_ops_stand_where_ttnn_has_them():
    wrapping = COMPOSITES.keys() & OPERATIONS.keys()  # functions around the op of the same name
    assert all("ring_" in name for name in wrapping)
    assert {name.partition(".")[0] for name in COMPOSITES} == {
        "experimental",
        "transformer",
        "fused_rms_minimal",
    }
    assert COMPOSITES["experimental.llama_reduce_scatter"] is fused_collectives.llama_reduce_scatter


def test_no_family_leaves_a_warning_behind(line):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        x = put(numbers(8, 1, 1, 32, 32), line)
        async_collectives.all_gather_async(x, None, 3, semaphores(line), topology=ttnn.Topology.Ring)
