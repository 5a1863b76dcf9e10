"""Opens, closes and synchronizes meshes and devices; one process-wide table tells which chips are in use."""

from __future__ import annotations

import math
import os
import weakref
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import fields
from typing import TYPE_CHECKING

from softmesh.arguments import checked, checked_int, checked_ints, refused, reject_unknown_keywords
from softmesh.errors import ArgumentError, MeshError, NotModelled
from softmesh.fabric import settings as fabric_settings
from softmesh.fabric.routing.packets import payload_bytes
from softmesh.fabric.system import System, current_system
from softmesh.hardware import DispatchCoreConfig, SubDeviceId
from softmesh.mesh import MeshCoordinate, MeshShape
from softmesh.processes import current_context
from softmesh.processes.rank_grid import RankGrid, join
from softmesh.runtime.device import A_MESH_DEVICE, MeshDevice, checked_open
from softmesh.runtime.joins_on_host import watch_joins
from softmesh.runtime.lockstep_check import watch
from softmesh.runtime.memory.memory_map import memory_map_of
from softmesh.runtime.mesh_view import HELD_ELSEWHERE, HELD_HERE, Holding, part, together
from softmesh.runtime.queues.queue_id import QueueId
from softmesh.systems import system_choice

if TYPE_CHECKING:
    from softmesh.systems.machine import Machine

DEFAULT_L1_SMALL_SIZE = 0
DEFAULT_TRACE_REGION_SIZE = 0
DEFAULT_WORKER_L1_SIZE = 0


_OPENED: weakref.WeakSet[MeshDevice] = weakref.WeakSet()


def open_meshes() -> list[MeshDevice]:
    """The meshes opened and not closed, oldest first; submeshes are not listed."""
    return sorted((mesh for mesh in _OPENED if mesh.is_open), key=MeshDevice.id)


def _ids_in_use() -> set[int]:
    return {device_id for mesh in open_meshes() for device_id in mesh.all_device_ids}


def use_system(system: Machine | str | None, down: Sequence[str] = ()) -> None:
    """Choose the machine: a name of `softmesh systems`, a Machine, or None for what the environment says.

    >>> use_system("T3000", down=["link:0-1"])
    """
    opened = open_meshes()
    if opened:
        raise MeshError(
            f"use_system: {opened[0]!r} is open on {opened[0].system.name}. Close it before you change the machine."
        )
    system_choice.use_system(system, down)


class DeviceGrid:
    """The tutorials' older spelling of a 2-D mesh shape: DeviceGrid(y=rows, x=columns)."""

    def __init__(self, y: int, x: int) -> None:
        self.y = checked_int("DeviceGrid", "y", y)
        self.x = checked_int("DeviceGrid", "x", x)

    def as_shape(self) -> MeshShape:
        return MeshShape(self.y, self.x)

    def __repr__(self) -> str:
        return f"DeviceGrid(y={self.y}, x={self.x})"


@reject_unknown_keywords
def open_mesh_device(
    mesh_shape: MeshShape | None = None,
    l1_small_size: int = DEFAULT_L1_SMALL_SIZE,
    trace_region_size: int = DEFAULT_TRACE_REGION_SIZE,
    num_command_queues: int = 1,
    dispatch_core_config: DispatchCoreConfig | None = None,
    offset: MeshCoordinate | None = None,
    physical_device_ids: Sequence[int] = (),
    worker_l1_size: int = DEFAULT_WORKER_L1_SIZE,
) -> MeshDevice:
    """Open a mesh of this shape; None opens the whole system mesh.

    >>> open_mesh_device(MeshShape(2, 4))
    MeshDevice(2x4 grid, 8 devices)
    """
    current_context.init()  # first of all: a rank that fails from here on takes the others down with its own message
    watch_joins()
    system = current_system()
    payload_bytes(fabric_settings.active().max_payload, system.chip.largest_packet_bytes)  # refuses what cannot be
    shape = system.shape if mesh_shape is None else _checked_shape(mesh_shape)
    if offset is not None:
        wanted = "a MeshCoordinate such as ttnn.MeshCoordinate(0, 2)"
        checked("open_mesh_device", "offset", offset, MeshCoordinate, wanted)
    options = _checked_options(num_command_queues, dispatch_core_config) | {
        "l1_small_size": _checked_size("l1_small_size", l1_small_size),
        "trace_region_size": _checked_size("trace_region_size", trace_region_size),
        "worker_l1_size": _checked_size("worker_l1_size", worker_l1_size),
    }
    memory_map_of(system.chip, options)  # before anything starts: do the sizes fit?
    given = checked_ints("open_mesh_device", "physical_device_ids", physical_device_ids)
    if given:
        system.check_devices(_check_physical_ids(given, shape))
    ids = given or system.choose_devices(shape, offset, _ids_in_use())
    system.bring_up()
    start = (0,) * shape.dims() if offset is None else tuple(offset)
    holding = _holding(system, start, tuple(shape)) if not given else _holding_of(system, given)
    mesh = MeshDevice(shape, ids, system, options=options, holding=holding)
    if mesh.ranks is not None:
        mesh.ranks.calls.opened()
        mesh.tell_ranks(f"open_mesh_device({', '.join(_told_of(mesh, options))})")
    _OPENED.add(mesh)
    _sanitize_where_asked()
    return mesh


