"""The program each rank runs: whether it is there, and what it becomes under a debugger or a profiler."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from softmesh.processes.launcher.engine import search_path
from softmesh.processes.launcher.refusal import LaunchError

FIRST_GDB_PORT = 20000
FIRST_TRACY_PORT = 8087
_PYTHON = re.compile(r"python[0-9.]*")


def check_program(program: Sequence[str], environ: Mapping[str, str], skip_search: bool = False) -> None:
    if not program:
        raise LaunchError("No program specified. Please provide a program to run.")
    name = program[0]
    if skip_search or shutil.which(name, path=search_path(environ)) is not None:
        return
    advice = ""
    if os.path.isfile(name):
        advice = f". It is a file, but not one that can be executed: `python {name}`, perhaps?"
    elif name.startswith("-"):
        advice = ". It looks like an option, and tt-run has none of that name; `tt-run --help` lists them."
    elif os.sep in name:
        advice = ". On other hosts only? Then give --skip-executable-check."
    raise LaunchError(f"Program not found: {name}{advice}")


def check_gdbserver(environ: Mapping[str, str]) -> None:
    if shutil.which("gdbserver", path=search_path(environ)) is None:
        raise LaunchError(
            "--debug-gdbserver: Program not found: gdbserver. Install it, or give --skip-executable-check where only "
            "the hosts of the ranks have it."
        )


def under_gdbserver(program: Sequence[str], rank: int) -> list[str]:
    """The program goes in as arguments, so nothing of it is ever read by the shell."""
    port = FIRST_GDB_PORT + rank
    script = f'echo "Rank {rank} on $(hostname) listening on :{port}"; exec gdbserver :{port} "$@"'
    return ["bash", "-c", script, "gdbserver", *program]


@dataclass(frozen=True)
class Tracy:
    """How every rank is profiled: rank r on a port and in a folder of its own."""

    port: int
    folder: str
    flags: tuple[str, ...] = ()

    def folder_of(self, rank: int) -> str:
        return os.path.join(self.folder, f"rank{rank}")

    def around(self, program: Sequence[str], rank: int) -> list[str]:
        is_python = bool(_PYTHON.fullmatch(os.path.basename(program[0])))
        python, rest = (program[0], program[1:]) if is_python else (sys.executable, program)
        options = ["--port", str(self.port + rank), "-o", self.folder_of(rank), *self.flags]
        return [python, "-m", "tracy", *options, *rest]


def tracy_of(text: str, environ: Mapping[str, str], launch_directory: Path) -> Tracy:
    """From the value of --tracy: a port and a folder to start from, and flags that tracy itself reads."""
    home = environ.get("TT_METAL_HOME", str(launch_directory))
    port, folder = str(FIRST_TRACY_PORT), os.path.join(home, "generated", "profiler", "ttrun")
    flags = []
    try:
        words = iter(shlex.split(text))
    except ValueError as error:
        raise LaunchError(f"--tracy cannot be split into arguments ({error}): {text}") from None
    for word in words:
        name, _, value = word.partition("=")
        if name in ("-t", "--port"):
            port = value or next(words, "")
        elif name in ("-o", "--output-folder"):
            folder = os.path.join(launch_directory, value or next(words, ""))
        else:
            flags.append(word)
    if not (port.isascii() and port.isdigit() and 0 < int(port[:6]) < 1 << 16):
        raise LaunchError(f"--tracy: {port!r} is no port; give a number such as --port {FIRST_TRACY_PORT}.")
    return Tracy(int(port), folder, tuple(flags))
