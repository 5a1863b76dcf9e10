"""Tensors without values: shapes as torch would make them, zeros to read, and no memory behind them."""

from __future__ import annotations

import resource

import pytest
import torch

import softmesh as ttnn
from softmesh.value_free import is_value_free, without_values

_SIDE = 1 << 14  # a square of this takes a gibibyte as float32


def test_what_is_large_takes_no_memory_and_reads_as_zeros() -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with without_values():
        weight = torch.randn(_SIDE, _SIDE, generator=torch.Generator().manual_seed(1))
        weight *= 2
        product = torch.randn(64, _SIDE) @ weight.T.contiguous()
        joined = torch.cat([weight, weight], dim=1)
    assert product.shape == (64, _SIDE)
    assert joined.shape == (_SIDE, 2 * _SIDE)
    assert not weight[:4, :4].any()
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 100_000  # kB


def test_what_is_small_is_computed() -> None:
    with without_values():
        assert torch.arange(10).sum() == 45
        assert (torch.ones(8, 8) @ torch.ones(8, 8))[0, 0] == 8


@pytest.mark.parametrize(
    "compute",
    [
        lambda x: x.reshape(-1, 4).sum(0),
        lambda x: torch.nn.functional.pad(x, (0, 3)),
        lambda x: torch.topk(x, 5).indices,
        lambda x: x.to(torch.bfloat16).view(torch.int16),
        lambda x: x.unsqueeze(0).expand(3, -1, -1).permute(1, 0, 2)[5:7],
        lambda x: x[torch.tensor([1, 2])],
        lambda x: torch.nn.functional.embedding(torch.tensor([3]), x),
        lambda x: x.clone().index_fill_(0, torch.tensor([1]), 7.0),
        lambda x: torch.stack([x, x]).mean(0, keepdim=True),
        lambda x: x.view(torch.uint8),
    ],
)
def test_shapes_and_dtypes_are_those_of_torch(compute: object) -> None:
    expected = compute(torch.zeros(160, 128))  # type: ignore[operator]
    with without_values():
        found = compute(torch.zeros(160, 128))  # type: ignore[operator]
    assert (found.shape, found.dtype) == (expected.shape, expected.dtype)


def test_looking_for_values_finds_zeros() -> None:
    with without_values():
        x = torch.ones(200, 200)
        assert is_value_free(x)
        assert x.sum().item() == 0
        assert x.nonzero().shape == (0, 2)
        assert torch.equal(x, x)
        assert torch.allclose(x, x + 1)
    assert not is_value_free(x)


def test_gradients_have_shapes_too() -> None:
    with without_values():
        layer = torch.nn.Linear(512, 512)
        layer(torch.ones(64, 512)).sum().backward()
    assert layer.weight.grad is not None
    assert layer.weight.grad.shape == (512, 512)


def test_a_mesh_program_runs_without_values(idle_machine: None) -> None:
    ttnn.set_fabric_config(ttnn.FabricConfig.FABRIC_1D)
    mesh = ttnn.open_mesh_device(ttnn.MeshShape(2, 4))
    columns = ttnn.ShardTensorToMesh(mesh, dim=-1)
    with without_values():
        w = ttnn.from_torch(
            torch.randn(256, 4096), ttnn.bfloat8_b, layout=ttnn.TILE_LAYOUT, device=mesh, mesh_mapper=columns
        )
        x = ttnn.from_torch(torch.randn(64, 256), ttnn.bfloat16, layout=ttnn.TILE_LAYOUT, device=mesh)
        y = ttnn.all_gather(ttnn.gelu(ttnn.matmul(x, w)), dim=-1, cluster_axis=1)
        total = ttnn.all_reduce(ttnn.matmul(x, w), cluster_axis=0)
        back = ttnn.to_torch(y, mesh_composer=ttnn.ConcatMeshToTensor(mesh, dim=0))
    assert y.shape == (64, 2048)
    assert total.shape == (64, 512)
    assert back.shape == (64 * 8, 2048)
    assert not back.any()
    ttnn.close_mesh_device(mesh)


def test_after_the_block_values_are_computed_again() -> None:
    threads = torch.get_num_threads()
    with without_values():
        torch.ones(1000, 1000)
    assert torch.get_num_threads() == threads
    assert torch.ones(1000, 1000).sum() == 1_000_000


def test_replays_compute_what_is_small_and_nothing_else(idle_machine: None) -> None:
    mesh = ttnn.open_mesh_device(ttnn.MeshShape(1, 2), trace_region_size=1 << 20)

    def placed(data: torch.Tensor) -> ttnn.Tensor:
        return ttnn.from_torch(data, ttnn.float32, layout=ttnn.TILE_LAYOUT, device=mesh)

    with without_values():
        large, small = placed(torch.ones(256, 256)), placed(torch.ones(32, 32))
        ttnn.matmul(large, large), ttnn.add(small, small)  # compiled before they are captured
        trace = ttnn.begin_trace_capture(mesh, cq_id=0)
        wide = ttnn.matmul(large, large)
        more = ttnn.add(small, small)
        ttnn.end_trace_capture(mesh, trace, cq_id=0)
        for value in (1.0, 3.0, 5.0):
            ttnn.copy_host_to_device_tensor(
                ttnn.from_torch(torch.full((32, 32), value), ttnn.float32, layout=ttnn.TILE_LAYOUT), small
            )
            ttnn.execute_trace(mesh, trace, cq_id=0)
            assert ttnn.to_torch(ttnn.get_device_tensors(more)[0])[0, 0] == 2 * value
        assert tuple(wide.shape) == (256, 256)
        assert not ttnn.to_torch(ttnn.get_device_tensors(wide)[0]).any()
        ttnn.release_trace(mesh, trace)
    ttnn.close_mesh_device(mesh)
