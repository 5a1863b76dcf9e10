"""Names that test suites touch beside the ops: profiling, dispatch, reports, native modules, enums."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from click.testing import CliRunner

import softmesh as ttnn

# -- profiling and dispatch --------------------------------------------------------------------------


def test_profiling_checks_its_arguments_and_has_nothing_to_tell(device: ttnn.MeshDevice):
    assert ttnn.ReadDeviceProfiler(device) is None
    assert ttnn.get_latest_programs_perf_data() == {}
    assert ttnn.device.IsProgramRealtimeProfilerActive() is False
    ttnn.start_tracy_zone("file.py", "function", 3)
    ttnn.stop_tracy_zone()
    ttnn.tracy_message("here")
    ttnn.tracy_frame()
    with pytest.raises(TypeError, match="device must be a MeshDevice"):
        ttnn.ReadDeviceProfiler(None)
    with pytest.raises(TypeError, match="source must be a text"):
        ttnn.tracy_message(3)
    with pytest.raises(TypeError, match="callback must be a function"):
        ttnn.device.RegisterProgramRealtimeProfilerCallback(3)
    handle = ttnn.device.RegisterProgramRealtimeProfilerCallback(print)
    ttnn.device.UnregisterProgramRealtimeProfilerCallback(handle)


def test_a_closed_device_has_no_profile():
    mesh = ttnn.open_mesh_device(ttnn.MeshShape(1, 1))
    mesh.close()
    with pytest.raises(ttnn.MeshError, match="is closed"):
        ttnn.ReadDeviceProfiler(mesh)


def test_dispatch_modes_are_kept_for_each_mesh(device: ttnn.MeshDevice, pair: ttnn.MeshDevice):
    assert not ttnn.device.is_asynchronous_slow_dispatch_enabled(device)
    ttnn.enable_asynchronous_slow_dispatch(device)
    assert ttnn.device.is_asynchronous_slow_dispatch_enabled(device)
    assert not ttnn.device.is_asynchronous_slow_dispatch_enabled(pair)
    ttnn.disable_asynchronous_slow_dispatch(device)
    assert not ttnn.device.is_asynchronous_slow_dispatch_enabled(device)


def test_fast_dispatch_is_brought_up_once_and_ends_with_its_block(device: ttnn.MeshDevice):
    with ttnn.device.setup_fast_dispatch(device), pytest.raises(ttnn.MeshError, match="is up on"):
        ttnn.device.setup_fast_dispatch(device)
    ttnn.device.initialize_fast_dispatch(device)
    ttnn.device.terminate_fast_dispatch(device)
    with pytest.raises(ttnn.MeshError, match="was not brought up"):
        ttnn.device.terminate_fast_dispatch(device)
    assert ttnn.device.get_dispatch_core_axis(device) in ttnn.DispatchCoreAxis


# -- reports of memory -------------------------------------------------------------------------------


def test_memory_reports_grow_by_every_new_program(
    device: ttnn.MeshDevice, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(tmp_path)
    x = ttnn.from_torch(torch.rand(32, 32), layout=ttnn.TILE_LAYOUT, device=device)
    ttnn.device.EnableMemoryReports()
    ttnn.device.EnableMemoryReports()
    try:
        for _ in range(2):
            ttnn.exp(x)
        ttnn.relu(x)
    finally:
        ttnn.device.DisableMemoryReports()
    ttnn.sin(x)
    with open("generated/reports/tt_metal/program_memory_usage_summary.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [(row["Name"], row["Memory"]) for row in rows] == [
        ("exp", "DRAM"), ("exp", "L1"), ("relu", "DRAM"), ("relu", "L1"),
    ]  # fmt: skip
    assert int(rows[0]["Allocated (B)"]) > 0


def test_buffers_and_their_pages_can_be_listed(pair: ttnn.MeshDevice):
    reports = ttnn._ttnn.reports
    x = ttnn.from_torch(
        torch.rand(64, 64),
        dtype=ttnn.bfloat16,
        layout=ttnn.TILE_LAYOUT,
        device=pair,
        memory_config=ttnn.L1_MEMORY_CONFIG,
    )
    (buffer,) = reports.get_buffers(pair)
    assert (buffer.device_id, buffer.address) == (pair.id(), x.buffer_address())
    assert (buffer.max_size_per_bank, buffer.buffer_type) == (2048, ttnn.BufferType.L1)
    assert buffer.buffer_layout is ttnn.TensorMemoryLayout.INTERLEAVED
    pages = reports.get_buffer_pages([pair])
    assert [page.page_index for page in pages] == [0, 1, 2, 3]
    assert len({(page.core_x, page.core_y) for page in pages}) == 4
    assert {page.page_address for page in pages} == {x.buffer_address()}
    with pytest.raises(TypeError, match="devices"):
        reports.get_buffers(3)


def test_pages_of_a_sharded_tensor_lie_on_its_cores(device: ttnn.MeshDevice):
    config = ttnn.create_sharded_memory_config(
        (64, 64), ttnn.CoreGrid(x=1, y=2), ttnn.ShardStrategy.HEIGHT, ttnn.ShardOrientation.ROW_MAJOR
    )
    x = ttnn.from_torch(
        torch.rand(64, 64), dtype=ttnn.bfloat16, layout=ttnn.TILE_LAYOUT, device=device, memory_config=config
    )
    pages = ttnn._ttnn.reports.get_buffer_pages(device)
    assert [(page.core_x, page.core_y) for page in pages] == [(0, 0), (0, 0), (0, 1), (0, 1)]
    assert ttnn._ttnn.reports.get_buffers(device)[0].buffer_layout is ttnn.TensorMemoryLayout.HEIGHT_SHARDED
    assert ttnn.get_optimal_worker_cores_for_sharded_tensor(x) == [ttnn.CoreCoord(0, 0), ttnn.CoreCoord(0, 1)]
    with pytest.raises(ttnn.MeshError, match="must be sharded"):
        ttnn.get_optimal_worker_cores_for_sharded_tensor(ttnn.ones((32, 32), device=device))


def test_a_device_tells_its_cores_and_its_l1(device: ttnn.MeshDevice):
    info = ttnn._ttnn.reports.get_device_info(device)
    grid = device.compute_with_storage_grid_size()
    assert (info.num_x_compute_cores, info.num_y_compute_cores) == (grid.x, grid.y)
    assert info.total_l1_for_tensors == info.l1_num_banks * info.l1_bank_size
    assert info.address_at_first_l1_bank + info.l1_bank_size <= info.worker_l1_size


# -- native modules ----------------------------------------------------------------------------------


def test_the_native_modules_answer_with_the_same_objects():
    native = ttnn._ttnn
    assert native.tensor.MemoryConfig is ttnn.MemoryConfig
    assert native.operations.trace.begin_trace_capture is ttnn.begin_trace_capture
    assert native.operations.experimental.minimal_matmul is ttnn.experimental.minimal_matmul
    assert native.multi_device.SystemMeshDescriptor is ttnn.SystemMeshDescriptor
    assert native.multi_device.barrier is ttnn.distributed_context_barrier
    assert native.bfp_utils.get_dram_alignment() == ttnn.get_dram_alignment()
    assert native.device.MemoryView.__name__ == "MemoryView"
    assert ttnn.operations.ccl.Topology is ttnn.Topology


def test_an_unknown_name_of_a_module_is_answered_with_a_near_one_or_the_reason():
    said = r"module 'ttnn\.experimental' has no attribute 'minimal_matmull'.*Did you mean 'minimal_matmul'"
    with pytest.raises(AttributeError, match=said):
        ttnn.experimental.minimal_matmull
    with pytest.raises(ttnn.NotModelled, match=r"'bmm': it is a name of another release .* use ttnn.matmul"):
        ttnn.bmm
    assert not hasattr(ttnn.experimental, "no_such_op")


def test_tensor_files_have_native_names_too(tmp_path: Path):
    file = tmp_path / "x.tensorbin"
    values = torch.rand(2, 3)
    ttnn._ttnn.tensor.dump_tensor_flatbuffer(str(file), ttnn.from_torch(values))
    assert torch.equal(ttnn.to_torch(ttnn._ttnn.tensor.load_tensor_flatbuffer(str(file))), values)


def test_a_tensor_can_go_to_one_device_of_a_mesh(mesh: ttnn.MeshDevice):
    put = ttnn._ttnn.tensor.experimental_to_single_device
    host, at = ttnn.from_torch(torch.arange(4.0).reshape(1, 4)), ttnn.MeshCoordinate(1, 2)
    x = put(host, mesh, at, ttnn.DRAM_MEMORY_CONFIG)
    assert x.device_coords() == [at]
    assert ttnn.to_torch(x).tolist() == [[0, 1, 2, 3]]
    with pytest.raises(ttnn.MeshError, match="is not in"):
        put(host, mesh, ttnn.MeshCoordinate(2, 0), ttnn.DRAM_MEMORY_CONFIG)


@pytest.mark.parametrize(("kind", "size"), [("bfp8_b", 1088), ("bfp4_b", 576)])
def test_block_floats_are_packed_tile_by_tile(kind: str, size: int):
    pack = getattr(ttnn._ttnn.core, f"tilize_and_pack_{kind}")
    values = np.ones((32, 64), dtype=np.float32)
    packed = pack(values, 32, 64)
    assert len(packed) == 2 * size
    assert packed[:size] == packed[size:]
    with pytest.raises(ttnn.MeshError, match="do not make 33x64"):
        pack(values, 33, 64)
    with pytest.raises(TypeError, match="numpy array of float32"):
        pack(values.tolist(), 32, 64)


def test_an_overlapped_tensor_describes_a_part_of_another(device: ttnn.MeshDevice):
    fused = ttnn.zeros((32, 64), device=device)
    cores = ttnn.CoreRangeSet([ttnn.CoreRange(ttnn.CoreCoord(0, 0), ttnn.CoreCoord(1, 0))])
    part = ttnn.OverlappedTensor(fused, [32, 32], [32, 16], cores, ttnn.bfloat16, [32, 32], byte_offset=64)
    assert (part.tensor_shape, part.shard_shape, part.total_size) == ((32, 32), (32, 16), 0)
    assert part.get_tile() == ttnn.Tile((32, 32))
    with pytest.raises(ttnn.MeshError, match="byte_offset cannot be negative"):
        ttnn.OverlappedTensor(fused, [32, 32], [32, 16], cores, ttnn.bfloat16, [32, 32], byte_offset=-1)


# -- small values ------------------------------------------------------------------------------------


def test_whole_numbers_are_rounded_up():
    assert (ttnn.core.divup(33, 32), ttnn.core.roundup(33, 32), ttnn.core.roundup(64, 32)) == (2, 64, 64)


def test_networks_on_chip_have_two_names_each():
    assert ttnn.NOC.NOC_0 is ttnn.NOC.RISCV_0_default
    assert ttnn.NOC.NOC_1 is ttnn.NOC.RISCV_1_default
    assert list(ttnn.NOC) == [ttnn.NOC.NOC_0, ttnn.NOC.NOC_1]


def test_enums_have_the_table_of_entries_that_bindings_keep():
    entries = getattr(ttnn.DataType, "__entries")
    assert entries["BFLOAT16"] == (ttnn.bfloat16, None)
    assert len(entries) == len(ttnn.DataType)


@pytest.mark.parametrize(
    ("kind", "members"),
    [
        (
            "DispatchAlgorithm",
            "BROADCAST SPARSE_UNICAST SPARSE_MCAST_LINEAR SPARSE_MCAST_SHORTEST_PATH SPARSE_MCAST_SPLIT_BW",
        ),
        ("WorkerMode", "DIRECT MUX_TOKEN_SPLIT MUX_PAYLOAD_SPLIT"),
        ("MMSignalAggregatorMode", "Auto On Off"),
        ("UnpackToDestMode", "UnpackToDestFp32 Default"),
    ],
)
def test_enums_count_as_in_ttnn(kind: str, members: str):
    enum: Any = getattr(ttnn, kind)
    assert [member.name for member in enum] == members.split()
    assert [member.value for member in enum] == list(range(len(enum)))
    assert repr(enum(0)) == f"{kind}.{members.split()[0]}"


def test_storage_types_and_faces_have_names():
    assert ttnn.DEVICE_STORAGE_TYPE is ttnn.StorageType.DEVICE
    assert ttnn.HOST_STORAGE_TYPE is ttnn.StorageType.HOST
    assert ttnn.FaceGeometry(16, 2) == ttnn.FaceGeometry(face_r_dim=16, num_faces=2)


def test_dictionaries_are_read_by_dots_all_the_way_down():
    from softmesh.dot_access import DotAccessDict, make_dot_access_dict

    made = make_dot_access_dict({"a": {"b": 1}, "c": DotAccessDict()}, ignore_types=(DotAccessDict,))
    assert made.a.b == 1
    made.a.b = 2
    assert made["a"]["b"] == 2
    with pytest.raises(AttributeError, match=r"no entry 'aa'. Did you mean 'a'"):
        made.aa


def test_the_launcher_is_a_module_too():
    shown = CliRunner().invoke(ttnn.distributed.ttrun.main, ["--help"])
    assert shown.exit_code == 0
    assert "--rank-binding" in shown.output


def test_the_program_cache_counts_configurations_and_neither_placements_nor_numbers(mesh: ttnn.MeshDevice):
    mesh.clear_program_cache()
    split = ttnn.from_torch(
        torch.rand(64, 128), layout=ttnn.TILE_LAYOUT, device=mesh, mesh_mapper=ttnn.ShardTensorToMesh(mesh, 0)
    )
    same = ttnn.from_torch(torch.rand(8, 128), layout=ttnn.TILE_LAYOUT, device=mesh)
    for x in (split, same, split):
        ttnn.add(x, 1.0)
        ttnn.add(x, 2.0)
    assert mesh.num_program_cache_entries() == 1
    ttnn.add(split, 1.0, memory_config=ttnn.L1_MEMORY_CONFIG)
    ttnn.add(split, same)
    assert mesh.num_program_cache_entries() == 3
