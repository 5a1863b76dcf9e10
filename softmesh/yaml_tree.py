"""What a YAML file holds: text, lists and tables, each of which remembers its line.

Scalars stay text, and what YAML would take one for is there to be asked: its guesses do harm where a
PCI address such as `0000:01:00.0` becomes a number in base 60.
"""

from __future__ import annotations

import reprlib
from collections.abc import Iterator

import yaml
from yaml.constructor import SafeConstructor
from yaml.resolver import Resolver

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
