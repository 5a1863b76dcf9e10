"""Constants that are large enough to be made when they are first read: the same values as small ones, whoever asks."""

from __future__ import annotations

import pytest
import torch

import softmesh as ttnn
from softmesh.tensor.pending_storage import has_deferred_values
from softmesh.tensor.storage import is_sole_owner

SHAPE = (1, 1, 1024, 1024)
DTYPES = [ttnn.bfloat16, ttnn.float32, ttnn.bfloat8_b, ttnn.bfloat4_b, ttnn.int32, ttnn.uint32, ttnn.uint16]


@pytest.fixture(scope="module")
def mesh():
    with ttnn.create_mesh_device(ttnn.MeshShape(1, 2), trace_region_size=1 << 20) as opened:
        yield opened


def on_first(tensor: ttnn.Tensor) -> torch.Tensor:
    return ttnn.to_torch(ttnn.get_device_tensors(tensor)[0])


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("value", [0, 3, 2.7])
def test_a_large_constant_has_the_values_of_a_small_one(mesh, dtype, value):
    large = ttnn.full(SHAPE, value, dtype, ttnn.TILE_LAYOUT, mesh)
    small = ttnn.full((1, 1, 32, 32), value, dtype, ttnn.TILE_LAYOUT, mesh)
    wanted = on_first(small)
    assert torch.equal(on_first(large), wanted[:, :, :1, :1].expand(SHAPE))
    assert on_first(large).dtype == wanted.dtype


def test_values_are_made_when_they_are_read_and_then_belong_to_the_tensor(mesh):
    ones = ttnn.ones(SHAPE, ttnn.bfloat16, ttnn.TILE_LAYOUT, mesh)
    assert has_deferred_values(ones.storage)
    address = ones.buffer_address()
    ttnn.add_(ones, 1.0)
    assert not has_deferred_values(ones.storage)
    assert ones.buffer_address() == address
    assert is_sole_owner(ones.storage.data)
    assert on_first(ones).unique().tolist() == [2.0]


def test_whoever_writes_all_of_it_needs_no_values(mesh):
    target = ttnn.ones(SHAPE, ttnn.bfloat16, ttnn.TILE_LAYOUT, mesh)
    host = ttnn.from_torch(
        torch.arange(2.0).reshape(2, 1, 1, 1).expand(2, *SHAPE[1:]).bfloat16(),
        layout=ttnn.TILE_LAYOUT,
        mesh_mapper=ttnn.ShardTensorToMesh(mesh, dim=0),
    )
    ttnn.copy_host_to_device_tensor(host, target)
    assert [ttnn.to_torch(piece).unique().item() for piece in ttnn.get_device_tensors(target)] == [0.0, 1.0]


@pytest.mark.parametrize("value", [0.0, 1.0])
def test_traces_read_a_constant_and_write_into_one(mesh, value):
    constant = ttnn.full(SHAPE, value, ttnn.bfloat16, ttnn.TILE_LAYOUT, mesh)
    out = ttnn.empty(SHAPE, ttnn.bfloat16, ttnn.TILE_LAYOUT, mesh)
    other = ttnn.full(SHAPE, value, ttnn.bfloat16, ttnn.TILE_LAYOUT, mesh)
    ttnn.add(other, 2.0, output_tensor=ttnn.empty(SHAPE, ttnn.bfloat16, ttnn.TILE_LAYOUT, mesh))  # compiles it
    trace = ttnn.begin_trace_capture(mesh, cq_id=0)
    ttnn.add(constant, 2.0, output_tensor=out)
    ttnn.end_trace_capture(mesh, trace, cq_id=0)
    ttnn.add_(constant, 1.0)
    ttnn.execute_trace(mesh, trace, cq_id=0)
    assert on_first(out).unique().tolist() == [value + 3.0]
    ttnn.release_trace(mesh, trace)


def test_no_constant_is_made_that_the_chips_have_no_room_for(mesh):
    with pytest.raises(RuntimeError, match="Out of Memory"):
        ttnn.ones((1 << 10, 1 << 10, 1 << 10, 32), ttnn.bfloat16, ttnn.TILE_LAYOUT, mesh)
