"""Lockstep check that all ranks run the same program: a running hash of each rank's commands, compared at
collectives.

    lockstep.feed("add", [(32, 32)], ["bfloat16"])      # at every command
    lockstep.compare(context)                           # where all ranks meet

While the hashes agree, eight bytes travel. At the first difference the ranks exchange what they did last and the
error names the first command that differs, with both lines of the program.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter, deque
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from softmesh.callsite import user_call_site
from softmesh.errors import MeshError
from softmesh.processes.context import DistributedContext
from softmesh.processes.wait_report import Site, ranges, site_from_data

_KEPT = 256


class LockstepError(MeshError):
    """Ranks of one mesh run different programs. `odd` are the ranks that differ from the most."""

    def __init__(self, message: str, odd: tuple[int, ...], index: int) -> None:
        super().__init__(message)
        self.odd, self.index = odd, index


class Entry(NamedTuple):
    """One command: its number, the hash of everything up to it, what it was and where it was called."""

    number: int
    digest: str
    what: str
    site: Site


class Lockstep:
    def __init__(self, kept: int = _KEPT) -> None:
        self._digest = bytes(8)
        self._count = 0
        self._entries: deque[Entry] = deque(maxlen=kept)

    def feed(
        self,
        name: str,
        shapes: Iterable[Sequence[int]] = (),
        dtypes: Iterable[object] = (),
        site: Site | None = None,
        arguments: Iterable[str] = (),
    ) -> None:
        """One command that every rank has to make; `site` where the caller knows it already."""
        operands = [f"{dtype} {list(shape)}" for shape, dtype in zip(shapes, dtypes, strict=True)]
        what = f"{name}({', '.join([*operands, *arguments])})"
        self._digest = hashlib.blake2b(self._digest + what.encode(), digest_size=8).digest()
        self._count += 1
        self._entries.append(Entry(self._count, self._digest.hex(), what, site or Site(*user_call_site())))

    def compare(self, context: DistributedContext) -> None:
        """Every rank calls it at the same collective; all of them raise where one differs."""
        own = int.from_bytes(self._digest, "big", signed=True)
        if len(set(context.allgather_int(own, op="lockstep check"))) > 1:
            histories = context.allgather_bytes(json.dumps(list(self._entries)).encode(), op="lockstep check")
            raise difference([_entries_in(history) for history in histories], context.group.ranks)


def _entries_in(history: memoryview) -> list[Entry]:
    return [
        Entry(int(index), str(digest), str(what), site_from_data(site))
        for index, digest, what, site in json.loads(bytes(history))
    ]


def difference(histories: Sequence[Sequence[Entry]], ranks: Sequence[int] | None = None) -> LockstepError:
    """The first command that differs, told from the last ones of each rank; `ranks` are their world ranks."""
    names = range(len(histories)) if ranks is None else ranks
    by_index = [{entry.number: entry for entry in history} for history in histories]
    common = max((history[0].number for history in histories if history), default=1)
    end = max((history[-1].number for history in histories if history), default=0)
    for index in range(common, end + 1):
        entries = [found.get(index) for found in by_index]
        if len({entry and entry.digest for entry in entries}) > 1:
            # when the oldest command that is known differs already, the real difference may lie before it
            return _difference_text(index, dict(zip(names, entries, strict=True)), maybe_older=index == common > 1)
    raise AssertionError("the hashes of all commands agree")


def _difference_text(index: int, entries: Mapping[int, Entry | None], maybe_older: bool) -> LockstepError:
    seen = Counter(entry and entry.digest for entry in entries.values())
    usual = max(seen, key=lambda digest: seen[digest])
    odd = tuple(rank for rank, entry in entries.items() if (entry and entry.digest) != usual)
    rest = [rank for rank in entries if rank not in odd]
    older = "; an earlier one, no longer known, may differ already" if maybe_older else ""
    message = (
        f"ranks run different programs: command number {index} differs{older}\n"
        f"    rank {ranges(odd)}: {_shown(entries[odd[0]])}\n"
        f"    rank {ranges(rest)}: {_shown(entries[rest[0]])}\n"
        "    remedy: all ranks of a mesh run the same commands in the same order; look for a branch that depends "
        "on the rank, for the order of a set, or for memory freed by garbage collection"
    )
    return LockstepError(message, odd, index)


def _shown(entry: Entry | None) -> str:
    return "nothing more" if entry is None else f"{entry.what} at {entry.site}"
