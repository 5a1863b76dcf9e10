"""apply_device_delay: some chips start later than others. Values never depend on it; observers are told."""

from __future__ import annotations

from collections.abc import Sequence

from softmesh.arguments import checked, checked_all, checked_ints, knows_its_names
from softmesh.errors import MeshError
from softmesh.hardware.dispatch import SubDeviceId
from softmesh.runtime.commands import emit, observed
from softmesh.runtime.device import MeshDevice

_WHERE = "apply_device_delay"


@knows_its_names
def apply_device_delay(
    mesh_device: MeshDevice, delays: Sequence[Sequence[int]], *, subdevice_id: SubDeviceId | None = None
) -> None:
    """Let each device wait for so many cycles: a list of rows, one number for each device of the mesh."""
    wanted = "a MeshDevice: open one with ttnn.open_mesh_device(ttnn.MeshShape(rows, cols))"
    mesh = checked(_WHERE, "mesh_device", mesh_device, MeshDevice, wanted)
    mesh.check_open(_WHERE)
    rows = checked_all(_WHERE, "delays", delays, (list, tuple), "rows, each a list of ints")
    cycles = [checked_ints(_WHERE, f"delays[{i}]", row) for i, row in enumerate(rows)]
    shape = tuple(mesh.shape)
    if mesh.shape.dims() != 2 or [len(row) for row in cycles] != [shape[1]] * shape[0]:
        raise MeshError(
            f"{_WHERE}: delays must have a row for each row of {mesh.shape} and a number for each of its devices, got "
            f"rows of {[len(row) for row in cycles]}."
        )
    if any(number < 0 for row in cycles for number in row):
        raise MeshError(f"{_WHERE}: a delay counts cycles, 0 or more; got {cycles}.")
    if observed():
        coords = tuple(mesh.shape.coordinates())
        emit(_WHERE, (), (), coords=coords, arguments={"delays": cycles}, device=mesh)
