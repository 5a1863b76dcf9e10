"""Ctrl-C at any line leaves the mesh usable: the next run has the same values, and all memory comes back.

A KeyboardInterrupt is raised at one line of the package after the other. Here every few lines, others by
SOFTMESH_INTERRUPT_EVERY=1.
"""

from __future__ import annotations

import gc
import linecache
import os
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest
import torch

import softmesh as ttnn

PACKAGE = os.path.dirname(ttnn.__file__)
EVERY = int(os.environ.get("SOFTMESH_INTERRUPT_EVERY", "53"))
VALUES = torch.arange(2.0 * 32 * 64).reshape(2 * 32, 64) % 7


def steps(mesh: ttnn.MeshDevice) -> torch.Tensor:
    """Tensors come and go in both memories: results, views, collectives, values written in place, addresses."""
    rows = ttnn.ShardTensorToMesh(mesh, 0)
    x = ttnn.from_torch(VALUES, dtype=ttnn.bfloat16, layout=ttnn.TILE_LAYOUT, device=mesh, mesh_mapper=rows)
    y = ttnn.add(x, x)
    z = ttnn.matmul(y, ttnn.transpose(x, -2, -1), memory_config=ttnn.L1_MEMORY_CONFIG)
    view = ttnn.reshape(z, (1, 1, 32, 32))
    total = ttnn.all_reduce(z, cluster_axis=1)
    ttnn.deallocate(y)
    ttnn.multiply(x, 2.0, output_tensor=x)
    assert total.buffer_address() != view.buffer_address()
    return ttnn.to_torch(ttnn.get_device_tensors(total)[0])


def buffers(mesh: ttnn.MeshDevice) -> torch.Tensor:
    """Buffers with addresses of their own, semaphores, and a trace."""
    cores = ttnn.CoreRangeSet([ttnn.CoreRange((0, 0), (1, 1))])
    semaphore = ttnn.create_global_semaphore(mesh, cores, 0)
    x = ttnn.from_torch(VALUES, dtype=ttnn.float32, layout=ttnn.TILE_LAYOUT, device=mesh)
    y = ttnn.add(x, 1.0)
    ttnn.reset_global_semaphore_value(semaphore, 1)
    return ttnn.to_torch(ttnn.get_device_tensors(y)[0])


def captures(mesh: ttnn.MeshDevice) -> torch.Tensor:
    """A trace; what an interrupt left open is ended first, as a program can."""
    for queue, left in list(mesh.captures.recordings.items()):
        ttnn.end_trace_capture(mesh, left.number, cq_id=queue)
    for number in list(mesh.captures.traces):
        ttnn.release_trace(mesh, number)
    x = ttnn.from_torch(VALUES, dtype=ttnn.float32, layout=ttnn.TILE_LAYOUT, device=mesh)
    ttnn.add(x, x)
    trace = ttnn.begin_trace_capture(mesh, cq_id=0)
    y = ttnn.add(x, x)
    ttnn.end_trace_capture(mesh, trace, cq_id=0)
    ttnn.execute_trace(mesh, trace, cq_id=0)
    found = ttnn.to_torch(ttnn.get_device_tensors(y)[0])
    ttnn.release_trace(mesh, trace)
    return found


class Interrupt:
    """A trace function that raises at the line of the package of this number, counted from the start."""

    def __init__(self, number: int) -> None:
        self.number, self.lines = number, 0
        self.where = ""

    def __call__(self, frame: FrameType, event: str, _: Any) -> Callable[..., Any] | None:
        return self.line if frame.f_code.co_filename.startswith(PACKAGE) else None

    def line(self, frame: FrameType, event: str, _: Any) -> Callable[..., Any]:
        self.lines += event == "line"
        if event == "line" and self.lines >= self.number > 0 and not _enters_or_leaves(frame):
            self.where = f"{frame.f_code.co_filename}:{frame.f_lineno}"
            sys.settrace(None)
            raise KeyboardInterrupt
        return self.line


def _enters_or_leaves(frame: FrameType) -> bool:
    """At `with lock:`, where the interpreter looks for no signal between the lock and the block, on either side."""
    return linecache.getline(frame.f_code.co_filename, frame.f_lineno).lstrip().startswith("with ")


def interrupted(program: Callable[[], object], number: int) -> Interrupt:
    before, interrupt = sys.gettrace(), Interrupt(number)
    sys.settrace(interrupt)
    try:
        program()
    except KeyboardInterrupt:
        pass
    finally:
        sys.settrace(before)
    return interrupt


def statistics(mesh: ttnn.MeshDevice) -> list[object]:
    gc.collect()
    return [mesh.allocator().get_statistics(kind) for kind in (ttnn.BufferType.DRAM, ttnn.BufferType.L1)]


@pytest.fixture
def collected(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is there before is not looked through each time, and what `__del__` raises is not kept by pytest."""
    monkeypatch.setattr(sys, "unraisablehook", lambda _: None)
    gc.collect()
    gc.freeze()


@pytest.mark.usefixtures("idle_machine", "collected")
@pytest.mark.parametrize("program", [steps, buffers, captures])
@pytest.mark.parametrize("queues", [1, 2])
def test_ctrl_c_at_any_line_leaves_the_mesh_usable(program, queues):
    ttnn.set_fabric_config(ttnn.FabricConfig.FABRIC_1D)
    mesh = ttnn.open_mesh_device(ttnn.MeshShape(1, 2), num_command_queues=queues)
    expected = program(mesh)
    program(mesh)
    empty = statistics(mesh)
    lines = interrupted(lambda: program(mesh), 0).lines
    assert lines > 100
    for number in range(1, lines, EVERY):
        where = interrupted(lambda: program(mesh), number).where
        assert torch.equal(program(mesh), expected), where
        assert statistics(mesh) == empty, where
    ttnn.close_mesh_device(mesh)
