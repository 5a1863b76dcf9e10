"""Programs recorded by ttnn.light_metal_begin_capture make the same calls, with the same results, when they are run."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import pytest
import torch

import softmesh as ttnn
from softmesh.light_metal.binary_format import LightMetalBinary, packed, unpacked

R = ttnn.ROW_MAJOR_LAYOUT


def recorded(program: Any, *args: Any) -> tuple[Any, LightMetalBinary]:
    ttnn.light_metal_begin_capture()
    try:
        made = program(*args)
    finally:
        binary = ttnn.light_metal_end_capture()
    return made, binary


class Results:
    """What to_torch returned while a program was run again."""

    def __init__(self, binary: LightMetalBinary, mesh: ttnn.MeshDevice | None) -> None:
        self.values: list[torch.Tensor] = []
        with ttnn.register_post_operation_hook(self.look):
            self.success = ttnn.LightMetalReplay.create(binary, mesh).run()

    def look(self, op: Any, args: Any, kwargs: Any, output: Any) -> None:
        if isinstance(output, torch.Tensor):
            self.values.append(output)


def program(mesh: ttnn.MeshDevice, before: ttnn.Tensor) -> torch.Tensor:
    shards = ttnn.create_sharded_memory_config((32, 64), ttnn.CoreGrid(y=1, x=2), ttnn.ShardStrategy.WIDTH)
    x = ttnn.from_torch(
        torch.arange(2.0 * 32 * 64).reshape(2, 32, 64) / 1000,
        dtype=ttnn.bfloat16,
        layout=ttnn.TILE_LAYOUT,
        device=mesh,
        mesh_mapper=ttnn.ShardTensorToMesh(mesh, dim=0),
    )
    x = ttnn.to_memory_config(x, shards)
    x = ttnn.add(x, before, activations=[ttnn.UnaryWithParam(ttnn.UnaryOpType.RELU)])
    half, other = ttnn.split(ttnn.to_memory_config(x, ttnn.DRAM_MEMORY_CONFIG), 32, dim=2)
    ttnn.deallocate(x)
    return ttnn.to_torch(ttnn.matmul(half, other), mesh_composer=ttnn.ConcatMeshToTensor(mesh, dim=0))


@pytest.fixture
def mesh():
    opened = ttnn.open_mesh_device(ttnn.MeshShape(1, 2))
    yield opened
    ttnn.close_mesh_device(opened)


def test_a_recorded_program_computes_the_same_from_a_file_and_on_a_mesh_of_its_own(mesh, tmp_path: Path):
    before = ttnn.from_torch(torch.ones(1, 32, 64), dtype=ttnn.bfloat16, layout=ttnn.TILE_LAYOUT, device=mesh)
    made, binary = recorded(program, mesh, before)
    ttnn.multiply_(before, 0)  # kept as it was when the program used it
    binary.save_to_file(str(tmp_path / "program.bin"))
    loaded = LightMetalBinary.load_from_file(str(tmp_path / "program.bin"))
    assert (loaded.size(), loaded.is_empty(), loaded.get_data() == binary.get_data()) == (binary.size(), False, True)
    for where in (mesh, None):
        again = Results(loaded, where)
        assert again.success is True
        assert len(again.values) == 1
        assert torch.equal(again.values[0], made)


def test_traces_are_recorded_too():
    device = ttnn.open_device(device_id=0, trace_region_size=1 << 16)

    def traced() -> torch.Tensor:
        x = ttnn.from_torch(torch.ones(32, 32), dtype=ttnn.float32, layout=ttnn.TILE_LAYOUT, device=device)
        ttnn.multiply(x, 2)
        trace = ttnn.begin_trace_capture(device, cq_id=0)
        y = ttnn.multiply(x, 2)
        ttnn.end_trace_capture(device, trace, cq_id=0)
        for value in (3.0, 4.0):
            ttnn.copy_host_to_device_tensor(
                ttnn.from_torch(torch.full((32, 32), value), dtype=ttnn.float32, layout=ttnn.TILE_LAYOUT), x
            )
            ttnn.execute_trace(device, trace, cq_id=0, blocking=True)
        ttnn.release_trace(device, trace)
        return ttnn.to_torch(y)

    made, binary = recorded(traced)
    again = Results(binary, device)
    ttnn.close_device(device)
    assert again.success
    assert again.values[-1].unique().tolist() == made.unique().tolist() == [8.0]


def test_captures_do_not_nest_and_need_a_beginning():
    with pytest.raises(ttnn.MeshError, match="no capture is under way"):
        ttnn.light_metal_end_capture()
    ttnn.light_metal_begin_capture()
    with pytest.raises(ttnn.MeshError, match="a capture is under way"):
        ttnn.light_metal_begin_capture()
    empty = ttnn.light_metal_end_capture()
    assert ttnn.LightMetalReplay.create(empty).run() is True


@pytest.mark.parametrize(
    "damage",
    [
        lambda d: [],
        lambda d: d[:-1],
        lambda d: [0, *d[1:]],
        lambda d: [*d[:31], 0, *d[32:]],
        lambda d: [*d[:70], d[70] ^ 1, *d[71:]],
    ],
)
def test_bytes_that_are_no_program_are_refused(mesh, damage):
    _, binary = recorded(lambda: ttnn.relu(ttnn.ones([32, 32], device=mesh, layout=ttnn.TILE_LAYOUT)))
    with pytest.raises(ttnn.MeshError, match="LightMetalReplay: "):
        ttnn.LightMetalReplay.create(LightMetalBinary(damage(binary.get_data())), mesh)


def test_a_run_that_fails_says_so_and_why(mesh):
    _, binary = recorded(lambda: ttnn.relu(ttnn.ones([32, 32], device=mesh, layout=ttnn.TILE_LAYOUT)))
    table, blobs = unpacked(binary)
    table["calls"] = [{**call, "name": call["name"].replace("relu", "rely")} for call in table["calls"]]
    other_name = packed(table, blobs)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        assert ttnn.LightMetalReplay.create(other_name, mesh).run() is False
    assert "calls of rely cannot be recorded" in str(told[-1].message)
    other = ttnn.open_mesh_device(ttnn.MeshShape(1, 1))
    with pytest.raises(ttnn.MeshError, match=r"recorded on a mesh \[1, 2\]"):
        ttnn.LightMetalReplay.create(binary, other)
    ttnn.close_mesh_device(other)
