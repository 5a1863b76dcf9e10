"""Repeated unified calls run their plan's computations straight: the same values, and all that others rely on."""

from __future__ import annotations

import pytest
import torch
from unified_operands import commands_of, mesh_of, spread, value_of

import softmesh as ttnn
from softmesh import distributed
from softmesh.placement.words import REPLICATE as R
from softmesh.placement.words import Shard
from softmesh.tensor.footprint import footprint


@pytest.fixture
def mesh():
    return mesh_of(2, 4)


@pytest.fixture(autouse=True)
def without_a_fabric():
    with ttnn.lenient():
        yield


def factors(mesh, shape=(32, 64, 96)):
    m, k, n = shape
    a, b = torch.randn(m, k), torch.randn(k, n)
    return a, b, spread(a, mesh, (Shard(0), Shard(1))), spread(b, mesh, (R, Shard(0)))


def product(x, w):
    return distributed.matmul(x, w, output_topology=[Shard(0), R])


def test_each_repetition_gives_the_values_of_its_own_operands(mesh):
    for _ in range(5):
        a, b, x, w = factors(mesh)
        torch.testing.assert_close(value_of(product(x, w)), a @ b, atol=2e-4, rtol=2e-4)


def test_repetitions_have_the_bits_of_the_first_run(mesh):
    _, _, x, w = factors(mesh, (32, 64, 160))
    runs = [value_of(product(x, w)) for _ in range(4)]
    assert all(torch.equal(runs[0], run) for run in runs)


def test_the_same_tensor_may_stand_twice(mesh):
    a = torch.randn(64, 64)
    x = spread(a, mesh, (R, Shard(1)))
    for _ in range(4):
        found = distributed.matmul(x, x, output_topology=[R, R])
        torch.testing.assert_close(value_of(found), a @ a, atol=2e-4, rtol=2e-4)


def test_observers_see_every_op_of_every_repetition(mesh):
    _, _, x, w = factors(mesh)
    for _ in range(3):
        product(x, w)
    with commands_of() as names:
        product(x, w)
    assert names == ["matmul", "all_reduce"]
    product(x, w)


def test_what_lies_between_takes_memory_while_it_is_needed():
    mesh = ttnn.open_mesh_device(ttnn.MeshShape(2, 4))
    _, _, x, w = factors(mesh, (512, 4096, 512))  # contributions that are added up
    for _ in range(3):
        result = product(x, w)
    dram = mesh.memory.pools[ttnn.BufferType.DRAM]
    rooms = [(at, at + size) for at, size, is_taken in dram.blocks() if not is_taken]
    spare = footprint(result.spec, mesh.memory.memory_map).bytes_per_bank + dram.region.grain
    dram.occupy([*rooms[:-1], (rooms[-1][0], rooms[-1][1] - spare)], "nearly all of it")
    with pytest.raises(ttnn.OutOfDeviceMemory):  # the result alone would fit
        product(x, w)
    ttnn.deallocate(result)
    product(x, w)
    ttnn.close_mesh_device(mesh)


def test_a_released_program_cache_counts_anew(mesh):
    _, _, x, w = factors(mesh, (32, 64, 128))
    for _ in range(3):
        product(x, w)
    mesh.clear_program_cache()
    product(x, w)
    assert mesh.num_program_cache_entries() == 2


def test_gradients_flow_through_repetitions_too(mesh):
    _, _, x, w = factors(mesh, (32, 64, 192))
    for _ in range(3):
        product(x, w)
    asking = ttnn.from_torch(
        torch.randn(32, 64),
        layout=ttnn.TILE_LAYOUT,
        device=mesh,
        dtype=ttnn.float32,
        mesh_mapper=ttnn.ShardTensor2dMesh(mesh, (2, 4), dims=(0, 1)),
    )
    asking.requires_grad_()
    result = product(asking, w)
    assert result.requires_grad
    result.backward(gradient=ttnn.ones_like(result))
    assert asking.grad is not None


def test_a_deallocated_operand_is_still_refused(mesh):
    _, _, x, w = factors(mesh, (32, 64, 224))
    for _ in range(3):
        product(x, w)
    ttnn.deallocate(x)
    with pytest.raises(ttnn.MeshError, match="allocated"):
        product(x, w)
