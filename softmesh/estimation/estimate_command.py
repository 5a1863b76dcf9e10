"""`softmesh estimate`: what a program takes on a machine, where the time goes, and what another choice would change."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from softmesh.alias import AliasRefused
from softmesh.cost.comparison import Comparison, compared
from softmesh.cost.timeline import Estimate
from softmesh.errors import SoftmeshError
from softmesh.estimation.estimate_text import console, estimate_document, say, show_comparison, show_estimate
from softmesh.estimation.fit_text import fit_document, show_fit
from softmesh.estimation.program_estimate import Request, apart, estimated, json_ready, merged, record_into
from softmesh.estimation.program_options import SETTINGS, ProgramCommand, Refusal, program_options
from softmesh.report.estimate_outputs import check_outputs, output_options, write_outputs

_OUTPUTS = ("perfetto", "visualizer", "ops_csv", "html")


@click.command(cls=ProgramCommand, context_settings=SETTINGS)
@click.option("--no-values", is_flag=True, help="Compute shapes only: weights take no memory.")
@click.option("--calibration", metavar="FILE", help="A cost model of yours, written by `softmesh calibrate`.")
@click.option("--against", metavar="FILE", help="Another program, to compare with.")
@click.option("--against-system", metavar="S", help="Compare with the same program on another machine.")
@click.option("--against-fabric", metavar="F", help="Compare with the same program under another fabric.")
@click.option(
    "--against-down", multiple=True, metavar="SPEC", help="Compare with the same machine when this is broken."
)
@click.option("--record", metavar="FOLDER", help="Write records into this folder, for --merge, and print nothing.")
@click.option("--merge", is_flag=True, help="FILE is a folder that --record wrote: make one estimate of all its ranks.")
@output_options
@program_options
def estimate(file: str, args: tuple[str, ...], **given: Any) -> None:
    """Run a program, and tell what it takes: by op and by line, on links and in memory.

    \b
    Examples:
      softmesh estimate --system Galaxy --no-values model.py --its --arguments
      softmesh estimate --system T3000 a.py --against b.py
      softmesh estimate --system T3000 --against-down link:0-1 model.py

    The program gets ARGS, and its exit code is the exit code of this command.
    """
    request = Request(
        file,
        args,
        given["as_module"],
        given["system"],
        given["down"],
        given["fabric"],
        not given["no_values"],
        given["calibration"],
        given["ranks"],
    )
    outputs = {name: given[name] for name in _OUTPUTS}
    try:
        other = _other(request, given)
        check_outputs(**outputs)
        if given["merge"]:
            _tell(merged(Path(file), request), None, outputs, given["as_json"])
            return
        request.check()
        if given["record"] is not None:
            sys.exit(record_into(Path(given["record"]), request))
        second = None if other is None else apart(other).estimate
        outcome = estimated(request)
        _tell(outcome.estimate, second, outputs, given["as_json"])
    except (SoftmeshError, AliasRefused) as error:
        raise Refusal(str(error)) from None
    sys.exit(outcome.code)


def _other(request: Request, given: dict[str, Any]) -> Request | None:
    """The other side of a comparison; None where there is none."""
    changes = {
        "file": given["against"],
        "system": given["against_system"],
        "fabric": given["against_fabric"],
        "down": given["against_down"] or None,
    }
    named = {name: value for name, value in changes.items() if value is not None}
    if not named:
        return None
    other = replace(request, **named)
    other.check()
    return other


def _tell(first: Estimate, second: Estimate | None, outputs: dict[str, Any], as_json: bool) -> None:
    written = write_outputs(first, **outputs)
    comparison = None if second is None else compared(first, second)
    if as_json:
        document = estimate_document(first) | {"fit": fit_document(first)}
        if comparison is not None and second is not None:
            document["against"] = estimate_document(second) | {"fit": fit_document(second)}
            document["changes"] = _changes_document(comparison)
        print(json.dumps(json_ready(document), indent=1))
        return
    to = console()
    show_estimate(first, to)
    show_fit(first, to, in_full=False)
    if comparison is not None:
        show_comparison(comparison, to)
    for path in written:
        say(to, f"written: {path}")


def _changes_document(comparison: Comparison) -> dict[str, Any]:
    return {
        "remarks": comparison.remarks,
        "ops": [{"name": one.name, "seconds": one.seconds, "why": one.why} for one in comparison.ops],
        "lines": [{"name": one.name, "seconds": one.seconds, "why": one.why} for one in comparison.lines],
    }
