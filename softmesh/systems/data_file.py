"""The grammar of the files under data/: tables with known keys, numbers such as `0,4-7`, ports such as `0/8,9 1/6,7`.

Every complaint names file and line.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import NamedTuple

from softmesh.errors import did_you_mean
from softmesh.systems.yaml_values import Values
from softmesh.yaml_tree import Table, Text, Value, shown

MOST_NUMBERS = 4096
_NUMBERS = re.compile(r"\d{1,4}(-\d{1,4})?(,\d{1,4}(-\d{1,4})?){0,99}", re.ASCII)


class Socket(NamedTuple):
    """One Ethernet channel of the chip at one location of a board."""

    location: int
    channel: int

    def __str__(self) -> str:
        return f"{self.location}/{self.channel}"


class DataFile(Values):
    def fields(self, value: Value, required: Collection[str], optional: Collection[str] = ()) -> Table:
        """`value` as a table that has all the required keys and none that is unknown."""
        found = self.table(value)
        known = [*required, *optional]
        for key, _ in found.entries():
            if key not in known:
                hint = did_you_mean(key, known) or f" Known are {', '.join(known)}."
                raise self.wrong(key, f"unknown key {shown(key)}.{hint}")
        for name in required:
            if name not in found:
                raise self.wrong(found, f"the key {name!r} is missing")
        return found

    def texts(self, value: Value | None) -> list[Text]:
        """A list of words; a key that is not there is an empty list."""
        return [] if value is None else [self.text(item) for item in self.rows(value)]

    def one_of(self, value: Value, known: Collection[str], what: str) -> str:
        word = self.text(value)
        if word not in known:
            hint = did_you_mean(word, known) or f" There are {', '.join(known)}."
            raise self.wrong(word, f"{shown(word)} is no {what}.{hint}")
        return str(word)

    def numbers(self, value: Value) -> list[int]:
        """
        >>> numbers("0,4-7")
        [0, 4, 5, 6, 7]
        """
        text = self.text(value)
        if not _NUMBERS.fullmatch(text):
            raise self.wrong(text, f"expected numbers such as 0,4-7, found {shown(text)}")
        ranges = [_counted(part) for part in text.split(",")]
        if not all(ranges):
            raise self.wrong(text, f"{shown(text)} counts down; a range goes upwards")
        found = [number for numbers in ranges for number in numbers]
        if len(found) > MOST_NUMBERS or len(set(found)) < len(found):
            raise self.wrong(text, f"{shown(text)} names a number twice, or more than {MOST_NUMBERS}")
        return found

    def sockets(self, text: Text) -> list[Socket]:
        """
        >>> sockets("0/14,15 1/6,7")
        [Socket(0, 14), Socket(0, 15), Socket(1, 6), Socket(1, 7)]
        """
        found: list[Socket] = []
        for part in text.split() or [""]:
            location, _, channels = part.partition("/")
            if not (location.isdecimal() and channels):
                raise self.wrong(text, f"expected ports such as 0/8,9, found {shown(text)}")
            (at,) = self.numbers(part_of(text, location))
            found += [Socket(at, channel) for channel in self.numbers(part_of(text, channels))]
        return found

    def ends(self, text: Text) -> tuple[Text, Text]:
        """The two sides of `a <-> b`."""
        sides = [side.strip() for side in text.split("<->")]
        if len(sides) != 2 or not all(sides):
            raise self.wrong(text, f"expected two ends such as a <-> b, found {shown(text)}")
        return part_of(text, sides[0]), part_of(text, sides[1])


def part_of(whole: Value, piece: str) -> Text:
    """A piece of a text, which remembers the line of the whole."""
    return Text.at(whole.line, piece)


def _counted(part: str) -> range:
    first, _, last = part.partition("-")
    return range(int(first), int(last or first) + 1)
