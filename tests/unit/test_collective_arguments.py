"""What collectives are given beside their operands: outputs, scratch, semaphores, tuning.

Wrong ones are refused, and then nothing has been written.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

import softmesh as ttnn
from softmesh.errors import MeshError

X = ttnn.experimental
At = ttnn.MeshCoordinate
CORES = ttnn.CoreRangeSet([ttnn.CoreRange(ttnn.CoreCoord(0, 0), ttnn.CoreCoord(1, 1))])
ROWS, TILE = ttnn.ROW_MAJOR_LAYOUT, ttnn.TILE_LAYOUT
LINEAR = ttnn.Topology.Linear


@pytest.fixture
def line(idle_machine: None) -> Iterator[ttnn.MeshDevice]:
    ttnn.set_fabric_config(ttnn.FabricConfig.FABRIC_1D)
    with ttnn.create_mesh_device(ttnn.MeshShape(1, 4)) as mesh:
        yield mesh


@pytest.fixture
def other(line: ttnn.MeshDevice) -> Iterator[ttnn.MeshDevice]:
    with ttnn.create_mesh_device(ttnn.MeshShape(1, 4)) as mesh:
        yield mesh


def split(mesh: ttnn.MeshDevice, dtype: Any = ttnn.bfloat16) -> ttnn.Tensor:
    """[1, 1, 32, 64] on each device"""
    values = torch.arange(32 * 256.0).reshape(1, 1, 32, 256) % 31 + 1
    mapper = ttnn.ShardTensorToMesh(mesh, dim=3)
    return ttnn.from_torch(values, dtype=dtype, layout=TILE, device=mesh, mesh_mapper=mapper)


def sevens(
    mesh: ttnn.MeshDevice | None, *shape: int, dtype: Any = ttnn.bfloat16, layout: Any = TILE, **more: Any
) -> ttnn.Tensor:
    return ttnn.from_torch(torch.full(shape, 7.0), dtype=dtype, layout=layout, device=mesh, **more)


def untouched(*tensors: ttnn.Tensor) -> bool:
    return all(ttnn.to_torch(one).eq(7).all() for t in tensors for one in ttnn.get_device_tensors(t))


def semaphores(mesh: ttnn.MeshDevice, count: int = 2) -> list[Any]:
    return [ttnn.create_global_semaphore(mesh, CORES, 0) for _ in range(count)]


# -- outputs ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("form", "message"),
    [
        (
            {"dtype": ttnn.float32},
            "Output tensor dtype DataType.FLOAT32 should be same as input tensor dtype",
        ),
        ({"dtype": ttnn.bfloat8_b}, "Output tensor dtype DataType.BFLOAT8_B should be same as input"),
        ({"layout": ROWS}, "Output tensor layout Layout.ROW_MAJOR should be same as input tensor layout"),
    ],
)
def test_what_is_sent_to_one_device_needs_an_output_of_its_form(line, form, message):
    output = sevens(line, 1, 1, 32, 64, **form)
    with pytest.raises(MeshError, match=message) as error:
        ttnn.point_to_point(split(line), At(0, 0), At(0, 1), output_tensor=output)
    assert "point_to_point writes into output_tensor" in str(error.value)
    assert untouched(output)


def dispatched(mesh: ttnn.MeshDevice) -> tuple[Callable[..., Any], ttnn.Tensor]:
    """A call of all_to_all_dispatch, and its mapping: 8 experts, two on each of four devices."""
    mapper, rows = ttnn.ShardTensorToMesh(mesh, dim=0), {"layout": ROWS, "device": mesh}
    tokens = ttnn.from_torch(torch.ones(4, 1, 2, 32), dtype=ttnn.bfloat16, mesh_mapper=mapper, **rows)
    chosen = torch.arange(16).reshape(4, 1, 2, 2) % 8
    indices = ttnn.from_torch(chosen, dtype=ttnn.uint16, mesh_mapper=mapper, **rows)
    homes = torch.eye(4).repeat(2, 1).reshape(1, 1, 8, 4)
    mapping = ttnn.from_torch(homes, dtype=ttnn.uint16, **rows)

    def call(mapping: ttnn.Tensor = mapping, **more: Any) -> Any:
        return ttnn.all_to_all_dispatch(tokens, indices, mapping, cluster_axis=1, **more)

    return call, mapping


def test_each_output_of_a_dispatch_is_compared_with_its_own_result(line):
    call, _ = dispatched(line)
    rows = sevens(line, 1, 4, 2, 32, layout=ROWS)
    told = sevens(line, 1, 4, 2, 2, dtype=ttnn.uint16, layout=ROWS)
    call(output_tensors=[ttnn.clone(rows), ttnn.clone(told)])
    wrong = {
        "shape must be Shape\\(\\[1, 4, 2, 32\\]\\), got": [told, rows],
        "dtype DataType.FLOAT32 should be": [
            sevens(line, 1, 4, 2, 32, dtype=ttnn.float32, layout=ROWS),
            told,
        ],
        "dtype DataType.BFLOAT16 should be DataType.UINT16": [rows, sevens(line, 1, 4, 2, 2, layout=ROWS)],
        "layout Layout.TILE should be": [sevens(line, 1, 4, 2, 32), told],
        "2 results": [rows],
        "same tensor": [rows, rows],
    }
    for message, outputs in wrong.items():
        with pytest.raises(MeshError, match=message) as error:
            call(output_tensors=outputs)
        assert "non-singleton" not in str(error.value)
        assert untouched(*outputs)


def test_the_outputs_of_combine_and_remap_have_the_form_of_their_results(line):
    call, mapping = dispatched(line)
    _, metadata = call()
    answers = sevens(line, 2, 4, 2, 32, layout=ROWS)
    for form in ({"dtype": ttnn.float32, "layout": ROWS}, {"layout": TILE}):
        output = sevens(line, 2, 1, 2, 32, **form)
        with pytest.raises(MeshError, match="all_to_all_combine writes into output_tensor"):
            ttnn.all_to_all_combine(answers, metadata, mapping, cluster_axis=1, output_tensor=output)
        assert untouched(output)
    weights = sevens(line, 1, 4, 2, 8, layout=ROWS)
    outputs = [sevens(line, 1, 4, 2, 2, layout=ROWS), sevens(line, 1, 1, 1, 2, layout=ROWS)]
    with pytest.raises(MeshError, match=r"DataType.BFLOAT16 should be DataType.UINT16.*optional_output_reduced_tensor"):
        ttnn.moe_expert_token_remap(
            weights,
            mapping,
            metadata,
            optional_output_mapping_tensor=outputs[0],
            optional_output_reduced_tensor=outputs[1],
        )
    assert untouched(*outputs)


def test_the_outputs_of_a_merge_have_the_form_of_their_results(idle_machine):
    ttnn.set_fabric_config(ttnn.FabricConfig.FABRIC_1D)
    with ttnn.create_mesh_device(ttnn.MeshShape(4, 1)) as mesh:
        parts = [sevens(mesh, 32, 64), sevens(mesh, 32, 32), sevens(mesh, 32, 32)]

        def call(*outputs: ttnn.Tensor) -> Any:
            names = ("output_tensor_l", "output_tensor_s", "output_tensor_m")
            return ttnn.reduce_to_root(*parts, At(1, 0), **dict(zip(names, outputs, strict=True)))

        fitting = [ttnn.clone(part) for part in parts]
        wide, narrow = sevens(mesh, 32, 64, dtype=ttnn.float32), sevens(mesh, 32, 32)
        with pytest.raises(MeshError, match=r"shape must be Shape\(\[32, 64\]\), got.*output_tensor_l"):
            call(narrow, *fitting[1:])
        with pytest.raises(MeshError, match=r"dtype DataType.FLOAT32 should be.*output_tensor_l"):
            call(wide, *fitting[1:])
        with pytest.raises(MeshError, match="results 1 and 2 would be written into the same tensor"):
            call(fitting[0], narrow, narrow)
        assert untouched(wide, narrow, *fitting)
        assert call(*fitting)[0] is fitting[0]


def test_an_output_elsewhere_is_named(line, other):
    x = split(line)
    for call in (
        lambda output: ttnn.all_gather(x, 3, output_tensor=output),
        lambda output: ttnn.point_to_point(x, At(0, 0), At(0, 1), output_tensor=output),
    ):
        with pytest.raises(MeshError, match=r"output_tensor \[1, 1, 32, 256\] lies on MeshDevice.* of id"):
            call(sevens(other, 1, 1, 32, 256))
        with pytest.raises(MeshError, match=r"output_tensor .* lies on the host"):
            call(sevens(None, 1, 1, 32, 256))


def test_a_list_is_no_output_where_there_is_one_result(line):
    with pytest.raises(TypeError, match=r"output_tensor must be a ttnn.Tensor, got a list"):
        ttnn.all_gather(split(line), 3, output_tensor=[sevens(line, 1, 1, 32, 256)])
    with pytest.raises(TypeError, match=r"output_tensor must be a ttnn.Tensor, got a list"):
        ttnn.reduce_scatter(split(line), 3, output_tensor=[sevens(line, 1, 1, 32, 16)])


def test_an_output_lies_where_the_result_is_wanted(line):
    l1, dram = ttnn.L1_MEMORY_CONFIG, ttnn.DRAM_MEMORY_CONFIG
    x, piece = split(line), sevens(line, 1, 1, 32, 16, memory_config=l1)
    for config in (None, dram):
        with pytest.raises(MeshError, match="does not match computed output spec"):
            ttnn.reduce_scatter(x, 3, memory_config=config, output_tensor=piece)
    assert untouched(piece)
    assert ttnn.reduce_scatter(x, 3, memory_config=l1, output_tensor=piece) is piece
    whole = sevens(line, 1, 1, 32, 256, memory_config=l1)
    with pytest.raises(MeshError, match=r"Output tensor memory config .*L1.* should be same as memory_config"):
        ttnn.all_gather(x, 3, memory_config=dram, output_tensor=whole)
    assert untouched(whole)
    assert ttnn.all_gather(x, 3, output_tensor=whole) is whole


# -- several at once -------------------------------------------------------------------------------


def test_a_refused_gather_of_several_has_written_none(line, other):
    x = split(line)
    good, small = sevens(line, 1, 1, 32, 256), sevens(line, 1, 1, 32, 64)

    def call(tensors: list[Any], buffers: list[Any], mesh: Any = line, dim: int = 3) -> Any:
        return X.ring_attention_all_gather_async(
            tensors,
            buffers,
            dim,
            multi_device_global_semaphore=semaphores(line),
            cluster_axis=1,
            mesh_device=mesh,
            topology=LINEAR,
        )

    with pytest.raises(MeshError, match=r"shape must be .*persistent_output_buffer\[1\]"):
        call([x, x], [good, small])
    with pytest.raises(MeshError, match=r"dtype .*persistent_output_buffer\[1\]"):
        call([x, x], [good, sevens(line, 1, 1, 32, 256, dtype=ttnn.float32)])
    with pytest.raises(MeshError, match=r"input_tensor\[1\] .* lies on"):
        call([x, split(other)], [good, sevens(line, 1, 1, 32, 256)])
    with pytest.raises(MeshError, match=r"mesh_device is .* of id"):
        call([x], [good], mesh=other)
    assert untouched(good, small)
    assert call([x], [good])[0] is good
    assert not untouched(good)


# -- scratch and semaphores ------------------------------------------------------------------------


def test_scratch_must_be_allocated_on_the_mesh(line, other):
    x, two = split(line), semaphores(line)
    output, product = sevens(line, 1, 1, 32, 16), sevens(line, 1, 1, 32, 8)
    three = semaphores(line, 3)
    weight = sevens(line, 1, 1, 64, 32)
    calls = [
        lambda scratch: X.reduce_scatter_minimal_async(x, [scratch, output], 3, three, cluster_axis=1),
        lambda scratch: X.all_reduce_async(x, scratch, 1, line, two[0]),
        lambda scratch: X.matmul_reduce_scatter_async(x, weight, scratch, product, 3, three, ttnn.CoreCoord(0, 4)),
        lambda scratch: ttnn.point_to_point(x, At(0, 0), At(0, 1), intermediate_tensor=scratch),
    ]
    dead = sevens(line, 1, 1, 32, 64)
    ttnn.deallocate(dead)
    for call in calls:
        call(sevens(line, 1, 1, 32, 64))
        ttnn.copy(sevens(line, 1, 1, 32, 16), output)
        ttnn.copy(sevens(line, 1, 1, 32, 8), product)
        with pytest.raises(MeshError, match="Tensor is not allocated"):
            call(dead)
        with pytest.raises(MeshError, match=r"lies on MeshDevice.*allocate it there"):
            call(sevens(other, 1, 1, 32, 64))
        assert untouched(output, product)


def test_semaphores_are_of_the_mesh_and_each_its_own(line, other):
    x, mine, theirs = split(line), semaphores(line), semaphores(other)
    calls = [
        lambda given: X.all_gather_async(x, dim=3, multi_device_global_semaphore=given),
        lambda given: X.strided_reduce_scatter_async(
            x, dim=3, multi_device_global_semaphore=given, mm_block_ht=1, mm_block_wt=1
        ),
    ]
    for call in calls:
        call(mine)
        with pytest.raises(MeshError, match=r"multi_device_global_semaphore\[0\] is a semaphore of"):
            call(theirs)
        with pytest.warns(ttnn.SoftmeshWarning, match="are the same semaphore"):
            call([mine[0]] * 2)
    with pytest.raises(MeshError, match="empty list: give at least one"):
        calls[1]([])
    with pytest.raises(MeshError, match="Default implementation requires 2 semaphores"):
        calls[0]([])
    with pytest.raises(MeshError, match="barrier_semaphore is a semaphore of"):
        X.all_gather_async(x, dim=3, multi_device_global_semaphore=mine, barrier_semaphore=theirs[0])


def test_halos_share_one_barrier_over_their_dims(line):
    x, two = sevens(line, 1, 4, 4, 32, layout=ROWS), semaphores(line)
    barrier = semaphores(line, 1)
    padded = X.neighbor_pad_async(x, [1, 2], [1, 1], [1, 1], "zeros", [1, 0], two, barrier)
    assert list(padded.shape) == [1, 6, 6, 32]
    assert list(X.neighbor_pad_async(x, [1], [1], [1], "zeros", [1], two, barrier).shape) == [1, 6, 4, 32]


def test_semaphores_of_a_whole_mesh_serve_its_parts(line):
    part = line.create_submesh(ttnn.MeshShape(1, 2))
    gathered = X.all_gather_async(sevens(part, 32, 32), dim=1, multi_device_global_semaphore=semaphores(line))
    assert list(gathered.shape) == [32, 64]


@pytest.mark.parametrize(
    "name",
    [
        "reduce_scatter_minimal_async_create_intermediate_buffer",
        "reduce_scatter_minimal_direct_create_staging_buffer",
        "reduce_scatter_minimal_direct_create_persistent_buffers",
    ],
)
def test_no_scratch_for_what_cannot_be(line, name):
    make, x = getattr(X, name), split(line)
    if "direct" in name:
        make(x, 3, cluster_axis=1)
    with pytest.raises(MeshError, match="should be between 0 and 3 however is 9"):
        make(x, 9, cluster_axis=1)
    with pytest.raises(MeshError, match="cluster axis 9 is out of range for mesh shape rank 2"):
        make(x, 3, cluster_axis=9)
    with pytest.raises(MeshError, match="must be divisible by ring_size"):
        make(x, 0, cluster_axis=1)


# -- tuning ----------------------------------------------------------------------------------------

TUNING = [
    ("chunks_per_sync", "x", "an int of 1 or more"),
    ("num_workers_per_link", -4, "an int of 1 or more"),
    ("num_buffers_per_channel", 0, "an int of 1 or more"),
    ("use_l1_small_for_semaphores", "maybe", "True or False"),
    ("sub_core_grids", "all", "a ttnn.CoreRangeSet"),
    ("subdevice_id", "a", "a ttnn.SubDeviceId"),
    ("compute_kernel_config", "hifi", "ttnn.init_device_compute_kernel_config"),
    ("intermediate_memory_config", 7, "a ttnn.MemoryConfig"),
]


@pytest.mark.parametrize(("name", "value", "wanted"), TUNING)
def test_tuning_is_of_its_kind(line, name, value, wanted):
    x, two = split(line), semaphores(line)
    gathers = [
        lambda **more: ttnn.all_gather(x, 3, **more),
        lambda **more: X.all_gather_async(
            x, persistent_output_buffer=None, dim=3, multi_device_global_semaphore=two, **more
        ),
    ]
    scatters = [
        lambda **more: ttnn.reduce_scatter(x, 3, **more),
        lambda **more: X.reduce_scatter_minimal_async(x, None, 3, semaphores(line, 3), **more),
    ]
    only_scatters = name in ("compute_kernel_config", "intermediate_memory_config")
    calls = scatters if only_scatters else gathers
    for call in calls[:1] if name == "use_l1_small_for_semaphores" else calls:
        for _ in range(3):  # what is known by now does not hide it
            call(**{name: None})
        with pytest.raises(TypeError, match=f"{name} must be .*{wanted}"):
            call(**{name: value})


def test_a_sub_device_is_one_that_is_loaded(line):
    x, second = split(line), ttnn.SubDeviceId(1)

    def refuse_second() -> None:
        with pytest.raises(MeshError, match=r"SubDevice index 1 out of bounds 1: .*got subdevice_id=SubDeviceId\(1\)"):
            ttnn.all_gather(x, 3, subdevice_id=second)
        with pytest.raises(MeshError, match="SubDevice index 1 out of bounds 1"):
            ttnn.all_broadcast(x, subdevice_id=second)

    refuse_second()
    cores = [ttnn.CoreRangeSet([ttnn.CoreRange(ttnn.CoreCoord(i, 0), ttnn.CoreCoord(i, 0))]) for i in (0, 1)]
    manager = line.create_sub_device_manager([ttnn.SubDevice([one]) for one in cores], 0)
    line.load_sub_device_manager(manager)
    for _ in range(4):
        ttnn.all_gather(x, 3, subdevice_id=second)
        ttnn.all_broadcast(x, subdevice_id=second)
    line.clear_loaded_sub_device_manager()
    refuse_second()


# -- what messages say -----------------------------------------------------------------------------


def test_a_device_outside_the_mesh_comes_before_the_way_to_it(line):
    with pytest.raises(MeshError, match="Mesh device must contain sender coordinate device"):
        ttnn.point_to_point(split(line), At(5, 5), At(0, 1))
    with pytest.raises(MeshError, match="Mesh device must contain receiver coordinate device"):
        ttnn.point_to_point(split(line), At(0, 0), At(3, 3))


def test_the_element_that_is_no_tensor_is_named(line):
    call, _ = dispatched(line)
    rows = sevens(line, 1, 4, 2, 32, layout=ROWS)
    with pytest.raises(TypeError, match=r"output_tensors\[1\] must be a ttnn.Tensor, got a torch.Tensor \[2, 2\]"):
        call(output_tensors=[rows, torch.zeros(2, 2)])


def test_tensors_of_torch_are_told_as_such_and_by_their_shape(line):
    with pytest.raises(TypeError, match=r"got a torch.Tensor \[2, 2\]. Make one with ttnn.from_torch"):
        ttnn.all_gather(torch.zeros(2, 2), 0)
    with pytest.raises(TypeError, match=r"got a torch.Tensor \[2, 2\]") as error:
        ttnn.all_gather(split(line), 3, output_tensor=torch.zeros(2, 2))
    assert "0., 0." not in str(error.value)


def test_an_axis_of_one_device_is_named_with_a_remedy(line):
    said = r"axis 0 of MeshShape\(\[1, 4\]\) has one device. Use cluster_axis=1"
    with pytest.raises(MeshError, match=f"all_gather collective will only work for num_devices > 1, got 1: {said}"):
        ttnn.all_gather(split(line), 3, cluster_axis=0)
    with pytest.raises(MeshError, match=f"broadcast op will only work for num_devices > 1, .*{said}"):
        ttnn.broadcast(split(line), At(0, 0), cluster_axis=0)


def test_a_mesh_of_three_axes_is_told_its_own(idle_machine):
    ttnn.set_fabric_config(ttnn.FabricConfig.FABRIC_1D)
    with ttnn.create_mesh_device(ttnn.MeshShape(2, 2, 2)) as mesh:
        with pytest.raises(MeshError, match=r"Name the axis \(0 to 2\)") as error:
            ttnn.all_gather(sevens(mesh, 32, 32), 1)
        assert "column" not in str(error.value)
        assert "FABRIC_2D" not in str(error.value)


def test_a_tensor_without_dims_has_none_to_gather(line):
    scalar = ttnn.from_torch(torch.tensor(1.0), device=line)
    with pytest.raises(MeshError, match=r"Invalid gather dim 0 for 0D input tensor: .* has no dims to choose from"):
        ttnn.all_gather(scalar, 0)


def test_a_sum_on_the_host_says_so_in_two_sentences(line):
    with pytest.raises(MeshError, match="Mesh device is required for all_reduce operation: all_reduce got"):
        ttnn.all_reduce(sevens(None, 32, 32))


def test_every_form_is_shown_as_it_is_called(line):
    with pytest.raises(TypeError) as error:
        X.high_bw_all_gather(split(line), 3, None)
    assert "high_bw_all_gather(input_tensor, dim, output_tensor, *, cluster_axis=None" in str(error.value)
    with pytest.raises(TypeError) as error:
        X.all_gather_async(split(line), 3)
    assert str(error.value).count("ttnn.experimental.all_gather_async(input_tensor,") == 3
    assert "out=None" not in str(error.value)


# -- all of it, or none ----------------------------------------------------------------------------


@pytest.mark.parametrize("choice", ["batch_slot_num_layers", "batch_slot_layer_idx", "gathered_slab_global"])
def test_a_part_of_a_batch_is_not_modelled(line, choice):
    x, whole = split(line), sevens(line, 1, 1, 32, 256)
    with pytest.raises(ttnn.NotModelled, match=choice):
        X.high_bw_all_gather(x, 3, whole, cluster_axis=1, **{choice: 2})
    assert untouched(whole)
    default = 1 if choice == "batch_slot_num_layers" else 0
    assert X.high_bw_all_gather(x, 3, whole, cluster_axis=1, **{choice: default}) is whole


def test_a_chosen_expert_that_no_device_holds_is_told(line):
    call, mapping = dispatched(line)
    nobody = ttnn.from_torch(torch.zeros(1, 1, 8, 4), dtype=ttnn.uint16, layout=ROWS, device=line)
    with pytest.warns(ttnn.SoftmeshWarning, match="expert 0 is chosen, and no device holds it: row 0 of"):
        call(nobody)
    call(mapping)


def test_along_an_axis_of_one_device_a_partition_is_its_input(line):
    x = split(line)
    for _ in range(4):
        same = ttnn.mesh_partition(x, 3, 0)
        assert same.buffer_address() == x.buffer_address()
        assert same.tensor_topology() == x.tensor_topology()
    assert torch.equal(*(ttnn.to_torch(t, mesh_composer=ttnn.ConcatMeshToTensor(line, 3)) for t in (x, same)))
    moved = ttnn.mesh_partition(x, 3, 0, memory_config=ttnn.L1_MEMORY_CONFIG)
    assert moved.memory_config() == ttnn.L1_MEMORY_CONFIG
