"""What collectives are given beside their operands: outputs, scratch, semaphores, tuning.

Wrong ones are refused, and then nothing has been written.
"""

from __future__ import annotations

from collections.abc import Iterator
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


# -- scratch and semaphores ------------------------------------------------------------------------


def test_scratch_must_be_allocated_on_the_mesh(line, other):
    x, two = split(line), semaphores(line)
    output, product = sevens(line, 1, 1, 32, 16), sevens(line, 1, 1, 32, 8)
    weight = sevens(line, 1, 1, 64, 32)
    calls = [
        lambda scratch: X.reduce_scatter_minimal_async(x, [scratch, output], 3, two, cluster_axis=1),
        lambda scratch: X.all_reduce_async(x, scratch, 1, line, two[0]),
        lambda scratch: X.matmul_reduce_scatter_async(
            x, weight, scratch, product, 3, two, ttnn.CoreCoord(0, 4)
        ),
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
        lambda given: X.reduce_scatter_minimal_async(x, dim=3, multi_device_global_semaphore=given),
    ]
    for call in calls:
        call(mine)
        with pytest.raises(MeshError, match=r"multi_device_global_semaphore\[0\] is a semaphore of"):
            call(theirs)
        with pytest.raises(MeshError, match="are the same semaphore"):
            call([mine[0]] * 2)
    with pytest.raises(MeshError, match="empty list: give at least one"):
        calls[1]([])
    with pytest.raises(MeshError, match="Default implementation requires 2 semaphores"):
        calls[0]([])
    with pytest.raises(MeshError, match="barrier_semaphore is a semaphore of"):
        X.all_gather_async(x, dim=3, multi_device_global_semaphore=mine, barrier_semaphore=theirs[0])


def test_halos_take_a_semaphore_for_each_dim(line):
    x, two = sevens(line, 1, 4, 4, 32, layout=ROWS), semaphores(line)
    with pytest.raises(MeshError, match="neighbor_semaphore needs one entry for each padded dim"):
        X.neighbor_pad_async(x, [1], [1], [1], "zeros", [1], two, two[:1])


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
        lambda **more: X.reduce_scatter_minimal_async(x, None, 3, two, **more),
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
        with pytest.raises(
            MeshError, match=r"SubDevice index 1 out of bounds 1: .*got subdevice_id=SubDeviceId\(1\)"
        ):
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
