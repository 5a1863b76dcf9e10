"""The allocator against a naive model: a memory is a row of grains, each free or somebody's.

The model looks at every grain for every question, and knows nothing of holes, runs or shortcuts.
"""

from __future__ import annotations

import itertools
import random
import sys
import threading
import traceback
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from softmesh.errors import OutOfDeviceMemory
from softmesh.hardware.enums import BufferType
from softmesh.runtime.memory.allocations import Claim
from softmesh.runtime.memory.allocator import Allocator
from softmesh.runtime.memory.deferred_pool import DeferredPool
from softmesh.runtime.memory.free_list import FreeList
from softmesh.runtime.memory.memory_map import MemoryMap, Region
from softmesh.runtime.memory.pool import Pool

GRAIN = 32
BASE = 7 * GRAIN
LAWS = settings(max_examples=40, deadline=None)


class Owner:
    pass


OWNER = Owner()


@dataclass
class Model:
    """`grains[i]` is the number of who holds it, 0 where it is free."""

    grains: list[int]
    starts: dict[int, int] = field(default_factory=dict)  # grain by number
    count: int = 0

    def places(self, size: int) -> list[int]:
        """First grains of all places where `size` grains are free."""
        free, found = 0, []
        for i, holder in enumerate(self.grains):
            free = 0 if holder else free + 1
            if free >= size:
                found.append(i - size + 1)
        return found

    def take(self, size: int, from_below: bool) -> int | None:
        places = self.places(size)
        return self.take_at(places[0 if from_below else -1], size) if places else None

    def take_at(self, place: int, size: int) -> int:
        self.count += 1
        self.grains[place : place + size] = [self.count] * size
        self.starts[place] = self.count
        return place

    def free(self, place: int) -> None:
        number = self.starts.pop(place)
        self.grains = [0 if holder == number else holder for holder in self.grains]

    def extents(self) -> list[tuple[int, int, bool]]:
        """Start, size and whether it is taken, of each allocation and each hole."""
        found: list[tuple[int, int, bool]] = []
        for i, holder in enumerate(self.grains):
            if i and holder == self.grains[i - 1]:
                start, size, taken = found.pop()
                found.append((start, size + 1, taken))
            else:
                found.append((i, 1, bool(holder)))
        return found

    def largest(self) -> int:
        return max((size for _, size, taken in self.extents() if not taken), default=0)


def memory_of(grains: int) -> Allocator:
    region = Region(BufferType.DRAM, 12, BASE, grains * GRAIN, GRAIN, GRAIN, bottom_up=True)
    return Allocator(MemoryMap({BufferType.DRAM: region}, (8, 8), 0))


def address(place: int) -> int:
    return BASE + place * GRAIN


# Programs free a buffer and at once take one of its size: "swap".
calls = st.lists(
    st.one_of(
        st.tuples(st.just("take"), st.integers(1, 6 * GRAIN), st.booleans()),
        st.tuples(st.sampled_from(["free", "swap"]), st.integers(0, 100), st.booleans()),
    ),
    min_size=10,
    max_size=80,
)


