"""Tensors that lie in the same memory of the chips have the same values, whichever of them is written to."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from operands import R, S, put, random

import softmesh as ttnn

VIEWS: dict[str, Callable[[ttnn.Tensor], ttnn.Tensor]] = {
    "reshape": lambda x: ttnn.reshape(x, [64, 64]),
    "view": lambda x: ttnn.view(x, [2, 1, 32, 64]),
    "unsqueeze": lambda x: ttnn.unsqueeze(x, 0),
    "unsqueeze_to_4D": ttnn.unsqueeze_to_4D,
}


def doubled_into(x: ttnn.Tensor) -> None:
    ttnn.multiply(x, 2.0, output_tensor=x)


def raised_in_place(x: ttnn.Tensor) -> None:
    ttnn.add_(x, 1.0)


def copied_from_the_host(x: ttnn.Tensor) -> None:
    host = ttnn.from_torch(torch.full(tuple(x.shape), 7.0), ttnn.float32, layout=ttnn.TILE_LAYOUT)
    ttnn.copy_host_to_device_tensor(host, x)


WRITES = [doubled_into, raised_in_place, copied_from_the_host]


def values(x: ttnn.Tensor) -> torch.Tensor:
    return ttnn.to_torch(x).reshape(2, 32, 64)


@pytest.mark.parametrize("look", VIEWS.values(), ids=list(VIEWS))
@pytest.mark.parametrize("write", WRITES)
def test_a_write_through_one_is_seen_through_the_other(device, look, write):
    before = random(2, 32, 64)
    alone, x = put(before, device), put(before, device)
    seen = look(x)
    assert seen.buffer_address() == x.buffer_address()
    for written in (seen, x):
        write(written)
        write(alone)
        assert torch.equal(values(x), values(alone))
        assert torch.equal(values(seen), values(alone))


def test_splits_go_over_to_the_other_shape(mesh):
    x = put(random(2, 32, 64), mesh, (S(1), R), layout=ttnn.ROW_MAJOR_LAYOUT)
    seen = ttnn.reshape(x, [1, 2, 16, 64])
    ttnn.copy_host_to_device_tensor(
        ttnn.from_torch(
            torch.arange(2 * 16 * 256.0).reshape(2, 16, 256),
            ttnn.float32,
            layout=ttnn.ROW_MAJOR_LAYOUT,
            mesh_mapper=ttnn.ShardTensor2dMesh(mesh, dims=(None, 2), mesh_shape=(2, 4)),
        ),
        x,
    )
    assert ttnn.placements(seen) == (R, S(3))
    assert torch.equal(ttnn.compose(seen)[0], ttnn.compose(x))


def test_one_device_is_written_to(mesh):
    x = put(torch.zeros(32, 64), mesh)
    seen = ttnn.unsqueeze_to_4D(x)
    ttnn.copy_host_to_device_tensor(
        ttnn.from_torch(torch.ones(1, 1, 32, 64), ttnn.float32, layout=ttnn.TILE_LAYOUT),
        ttnn.get_device_tensors(seen)[3],
    )
    each = [float(ttnn.to_torch(piece).mean()) for piece in ttnn.get_device_tensors(x)]
    assert each == [0, 0, 0, 1, 0, 0, 0, 0]


def test_a_view_of_one_device_and_the_whole_tensor(mesh):
    x = put(torch.zeros(32, 64), mesh)
    seen = ttnn.unsqueeze_to_4D(ttnn.get_device_tensors(x)[3])
    doubled_into(ttnn.add(seen, 1.0, output_tensor=seen))
    each = [float(ttnn.to_torch(piece).mean()) for piece in ttnn.get_device_tensors(x)]
    assert each == [0, 0, 0, 2, 0, 0, 0, 0]
    raised_in_place(x)
    assert float(ttnn.to_torch(seen).mean()) == 3


def test_what_was_moved_is_no_view(device):
    x = put(torch.zeros(2, 32, 64), device)
    copy = ttnn.reshape(x, [2, 64, 32])
    doubled_into(ttnn.add(copy, 1.0, output_tensor=copy))
    assert float(ttnn.to_torch(x).abs().max()) == 0


class TestInTraces:
    def test_a_view_that_was_there_reads_what_its_memory_holds_now(self, traced):
        x = put(torch.ones(2, 32, 64), traced)
        seen = ttnn.reshape(x, [64, 64])
        ttnn.add(seen, 1.0)
        trace = ttnn.begin_trace_capture(traced, cq_id=0)
        result = ttnn.add(seen, 1.0)
        ttnn.end_trace_capture(traced, trace, cq_id=0)
        copied_from_the_host(x)
        ttnn.execute_trace(traced, trace, cq_id=0)
        assert torch.equal(ttnn.to_torch(result), torch.full((64, 64), 8.0))

    def test_a_captured_write_reaches_every_view(self, traced):
        x = put(torch.ones(2, 32, 64), traced)

        def step() -> tuple[ttnn.Tensor, ttnn.Tensor]:
            own = ttnn.add(x, 1.0)
            doubled_into(ttnn.reshape(own, [64, 64]))
            doubled_into(ttnn.reshape(x, [64, 64]))
            return own, ttnn.add(own, x)

        step()
        trace = ttnn.begin_trace_capture(traced, cq_id=0)
        own, total = step()
        ttnn.end_trace_capture(traced, trace, cq_id=0)
        later = ttnn.reshape(own, [64, 64])
        for held in (2.0, 4.0):
            assert float(ttnn.to_torch(x).mean()) == held
            ttnn.execute_trace(traced, trace, cq_id=0)
            assert float(ttnn.to_torch(own).mean()) == 2 * (held + 1)
            assert float(ttnn.to_torch(total).mean()) == 2 * (held + 1) + 2 * held
            assert torch.equal(ttnn.to_torch(later).reshape(2, 32, 64), ttnn.to_torch(own))

    @pytest.fixture
    def traced(self) -> ttnn.MeshDevice:
        with ttnn.create_mesh_device(ttnn.MeshShape(1, 1), trace_region_size=1 << 20) as mesh:
            yield mesh
