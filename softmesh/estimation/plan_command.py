"""`softmesh plan`: the best way to lay a function of a file over the meshes of a system."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from softmesh.alias import AliasRefused, aliased
from softmesh.errors import ArgumentError, SoftmeshError
from softmesh.estimation.estimate_text import console
from softmesh.estimation.plan_options import constraints_of, liberties_of
from softmesh.estimation.plan_text import document, summary
from softmesh.estimation.planned_function import Planned, planned_in, user_line
from softmesh.estimation.program_options import SETTINGS, ProgramCommand, Refusal
from softmesh.estimation.whole_program import WholeProgram
from softmesh.option_types import WholeNumber
from softmesh.planner.capture import NothingToPlan
from softmesh.planner.constraints import fabric_named
from softmesh.planner.goal import Goal
from softmesh.planner.layout_plan import LayoutPlan
from softmesh.planner.problem_setup import Freedom
from softmesh.program_start import shown
from softmesh.report.command_options import drawn_file, save, when_given, writable
from softmesh.report.plans.plan_terminal import PlanTables
from softmesh.report.plans.shown_plans import plan as planned
from softmesh.terminal_text import echo

_INFEASIBLE = 1
_RUNNERS_UP = 5


@click.command(cls=ProgramCommand, context_settings=SETTINGS)
@click.option("--system", required=True, metavar="S", help="The machine: T3000, Galaxy, torus:4x4 ...")
@click.option(
    "--goal",
    type=click.Choice([goal.value for goal in Goal]),
    default=Goal.DECODE.value,
    show_default=True,
    help="What is to be fast: one call, calls that follow each other, or a step of training.",
)
@click.option("--time-limit", default=60.0, show_default=True, metavar="S", help="Seconds for the search.")
@click.option("--gap", default=1e-3, show_default=True, metavar="X", help="Stop this near to the optimum.")
@click.option("--fabric", metavar="F", help="The fabric: FABRIC_1D_RING ... Without it, all are tried.")
@click.option("--down", multiple=True, metavar="SPEC", help="What is broken: chip:5, link:3-7, link:3/8.")
@click.option("--taken", multiple=True, metavar="RxC@r,c", help="A submesh that others use: 2x4@0,0.")
@click.option("--mesh", metavar="RxC", help="The shape of the mesh. Without it, all are tried.")
@click.option(
    "--stages",
    type=WholeNumber(1),
    metavar="N",
    help="Stages of a pipeline; 1: none.",
)
@click.option("--pin", multiple=True, metavar="NAME=P,P", help="A placement for each axis: 'layers.*.wq=R,S1'.")
@click.option("--split", multiple=True, metavar="NAME", help="Split this one: no device may keep the whole of it.")
@click.option("--pieces", multiple=True, metavar="NAME=DIM:N", help="Split along a dim in pieces of N: whole heads.")
@click.option("--users-axis", type=int, metavar="A", help="Keep this axis for users: nothing is sent along it.")
@click.option("--tile-aligned", is_flag=True, help="Split nothing inside of a tile.")
@click.option("--memory-share", type=float, metavar="X", help="Share of a device that tensors may take: 0.8.")
@click.option("--dtype", multiple=True, metavar="NAME=D,D", help="Dtypes of weights and caches: 'layers.*=bfloat8_b'.")
@click.option(
    "--own-ops", is_flag=True, help="Allow splits that are no public ops of TT-NN: rings of keys for attention."
)
@click.option("--why", type=WholeNumber(0), default=0, metavar="N", help="Explain the plan, and N plans that lost.")
@click.option(
    "-o",
    "--output",
    metavar="FILE",
    callback=when_given(writable),
    help="Write the plan as a Python file of plain TT-NN calls.",
)
@click.option(
    "--svg",
    metavar="FILE.svg",
    callback=when_given(drawn_file(".svg", ".png")),
    help="Draw the plan, as .svg or .png.",
)
@click.option(
    "--html",
    metavar="FILE.html",
    callback=when_given(drawn_file(".html")),
    help="Write a page: the picture, what lost and why, and all tables.",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.argument("file")
@click.argument("args", nargs=-1, type=click.UNPROCESSED)
def plan(file: str, args: tuple[str, ...], **given: Any) -> None:
    """Find the best layout of a model over the meshes that a system offers.

    FILE is a Python file, or FILE:NAME, with a function that is written as on one device. It is called without
    values, with a mesh of one chip for its parameter `device` and with ARGS, which are written name=value. NAME may
    be a torch module too, with shapes as ARGS: x=1x32x512, tokens=1x32:int64. A file without a function of a device
    is run as a program with ARGS, on one device wherever it opens a mesh; what it prints is not shown. The plan's
    outputs are what the function returns, and all results that are read on the host.

    \b
    Examples:
      softmesh plan examples/plan/llama.py:decode --system Galaxy size=8b
      softmesh plan --system T3000 --goal prefill --split 'layers.*.up' model.py:prefill length=4096
      softmesh plan --system T3000 program.py --its --arguments
      softmesh plan --system Galaxy --users-axis 0 --dtype 'layers.*=bfloat8_b' -o planned.py model.py

    Exit code 0: a plan was found; 1: none keeps all constraints, which are named.
    """
    try:
        with aliased():
            _run(file, args, given)
    except (ArgumentError, AliasRefused) as error:
        raise Refusal(str(error)) from None
    except SoftmeshError as error:
        echo(f"Error: {error}{user_line(error, file)}", err=True)
        sys.exit(_INFEASIBLE)
    except Exception as error:  # of the program
        sys.exit(shown(error))


def _run(file: str, args: tuple[str, ...], given: dict[str, Any]) -> None:
    wanted = planned_in(file, args, given["system"])
    try:
        found = _found(wanted, given)
    except NothingToPlan as error:
        if not isinstance(wanted.function, WholeProgram):
            raise
        end = wanted.function.early_end()
        raise ArgumentError(
            f"{file}, run as a program on one device, {error.why}.{f' It ended with {end}.' if end else ''} A function "
            f"of a device or a torch module in it is planned as {file}:NAME."
        ) from error
    if isinstance(wanted.function, WholeProgram) and (end := wanted.function.early_end()):
        echo(
            f"Warning: {file} ended with {end}. What it did before is planned, and nothing that would come after. It "
            f"was run on one device{wanted.function.without_values()}.",
            err=True,
        )
    _tell(found, given)


def _found(wanted: Planned, given: dict[str, Any]) -> LayoutPlan:
    return planned(
        wanted.function,
        given["system"],
        wanted.inputs,
        goal=given["goal"],
        constraints=constraints_of(given),
        dtypes=liberties_of(given),
        time_limit=given["time_limit"],
        gap=given["gap"],
        fabric=fabric_named(given["fabric"]) if given["fabric"] else None,
        down=given["down"],
        taken=given["taken"],
        stages=given["stages"],
        freedom=Freedom(plain_only=not given["own_ops"]),
    )


def _tell(found: LayoutPlan, given: dict[str, Any]) -> None:
    if given["as_json"]:
        echo(json.dumps(document(found), indent=1))
    else:
        echo("\n".join(summary(found)))
        if given["why"]:
            console().print("", PlanTables(found.explained(given["why"])), markup=False, highlight=False)
    _write(given["output"], found.source, given)
    _write(given["svg"], found.explained(0).svg, given)
    _write(given["html"], lambda: found.explained(given["why"] or _RUNNERS_UP).page(), given)


def _write(file: Path | None, text: Callable[[], str], given: dict[str, Any]) -> None:
    if file is not None:
        save(file, text())
        echo(f"written: {file}", err=given["as_json"])
