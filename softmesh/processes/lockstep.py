"""Lockstep: the calls that all ranks of a mesh must make alike, as a running digest that is compared where ranks meet.

    calls.note(what, addresses)     # every rank, at each such call, before it runs
    calls.digest                    # rides on each exchange between ranks: where digests differ, `explain` is asked
    calls.check()                   # in between, without waiting: what the others have done so far

Ranks of one host write each call to a board in memory that they share, so that each can read what the others did, and
when. Ranks of several hosts send each other their last calls once digests differ. Either way the error names the first
call that differs, with both lines of the program and both sets of arguments.
"""

from __future__ import annotations

import hashlib
import json
import sys
import time
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from threading import current_thread, main_thread
from types import CodeType
from typing import NamedTuple

from softmesh.callsite import RawSite, raw_call_site, resolved
from softmesh.errors import MeshError
from softmesh.processes.call_board import LONGEST, CallBoard, CallText
from softmesh.processes.context import DistributedContext
from softmesh.processes.wait_report import Site, ranges

_REMEMBERED = 1024  # calls, where there is no board: ranks tell each other of them when they meet
_OFTEN = 63  # look at the board each time that a count has none of these bits
_PATIENCE = 1.0  # seconds
_SECONDS_BETWEEN_LOOKS = 0.01
_TOLD = -1  # in place of a digest, which no hash is: this rank has said already that the ranks differ
_LOW = (1 << 32) - 1


class LockstepError(MeshError):
    """Ranks of one mesh run different programs. `odd` are the ranks that differ from the most."""

    def __init__(self, message: str, odd: tuple[int, ...], index: int, usual: int) -> None:
        super().__init__(message)
        self.odd, self.index, self.usual = odd, index, usual  # how many are not odd

    def is_certain(self, ranks: int) -> bool:
        """Whether the odd ones stay so when the rest of all ranks come to this call."""
        return self.usual * 2 > ranks or self.usual + len(self.odd) == ranks


class SharedCall:
    """What is to be said of a call, and a number that stands for it: the same in every process."""

    __slots__ = ("_on_others", "_texts", "code", "last", "text")

    def __init__(self, text: str) -> None:
        self.text = text
        self.code = int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big")
        # By the number of the code, which is kept: hashing the code itself reads all of it.
        self._texts: dict[tuple[int, int], tuple[CodeType, int, CallText]] = {}
        self.last: tuple[CodeType | None, int, CallText] = (None, 0, CallText(b""))  # where it was made last
        self._on_others: dict[int, SharedCall] = {}

    def on_queue(self, queue: int) -> SharedCall:
        """The same on another command queue of the mesh than the first one."""
        if queue not in self._on_others:
            self._on_others[queue] = SharedCall(f"{self.text} on queue {queue}")
        return self._on_others[queue]

    def text_with_line(self, code: CodeType, at: int) -> CallText:
        """With the line of the user's program."""
        known = self._texts.get((id(code), at))
        if known is None:
            line = f" at {Site(*resolved((code, at)))}".encode()
            told = CallText(_cut(self.text.encode(), LONGEST - len(line)) + line)
            known = self._texts[id(code), at] = code, at, told
        self.last = known
        return known[2]


def _cut(text: bytes, most: int) -> bytes:
    """Arguments may be long, and the line behind them is what nobody can do without."""
    return text if len(text) <= most else text[: max(0, most - 3)] + b"..."


class Entry(NamedTuple):
    """One call: its number, the digest of everything up to it, and what it was."""

    number: int
    digest: int
    what: str


