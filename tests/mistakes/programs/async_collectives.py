"""Asynchronous collectives: semaphores and persistent buffers."""

import torch
from catalogue import Told, mistake, right

import softmesh as ttnn

TILES = ttnn.TILE_LAYOUT
CORES = ttnn.CoreRangeSet([ttnn.CoreRange(ttnn.CoreCoord(0, 0), ttnn.CoreCoord(7, 7))])


def split(mesh, shape=(128, 128)):
    mapper = ttnn.ShardTensor2dMesh(mesh, tuple(mesh.shape), dims=(None, -1))
    return ttnn.from_torch(torch.ones(*shape), layout=TILES, device=mesh, mesh_mapper=mapper)


def gathered(mesh, semaphores, out=None):
    return ttnn.experimental.all_gather_async(
        split(mesh),
        persistent_output_buffer=out,
        dim=1,
        multi_device_global_semaphore=semaphores,
        cluster_axis=1,
        topology=ttnn.Topology.Linear,
    )


@mistake(
    Told.WARNING,
    "stands at 1 as the call begins",
    "ttnn.reset_global_semaphore_value(semaphore, 0)",
    symptom="The op begins before its neighbours have sent: old or torn values, now and then.",
    mend="Make semaphores with 0, and set them back before they are used again.",
)
def a_semaphore_that_does_not_begin_at_zero(mesh):
    gathered(mesh, [ttnn.create_global_semaphore(mesh, CORES, 1) for _ in range(2)])


@right
def semaphores_that_begin_at_zero(mesh):
    semaphores = [ttnn.create_global_semaphore(mesh, CORES, 0) for _ in range(2)]
    gathered(mesh, semaphores)
    for semaphore in semaphores:
        ttnn.reset_global_semaphore_value(semaphore, 0)


@right
def empty_memory_is_a_persistent_output(mesh):
    out = ttnn.empty((128, 128), ttnn.float32, TILES, mesh)
    whole = gathered(mesh, [ttnn.create_global_semaphore(mesh, CORES, 0) for _ in range(2)], out)
    ttnn.to_torch(ttnn.get_device_tensors(whole)[0])


# -- semaphores that somebody else sets --------------------------------------------------------------


def two_queues():
    ttnn.set_fabric_config(ttnn.FabricConfig.FABRIC_1D)
    mesh = ttnn.open_mesh_device(ttnn.MeshShape(2, 4), num_command_queues=2)
    semaphores = [ttnn.create_global_semaphore(mesh, CORES, 0) for _ in range(2)]
    ttnn.synchronize_device(mesh)
    return mesh, semaphores


def set_back(semaphores, queue):
    with ttnn.command_queue(queue):
        for semaphore in semaphores:
            ttnn.reset_global_semaphore_value(semaphore, 0)


@mistake(
    Told.SANITIZER,
    "queue 1 writes what queue 0 may still be writing: mesh buffer",
    symptom="The collective waits for ever: what had come was set back to 0.",
    mend="Set semaphores back on the queue of the collective, or behind an event.",
)
def semaphores_are_set_back_on_the_other_queue():
    mesh, semaphores = two_queues()
    gathered(mesh, semaphores)
    set_back(semaphores, 1)


@mistake(
    Told.SANITIZER,
    "queue 0 writes what queue 1 may still be writing: mesh buffer",
    symptom="The collective begins with whatever was in that memory.",
    mend="Make semaphores on the queue of the collective, or wait for the other queue.",
)
def semaphores_are_made_on_the_other_queue():
    mesh, _ = two_queues()
    with ttnn.command_queue(1):
        semaphores = [ttnn.create_global_semaphore(mesh, CORES, 0) for _ in range(2)]
    gathered(mesh, semaphores)


@right
def semaphores_are_set_back_on_the_other_queue_between_events():
    mesh, semaphores = two_queues()
    gathered(mesh, semaphores)
    ttnn.wait_for_event(1, ttnn.record_event(mesh, 0))
    set_back(semaphores, 1)
    ttnn.synchronize_device(mesh)
    gathered(mesh, semaphores)
