"""Programs that should be the same on every rank: the first call that differs is named."""

import json
import mmap

import pytest

from softmesh.errors import MeshError
from softmesh.processes.call_board import KEPT, CallBoard
from softmesh.processes.context import SingleProcess
from softmesh.processes.lockstep import Entry, Lockstep, LockstepError, SharedCall, difference
from softmesh.processes.waits import Group
from softmesh.runtime.lockstep_check import is_wanted


def history(*names, kept=256):
    found, digest = [], 0
    for number, name in enumerate(names, start=1):
        digest = hash((digest, SharedCall(name).code))
        found.append(Entry(number, digest, f"{name} at train.py:{number}"))
    return found[-kept:]


class Rehearsed(SingleProcess):
    """Rank 4 of 4 and 6; what the other one says is known beforehand."""

    def __init__(self):
        super().__init__()
        self.group = Group("line", (4, 6))
        self.size = 2
        self.exchanged = []
        self.other = None

    def allgather_int(self, value, *, op="allgather_int"):
        self.exchanged.append("digest")
        return [value, self.other.digest]

    def allgather_bytes(self, data, *, op="all_gather", fingerprint=None):
        self.exchanged.append("history")
        other = [(number, str(digest), told.text.decode()) for number, digest, told, _ in self.other._latest]
        return [memoryview(data), memoryview(json.dumps(other).encode())]


class Segment:
    """Memory for a board of few ranks."""

    order = None

    def __init__(self):
        self.map = mmap.mmap(-1, 1 << 22)
        self.words = memoryview(self.map).cast("Q")


def test_the_first_differing_call_is_named_with_both_lines():
    error = difference([history("add", "gelu", "matmul"), *[history("add", "matmul")] * 3])
    assert (error.odd, error.index) == ((0,), 2)
    text = str(error)
    assert text.startswith("rank 0 runs another program than the rest: call number 2 differs\n")
    assert "  rank 0 in gelu\n      at train.py:2" in text
    assert "  ranks 1-3 in matmul\n      at train.py:2" in text


def test_ranks_that_differ_in_several_ways_are_told_apart():
    text = str(difference([history("add"), history("gelu"), history("relu"), history("add")]))
    assert text.startswith("ranks 1-2 run another program than the rest")
    assert [line for line in text.splitlines() if " in " in line and "remedy" not in line] == [
        "  rank 1 in gelu",
        "  rank 2 in relu",
        "  ranks 0, 3 in add",
    ]


def test_a_rank_that_did_less_is_told_so():
    error = difference([history("add"), history("add", "gelu"), history("add", "gelu")])
    assert (error.odd, error.index) == ((0,), 2)
    assert "rank 0 made no more calls" in str(error)


def test_histories_that_agree_are_no_error():
    assert difference([history("add", "gelu")] * 3) is None


def test_a_difference_older_than_what_is_kept_is_admitted():
    error = difference([history("a", "c", "d", "e", kept=2), history("b", "c", "d", "e", kept=2)])
    assert error.index == 3
    assert "an earlier one, no longer known, may differ already" in str(error)


def two(here_call, there_call, here_at=(), there_at=()):
    context = Rehearsed()
    here, there = Lockstep(context), Lockstep(context)
    context.other = there
    here.note(SharedCall(here_call), here_at)
    there.note(SharedCall(there_call), there_at)
    return here, context


@pytest.mark.parametrize("other", ["sub(bfloat16 [32, 32])", "add(bfloat16 [32, 64])", "add(float32 [32, 32])"])
def test_all_that_is_said_of_a_call_counts(other):
    here, _ = two("add(bfloat16 [32, 32])", other)
    with pytest.raises(LockstepError, match="call number 1 differs") as differs:
        here.compare("barrier")
    assert differs.value.odd == (6,)


def test_tensors_at_other_addresses_are_other_tensors():
    here, _ = two("all_reduce(bfloat16 [32, 32])", "all_reduce(bfloat16 [32, 32])", (0x1000,), (0x2000,))
    with pytest.raises(LockstepError, match="on memory at 0x1000\n      at "):
        here.compare("barrier")


def test_while_programs_agree_only_digests_travel():
    here, context = two("add", "add", (64,), (64,))
    here.compare("barrier")
    assert context.exchanged == ["digest"]


