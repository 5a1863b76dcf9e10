"""Mesh buffers: memory that nothing was written to, and transfers on two queues."""

from catalogue import Told, mistake, right

import softmesh as ttnn
from softmesh import metal

OLD = "Bytes of whatever was there before: other ones in each run."
FIRST = ttnn.MeshCoordinate(0, 0)


def replicated(mesh):
    return metal.MeshBuffer.create(metal.ReplicatedBufferConfig(64), metal.DeviceLocalBufferConfig(32), mesh)


def split(mesh):
    """Bytes of its own on each device."""
    config = metal.ShardedBufferConfig(512, metal.Shape2D(2, 256), metal.Shape2D(1, 64))
    return metal.MeshBuffer.create(config, metal.DeviceLocalBufferConfig(64), mesh)


def two_queues():
    mesh = ttnn.open_mesh_device(ttnn.MeshShape(2, 4), num_command_queues=2)
    return mesh, mesh.mesh_command_queue(0), mesh.mesh_command_queue(1)


@mistake(
    Told.WARNING,
    "is memory that nothing was written to since MeshBuffer.create",
    symptom=OLD,
    mend="Write to a buffer, or let a workload fill it, before it is read.",
)
def a_buffer_is_read_on_a_device_before_it_is_written(mesh):
    metal.ReadShard(mesh.mesh_command_queue(0), None, replicated(mesh), FIRST)


@mistake(
    Told.WARNING,
    "enqueue_read_mesh_buffer",
    "nothing was written to since MeshBuffer.create",
    symptom=OLD,
    mend="Write to a buffer before it is read.",
)
def a_split_buffer_is_read_before_it_is_written(mesh):
    metal.EnqueueReadMeshBuffer(mesh.mesh_command_queue(0), None, split(mesh), True)


@mistake(
    Told.WARNING,
    "nothing was written to on device (1, 1) since MeshBuffer.create",
    symptom=OLD,
    mend="Write to each device that is read.",
)
def a_buffer_is_written_on_one_device_and_read_on_another(mesh):
    queue, buffer = mesh.mesh_command_queue(0), replicated(mesh)
    metal.WriteShard(queue, buffer, bytes(64), FIRST)
    metal.ReadShard(queue, None, buffer, ttnn.MeshCoordinate(1, 1))


@mistake(
    Told.WARNING,
    "nothing was written to on device (1, 1) since MeshBuffer.create",
    symptom=OLD,
    mend="Put a shard for each device into the host buffer.",
)
def a_host_buffer_has_no_shard_for_a_device_that_is_read(mesh):
    queue, buffer = mesh.mesh_command_queue(0), split(mesh)
    host = metal.DistributedHostBuffer.create(mesh.shape)
    host.emplace_shard(FIRST, bytes(64))
    queue.enqueue_write(buffer, host, True)
    metal.ReadShard(queue, None, buffer, ttnn.MeshCoordinate(1, 1))


@right
def a_buffer_is_written_on_two_devices_and_read_there(mesh):
    queue, buffer = mesh.mesh_command_queue(0), replicated(mesh)
    for place in (FIRST, ttnn.MeshCoordinate(1, 1)):
        metal.WriteShard(queue, buffer, bytes(64), place)
    for place in (FIRST, ttnn.MeshCoordinate(1, 1)):
        metal.ReadShard(queue, None, buffer, place)


@right
def buffers_are_written_and_read(mesh):
    queue, one, other = mesh.mesh_command_queue(0), replicated(mesh), split(mesh)
    metal.EnqueueWriteMeshBuffer(queue, one, bytes(64), False)
    metal.EnqueueWriteMeshBuffer(queue, other, bytes(512), False)
    metal.ReadShard(queue, None, one, FIRST)
    metal.EnqueueReadMeshBuffer(queue, None, other, True)


@mistake(
    Told.SANITIZER,
    "queue 1 reads what queue 0 may still be writing: mesh buffer of 2 pages",
    symptom="The host reads the bytes of the step before.",
    mend="Let the queue that reads wait for an event behind the write.",
)
def a_buffer_is_read_on_the_other_queue():
    mesh, first, second = two_queues()
    buffer = replicated(mesh)
    metal.EnqueueWriteMeshBuffer(first, buffer, bytes(64), False)
    metal.ReadShard(second, None, buffer, FIRST)


@right
def a_buffer_is_read_on_the_other_queue_behind_an_event():
    mesh, first, second = two_queues()
    buffer = replicated(mesh)
    metal.EnqueueWriteMeshBuffer(first, buffer, bytes(64), False)
    second.enqueue_wait_for_event(first.enqueue_record_event())
    metal.ReadShard(second, None, buffer, FIRST)


@mistake(
    Told.SANITIZER,
    "reused memory: queue 1 writes what queue 0 may still be writing",
    symptom="The bytes of the buffer that was freed come last.",
    mend="Wait for the queue before a buffer is freed whose memory the other queue may be given.",
)
def a_buffer_is_freed_while_the_other_queue_writes_there():
    mesh, first, second = two_queues()
    buffer = replicated(mesh)
    metal.EnqueueWriteMeshBuffer(first, buffer, bytes(64), False)
    buffer.deallocate()
    metal.EnqueueWriteMeshBuffer(second, replicated(mesh), bytes(64), False)


@right
def a_buffer_is_freed_once_its_queue_has_finished():
    mesh, first, second = two_queues()
    buffer = replicated(mesh)
    metal.EnqueueWriteMeshBuffer(first, buffer, bytes(64), False)
    metal.Finish(first)
    buffer.deallocate()
    metal.EnqueueWriteMeshBuffer(second, replicated(mesh), bytes(64), False)
