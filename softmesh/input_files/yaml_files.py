"""A YAML reader for untrusted files: one document, bounded in size and depth, each value with its line number.

The parser's events are put together without recursion: the C parser's own builder overflows its stack, and with it
the interpreter, on a few thousand opening brackets.
"""

from __future__ import annotations

import reprlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import yaml
from yaml.constructor import SafeConstructor
from yaml.resolver import Resolver

from softmesh.input_files.text_files import MOST_BYTES, FileError, read_text
from softmesh.terminal_text import CONTROL_CHARACTER, printable

# The values of a document: text, lists and mappings, each of which knows its line.
#
# Scalars stay text, and what YAML would take one for is there to be asked: its guesses do harm where a PCI address
# such as `0000:01:00.0` becomes a number in base 60.


TEXT_TAG = "tag:yaml.org,2002:str"
_READERS = {
    f"tag:yaml.org,2002:{kind}": getattr(SafeConstructor, f"construct_yaml_{kind}")
    for kind in ("str", "int", "float", "bool", "null", "timestamp")
}
_CONSTRUCTOR, _RESOLVER = SafeConstructor(), Resolver()
_LONGEST_NUMBER = 100  # characters; numbers in base 60 take quadratic time
_NULLS = ("", "~", "null")


class Text(str):
    line = 0
    tag: str | None = None  # None: its looks decide what it is; quoted text has TEXT_TAG

    @classmethod
    def at(cls, line: int, text: str, tag: str | None = None) -> Text:
        made = cls(text)
        made.line = line
        if tag is not None:
            made.tag = tag
        return made

    @property
    def meaning(self) -> object:
        """What YAML takes it for; a ValueError says why it is nothing that is taken here.

        >>> Text("0x10").meaning, Text("yes").meaning, Text("~").meaning, Text.at(1, "7", TEXT_TAG).meaning
        (16, True, None, '7')
        """
        tag = self.tag or _RESOLVER.resolve(yaml.ScalarNode, self, (True, False))
        if tag not in _READERS:
            raise ValueError(f"the tag {tag[:60]} is not taken here: only plain values are")
        if tag == TEXT_TAG:
            return str(self)
        if len(self) > _LONGEST_NUMBER:
            raise ValueError(f"{self[:40]!r}... is too long for a number or a date")
        try:
            return _READERS[tag](_CONSTRUCTOR, yaml.ScalarNode(tag, self))
        except (ValueError, KeyError, IndexError, AttributeError, OverflowError):
            raise ValueError(f"{self[:40]!r} is not what its tag says") from None


class Rows(list["Value"]):
    line = 0


class Table(dict[str, "Value"]):
    line = 0

    def entries(self) -> Iterator[tuple[Text, Value]]:
        """As `items`; keys are put in as Text and know their lines too."""
        return iter(self.items())  # type: ignore[arg-type]


Value = Text | Rows | Table


def is_nothing(value: Value | None) -> bool:
    """Not there, or there as null."""
    return value is None or (isinstance(value, Text) and value.tag is None and value.lower() in _NULLS)


def shown(value: object) -> str:
    """A value short enough for a message, however large it is."""
    if isinstance(value, Text):
        return reprlib.repr(str(value))
    if isinstance(value, Table):
        return f"a table of {len(value)} keys"
    if isinstance(value, Rows):
        return f"a list of {len(value)}"
    return "nothing"


_MERGE_KEY = Text("<<")
_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


@dataclass(frozen=True)
class Dialect:
    """What a kind of file may hold.

    With `full_yaml` aliases and merge keys are followed and count as if written out, of a key written
    twice the last counts, and scalars must have a meaning. Without, a file is text, lists and tables.
    """

    kind: str
    most_bytes: int
    most_levels: int
    most_values: int
    full_yaml: bool = False


# 4096 chips with a link at each of their 16 channels stay below.
STRICT = Dialect("descriptor", MOST_BYTES, most_levels=16, most_values=500_000)


class Document(NamedTuple):
    root: Value | None  # None: the file is empty
    repeated: list[Text]  # keys written twice


