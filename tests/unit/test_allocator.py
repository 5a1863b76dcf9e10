"""The allocator: where buffers go in the memories of a chip, and what it tells about them."""

from __future__ import annotations

import pytest

import softmesh as ttnn
from softmesh.cores import CoreCoord, CoreRange, CoreRangeSet
from softmesh.errors import DeviceMemoryWarning, MeshError, OutOfDeviceMemory
from softmesh.hardware import DispatchCoreConfig, DispatchCoreType
from softmesh.runtime.memory.allocations import AllocatorState
from softmesh.runtime.memory.allocator import Allocator
from softmesh.runtime.memory.free_list import FreeList
from softmesh.runtime.memory.memory_map import MemoryMap, memory_map, memory_map_of
from softmesh.runtime.memory.out_of_memory import MemoryPolicy
from softmesh.systems.chip import CHIPS, N150, N300, P150

DRAM, L1, L1_SMALL, TRACE = BUFFER_TYPES = list(ttnn.BufferType)
MIB = 1 << 20
OWNERS: list[Owner] = []


class Owner:
    lost = False

    def lose_memory(self) -> None:
        self.lost = True


def wormhole(**sizes: int) -> MemoryMap:
    return memory_map(N300, N300.grid(), **sizes)


@pytest.fixture
def allocator() -> Allocator:
    return Allocator(wormhole(l1_small_size=32 * 1024, trace_region_size=12 * MIB))


def take(
    allocator: Allocator,
    size: int,
    kind: ttnn.BufferType = DRAM,
    bottom_up: bool | None = None,
    label: str = "buffer",
) -> int:
    """For an owner that stays alive."""
    OWNERS.append(Owner())
    return allocator.allocate(size, kind, bottom_up=bottom_up, owner=OWNERS[-1], label=label)


class TestFreeList:
    def test_takes_the_lowest_hole_that_is_large_enough(self):
        holes = FreeList(0, 1000)
        for size in (100, 50, 200, 50, 100, 50):
            holes.take_low(size)
        for address, size in ((0, 100), (150, 200), (400, 100)):
            holes.give_back(address, size)
        assert holes.take_low(150) == 150
        assert holes.take_low(60) == 0
        assert holes.take_low(45) == 300

    def test_takes_the_high_end_of_the_highest_hole_that_is_large_enough(self):
        holes = FreeList(0, 1000)
        for size in (100, 50, 200, 50, 100, 500):
            holes.take_low(size)
        for address, size in ((0, 100), (150, 200), (400, 100)):
            holes.give_back(address, size)
        assert holes.take_high(150) == 200
        assert holes.take_high(60) == 440
        assert holes.take_high(45) == 155

    def test_what_is_freed_joins_its_neighbours(self):
        holes = FreeList(0, 300)
        assert [holes.take_low(100) for _ in range(3)] == [0, 100, 200]
        holes.give_back(0, 100)
        holes.give_back(200, 100)
        assert list(holes) == [(0, 100), (200, 100)]
        holes.give_back(100, 100)
        assert list(holes) == [(0, 300)]

    def test_bytes_freed_last_do_not_hide_the_hole_below_that_they_make_larger(self):
        holes = FreeList(0, 300)
        assert [holes.take_low(100) for _ in range(3)] == [0, 100, 200]
        holes.give_back(0, 100)
        holes.give_back(100, 100)
        assert holes.take_low(100) == 0
        holes.give_back(0, 100)
        assert holes.take_high(100) == 100

    def test_finds_the_one_hole_that_fits_among_thousands_that_do_not(self):
        holes = FreeList(0, 10**6)
        taken = [holes.take_low(32) for _ in range(20_000)]
        for address in taken[::2]:
            assert address is not None
            holes.give_back(address, 32)
        holes.give_back(taken[15_001], 32)
        assert sum(1 for _ in holes) == 10_000
        assert holes.take_low(96) == taken[15_000]
        assert holes.take_low(96) == 20_000 * 32


