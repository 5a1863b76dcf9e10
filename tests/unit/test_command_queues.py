"""Command queues: order, events, ownership of cores, workloads, and what observers are told."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
import torch

import softmesh as ttnn
from softmesh import Command, MeshCoordinate, MeshCoordinateRange, MeshShape
from softmesh.metal import (
    DeviceLocalBufferConfig,
    EnqueueMeshWorkload,
    EnqueueReadMeshBuffer,
    EnqueueWriteMeshBuffer,
    EventQuery,
    EventSynchronize,
    Finish,
    MeshBuffer,
    MeshWorkload,
    ReadShard,
    ReplicatedBufferConfig,
    Shape2D,
    ShardDataTransfer,
    ShardedBufferConfig,
    Synchronize,
    WriteShard,
)
from softmesh.runtime.queues.workload import Part, Run, Touched
from softmesh.runtime.traces import trace_api as traces


class Recorder:
    def __init__(self) -> None:
        self.seen: list[Command] = []

    def on_command(self, command: Command) -> None:
        self.seen.append(command)


class Adding:
    """A program that adds a number to every byte of a buffer, on the devices of its range."""

    cores = ttnn.CoreRangeSet([ttnn.CoreRange((0, 0), (0, 0))])

    def __init__(self, buffer: MeshBuffer, number: int = 1) -> None:
        self.buffer = buffer
        self.number = number
        self.history: list[str] = []

    def validate(self, mesh: ttnn.MeshDevice) -> None:
        self.history.append("validate")

    def compile(self, mesh: ttnn.MeshDevice) -> None:
        self.history.append("compile")

    def sub_device_cores(self) -> ttnn.CoreRangeSet:
        return self.cores

    def launch(self, mesh: ttnn.MeshDevice, box: MeshCoordinateRange, queue: object) -> Touched:
        memory = self.buffer.memory
        memory.materialise()[tuple(slice(a, b + 1) for a, b in zip(box.start, box.end, strict=True))] += self.number
        self.history.append("launch")
        return Touched((memory,), (memory,))


class Frozen(Adding):
    def frozen(self) -> Frozen:
        return Frozen(self.buffer, self.number)


class Together(Adding):
    calls: list[int] = []

    def plan_together(self, mesh: ttnn.MeshDevice, parts: Sequence[Part]) -> Run:
        return lambda mesh, queue: self.calls.append(len(parts))


@pytest.fixture(scope="module")
def mesh() -> Iterator[ttnn.MeshDevice]:
    with ttnn.create_mesh_device(MeshShape(2, 4), num_command_queues=2) as mesh_device:
        yield mesh_device


@pytest.fixture(autouse=True)
def _at_rest(mesh: ttnn.MeshDevice) -> Iterator[None]:
    yield
    mesh.quiesce_devices()


@pytest.fixture
def buffer(mesh: ttnn.MeshDevice) -> MeshBuffer:
    return MeshBuffer.create(ReplicatedBufferConfig(64), DeviceLocalBufferConfig(32), mesh)


def everywhere(mesh: ttnn.MeshDevice) -> MeshCoordinateRange:
    return MeshCoordinateRange(mesh.shape)


def workload(mesh: ttnn.MeshDevice, program: Any) -> MeshWorkload:
    made = MeshWorkload()
    made.add_program(everywhere(mesh), program)
    return made


def first_bytes(mesh: ttnn.MeshDevice, buffer: MeshBuffer) -> list[int]:
    queue = mesh.mesh_command_queue(0)
    return [int(ReadShard(queue, None, buffer, place)[0]) for place in mesh.shape.coordinates()]


# -- numbers ---------------------------------------------------------------------------------------


def test_a_mesh_has_as_many_queues_as_it_was_opened_with(mesh):
    assert [mesh.mesh_command_queue(number).id() for number in range(mesh.num_hw_cqs())] == [0, 1]
    assert mesh.mesh_command_queue(1) is mesh.mesh_command_queue(ttnn.QueueId(1))
    for number in (2, -1):
        with pytest.raises(RuntimeError, match=f"cq_id {number} is out of range"):
            mesh.mesh_command_queue(number)


def test_every_call_with_a_queue_refuses_one_that_does_not_exist(device):
    x = ttnn.ones((2, 2), device=device)
    host = ttnn.from_device(x)
    for call in (
        lambda: ttnn.from_torch(torch.ones(2), device=device, cq_id=1),
        lambda: ttnn.to_torch(x, cq_id=1),
        lambda: ttnn.to_device(host, device, queue_id=1),
        lambda: ttnn.from_device(x, queue_id=1),
        lambda: ttnn.copy_host_to_device_tensor(host, x, cq_id=1),
        lambda: ttnn.copy_device_to_host_tensor(x, host, cq_id=1),
        lambda: ttnn.add(x, x, queue_id=1),
        lambda: ttnn.record_event(device, 1),
        lambda: ttnn.synchronize_device(device, 1),
    ):
        with pytest.raises(RuntimeError, match="cq_id 1 is out of range"):
            call()
    with ttnn.command_queue(1), pytest.raises(RuntimeError, match="cq_id 1 is out of range"):
        ttnn.relu(x)


def test_the_current_queue_belongs_to_the_thread_and_to_the_block(mesh):
    seen = []
    with ttnn.command_queue(1):
        assert mesh.mesh_command_queue().id() == 1
        assert ttnn.get_current_command_queue_id_for_thread() == ttnn.QueueId(1)
        with ttnn.command_queue(ttnn.QueueId(0)):
            assert mesh.mesh_command_queue().id() == 0
        other = threading.Thread(target=lambda: seen.append(mesh.mesh_command_queue().id()))
        other.start()
        other.join()
        with pytest.raises(KeyError), ttnn.command_queue(0):
            raise KeyError
        assert mesh.mesh_command_queue().id() == 1
    assert (mesh.mesh_command_queue().id(), seen) == (0, [0])


def test_a_queue_id_is_a_number_with_a_name():
    assert (repr(ttnn.QueueId(1)), int(ttnn.QueueId(1))) == ("QueueId(1)", 1)
    assert ttnn.QueueId(1) == 1
    assert ttnn.QueueId(1) != ttnn.QueueId(0)
    with pytest.raises(ValueError, match="must be the number of a queue"), ttnn.command_queue(None):
        pass
    with pytest.raises(ValueError, match="nothing was pushed"):
        ttnn.pop_current_command_queue_id_for_thread()


def test_ops_and_transfers_go_to_the_current_queue(mesh):
    x = ttnn.ones((2, 2), device=mesh)
    with ttnn.observe(Recorder()) as recorder, ttnn.command_queue(1):
        y = ttnn.from_device(ttnn.relu(x))
        ttnn.to_device(y, mesh, queue_id=0)
    assert [(c.name, c.queue) for c in recorder.seen] == [("relu", 1), ("from_device", 1), ("to_device", 0)]


# -- reads and writes ------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["queue_id", "cq_id"])
def test_every_entry_point_takes_a_queue_by_either_name(mesh, name):
    x = ttnn.from_torch(torch.rand(1, 1, 32, 32), layout=ttnn.TILE_LAYOUT, device=mesh, **{name: 1})
    queue = {name: 1}
    flat = ttnn.ones((1, 1, 1, 32), device=mesh, **queue)
    with ttnn.observe(Recorder()) as recorder:
        for _ in range(2):
            ttnn.exp(x, **queue)
            ttnn.sub_(x, 1.0, **queue)
            ttnn.full_like(x, 2.0, **queue)
            ttnn.nonzero(flat, **queue)
            ttnn.from_device(x, **queue)
            ttnn.transformer.split_query_key_value_and_split_heads(
                ttnn.full((1, 32, 96), 1.0, layout=ttnn.TILE_LAYOUT, device=mesh, **queue),
                num_heads=1,
                **queue,
            )
    assert {command.queue for command in recorder.seen} == {1}
    ttnn.synchronize_device(mesh)
    ttnn.exp(x, **{name: None})
    with pytest.raises(ttnn.MeshError, match="queue"):
        ttnn.nonzero(flat, **{name: 7})


def test_a_replicated_buffer_is_read_device_by_device_unless_there_is_only_one(mesh, buffer, device):
    with pytest.raises(RuntimeError, match=r"Can only read a Sharded MeshBuffer from a MeshDevice"):
        EnqueueReadMeshBuffer(mesh.mesh_command_queue(), None, buffer)
    alone = MeshBuffer.create(ReplicatedBufferConfig(64), DeviceLocalBufferConfig(32), device)
    data = torch.arange(64, dtype=torch.uint8)
    EnqueueWriteMeshBuffer(device.mesh_command_queue(), alone, data)
    assert torch.equal(EnqueueReadMeshBuffer(device.mesh_command_queue(), None, alone), data)


def test_a_buffer_with_a_replicated_dim_cannot_be_put_together(mesh):
    config = ShardedBufferConfig(4, Shape2D(1, 4), Shape2D(0, 1))
    cut = MeshBuffer.create(config, DeviceLocalBufferConfig(1), mesh)
    with pytest.raises(RuntimeError, match="replicated along a dim"):
        EnqueueReadMeshBuffer(mesh.mesh_command_queue(), None, cut)


def test_a_whole_buffer_is_only_read_blocking(mesh):
    config = ShardedBufferConfig(8, Shape2D(2, 4), Shape2D(1, 1))
    cut = MeshBuffer.create(config, DeviceLocalBufferConfig(1), mesh)
    with pytest.raises(RuntimeError, match="Non-Blocking reads are not supported through enqueue_read_mesh"):
        EnqueueReadMeshBuffer(mesh.mesh_command_queue(), None, cut, blocking=False)


def test_a_write_has_taken_its_bytes_when_it_returns(mesh, buffer):
    source = torch.ones(64, dtype=torch.uint8)
    EnqueueWriteMeshBuffer(mesh.mesh_command_queue(), buffer, source)
    source.zero_()
    assert first_bytes(mesh, buffer) == [1] * 8


def test_a_buffer_of_another_mesh_is_refused(mesh, buffer, device):
    with pytest.raises(RuntimeError, match="and this queue is of"):
        EnqueueWriteMeshBuffer(device.mesh_command_queue(), buffer, bytes(64))
    with pytest.raises(RuntimeError, match="lies outside the mesh"):
        WriteShard(mesh.mesh_command_queue(), buffer, bytes(64), MeshCoordinate(0, 4))
    with pytest.raises(TypeError, match="mesh_cq must be"):
        EnqueueWriteMeshBuffer(mesh, buffer, bytes(64))


def test_nothing_is_written_where_one_of_several_shards_cannot_be(mesh, buffer):
    EnqueueWriteMeshBuffer(mesh.mesh_command_queue(), buffer, bytes(64), False)
    good = ShardDataTransfer(MeshCoordinate(0, 0)).host_data(bytes([9] * 64))
    bad = ShardDataTransfer(MeshCoordinate(5, 5)).host_data(bytes([9] * 64))
    with pytest.raises(RuntimeError, match="lies outside the mesh"):
        mesh.mesh_command_queue().enqueue_write_shards(buffer, [good, bad])
    assert first_bytes(mesh, buffer) == [0] * 8


def test_a_queue_moves_whole_tensors(mesh):
    queue = mesh.mesh_command_queue(1)
    target = ttnn.zeros((2, 2), device=mesh)
    queue.enqueue_write_tensor(ttnn.from_torch(torch.ones(2, 2), dtype=ttnn.bfloat16), target, blocking=True)
    host = ttnn.allocate_tensor_on_host(target.spec, mesh)
    queue.enqueue_read_tensor(target, host)
    assert ttnn.to_torch(ttnn.get_device_tensors(host)[3]).tolist() == [[1, 1], [1, 1]]


def test_a_closed_mesh_has_no_queues_to_use(buffer):
    mesh = ttnn.open_mesh_device(MeshShape(1, 1))
    queue = mesh.mesh_command_queue()
    mesh.close()
    for call in (queue.finish, queue.enqueue_record_event, lambda: Synchronize(mesh)):
        with pytest.raises(RuntimeError, match="is closed"):
            call()


# -- events ----------------------------------------------------------------------------------------


def test_events_are_numbered_in_their_queue_and_told_in_full(mesh):
    first, second = ttnn.record_event(mesh, 1), ttnn.record_event(mesh, 1)
    assert second.id == first.id + 1
    assert repr(second) == (
        f"MeshEvent(id={second.id}, device_id={mesh.id()}, mesh_cq_id=1, device_range=MeshCoordinateRange("
        "start=MeshCoordinate([0, 0]), end=MeshCoordinate([1, 3])))"
    )
    part = MeshCoordinateRange(MeshCoordinate(0, 0), MeshCoordinate(0, 1))
    assert ttnn.record_event(mesh, 0, [], part).device_range is part


def test_the_host_hears_only_of_events_recorded_for_it(mesh):
    queue = mesh.mesh_command_queue(0)
    silent = queue.enqueue_record_event()
    assert not EventQuery(silent)
    with pytest.raises(RuntimeError, match="the host would wait for ever"):
        EventSynchronize(silent)
    heard = queue.enqueue_record_event_to_host()
    assert EventQuery(heard)
    assert EventQuery(silent)  # it came before
    ttnn.event_synchronize(heard)
    assert not EventQuery(queue.enqueue_record_event())


def test_events_of_some_devices_say_nothing_of_the_others(mesh):
    queue = mesh.mesh_command_queue(0)
    silent = queue.enqueue_record_event()
    rows = [MeshCoordinateRange(MeshCoordinate(r, 0), MeshCoordinate(r, 3)) for r in (0, 1)]
    queue.enqueue_record_event_to_host(device_range=rows[0])
    assert not EventQuery(silent)
    queue.enqueue_record_event_to_host(device_range=rows[1])
    assert EventQuery(silent)


def test_finishing_a_queue_tells_the_host_of_all_its_events(mesh):
    event = mesh.mesh_command_queue(1).enqueue_record_event()
    Finish(mesh.mesh_command_queue(1))
    assert EventQuery(event)


def test_quiescing_begins_the_numbers_again_and_old_events_are_refused(mesh):
    old = ttnn.record_event(mesh, 0)
    mesh.quiesce_devices()
    assert ttnn.record_event(mesh, 0).id == 0
    for call in (lambda: ttnn.wait_for_event(1, old), lambda: EventQuery(old)):
        with pytest.raises(RuntimeError, match=r"recorded before mesh\.quiesce_devices"):
            call()


def test_events_belong_to_their_mesh(mesh, device):
    with pytest.raises(RuntimeError, match="was recorded on"):
        mesh.mesh_command_queue().enqueue_wait_for_event(ttnn.record_event(device))
    with pytest.raises(TypeError, match="mesh_event must be"):
        ttnn.wait_for_event(0, "event")
    with pytest.raises(TypeError, match="no constructor"):
        ttnn.MeshEvent()
    with pytest.raises(RuntimeError, match="lies outside the mesh"):
        ttnn.record_event(device, device_range=everywhere(mesh))


# -- who owns the cores ----------------------------------------------------------------------------


def test_another_queue_may_not_launch_while_the_first_owns_the_cores(mesh, buffer):
    first, second = workload(mesh, Adding(buffer)), workload(mesh, Adding(buffer))
    EnqueueMeshWorkload(mesh.mesh_command_queue(0), first, False)
    with pytest.raises(RuntimeError, match="Sub device id 0 currently in use by cq 0"):
        EnqueueMeshWorkload(mesh.mesh_command_queue(1), second, False)
    assert first_bytes(mesh, buffer) == [1] * 8


@pytest.mark.parametrize("way", ["finish", "event", "blocking launch", "blocking read", "synchronize"])
def test_cores_change_hands_once_the_owner_is_done(mesh, buffer, way):
    owner, heir = mesh.mesh_command_queue(0), mesh.mesh_command_queue(1)
    EnqueueMeshWorkload(owner, workload(mesh, Adding(buffer)), way == "blocking launch")
    if way == "finish":
        Finish(owner)
    elif way == "event":
        ttnn.wait_for_event(1, ttnn.record_event(mesh, 0))
    elif way == "blocking read":
        first_bytes(mesh, buffer)
    elif way == "synchronize":
        Synchronize(mesh)
    EnqueueMeshWorkload(heir, workload(mesh, Adding(buffer)), False)
    assert first_bytes(mesh, buffer) == [2] * 8


def test_an_event_from_before_the_launch_hands_nothing_over(mesh, buffer):
    early = ttnn.record_event(mesh, 0)
    EnqueueMeshWorkload(mesh.mesh_command_queue(0), workload(mesh, Adding(buffer)), False)
    ttnn.wait_for_event(1, early)
    with pytest.raises(RuntimeError, match="currently in use by cq 0"):
        EnqueueMeshWorkload(mesh.mesh_command_queue(1), workload(mesh, Adding(buffer)), False)


def test_a_launch_after_the_event_keeps_the_cores(mesh, buffer):
    queue, made = mesh.mesh_command_queue(0), workload(mesh, Adding(buffer))
    EnqueueMeshWorkload(queue, made, False)
    event = ttnn.record_event(mesh, 0)
    EnqueueMeshWorkload(queue, made, False)
    ttnn.wait_for_event(1, event)
    with pytest.raises(RuntimeError, match="currently in use by cq 0"):
        EnqueueMeshWorkload(mesh.mesh_command_queue(1), workload(mesh, Adding(buffer)), False)


def test_ops_own_cores_as_workloads_do(mesh):
    x = ttnn.ones((2, 2), device=mesh)
    ttnn.relu(x)
    with pytest.raises(RuntimeError, match="Sub device id 0 currently in use by cq 0"):
        ttnn.relu(x, queue_id=1)
    ttnn.wait_for_event(1, ttnn.record_event(mesh, 0))
    y = ttnn.relu(x, queue_id=1)
    ttnn.from_device(y, queue_id=1)
    ttnn.relu(x)


# -- workloads -------------------------------------------------------------------------------------


def test_each_range_runs_its_own_program_and_the_rest_runs_nothing(mesh, buffer):
    both = MeshWorkload()
    both.add_program(MeshCoordinateRange(MeshCoordinate(0, 0), MeshCoordinate(0, 2)), Adding(buffer, 3))
    both.add_program(MeshCoordinateRange(MeshCoordinate(1, 1), MeshCoordinate(1, 3)), Adding(buffer, 5))
    EnqueueMeshWorkload(mesh.mesh_command_queue(), both, True)
    assert first_bytes(mesh, buffer) == [3, 3, 3, 0, 0, 5, 5, 5]


def test_overlapping_ranges_are_refused_by_name(mesh, buffer):
    made = MeshWorkload()
    made.add_program(MeshCoordinateRange(MeshCoordinate(0, 0), MeshCoordinate(1, 1)), Adding(buffer))
    with pytest.raises(RuntimeError) as error:
        made.add_program(MeshCoordinateRange(MeshCoordinate(1, 1), MeshCoordinate(1, 3)), Adding(buffer))
    assert str(error.value).startswith(
        "Program range MeshCoordinateRange(start=MeshCoordinate([1, 1]), end=MeshCoordinate([1, 3])) overlaps with the "
        "previously added range MeshCoordinateRange(start=MeshCoordinate([0, 0]), end=MeshCoordinate([1, 1]))"
    )
    with pytest.raises(TypeError, match="program must be a Program"):
        made.add_program(everywhere(mesh), "program")


def test_a_workload_is_compiled_once_and_finalised_by_its_first_enqueue(mesh, buffer):
    program = Adding(buffer)
    made = workload(mesh, program)
    for _ in range(2):
        EnqueueMeshWorkload(mesh.mesh_command_queue(), made, False)
    assert program.history == ["validate", "compile", "launch", "validate", "launch"]
    with pytest.raises(RuntimeError, match="Cannot add programs to a MeshWorkload that has been enqueued"):
        made.add_program(everywhere(mesh), Adding(buffer))
    (held,) = made.get_programs().values()
    held.number = 7
    EnqueueMeshWorkload(mesh.mesh_command_queue(), made, False)
    assert first_bytes(mesh, buffer) == [9] * 8


def test_a_workload_belongs_to_the_first_mesh_it_ran_on(mesh, device, buffer):
    made = MeshWorkload()
    one = MeshCoordinateRange(MeshCoordinate(0, 0), MeshCoordinate(0, 0))
    made.add_program(one, Adding(buffer))
    EnqueueMeshWorkload(mesh.mesh_command_queue(), made, False)
    with pytest.raises(RuntimeError, match="was first enqueued on mesh"):
        EnqueueMeshWorkload(device.mesh_command_queue(), made, False)


def test_a_workload_must_fit_the_mesh_and_run_something(mesh, device, buffer):
    with pytest.raises(RuntimeError, match="lies outside the mesh"):
        EnqueueMeshWorkload(device.mesh_command_queue(), workload(mesh, Adding(buffer)), False)
    with pytest.raises(RuntimeError, match="Programs must be executed on a single sub-device"):
        EnqueueMeshWorkload(mesh.mesh_command_queue(), MeshWorkload(), False)


def test_programs_that_wait_for_each_other_are_launched_together(mesh, buffer):
    made = MeshWorkload()
    for row in (0, 1):
        made.add_program(MeshCoordinateRange(MeshCoordinate(row, 0), MeshCoordinate(row, 3)), Together(buffer))
    EnqueueMeshWorkload(mesh.mesh_command_queue(), made, False)
    assert Together.calls == [2]


def test_a_workload_that_could_not_start_may_still_change(mesh, buffer):
    class Hesitating(Adding):
        is_ready = False

        def validate(self, mesh: ttnn.MeshDevice) -> None:
            if not self.is_ready:
                raise ttnn.MeshError("not yet")

    rows = [MeshCoordinateRange(MeshCoordinate(row, 0), MeshCoordinate(row, 3)) for row in (0, 1)]
    first, made = Hesitating(buffer, 3), MeshWorkload()
    made.add_program(rows[0], first)
    with pytest.raises(RuntimeError, match="not yet"):
        EnqueueMeshWorkload(mesh.mesh_command_queue(), made, False)
    made.add_program(rows[1], Adding(buffer, 5))
    first.is_ready = True
    for _ in range(2):
        EnqueueMeshWorkload(mesh.mesh_command_queue(), made, False)
    assert first_bytes(mesh, buffer) == [6] * 4 + [10] * 4


def test_a_workload_is_checked_again_when_its_mesh_has_another_shape():
    with ttnn.open_mesh_device(MeshShape(2, 4)) as own:
        memory = MeshBuffer.create(ReplicatedBufferConfig(64), DeviceLocalBufferConfig(32), own)
        made = workload(own, Adding(memory))
        for _ in range(2):
            EnqueueMeshWorkload(own.mesh_command_queue(), made, False)
        own.reshape(MeshShape(1, 8))
        with pytest.raises(RuntimeError, match="lies outside the mesh"):
            EnqueueMeshWorkload(own.mesh_command_queue(), made, False)


# -- captures --------------------------------------------------------------------------------------


def test_a_capturing_queue_takes_launches_only_and_replays_them_as_they_were(mesh, buffer):
    queue = mesh.mesh_command_queue(0)
    program = Frozen(buffer, 2)
    made = workload(mesh, program)
    EnqueueMeshWorkload(queue, made, True)
    assert queue.capturing is None
    trace = traces.begin_trace_capture(mesh, cq_id=0)
    assert queue.capturing is not None
    EnqueueMeshWorkload(queue, made, False)
    for call, said in (
        (lambda: EnqueueWriteMeshBuffer(queue, buffer, bytes(64)), "Writes are not supported"),
        (lambda: ReadShard(queue, None, buffer, MeshCoordinate(0, 0)), "Reads are not supported"),
        (queue.enqueue_record_event, "Event Synchronization is not supported"),
        (queue.finish, "Event Synchronization is not supported"),
        (lambda: EnqueueMeshWorkload(queue, made, True), "Blocking is not supported when recording a trace"),
        (
            lambda: EnqueueMeshWorkload(queue, workload(mesh, Adding(buffer)), False),
            "Writes are not supported",
        ),
        (lambda: ttnn.from_torch(torch.ones(2), device=mesh), "Writes are not supported"),
    ):
        with pytest.raises(RuntimeError, match=said):
            call()
    traces.end_trace_capture(mesh, trace, cq_id=0)
    assert first_bytes(mesh, buffer) == [2] * 8  # recorded, not run
    program.number = 50
    for _ in range(2):
        traces.execute_trace(mesh, trace, cq_id=0, blocking=True)
    assert first_bytes(mesh, buffer) == [6] * 8
    traces.release_trace(mesh, trace)


# -- what observers see ----------------------------------------------------------------------------


def test_every_command_tells_its_queue_and_what_it_touched(mesh, buffer):
    queue = mesh.mesh_command_queue(1)
    made = workload(mesh, Adding(buffer))
    with ttnn.observe(Recorder()) as recorder:
        EnqueueWriteMeshBuffer(queue, buffer, bytes(64))
        EnqueueMeshWorkload(queue, made, False)
        event = queue.enqueue_record_event()
        mesh.mesh_command_queue(0).enqueue_wait_for_event(event)
        ReadShard(queue, None, buffer, MeshCoordinate(1, 1))
        Finish(queue)
    names = [(command.name, command.queue, command.blocking) for command in recorder.seen]
    assert names == [
        ("enqueue_write_mesh_buffer", 1, False),
        ("enqueue_mesh_workload", 1, False),
        ("enqueue_record_event", 1, False),
        ("enqueue_wait_for_event", 0, False),
        ("enqueue_read_shards", 1, False),
        ("finish", 1, True),
        ("finish", 1, True),
    ]
    write, launch, recorded, waited, read, *_ = recorder.seen
    assert [access.memory for access in write.writes] == [buffer.memory]
    assert [access.memory for access in launch.reads + launch.writes] == [buffer.memory] * 2
    assert recorded.event is waited.event is event
    assert read.coords == [MeshCoordinate(1, 1)]
    assert {command.device for command in recorder.seen} == {mesh}
    assert write.site.file == __file__


# -- several meshes --------------------------------------------------------------------------------


def test_parent_and_child_must_be_quiesced_before_they_close():
    parent = ttnn.open_mesh_device(MeshShape(1, 2))
    child = parent.create_submesh(MeshShape(1, 1))
    ttnn.ones((2, 2), device=parent) + 1
    ttnn.ones((2, 2), device=child) + 1
    for mesh, other in ((parent, "child"), (child, "parent")):
        with pytest.raises(RuntimeError, match=f"MeshDevice cq ID 0 is in use by {other} mesh ID"):
            mesh.close()
    parent.quiesce_devices()
    parent.close()
    assert not child.is_open


def test_each_submesh_has_queues_and_events_of_its_own(mesh):
    left, right = mesh.create_submeshes(MeshShape(2, 2))
    assert left.num_hw_cqs() == mesh.num_hw_cqs()
    assert left.mesh_command_queue(0) is not right.mesh_command_queue(0)
    ttnn.record_event(left)
    assert ttnn.record_event(right).id == 0
    mesh.quiesce_devices()
    assert ttnn.record_event(left).id == 0
    mesh.quiesce_devices()
    assert (left.get_parent_mesh(), mesh.is_parent_mesh(), left.is_parent_mesh()) == (mesh, True, False)


def test_device_operations_are_counted_launched_or_captured(mesh):
    x, number = ttnn.ones([1, 1, 32, 32], device=mesh, layout=ttnn.TILE_LAYOUT), ttnn._ttnn.get_device_operation_id
    ttnn.add(x, x)
    before = number()
    ttnn.add(x, x)
    ttnn.reshape(x, [1, 32, 32])  # a view: nothing runs
    assert number() == before + 1
    trace = ttnn.begin_trace_capture(mesh, cq_id=0)
    ttnn.add(x, x)
    ttnn.end_trace_capture(mesh, trace, cq_id=0)
    assert number() == before + 2
    ttnn.execute_trace(mesh, trace, cq_id=0)
    ttnn.release_trace(mesh, trace)
    assert number() == before + 3
