"""Slow and fast dispatch: how the host hands programs to chips. Here it hands them over one way; modes are kept.

Results and their order are the same under every mode.
"""

from __future__ import annotations

from types import TracebackType
from weakref import WeakSet

from softmesh.arguments import checked
from softmesh.errors import MeshError
from softmesh.hardware import DispatchCoreAxis
from softmesh.hardware.dispatch import DispatchCoreConfig
from softmesh.runtime.device import MeshDevice

_A_MESH = "a MeshDevice: open one with ttnn.open_mesh_device(ttnn.MeshShape(rows, cols))"
_ASYNCHRONOUS: WeakSet[MeshDevice] = WeakSet()
_SET_UP: WeakSet[MeshDevice] = WeakSet()


def _open_mesh(where: str, device: object) -> MeshDevice:
    mesh = checked(where, "device", device, MeshDevice, _A_MESH)
    mesh.check_open(where)
    return mesh


def enable_asynchronous_slow_dispatch(device: MeshDevice) -> None:
    """Let slow dispatch return before a program is done."""
    _ASYNCHRONOUS.add(_open_mesh("enable_asynchronous_slow_dispatch", device))


def disable_asynchronous_slow_dispatch(device: MeshDevice) -> None:
    _ASYNCHRONOUS.discard(_open_mesh("disable_asynchronous_slow_dispatch", device))


def is_asynchronous_slow_dispatch_enabled(device: MeshDevice) -> bool:
    return _open_mesh("is_asynchronous_slow_dispatch_enabled", device) in _ASYNCHRONOUS


def initialize_fast_dispatch(device: MeshDevice, allow_destructive: bool = False) -> None:
    """Bring up fast dispatch on a mesh; TT-NN may overwrite buffers for it where `allow_destructive` lets it."""
    mesh = _open_mesh("initialize_fast_dispatch", device)
    if mesh in _SET_UP:
        raise MeshError(
            f"initialize_fast_dispatch: fast dispatch is up on {mesh!r} already. Call "
            "ttnn.device.terminate_fast_dispatch(device) first."
        )
    _SET_UP.add(mesh)


def terminate_fast_dispatch(device: MeshDevice) -> None:
    mesh = _open_mesh("terminate_fast_dispatch", device)
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
    mesh = _open_mesh("get_dispatch_core_axis", device)
    chosen = mesh.options.get("dispatch_core_config")
    if isinstance(chosen, DispatchCoreConfig) and chosen.axis is not None:
        return chosen.axis
    return mesh.system.chip.dispatch_axis
