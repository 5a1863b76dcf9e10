"""Queries about the machine: how many chips there are, their ids and architecture. Opens nothing."""

from __future__ import annotations

from softmesh.arguments import checked, checked_int
from softmesh.fabric.system import current_system
from softmesh.hardware import Arch
from softmesh.mesh import MeshCoordinate, MeshShape
from softmesh.runtime.device import MeshDevice


def get_num_devices() -> int:
    return len(get_device_ids())


def get_device_ids() -> list[int]:
    return current_system().device_ids()


def get_pcie_device_ids() -> list[int]:
    """The chips that hang on a host directly: on the elastic machine all of them do."""
    return current_system().pcie_ids()


def get_num_pcie_devices() -> int:
    return len(get_pcie_device_ids())


def GetPCIeDeviceID(device_id: int) -> int:
    """The chip through which the host reaches `device_id`: on the elastic machine the chip itself."""
    return current_system().pcie_chip_of(checked_int("GetPCIeDeviceID", "device_id", device_id))


GetNumAvailableDevices = get_num_devices
GetNumPCIeDevices = get_num_pcie_devices


def get_arch_name() -> str:
    return current_system().chip.arch_name


def is_wormhole_b0(device: MeshDevice | None = None) -> bool:
    return _arch("is_wormhole_b0", device) is Arch.WORMHOLE_B0


def is_blackhole(device: MeshDevice | None = None) -> bool:
    return _arch("is_blackhole", device) is Arch.BLACKHOLE


def is_grayskull(device: MeshDevice | None = None) -> bool:
    """Never: programs of earlier releases ask, and no machine here has such chips."""
    _arch("is_grayskull", device)
    return False


def _arch(where: str, device: MeshDevice | None) -> Arch:
    if device is None:
        return current_system().chip.arch
    return checked(where, "device", device, MeshDevice, "a MeshDevice or None").arch()


class SystemMeshDescriptor:
    """The mesh that `open_mesh_device()` without a shape opens; this process holds all of it."""

    def __repr__(self) -> str:
        return f"SystemMeshDescriptor({self.shape()}, {current_system().name})"

    def shape(self) -> MeshShape:
        return current_system().shape

    def local_shape(self) -> MeshShape:
        system = current_system()
        return MeshShape([n // h for n, h in zip(system.shape, system.host_grid, strict=True)])

    def get_device_id(self, coord: MeshCoordinate) -> int:
        wanted = "a MeshCoordinate such as ttnn.MeshCoordinate(0, 0)"
        place = self.shape().index(checked("get_device_id", "coord", coord, MeshCoordinate, wanted))
        return current_system().choose_devices(self.shape(), None, ())[place]

    def is_local(self, coord: MeshCoordinate) -> bool:
        self.get_device_id(coord)
        system = current_system()
        own = MeshShape(system.host_grid).coordinates()
        at = list(own)[system.host_rank or 0]
        blocks = zip(coord, self.local_shape(), at, strict=True)
        return all(c // n == i for c, n, i in blocks)

    def all_local(self) -> bool:
        return self.shape() == self.local_shape()
