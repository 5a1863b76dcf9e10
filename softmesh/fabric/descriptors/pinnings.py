"""Pinnings: which chips must land on which positions, checked and with their patterns expanded.

A pattern is a list such as `0,2,4-6`, or a regular expression that matches whole decimal numbers.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache, reduce
from operator import or_
from typing import Any

from softmesh.fabric.descriptors.source_positions import Place, error, warning
from softmesh.fabric.mesh_graph import LogicalMesh, Node, Pinning
from softmesh.input_files.text_files import Finding

# Regular expressions over digits, in time that no pattern can blow up.
#
# Python's own engine tries one path after another, which a pattern such as `(.|.|.)*x` makes exponential, and patterns
# come from files. Here all places that a part may reach are followed at once, as bits of one int. Python's engine is
# asked only whether the whole is well formed, and what single characters mean.


_Part = Callable[[str, int], int]  # (digits, places where it may begin) -> places where it may end
_ATOM = re.compile(r"\[\^?\]?(?:\\.|[^\]\\])*\]|\\[dDwWsS]|\\[^\w]|[^\\()|*+?{]", re.ASCII | re.DOTALL)
_QUANTIFIER = re.compile(r"(?:(?P<sign>[*+?])|\{(?P<least>\d*)(?P<comma>,)?(?P<most>\d*)\})\??")
_MANY = 16  # more than a number has digits: to repeat more often reaches nothing new
_DEEPEST = 4


class RegexError(ValueError):
    pass


def digit_matcher(pattern: str) -> Callable[[str], bool]:
    """Whether a string of digits matches as a whole.

    >>> [n for n in range(13) if digit_matcher("1?[02]")(str(n))]
    [0, 2, 10, 12]
    """
    try:
        re.compile(pattern, re.ASCII)
    except (re.error, OverflowError, RecursionError) as cause:
        raise RegexError(str(cause)) from cause
    whole = _Reader(pattern).read()
    return lambda digits: bool(whole(digits, 1) >> len(digits) & 1)


class _Reader:
    def __init__(self, pattern: str) -> None:
        self.rest = pattern
        self.depth = 0

    def read(self) -> _Part:
        part = self._choice()
        if self.rest:
            raise RegexError(f"cannot read {self.rest!r}")
        return part

    def _take(self, text: str) -> bool:
        found = self.rest.startswith(text)
        if found:
            self.rest = self.rest[len(text) :]
        return found

    def _choice(self) -> _Part:
        branches = [self._sequence()]
        while self._take("|"):
            branches.append(self._sequence())
        return lambda digits, places: reduce(or_, (branch(digits, places) for branch in branches))

    def _sequence(self) -> _Part:
        parts = []
        while self.rest and self.rest[0] not in "|)":
            parts.append(self._repeated(self._single()))
        return lambda digits, places: reduce(lambda reached, part: part(digits, reached), parts, places)

    def _single(self) -> _Part:
        if self._take("(?:") or (not self.rest.startswith("(?") and self._take("(")):
            return self._group()
        if self._take("^"):
            return lambda digits, places: places & 1
        if self._take("$"):
            return lambda digits, places: places & 1 << len(digits)
        return self._character()

    def _group(self) -> _Part:
        self.depth += 1
        if self.depth > _DEEPEST:
            raise RegexError(f"groups are nested more than {_DEEPEST} deep")
        inside = self._choice()
        self._take(")")
        self.depth -= 1
        return inside

    def _character(self) -> _Part:
        atom = _ATOM.match(self.rest)
        if atom is None:
            raise RegexError(f"{self.rest[:8]!r} is not among what patterns of numbers may use")
        self.rest = self.rest[atom.end() :]
        wanted = re.compile(atom[0], re.ASCII)
        accepted = {digit for digit in "0123456789" if wanted.fullmatch(digit)}
        return lambda digits, places: (places & sum(1 << i for i, digit in enumerate(digits) if digit in accepted)) << 1

    def _repeated(self, part: _Part) -> _Part:
        quantifier = _QUANTIFIER.match(self.rest)
        if quantifier is None:
            return part
        self.rest = self.rest[quantifier.end() :]
        if self.rest.startswith("+"):
            raise RegexError("possessive quantifiers are not among what patterns of numbers may use")
        return _repeat(part, *_limits(quantifier))


def _limits(quantifier: re.Match[str]) -> tuple[int, int]:
    if quantifier["sign"]:
        return {"*": (0, _MANY), "+": (1, _MANY), "?": (0, 1)}[quantifier["sign"]]
    least = int(quantifier["least"] or 0)
    most = int(quantifier["most"] or _MANY) if quantifier["comma"] else least
    return min(least, _MANY), min(most, _MANY)


def _repeat(part: _Part, least: int, most: int) -> _Part:
    """Stops where nothing new is reached: repetitions within repetitions do not multiply."""

    def reach(digits: str, places: int) -> int:
        for _ in range(least):
            before, places = places, part(digits, places)
            if places == before:
                break
        reached = places
        for _ in range(most - least):
            places = part(digits, places) & ~reached
            if not places:
                break
            reached |= places
        return reached

    return reach


# A pattern as a pinning writes it: a list of numbers and ranges, or a regular expression.


LONGEST = 64
_NUMBERS = re.compile(r"[0-9,\- \t]*")


class PatternError(ValueError):
    """The text goes on after the name of the field: ` has malformed token '4x'`."""


class Pattern:
    """Which numbers a pattern stands for.

    >>> Pattern("0,4-6").among(range(8)), Pattern("[13]").among(range(4))
    ([0, 4, 5, 6], [1, 3])
    """

    def __init__(self, text: str) -> None:
        self._matches = _matcher(text)

    def among(self, domain: Iterable[int]) -> list[int]:
        return [number for number in domain if self._matches(number)]


@lru_cache(maxsize=256)
def _matcher(text: str) -> Callable[[int], bool]:
    if not text.strip():
        raise PatternError(" is empty")
    if len(text) > LONGEST:
        raise PatternError(f" is longer than {LONGEST} characters")
    if _NUMBERS.fullmatch(text):
        ranges = [_range(token.strip(), text) for token in text.split(",")]
        return lambda number: any(number in numbers for numbers in ranges)
    try:
        matches = digit_matcher(text)
    except RegexError as cause:
        raise PatternError(f" has invalid regex '{text}': {cause}") from cause
    return lambda number: matches(str(number))


def _range(token: str, pattern: str) -> range:
    if not token or " " in token or "\t" in token:
        raise PatternError(f" has malformed token '{token}'")
    if "-" not in token:
        return range(int(token), int(token) + 1)
    ends = token.split("-")
    if len(ends) != 2 or not all(ends):
        raise PatternError(f" has malformed range token '{token}'")
    first, last = map(int, ends)
    if first > last:
        raise PatternError(f" has inverted range '{pattern}' in token '{token}'")
    return range(first, last + 1)


_FIELDS = {
    "logical_fabric_node_id": ("mesh_id", "chip_id"),
    "physical_asic_position": ("tray_id", "asic_location"),
}
_POSITIONS = range(256)  # what tray and location patterns range over
MOST_SELECTED = 65_536  # numbers tried, in one file


def pinning_errors(pinning: Any, place: Place) -> Iterator[Finding]:
    for name, fields in _FIELDS.items():
        entries = getattr(pinning, name)
        if not entries:
            yield error("pinning-empty", f"Pinning entry has no {name}", f"add {name} {{ {fields[0]}: 0 }}", place)
        if len({_is_regex(entry, fields) for entry in entries}) > 1:
            yield error(
                "pinning-mixed",
                f"Pinning entry mixes regex and non-regex {name} fields; use separate entries",
                f"write two pinnings: one whose {name} use patterns, one whose do not",
                place.of(name),
            )
        for i, entry in enumerate(entries):
            for field in fields:
                yield from _field_errors(entry, name, field, place.of(name, i))


def _field_errors(entry: Any, name: str, field: str, place: Place) -> Iterator[Finding]:
    regex = f"{field}_regex"
    if not entry.HasField(regex):
        return
    if entry.HasField(field):
        text = f"{name} sets both {regex} and {field}; use one or the other"
        yield error("pinning-both", text, f"remove {field} or {regex}", place.of(regex))
    try:
        Pattern(getattr(entry, regex))
    except PatternError as wrong:
        fix = 'write numbers and ranges ("0,2,4-6") or a regular expression ("[0-3]")'
        yield error("pinning-pattern", f"{name}.{regex}{wrong}", fix, place.of(regex))


def _is_regex(entry: Any, fields: tuple[str, str]) -> bool:
    return any(entry.HasField(f"{field}_regex") for field in fields)


class PinningError(Exception):
    def __init__(self, place: Place) -> None:
        text = f"The pinnings select more than {MOST_SELECTED} chips and positions"
        self.finding = error("pinning-too-many", text, "pin fewer chips, or write narrower patterns", place)
        super().__init__(text)


class Expansion:
    """The pinnings of a file over its meshes, with all patterns expanded.

    `pinnings` has one for each mesh that an entry speaks of; those of one entry share its positions.
    `findings` warns of entries that select no chip: the runtime passes over them.
    """

    def __init__(self, entries: Any, places: Place, meshes: tuple[LogicalMesh, ...]) -> None:
        self.meshes = meshes
        self.budget = MOST_SELECTED
        self.findings: list[Finding] = []
        self.pinnings = tuple(
            pinning for i, entry in enumerate(entries) for pinning in self._groups(entry, places.of("pinnings", i))
        )

    def _groups(self, entry: Any, place: Place) -> Iterator[Pinning]:
        positions = {
            (tray, location): None
            for position in entry.physical_asic_position
            for tray in self._numbers(position, "tray_id", _POSITIONS, place)
            for location in self._numbers(position, "asic_location", _POSITIONS, place)
        }
        groups: dict[int, dict[Node, None]] = {}
        for i, id in enumerate(entry.logical_fabric_node_id):
            nodes = list(self._nodes(id, place))
            if not nodes:
                self.findings.append(self._selects_nothing(id, place.of("logical_fabric_node_id", i)))
            for node in nodes:
                groups.setdefault(node.mesh, {})[node] = None
        for group in groups.values():
            yield Pinning(tuple(group), tuple(positions), place.line)

    def _nodes(self, id: Any, place: Place) -> Iterator[Node]:
        for mesh in self._numbers(id, "mesh_id", range(len(self.meshes)), place):
            if mesh < len(self.meshes):
                domain = range(self.meshes[mesh].size)
                for chip in self._numbers(id, "chip_id", domain, place):
                    if chip in domain:
                        yield Node(mesh, chip)

    def _numbers(self, entry: Any, field: str, domain: range, place: Place) -> list[int]:
        """What one field selects: a pattern over the domain, or a number; one left out counts as 0."""
        is_pattern = entry.HasField(f"{field}_regex")
        self.budget -= len(domain) if is_pattern else 1
        if self.budget < 0:
            raise PinningError(place)
        return Pattern(getattr(entry, f"{field}_regex")).among(domain) if is_pattern else [getattr(entry, field)]

    def _selects_nothing(self, id: Any, place: Place) -> Finding:
        what = ", ".join(f"{field.name} {value!r}" for field, value in id.ListFields())
        return warning(
            "pinning-selects-nothing",
            f"This pinning selects no chip: {what}",
            f"the meshes are 0..{len(self.meshes) - 1}, the chips of each count from 0; the runtime passes over it",
            place,
        )