class Lockstep:
    """Of the ranks of one context. `board` is None where they share no memory."""

    def __init__(self, context: DistributedContext, board: CallBoard | None = None) -> None:
        self._context, self._board = context, board
        self.digest = 0
        self.count = 0
        self._is_told = False  # that the ranks differ: the user knows, and it is not said again
        self._meshes = 0  # that are open
        self._latest: deque[tuple[int, int, CallText, tuple[int, ...]]] = deque(maxlen=_REMEMBERED)

    def restart(self, context: DistributedContext) -> None:
        """With no calls; all ranks do it, at a moment when none of them makes any.

        What was not compared yet is compared now: a mesh may have gone without a word.
        """
        self._context = context
        digests = context.allgather_int(_TOLD if self._is_told else self.digest, op="open_mesh_device")
        if len(set(digests)) > 1 and _TOLD not in digests:
            self.explain(context)
        self.digest = self.count = 0
        self._is_told = False
        self._latest.clear()
        if self._board is not None:
            self._board.clear()
        self._context.barrier(op="open_mesh_device")

    @property
    def code(self) -> int:
        """As much of the digest as travels with a barrier."""
        return self.digest & _LOW

    def note(
        self, call: SharedCall, addresses: tuple[int, ...] = (), queue: int = 0, site: RawSite | None = None
    ) -> None:
        """One call that every rank has to make, on tensors that lie at these addresses."""
        if queue:
            call = call.on_queue(queue)
        self.count = count = self.count + 1
        self.digest = digest = hash((self.digest, call.code, addresses))
        code, at = site or raw_call_site(2)
        last_code, last_at, told = call.last
        if at != last_at or code is not last_code:
            told = call.text_with_line(code, at)
        board = self._board
        if board is None:
            self._latest.append((count, digest, told, addresses))
        else:
            board.write(count, digest, told, addresses)
            if not count & _OFTEN:
                self.check()

    def check(self) -> None:
        """Raise where another rank of this host is known to have made other calls; nobody is waited for."""
        if self._board is not None and not self._is_told and self._board.differs(self.count):
            self._tell(self._settled(self._board))

    def explain(self, context: DistributedContext) -> None:
        """Digests differed where the ranks of a context met: raise with the first call that differs, if one does."""
        ranks = context.group.ranks
        if self._board is not None:
            found = self._difference_on(self._board, met=ranks, of=ranks)
            self._tell(found and self._settled(self._board, met=ranks))
            return
        own = json.dumps([(number, str(digest), _shown(told.text, at)) for number, digest, told, at in self._latest])
        histories = context.allgather_bytes(own.encode(), op="lockstep check")
        self._tell(difference([_entries_in(history) for history in histories], ranks))

    def compare(self, op: str) -> None:
        """All ranks come to this: raise, on all of them, where one made other calls.

        Those who know that they differ do not meet the others here, who may have left: these look at the board.
        """
        if self._is_told and self._board is not None:
            return
        self.check()
        if len(set(self._context.allgather_int(self.digest, op=op))) > 1:
            self.explain(self._context)

    def opened(self) -> None:
        self._meshes += 1

    def closed(self) -> None:
        """A mesh is closed; with the last one this rank has made all its calls, unless an error ends it early."""
        self._meshes -= 1
        if self._meshes > 0 or sys.exc_info()[0] is not None or self._board is None:
            self.check()
        else:
            self.end()

    def end(self) -> None:
        """This rank makes no more calls; raise where another has made more of them, or fewer and ended."""
        if self._is_told:
            return
        if self._board is None:
            if self.count:
                self.compare("the end of the program")
            return
        self._board.end()
        if self._board.differs(self.count) or self._board.has_other_end(self.count):
            self._tell(self._settled(self._board))

    def _difference_on(
        self, board: CallBoard, met: Sequence[int] = (), of: Sequence[int] | None = None
    ) -> LockstepError | None:
        """Between some ranks or all. Those that met make no call before they go on; others may only be behind."""
        ranks = self._context.group.ranks
        chosen = [(number, rank) for number, rank in enumerate(ranks) if of is None or rank in of]
        histories = [
            [Entry(count, digest, _shown(told, at)) for count, digest, told, at in board.read(number)]
            for number, _ in chosen
        ]
        is_final = [rank in met or board.has_ended(number) for number, rank in chosen]
        return difference(histories, [rank for _, rank in chosen], is_final)

    def _settled(self, board: CallBoard, met: Sequence[int] = ()) -> LockstepError | None:
        """The difference, told when it is clear who is odd, or after a while: other ranks may be on their way."""
        until = time.monotonic() + _PATIENCE
        while True:
            found = self._difference_on(board, met)
            if found is None or found.is_certain(self._context.size) or time.monotonic() > until:
                return found
            time.sleep(_SECONDS_BETWEEN_LOOKS)

    def _tell(self, found: LockstepError | None) -> None:
        if found is not None and not self._is_told:
            # An error ends the thread that it is raised in: of another than the program's own it is told again there.
            self._is_told = current_thread() is main_thread()
            try:
                raise found from None
            finally:
                del found  # or the error would hold this frame, and all tensors below, until garbage is collected


