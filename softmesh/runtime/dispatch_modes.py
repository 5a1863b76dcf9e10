"""Slow and fast dispatch, and start delays of devices: accepted and remembered, without an effect on values.

On a chip they steer how and when the host hands programs over. Here results and their order are the same under every
mode; a device delay is told to the observers.
"""

from __future__ import annotations

from collections.abc import Sequence
from types import TracebackType
from weakref import WeakSet

from softmesh.arguments import checked, checked_all, checked_ints, reject_unknown_keywords
from softmesh.errors import MeshError
from softmesh.hardware import DispatchCoreAxis
from softmesh.hardware.dispatch_cores import DispatchCoreConfig, SubDeviceId
from softmesh.kinds import Kind
from softmesh.runtime.commands import emit, observed
from softmesh.runtime.device import A_MESH_DEVICE, MeshDevice, checked_open

_ASYNCHRONOUS: WeakSet[MeshDevice] = WeakSet()
_SET_UP: WeakSet[MeshDevice] = WeakSet()


def enable_asynchronous_slow_dispatch(device: MeshDevice) -> None:
    """Let slow dispatch return before a program is done."""
    _ASYNCHRONOUS.add(checked_open("enable_asynchronous_slow_dispatch", "device", device))


def disable_asynchronous_slow_dispatch(device: MeshDevice) -> None:
    _ASYNCHRONOUS.discard(checked_open("disable_asynchronous_slow_dispatch", "device", device))


def is_asynchronous_slow_dispatch_enabled(device: MeshDevice) -> bool:
    return checked_open("is_asynchronous_slow_dispatch_enabled", "device", device) in _ASYNCHRONOUS


def initialize_fast_dispatch(device: MeshDevice, allow_destructive: bool = False) -> None:
    """Bring up fast dispatch on a mesh; TT-NN may overwrite buffers for it where `allow_destructive` lets it."""
    mesh = checked_open("initialize_fast_dispatch", "device", device)
    if mesh in _SET_UP:
        raise MeshError(
            f"initialize_fast_dispatch: fast dispatch is up on {mesh!r} already. Call "
            "ttnn.device.terminate_fast_dispatch(device) first."
        )
    _SET_UP.add(mesh)


def terminate_fast_dispatch(device: MeshDevice) -> None:
    mesh = checked_open("terminate_fast_dispatch", "device", device)
    if mesh not in _SET_UP:
        raise MeshError(
            f"terminate_fast_dispatch: fast dispatch was not brought up on {mesh!r}. Call "
            "ttnn.device.initialize_fast_dispatch(device) first."
        )
    _SET_UP.discard(mesh)


class setup_fast_dispatch:
    """Bring up fast dispatch at once; as the context of a `with` block, end it there."""

    def __init__(self, device: MeshDevice, *, allow_destructive: bool = False) -> None:
        initialize_fast_dispatch(device, allow_destructive)
        self._device = device

    def __enter__(self) -> None:
        return None

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._device.is_open:
            terminate_fast_dispatch(self._device)


def get_dispatch_core_axis(device: MeshDevice) -> DispatchCoreAxis:
    """Along which axis of a chip the cores lie that dispatch takes."""
    mesh = checked_open("get_dispatch_core_axis", "device", device)
    chosen = mesh.options.get("dispatch_core_config")
    if isinstance(chosen, DispatchCoreConfig) and chosen.axis is not None:
        return chosen.axis
    return mesh.system.chip.dispatch_axis


_WHERE = "apply_device_delay"


@reject_unknown_keywords
def apply_device_delay(
    mesh_device: MeshDevice, delays: Sequence[Sequence[int]], *, subdevice_id: SubDeviceId | None = None
) -> None:
    """Let each device wait for so many cycles: a list of rows, one number for each device of the mesh."""
    wanted = A_MESH_DEVICE
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
    mesh.note_program((_WHERE, tuple(map(tuple, cycles)), subdevice_id))
    if observed():
        coords = tuple(mesh.shape.coordinates())
        emit(_WHERE, Kind.PROGRAM, (), (), coords=coords, arguments={"delays": cycles}, device=mesh)
