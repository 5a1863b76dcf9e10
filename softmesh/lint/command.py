"""`softmesh lint`: descriptors, bindings and the fabric chosen for them, held against a machine."""

from __future__ import annotations

import sys

import click
from rich.console import Console

from softmesh.errors import SoftmeshError
from softmesh.lint.files import lint as lint_files
from softmesh.lint.presentation import as_json, print_text


@click.command()
@click.argument("files", nargs=-1, required=True, metavar="FILE...")
@click.option(
    "--system", metavar="S", help="The machine they should fit: T3000, torus:8x4, a cluster descriptor."
)
@click.option(
    "--down", multiple=True, metavar="SPEC", help="What is broken in it: chip:5, link:3-7, link:3/8."
)
@click.option("--fabric", metavar="CONFIG", help="The fabric they are for: FABRIC_1D_RING, FABRIC_2D, ...")
@click.option(
    "--runtime/--no-runtime",
    default=True,
    help="Hold descriptors to what the runtime takes, or only to what can be parsed.",
)
@click.option("--json", "wants_json", is_flag=True, help="One JSON document instead of text.")
def lint(
    files: tuple[str, ...],
    system: str | None,
    down: tuple[str, ...],
    fabric: str | None,
    runtime: bool,
    wants_json: bool,
) -> None:
    """Check mesh graph descriptors, rank bindings, cluster descriptors and the trays of a Galaxy.

    Exit code 0: no errors; 1: errors found; 2: wrong usage.

    \b
    softmesh lint mgd.textproto --system T3000 --fabric FABRIC_2D
    softmesh lint rank_bindings.yaml --json
    """
    try:
        reports = lint_files(files, system, down, fabric, runtime)
    except SoftmeshError as error:
        raise click.UsageError(str(error)) from None
    if wants_json:
        click.echo(as_json(reports))
    else:
        print_text(reports, Console(highlight=False))
    sys.exit(1 if any(report.is_refused for report in reports) else 0)