def read_table(path: str | Path) -> Table:
    """The mapping that a strict file holds.

    >>> read_table(Path("t3k.yaml"))["arch"]
    {'0': 'wormhole_b0', '1': 'wormhole_b0', ...}
    """
    root = read_document(path, STRICT).root
    if not isinstance(root, Table):
        raise FileError(path, f"expected keys with values, found {shown(root)}")
    return root


def read_document(path: str | Path, dialect: Dialect) -> Document:
    """A FileError's rule is one of unreadable, too-large and syntax."""
    text = read_text(path, dialect.most_bytes, dialect.kind)
    builder = _Builder(path, dialect)
    try:
        for event in yaml.parse(text, Loader=_LOADER):
            builder.take(event)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        problem = getattr(error, "problem", None) or str(error).splitlines()[0]
        line = mark.line + 1 if mark is not None else None
        raise FileError(path, f"not valid YAML: {problem}", line, "syntax") from None
    return Document(builder.root, builder.repeated)


class _Anchored(NamedTuple):
    value: Value
    size: int  # how many values it is, with all below it
    height: int  # how many levels


@dataclass
class _Open:
    """A list or table whose end is not there yet."""

    value: Rows | Table
    anchor: str | None
    count_before: int
    height: int = 1
    key: Text | None = None  # waits for its value
    merged: list[Value] = field(default_factory=list)


class _Builder:
    def __init__(self, path: str | Path, dialect: Dialect) -> None:
        self.path, self.dialect = path, dialect
        self.open: list[_Open] = []
        self.root: Value | None = None
        self.repeated: list[Text] = []
        self.count = 0
        self.anchors: dict[str, _Anchored | None] = {}  # None: still open

    def take(self, event: yaml.Event) -> None:
        line = event.start_mark.line + 1 if event.start_mark else 1
        if isinstance(event, yaml.ScalarEvent):
            guessed = event.implicit[0]
            tag = event.tag if event.tag not in (None, "!") else None if guessed else TEXT_TAG
            self.scalar(Text.at(line, event.value, tag), event.anchor)
        elif isinstance(event, yaml.SequenceStartEvent):
            self.enter(Rows(), line, event.anchor)
        elif isinstance(event, yaml.MappingStartEvent):
            self.enter(Table(), line, event.anchor)
        elif isinstance(event, yaml.CollectionEndEvent):
            self.leave()
        elif isinstance(event, yaml.AliasEvent):
            self.alias(str(event.anchor), line)
        elif isinstance(event, yaml.DocumentStartEvent) and self.root is not None:
            raise self.refusal(line, "a second document begins; one file holds one")

    def scalar(self, text: Text, anchor: str | None) -> None:
        if control := CONTROL_CHARACTER.search(text):
            raise self.refusal(text.line, f"{shown(text)} has a control character ({printable(control[0])}) in it")
        if self.dialect.full_yaml and not self.is_merge_key(text):
            try:
                _ = text.meaning
            except ValueError as error:
                raise self.refusal(text.line, str(error)) from None
        self.remember(anchor, _Anchored(text, 1, 0), text.line)
        self.add(text, text.line)

    def is_merge_key(self, text: Text) -> bool:
        above = self.open[-1] if self.open else None
        awaited = above is not None and isinstance(above.value, Table) and above.key is None
        return awaited and self.dialect.full_yaml and text == "<<" and text.tag is None

    def enter(self, value: Rows | Table, line: int, anchor: str | None) -> None:
        value.line = line
        self.check_depth(1, line)
        self.remember(anchor, None, line)
        self.add(value, line)
        self.open.append(_Open(value, anchor, self.count - 1))

    def leave(self) -> None:
        closed = self.open.pop()
        if isinstance(closed.value, Table):
            self.merge(closed.value, closed.merged)
        whole = _Anchored(closed.value, self.count - closed.count_before, closed.height)
        if closed.anchor is not None:
            self.anchors[closed.anchor] = whole
        self.raise_height(whole.height)

    def merge(self, table: Table, merged: list[Value]) -> None:
        """What `<<: *base`, or a list of such, brings in: the table's own keys win, then the first source's."""
        for source in _sources(merged):
            if not isinstance(source, Table):
                raise self.refusal(source.line, "a merge key (<<) takes a map, or a list of maps")
            for key, value in source.entries():
                table.setdefault(Text.at(table.line, key, key.tag), value)

    def alias(self, name: str, line: int) -> None:
        if not self.dialect.full_yaml:
            raise self.refusal(line, f"the alias *{name[:60]} is not taken here; write the value out")
        if name not in self.anchors:
            raise self.refusal(line, f"the alias *{name[:60]} stands for nothing above it")
        target = self.anchors[name]
        if target is None:
            raise self.refusal(line, f"the alias *{name[:60]} refers to what it stands in", "too-large")
        self.check_depth(target.height, line)
        self.raise_height(target.height)
        self.add(target.value, line, target.size)

    def remember(self, anchor: str | None, value: _Anchored | None, line: int) -> None:
        if anchor is None or not self.dialect.full_yaml:
            return
        if anchor in self.anchors:
            raise self.refusal(line, f"the anchor &{anchor[:60]} is there twice")
        self.anchors[anchor] = value

    def check_depth(self, more: int, line: int) -> None:
        if len(self.open) + more > self.dialect.most_levels:
            raise self.refusal(line, f"nested deeper than {self.dialect.most_levels} levels", "too-large")

    def raise_height(self, below: int) -> None:
        if self.open:
            self.open[-1].height = max(self.open[-1].height, below + 1)

    def add(self, value: Value, line: int, size: int = 1) -> None:
        self.count += size
        if self.count > self.dialect.most_values:
            what = f"more than {self.dialect.most_values} values, which no {self.dialect.kind} has"
            raise self.refusal(line, what, "too-large")
        if not self.open:
            self.root = value
            return
        parent = self.open[-1]
        if isinstance(parent.value, Rows):
            parent.value.append(value)
        elif parent.key is None:
            parent.key = self.new_key(parent.value, value, line)
        else:
            key, parent.key = parent.key, None
            if key is _MERGE_KEY:
                parent.merged.append(value)
            else:
                parent.value[key] = value

    def new_key(self, table: Table, key: Value, line: int) -> Text:
        if not isinstance(key, Text):
            raise self.refusal(line, "a key must be plain text, not a list or a table")
        if self.is_merge_key(key):
            return _MERGE_KEY
        if key in table:
            self.repeat(table, key, line)
        return key if key.line == line else Text.at(line, key, key.tag)

    def repeat(self, table: Table, key: Text, line: int) -> None:
        if not self.dialect.full_yaml:
            raise self.refusal(line, f"the key {shown(key)} is there twice")
        self.repeated.append(Text.at(line, key))
        del table[key]  # or its first spelling would stay, with the line of that

    def refusal(self, line: int, what: str, rule: str = "syntax") -> FileError:
        return FileError(self.path, what, line, rule)


