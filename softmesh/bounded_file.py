"""Files from strangers, read as text: only plain ones, of a sensible size, in UTF-8."""

from __future__ import annotations

import os
from pathlib import Path

from softmesh.errors import MeshError

MOST_BYTES = 8 << 20


class FileError(MeshError):
    """A file that cannot be used: `what` is wrong with it, on which line if that is known, against which rule."""

    def __init__(self, path: str | Path, what: str, line: int | None = None, rule: str = "content") -> None:
        place = f"{path}" if line is None else f"{path}:{line}"
        super().__init__(f"{place}: {what}")
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
