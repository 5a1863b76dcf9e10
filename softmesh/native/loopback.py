"""The library that keeps mpirun's listeners to the loopback and the job, for jobs of one host (loopback.c)."""

from __future__ import annotations

import os
from collections.abc import Mapping
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path

_PRELOAD = "LD_PRELOAD"
_LAUNCHER = "SOFTMESH_LAUNCHER_PID"


def library() -> Path | None:
    """None where it was not compiled: the launcher then looks after the doors itself (launcher/mpirun_doors.py)."""
    beside = (Path(__file__).with_name(f"_loopback{suffix}") for suffix in EXTENSION_SUFFIXES)
    return next((path for path in beside if path.exists()), None)


def is_preloaded(environ: Mapping[str, str]) -> bool:
    """Whether `with_loopback_only` made it, and found the library."""
    return _LAUNCHER in environ


def with_loopback_only(environ: Mapping[str, str]) -> dict[str, str]:
    """The environment of an mpirun that only what this process starts shall reach; its ranks get the one it was."""
    found = library()
    if found is None or any(character in str(found) for character in " :"):  # they part the entries of the list
        return dict(environ)
    preloaded = os.pathsep.join(filter(None, [str(found), environ.get(_PRELOAD, "")]))
    return {**environ, _PRELOAD: preloaded, _LAUNCHER: str(os.getpid())}