def _shown(told: bytes, addresses: tuple[int, ...]) -> str:
    text = told.decode(errors="replace")
    what, separator, site = text.rpartition(" at ")
    where = f" on memory at {', '.join(f'{address:#x}' for address in addresses)}" if addresses else ""
    return f"{what}{where}{separator}{site}"


def _entries_in(history: memoryview) -> list[Entry]:
    return [Entry(int(number), int(digest), str(what)) for number, digest, what in json.loads(bytes(history))]


def difference(
    histories: Sequence[Sequence[Entry]], ranks: Sequence[int] | None = None, is_final: Sequence[bool] | None = None
) -> LockstepError | None:
    """The first call that differs, told from the last ones of each rank; `ranks` are their world ranks.

    A rank that has made fewer calls differs if that is final, as it is by default.
    """
    names = range(len(histories)) if ranks is None else ranks
    finals = [True] * len(histories) if is_final is None else is_final
    by_number = [{entry.number: entry for entry in history} for history in histories]
    common = max((history[0].number for history in histories if history), default=1)
    end = max((history[-1].number for history in histories if history), default=0)
    for number in range(common, end + 1):
        called = zip(names, (found.get(number) for found in by_number), finals, strict=True)
        entries = {name: entry for name, entry, final in called if final or entry is not None}
        if len({entry and entry.digest for entry in entries.values()}) > 1:
            # when the oldest call that is known differs already, the real difference may lie before it
            return _difference_text(number, entries, maybe_older=number == common > 1)
    return None


def _difference_text(number: int, entries: Mapping[int, Entry | None], maybe_older: bool) -> LockstepError:
    together: dict[int | None, list[int]] = {}
    for rank, entry in entries.items():
        together.setdefault(entry and entry.digest, []).append(rank)
    usual = max(together, key=lambda digest: len(together[digest]))
    odd = tuple(sorted(rank for digest, ranks in together.items() if digest != usual for rank in ranks))
    groups = sorted(together.values(), key=lambda ranks: (ranks[0] not in odd, ranks))
    older = "; an earlier one, no longer known, may differ already" if maybe_older else ""
    several = len(odd) > 1
    message = "\n".join(
        [
            f"{_ranks(odd)} run{'' if several else 's'} another program than the rest: call number {number} "
            f"differs{older}",
            *(f"  {_ranks(ranks)} {_called(entries[ranks[0]])}" for ranks in groups),
            "  remedy: all ranks of a mesh make the same calls in the same order, on the same tensors; look for a "
            "branch that depends on the rank, for the order of a set, for values that each rank draws or shuffles by "
            "a seed of its own, or for memory that one rank allocates or frees at another time",
        ]
    )
    return LockstepError(message, odd, number, len(together[usual]))


def _called(entry: Entry | None) -> str:
    if entry is None:
        return "made no more calls"
    what, _, site = entry.what.rpartition(" at ")
    return f"in {what}\n      at {site}"


def _ranks(ranks: Sequence[int]) -> str:
    return f"rank{'s' if len(ranks) > 1 else ''} {ranges(ranks)}"


def described(name: str, arguments: Iterable[str], place: str = "") -> SharedCall:
    return SharedCall(f"{name}({', '.join(arguments)}){place}")
