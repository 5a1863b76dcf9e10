"""Line numbers of the fields of a protobuf text, and findings at them.

The protobuf library parses the text but keeps no line numbers. This walk uses the library's tokens and follows
brackets, no more: on a text that the library refuses its answer means nothing, and it never fails.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from google.protobuf.text_format import ParseError, Tokenizer

from softmesh.input_files.text_files import Finding, Severity

DEEPEST = 64  # nested brackets


class TooDeep(Exception):
    def __init__(self, line: int) -> None:
        self.line = line


@dataclass
class Place:
    """One value of the text: the line it begins on, and the places of its fields.

    >>> places("channels {\\n count: 2\\n}").of("channels").of("count").line
    2
    """

    line: int
    fields: dict[str, list[Place]] = field(default_factory=dict)

    def of(self, name: str, index: int = 0) -> Place:
        """Where a field stands; where it would belong, if it is not there."""
        found = self.fields.get(name, [])
        return found[index] if index < len(found) else self

    def add(self, name: str, line: int) -> Place:
        place = Place(line)
        self.fields.setdefault(name, []).append(place)
        return place


@dataclass
class _Level:
    """A message we are in, the field whose value is due with its line, and whether a list of them is open."""

    place: Place
    name: str = ""
    line: int = 0
    in_list: bool = False


class _Walk:
    def __init__(self) -> None:
        self.levels = [_Level(Place(1))]
        self.depth = 0

    def step(self, token: str, line: int) -> None:
        level = self.levels[-1]
        if token in ("{", "<", "["):
            self._open(token, line)
        elif token in ("}", ">", "]"):
            self._close(token)
        elif level.name and token not in (":", ",", ";"):
            self._value(line)
        elif token[0].isalpha() or token[0] == "_":
            level.name, level.line = token, line

    def _open(self, token: str, line: int) -> None:
        self.depth += 1
        if self.depth > DEEPEST:
            raise TooDeep(line)
        if token == "[":
            self.levels[-1].in_list = True
        else:
            self.levels.append(_Level(self._value(line)))

    def _close(self, token: str) -> None:
        self.depth = max(0, self.depth - 1)
        if token == "]":
            self.levels[-1] = _Level(self.levels[-1].place)
        elif len(self.levels) > 1:
            self.levels.pop()

    def _value(self, line: int) -> Place:
        level = self.levels[-1]
        if level.in_list:
            return level.place.add(level.name, line)
        name, level.name = level.name, ""
        return level.place.add(name, level.line)


def places(text: str) -> Place:
    """The places of all fields. Raises TooDeep, which also keeps the parser from running out of stack."""
    walk = _Walk()
    try:
        tokens: Any = Tokenizer(text.split("\n"))
        while not tokens.AtEnd():
            walk.step(tokens.token, tokens.ParseError("").GetLine() or 1)
            tokens.NextToken()
    except ParseError:
        pass  # an unfinished string, say: the parser will tell
    return walk.levels[0].place


# Findings of the checks: a rule under `mgd/`, at a place of the text.


def error(rule: str, message: str, fix: str, place: Place) -> Finding:
    return Finding(f"mgd/{rule}", Severity.ERROR, message, fix, line=place.line)


def warning(rule: str, message: str, fix: str, place: Place) -> Finding:
    return Finding(f"mgd/{rule}", Severity.WARNING, message, fix, line=place.line)


def note(rule: str, message: str, fix: str, place: Place) -> Finding:
    return Finding(f"mgd/{rule}", Severity.NOTE, message, fix, line=place.line)