class TestMap:
    @pytest.mark.parametrize(
        ("chip", "config", "banks", "dram", "l1"),
        [
            (N300, None, 64, 1_072_693_184, 1_393_472),
            (N300, DispatchCoreConfig(DispatchCoreType.WORKER), 56, 1_072_693_184, 1_393_472),
            (N150, None, 64, 1_072_693_184, 1_393_472),
            (P150, None, 120, 4_277_141_376, 1_461_248),
        ],
    )
    def test_memories_are_as_large_as_the_data_sheet_says(self, chip, config, banks, dram, l1):
        regions = memory_map_of(chip, {"dispatch_core_config": config}).regions
        assert (regions[L1].banks, regions[L1].size) == (banks, l1)
        assert (regions[DRAM].banks, regions[DRAM].size) == (chip.dram_banks, dram)
        assert regions[L1_SMALL].size == regions[TRACE].size == 0

    @pytest.mark.parametrize("chip", sorted(CHIPS))
    def test_every_memory_of_every_chip_begins_and_ends_at_multiples_of_the_grain(self, chip):
        found = memory_map(CHIPS[chip], CHIPS[chip].grid(), 1000, 10**6, 10**6)
        for region in found.regions.values():
            assert region.grain == CHIPS[chip].dram_alignment
            assert region.base % region.grain == region.size % region.grain == 0

    def test_l1_small_lies_above_l1_and_traces_above_dram(self):
        regions = wormhole(l1_small_size=32 * 1024, trace_region_size=16 * MIB).regions
        assert regions[L1_SMALL].base == regions[L1].end == N300.l1_bytes - 32 * 1024
        assert regions[L1_SMALL].end == N300.l1_bytes
        each = 1_400_832  # 16 MiB over 12 banks, in whole 8 KiB
        assert regions[TRACE].size == each
        assert regions[TRACE].base == regions[DRAM].end == N300.dram_bank_bytes - each

    def test_worker_l1_size_moves_the_bottom_of_l1(self):
        found = wormhole(worker_l1_size=1 << 20, l1_small_size=4096)
        assert found.regions[L1].base == N300.l1_bytes - (1 << 20)
        assert found.regions[L1].size == (1 << 20) - 4096
        assert found.worker_l1_size == 1 << 20

    @pytest.mark.parametrize(
        ("sizes", "message"),
        [
            (
                {"trace_region_size": 13 * 10**9},
                "trace_region_size=13000000000 takes 1083334656 B of each of the 12 DRAM",
            ),
            ({"worker_l1_size": 1464 * 1024}, "Ask for 1464128 B at the most"),
            ({"l1_small_size": 1_400_000}, "more than the 1393472 B of L1"),
        ],
    )
    def test_refuses_what_a_chip_does_not_have(self, sizes, message):
        with pytest.raises(MeshError, match=message):
            wormhole(**sizes)

    def test_refuses_numbers_of_banks_that_the_chip_cannot_address(self):
        with pytest.raises(
            MeshError, match=r"40 L1 banks: the number of banks must be a power of two or one of \[7, 12"
        ):
            memory_map(N300, (8, 5))


