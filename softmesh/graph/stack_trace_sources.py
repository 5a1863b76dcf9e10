"""Stack traces of a report, and the source files they speak of.

A trace has frames as Python prints them, the innermost first; `path:line` is understood too.
"""

from __future__ import annotations

import linecache
import re
import sqlite3
import sys
from pathlib import Path
from types import FrameType

from softmesh.callsite import CallSite, is_ours

_LARGEST_SOURCE = 2 << 20
_MOST_FRAMES = 30
_FRAME = re.compile(r'File "(?P<file>[^"\n]+)", line (?P<line>\d+)')
_SHORT = re.compile(r"^\s*(?P<file>[^\s:][^:\n]*):(?P<line>\d+)\s*$", re.MULTILINE)


def frame_text(site: CallSite) -> str:
    """One frame of a trace, with its line of source where that can be read."""
    source = linecache.getline(site.file, site.line).strip()
    return f'  File "{site.file}", line {site.line}, in {site.function}\n' + (f"    {source}\n" if source else "")


def user_frames() -> list[str]:
    """The frames of the user's program that led here."""
    frame: FrameType | None = sys._getframe(1)
    found: list[str] = []
    while frame is not None and len(found) < _MOST_FRAMES:
        code = frame.f_code
        if not is_ours(code.co_filename):
            found.append(frame_text(CallSite(code.co_filename, frame.f_lineno, code.co_name)))
        frame = frame.f_back
    return found


def innermost_frame(stack_trace_text: str | None) -> tuple[str | None, int | None]:
    """File and line of the first frame."""
    for pattern in (_FRAME, _SHORT):
        found = pattern.search(stack_trace_text or "")
        if found is not None:
            return found["file"], int(found["line"])
    return None, None


def normalize_source_path_from_stack_trace(stack_trace_text: str | None) -> str | None:
    """The file of the first frame, as a whole path; None where it is no file that is there."""
    file, _ = innermost_frame(stack_trace_text)
    if file is None:
        return None
    try:
        path = Path(file).resolve()
        return str(path) if path.is_file() else None
    except (OSError, RuntimeError, ValueError):
        return None


def read_source_file(normalized_path: str) -> str | None:
    """None of what cannot be read, or is too large to be somebody's source."""
    path = Path(normalized_path)
    try:
        return path.read_text(encoding="utf-8") if path.stat().st_size <= _LARGEST_SOURCE else None
    except (OSError, ValueError):
        return None


def get_source_file_id(cursor: sqlite3.Cursor, path: str, contents: str) -> int:
    """The number of the file in the database, into which it goes where it is not there."""
    cursor.execute("INSERT OR IGNORE INTO source_files (path, contents) VALUES (?, ?)", (path, contents))
    cursor.execute("SELECT id FROM source_files WHERE path = ?", (path,))
    return int(cursor.fetchone()[0])


def insert_stack_traces(cursor: sqlite3.Cursor, traces: list[tuple[int, str]], rank: int) -> None:
    """The trace of each operation, joined to the source of its first frame where that can be read."""
    known: dict[str, int | None] = {}
    for operation, text in traces:
        path = normalize_source_path_from_stack_trace(text)
        if path is not None and path not in known:
            contents = read_source_file(path)
            known[path] = None if contents is None else get_source_file_id(cursor, path, contents)
        row = (operation, text, None if path is None else known[path], rank)
        cursor.execute("INSERT INTO stack_traces VALUES (?, ?, ?, ?)", row)
