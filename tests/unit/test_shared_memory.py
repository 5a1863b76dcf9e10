"""Memory that processes share, without the processes: who may use which block, and when."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path

import pytest
import torch

from softmesh.errors import MeshError
from softmesh.processes import block_allocator
from softmesh.processes.block_allocator import ALL, SLOTS, BlockAllocator, rounded
from softmesh.processes.context import DistributedContext, SingleProcess, byte_view
from softmesh.processes.exchange import AllGatherExchange, AllToAllExchange, ExchangeLayout, RankGroup
from softmesh.processes.lockstep import Lockstep
from softmesh.processes.shared_memory import SHARED_MEMORY, SPAN, Segment, shared_segment
from softmesh.processes.shm_barrier import ShmBarrier
from softmesh.processes.waits import Group, waiting

KIB, MIB = 1 << 10, 1 << 20


class Rank(SingleProcess):
    """One of several that are threads of this process."""

    def __init__(self, rank: int, size: int) -> None:
        super().__init__()
        self.rank, self.size, self.group = rank, size, Group("threads", tuple(range(size)))


@pytest.fixture
def segments() -> Iterator[Callable[[int], list[Segment]]]:
    """So many mappings of one file."""
    descriptor = os.memfd_create("test")
    os.ftruncate(descriptor, SPAN)
    yield lambda count: [Segment(descriptor, None) for _ in range(count)]
    os.close(descriptor)


@pytest.fixture
def allocator(segments: Callable[[int], list[Segment]]) -> BlockAllocator:
    return BlockAllocator(segments(1)[0])


def places(segments: Callable[[int], list[Segment]], count: int) -> list[ShmBarrier]:
    return [ShmBarrier(rank, count, segment) for rank, segment in enumerate(segments(count))]


def all_at_once(calls: Sequence[Callable[[], object]]) -> list[Exception]:
    """Each in a thread; what they raised."""
    raised: list[Exception] = []

    def run(call: Callable[[], object]) -> None:
        try:
            call()
        except Exception as error:
            raised.append(error)

    threads = [threading.Thread(target=run, args=(call,)) for call in calls]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30.0)
    assert not any(thread.is_alive() for thread in threads)
    return raised


def meet(ranks: Sequence[ShmBarrier]) -> None:
    assert not all_at_once([lambda rank=rank: rank.wait_for_all(waiting("op"), 7) for rank in ranks])


# -- blocks ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("nbytes", "size"),
    [
        (0, 4 * KIB),
        (1, 4 * KIB),
        (4097, 8 * KIB),
        (MIB, MIB),
        (MIB + 1, MIB + 128 * KIB),
        (16 * MIB, 16 * MIB),
    ],
)
def test_sizes_are_rounded_by_an_eighth_at_most(nbytes: int, size: int) -> None:
    assert rounded(nbytes) == size


def test_a_block_that_is_free_is_handed_out_again_for_its_size(allocator: BlockAllocator) -> None:
    first = allocator.take(4096, ALL, releases_memory=True)
    assert first is not None
    assert allocator.take(4096, ALL, releases_memory=True) is first
    other = allocator.take(8192, ALL & ~first.bit, releases_memory=True)
    again = allocator.take(4096, ALL & ~first.bit, releases_memory=True)
    assert other is not None
    assert again is not None
    assert len({block.slot for block in (first, other, again)}) == 3
    ends = sorted((block.offset, block.offset + block.size) for block in (first, other, again))
    assert all(before[1] <= after[0] for before, after in pairwise(ends))


def test_there_are_only_so_many_blocks(allocator: BlockAllocator) -> None:
    taken = [allocator.take(4096, 0, releases_memory=True) for _ in range(SLOTS)]
    assert None not in taken
    assert allocator.take(4096, 0, releases_memory=True) is None
    assert allocator.take(8192, 1 << 5, releases_memory=True) is not None  # in the place of an idle one


def test_idle_blocks_give_their_memory_back_where_there_are_too_many(
    segments: Callable[[int], list[Segment]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(block_allocator, "_memory_of_machine", lambda: 16 * 40 * KIB)
    allocator = BlockAllocator(segments(1)[0])
    old = allocator.take(48 * KIB, ALL, releases_memory=True)
    assert old is not None
    seen = old.views("test", lambda memory: memory)
    seen.fill_(1)
    new = allocator.take(32 * KIB, ALL, releases_memory=True)
    assert new is not None
    assert new.offset >= old.offset + old.size
    assert not seen.any()
    assert allocator.take(48 * KIB, ALL & ~new.bit, releases_memory=True) is not None


def test_what_was_lent_is_idle_once_nothing_reads_it(allocator: BlockAllocator) -> None:
    block = allocator.take(4096, ALL, releases_memory=True)
    assert block is not None
    lent = block.share_view(block.views("test", lambda memory: memory.view(torch.float32)))
    part = lent[3:5]
    assert not block.is_idle()
    del lent
    assert not block.is_idle()
    del part
    assert block.is_idle()


# -- meetings --------------------------------------------------------------------------------------


def test_ranks_that_make_the_same_calls_choose_the_same_blocks(
    segments: Callable[[int], list[Segment]],
) -> None:
    ranks = places(segments, 3)
    chosen: list[set[int]] = []
    for size in (4096, 4096, 8192, 4096, 65536, 8192):
        blocks = [rank.allocate(size) for rank in ranks]
        assert all(block is not None for block in blocks)
        chosen.append({block.offset for block in blocks if block is not None})
        meet(ranks)
        for rank, block in zip(ranks, blocks, strict=True):
            assert block is not None
            rank.free_block(block)
    assert all(len(offsets) == 1 for offsets in chosen)
    assert len(set.union(*chosen)) < len(chosen)


def test_a_block_that_one_rank_still_reads_is_not_taken_again(
    segments: Callable[[int], list[Segment]],
) -> None:
    ranks = places(segments, 2)
    blocks = [rank.allocate(4096) for rank in ranks]
    meet(ranks)
    first, second = blocks
    assert first is not None
    assert second is not None
    ranks[0].free_block(first)
    lent = ranks[1].share_view(second, second.views("test", lambda memory: memory))
    for _ in range(4):
        meet(ranks)
        others = [rank.allocate(4096) for rank in ranks]
        assert all(block is not None and block.slot != first.slot for block in others)
        for rank, block in zip(ranks, others, strict=True):
            assert block is not None
            rank.free_block(block)
    del lent
    meet(ranks)
    assert [block and block.slot for block in (rank.allocate(4096) for rank in ranks)] == [first.slot] * 2


def test_ranks_in_different_calls_are_told(segments: Callable[[int], list[Segment]]) -> None:
    ranks = places(segments, 2)
    raised = all_at_once(
        [lambda at=at: ranks[at].wait_for_all(waiting("all_reduce", fingerprint=at), digest=at) for at in (0, 1)]
    )
    assert raised
    for error in raised:
        with pytest.raises(MeshError, match="all_reduce: the ranks are in different calls"):
            raise error


# -- exchanges -------------------------------------------------------------------------------------


class Speaking(Rank):
    """A rank that shares no memory with the others, and talks to them instead."""

    def __init__(self, rank: int, said: list[bytes], all_there: threading.Barrier) -> None:
        super().__init__(rank, len(said))
        self._said, self._all_there = said, all_there

    @property
    def one_host(self) -> bool:
        return False

    def _all_say(self, source: object) -> list[bytes]:
        self._said[self.rank] = bytes(byte_view(source))
        self._all_there.wait(30.0)
        heard = list(self._said)
        self._all_there.wait(30.0)
        return heard

    def allgather(self, source: object, target: object, **_: object) -> None:  # type: ignore[override]
        byte_view(target, written=True)[:] = b"".join(self._all_say(source))

    def all_to_all(self, source: object, target: object, **_: object) -> None:  # type: ignore[override]
        size = byte_view(source).nbytes // self.size
        own = slice(self.rank * size, (self.rank + 1) * size)
        byte_view(target, written=True)[:] = b"".join(said[own] for said in self._all_say(source))


Groups = Callable[[int], list[RankGroup]]


def grouped(context: DistributedContext) -> RankGroup:
    return RankGroup(context, Lockstep(context))


@pytest.fixture(params=["shared memory", "messages"])
def groups(request: pytest.FixtureRequest, segments: Callable[[int], list[Segment]]) -> Groups:
    def in_memory(count: int) -> list[RankGroup]:
        found = [grouped(Rank(rank, count)) for rank in range(count)]
        for group, place in zip(found, places(segments, count), strict=True):
            group._barrier_is_known, group._barrier = True, place
        return found

    def by_messages(count: int) -> list[RankGroup]:
        said, all_there = [b""] * count, threading.Barrier(count)
        return [grouped(Speaking(rank, said, all_there)) for rank in range(count)]

    return in_memory if request.param == "shared memory" else by_messages


@pytest.mark.parametrize("axis", [0, 1])
def test_an_assembly_gives_all_ranks_the_parts_of_each(groups: Groups, axis: int) -> None:
    whole = ExchangeLayout((6, 6), torch.float32, lambda memory, rank: memory.narrow(axis, 2 * rank, 2), (36,))
    ranks = [AllGatherExchange(group, "all_gather", "blocks", whole) for group in groups(3)]
    found: dict[int, torch.Tensor] = {}

    def work(at: int) -> None:
        for number in range(3):
            ranks[at].open(lambda own, number=number: own[0].fill_(at + number))
            found[at] = ranks[at].keep()

    assert not all_at_once([lambda at=at: work(at) for at in range(3)])
    expected = torch.tensor([2.0, 3.0, 4.0]).repeat_interleave(2).expand(6, 6)
    expected = expected.T.reshape(36) if axis == 0 else expected.reshape(36)
    assert all(torch.equal(tensor, expected) for tensor in found.values())


@pytest.mark.parametrize("dim", [1, 2])
def test_a_deal_gives_each_rank_its_row(groups: Groups, dim: int) -> None:
    shape = (2, 2, 4) if dim == 1 else (2, 4, 2)
    whole = ExchangeLayout(shape, torch.int32, lambda memory, rank: memory.narrow(dim, rank, 1))
    ranks = [
        AllToAllExchange(group, "reduce", "columns", whole, pieces=lambda found: found.unbind(dim - 1))
        for group in groups(2)
    ]
    found: dict[int, list[int]] = {}

    def work(at: int) -> None:
        values = torch.tensor([10, 20]).view(2, 1, 1) + at
        for _ in range(3):
            views = ranks[at].open(lambda own: own[0].copy_(values))
            found[at] = [int(piece[0]) for piece in views.pieces]
            ranks[at].close()

    assert not all_at_once([lambda at=at: work(at) for at in range(2)])
    assert found == {0: [10, 11], 1: [20, 21]}


def test_what_is_kept_is_one_memory_for_all(segments: Callable[[int], list[Segment]]) -> None:
    ranks = places(segments, 2)
    kept = []
    for rank in ranks:
        block = rank.allocate(4096)
        assert block is not None
        kept.append(rank.share_view(block, block.views("test", lambda memory: memory)))
    kept[0].fill_(3)
    assert bool((kept[1] == 3).all())


# -- where it cannot be had ------------------------------------------------------------------------


class Pair(Rank):
    """The first rank of two, whose other one says whether it found the memory."""

    def __init__(self, other_found: bool = True, one_host: bool = True) -> None:
        super().__init__(0, 2)
        self._other, self._one_host = other_found, one_host

    @property
    def one_host(self) -> bool:
        return self._one_host

    def broadcast(self, *_: object, **__: object) -> None:
        pass

    def allgather_int(self, value: int, **_: object) -> list[int]:
        return [value, int(self._other)]


def test_ranks_share_memory_where_all_of_them_can(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(SHARED_MEMORY, raising=False)
    segment = shared_segment(Pair(), "test")
    assert segment is not None
    assert "/dev/shm/" not in Path("/proc/self/maps").read_text()  # it has no name that could outlive the ranks
    del segment
    assert shared_segment(Pair(other_found=False), "test") is None
    assert shared_segment(Pair(one_host=False), "test") is None
    monkeypatch.setenv(SHARED_MEMORY, "0")
    assert shared_segment(Pair(), "test") is None


def test_a_setting_that_is_none_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SHARED_MEMORY, "no")
    with pytest.raises(MeshError, match="SOFTMESH_SHARED_MEMORY='no': set it to 0"):
        shared_segment(Pair(), "test")
