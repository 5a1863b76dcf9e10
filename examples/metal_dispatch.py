"""The smallest workload: an empty kernel on four cores of every device of a 2x4 mesh.

softmesh run examples/metal_dispatch.py
"""

import ttnn

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


def nothing() -> None:
    """A kernel that returns at once."""


with ttnn.open_mesh_device(ttnn.MeshShape(2, 4)) as mesh:
    program = CreateProgram()
    kernel = CreateKernel(program, nothing, CORES, ComputeConfig())
    SetRuntimeArgs(program, kernel, CORES, [])

    workload = MeshWorkload()
    workload.add_program(ttnn.MeshCoordinateRange(mesh.shape), program)
    queue = mesh.mesh_command_queue()
    EnqueueMeshWorkload(queue, workload, blocking=False)
    Finish(queue)
    print(f"ran on {mesh.get_num_devices()} devices, 4 cores each")
