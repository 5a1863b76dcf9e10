"""The report of a wait as data: which rank waits, in which call, for whom, since when.

The rank that waits makes one, the launcher reads it, tests make them up. Nothing here waits.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from enum import Enum
from typing import Any, NamedTuple

from softmesh.errors import ranges_text
from softmesh.terminal_text import printable

LONGEST_TEXT = 2000
_MOST_RANKS = 100_000


class WaitKind(str, Enum):
    COLLECTIVE = "collective"  # for every rank of the group
    SEND = "send"
    RECEIVE = "receive"
    EXCHANGE = "exchange"  # both directions at once: a handshake, a send-receive


class Site(NamedTuple):
    """A line of a program; line 0 where it is not known."""

    file: str = ""
    line: int = 0
    function: str = ""

    def __str__(self) -> str:
        if not self.line:
            return "an unknown line"
        function = f" in {self.function}" if self.function and self.function != "<module>" else ""
        return f"{_short(self.file)}:{self.line}{function}"


def _short(file: str) -> str:
    """Relative to here where that is shorter to read."""
    here = os.getcwd() + os.sep
    return file[len(here) :] if file.startswith(here) else file


@dataclass(frozen=True)
class WaitReport:
    """Ranks are world ranks. `serial` counts the waits of this rank, `polls` the looks within this one.

    `group` is a name by which ranks that are in one group know each other, `label` one that people understand.
    `patience` are seconds that this wait is granted beyond the usual deadline.
    """

    op: str
    kind: WaitKind = WaitKind.COLLECTIVE
    group: str = "world"
    members: tuple[int, ...] = ()
    peer: int | None = None
    tag: int = 0
    sequence: int | None = None
    fingerprint: str = ""
    site: Site = field(default_factory=Site)
    seconds: float = 0.0
    serial: int = 0
    polls: int = 0
    patience: float = 0.0
    label: str = ""
    program: Site = field(default_factory=Site)  # where the program waits, if not at `site`

    @property
    def place(self) -> str:
        """`pipeline.py:16, waited for at pipeline.py:21`"""
        return f"{self.site}, waited for at {self.program}" if self.program.line else str(self.site)

    @property
    def signature(self) -> tuple[str, str]:
        """What every rank of a collective must agree on."""
        return self.op, self.fingerprint

    @property
    def channel(self) -> str:
        """The name by which both ends of a channel count its messages."""
        return channel_name(self.group, self.tag)

    @property
    def what(self) -> str:
        """`all_reduce number 17 of world (bfloat16 [32, 64], axis 1)`, `receive from rank 3 (tag 0)`."""
        if self.kind is WaitKind.COLLECTIVE:
            number = "" if self.sequence is None else f" number {self.sequence}"
            return f"{self.op}{number} of {self.label or self.group}" + (
                f" ({self.fingerprint})" if self.fingerprint else ""
            )
        direction = {WaitKind.SEND: "to", WaitKind.RECEIVE: "from", WaitKind.EXCHANGE: "with"}[self.kind]
        number = "" if self.sequence is None else f"message {self.sequence}"
        details = filter(None, [number, f"tag {self.tag}", self.fingerprint])
        return f"{self.op} {direction} rank {self.peer} of the world ({', '.join(details)})"

    def as_data(self) -> dict[str, object]:
        return {
            **asdict(self),
            "kind": self.kind.value,
            "members": ranges(self.members),
            "site": list(self.site),
            "program": list(self.program),
        }


def channel_name(group: str, tag: int) -> str:
    return f"{group}/{tag}"


def wait_from_data(data: Mapping[str, Any]) -> WaitReport:
    """Checked: what comes over a socket may be anything. Raises ValueError, TypeError or KeyError."""
    return WaitReport(
        op=text(data["op"]),
        kind=WaitKind(data["kind"]),
        group=text(data["group"]),
        members=ranks_of(text(data["members"])),
        peer=_number_or_none(data.get("peer")),
        tag=int(data.get("tag", 0)),
        sequence=_number_or_none(data.get("sequence")),
        fingerprint=text(data.get("fingerprint", "")),
        site=site_from_data(data.get("site", ())),
        seconds=float(data.get("seconds", 0.0)),
        serial=int(data.get("serial", 0)),
        polls=int(data.get("polls", 0)),
        patience=float(data.get("patience", 0.0)),
        label=text(data.get("label", "")),
        program=site_from_data(data.get("program", ())),
    )


def site_from_data(data: Sequence[Any]) -> Site:
    if len(data) != 3:
        return Site()
    return Site(text(data[0]), int(data[1]), text(data[2]))


def text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(f"a string is needed, got {type(value).__name__}")
    return printable(value if len(value) <= LONGEST_TEXT else value[:LONGEST_TEXT] + " ...")


def _number_or_none(value: Any) -> int | None:
    return None if value is None else int(value)


def ranges(ranks: Sequence[int]) -> str:
    """`0-4, 6` for [0, 1, 2, 3, 4, 6]; the order is lost."""
    return ranges_text(sorted(ranks))


def ranks_of(text: str) -> tuple[int, ...]:
    """The inverse of `ranges`."""
    ranks: list[int] = []
    for part in filter(None, (part.strip() for part in text.split(","))):
        first, _, last = part.partition("-")
        span = range(int(first), int(last or first) + 1)
        if len(ranks) + len(span) > _MOST_RANKS:
            raise ValueError(f"more than {_MOST_RANKS} ranks")
        ranks += span
    return tuple(ranks)
