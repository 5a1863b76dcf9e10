"""Programs that should be the same on every rank: the first command that differs is named."""

import pytest

from softmesh.errors import MeshError
from softmesh.processes.context import SingleProcess
from softmesh.processes.lockstep import Lockstep, LockstepError, difference
from softmesh.processes.wait_report import Site
from softmesh.processes.waits import Group
from softmesh.runtime.lockstep_check import is_wanted


def history(*names, kept=256):
    lockstep = Lockstep(kept)
    for line, name in enumerate(names, start=1):
        lockstep.feed(name, [(32, 32)], ["bfloat16"], Site("train.py", line, "step"))
    return list(lockstep._entries)


class Rehearsed(SingleProcess):
    """Rank 4 of 4 and 6; what the other one says is known beforehand."""

    def __init__(self, other):
        super().__init__()
        self.group = Group("line", (4, 6))
        self.other = other
        self.exchanged = []

    def allgather_int(self, value, *, op="allgather_int"):
        self.exchanged.append("hash")
        return [value, int.from_bytes(self.other._digest, "big", signed=True)]

    def allgather_bytes(self, data, *, op="all_gather", fingerprint=None):
        import json

        self.exchanged.append("history")
        return [memoryview(data), memoryview(json.dumps(list(self.other._entries)).encode())]


def test_the_first_differing_command_is_named_with_both_lines():
    error = difference([history("add", "gelu", "matmul"), *[history("add", "matmul")] * 3])
    assert (error.odd, error.index) == ((0,), 2)
    text = str(error)
    assert text.startswith("ranks run different programs: command number 2 differs\n")
    assert "rank 0: gelu(bfloat16 [32, 32]) at train.py:2 in step" in text
    assert "rank 1-3: matmul(bfloat16 [32, 32]) at train.py:2 in step" in text


def test_a_rank_that_did_less_is_told_so():
    error = difference([history("add"), history("add", "gelu"), history("add", "gelu")])
    assert (error.odd, error.index) == ((0,), 2)
    assert "rank 0: nothing more" in str(error)


def test_a_difference_older_than_what_is_kept_is_admitted():
    error = difference([history("a", "c", "d", "e", kept=2), history("b", "c", "d", "e", kept=2)])
    assert error.index == 3
    assert "an earlier one, no longer known, may differ already" in str(error)


@pytest.mark.parametrize(
    "change", [("sub", (32, 32), "bfloat16"), ("add", (32, 64), "bfloat16"), ("add", (32, 32), "float32")]
)
def test_names_shapes_and_types_all_count(change):
    here, there = Lockstep(), Lockstep()
    here.feed("add", [(32, 32)], ["bfloat16"])
    name, shape, dtype = change
    there.feed(name, [shape], [dtype])
    with pytest.raises(LockstepError, match="command number 1 differs") as differs:
        here.compare(Rehearsed(there))
    assert differs.value.odd == (6,)


def test_arguments_count_too():
    here, there = Lockstep(), Lockstep()
    here.feed("transpose", [(32, 32)], ["bfloat16"], arguments=["dim1=0", "dim2=1"])
    there.feed("transpose", [(32, 32)], ["bfloat16"], arguments=["dim1=-2", "dim2=-1"])
    with pytest.raises(LockstepError, match="dim1=-2"):
        here.compare(Rehearsed(there))


def test_while_programs_agree_only_hashes_travel():
    here, there = Lockstep(), Lockstep()
    for lockstep in (here, there):
        lockstep.feed("add", [(32, 32)], ["bfloat16"])
    context = Rehearsed(there)
    here.compare(context)
    assert context.exchanged == ["hash"]


def test_the_line_of_a_command_is_the_users():
    lockstep = Lockstep()
    lockstep.feed("add")
    assert lockstep._entries[0].site.file == __file__


@pytest.mark.parametrize(("said", "wanted"), [("", False), ("0", False), ("1", True)])
def test_ranks_are_compared_where_the_environment_asks_for_it(monkeypatch, said, wanted):
    monkeypatch.setenv("SOFTMESH_LOCKSTEP", said)
    assert is_wanted() == wanted


def test_a_wish_that_is_neither_yes_nor_no_is_refused(monkeypatch):
    monkeypatch.setenv("SOFTMESH_LOCKSTEP", "yes")
    with pytest.raises(MeshError, match="SOFTMESH_LOCKSTEP='yes': set it to 1"):
        is_wanted()