def _told_of(mesh: MeshDevice, options: dict[str, object]) -> list[str]:
    """What the processes that open a mesh together must agree on."""
    fabric, usual = fabric_settings.active(), fabric_settings.FabricSettings()
    chosen = [f"fabric={fabric.config.name}"]
    for field in fields(fabric):
        value = getattr(fabric, field.name)
        if field.name != "config" and value != getattr(usual, field.name):
            chosen.append(f"{field.name}={getattr(value, 'name', value)}")
    given = [f"{name}={value}" for name, value in options.items() if value]
    return [f"{mesh.shape}", *chosen, *given]


def _sanitize_where_asked() -> None:
    if os.environ.get("SOFTMESH_SANITIZE"):
        from softmesh.runtime.sanitizer.race_detector import start_where_asked

        start_where_asked()


def _holding(system: System, start: Sequence[int], shape: Sequence[int]) -> Holding:
    """Who holds the rectangle of the system mesh; opening a device is what makes processes meet."""
    ranks = _ranks_sharing_mesh(system)
    return HELD_HERE if ranks is None else part(together(ranks, tuple(system.shape)), start, shape)


def _holding_of(system: System, ids: Sequence[int]) -> Holding:
    """Who holds devices that were asked for by their ids: this process, or another."""
    ranks = _ranks_sharing_mesh(system)
    if ranks is None:
        return HELD_HERE
    mesh = system.own_meshes[0]
    holders = {mesh.host_rank(system.node_of(device_id)[1]) for device_id in ids}
    if len(holders) > 1:
        raise NotModelled(
            f"physical_device_ids {list(ids)} lie on several hosts of mesh {mesh.id}: open it by its shape alone, and "
            "take parts of it with create_submesh."
        )
    return HELD_HERE if holders == {ranks.context.rank} else HELD_ELSEWHERE


def _ranks_sharing_mesh(system: System) -> RankGrid | None:
    """The processes that hold the system mesh together with this one."""
    world = current_context.current_world()
    hosts = system.host_grid
    if math.prod(hosts) == 1:
        return None
    if world.size == 1:
        raise MeshError(
            f"The mesh lies over {math.prod(hosts)} hosts, and this process is alone: start one process for each of "
            "them with tt-run and a rank binding."
        )
    ranks = join(world, system.own_meshes[0].id, system.host_rank, hosts)
    watch()
    return ranks


def _checked_shape(shape: object) -> MeshShape:
    if isinstance(shape, list | tuple) and any(isinstance(one, str) for one in shape):
        raise ArgumentError(
            "open_mesh_device(): incompatible function arguments: mesh_shape must be a MeshShape. Cards are named by "
            "their paths in softmesh.metal.open_mesh_device(paths_or_ids, shape)."
        )
    written = tuple(shape) if isinstance(shape, list | tuple) else "(rows, cols)"
    wanted = f"a MeshShape: write ttnn.MeshShape{written}"
    mesh_shape = checked("open_mesh_device", "mesh_shape", shape, MeshShape, wanted)
    if mesh_shape.mesh_size() == 0:
        raise MeshError(
            f"Requested mesh shape {mesh_shape} has zero devices (mesh_size=0). "
            "MeshShape must have at least one device."
        )
    return mesh_shape


def _checked_size(name: str, value: object) -> int:
    size = checked_int("open_mesh_device", name, value)
    if size < 0:
        raise refused("open_mesh_device", f"{name} counts bytes and cannot be negative, got {size}")
    return size


def _checked_options(num_command_queues: object, dispatch: object) -> dict[str, object]:
    queues = checked_int("open_mesh_device", "num_command_queues", num_command_queues)
    if queues not in (1, 2):
        raise MeshError(f"num_command_queues must be 1 or 2, got {queues}.")
    if dispatch is not None:
        wanted = "a ttnn.DispatchCoreConfig"
        checked("open_mesh_device", "dispatch_core_config", dispatch, DispatchCoreConfig, wanted)
    return {"num_command_queues": queues, "dispatch_core_config": dispatch}


def _check_physical_ids(ids: list[int], shape: MeshShape) -> list[int]:
    if len(ids) != shape.mesh_size():
        raise MeshError(
            f"Shape and values size mismatch; shape mesh_size: {shape.mesh_size()}, values size: {len(ids)}"
        )
    twice = sorted({i for i in ids if ids.count(i) > 1})
    if twice:
        raise MeshError(f"physical_device_ids names device {twice[0]} twice: {ids}. Each chip has one place in a mesh.")
    if any(i < 0 for i in ids):
        raise MeshError(f"physical_device_ids must not be negative: {ids}.")
    taken = sorted(set(ids) & _ids_in_use())
    if taken:
        raise MeshError(
            f"Cannot re-initialize device {taken[0]}, must first call close(): it belongs to an open mesh. "
            "Close that with ttnn.close_mesh_device(...) or ttnn.close_device(...)."
        )
    return ids