def take_from_both(allocator: Allocator, model: Model, size: int, from_below: bool) -> None:
    place = model.take(-(-size // GRAIN), from_below)
    if place is None:
        with pytest.raises(OutOfDeviceMemory):
            allocator.allocate(size, BufferType.DRAM, bottom_up=from_below, owner=OWNER, label="")
    else:
        given = allocator.allocate(size, BufferType.DRAM, bottom_up=from_below, owner=OWNER, label="")
        assert given == address(place)


@LAWS
@given(calls)
def test_every_address_is_the_one_first_fit_gives(calls):
    allocator, model = memory_of(24), Model([0] * 24)
    for call, number, from_below in calls:
        if call == "take":
            take_from_both(allocator, model, number, from_below)
        elif model.starts:
            place = sorted(model.starts)[number % len(model.starts)]
            size = model.grains.count(model.starts[place]) * GRAIN
            model.free(place)
            (allocator.free if number % 2 else allocator.free_later)(address(place), BufferType.DRAM)
            if call == "swap":
                take_from_both(allocator, model, size, from_below)
    blocks = [(address(start), size * GRAIN, taken) for start, size, taken in model.extents()]
    assert list(allocator.pools[BufferType.DRAM].blocks()) == blocks
    taken = sum(map(bool, model.grains))
    assert allocator.get_statistics(BufferType.DRAM) == tuple(
        n * GRAIN for n in (24, taken, 24 - taken, model.largest())
    )


@LAWS
@given(calls)
def test_the_holder_of_every_byte_is_known(calls):
    allocator, model = memory_of(48), Model([0] * 48)
    for call, number, from_below in calls:
        if call == "take" and (place := model.take(-(-number // GRAIN), from_below)) is not None:
            label = str(model.starts[place])
            allocator.allocate(number, BufferType.DRAM, bottom_up=from_below, owner=OWNER, label=label)
        elif call != "take" and model.starts:
            place = sorted(model.starts)[number % len(model.starts)]
            model.free(place)
            allocator.free(address(place), BufferType.DRAM)
        grain = number % len(model.grains)
        found = allocator.at(BufferType.DRAM, address(grain) + number % GRAIN)
        assert (0 if found is None else int(found.label)) == model.grains[grain]


@LAWS
@given(calls)
def test_a_state_that_is_installed_elsewhere_leaves_the_same_room(calls):
    allocator, model = memory_of(48), Model([0] * 48)
    for call, number, from_below in calls:
        if call == "take" and model.take(-(-number // GRAIN), from_below) is not None:
            allocator.allocate(number, BufferType.DRAM, bottom_up=from_below, owner=OWNER, label="")
        elif call != "take" and model.starts:
            place = sorted(model.starts)[number % len(model.starts)]
            model.free(place)
            allocator.free(address(place), BufferType.DRAM)
    other = memory_of(48)
    other.override_state(allocator.extract_state())
    assert other.extract_state() == allocator.extract_state()
    assert other.get_statistics(BufferType.DRAM) == allocator.get_statistics(BufferType.DRAM)


@pytest.mark.parametrize(
    ("grains", "sizes", "phases"),
    [
        (24, (1, 1, 2, 3, 5), [("take", 20), ("swap take free", 600)]),
        (900, (1, 1, 1, 2, 4), [("take", 450), ("free", 200), ("swap take free", 150), ("take", 100)]),
    ],
    ids=["a few holes", "hundreds of holes"],
)
@settings(max_examples=8, deadline=None)
@given(seed=st.integers(0, 2**31))
def test_holes_stay_those_of_the_model_in_a_long_life(grains, sizes, phases, seed):
    draw = random.Random(seed)
    holes, model = FreeList(0, grains), Model([0] * grains)
    for step in (draw.choice(steps.split()) for steps, count in phases for _ in range(count)):
        size = draw.choice(sizes)
        if step != "take" and model.starts:
            place = draw.choice(sorted(model.starts))
            size = model.grains.count(model.starts[place])
            holes.give_back(place, size)
            model.free(place)
        if step != "free":
            from_below = draw.random() < 0.5
            assert (holes.take_low if from_below else holes.take_high)(size) == model.take(size, from_below)
    assert list(holes) == [(start, size) for start, size, taken in model.extents() if not taken]
    assert holes.largest() == model.largest()


@pytest.mark.parametrize("kind", [Pool, DeferredPool])
@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 2**31), from_below=st.booleans())
def test_memory_comes_back_when_its_owner_dies(kind, seed, from_below):
    draw = random.Random(seed)
    grains = 300
    pool = kind(Region(BufferType.DRAM, 12, BASE, grains * GRAIN, GRAIN, GRAIN, bottom_up=from_below))
    model = Model([0] * grains)
    held: list[tuple[Owner, int]] = []
    watched: list[tuple[Claim, int]] = []  # claims may outlive their owners, and are asked where they were
    for _ in range(400):
        step = draw.choice(["take", "take", "pass by", "die", "ask"])
        if step in ("take", "pass by"):
            size, owner = draw.choice([1, 1, 2, 3, 20]), Owner()
            place = model.take(size, from_below)
            if place is None:
                with pytest.raises(OutOfDeviceMemory):
                    pool.allocate(size * GRAIN, 1, owner)
                continue
            claim = pool.allocate(size * GRAIN, 1, owner)
            if draw.random() < 0.2:
                watched.append((claim, place))
            if step == "take":
                held.append((owner, place))
            else:
                model.free(place)
        elif step == "die" and held:
            _, place = held.pop(draw.randrange(len(held)))
            model.free(place)
        elif step == "ask" and watched:
            claim, place = draw.choice(watched)
            assert claim.address == address(place)
    claim = owner = _ = None
    assert [claim.address for claim, _ in watched] == [address(place) for _, place in watched]
    blocks = [(address(start), size * GRAIN, taken) for start, size, taken in model.extents()]
    assert list(pool.blocks()) == blocks


@pytest.mark.parametrize("kind", [Pool, DeferredPool])
def test_what_found_no_room_leaves_nothing_behind(kind):
    pool = kind(Region(BufferType.DRAM, 12, BASE, 4 * GRAIN, GRAIN, GRAIN, bottom_up=True))
    with pytest.raises(OutOfDeviceMemory) as refused:
        pool.allocate(5 * GRAIN, 1, Owner())
    del refused  # the frames that it holds let go of the owner before they do of the claim
    assert list(pool.blocks()) == [(BASE, 4 * GRAIN, False)]


@pytest.mark.parametrize("kind", [Pool, DeferredPool])
def test_an_allocation_that_was_interrupted_leaves_nothing_behind(kind, monkeypatch):
    pool = kind(Region(BufferType.DRAM, 12, BASE, 4 * GRAIN, GRAIN, GRAIN, bottom_up=True))

    def interrupted(size: int) -> int:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(pool, "_take", interrupted)
        with pytest.raises(KeyboardInterrupt) as stopped:
            pool.allocate(4 * GRAIN, 1, Owner())
    traceback.clear_frames(stopped.tb)
    del stopped
    assert list(pool.blocks()) == [(BASE, 4 * GRAIN, False)]


@pytest.mark.parametrize("grains", [300, 4000])
@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 2**31), from_below=st.booleans())
def test_what_is_only_written_down_gets_the_addresses_of_what_is_worked_in_at_once(grains, seed, from_below):
    draw = random.Random(seed)
    region = Region(BufferType.DRAM, 12, BASE, grains * GRAIN, GRAIN, GRAIN, bottom_up=from_below)
    pool, model = DeferredPool(region), Model([0] * grains)
    held: list[tuple[Claim, int]] = []
    for _ in range(500):
        step = draw.choice(["take", "take", "take", "free", "free", "ask", "surely", "label"])
        size = draw.choice([1, 1, 1, 2, 3, 20])
        if step in ("take", "label"):
            place = model.take(size, from_below)
            label = step == "label" and draw.random() < 0.2
            if place is None:
                with pytest.raises(OutOfDeviceMemory):
                    pool.allocate(size * GRAIN, 1, OWNER)
            elif label:
                assert pool.allocate_labelled(size * GRAIN, 1, OWNER, "") == address(place)
            else:
                held.append((pool.allocate(size * GRAIN, 1, OWNER), place))
        elif step == "surely":
            assert not pool.guarantees_room(size * GRAIN) or model.largest() >= size
            assert pool.guarantees_room(size * GRAIN) or model.largest() < grains // 2
        elif held:
            claim, place = held[draw.randrange(len(held))]
            if step == "ask":
                assert claim.address == address(place)
            else:
                held.remove((claim, place))
                pool.pending.append(claim)
                model.free(place)
    assert [claim.address for claim, _ in held] == [address(place) for _, place in held]
    blocks = [(address(start), size * GRAIN, taken) for start, size, taken in model.extents()]
    assert list(pool.blocks()) == blocks


def test_threads_that_fill_a_memory_are_told_each_of_its_own_allocations():
    grains, threads = 2000, 4
    pool = DeferredPool(Region(BufferType.DRAM, 12, BASE, grains * GRAIN, GRAIN, GRAIN, bottom_up=True))
    held: list[list[Claim]] = [[] for _ in range(threads)]

    def fill(own: list[Claim]) -> None:
        try:
            while True:
                own.append(pool.allocate(GRAIN, 1, OWNER))
        except OutOfDeviceMemory:
            pass

    workers = [threading.Thread(target=fill, args=(own,)) for own in held]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    addresses = {claim.address for own in held for claim in own}
    assert addresses == {address(place) for place in range(grains)}
    for own in held:
        pool.pending.extend(own)
    assert list(pool.blocks()) == [(BASE, grains * GRAIN, False)]


@pytest.mark.parametrize("seed", range(3))
def test_threads_that_take_and_give_back_large_and_small_never_share_a_byte(seed):
    grains, threads = 1000, 4
    pool = DeferredPool(Region(BufferType.DRAM, 12, BASE, grains * GRAIN, GRAIN, GRAIN, bottom_up=True))
    held: list[list[Claim]] = [[] for _ in range(threads)]
    full, failures = [], []

    def work(number: int) -> None:
        draw, own = random.Random(10 * seed + number), held[number]
        try:
            for _ in range(1500):
                if own and draw.random() < 0.45:
                    pool.pending.append(own.pop(draw.randrange(len(own))))
                    continue
                try:
                    own.append(pool.allocate(draw.choice([1, 1, 1, 1, 150]) * GRAIN, 1, OWNER))
                except OutOfDeviceMemory:
                    full.append(number)
        except BaseException as error:  # told below, in the test's own thread
            failures.append(error)

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        workers = [threading.Thread(target=work, args=(number,)) for number in range(threads)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
    finally:
        sys.setswitchinterval(interval)
    assert not failures
    assert full
    places = sorted((claim.address, claim.size) for own in held for claim in own)
    assert all(one + size <= other for (one, size), (other, _) in itertools.pairwise(places))
    assert all(place >= BASE for place, _ in places)
    assert [block[:2] for block in pool.blocks() if block[2]] == places
    for own in held:
        pool.pending.extend(own)
    assert list(pool.blocks()) == [(BASE, grains * GRAIN, False)]


def test_what_an_installed_state_occupies_has_no_owner():
    allocator = memory_of(16)
    allocator.allocate(3 * GRAIN, BufferType.DRAM, owner=OWNER, label="")
    other = memory_of(16)
    other.override_state(allocator.extract_state())
    assert other.get_allocated_buffers() == []
    assert [allocation.owner for allocation in other.live()] == [None]


def test_an_end_that_comes_while_others_are_worked_in_is_an_end(monkeypatch):
    """Owners may die at any moment: in another thread, or when the garbage collector runs."""
    pool = DeferredPool(Region(BufferType.DRAM, 12, BASE, 1000 * GRAIN, GRAIN, GRAIN, bottom_up=True))
    first, second = (pool.allocate(GRAIN, 1, OWNER) for _ in range(2))
    assert (first.address, second.address) == (BASE, BASE + GRAIN)
    coming = [second]
    give_back = FreeList.give_back

    def meanwhile(holes: FreeList, address: int, size: int) -> None:
        give_back(holes, address, size)
        if coming:
            pool.pending.append(coming.pop())

    monkeypatch.setattr(FreeList, "give_back", meanwhile)
    pool.pending.append(first)
    assert list(pool.blocks()) == [(BASE, 1000 * GRAIN, False)]
