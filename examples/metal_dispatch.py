"""The smallest workload: a kernel that notes where it runs, on four cores of every device of a 2x4 mesh.

softmesh run examples/metal_dispatch.py
"""

import ttnn

from softmesh.kernels import get_absolute_logical_x, get_absolute_logical_y
from softmesh.metal import (
    ComputeConfig,
    CreateKernel,
    CreateProgram,
    EnqueueMeshWorkload,
    Finish,
    MeshWorkload,
    SetRuntimeArgs,
)

CORES = ttnn.CoreRange(ttnn.CoreCoord(0, 0), ttnn.CoreCoord(1, 1))


ran: set[tuple[int, int]] = set()


def note_core() -> None:
    """Runs once on each core, for all devices together."""
    ran.add((get_absolute_logical_x(), get_absolute_logical_y()))


with ttnn.open_mesh_device(ttnn.MeshShape(2, 4)) as mesh:
    program = CreateProgram()
    kernel = CreateKernel(program, note_core, CORES, ComputeConfig())
    SetRuntimeArgs(program, kernel, CORES, [])

    workload = MeshWorkload()
    workload.add_program(ttnn.MeshCoordinateRange(mesh.shape), program)
    queue = mesh.mesh_command_queue()
    EnqueueMeshWorkload(queue, workload, blocking=False)
    Finish(queue)
    print(f"ran on {mesh.get_num_devices()} devices, {len(ran)} cores each")
    assert ran == {(0, 0), (0, 1), (1, 0), (1, 1)}, "the kernel did not run on all four cores"
