"""The allocator of a mesh: a pool for each kind of memory, one address for a buffer in every bank of every chip.

Each mesh has one, submeshes their own, and each sub-device one more for its part of L1. What the memory holds
is not known here: this is accounting, and addresses.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import replace

from softmesh import epoch
from softmesh.arguments import checked, checked_int, refused
from softmesh.cores import CoreCoord, CoreRangeSet
from softmesh.errors import MeshError
from softmesh.hardware.dispatch_cores import SubDeviceId
from softmesh.hardware.enums import BufferType
from softmesh.runtime.memory.allocations import Allocation, AllocatorState, Statistics
from softmesh.runtime.memory.deferred_pool import DeferredPool
from softmesh.runtime.memory.memory_map import MemoryMap
from softmesh.runtime.memory.out_of_memory import MemoryPolicy
from softmesh.runtime.memory.pool import Pool
from softmesh.runtime.memory.untracked_pool import UntrackedPool


class Allocator:
    """`mesh.allocator()`. Sizes are bytes of one bank; addresses count from the start of a bank.

    An owner with a method `lose_memory()` is told when its memory is taken from it.
    """

    def __init__(
        self,
        memory_map: MemoryMap,
        policy: MemoryPolicy = MemoryPolicy.ENFORCE,
        is_remote: bool = False,
        *,
        defers: bool = False,
    ) -> None:
        """`defers`: tensors get their addresses when somebody asks."""
        self.memory_map = memory_map
        self._policy = policy
        self._pool_kind = DeferredPool if defers else Pool
        self._is_remote = is_remote  # the chips are other processes': all buffers are at 0
        self._local: list[Allocator] = []
        self.pools = self._empty_pools()

    def _empty_pools(self) -> dict[BufferType, Pool]:
        regions = self.memory_map.regions.items()
        if self._is_remote or self._policy is MemoryPolicy.OFF:
            return {kind: UntrackedPool(region, self._numbers(region.grain)) for kind, region in regions}
        is_enforced = self._policy is MemoryPolicy.ENFORCE
        pools: dict[BufferType, Pool] = {kind: self._pool_kind(region, is_enforced) for kind, region in regions}
        if self._local:
            pools[BufferType.L1].reserve(self._local[0].pools[BufferType.L1].region.size)
        return pools

    def _numbers(self, step: int) -> Iterator[int]:
        return itertools.repeat(0) if self._is_remote else itertools.count(step, step)

    def _pool(self, where: str, buffer_type: BufferType) -> Pool:
        kind = checked(where, "buffer_type", buffer_type, BufferType, "a ttnn.BufferType")
        if kind not in self.pools:
            raise MeshError(f"{where}: a sub-device has memory of its own in L1 only, not in {kind.name}.")
        return self.pools[kind]

    # -- allocating ------------------------------------------------------------------------------

    def allocate(
        self,
        bytes_per_bank: int,
        buffer_type: BufferType,
        *,
        bottom_up: bool | None = None,
        owner: object,
        label: str,
        size: int | None = None,
    ) -> int:
        """The address. DRAM and TRACE fill from below, L1 and L1_SMALL from above, unless `bottom_up` says so.

        `size` counts the bytes of all banks, where that is not `bytes_per_bank` for each. Nothing is at address 0:
        it is what a buffer of no bytes gets.
        """
        pool = self._pool("allocate", buffer_type)
        wanted = checked_int("allocate", "bytes_per_bank", bytes_per_bank)
        if wanted < 0:
            raise refused("allocate", f"bytes_per_bank cannot be negative, got {wanted}")
        if wanted == 0:
            return 0
        requested = wanted * pool.region.banks if size is None else size
        return pool.allocate_labelled(round_up(wanted, pool.region.grain), requested, owner, label, bottom_up)

    def free(self, address: int, buffer_type: BufferType) -> None:
        if not self._pool("free", buffer_type).free(address) and address:
            raise MeshError(
                f"free: nothing that is live begins at {address} in {buffer_type.name}. It was freed before, or the "
                "address is one inside a buffer."
            )

    def free_later(self, address: int, buffer_type: BufferType) -> None:
        """For `__del__`, which may run in the middle of anything: free from the next allocation or question on."""
        self.pools[buffer_type].free_later(address)

    def deallocate_buffers(self) -> None:
        """Take everything from everybody."""
        for local in self._local:
            local.deallocate_buffers()
        self._install(self._empty_pools())

    def _install(self, pools: dict[BufferType, Pool]) -> None:
        owners = self.get_allocated_buffers()
        self.pools = pools
        epoch.invalidate()
        for owner in owners:
            lose = getattr(owner, "lose_memory", None)
            if lose is not None:
                lose()

    def close(self) -> None:
        """The mesh is closed: nothing is allocated any more, and nobody is told."""
        self._local = []
        self.pools = self._empty_pools()

    # -- asking ----------------------------------------------------------------------------------

    def live(self) -> list[Allocation]:
        """Everything that is allocated, by memory and address."""
        return [allocation for pool in self.pools.values() for allocation in pool.live()]

    def at(self, buffer_type: BufferType, address: int) -> Allocation | None:
        """The live allocation that covers the address."""
        return self._pool("at", buffer_type).at(address)

    def get_allocated_buffers(self) -> list[object]:
        """Their owners."""
        return [owner for allocation in self.live() if (owner := allocation.owner) is not None]

    def get_num_banks(self, buffer_type: BufferType) -> int:
        return self._pool("get_num_banks", buffer_type).region.banks

    def get_bank_size(self, buffer_type: BufferType) -> int:
        return self._pool("get_bank_size", buffer_type).region.size

    def get_statistics(self, buffer_type: BufferType) -> Statistics:
        return self._pool("get_statistics", buffer_type).statistics()

    def get_base_allocator_addr(self, mem_type: BufferType) -> int:
        """Where the memory begins, in each bank."""
        return self._pool("get_base_allocator_addr", mem_type).region.base

    def get_alignment(self, buffer_type: BufferType) -> int:
        """Of the pages inside a buffer; buffers themselves begin at multiples of DRAM's in every memory."""
        return self._pool("get_alignment", buffer_type).region.page_alignment

    def get_worker_l1_size(self) -> int:
        """The bytes of a core's L1 that circular buffers and tensors share."""
        return self.memory_map.worker_l1_size

    def lowest_occupied_compute_l1_address(self, sub_device_ids: Sequence[SubDeviceId] = ()) -> int | None:
        """Above it lie L1 buffers, of the whole chip or of these (by default all) sub-devices; None without any."""
        ids = sub_device_ids or [SubDeviceId(i) for i in range(len(self._local))]
        pools = [self.pools[BufferType.L1], *(self.local(i).pools[BufferType.L1] for i in ids)]
        return min((low for pool in pools if (low := pool.lowest()) is not None), default=None)

    # -- banks -----------------------------------------------------------------------------------

    def get_logical_core_from_bank_id(self, bank_id: int) -> CoreCoord:
        """The core whose L1 is this bank."""
        cores = self.memory_map.core_of_bank
        bank = checked_int("get_logical_core_from_bank_id", "bank_id", bank_id)
        if not 0 <= bank < len(cores):
            raise MeshError(f"Expected bank {bank} to be one of the {len(cores)} L1 banks, 0 to {len(cores) - 1}.")
        return cores[bank]

    def get_bank_ids_from_logical_core(self, buffer_type: BufferType, logical_core: CoreCoord) -> list[int]:
        """The banks that a worker core (L1), or the core of a DRAM bank, has: one."""
        region = self._pool("get_bank_ids_from_logical_core", buffer_type).region
        core = checked("get_bank_ids_from_logical_core", "logical_core", logical_core, CoreCoord, "a CoreCoord")
        if buffer_type in (BufferType.L1, BufferType.L1_SMALL):
            bank = self.memory_map.bank_of_core.get(core)
        else:
            bank = core.x if core.y == 0 and core.x < region.banks else None
        if bank is None:
            raise MeshError(f"Expected core {core} to have a {buffer_type.name} bank: there is none at that place.")
        return [bank]

    def get_bank_offset(self, buffer_type: BufferType, bank_id: int) -> int:
        """Always 0: each bank has a core of its own here, and addresses count from the bank's start."""
        banks = self.get_num_banks(buffer_type)
        bank = checked_int("get_bank_offset", "bank_id", bank_id)
        if not 0 <= bank < banks:
            raise MeshError(f"Expected bank {bank} to be one of the {banks} {buffer_type.name} banks.")
        return 0

    # -- states ----------------------------------------------------------------------------------

    def extract_state(self) -> AllocatorState:
        """The ranges that are occupied now, to be installed in another allocator."""
        return AllocatorState({kind: tuple(pool.occupied()) for kind, pool in self.pools.items()})

    def override_state(self, state: AllocatorState) -> None:
        """Occupy what `state` says, and nothing else: every buffer that is here loses its memory."""
        given = checked("override_state", "state", state, AllocatorState, "what extract_state() gave")
        pools = self._empty_pools()
        for kind, ranges in given.occupied.items():
            if kind in pools:
                pools[kind].occupy(ranges, "the state of another allocator")
        self._install(pools)

    # -- sub-devices -----------------------------------------------------------------------------

    def load_sub_devices(self, cores: Sequence[CoreRangeSet], local_l1_size: int) -> None:
        """Give each sub-device, by its cores, an allocator of the lowest `local_l1_size` bytes of L1."""
        self._check_no_local_buffers()
        region = self.memory_map.regions[BufferType.L1]
        kept = round_up(local_l1_size, region.grain)
        self.pools[BufferType.L1].reserve(kept)
        own = [replace(region, banks=group.num_cores(), size=kept) for group in cores]
        maps = [replace(self.memory_map, regions={BufferType.L1: part}) for part in own]
        self._local = [Allocator(part, self._policy, self._is_remote) for part in maps]

    def unload_sub_devices(self) -> None:
        """The whole chip has all of L1 again; refused while a sub-device still has buffers in its part."""
        self._check_no_local_buffers()
        self.pools[BufferType.L1].reserve(0)
        self._local = []

    def _check_no_local_buffers(self) -> None:
        for i, local in enumerate(self._local):
            held = local.live()
            if held:
                raise MeshError(
                    f"Cannot change the sub-device manager: sub-device {i} still owns local buffers ({held[0]}). "
                    "Deallocate them first."
                )

    def local(self, sub_device_id: SubDeviceId) -> Allocator:
        """The allocator of a loaded sub-device; without any, the only sub-device is the whole chip."""
        number = checked("allocator", "sub_device_id", sub_device_id, SubDeviceId, "a ttnn.SubDeviceId").id
        if not self._local and number == 0:
            return self
        if not 0 <= number < len(self._local):
            raise MeshError(
                f"SubDevice index {number} out of bounds: the loaded sub-device manager has {len(self._local) or 1}."
            )
        return self._local[number]


def round_up(size: int, grain: int) -> int:
    return -(-size // grain) * grain
