"""`softmesh diff`: runs a program and its reference, and names the first op that differs."""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from softmesh.alias import AliasRefused
from softmesh.diff.allowance import Allowance
from softmesh.diff.comparing import compared
from softmesh.diff.comparison import DATABASES, PAGES, Comparison
from softmesh.diff.golden_run import golden_run
from softmesh.diff.recording import Recording
from softmesh.diff.result import Reason
from softmesh.diff.saved_tensors import matched, read_saved
from softmesh.errors import MeshError, SoftmeshError
from softmesh.one_device import on_one_device
from softmesh.option_types import Number
from softmesh.program_diff.float32_form import in_float32
from softmesh.program_diff.other_commit import file_of_commit, is_commit
from softmesh.program_diff.script_runs import run_script
from softmesh.program_start import check_program
from softmesh.systems.system_choice import choose_in_environment
from softmesh.terminal_text import echo

_SETTINGS = {"help_option_names": ["-h", "--help"], "ignore_unknown_options": True}


class _Refusal(click.ClickException):
    """A mistake in how we were called, or a program that cannot be compared: one sentence, exit code 2."""

    exit_code = 2


@click.command(context_settings=_SETTINGS)
@click.option("-m", "as_module", is_flag=True, help="FILE is the name of a module, as with `python -m`.")
@click.option("--system", metavar="S", help="The machine: T3000, Galaxy, torus:4x4, a cluster descriptor ...")
@click.option(
    "--against",
    default="one-device",
    show_default=True,
    metavar="WHAT",
    help="one-device, float32, golden, another FILE.py, a commit, a folder of dumped tensors, or a safetensors file.",
)
@click.option("--tolerance", type=Number(min=0), metavar="E", help="Accept relative errors up to E in every dtype.")
@click.option(
    "--allow-uncompared",
    "allowed",
    multiple=True,
    metavar="N|REASON",
    help=f"Accept N ops that could not be compared, or those of a reason: {', '.join(one.value for one in Reason)}. "
    "May be given several times.",
)
@click.option("--all", "show_all", is_flag=True, help="List every op, not only the least exact ones.")
@click.option("-o", "--output", metavar="FILE", help="Write a page (.html) or TT-NN Visualizer's database (.sqlite).")
@click.argument("file")
@click.argument("args", nargs=-1, type=click.UNPROCESSED)
def diff(
    file: str,
    args: tuple[str, ...],
    as_module: bool,
    system: str | None,
    against: str,
    tolerance: float | None,
    allowed: tuple[str, ...],
    show_all: bool,
    output: str | None,
) -> None:
    """Run a program and its reference, and name the first op whose value differs.

    \b
    Examples:
      softmesh diff model.py --system T3000 --against one-device
      softmesh diff model.py --against old_model.py -o report.html
      softmesh diff model.py --against HEAD~1 -o records.sqlite
      softmesh diff model.py --against tensors_of_a_card/

    \b
    Exit codes:
      0  the two are equal, within rounding
      1  a mistake: an op of the program differs
      2  wrong usage, or a program or a reference that does not run
      3  something could not be compared (--allow-uncompared turns it into 0)

    What the programs print goes to stderr.
    """
    try:
        _check(file, as_module, against, output)
        if system is not None:
            choose_in_environment(system, ())
        allowance = Allowance.of(allowed, "diff")
        found = replace(_compared(file, args, as_module, against, tolerance), allowance=allowance)
    except (SoftmeshError, AliasRefused) as error:
        raise _Refusal(str(error)) from None
    if show_all:
        for one in found.ops:
            echo(f"{one.number:5}  {one}")
    echo(str(found))
    if output is not None:
        found.save(output, f"{file} against {against}")
        echo(f"written: {output}")
    sys.exit(found.exit_code)


def _check(file: str, as_module: bool, against: str, output: str | None) -> None:
    check_program(file, as_module)
    if against not in _FORMS and against != "golden" and not os.path.exists(against) and not is_commit(against, file):
        raise MeshError(
            f"--against: there is no {against}. Take {', '.join(_FORMS)}, golden, a Python file, a commit of its "
            "repository, a folder of dumped tensors or a safetensors file."
        )
    if output is not None and Path(output).suffix not in PAGES + DATABASES:
        raise MeshError(f"-o: {output} ends in none of {', '.join(PAGES + DATABASES)}.")
    if output is not None and not os.path.isdir(Path(output).resolve().parent):
        raise MeshError(f"-o: there is no folder {Path(output).resolve().parent}.")


_FORMS = {"one-device": on_one_device, "float32": in_float32}


def _compared(file: str, args: tuple[str, ...], as_module: bool, against: str, tolerance: float | None) -> Comparison:
    options: dict[str, Any] = {"against": against, "tolerance": tolerance}
    if against in _FORMS:
        form = _FORMS[against]
        theirs = _sound(run_script(file, args, as_module, form=form, is_reference=True), f"{file} ({against})")
        return compared(run_script(file, args, as_module, twin=theirs), theirs, lifted=against == "float32", **options)
    if against == "golden":
        mine = run_script(file, args, as_module)
        return compared(mine, golden_run(mine), pairs={one.number: one.number for one in mine.entries}, **options)
    if against.endswith(".py"):
        theirs = _sound(run_script(against, args, False, is_reference=True), against)
        return compared(run_script(file, args, as_module, twin=theirs), theirs, **options)
    if not os.path.exists(against):
        with file_of_commit(against, file) as old:
            theirs = _sound(run_script(old, args, False, is_reference=True), f"{file} at {against}")
        return compared(run_script(file, args, as_module, twin=theirs), theirs, **options)
    saved = read_saved(against)
    mine = run_script(file, args, as_module)
    return compared(mine, saved, pairs=matched(mine, saved), lifted=True, **options)


def _sound(run: Recording, what: str) -> Recording:
    if run.error is not None:
        raise MeshError(
            f"The reference, {what}, raised {type(run.error).__name__}: {run.error}\n"
            "Nothing was compared. Give a reference that runs: --against FILE.py, golden, or saved tensors."
        )
    return run
