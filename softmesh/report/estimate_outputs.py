"""Everything an estimate can be written as: `--perfetto`, `--visualizer`, `--ops-csv` and `-o report.html`.

`output_options` puts the options on a command, `write_outputs` writes what was asked for. Paths are looked at before
the program runs (`check_outputs`): who mistyped a folder hears of it at once and not after an hour.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from softmesh.cost.timeline import Estimate
from softmesh.errors import MeshError
from softmesh.report.estimates.output_files import PathLike, output_folder

_Command = TypeVar("_Command", bound=Callable[..., Any])


def output_options(command: _Command) -> _Command:
    """The four options, as `perfetto`, `visualizer`, `ops_csv` and `html`."""
    options = (
        click.option("-o", "--html", metavar="FILE", help="A page to look at in a browser: report.html."),
        click.option("--perfetto", metavar="FILE", help="A trace for ui.perfetto.dev: trace.json.gz."),
        click.option("--visualizer", metavar="FOLDER", help="A report that TT-NN Visualizer opens."),
        click.option("--ops-csv", metavar="FOLDER", help="Tables of ops for tt-perf-report."),
    )
    for option in reversed(options):
        command = option(command)
    return command


def check_outputs(
    *,
    perfetto: PathLike | None = None,
    visualizer: PathLike | None = None,
    ops_csv: PathLike | None = None,
    html: PathLike | None = None,
) -> None:
    """Refuse what cannot be written, before there is anything to write."""
    for option, file in (("--perfetto", perfetto), ("-o", html)):
        if file is not None:
            if os.path.isdir(file):
                raise MeshError(f"{option}: {file} is a folder; name a file.")
            output_folder(option, Path(os.path.dirname(os.fspath(file)) or "."))
    for option, folder in (("--visualizer", visualizer), ("--ops-csv", ops_csv)):
        if folder is not None:
            output_folder(option, folder)


def write_outputs(
    estimate: Estimate,
    *,
    perfetto: PathLike | None = None,
    visualizer: PathLike | None = None,
    ops_csv: PathLike | None = None,
    html: PathLike | None = None,
) -> list[Path]:
    """Write what was named, and say which files that made."""
    from softmesh.report.estimates.estimate_page import write_page
    from softmesh.report.estimates.ops_csv import write_ops_csv
    from softmesh.report.estimates.perfetto_trace import write_perfetto
    from softmesh.report.estimates.visualizer_folder import write_visualizer

    written: list[Path] = []
    if html is not None:
        written.append(write_page(estimate, html))
    if perfetto is not None:
        written.append(write_perfetto(estimate, perfetto))
    if visualizer is not None:
        written += write_visualizer(estimate, visualizer)
    if ops_csv is not None:
        written += write_ops_csv(estimate, ops_csv)
    return written
