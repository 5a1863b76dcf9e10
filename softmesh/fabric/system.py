"""The system of a process: the interface that opening a mesh needs, the elastic machine, and the current system."""

from __future__ import annotations

import os
from collections.abc import Collection
from functools import lru_cache
from typing import TYPE_CHECKING, Protocol

from softmesh.errors import MeshError
from softmesh.fabric import settings
from softmesh.fabric.mesh_binding import Binding
from softmesh.fabric.mesh_graph import LogicalMesh
from softmesh.hardware import ClusterType, FabricConfig
from softmesh.mesh import MeshCoordinate, MeshShape, check_same_size
from softmesh.systems.chip import WORMHOLE, Chip
from softmesh.systems.system_choice import VISIBLE, chosen_machine, own_host

if TYPE_CHECKING:
    from softmesh.fabric.machine_system import MachineSystem
    from softmesh.systems.machine import Machine


class System(Protocol):
    """A machine as this process sees it: the chips it may open, and the mesh they form."""

    @property
    def name(self) -> str: ...

    @property
    def chip(self) -> Chip: ...

    @property
    def shape(self) -> MeshShape: ...

    @property
    def cluster_type(self) -> ClusterType: ...

    @property
    def meshes(self) -> tuple[LogicalMesh, ...]:
        """All meshes of the descriptor as it was written, whatever the active fabric makes of them."""

    @property
    def own_meshes(self) -> tuple[LogicalMesh, ...]:
        """Those that this process works on: the one it is bound to, or all of them."""

    @property
    def host_grid(self) -> tuple[int, ...]:
        """How many hosts hold the mesh of this process, along each axis."""

    @property
    def host_rank(self) -> int | None:
        """Which of them this process runs on, where its binding says so."""

    def device_ids(self) -> list[int]: ...

    def pcie_ids(self) -> list[int]:
        """The chips that hang on a host directly."""

    def pcie_chip_of(self, device_id: int) -> int:
        """The chip through which the host reaches this one."""

    def choose_devices(self, shape: MeshShape, offset: MeshCoordinate | None, in_use: Collection[int]) -> list[int]:
        """Physical ids for a mesh of this shape, row-major; an error where there are none."""

    def check_devices(self, ids: list[int]) -> None:
        """Refuse ids that the machine does not have."""

    def reshape_devices(self, ids: list[int], old: MeshShape, new: MeshShape) -> list[int]:
        """The order of the same devices under another shape."""

    def node_of(self, device_id: int) -> tuple[int, int]:
        """Mesh id and chip id of a device in the fabric."""

    def are_joined(self, line: list[int], axis: int) -> bool:
        """Whether the fabric as configured links the last of these devices, along a mesh axis, to the first."""

    def links_along(self, lines: list[list[int]], axis: int | None) -> int:
        """How many links in parallel the fabric has along all of these lines of devices."""

    def bring_up(self) -> None:
        """Start the fabric as configured; refuse where the machine's links do not allow it."""

    def use_active_fabric(self) -> None:
        """Start the fabric that is configured now, under meshes that were opened without one."""


# The machine that is there when none was chosen.


_WRAPPING = {
    FabricConfig.FABRIC_1D_RING: (0, 1),
    FabricConfig.FABRIC_2D_TORUS_X: (1,),
    FabricConfig.FABRIC_2D_TORUS_Y: (0,),
    FabricConfig.FABRIC_2D_TORUS_XY: (0, 1),
}


MOST_OPENED = 1 << 16  # devices of one mesh


