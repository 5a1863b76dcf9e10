"""Bounded reading of text files, and the errors and findings about them.

Only plain files of a sensible size in UTF-8 are read. A `FileError` says that a file cannot be used; a `Finding` is
one result of a check: the rule, the place, what is wrong and how to mend it.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from softmesh.arguments import described, refused
from softmesh.errors import MeshError
from softmesh.terminal_text import printable, readable

MOST_BYTES = 8 << 20


def checked_path(where: str, name: str, path: object) -> str:
    """`path` as text; an error that names the argument where it can be none."""
    found = os.fspath(path) if isinstance(path, str | os.PathLike) else path
    if not isinstance(found, str) or "\0" in found or not _can_be_encoded(found):
        raise refused(where, f"{name} must be a path, got {described(path)}")
    return found


def _can_be_encoded(path: str) -> bool:
    try:
        os.fsencode(path)
    except UnicodeEncodeError:
        return False
    return True


class FileError(MeshError):
    """A file that cannot be used: `what` is wrong with it, on which line if that is known, against which rule."""

    def __init__(self, path: str | Path, what: str, line: int | None = None, rule: str = "content") -> None:
        place = f"{path}" if line is None else f"{path}:{line}"
        super().__init__(f"{printable(place)}: {readable(what)}")
        self.path, self.what, self.line, self.rule = os.fspath(path), what, line, rule


def read_text(path: str | Path, most_bytes: int = MOST_BYTES, kind: str = "descriptor") -> str:
    """The text of a file; a FileError under the rule `unreadable` or `too-large` otherwise."""
    data = _bytes(path, most_bytes + 1)
    if len(data) > most_bytes:
        what = f"larger than {most_bytes >> 20} MiB, which no {kind} is; is it the right file?"
        raise FileError(path, what, rule="too-large")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        what = f"not UTF-8 text ({error.reason} at byte {error.start})"
        raise FileError(path, what, data.count(b"\n", 0, error.start) + 1, "unreadable") from None


def _bytes(path: str | Path, most: int) -> bytes:
    try:
        # Reading a pipe or a device may never end.
        if not os.path.isfile(path):
            what = "is not a plain file" if os.path.exists(path) else "no such file"
            raise FileError(path, what, rule="unreadable")
        with open(path, "rb") as file:
            return file.read(most)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise FileError(path, f"cannot be read: {reason}", rule="unreadable") from None


# Findings: what a check of a file reports.


class Severity(Enum):
    ERROR = "error"
    WARNING = "warning"
    NOTE = "note"


@dataclass(frozen=True)
class Finding:
    """`rule` is a stable name such as `mgd/duplicate-name`; `line` counts from 1, None is the whole file."""

    rule: str
    severity: Severity
    message: str
    fix: str = ""
    file: str = ""
    line: int | None = None

    @property
    def place(self) -> str:
        return self.file if self.line is None else f"{self.file}:{self.line}"

    def __str__(self) -> str:
        head = f"{printable(self.place)}: " if self.place else ""
        fix = f"\n    fix: {readable(self.fix)}" if self.fix else ""
        return f"{head}{self.severity.value}: {readable(self.message)} [{self.rule}]{fix}"

    def as_json(self) -> dict[str, object]:
        return {**vars(self), "severity": self.severity.value}


def errors_of(findings: Iterable[Finding]) -> list[Finding]:
    return [finding for finding in findings if finding.severity is Severity.ERROR]