def test_the_line_of_a_call_is_the_users():
    here, _ = two("add", "gelu")
    with pytest.raises(LockstepError, match=r"test_lockstep\.py:\d+ in two"):
        here.compare("barrier")


@pytest.fixture
def board():
    segment = Segment()
    return [CallBoard(segment, rank, 2, start=0) for rank in (0, 1)]


def on_board(board):
    context = Rehearsed()
    return [Lockstep(context, one) for one in board]


def test_a_board_tells_of_a_difference_without_waiting(board):
    here, there = on_board(board)
    for one in (here, there):
        one.note(SharedCall("open"))
    here.note(SharedCall("all_reduce(x)"), (64,))
    here.check()  # the other is only behind
    there.note(SharedCall("all_gather(x)"), (64,))
    for one in (here, there):
        with pytest.raises(LockstepError, match="call number 2 differs") as differs:
            one.check()
        assert "all_reduce(x) on memory at 0x40\n      at " in str(differs.value)


def test_a_call_of_many_arguments_keeps_its_line(board):
    here, there = on_board(board)
    here.note(SharedCall(f"all_reduce({'x' * 5000})"))
    there.note(SharedCall(f"all_gather({'x' * 5000})"))
    with pytest.raises(
        LockstepError, match=r"in all_reduce\(x+\.\.\.\n      at [^\n]*test_lockstep\.py:\d+"
    ) as differs:
        here.check()
    assert "in all_gather(" in str(differs.value)


def test_a_rank_that_is_far_ahead_is_not_compared_with_what_it_no_longer_shows(board):
    here, there = on_board(board)
    for _ in range(KEPT + 1):
        there.note(SharedCall("b"))
    here.note(SharedCall("a"))
    here.check()


def test_ranks_that_never_meet_look_at_each_other_now_and_then(board):
    here, there = on_board(board)
    there.note(SharedCall("b"))
    with pytest.raises(LockstepError, match="call number 1 differs"):
        list(map(here.note, [SharedCall("a")] * KEPT))


def test_a_rank_that_is_only_behind_is_not_the_odd_one():
    ahead, behind = history("add", "gelu", "matmul"), history("add")
    odd = history("add", "relu")
    assert difference([ahead, behind], is_final=[False, False]) is None
    error = difference([ahead, behind, odd, ahead], is_final=[True, False, True, True])
    assert (error.odd, error.index) == ((2,), 2)
    assert "rank 1" not in str(error)
    assert not difference([ahead, odd]).is_certain(4)
    assert difference([ahead, odd]).is_certain(2)
    assert difference([ahead, odd, ahead, ahead]).is_certain(5)


def test_what_a_mesh_that_was_dropped_had_not_compared_is_compared_when_the_next_one_is_opened():
    here, context = two("add", "gelu")
    with pytest.raises(LockstepError, match="call number 1 differs"):
        here.restart(context)
    context.other.digest = 0
    here.restart(context)  # it was said
    assert here.count == 0


def test_a_program_that_ends_early_is_noticed_by_both(board):
    here, there = on_board(board)
    for one in (here, there):
        one.note(SharedCall("open"))
    there.note(SharedCall("all_reduce(x)"))
    with pytest.raises(LockstepError, match="rank 4 made no more calls"):
        here.end()
    with pytest.raises(LockstepError, match="rank 4 made no more calls"):
        there.end()


def test_programs_that_end_alike_end_in_peace(board):
    here, there = on_board(board)
    for one in (here, there):
        one.note(SharedCall("open"))
    here.end()
    there.end()


@pytest.mark.parametrize(("said", "wanted"), [("", False), ("0", False), ("1", True)])
def test_ranks_are_compared_where_the_environment_asks_for_it(monkeypatch, said, wanted):
    monkeypatch.setenv("SOFTMESH_LOCKSTEP", said)
    assert is_wanted() == wanted


def test_a_wish_that_is_neither_yes_nor_no_is_refused(monkeypatch):
    monkeypatch.setenv("SOFTMESH_LOCKSTEP", "yes")
    with pytest.raises(MeshError, match="SOFTMESH_LOCKSTEP='yes': set it to 1"):
        is_wanted()
