"""Checkpoint folders of a run: `step-00000100`, names of unfinished ones, atomic rename, and removal of old ones.

A checkpoint is written under another name and given its own when it is whole, so a crash leaves the others as they
were. A step that is saved again gets a revision: `step-00000100.1`.
"""

from __future__ import annotations

import errno
import fcntl
import os
import re
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from softmesh.errors import ArgumentValueError, MeshError

INDEX = "index.json"
SECONDS_FOR_OTHERS = 60.0  # to save what they are saving
_UNFINISHED = ".saving-"
_NAME = re.compile(r"step-(\d{8,18})(?:\.(\d{1,9}))?")


class Tag(NamedTuple):
    step: int
    revision: int = 0

    def __str__(self) -> str:
        return f"step-{self.step:08d}" + (f".{self.revision}" if self.revision else "")


def tag_of(path: Path) -> Tag | None:
    """What the name of a checkpoint says; None where it is no such name."""
    found = _NAME.fullmatch(path.name)
    return None if found is None else Tag(int(found[1]), int(found[2] or 0))


def saved(folder: str | os.PathLike[str]) -> list[Path]:
    """The checkpoints of a run, oldest step first."""
    try:
        inside = list(Path(folder).iterdir())
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        if error.errno == errno.ENAMETOOLONG:
            return []
        raise MeshError(f"{folder} cannot be read: {error.strerror or error}.") from error
    found = [(tag, path) for path in inside if (tag := tag_of(path)) and (path / INDEX).is_file()]
    return [path for _, path in sorted(found)]


def latest(folder: str | os.PathLike[str]) -> Path | None:
    """The checkpoint of the last step; None where there is none yet."""
    return next(reversed(saved(folder)), None)


def chosen(path: Path, step: int | None) -> Path:
    """A checkpoint itself, or of a run's folder the one of this step, or the last."""
    if os.path.isfile(path / INDEX):
        return path
    steps = {tag.step: one for one in saved(path) if (tag := tag_of(one))}
    if not steps:
        raise MeshError(f"{path} holds no checkpoint{_why_not(path)}")
    if step is None:
        return steps[max(steps)]
    if step not in steps:
        raise MeshError(f"{path} holds no checkpoint of step {step}: there are {_listed(sorted(steps))}.")
    return steps[step]


def _why_not(path: Path) -> str:
    if not os.path.exists(path):
        return ": there is no such folder. Check the path."
    if tag_of(path):
        return f": its {INDEX} is missing. Take another step of {path.parent}, or restore the file."
    if any(path.glob(f"{_UNFINISHED}*")):
        return ", only one that was never finished: its process ended while saving. Train from the start."
    return ": save one with softmesh.train.checkpoints.save(folder, model, optimizer, step=...)."


def _listed(steps: list[int]) -> str:
    shown = ", ".join(map(str, steps[-8:]))
    return f"steps {shown}" if len(steps) <= 8 else f"{len(steps)} steps, the last ones {shown}"


@contextmanager
def held(folder: Path, seconds: float = SECONDS_FOR_OTHERS) -> Iterator[None]:
    """No other process and no other thread saves into this folder meanwhile: parts of two runs are never mixed."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        handle = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        raise MeshError(f"Checkpoint: {folder} cannot be written to: {error}.") from error
    try:
        _lock(handle, folder, seconds)
        yield
    finally:
        os.close(handle)


def _lock(handle: int, folder: Path, seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while True:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            if time.monotonic() > deadline:
                raise MeshError(
                    f"Checkpoint: another run has been saving into {folder} for {seconds:.0f} s. Give each "
                    "run a folder of its own, or end the other one."
                ) from None
            time.sleep(0.01)
        except OSError:  # a file system without locks
            return


def begin(folder: Path, step: int) -> Path:
    """An empty folder to write into. What an earlier crash left unfinished is removed."""
    try:
        for left in folder.glob(f"{_UNFINISHED}*"):
            shutil.rmtree(left)
        unfinished = unfinished_name(folder, step)
        unfinished.mkdir()
    except OSError as error:
        raise MeshError(f"Checkpoint: {folder} cannot be written to: {error}.") from error
    return unfinished


def unfinished_name(folder: Path, step: int) -> Path:
    return folder / f"{_UNFINISHED}{Tag(step)}"


def finish(unfinished: Path, step: int, keep: int | None) -> Path:
    """Give the checkpoint its name, then let older ones go."""
    try:
        return _finished(unfinished, step, keep)
    except OSError as error:
        raise MeshError(
            f"Checkpoint: {unfinished} could not be finished ({error}). Checkpoints that were there are untouched."
        ) from error


def _finished(unfinished: Path, step: int, keep: int | None) -> Path:
    folder = unfinished.parent
    flush(unfinished)
    same = [path for path in folder.iterdir() if (tag := tag_of(path)) and tag.step == step]
    revision = 1 + max((tag.revision for path in same if (tag := tag_of(path))), default=-1)
    finished = folder / str(Tag(step, revision))
    os.rename(unfinished, finished)
    flush(folder)
    for path in [*same, *_superfluous(folder, step, keep)]:
        _remove(path)
    return finished


def _remove(path: Path) -> None:
    """Out of sight first: half a checkpoint is never seen."""
    hidden = path.with_name(f"{_UNFINISHED}no-more-{path.name}")
    with suppress(OSError):  # what cannot go does not end a run
        os.rename(path, hidden)
        shutil.rmtree(hidden)


def _superfluous(folder: Path, step: int, keep: int | None) -> list[Path]:
    """Of the steps before this one all but the last `keep - 1`."""
    before = [path for path in saved(folder) if (tag := tag_of(path)) and tag.step < step]
    return [] if keep is None else before[: max(len(before) - (keep - 1), 0)]


def check_keep(keep: int | None) -> None:
    if keep is not None and (isinstance(keep, bool) or not isinstance(keep, int) or keep < 1):
        raise ArgumentValueError(f"keep must be at least 1, or None to keep all checkpoints, got {keep!r}.")


def flush(path: Path) -> None:
    """What was written to a file or folder survives a loss of power from here on."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
