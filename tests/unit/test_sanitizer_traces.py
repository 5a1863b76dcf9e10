"""The sanitizer and traces: what a replay touches, and what was allocated where it writes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext

import pytest
from sanitizing import kinds, line, on_host, on_mesh, watched

import softmesh as ttnn
from softmesh import MeshShape, metal
from softmesh.runtime.sanitizer.findings import FindingKind
from softmesh.runtime.traces import allocation_tracking


@pytest.fixture
def mesh() -> Iterator[ttnn.MeshDevice]:
    with ttnn.create_mesh_device(MeshShape(2, 4), num_command_queues=2) as opened:
        yield opened


def captured(mesh, work, x):
    work(x)
    ttnn.synchronize_device(mesh)
    trace = ttnn.begin_trace_capture(mesh, cq_id=0)
    result = work(x)
    ttnn.end_trace_capture(mesh, trace, cq_id=0)
    return trace, result


def test_a_replay_reads_and_writes_on_its_queue_and_the_capture_runs_nothing(mesh):
    x = on_mesh(mesh)
    with watched() as findings:
        trace, result = captured(mesh, ttnn.relu, x)
        ttnn.copy_host_to_device_tensor(on_host(), x, cq_id=1)
        assert findings == []
        ttnn.execute_trace(mesh, trace, cq_id=0, blocking=False)
        assert "execute_trace" in str(findings[0])
        assert kinds(findings) == [FindingKind.RACE]
        ttnn.from_device(result, queue_id=1)
    assert "queue 1 reads what queue 0 may still be writing" in str(findings[1])
    ttnn.release_trace(mesh, trace)


def test_the_usual_loop_over_a_trace_and_two_queues_is_silent(mesh):
    x = on_mesh(mesh)
    trace, result = captured(mesh, lambda t: ttnn.neg(ttnn.relu(t)), x)
    with watched() as findings:
        done = ttnn.record_event(mesh, 0)
        outputs = []
        for _ in range(3):
            ttnn.wait_for_event(1, done)
            ttnn.copy_host_to_device_tensor(on_host(), x, cq_id=1)
            ttnn.wait_for_event(0, ttnn.record_event(mesh, 1))
            ttnn.execute_trace(mesh, trace, cq_id=0, blocking=False)
            done = ttnn.record_event(mesh, 0)
            outputs.append(result.cpu(blocking=False))
        ttnn.synchronize_device(mesh)
        for output in outputs:
            ttnn.to_torch(ttnn.get_device_tensors(output)[0])
    assert findings == []
    ttnn.release_trace(mesh, trace)


def test_writing_in_place_inside_a_trace_counts_as_writing(mesh):
    x, out = on_mesh(mesh), on_mesh(mesh)
    trace, _ = captured(mesh, lambda t: ttnn.add(t, 1.0, output_tensor=out), x)
    with watched() as findings:
        ttnn.execute_trace(mesh, trace, cq_id=0, blocking=False)
        ttnn.from_device(out, queue_id=1)
    assert kinds(findings) == [FindingKind.RACE]
    ttnn.release_trace(mesh, trace)


def test_a_tensor_where_a_replay_writes_tells_who_reads_it_with_its_line(mesh):
    x = on_mesh(mesh)
    trace, _result = captured(mesh, lambda t: ttnn.neg(ttnn.relu(t)), x)
    with watched() as findings:
        ttnn.execute_trace(mesh, trace)
        late = ttnn.relu(x)
        made = line() - 1
        for _ in range(3):
            ttnn.execute_trace(mesh, trace)
        replayed = line() - 1
    assert findings == []  # nobody has read it
    said = rf"a replay has written over \(test_sanitizer_traces\.py:{replayed}\).*allocated at .*py:{made} where"
    with pytest.warns(ttnn.SoftmeshWarning, match=said):
        ttnn.to_torch(ttnn.get_device_tensors(late)[0])
    with pytest.warns(ttnn.SoftmeshWarning, match=said):
        ttnn.to_torch(ttnn.get_device_tensors(ttnn.add(late, 1.0))[0])
    ttnn.release_trace(mesh, trace)


@pytest.mark.parametrize("way", ["freed before", "marked", "in a scope", "elsewhere", "written anew", "not read"])
def test_what_cannot_be_hurt_is_not_told(mesh, way):
    x = on_mesh(mesh)
    trace, _result = captured(mesh, lambda t: ttnn.neg(ttnn.relu(t)), x)
    with watched() as findings:
        with ttnn.corruptible_allocation_scope(mesh) if way == "in a scope" else nullcontext():
            late = ttnn.relu(x)
        if way == "freed before":
            ttnn.deallocate(late)
        elif way == "marked":
            ttnn.mark_corruptible(late)
        elif way == "elsewhere":
            late = [late, ttnn.relu(x)][1]  # behind everything that the capture used
        ttnn.execute_trace(mesh, trace)
        if way == "written anew":
            ttnn.copy_host_to_device_tensor(on_host(), late)
        if way not in ("freed before", "not read"):
            ttnn.to_torch(ttnn.get_device_tensors(late)[0])
    assert findings == []
    ttnn.release_trace(mesh, trace)


def test_a_buffer_where_a_replay_writes_is_told_with_its_line(mesh):
    x = on_mesh(mesh)
    trace, _result = captured(mesh, lambda t: ttnn.neg(ttnn.relu(t)), x)
    with watched() as findings:
        late = metal.create_mesh_buffer(mesh, "replicated", (32, 32))
        made = line() - 1
        for _ in range(2):
            ttnn.execute_trace(mesh, trace)
    (found,) = findings
    assert found.kind is FindingKind.OVERWRITTEN_BY_REPLAY
    assert [site.line for site in found.sites][1:] == [made, made + 3]
    assert f"at {late.address()} in DRAM" in str(found)
    ttnn.release_trace(mesh, trace)


def test_tt_nn_refuses_every_replay_while_a_later_buffer_lives(mesh, monkeypatch):
    monkeypatch.setattr(allocation_tracking, "TRACE_ALLOC_TRACKING", True)
    x = on_mesh(mesh)
    trace, _result = captured(mesh, lambda t: ttnn.neg(ttnn.relu(t)), x)
    ttnn.execute_trace(mesh, trace)
    overwritten, beside = ttnn.relu(x), ttnn.relu(x)
    with pytest.raises(RuntimeError, match="Found 2 device buffers that a replay may overwrite") as error:
        ttnn.execute_trace(mesh, trace)
    assert str(error.value).count("(this replay overwrites it)") == 1
    assert len(allocation_tracking.get_unsafe_tracked_ids(mesh, trace)) == 2
    ttnn.mark_corruptible(overwritten)
    ttnn.deallocate(beside)
    ttnn.execute_trace(mesh, trace)
    with pytest.raises(TypeError, match=r"must be a ttnn\.Tensor"):
        ttnn.mark_corruptible("tensor")
    ttnn.release_trace(mesh, trace)


def test_a_trace_says_where_its_input_was_deallocated(mesh):
    x = on_mesh(mesh)
    trace, _result = captured(mesh, ttnn.relu, x)
    x.deallocate(True)
    here = line() - 1
    with pytest.raises(RuntimeError, match=rf"deallocated since \(at test_sanitizer_traces\.py:{here}\)"):
        ttnn.execute_trace(mesh, trace)
    ttnn.release_trace(mesh, trace)


def test_what_a_capture_recorded_that_failed_at_its_end_is_forgotten(idle_machine):
    ttnn.set_fabric_config(ttnn.FabricConfig.FABRIC_1D)
    cores = ttnn.CoreRangeSet([ttnn.CoreRange(ttnn.CoreCoord(0, 0), ttnn.CoreCoord(7, 7))])
    with ttnn.create_mesh_device(MeshShape(1, 4), trace_region_size=4096) as mesh:
        x = on_mesh(mesh)
        semaphores = [ttnn.create_global_semaphore(mesh, cores, 0) for _ in range(2)]

        def gathered():
            return ttnn.experimental.all_gather_async(
                x, dim=1, multi_device_global_semaphore=semaphores, cluster_axis=1, topology=ttnn.Topology.Linear
            )

        with watched() as findings:
            gathered()
            ttnn.relu(x)
            ttnn.synchronize_device(mesh)
            for semaphore in semaphores:
                ttnn.reset_global_semaphore_value(semaphore, 0)
            trace = ttnn.begin_trace_capture(mesh, cq_id=0)
            gathered()
            for _ in range(20):
                ttnn.relu(x)
            with pytest.raises(ttnn.MeshError, match="trace_region_size"):
                ttnn.end_trace_capture(mesh, trace, cq_id=0)
            trace = ttnn.begin_trace_capture(mesh, cq_id=0)
            gathered()
            ttnn.end_trace_capture(mesh, trace, cq_id=0)
            ttnn.execute_trace(mesh, trace, cq_id=0, blocking=True)
        assert findings == []