class TestAllocate:
    def test_dram_and_traces_fill_from_below_and_l1_from_above(self, allocator):
        regions = allocator.memory_map.regions
        for kind in (DRAM, TRACE):
            assert [take(allocator, 64, kind) for _ in range(2)] == [
                regions[kind].base,
                regions[kind].base + 64,
            ]
        for kind in (L1, L1_SMALL):
            assert [take(allocator, 64, kind) for _ in range(2)] == [
                regions[kind].end - 64,
                regions[kind].end - 128,
            ]

    def test_the_direction_can_be_chosen(self, allocator):
        regions = allocator.memory_map.regions
        assert take(allocator, 64, DRAM, bottom_up=False) == regions[DRAM].end - 64
        assert take(allocator, 64, L1, bottom_up=True) == regions[L1].base

    @pytest.mark.parametrize(("chip", "grain"), [(N300, 32), (P150, 64)])
    def test_sizes_are_rounded_to_the_alignment_of_dram_in_every_memory(self, chip, grain):
        allocator = Allocator(memory_map(chip, chip.grid()))
        for kind in (DRAM, L1):
            first, second = take(allocator, 1, kind), take(allocator, 1, kind)
            assert abs(second - first) == grain
            assert allocator.get_statistics(kind).total_allocated_bytes == 2 * grain

    def test_no_bytes_take_no_memory(self, allocator):
        assert take(allocator, 0) == 0
        assert allocator.live() == []
        allocator.free(0, DRAM)

    def test_free_memory_is_used_again(self, allocator):
        first, second = take(allocator, 96), take(allocator, 96)
        allocator.free(first, DRAM)
        assert take(allocator, 128) == second + 96
        assert take(allocator, 64) == first

    def test_statistics_count_what_is_allocated_free_and_free_in_one_piece(self, allocator):
        size = allocator.get_bank_size(DRAM)
        addresses = [take(allocator, 1000) for _ in range(3)]
        allocator.free(addresses[0], DRAM)
        assert allocator.get_statistics(DRAM) == (size, 2048, size - 2048, size - 3 * 1024)

    @pytest.mark.parametrize("address", [0, 64, 7])
    def test_freeing_what_is_not_allocated_is_an_error(self, allocator, address):
        base = take(allocator, 128)
        if address:
            with pytest.raises(MeshError, match=f"nothing that is live begins at {base + address} in DRAM"):
                allocator.free(base + address, DRAM)
        else:
            allocator.free(base, DRAM)
            with pytest.raises(MeshError, match="It was freed before"):
                allocator.free(base, DRAM)

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            ((-1, DRAM), "bytes_per_bank cannot be negative"),
            ((1.5, DRAM), "must be an int"),
            ((32, "DRAM"), "a ttnn.Buffer"),
        ],
    )
    def test_refuses_arguments_of_the_wrong_kind(self, allocator, arguments, message):
        with pytest.raises(TypeError, match=message):
            allocator.allocate(*arguments, owner=self, label="x")

    def test_knows_who_holds_an_address(self, allocator):
        take(allocator, 64, label="first")
        address = take(allocator, 100, label="second")
        for inside in (address, address + 1, address + 127):
            found = allocator.at(DRAM, inside)
            assert found is not None
            assert (found.label, found.address, found.bytes_per_bank, found.owner) == (
                "second",
                address,
                128,
                OWNERS[-1],
            )
            assert found.site is not None
            assert found.site.file == __file__
        assert allocator.at(DRAM, address + 128) is None
        assert allocator.at(L1, address) is None
        assert allocator.at(DRAM, 0) is None
        allocator.free(address, DRAM)
        assert allocator.at(DRAM, address) is None

    def test_lists_what_is_live_in_the_order_of_addresses(self, allocator):
        take(allocator, 64, label="a")
        between = take(allocator, 64, label="b")
        take(allocator, 64, L1, label="c")
        allocator.free(between, DRAM)
        take(allocator, 32, label="d")
        assert [one.label for one in allocator.live()] == ["a", "d", "c"]

    def test_memory_given_back_by_a_dying_owner_is_free_for_the_next(self, allocator):
        address = take(allocator, 64)
        allocator.free_later(address, DRAM)
        assert allocator.live() == []
        assert take(allocator, 64) == address

    def test_taking_everything_tells_the_owners(self, allocator):
        first, second = Owner(), Owner()
        allocator.allocate(64, DRAM, owner=first, label="")
        allocator.allocate(64, L1, owner=second, label="")
        allocator.deallocate_buffers()
        assert first.lost
        assert second.lost
        assert allocator.live() == []

    def test_lowest_occupied_l1_address_is_the_end_of_what_circular_buffers_may_use(self, allocator):
        assert allocator.lowest_occupied_compute_l1_address() is None
        take(allocator, 4096, L1)
        low = take(allocator, 4096, L1)
        take(allocator, 4096, L1_SMALL)
        assert allocator.lowest_occupied_compute_l1_address() == low


