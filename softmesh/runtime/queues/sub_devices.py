"""Sub-devices: disjoint groups of worker cores, the same on each chip of a mesh, and the managers that define them."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import TYPE_CHECKING

from softmesh import epoch
from softmesh.arguments import checked, checked_all, checked_int, checked_list, refused
from softmesh.cores import CoreCoord, CoreRange, CoreRangeSet
from softmesh.errors import MeshError
from softmesh.hardware.dispatch_cores import SubDeviceId

if TYPE_CHECKING:
    from softmesh.runtime.memory.allocator import Allocator

MOST_SUB_DEVICES = 8
_CORE_TYPES = 2  # worker cores, Ethernet cores
_NUMBERS = itertools.count(1)


class SubDevice:
    """Worker cores that programs have to themselves; `cores[0]` are they, and a mesh has no other kind."""

    __slots__ = ("worker_cores",)

    def __init__(self, cores: Sequence[CoreRangeSet]) -> None:
        kinds = checked_all("SubDevice", "cores", cores, (CoreRangeSet,), "ttnn.CoreRangeSets")
        if len(kinds) > _CORE_TYPES:
            raise MeshError(f"Too many core types for SubDevice: {len(kinds)}. Give one CoreRangeSet of worker cores.")
        if any(not other.empty() for other in kinds[1:]):
            raise MeshError(
                "A SubDevice of a mesh has worker cores only: leave out the CoreRangeSet of Ethernet cores."
            )
        self.worker_cores = kinds[0] if kinds else CoreRangeSet([])

    def __repr__(self) -> str:
        return f"SubDevice({self.worker_cores})"


class SubDeviceManagerId:
    """Made by `mesh.create_sub_device_manager(...)`."""

    __slots__ = ("_id",)
    _id: int

    def __init__(self) -> None:
        raise refused("SubDeviceManagerId", "it has no constructor: mesh.create_sub_device_manager(...) returns one")

    @classmethod
    def numbered(cls, number: int) -> SubDeviceManagerId:
        made = cls.__new__(cls)
        made._id = number
        return made

    def __index__(self) -> int:
        return self._id

    def __eq__(self, other: object) -> bool:
        return self._id == other._id if isinstance(other, SubDeviceManagerId) else NotImplemented

    def __hash__(self) -> int:
        return hash((SubDeviceManagerId, self._id))

    def __repr__(self) -> str:
        return f"SubDeviceManagerId({self._id})"


_DEFAULT = SubDeviceManagerId.numbered(0)


@dataclass(frozen=True)
class Manager:
    id: SubDeviceManagerId
    cores: tuple[CoreRangeSet, ...]  # of each sub-device
    local_l1_size: int

    @property
    def is_default(self) -> bool:
        return self.id is _DEFAULT

    def ids(self) -> list[SubDeviceId]:
        return [SubDeviceId(number) for number in range(len(self.cores))]


class SubDevices:
    """The managers of one mesh. The default one has a single sub-device, all worker cores."""

    def __init__(self, grid: tuple[int, int], allocator: Allocator) -> None:
        columns, rows = grid
        self._grid = CoreRange(CoreCoord(0, 0), CoreCoord(columns - 1, rows - 1))
        self._allocator = allocator
        self.active = self.default = Manager(_DEFAULT, (CoreRangeSet([self._grid]),), 0)
        self._managers = {_DEFAULT: self.default}
        self._stalled: tuple[SubDeviceId, ...] | None = None

    # -- managers --------------------------------------------------------------------------------

    def create(self, sub_devices: Sequence[SubDevice], local_l1_size: int) -> SubDeviceManagerId:
        where = "create_sub_device_manager"
        parts = checked_all(where, "sub_devices", sub_devices, (SubDevice,), "ttnn.SubDevices")
        size = checked_int(where, "local_l1_size", local_l1_size)
        if size < 0:
            raise refused(where, f"local_l1_size counts bytes and cannot be negative, got {size}")
        self._check(parts)
        made = Manager(SubDeviceManagerId.numbered(next(_NUMBERS)), tuple(part.worker_cores for part in parts), size)
        self._managers[made.id] = made
        return made.id

    def _check(self, parts: list[SubDevice]) -> None:
        if not parts:
            raise MeshError("A sub device manager has at least one sub device: got an empty list.")
        if len(parts) > MOST_SUB_DEVICES:
            raise MeshError(
                f"Too many sub devices specified: a manager has {MOST_SUB_DEVICES} at most, got {len(parts)}."
            )
        for part in parts:
            if not self._grid.contains(part.worker_cores):
                raise MeshError(
                    f"Tensix cores {part.worker_cores} specified in sub device must be within device grid {self._grid}."
                )
        for (i, one), (j, other) in combinations(enumerate(parts), 2):
            if _share_cores(one.worker_cores, other.worker_cores):
                raise MeshError(
                    f"SubDevices specified for SubDeviceManager intersect: {i} has {one.worker_cores} and {j} has "
                    f"{other.worker_cores}. Give each core to one of them."
                )

    def load(self, manager_id: SubDeviceManagerId) -> None:
        """Make a manager the active one; its sub-devices get the bottom of L1."""
        manager = self._known("load_sub_device_manager", manager_id)
        if manager is self.active:
            return
        if any(self._allocator.local(one).live() for one in self.ids() if not self.active.is_default):
            raise MeshError(
                "Cannot switch sub device managers while sub devices still have local allocations: deallocate the "
                "buffers that were made with sub_device_id=..., then switch."
            )
        if manager.is_default:
            self._allocator.unload_sub_devices()
        else:
            self._allocator.load_sub_devices(manager.cores, manager.local_l1_size)
        self.active = manager
        self._stalled = None
        epoch.invalidate()

    def clear(self) -> None:
        """Back to the default manager."""
        self.load(_DEFAULT)

    def remove(self, manager_id: SubDeviceManagerId) -> None:
        manager = self._known("remove_sub_device_manager", manager_id)
        if manager.is_default:
            raise MeshError(f"Cannot remove default sub device manager {manager.id.__index__()}")
        if manager is self.active:
            raise MeshError(
                f"Cannot remove active sub device manager {manager.id.__index__()}: call "
                "mesh.clear_loaded_sub_device_manager() first."
            )
        del self._managers[manager.id]

    def _known(self, where: str, manager_id: object) -> Manager:
        wanted = "what mesh.create_sub_device_manager(...) returned"
        number = checked(where, "sub_device_manager_id", manager_id, SubDeviceManagerId, wanted)
        if number not in self._managers:
            raise MeshError(
                f"Sub device manager does not exist: {where} got {number}, which was removed, or made by another mesh."
            )
        return self._managers[number]

    # -- sub-devices of the active manager -------------------------------------------------------

    def ids(self) -> list[SubDeviceId]:
        return self.active.ids()

    def cores(self, sub_device_id: SubDeviceId) -> CoreRangeSet:
        return self.active.cores[self.number(sub_device_id)]

    def number(self, sub_device_id: SubDeviceId) -> int:
        """Where it stands in the active manager."""
        number = checked("sub_device_id", "sub_device_id", sub_device_id, SubDeviceId, "a ttnn.SubDeviceId").id
        if not 0 <= number < len(self.active.cores):
            raise MeshError(
                f"SubDevice index {number} out of bounds {len(self.active.cores)}: the loaded manager has the "
                f"sub-devices {self.ids()}."
            )
        return number

    def of_cores(self, cores: CoreRangeSet) -> set[int]:
        """The sub-devices that these cores are part of."""
        if self.active.is_default:
            return {0}
        shared = {i: _shared_cores(own, cores) for i, own in enumerate(self.active.cores)}
        if sum(shared.values()) != cores.num_cores():
            raise MeshError(
                "Kernel group cores do not match sub device cores for programmable core type TENSIX: a program has "
                f"kernels on {cores}, and the loaded sub-devices have {list(self.active.cores)}."
            )
        return {i for i, count in shared.items() if count}

    def check_one(self, op: str, grids: Iterable[CoreRangeSet]) -> None:
        """A program runs on one sub-device: that of the cores that hold its operands."""
        found = {number: grid for grid in grids for number in sorted(self.of_cores(grid))}
        if len(found) > 1:
            raise MeshError(
                f"Programs must be executed on a single sub-device: {op} has shards on {next(iter(found.values()))}, "
                f"and the loaded sub-devices have {list(self.active.cores)}. Shard its operands over the cores of one."
            )

    # -- what reads, writes and events wait for --------------------------------------------------

    def stall_group(self) -> tuple[SubDeviceId, ...]:
        return tuple(self.ids()) if self._stalled is None else self._stalled

    def set_stall_group(self, sub_device_ids: Sequence[SubDeviceId]) -> None:
        where = "set_sub_device_stall_group"
        ids = checked_all(where, "sub_device_ids", sub_device_ids, (SubDeviceId,), "ttnn.SubDeviceIds")
        if not ids:
            raise MeshError("sub_device_ids to stall must not be empty: reset_sub_device_stall_group() takes all.")
        for one in ids:
            self.number(one)
        self._stalled = tuple(ids)

    def reset_stall_group(self) -> None:
        self._stalled = None

    def waited_for(self, where: str, sub_device_ids: Sequence[SubDeviceId] = ()) -> Sequence[int]:
        """The numbers of these sub-devices, or of the stall group where none are named."""
        if named := checked_list(where, "sub_device_ids", sub_device_ids, "SubDeviceIds"):
            return [self.number(one) for one in named]
        if self._stalled is None:
            return range(len(self.active.cores))
        return [one.id for one in self._stalled]


def _share_cores(one: CoreRangeSet, other: CoreRangeSet) -> bool:
    return any(a.overlaps(b) for a in one.ranges() for b in other.ranges())


def _shared_cores(one: CoreRangeSet, other: CoreRangeSet) -> int:
    return one.num_cores() - one.subtract(other).num_cores()
