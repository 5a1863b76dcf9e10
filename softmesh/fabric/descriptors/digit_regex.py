"""Regular expressions over digits, in time that no pattern can blow up.

Python's own engine tries one path after another, which a pattern such as `(.|.|.)*x` makes exponential, and
patterns come from files. Here all places that a part may reach are followed at once, as bits of one int.
Python's engine is asked only whether the whole is well formed, and what single characters mean.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import reduce
from operator import or_

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
        return lambda digits, places: (
            (places & sum(1 << i for i, digit in enumerate(digits) if digit in accepted)) << 1
        )

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