def _sources(merged: list[Value]) -> Iterator[Value]:
    for value in merged:
        yield from value if isinstance(value, Rows) else [value]


# Typed access to the values of one file; an error names file and line.


class YamlFields:
    def __init__(self, path: Path) -> None:
        self.path = path

    def wrong(self, value: Value, what: str) -> FileError:
        return FileError(self.path, what, value.line)

    def table(self, value: Value, expected: str = "expected keys with values") -> Table:
        if not isinstance(value, Table):
            raise self.wrong(value, f"{expected}, found {shown(value)}")
        return value

    def rows(self, value: Value, expected: str = "expected a list") -> Rows:
        if not isinstance(value, Rows):
            raise self.wrong(value, f"{expected}, found {shown(value)}")
        return value

    def text(self, value: Value, expected: str = "expected a word") -> Text:
        if not isinstance(value, Text):
            raise self.wrong(value, f"{expected}, found {shown(value)}")
        return value

    def number(self, value: Value, what: str, limit: int) -> int:
        """Decimal or 0x, from 0 to `limit` inclusive."""
        number = _number(value)
        if number is None:
            raise self.wrong(value, f"{what}: expected a whole number, found {shown(value)}")
        if not 0 <= number <= limit:
            raise self.wrong(value, f"{what}: {number} is outside 0..{limit}")
        return number


def _number(value: Value) -> int | None:
    if not isinstance(value, Text) or len(value) > 32:
        return None
    try:
        return int(value, 16 if value[:2].lower() == "0x" else 10)
    except ValueError:
        return None
