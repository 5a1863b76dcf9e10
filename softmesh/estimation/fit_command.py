"""`softmesh fit`: whether a program fits the memory of a machine, without computing a value."""

from __future__ import annotations

import json
import sys

import click

from softmesh.alias import AliasRefused
from softmesh.cost.memory_fit import fit_of
from softmesh.errors import SoftmeshError
from softmesh.estimation.estimate_text import console, say
from softmesh.estimation.fit_text import fit_document, show_fit
from softmesh.estimation.program_estimate import Request, estimated, json_ready
from softmesh.estimation.program_options import SETTINGS, ProgramCommand, Refusal, program_options

_DOES_NOT_FIT = 1


@click.command(cls=ProgramCommand, context_settings=SETTINGS)
@click.option("--values", is_flag=True, help="Compute values too, for programs whose shapes depend on them.")
@program_options
def fit(
    file: str,
    args: tuple[str, ...],
    values: bool,
    as_module: bool,
    system: str | None,
    down: tuple[str, ...],
    fabric: str | None,
    ranks: int | None,
    as_json: bool,
) -> None:
    """Tell whether a program fits: DRAM and L1 of each bank at their peaks, and what would help.

    \b
    Example:
      softmesh fit --system N150 model.py --its --arguments

    Exit code 0: it fits; 1: it does not; the program's own where it failed.
    """
    request = Request(file, args, as_module, system, down, fabric, values, None, ranks)
    try:
        request.check()
        outcome = estimated(request)
    except (SoftmeshError, AliasRefused) as error:
        raise Refusal(str(error)) from None
    if as_json:
        print(json.dumps(json_ready(fit_document(outcome.estimate)), indent=1))
    else:
        to = console()
        show_fit(outcome.estimate, to)
        if outcome.estimate.error is not None:
            say(to, f"The program did not end by itself ({outcome.estimate.error}): this is what it held up to there.")
    sys.exit(outcome.code or (0 if fit_of(outcome.estimate).fits else _DOES_NOT_FIT))
