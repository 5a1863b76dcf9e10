"""The patterns of pinnings: `0,2,4-6`, or a regular expression that matches whole decimal numbers."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from functools import lru_cache

from softmesh.fabric.descriptors.digit_regex import RegexError, digit_matcher

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