class TestOutOfMemory:
    def test_the_error_has_all_numbers_the_largest_holders_and_who_allocated_them(self):
        allocator = Allocator(wormhole())
        for n in range(1, 8):
            take(allocator, n * MIB, label=f"layer {n}")
        with pytest.raises(OutOfDeviceMemory) as error:
            take(allocator, 1000 * MIB)
        text = str(error.value)
        assert text.startswith(
            "Out of Memory: Not enough space to allocate 12582912000 B DRAM buffer across 12 banks, where each bank "
            "needs to store 1048576000 B, but bank size is 1072693184 B (allocated: 29360128 B, free: 1043333056 B, "
            "largest free block: 1043333056 B)."
        )
        lines = text.splitlines()
        assert lines[2].startswith("  layer 7: 7340032 B per bank at ")
        assert "allocated at test_allocator.py:" in lines[2]
        assert [line.split(":")[0].strip() for line in lines[2:7]] == [f"layer {n}" for n in (7, 6, 5, 4, 3)]
        assert lines[7] == "  and 2 more, 3145728 B per bank"
        assert "ttnn.deallocate" in lines[8]

    def test_says_where_there_is_room_but_not_in_one_piece(self):
        allocator = Allocator(wormhole())
        addresses = [take(allocator, 200 * MIB) for _ in range(5)]
        for address in addresses[::2]:
            allocator.free(address, DRAM)
        with pytest.raises(OutOfDeviceMemory, match="There is room, but not in one piece"):
            take(allocator, 300 * MIB)

    def test_says_where_nothing_would_help(self):
        with pytest.raises(OutOfDeviceMemory, match="does not fit an empty chip"):
            take(Allocator(wormhole()), 2048 * MIB)

    def test_a_failed_allocation_changes_nothing(self):
        allocator = Allocator(wormhole())
        take(allocator, 600 * MIB)
        before = allocator.get_statistics(DRAM)
        with pytest.raises(OutOfDeviceMemory):
            take(allocator, 600 * MIB)
        assert allocator.get_statistics(DRAM) == before
        take(allocator, 400 * MIB)

    def test_tracking_warns_once_and_goes_on(self):
        allocator = Allocator(wormhole(), MemoryPolicy.TRACK)
        take(allocator, 1000 * MIB)
        with pytest.warns(DeviceMemoryWarning, match="^Out of Memory: ") as warned:
            beyond = [take(allocator, 1000 * MIB) for _ in range(2)]
        assert len(warned) == 1
        assert beyond[0] != beyond[1]
        assert min(beyond) > N300.dram_bank_bytes
        assert allocator.get_statistics(DRAM).total_allocated_bytes == 3000 * MIB
        for address in beyond:
            allocator.free(address, DRAM)
        assert allocator.get_statistics(DRAM).total_allocated_bytes == 1000 * MIB

    def test_strictness_makes_the_warning_an_error(self, monkeypatch):
        monkeypatch.setenv("SOFTMESH_STRICT", "1")
        allocator = Allocator(wormhole(), MemoryPolicy.TRACK)
        with pytest.raises(OutOfDeviceMemory, match=r"^Out of Memory: "):
            take(allocator, 2000 * MIB)

    def test_off_counts_nothing_and_tells_buffers_apart(self):
        allocator = Allocator(wormhole(), MemoryPolicy.OFF)
        addresses = [take(allocator, 1000 * MIB) for _ in range(4)]
        assert len(set(addresses)) == 4
        assert allocator.live() == []
        assert allocator.get_statistics(DRAM).total_allocated_bytes == 0
        allocator.free(addresses[0], DRAM)


class TestBanks:
    def test_every_core_has_one_bank_of_l1_and_every_bank_a_core(self, allocator):
        cores = [allocator.get_logical_core_from_bank_id(bank) for bank in range(allocator.get_num_banks(L1))]
        assert sorted((core.x, core.y) for core in cores) == sorted((x, y) for x in range(8) for y in range(8))
        assert [allocator.get_bank_ids_from_logical_core(L1, core) for core in cores] == [[i] for i in range(64)]

    def test_banks_are_shuffled_the_same_way_every_time(self, allocator):
        cores = allocator.memory_map.core_of_bank
        assert cores != sorted(cores, key=lambda core: (core.y, core.x))
        assert cores == MemoryMap(allocator.memory_map.regions, (8, 8), 0).core_of_bank

    def test_dram_banks_have_their_own_cores(self, allocator):
        assert [allocator.get_bank_ids_from_logical_core(DRAM, CoreCoord(i, 0)) for i in range(12)] == [
            [i] for i in range(12)
        ]
        assert allocator.get_bank_offset(DRAM, 11) == 0

    @pytest.mark.parametrize(
        "ask",
        [
            lambda a: a.get_logical_core_from_bank_id(64),
            lambda a: a.get_bank_ids_from_logical_core(L1, CoreCoord(8, 0)),
            lambda a: a.get_bank_ids_from_logical_core(DRAM, CoreCoord(0, 1)),
            lambda a: a.get_bank_offset(DRAM, 12),
        ],
    )
    def test_refuses_banks_and_cores_that_are_not_there(self, allocator, ask):
        with pytest.raises(MeshError, match="Expected"):
            ask(allocator)

    def test_pages_are_aligned_as_their_memory_is(self, allocator):
        assert [allocator.get_alignment(kind) for kind in BUFFER_TYPES] == [32, 16, 16, 32]
        assert allocator.get_base_allocator_addr(L1) == 105_664
        assert allocator.get_worker_l1_size() == 1_393_472


