"""What a collective is given beside its operands (buffers, semaphores, a sub-device) must be there, on their mesh.

None of it changes a result here; on chips a counter of another mesh is waited for in vain.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from softmesh.collectives.argument_kinds import KIND_OF
from softmesh.collectives.semaphores import GlobalSemaphore
from softmesh.errors import MeshError, SoftmeshWarning
from softmesh.hardware import SubDeviceId
from softmesh.lenience import warn_or_raise
from softmesh.runtime.device import MeshDevice
from softmesh.tensor.tensor import Tensor


def check_resources(op: str, given: Mapping[str, Any], mesh: MeshDevice) -> None:
    for name, value in given.items():
        check = _CHECKS.get(KIND_OF.get(name, ""))
        if check is not None and value is not None:
            check(op, name, value, mesh)


def check_buffer(op: str, name: str, buffer: Tensor, mesh: MeshDevice) -> None:
    buffer.check_allocated(f"{op} ({name})")
    if buffer.device() is not mesh:
        raise MeshError(
            f"{op}: {name} {list(buffer.shape)} lies on {told(buffer.device())}, and the operands on {told(mesh)}: "
            "allocate it there, with device=mesh_device."
        )


def _check_buffers(op: str, name: str, value: Any, mesh: MeshDevice) -> None:
    for label, buffer in _labelled(name, value):
        check_buffer(op, label, buffer, mesh)


def _check_semaphores(op: str, name: str, value: Any, mesh: MeshDevice) -> None:
    found: dict[int, str] = {}
    for label, semaphore in _labelled(name, value):
        _check_semaphore(op, label, semaphore, mesh)
        before = found.setdefault(id(semaphore), label)
        if before != label:
            warn_or_raise(
                f"{op}: {before} and {label} are the same semaphore, which would count for both: make each with a "
                "ttnn.create_global_semaphore(...) of its own.",
                SoftmeshWarning,
                MeshError,
            )
    if not found:
        raise MeshError(
            f"{op}: {name} is an empty list: give at least one semaphore of ttnn.create_global_semaphore(...)."
        )


def _check_semaphore(op: str, name: str, semaphore: GlobalSemaphore, mesh: MeshDevice) -> None:
    own, covered = semaphore.device(), mesh
    while covered is not own:
        parent = covered.get_parent_mesh()
        if parent is None:
            raise MeshError(
                f"{op}: {name} is a semaphore of {told(own)}, and the operands lie on {told(mesh)}: make it with "
                "ttnn.create_global_semaphore(mesh_device, ...) of their mesh."
            )
        covered = parent  # whose chips include those of its part


def _check_sub_device(op: str, name: str, value: SubDeviceId, mesh: MeshDevice) -> None:
    known = mesh.sub_devices.ids()
    if value not in known:
        raise MeshError(
            f"SubDevice index {value.id} out of bounds {len(known)}: {op} got {name}={value}, and the loaded manager "
            f"of {mesh} has {known}. Load one that has it with mesh_device.load_sub_device_manager(...)."
        )


def told(mesh: MeshDevice | None) -> str:
    return "the host" if mesh is None else f"{mesh} of id {mesh.id()}"


def _labelled(name: str, value: Any) -> Iterable[tuple[str, Any]]:
    if isinstance(value, list | tuple):
        return [(f"{name}[{i}]", item) for i, item in enumerate(value)]
    return [(name, value)]


_CHECKS = {
    "tensor": _check_buffers,
    "tensors": _check_buffers,
    "semaphores": _check_semaphores,
    "sub-device": _check_sub_device,
}
