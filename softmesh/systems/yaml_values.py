"""Values of one YAML file, each checked for its kind; what is wrong is said with file and line."""

from __future__ import annotations

from pathlib import Path

from softmesh.bounded_file import FileError
from softmesh.yaml_tree import Rows, Table, Text, Value, shown


class Values:
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
