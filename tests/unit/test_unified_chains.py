"""Repeated unified calls run their plan's computations straight: the same values, and all that others rely on."""

from __future__ import annotations

import threading

import pytest
import torch
from unified_operands import commands_of, mesh_of, spread, value_of

import softmesh as ttnn
from softmesh import distributed
from softmesh.dispatch.operation import Operation
from softmesh.placement.placements import REPLICATE as R
from softmesh.placement.placements import Shard
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


def commands_in_a_run(x, w):
    """Those that go through the ops: none, where a run is straight."""
    names = []

    def note(self, *args, **kwargs):
        names.append(self.name)
        return original(self, *args, **kwargs)

    original = Operation.__call__
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Operation, "__call__", note)
        product(x, w)
    return names


def test_each_repetition_gives_the_values_of_its_own_operands(mesh):
    for _ in range(5):
        a, b, x, w = factors(mesh)
        torch.testing.assert_close(value_of(product(x, w)), a @ b, atol=2e-4, rtol=2e-4)


def test_repetitions_have_the_bits_of_the_first_run(mesh):
    _, _, x, w = factors(mesh, (32, 64, 160))
    runs = [value_of(product(x, w)) for _ in range(4)]
    assert all(torch.equal(runs[0], run) for run in runs)


def test_a_call_with_one_tensor_twice_tells_nothing_of_calls_with_two(mesh):
    a, b = torch.randn(64, 64), torch.randn(64, 64)
    x, y = (spread(values, mesh, (R, Shard(1))) for values in (a, b))
    for _ in range(5):
        found = distributed.matmul(x, x, output_topology=[R, R])
        torch.testing.assert_close(value_of(found), a @ a, atol=2e-4, rtol=2e-4)
    for _ in range(5):
        found = distributed.matmul(x, y, output_topology=[R, R])
        torch.testing.assert_close(value_of(found), a @ b, atol=2e-4, rtol=2e-4)
        assert torch.equal(value_of(distributed.subtract(x, x)), torch.zeros_like(a))
        assert torch.equal(value_of(distributed.subtract(x, y)), a - b)


def test_numbers_are_told_apart_by_their_sign(mesh):
    ones = spread(torch.ones(32, 32), mesh, (R, Shard(1)))
    for _ in range(4):
        assert not value_of(distributed.multiply(ones, 0.0)).signbit().any()
        assert value_of(distributed.multiply(ones, -0.0)).signbit().all()


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
    assert mesh.num_program_cache_entries() == 3  # a product, and an all_reduce of two


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


def test_what_was_trained_first_runs_straight_later(mesh):
    _, _, x, w = factors(mesh, (32, 64, 288))
    x.requires_grad_()
    product(x, w)
    with ttnn.train.no_grad():
        for _ in range(4):
            product(x, w)
        assert commands_in_a_run(x, w) == []


def test_other_threads_leave_no_trace_in_a_run(mesh):
    _, _, x, w = factors(mesh, (32, 64, 320))
    product(x, w)
    product(x, w)
    ends = threading.Event()

    def meanwhile():
        with ttnn.lenient():
            while not ends.is_set():
                ttnn.relu(x)

    other = threading.Thread(target=meanwhile)
    other.start()
    try:
        runs = [value_of(product(x, w)) for _ in range(20)]
    finally:
        ends.set()
        other.join()
    assert all(torch.equal(runs[0], run) for run in runs)
    assert commands_in_a_run(x, w) == []


def test_no_more_memory_is_needed_the_second_time(mesh):
    """The ops of a run let go of what they read last."""
    a = torch.randn(512, 256)
    x = spread(a, mesh, (Shard(1), Shard(1)))
    w = spread(a.mT.contiguous(), mesh, (Shard(0), Shard(0)))
    dram = mesh.memory.pools[ttnn.BufferType.DRAM]
    needed = []
    for _ in range(5):
        highest = [0]
        allocate = dram.allocate

        def measured(*args, allocate=allocate, highest=highest):
            claim = allocate(*args)
            highest[0] = max(highest[0], dram.statistics().total_allocated_bytes)
            return claim

        dram.allocate = measured
        try:
            distributed.matmul(x, w, output_topology=[R, R])
        finally:
            del dram.allocate
        needed.append(highest[0])
    assert max(needed) == needed[0]


def test_a_deallocated_operand_is_still_refused(mesh):
    _, _, x, w = factors(mesh, (32, 64, 224))
    for _ in range(3):
        product(x, w)
    ttnn.deallocate(x)
    with pytest.raises(ttnn.MeshError, match="allocated"):
        product(x, w)
