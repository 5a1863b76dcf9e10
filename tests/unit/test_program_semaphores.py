"""The L1 that collectives keep for their semaphores, as long as their programs are cached."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch

import softmesh as ttnn

pytestmark = pytest.mark.usefixtures("idle_machine")
MIB = 1024 * 1024


@contextmanager
def opened(**options: Any) -> Iterator[ttnn.MeshDevice]:
    ttnn.set_fabric_config(ttnn.FabricConfig.FABRIC_1D)
    with ttnn.create_mesh_device(ttnn.MeshShape(1, 2), **options) as mesh:
        yield mesh


def in_l1(mesh: ttnn.MeshDevice, of_a_core: float) -> ttnn.Tensor:
    grid = mesh.compute_with_storage_grid_size()
    width = int(of_a_core * MIB) * grid.x * grid.y // 2 // 32 // 32 * 32
    return ttnn.empty([1, 1, 32, width], ttnn.bfloat16, ttnn.TILE_LAYOUT, mesh, ttnn.L1_MEMORY_CONFIG)


def operand(mesh: ttnn.MeshDevice) -> ttnn.Tensor:
    return ttnn.from_torch(torch.ones(64, 64), ttnn.bfloat16, layout=ttnn.TILE_LAYOUT, device=mesh)


def run_below(call: Callable[[ttnn.Tensor], Any], mesh: ttnn.MeshDevice) -> None:
    """Below a tensor in L1, which is there no longer when the collective has run."""
    first = in_l1(mesh, 0.8)
    call(operand(mesh))
    first.deallocate(True)


def no_room() -> Any:
    return pytest.raises(RuntimeError, match="Out of Memory: Not enough space to allocate")


SMALL = {"use_l1_small_for_semaphores": True}
CALLS: dict[str, Callable[..., Any]] = {
    "all_gather": lambda x, **how: ttnn.all_gather(x, 1),
    "reduce_scatter": lambda x, **how: ttnn.reduce_scatter(x, 1, **how),
    "all_broadcast": ttnn.all_broadcast,
}


@pytest.mark.parametrize("name", CALLS)
def test_semaphores_lie_below_what_was_in_l1_and_outlive_it(name):
    with opened() as mesh:
        run_below(CALLS[name], mesh)
        with no_room():
            in_l1(mesh, 1.0)
        mesh.clear_program_cache()
        in_l1(mesh, 1.0)


@pytest.mark.parametrize("name", CALLS)
def test_semaphores_in_l1_small_are_out_of_the_way(name):
    with opened(l1_small_size=512) as mesh:
        run_below(lambda x: CALLS[name](x, **SMALL), mesh)
        in_l1(mesh, 1.0)


@pytest.mark.parametrize("name", ["reduce_scatter", "all_broadcast"])
def test_where_it_must_be_asked_for_l1_small_is_not_taken_unasked(name):
    with opened(l1_small_size=512) as mesh:
        run_below(CALLS[name], mesh)
        with no_room():
            in_l1(mesh, 1.0)


def test_one_program_makes_its_semaphores_once_and_none_without_a_cache():
    with opened() as mesh:
        for _ in range(3):
            ttnn.all_gather(operand(mesh), 1)
        assert len(mesh.program_buffers) == 2
        ttnn.all_reduce(operand(mesh))
        assert len(mesh.program_buffers) == 8
        mesh.disable_and_clear_program_cache()
        ttnn.all_gather(operand(mesh), 0)
        assert not mesh.program_buffers


def test_what_never_leaves_a_chip_or_is_given_semaphores_makes_none():
    with opened() as mesh:
        ttnn.mesh_partition(operand(mesh), 1)
        cores = ttnn.CoreRangeSet([ttnn.CoreRange(ttnn.CoreCoord(0, 0), ttnn.CoreCoord(1, 1))])
        two = [ttnn.create_global_semaphore(mesh, cores, 0) for _ in range(2)]
        ttnn.experimental.all_gather_async(operand(mesh), 1, multi_device_global_semaphore=two)
        assert not mesh.program_buffers