def close_mesh_device(mesh_device: MeshDevice) -> None:
    checked("close_mesh_device", "mesh_device", mesh_device, MeshDevice, A_MESH_DEVICE).close()


@contextmanager
def create_mesh_device(*args: object, **kwargs: object) -> Iterator[MeshDevice]:
    """`open_mesh_device` for a `with` block; closes on exceptions too."""
    mesh = open_mesh_device(*args, **kwargs)  # type: ignore[arg-type]
    try:
        yield mesh
    finally:
        close_mesh_device(mesh)


@reject_unknown_keywords
def open_device(
    device_id: int,
    l1_small_size: int = DEFAULT_L1_SMALL_SIZE,
    trace_region_size: int = DEFAULT_TRACE_REGION_SIZE,
    num_command_queues: int = 1,
    dispatch_core_config: DispatchCoreConfig | None = None,
    worker_l1_size: int = DEFAULT_WORKER_L1_SIZE,
) -> MeshDevice:
    """One chip, as a 1x1 mesh. TT-NN takes keywords only; the tutorials write `open_device(0)`."""
    return open_mesh_device(
        MeshShape(1, 1),
        l1_small_size=l1_small_size,
        trace_region_size=trace_region_size,
        num_command_queues=num_command_queues,
        dispatch_core_config=dispatch_core_config,
        physical_device_ids=[checked_int("open_device", "device_id", device_id)],
        worker_l1_size=worker_l1_size,
    )


def close_device(device: MeshDevice) -> None:
    close_mesh_device(device)


@contextmanager
def manage_device(device_id: int) -> Iterator[MeshDevice]:
    device = open_device(device_id=device_id)
    try:
        yield device
    finally:
        close_device(device)


@reject_unknown_keywords
def CreateDevice(
    device_id: int,
    num_command_queues: int = 1,
    l1_small_size: int = DEFAULT_L1_SMALL_SIZE,
    trace_region_size: int = DEFAULT_TRACE_REGION_SIZE,
    dispatch_core_config: DispatchCoreConfig | None = None,
    *,
    worker_l1_size: int = DEFAULT_WORKER_L1_SIZE,
) -> MeshDevice:
    return open_device(
        device_id, l1_small_size, trace_region_size, num_command_queues, dispatch_core_config, worker_l1_size
    )


CloseDevice = close_mesh_device


@reject_unknown_keywords
def CreateDevices(
    device_ids: Sequence[int],
    num_command_queues: int = 1,
    l1_small_size: int = DEFAULT_L1_SMALL_SIZE,
    trace_region_size: int = DEFAULT_TRACE_REGION_SIZE,
    dispatch_core_config: DispatchCoreConfig | None = None,
    *,
    worker_l1_size: int = DEFAULT_WORKER_L1_SIZE,
) -> dict[int, MeshDevice]:
    """Several chips, each a 1x1 mesh, by their ids; all of them or none."""
    ids = checked_ints("CreateDevices", "device_ids", device_ids)
    devices: dict[int, MeshDevice] = {}
    try:
        for device_id in ids:
            devices[device_id] = open_device(
                device_id,
                l1_small_size,
                trace_region_size,
                num_command_queues,
                dispatch_core_config,
                worker_l1_size,
            )
    except Exception:
        CloseDevices(devices)
        raise
    return devices


def CloseDevices(devices: dict[int, MeshDevice]) -> None:
    for device in checked("CloseDevices", "devices", devices, dict, "a dict of id to MeshDevice").values():
        close_mesh_device(device)


def open_device_mesh(grid: DeviceGrid | MeshShape, device_ids: Sequence[int] = (), **options: object) -> MeshDevice:
    """The tutorials' older spelling of `open_mesh_device`."""
    shape = grid.as_shape() if isinstance(grid, DeviceGrid) else grid
    return open_mesh_device(shape, physical_device_ids=device_ids, **options)  # type: ignore[arg-type]


close_device_mesh = close_mesh_device


def synchronize_device(
    device: MeshDevice, cq_id: int | QueueId | None = None, sub_device_ids: Sequence[SubDeviceId] = ()
) -> None:
    """Wait until one queue, or without `cq_id` all, have run what was enqueued; and for other ranks to get there."""
    checked_open("synchronize_device", "device", device)
    for queue in device.queues if cq_id is None else [device.mesh_command_queue(cq_id)]:
        queue.finish(sub_device_ids, doing="synchronize_device")


_DEFAULT_DEVICE: MeshDevice | None = None


def SetDefaultDevice(device: MeshDevice | None) -> None:
    global _DEFAULT_DEVICE
    if device is not None:
        checked("SetDefaultDevice", "device", device, MeshDevice, A_MESH_DEVICE)
    _DEFAULT_DEVICE = device


def GetDefaultDevice() -> MeshDevice | None:
    return _DEFAULT_DEVICE
