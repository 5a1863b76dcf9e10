"""What else the sanitizer knows of order: messages over sockets, and sub-devices that run side by side."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from sanitizing import kinds, on_host, on_mesh, watched

import softmesh as ttnn
from softmesh import MeshCoordinate, MeshCoordinateRange, MeshShape, SubDevice
from softmesh.callsite import raw_call_site
from softmesh.metal import (
    DeviceLocalBufferConfig,
    EnqueueMeshWorkload,
    EnqueueWriteMeshBuffer,
    Finish,
    MeshBuffer,
    MeshWorkload,
    ReplicatedBufferConfig,
    WriteShard,
)
from softmesh.runtime.queues.workload import Touched
from softmesh.runtime.sanitizer.findings import FindingKind
from softmesh.runtime.sanitizer.vector_clocks import Agent, Messages
from softmesh.sockets.mesh_socket import create_socket_pair


@pytest.fixture
def mesh() -> Iterator[ttnn.MeshDevice]:
    with ttnn.create_mesh_device(MeshShape(2, 4), num_command_queues=2) as opened:
        yield opened


def sockets(a: ttnn.MeshDevice, b: ttnn.MeshDevice):
    core = ttnn.MeshCoreCoord(MeshCoordinate(0, 0), ttnn.CoreCoord(0, 0))
    memory = ttnn.SocketMemoryConfig(ttnn.BufferType.L1, 1 << 16)
    return create_socket_pair(a, b, ttnn.SocketConfig([ttnn.SocketConnection(core, core)], memory))


@pytest.mark.parametrize("answers", [True, False])
def test_a_message_orders_the_sender_before_the_receiver(idle_machine, answers):
    ttnn.set_fabric_config(ttnn.FabricConfig.FABRIC_2D)
    a = ttnn.open_mesh_device(MeshShape(1, 1), num_command_queues=2)
    b = ttnn.open_mesh_device(MeshShape(1, 1))
    (there, at_b), (back, at_a) = sockets(a, b), sockets(b, a)
    x, token, echo, answer = on_mesh(a), on_mesh(a), on_mesh(b), on_mesh(a)
    with watched() as findings:
        ttnn.copy_host_to_device_tensor(on_host(), x, cq_id=0)
        if answers:
            ttnn.experimental.send_async(token, there, queue_id=0)
            ttnn.experimental.recv_async(echo, at_b)
            ttnn.experimental.send_async(echo, back)
            ttnn.experimental.recv_async(answer, at_a, queue_id=1)
        ttnn.copy_host_to_device_tensor(on_host(), x, cq_id=1)
    assert kinds(findings) == ([] if answers else [FindingKind.RACE])


def test_a_receive_that_comes_first_learns_when_the_message_is_sent():
    sender, receiver, messages, channel = Agent("sender"), Agent("receiver"), Messages(), Messages()
    messages.receive(channel, receiver)
    sent = sender.step("send_async", raw_call_site())
    assert not receiver.clock.knows(sent, None)
    messages.send(channel, sender.clock.copy())
    assert receiver.clock.knows(sent, None)
    assert not receiver.clock.knows(sender.step("relu", raw_call_site()), None)


def test_a_message_to_the_host_tells_it_what_is_over(idle_machine):
    a = ttnn.open_mesh_device(MeshShape(1, 1), num_command_queues=2)
    core = ttnn.MeshCoreCoord(MeshCoordinate(0, 0), ttnn.CoreCoord(0, 0))
    socket = ttnn.D2HSocket(a, core, 1 << 16)
    x, token = on_mesh(a), on_mesh(a)
    with watched() as findings:
        ttnn.copy_host_to_device_tensor(on_host(), x, cq_id=0)
        ttnn.experimental.send_async_d2h(token, socket, queue_id=0)
        socket.read_tensor(on_host())
        ttnn.copy_host_to_device_tensor(on_host(), x, cq_id=1)
    assert findings == []


class Adding:
    """A program on some cores that adds 1 to every byte of a buffer."""

    def __init__(self, buffer: MeshBuffer, core: int) -> None:
        self.buffer = buffer
        self.cores = ttnn.CoreRangeSet([ttnn.CoreRange((core, core), (core, core))])

    def validate(self, mesh: ttnn.MeshDevice) -> None: ...

    def compile(self, mesh: ttnn.MeshDevice) -> None: ...

    def sub_device_cores(self) -> ttnn.CoreRangeSet:
        return self.cores

    def launch(self, mesh: ttnn.MeshDevice, box: MeshCoordinateRange, queue: object) -> Touched:
        self.buffer.memory.materialise()[...] += 1
        return Touched((self.buffer.memory,), (self.buffer.memory,))


def launched(mesh: ttnn.MeshDevice, buffer: MeshBuffer, core: int) -> None:
    workload = MeshWorkload()
    workload.add_program(MeshCoordinateRange(mesh.shape), Adding(buffer, core))
    EnqueueMeshWorkload(mesh.mesh_command_queue(0), workload, False)


@pytest.mark.parametrize("way", ["nothing", "event", "finish", "same sub-device", "one after the other"])
def test_sub_devices_of_one_queue_run_side_by_side(way):
    with ttnn.create_mesh_device(MeshShape(1, 2)) as opened:
        parts = [SubDevice([ttnn.CoreRangeSet([ttnn.CoreRange((i, i), (i, i))])]) for i in range(2)]
        opened.load_sub_device_manager(opened.create_sub_device_manager(parts, 3200))
        buffer = MeshBuffer.create(ReplicatedBufferConfig(64), DeviceLocalBufferConfig(32), opened)
        with watched() as findings:
            launched(opened, buffer, 0)
            if way == "event":
                ttnn.wait_for_event(0, ttnn.record_event(opened, 0))
            elif way == "finish":
                Finish(opened.mesh_command_queue(0))
            elif way == "one after the other":
                WriteShard(opened.mesh_command_queue(0), buffer, bytes(64), MeshCoordinate(0, 0))
            launched(opened, buffer, 0 if way == "same sub-device" else 1)
        opened.clear_loaded_sub_device_manager()
    if way == "nothing":
        (found,) = findings
        assert "sub-device 1 of queue 0 reads what sub-device 0 of queue 0 may still be writing" in str(found)
        assert "ttnn.wait_for_event(0, ttnn.record_event(mesh_device, 0))" in str(found)
    else:
        assert findings == []


def test_a_workload_races_with_a_transfer_on_the_other_queue(mesh):
    buffer = MeshBuffer.create(ReplicatedBufferConfig(64), DeviceLocalBufferConfig(32), mesh)
    with watched() as findings:
        launched(mesh, buffer, 0)
        EnqueueWriteMeshBuffer(mesh.mesh_command_queue(1), buffer, bytes(64))
    assert "enqueue_mesh_workload" in str(findings[0])
    assert kinds(findings) == [FindingKind.RACE]
