"""TT-NN's own switches for reports: `ttnn.CONFIG` names one, and the folder that TT-NN Visualizer opens is written.

From the moment when `report_name` is set together with `enable_logging` or `enable_graph_report`, all that runs is
recorded. It is written when a switch is set otherwise, or when the process ends; what comparison mode finds is in it.
Durations are predicted. The ranks of a job write folders of their own below it.
"""

from __future__ import annotations

import atexit
import sys
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from softmesh.config import CONFIG, Config
from softmesh.errors import SoftmeshError
from softmesh.terminal_text import echo

if TYPE_CHECKING:
    from softmesh.cost.program_cost import ProgramCost

_OPTIONS = ("enable_logging", "enable_graph_report", "report_name", "root_report_path")


@dataclass(frozen=True)
class _Recording:
    folder: Path
    cost: ProgramCost
    attached: ExitStack


_RUNNING: list[_Recording] = []


def follow_config() -> None:
    """Record whenever `ttnn.CONFIG` asks for a report."""
    for option in _OPTIONS:
        CONFIG.watch(option, _switch)
    _switch(CONFIG)


def _switch(config: Config) -> None:
    is_asked = config.enable_logging or config.enable_graph_report
    folder = config.report_path if is_asked and str(config.report_name or "") else None
    if _RUNNING and _RUNNING[0].folder != folder:
        finish()
    if folder is not None and not _RUNNING:
        _begin(folder)


def _begin(folder: Path) -> None:
    from softmesh.cost.program_cost import estimate
    from softmesh.graph.comparison_records import recording_comparisons
    from softmesh.report.estimates.output_files import output_folder

    output_folder("ttnn.CONFIG.report_name", folder)
    attached = ExitStack()
    attached.enter_context(recording_comparisons())
    _RUNNING.append(_Recording(folder, attached.enter_context(estimate()), attached))
    atexit.register(_finish_at_exit)


def finish() -> None:
    """Write the report of what was recorded, unless a graph capture has written its own there."""
    from softmesh.graph.comparison_records import reset_comparison_records_data
    from softmesh.graph.report_database import REPORTED
    from softmesh.processes import current_context
    from softmesh.report.estimates.visualizer_folder import write_visualizer

    recording = _RUNNING.pop()
    recording.attached.close()
    atexit.unregister(_finish_at_exit)
    if recording.folder.resolve() in REPORTED:
        return
    world = current_context.current_world() if current_context.is_initialized() else None
    several = world is not None and world.size > 1
    folder = recording.folder / f"rank{world.rank}" if several and world is not None else recording.folder
    told = replace(recording.cost.estimate, program=Path(sys.argv[0] or "python").name)
    write_visualizer(told, folder, "ttnn.CONFIG.report_name")
    reset_comparison_records_data()


def _finish_at_exit() -> None:
    try:
        finish()
    except SoftmeshError as error:
        echo(f"softmesh: {error}", err=True)
