"""`softmesh doctor`: what is installed, what is missing, and how to get it."""

from __future__ import annotations

import importlib.util
import os
import platform
import shutil
import sys
from collections.abc import Iterator
from enum import Enum
from importlib import metadata
from typing import NamedTuple

import click

from softmesh.errors import SoftmeshError
from softmesh.terminal_text import console
from softmesh.version import __version__


class State(Enum):
    FINE = "ok"
    ABSENT = "absent"  # and softmesh runs without it
    BROKEN = "broken"  # something that was asked for cannot work


class Finding(NamedTuple):
    what: str
    state: State
    seen: str
    remedy: str = ""


def findings() -> Iterator[Finding]:
    yield Finding("softmesh", State.FINE, f"{__version__}, {os.path.dirname(__file__)}")
    yield Finding("Python", State.FINE, f"{platform.python_version()}, {sys.executable}")
    yield from _torch()
    yield from _mpi()
    yield _compiled_kernels()
    yield _machine()
    yield _extra("resvg_py", "PNG pictures", "softmesh[png]")
    yield _extra("IPython", "notebooks", "softmesh[notebook]")
    yield _extra("jax", "JAX as a peer of the benchmarks", "softmesh[bench]")
    yield from _ttnn()
    yield _environment()


def _torch() -> Iterator[Finding]:
    import torch

    yield Finding("torch", State.FINE, f"{torch.__version__}, {torch.get_num_threads()} threads")
    wanted = os.environ.get("SOFTMESH_DEVICE") or "cpu"
    if torch.cuda.is_available():
        card = torch.cuda.get_device_properties(0)
        seen = f"{torch.cuda.device_count()} x {card.name}, {card.total_memory / 2**30:.0f} GiB"
        yield Finding("GPU", State.FINE, seen, "" if wanted != "cpu" else "SOFTMESH_DEVICE=cuda puts the mesh there")
    elif wanted == "cpu":
        yield Finding("GPU", State.ABSENT, "torch finds none; the CPU is the default")
    else:
        remedy = "install a build of torch for CUDA, or unset SOFTMESH_DEVICE"
        yield Finding("GPU", State.BROKEN, f"SOFTMESH_DEVICE={wanted}, and torch finds none", remedy)


def _mpi() -> Iterator[Finding]:
    from softmesh.processes.launcher.console import LaunchError
    from softmesh.processes.launcher.mpirun import find_mpirun

    remedy = "pip install 'softmesh[mpi]': several ranks (tt-run, softmesh run -n) need it"
    if importlib.util.find_spec("mpi4py") is None:
        yield Finding("mpi4py", State.ABSENT, "not installed", remedy)
    else:
        yield Finding("mpi4py", State.FINE, metadata.version("mpi4py"))
    try:
        yield Finding("mpirun", State.FINE, find_mpirun(os.environ))
    except LaunchError:
        yield Finding("mpirun", State.ABSENT, "not found on PATH", remedy)


def _compiled_kernels() -> Finding:
    from softmesh.native.c_kernels import is_compiled

    if is_compiled():
        return Finding("kernels in C", State.FINE, "compiled")
    compiler = next((name for name in ("cc", "gcc", "clang") if shutil.which(name)), None)
    remedy = (
        "install softmesh again, from source" if compiler else "install a C compiler, then softmesh again, from source"
    )
    return Finding("kernels in C", State.ABSENT, "not compiled: torch does their work, more slowly", remedy)


def _machine() -> Finding:
    from softmesh.systems.system_choice import chosen_machine

    try:
        machine = chosen_machine()
    except SoftmeshError as error:
        return Finding("machine", State.BROKEN, str(error), "`softmesh systems` lists the machines")
    if machine is None:
        return Finding("machine", State.FINE, "elastic: takes any mesh shape", "SOFTMESH_SYSTEM=T3000 names another")
    return Finding("machine", State.FINE, f"{machine.name}, {len(machine.asics)} chips")


def _extra(module: str, purpose: str, extra: str) -> Finding:
    if importlib.util.find_spec(module) is None:
        return Finding(module, State.ABSENT, f"not installed; for {purpose}", f"pip install '{extra}'")
    return Finding(module, State.FINE, f"installed; for {purpose}")


def _ttnn() -> Iterator[Finding]:
    """A real ttnn is told of: `softmesh run` refuses to stand in its place unasked."""
    if importlib.util.find_spec("ttnn") is not None:
        yield Finding("ttnn", State.FINE, "the real package is installed", "softmesh never takes its place unasked")


def _environment() -> Finding:
    names = sorted(name for name in os.environ if name.startswith(("SOFTMESH_", "TT_", "TTNN_")))
    return Finding(
        "environment", State.FINE, ", ".join(f"{name}={os.environ[name]}" for name in names) or "nothing is set"
    )


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
def doctor() -> None:
    """Tell what is installed, what is missing, and how to get it.

    The exit code is 1 where something that was asked for cannot work, such as a GPU that is not there.

    \b
    Example:
      softmesh doctor
    """
    from rich.markup import escape
    from rich.table import Table

    table = Table(box=None, padding=(0, 2, 0, 0), show_header=False)
    found = list(findings())
    colours = {State.FINE: "green", State.ABSENT: "yellow", State.BROKEN: "red"}
    for what, state, seen, remedy in found:
        told = escape(_printable(seen)) + (f"\n[dim]{escape(_printable(remedy))}[/dim]" if remedy else "")
        table.add_row(f"[{colours[state]}]{state.value}", escape(what), told)
    console().print(table)
    sys.exit(int(any(finding.state is State.BROKEN for finding in found)))


def _printable(text: str) -> str:
    """What the environment says is shown, never obeyed."""
    return "".join(letter if letter.isprintable() else "?" for letter in text)
