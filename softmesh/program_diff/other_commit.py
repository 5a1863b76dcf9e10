"""A program as another commit has it: the whole tree of that commit, in a folder that goes away."""

from __future__ import annotations

import io
import os
import subprocess
import tarfile
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from softmesh.errors import MeshError

_DEADLINE = 120.0  # seconds, for git


def is_commit(name: str, file: str) -> bool:
    """Whether the repository that the file is in knows a commit by this name."""
    if not name or name.startswith("-"):
        return False
    try:
        found = _git(file, "rev-parse", "--verify", "--quiet", f"{name}^{{commit}}")
    except MeshError:
        return False
    return found.returncode == 0


@contextmanager
def file_of_commit(name: str, file: str) -> Iterator[str]:
    """The path of the program as it was, its neighbours beside it."""
    top = Path(_stdout(_git(file, "rev-parse", "--show-toplevel"), name).decode().strip())
    relative = Path(os.path.realpath(file)).relative_to(top)
    archive = _stdout(_git(str(top / "_"), "archive", "--format=tar", name), name)
    with tempfile.TemporaryDirectory(prefix="softmesh-commit-") as folder:
        with tarfile.open(fileobj=io.BytesIO(archive)) as tree:
            tree.extractall(folder, filter="data")
        found = Path(folder, relative)
        if not found.is_file():
            raise MeshError(f"--against: commit {name} has no file {relative}.")
        yield str(found)


def _git(file: str, *command: str) -> subprocess.CompletedProcess[bytes]:
    where = os.path.dirname(os.path.realpath(file))
    try:
        return subprocess.run(["git", "-C", where, *command], capture_output=True, timeout=_DEADLINE, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise MeshError(f"--against: git did not answer: {error}.") from None


def _stdout(run: subprocess.CompletedProcess[bytes], name: str) -> bytes:
    if run.returncode:
        raise MeshError(f"--against: git cannot give commit {name}: {run.stderr.decode(errors='replace').strip()}")
    return run.stdout