class ElasticSystem:
    """Wormhole chips without end, every one next to every other: takes any shape, of any rank.

    Asked for "the" system mesh it answers 2x4, and calls itself a T3K. Ids count up from the lowest free
    one. Every mesh is wired as a Galaxy is: four links from chip to chip, and around each axis.
    """

    name = "elastic"
    chip = WORMHOLE
    shape = MeshShape(2, 4)
    cluster_type = ClusterType.T3K
    host_grid = (1, 1)
    host_rank = None
    links_per_edge = 4
    meshes = own_meshes = (LogicalMesh(0, "M0", (2, 4), channels=links_per_edge),)

    def __init__(self, visible: int | None = None) -> None:
        """`visible`: so many chips, and no more, are there for this process."""
        self._visible = visible
        if visible is not None:
            self.shape = MeshShape(1, visible)
            self.meshes = self.own_meshes = (LogicalMesh(0, "M0", (1, visible), channels=self.links_per_edge),)

    def device_ids(self) -> list[int]:
        return list(range(self.shape.mesh_size()))

    def pcie_ids(self) -> list[int]:
        return self.device_ids()

    def pcie_chip_of(self, device_id: int) -> int:
        return device_id

    def choose_devices(self, shape: MeshShape, offset: MeshCoordinate | None, in_use: Collection[int]) -> list[int]:
        if offset is not None and offset.dims() != shape.dims():
            raise MeshError(
                f"Requested mesh shape dimensions mismatch: offset {offset} has {offset.dims()} dims, "
                f"{shape} has {shape.dims()}."
            )
        if shape.mesh_size() > MOST_OPENED:
            raise MeshError(f"{shape} has {shape.mesh_size()} devices; at most {MOST_OPENED} can be opened at once.")
        if self._visible is not None and shape.mesh_size() > self._visible - len(in_use):
            free = f", {len(in_use)} of which are open already" if in_use else ""
            raise MeshError(
                f"Requested mesh shape {shape} needs {shape.mesh_size()} devices, and {VISIBLE}={os.environ[VISIBLE]} "
                f"lets this process see {self._visible}{free}. List more, or open a smaller mesh."
            )
        ids: list[int] = []
        candidate = 0
        while len(ids) < shape.mesh_size():
            if candidate not in in_use:
                ids.append(candidate)
            candidate += 1
        return ids

    def check_devices(self, ids: list[int]) -> None:
        pass

    def reshape_devices(self, ids: list[int], old: MeshShape, new: MeshShape) -> list[int]:
        check_same_size(old, new)
        return ids

    def node_of(self, device_id: int) -> tuple[int, int]:
        return 0, device_id

    def are_joined(self, line: list[int], axis: int) -> bool:
        return axis in _WRAPPING.get(settings.active().config, ())

    def links_along(self, lines: list[list[int]], axis: int | None) -> int:
        return min(self.links_per_edge, settings.active().num_planes or self.links_per_edge)

    def bring_up(self) -> None:
        pass

    def use_active_fabric(self) -> None:
        pass


# The system of this process: a chosen machine under the fabric that is set, or the elastic one. It is cached, and made
# anew when the machine, the binding, the descriptor's file time or the fabric settings change.


_ELASTIC = ElasticSystem()
_CACHED: tuple[Machine | None, object, MachineSystem] | None = None


def current_system() -> System:
    return _machine_system() or _elastic()


def _elastic() -> ElasticSystem:
    text = os.environ.get(VISIBLE, "")
    return _seen_through(text) if text.strip() else _ELASTIC


@lru_cache(maxsize=8)
def _seen_through(visible: str) -> ElasticSystem:
    """The elastic machine as a process with TT_VISIBLE_DEVICES sees it: its chips count from 0 again."""
    listed = [word.strip() for word in visible.split(",")]
    odd = next((word for word in listed if not (word.isascii() and word.isdigit() and len(word) < 7)), None)
    if odd is not None:
        raise MeshError(
            f"{VISIBLE}: {odd[:40]!r} is no chip number of the elastic machine. Write numbers such as 0,1; PCI "
            "addresses belong to a machine that is named, as by SOFTMESH_SYSTEM=T3000."
        )
    return ElasticSystem(len({int(word) for word in listed}))


def _machine_system() -> MachineSystem | None:
    global _CACHED
    binding = Binding.from_environment()
    machine = chosen_machine(whole=binding.descriptor is not None and binding.mesh_id is not None)
    if machine is None and binding.descriptor is None:
        return None
    from softmesh.fabric.machine_system import MachineSystem
    from softmesh.fabric.routing.route import PASS_THROUGH

    crossing = os.environ.get(PASS_THROUGH, "")
    key = (binding, _modified(binding.descriptor), settings.active(), crossing)
    if _CACHED is None or _CACHED[0] is not machine or _CACHED[1] != key:
        _CACHED = machine, key, MachineSystem(_visible_machine(machine, binding), binding, settings.active())
    return _CACHED[2]


def _visible_machine(machine: Machine | None, binding: Binding) -> Machine:
    """What this process has to do with: its host, or everything that its descriptor speaks of."""
    if machine is None:
        from softmesh.fabric.descriptors.loader import load_job_graph
        from softmesh.fabric.machine_from_graph import machine_from_graph

        assert binding.descriptor is not None
        return machine_from_graph(load_job_graph(binding.descriptor))
    sees_all = binding.descriptor is not None or len(machine.hosts) == 1
    return machine if sees_all else machine.only(machine.chips_of(own_host(machine)))


def _modified(path: str | None) -> float | None:
    return os.path.getmtime(path) if path is not None and os.path.exists(path) else None


def machine_system(wanted_for: str) -> MachineSystem:
    """The chosen machine; an error that says how to choose one where there is none."""
    system = _machine_system()
    if system is None:
        raise MeshError(
            f"{wanted_for}: the elastic machine has no links of its own. Choose a machine: "
            "SOFTMESH_SYSTEM=T3000, softmesh run --system T3000, or softmesh.use_system('torus:4x4')."
        )
    return system
