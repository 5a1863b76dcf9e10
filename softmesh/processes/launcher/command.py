"""`tt-run`: the command line of the launcher."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from typing import Any

import click

from softmesh.errors import SoftmeshError
from softmesh.processes.binding import BindingsError
from softmesh.processes.launcher.launching import launch, launch_plain
from softmesh.processes.launcher.options import Options

_SETTINGS = {"ignore_unknown_options": True, "help_option_names": ["--help"]}


@click.command("tt-run", context_settings=_SETTINGS)
@click.option("--rank-binding", metavar="FILE", help="Which rank works on which mesh (YAML).")
@click.option("--rank-bindings-mapping", metavar="FILE", help="Several such files, merged into sub-contexts.")
@click.option(
    "-m", "--mesh-graph-descriptor", metavar="FILE", help="Allocate ranks for this MGD (.textproto)."
)
@click.option("-M", "--mesh-graph-descriptor-mapping", metavar="FILE", help="Sub-context id to MGD (YAML).")
@click.option("--hosts", metavar="A,B", help="Hosts to allocate on, with -m and -M.")
@click.option("--system", metavar="S", help="The machine that is simulated: T3000, Galaxy, torus:4x4, ...")
@click.option("--dry-run", is_flag=True, help="Print the mpirun line and run nothing.")
@click.option("-v", "--verbose", is_flag=True, help="Say what the launcher does.")
@click.option("--mpi-args", metavar="TEXT", help="More arguments for mpirun, quoted as one.")
@click.option("--debug-gdbserver", is_flag=True, help="Run rank r under gdbserver, port 20000 + r.")
@click.option("--mock-cluster-rank-binding", metavar="FILE", help="Mock cluster descriptors by rank (YAML).")
@click.option("--factory-system-descriptor", metavar="FILE", help="Exported to the ranks.")
@click.option("--skip-executable-check", is_flag=True, help="The program need not be on this host.")
@click.option("--skip-mgd-check", is_flag=True, help="The MGD need not be on this host, and is not checked.")
@click.option("--bare", is_flag=True, help="No default transport arguments.")
@click.option("--tcp-interface", metavar="NAME", help="The network interface between hosts.")
@click.option(
    "--rankfile-syntax",
    type=click.Choice(["auto", "rankfile", "map-by", "mca"]),
    default="auto",
    help="How mpirun is told of a rankfile.",
)
@click.option("--force-rediscovery", is_flag=True, help="Allocate anew, with -m and -M.")
@click.option("--tracy", metavar="TEXT", help="Profile every rank with these tracy options.")
@click.argument("program", nargs=-1, type=click.UNPROCESSED)
def tt_run(**given: Any) -> None:
    """Run PROGRAM as several ranks, each bound to a mesh.

    Options are recognised anywhere on the line; put -- before a program that has some of the same names. The
    exit code is the job's own; 1: the job cannot be launched; 130: Ctrl-C.

    \b
    tt-run --rank-binding bindings.yaml python model.py
    tt-run -m mesh.textproto --hosts localhost -- python -m package.module
    tt-run --rank-binding bindings.yaml --dry-run python model.py
    """
    sys.exit(_exit_code(lambda: launch(Options(**given), dict(os.environ))))


def run_ranks(
    count: int,
    program: Sequence[str],
    system: str | None = None,
    mpi_args: str | None = None,
    dry_run: bool = False,
) -> int:
    """So many ranks of a program, bound to no mesh (`softmesh run -n`); the exit code of the job."""
    options = Options(tuple(program), system=system, mpi_args=mpi_args, dry_run=dry_run)
    return _exit_code(lambda: launch_plain(count, options, dict(os.environ)))


def _exit_code(launching: Callable[[], int]) -> int:
    """What cannot be launched is said on stderr, and is exit code 1."""
    try:
        return launching()
    except BindingsError as error:
        click.echo(
            f"{error}\nHint: `softmesh lint` checks such a file, and all it names, line by line.", err=True
        )
    except SoftmeshError as error:
        text = str(error)
        click.echo(text if text.startswith("Error") else f"Error: {text}", err=True)
    return 1
