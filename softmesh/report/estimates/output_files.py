"""Writes the files of reports atomically, with an error that says which one could not be written and why."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from softmesh.errors import MeshError

PathLike = str | os.PathLike[str]


@contextmanager
def writing(option: str, path: PathLike) -> Iterator[BinaryIO]:
    """A file that is put in place when the block ends well: who reads it meanwhile sees the old one, and a full disk
    leaves that as it was. A pipe or a device, such as /dev/null, stays what it is and is written to."""
    file = _path(option, path)
    if os.path.isdir(file):
        raise MeshError(f"{option}: {file} is a folder; name a file.")
    try:
        if os.path.exists(file) and not file.is_file():
            with file.open("wb") as sink:
                yield sink
            return
        file.parent.mkdir(parents=True, exist_ok=True)
        handle, unfinished = tempfile.mkstemp(prefix=".softmesh-", dir=file.parent)
        try:
            with os.fdopen(handle, "wb") as sink:
                yield sink
            os.chmod(unfinished, 0o666 & ~_umask())
            os.replace(unfinished, file)
        except BaseException:
            with suppress(OSError):
                os.unlink(unfinished)
            raise
    except (OSError, ValueError) as error:
        raise MeshError(f"{option}: cannot write {file}: {_reason(error)}. Name a path that you may write.") from None


def write_file(option: str, path: PathLike, content: str) -> Path:
    with writing(option, path) as sink:
        sink.write(content.encode("utf-8"))
    return Path(path)


def output_folder(option: str, path: PathLike) -> Path:
    """The folder, made where there is none."""
    folder = _path(option, path)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except FileExistsError:
        raise MeshError(f"{option}: {folder} is a file; name a folder.") from None
    except (OSError, ValueError) as error:
        raise MeshError(f"{option}: cannot make {folder}: {_reason(error)}. Name a path that you may write.") from None
    if not os.access(folder, os.W_OK | os.X_OK):
        raise MeshError(f"{option}: cannot write into {folder}: permission denied. Name a path that you may write.")
    return folder


def _path(option: str, path: PathLike) -> Path:
    if not isinstance(path, str | os.PathLike) or not os.fspath(path):
        raise MeshError(f"{option}: name a path, not {path!r}.")
    if "\0" in os.fspath(path):
        raise MeshError(f"{option}: a path cannot hold the character NUL: {os.fspath(path)!r}.")
    return Path(path)


def _reason(error: Exception) -> str:
    return getattr(error, "strerror", None) or str(error)


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
