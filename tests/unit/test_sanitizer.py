"""The sanitizer: unordered queues, memory that is reused, reads that do not block, use after deallocate."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator

import pytest
import torch
from sanitizing import kinds, line, on_host, on_mesh, watched

import softmesh as ttnn
from softmesh import MeshCoordinate, MeshCoordinateRange, MeshShape
from softmesh.metal import (
    DeviceLocalBufferConfig,
    EnqueueWriteMeshBuffer,
    EventQuery,
    Finish,
    MeshBuffer,
    ReadShard,
    ReplicatedBufferConfig,
)
from softmesh.runtime.commands import observed
from softmesh.runtime.sanitizer import race_detector
from softmesh.runtime.sanitizer.findings import FindingKind


@pytest.fixture
def mesh() -> Iterator[ttnn.MeshDevice]:
    with ttnn.create_mesh_device(MeshShape(2, 4), num_command_queues=2) as opened:
        yield opened


# -- two queues ------------------------------------------------------------------------------------


def test_a_race_names_both_lines_and_the_missing_event(mesh):
    x = on_mesh(mesh)
    with watched() as findings:
        ttnn.copy_host_to_device_tensor(on_host(), x, cq_id=1)
        ttnn.relu(x)
        here = line() - 1
    (found,) = findings
    assert found.kind is FindingKind.RACE
    assert [(site.file, site.line) for site in found.sites] == [(__file__, here - 1), (__file__, here)]
    first, second = f"test_sanitizer.py:{here - 1}", f"test_sanitizer.py:{here}"
    assert str(found).splitlines() == [
        "race: queue 0 reads what queue 1 may still be writing: tensor Shape([32, 32]) BFLOAT16 TILE, at "
        f"{x.buffer_address()} in DRAM.",
        f"  queue 1 writes it: copy_host_to_device_tensor ({first})",
        f"  queue 0 reads it: relu ({second})",
        f"Nothing orders the two. Record an event on queue 1 after {first} (event = ttnn.record_event(mesh_device, "
        f"1)), and let queue 0 wait for it before {second} (ttnn.wait_for_event(0, event)).",
    ]


def race(x: ttnn.Tensor) -> None:
    ttnn.copy_host_to_device_tensor(on_host(), x, cq_id=1)
    ttnn.relu(x)


def test_a_finding_is_a_warning_at_the_users_line(mesh):
    x = on_mesh(mesh)
    with ttnn.sanitize() as findings, pytest.warns(ttnn.SanitizerWarning, match="queue 0 reads") as told:
        race(x)
    (warning,) = told
    assert (warning.filename, warning.lineno) == (__file__, race.__code__.co_firstlineno + 2)
    assert str(warning.message) == str(findings[0])


def test_in_strict_mode_a_finding_is_an_error(mesh, monkeypatch):
    monkeypatch.setenv("SOFTMESH_STRICT", "1")
    x = on_mesh(mesh)
    with ttnn.sanitize(), pytest.raises(ttnn.SanitizerError, match="queue 0 reads what queue 1 may still be"):
        race(x)


@pytest.mark.parametrize("way", ["event", "finish", "synchronize", "event to host", "query", "blocking read"])
def test_whatever_orders_the_queues_silences_it(mesh, way):
    x, other = on_mesh(mesh), on_mesh(mesh)
    with watched() as findings:
        ttnn.copy_host_to_device_tensor(on_host(), x, cq_id=1)
        if way == "event":
            ttnn.wait_for_event(0, ttnn.record_event(mesh, 1))
        elif way == "finish":
            Finish(mesh.mesh_command_queue(1))
        elif way == "synchronize":
            ttnn.synchronize_device(mesh)
        elif way == "event to host":
            ttnn.event_synchronize(ttnn.record_event(mesh, 1))
        elif way == "query":
            assert EventQuery(ttnn.record_event(mesh, 1))
        elif way == "blocking read":
            ttnn.from_device(other, queue_id=1)
        ttnn.relu(x)
    assert findings == []


@pytest.mark.parametrize("way", ["the event came too early", "the wait is on the other queue", "no wait"])
def test_an_event_in_the_wrong_place_orders_nothing(mesh, way):
    x = on_mesh(mesh)
    with watched() as findings:
        early = ttnn.record_event(mesh, 1)
        ttnn.copy_host_to_device_tensor(on_host(), x, cq_id=1)
        late = ttnn.record_event(mesh, 1)
        if way == "the event came too early":
            ttnn.wait_for_event(0, early)
        elif way == "the wait is on the other queue":
            ttnn.wait_for_event(1, late)
        ttnn.relu(x)
    assert kinds(findings) == [FindingKind.RACE]


def test_order_goes_through_a_third_party(mesh):
    x = on_mesh(mesh)
    with watched() as findings:
        ttnn.copy_host_to_device_tensor(on_host(), x, cq_id=1)
        ttnn.wait_for_event(0, ttnn.record_event(mesh, 1))
        ttnn.event_synchronize(ttnn.record_event(mesh, 0))
        ttnn.copy_host_to_device_tensor(on_host(), x, cq_id=0)
    assert findings == []


def test_reading_together_is_no_race_and_writing_after_reading_is(mesh):
    x = on_mesh(mesh)
    with watched() as findings:
        ttnn.relu(x)
        ttnn.from_device(x, blocking=False, queue_id=1)
        assert findings == []
        ttnn.copy_host_to_device_tensor(on_host(), x, cq_id=1)
    (found,) = findings
    assert "queue 1 writes what queue 0 may still be reading" in str(found)


def test_of_several_touches_the_last_is_told_for_an_event_after_it_covers_all(mesh):
    x = on_mesh(mesh)
    with watched() as findings:
        ttnn.copy_host_to_device_tensor(on_host(), x, cq_id=1)
        ttnn.copy_host_to_device_tensor(on_host(), x, cq_id=1)
        ttnn.from_device(x, blocking=False, queue_id=1)
        last = line() - 1
        ttnn.relu(x, output_tensor=x)
    assert [found.sites[0].line for found in findings] == [last - 1, last]  # read, and then written


def test_a_loop_tells_of_two_lines_once(mesh):
    x = on_mesh(mesh)
    with watched() as findings:
        for _ in range(5):
            ttnn.copy_host_to_device_tensor(on_host(), x, cq_id=1)
            ttnn.from_device(x, queue_id=0)
    assert kinds(findings) == [FindingKind.RACE]


def test_shards_of_different_devices_do_not_meet(mesh):
    mapper = ttnn.ShardTensorToMesh(mesh, 0)
    x = ttnn.from_torch(torch.ones(256, 32), layout=ttnn.TILE_LAYOUT, device=mesh, mesh_mapper=mapper)
    shards = ttnn.get_device_tensors(x)
    source = ttnn.from_torch(torch.zeros(32, 32), layout=ttnn.TILE_LAYOUT)
    with watched() as findings:
        ttnn.copy_host_to_device_tensor(source, shards[3], cq_id=1)
        ttnn.relu(shards[4])
        assert findings == []
        ttnn.relu(shards[3])
    assert "on device (0, 3)." in str(findings[0])


def test_an_event_of_some_devices_orders_those_only(mesh):
    buffer = MeshBuffer.create(ReplicatedBufferConfig(64), DeviceLocalBufferConfig(32), mesh)
    top = MeshCoordinateRange(MeshCoordinate(0, 0), MeshCoordinate(0, 3))
    with watched() as findings:
        EnqueueWriteMeshBuffer(mesh.mesh_command_queue(1), buffer, bytes(64))
        ttnn.wait_for_event(0, ttnn.record_event(mesh, 1, [], top))
        ReadShard(mesh.mesh_command_queue(0), None, buffer, MeshCoordinate(0, 2))
        assert findings == []
        ReadShard(mesh.mesh_command_queue(0), None, buffer, MeshCoordinate(1, 2))
    assert kinds(findings) == [FindingKind.RACE]
    assert "mesh buffer of 2 pages of 32 B" in str(findings[0])


def test_a_reshape_that_moves_nothing_touches_nothing(mesh):
    x = on_mesh(mesh)
    with watched() as findings:
        ttnn.copy_host_to_device_tensor(on_host(), x, cq_id=1)
        y = ttnn.reshape(x, (1, 1, 32, 32))
        assert findings == []
        ttnn.relu(y)
    assert kinds(findings) == [FindingKind.RACE]


def test_a_mesh_with_one_queue_is_always_in_order(device):
    x = on_mesh(device)
    with watched() as findings:
        ttnn.copy_host_to_device_tensor(on_host(), x)
        ttnn.deallocate(ttnn.relu(x))
        ttnn.to_torch(ttnn.relu(x))
    assert findings == []


# -- memory that is given to another ---------------------------------------------------------------


def test_memory_freed_while_a_queue_may_use_it_and_given_to_another_is_told(mesh):
    x = on_mesh(mesh)
    with watched() as findings:
        y = ttnn.relu(x)
        ttnn.deallocate(y)
        freed = line() - 1
        on_mesh(mesh, cq_id=1)
    (found,) = findings
    assert found.kind is FindingKind.REUSED_MEMORY
    assert found.sites[0].line == freed - 1
    what = "tensor Shape([32, 32]) BFLOAT16 TILE"
    assert f"freed it meanwhile, as {what}: deallocated at test_sanitizer.py:{freed}" in str(found)


def test_memory_whose_last_reference_was_dropped_counts_as_freed(mesh):
    x = on_mesh(mesh)
    with watched() as findings:
        y = ttnn.relu(x)
        del y
        on_mesh(mesh, cq_id=1)
    assert kinds(findings) == [FindingKind.REUSED_MEMORY]
    assert "its last reference was dropped" in str(findings[0])


def test_a_part_of_freed_memory_is_remembered_too(mesh):
    x = ttnn.from_torch(torch.zeros(1024, 1024), ttnn.bfloat16, layout=ttnn.TILE_LAYOUT, device=mesh)
    with watched() as findings:
        big = ttnn.relu(x)
        ttnn.deallocate(big)
        small = [on_mesh(mesh) for _ in range(3)]
        assert findings == []
        ttnn.copy_host_to_device_tensor(on_host(), small[2], cq_id=1)
        assert kinds(findings) == [FindingKind.RACE]  # with the write that made it, not with that of the big one
        on_mesh(mesh, cq_id=1)
    assert kinds(findings) == [FindingKind.RACE, FindingKind.REUSED_MEMORY]


def test_waiting_for_the_event_makes_freed_memory_safe(mesh):
    x = on_mesh(mesh)
    with watched() as findings:
        ttnn.deallocate(ttnn.relu(x))
        ttnn.wait_for_event(1, ttnn.record_event(mesh, 0))
        on_mesh(mesh, cq_id=1)
    assert findings == []


# -- reads that do not block -----------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(1, 1), (2, 4)])
def test_the_result_of_a_read_must_not_be_used_before_it_is_there(shape):
    with ttnn.create_mesh_device(MeshShape(*shape)) as opened, watched() as findings:
        host = ttnn.from_device(on_mesh(opened), blocking=False)
        ttnn.to_torch(ttnn.get_device_tensors(host)[0])
        used = line() - 1
    (found,) = findings
    assert found.kind is FindingKind.UNFINISHED_READ
    assert [site.line for site in found.sites] == [used - 1, used]
    assert "ttnn.synchronize_device(mesh_device, 0)" in str(found)


def test_after_waiting_for_the_read_its_result_may_be_used(mesh):
    x = on_mesh(mesh)
    with watched() as findings:
        first, second = ttnn.from_device(x, blocking=False), ttnn.from_device(x, blocking=False, queue_id=1)
        shards = ttnn.get_device_tensors(first)
        ttnn.synchronize_device(mesh, 0)
        ttnn.to_torch(shards[0])
        ttnn.to_device(first, mesh)
        assert findings == []
        ttnn.to_device(second, mesh)
    assert kinds(findings) == [FindingKind.UNFINISHED_READ]


def test_two_queues_must_not_fill_one_host_tensor(mesh):
    x, y = on_mesh(mesh), on_mesh(mesh)
    host = ttnn.allocate_tensor_on_host(x.spec, mesh)
    with watched() as findings:
        ttnn.copy_device_to_host_tensor(x, host, blocking=False, cq_id=0)
        ttnn.copy_device_to_host_tensor(y, host, blocking=False, cq_id=1)
    assert "queue 1 writes what queue 0 may still be writing" in str(findings[0])
    assert "on the host" in str(findings[0])


# -- use after deallocate --------------------------------------------------------------------------


def test_a_deallocated_tensor_says_where_that_was(mesh):
    x = on_mesh(mesh)
    y = ttnn.reshape(x, (1, 32, 32))
    ttnn.deallocate(x)
    here = f"deallocated at test_sanitizer.py:{line() - 1}"
    for tensor in (x, y):
        with pytest.raises(RuntimeError, match=here):
            ttnn.relu(tensor)


def test_a_deallocated_buffer_and_views_of_it_say_where_that_was(mesh):
    configs = ReplicatedBufferConfig(64), DeviceLocalBufferConfig(32)
    buffer = MeshBuffer.create(*configs, mesh)
    view = MeshBuffer.create(*configs, mesh, address=buffer.address())
    queue = mesh.mesh_command_queue(0)
    with watched() as findings:
        EnqueueWriteMeshBuffer(queue, view, bytes(64))
        assert findings == []
        buffer.deallocate()
        freed = line() - 1
        EnqueueWriteMeshBuffer(queue, view, bytes(64))
    (found,) = findings
    assert found.kind is FindingKind.USE_AFTER_DEALLOCATE
    assert [site.line for site in found.sites] == [freed, freed + 2]
    with pytest.raises(RuntimeError, match=rf"deallocate\(\) at test_sanitizer.py:{freed}"):
        EnqueueWriteMeshBuffer(queue, buffer, bytes(64))


# -- on and off ------------------------------------------------------------------------------------


def test_blocks_share_one_sanitizer_and_it_ends_with_the_last(mesh):
    x = on_mesh(mesh)
    with watched() as outer:
        ttnn.copy_host_to_device_tensor(on_host(), x, cq_id=1)
        with watched() as inner:
            ttnn.relu(x)
        assert inner == outer
        ttnn.wait_for_event(0, ttnn.record_event(mesh, 1))
        ttnn.copy_host_to_device_tensor(on_host(), x, cq_id=1)
    assert len(outer) == 2
    assert len(inner) == 1
    assert not observed()


def test_it_keeps_no_tensor_alive(mesh):
    x = on_mesh(mesh)
    with watched():
        y = ttnn.relu(x)
        host = ttnn.from_device(y, blocking=False)
        gone = [weakref.ref(y), weakref.ref(y.storage), weakref.ref(host.storage)]
        del y, host
        gc.collect()
        assert [ref() for ref in gone] == [None] * 3


def test_the_environment_turns_it_on_when_a_mesh_is_opened(monkeypatch):
    monkeypatch.setattr(race_detector, "_SWITCH", race_detector._Switch())
    monkeypatch.setenv("SOFTMESH_SANITIZE", "1")
    with ttnn.open_mesh_device(MeshShape(1, 1), num_command_queues=2) as opened:
        x = on_mesh(opened)
        with pytest.warns(ttnn.SanitizerWarning, match="queue 1 writes what queue 0 may still be writing"):
            ttnn.copy_host_to_device_tensor(on_host(), x, cq_id=1)
    race_detector.stop()
    assert not observed()


def test_the_environment_is_checked(monkeypatch):
    monkeypatch.setenv("SOFTMESH_SANITIZE", "perhaps")
    with pytest.raises(ValueError, match="SOFTMESH_SANITIZE='perhaps': set it to 1 to watch"):
        ttnn.open_mesh_device(MeshShape(1, 1))