class TestStates:
    def test_an_installed_state_occupies_the_same_addresses(self, allocator):
        addresses = [take(allocator, 64) for _ in range(3)]
        take(allocator, 4096, L1)
        allocator.free(addresses[1], DRAM)
        other = Allocator(allocator.memory_map)
        other.override_state(allocator.extract_state())
        assert take(other, 64) == addresses[1]
        assert take(other, 64) == addresses[2] + 64
        for kind in BUFFER_TYPES[1:]:
            assert other.get_statistics(kind) == allocator.get_statistics(kind)

    def test_a_state_tells_neighbours_as_one_range(self, allocator):
        first = take(allocator, 64)
        take(allocator, 64)
        assert allocator.extract_state().occupied[DRAM] == ((first, first + 128),)

    def test_installing_a_state_drops_what_was_there(self, allocator):
        empty = allocator.extract_state()
        owner = Owner()
        allocator.allocate(64, DRAM, owner=owner, label="")
        allocator.override_state(empty)
        assert owner.lost
        assert allocator.live() == []

    def test_a_state_that_does_not_fit_changes_nothing(self, allocator):
        owner = Owner()
        allocator.allocate(64, L1, owner=owner, label="")
        with pytest.raises(MeshError, match="0 to 64 cannot be occupied in L1"):
            allocator.override_state(AllocatorState({L1: ((0, 64),)}))
        assert not owner.lost
        assert len(allocator.live()) == 1


class TestSubDevices:
    CORES = [CoreRangeSet([CoreRange(CoreCoord(0, y), CoreCoord(3, y))]) for y in range(2)]

    def test_each_sub_device_has_the_bottom_of_l1_to_itself(self, allocator):
        base, size = allocator.get_base_allocator_addr(L1), allocator.get_bank_size(L1)
        allocator.load_sub_devices(self.CORES, 3200)
        first, second = (allocator.local(ttnn.SubDeviceId(i)) for i in range(2))
        assert (first.get_num_banks(L1), first.get_bank_size(L1), first.get_base_allocator_addr(L1)) == (
            4,
            3200,
            base,
        )
        assert (allocator.get_base_allocator_addr(L1), allocator.get_bank_size(L1)) == (
            base + 3200,
            size - 3200,
        )
        assert take(first, 1600, L1) == take(second, 1600, L1) == base + 1600
        assert allocator.lowest_occupied_compute_l1_address() == base + 1600

    def test_the_whole_chip_says_what_it_gave_to_sub_devices_when_it_is_full(self, allocator):
        allocator.load_sub_devices(self.CORES, 4096)
        with pytest.raises(
            OutOfDeviceMemory, match="allocators of the loaded sub-devices, which have 4096 B at the bottom"
        ):
            take(allocator, allocator.get_bank_size(L1) + 32, L1)

    def test_unloading_gives_the_memory_back(self, allocator):
        before = allocator.get_statistics(L1)
        allocator.load_sub_devices(self.CORES, 4096)
        allocator.load_sub_devices(self.CORES[:1], 64)
        allocator.unload_sub_devices()
        assert allocator.get_statistics(L1) == before
        assert allocator.local(ttnn.SubDeviceId(0)) is allocator

    def test_managers_cannot_change_while_local_buffers_live(self, allocator):
        allocator.load_sub_devices(self.CORES, 4096)
        local = allocator.local(ttnn.SubDeviceId(1))
        address = take(local, 32, L1, label="mine")
        for change in (allocator.unload_sub_devices, lambda: allocator.load_sub_devices(self.CORES, 32)):
            with pytest.raises(MeshError, match=r"sub-device 1 still owns local buffers \(mine: 32 B"):
                change()
        local.free(address, L1)
        allocator.unload_sub_devices()

    def test_l1_that_is_in_use_cannot_be_given_away(self, allocator):
        take(allocator, 64, L1, bottom_up=True, label="early bird")
        with pytest.raises(MeshError, match="the lowest there is early bird"):
            allocator.load_sub_devices(self.CORES, 4096)
        assert allocator.local(ttnn.SubDeviceId(0)) is allocator

    def test_sub_devices_have_no_dram(self, allocator):
        allocator.load_sub_devices(self.CORES, 4096)
        with pytest.raises(MeshError, match="memory of its own in L1 only, not in DRAM"):
            take(allocator.local(ttnn.SubDeviceId(0)), 32, DRAM)

    def test_names_sub_devices_that_are_not_loaded(self, allocator):
        with pytest.raises(MeshError, match="SubDevice index 1 out of bounds: the loaded sub-device manager has 1"):
            allocator.local(ttnn.SubDeviceId(1))
