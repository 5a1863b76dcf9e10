"""Runs a program under the recorder: in this process, as ranks of a job, or in a process of its own for comparisons."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from softmesh.cost.calibration_files import read_calibration
from softmesh.cost.estimate_from_runs import assembled
from softmesh.cost.recorded_run import RecordedRun
from softmesh.cost.run_files import read_run, write_run
from softmesh.cost.run_recorder import RunRecorder, recording_rank
from softmesh.cost.timeline import Estimate
from softmesh.errors import DeviceMemoryWarning, MeshError, did_you_mean
from softmesh.fabric import settings
from softmesh.hardware import FabricConfig
from softmesh.program_start import as_program, check_program, run_as_main, shown
from softmesh.runtime import commands
from softmesh.runtime.memory.out_of_memory import VARIABLE as MEMORY
from softmesh.systems.system_choice import DOWN, MOCK_DESCRIPTOR, SYSTEM, choose_in_environment
from softmesh.value_free import without_values

_FILES = "run_*.json"


@dataclass(frozen=True)
class Request:
    """A program and what it is to be run on."""

    file: str
    args: tuple[str, ...] = ()
    as_module: bool = False
    system: str | None = None
    down: tuple[str, ...] = ()
    fabric: str | None = None
    has_values: bool = True
    calibration: str | None = None
    ranks: int | None = None

    @property
    def program(self) -> str:
        return " ".join([self.file, *self.args])

    def options(self) -> list[str]:
        """As the command takes them, for another process."""
        found = [] if self.has_values else ["--no-values"]
        for name, value in (("--system", self.system), ("--fabric", self.fabric), ("--calibration", self.calibration)):
            found += [] if value is None else [name, value]
        for what in self.down:
            found += ["--down", what]
        return [*found, *(["-m"] if self.as_module else []), self.file, *self.args]

    def check(self) -> None:
        """Refuse what cannot be run, before anything runs."""
        check_program(self.file, self.as_module)
        fabric_named(self.fabric)
        if self.calibration is not None:
            read_calibration(self.calibration)


@dataclass(frozen=True)
class Outcome:
    """What a program takes, and the exit code that it ended with."""

    estimate: Estimate
    code: int


def fabric_named(name: str | None) -> FabricConfig | None:
    if name is None:
        return None
    known = [config.name for config in FabricConfig]
    wanted = name.upper()
    if wanted not in known:
        raise MeshError(f"--fabric: there is no fabric {name[:40]}.{did_you_mean(wanted, known)}")
    return FabricConfig[wanted]


@contextmanager
def on_machine(request: Request) -> Iterator[None]:
    """Chosen by the environment, so that processes the program starts are on the same machine."""
    kept = {name: os.environ.get(name) for name in (SYSTEM, MOCK_DESCRIPTOR, DOWN, MEMORY)}
    os.environ.setdefault(MEMORY, "track")  # a full memory is told at the end, with what was missing
    before = settings.what_if
    settings.what_if = settings.WhatIf(fabric_named(request.fabric), is_relaxed=bool(request.down))
    try:
        if request.system is not None or request.down:
            choose_in_environment(request.system, request.down)
        yield
    finally:
        settings.what_if = before
        for name, value in kept.items():
            os.environ.pop(name, None)
            os.environ.update({} if value is None else {name: value})


def estimated(request: Request) -> Outcome:
    """Run it here, or as ranks of a job."""
    if request.ranks is not None:
        return _as_ranks(request)
    run, code = recorded(request)
    return Outcome(_assembled(request, [run]), code)


def recorded(request: Request, keep: Callable[[RecordedRun], None] | None = None) -> tuple[RecordedRun, int]:
    """Run it in this process; a program that raises is shown, and recorded up to there.

    What is to be kept is kept before that: a rank that shows what it raised ends its job.
    """
    with on_machine(request):
        return _recorded_here(request, keep)


def _recorded_here(request: Request, keep: Callable[[RecordedRun], None] | None) -> tuple[RecordedRun, int]:
    calibration = None if request.calibration is None else read_calibration(request.calibration)
    recorder = RunRecorder(calibration, recording_rank())
    code, error = 0, None
    raised: BaseException | None = None
    commands.attach(recorder)
    try:
        with ExitStack() as stack:
            stack.enter_context(warnings.catch_warnings())
            warnings.simplefilter("ignore", DeviceMemoryWarning)
            stack.enter_context(as_program(request.file, request.args, request.as_module))
            if not request.has_values:
                stack.enter_context(without_values())
            run_as_main(request.file, request.as_module)
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else int(ended.code is not None)
        if isinstance(ended.code, str):
            print(ended.code, file=sys.stderr)
        error = f"exit code {code}" if code else None
    except BaseException as other:
        raised, error = other, f"{type(other).__name__}: {other}"
    finally:
        commands.detach(recorder)
    run = recorder.finish()
    run.error = error
    if keep is not None:
        keep(run)
    return run, code if raised is None else shown(raised)


def record_into(folder: Path, request: Request) -> int:
    """For a rank, or for one side of a comparison."""

    def keep(run: RecordedRun) -> None:
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise MeshError(f"--record: the folder {folder} cannot be made: {error.strerror}.") from None
        part = folder / f"run_{run.rank}.part"
        write_run(run, part)
        part.replace(folder / f"run_{run.rank}.json")  # whole or not at all: the job may end in between

    _, code = recorded(request, keep)
    return code


def merged(folder: Path, request: Request) -> Estimate:
    """The estimate of what ranks have recorded."""
    runs = [read_run(path) for path in sorted(folder.glob(_FILES), key=lambda path: int(path.stem.partition("_")[2]))]
    if not runs:
        raise MeshError(f"{folder}: there are no recorded runs ({_FILES}) in it.")
    return _assembled(request, runs)


def apart(request: Request) -> Outcome:
    """In a process of its own, whose output is not shown: the other side of a comparison."""
    with tempfile.TemporaryDirectory(prefix="softmesh-estimate-") as folder:
        words = [sys.executable, "-m", "softmesh", "estimate", "--record", folder, *request.options()]
        ended = subprocess.run(words, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, check=False)
        if not list(Path(folder).glob(_FILES)):
            raise MeshError(f"{request.program} could not be run for the comparison: {ended.stderr.strip()[-2000:]}")
        return Outcome(merged(Path(folder), request), ended.returncode)


def _as_ranks(request: Request) -> Outcome:
    launcher = importlib.import_module("softmesh.processes.launcher.tt_run")
    with on_machine(request), tempfile.TemporaryDirectory(prefix="softmesh-estimate-") as folder:
        words = ["-m", "softmesh", "estimate", "--record", folder, *replace(request, ranks=None).options()]
        code: int = launcher.run_ranks(request.ranks, [sys.executable, *words])
        return Outcome(merged(Path(folder), request), code)


def _assembled(request: Request, runs: list[RecordedRun]) -> Estimate:
    return assembled(
        runs,
        program=request.program,
        calibration=request.calibration or "built in",
        has_values=request.has_values,
    )


def json_ready(value: Any) -> Any:
    """For `json.dumps`: values and lists of them as plain ones."""
    if hasattr(value, "_asdict"):
        return {name: json_ready(item) for name, item in value._asdict().items()}
    if isinstance(value, dict):
        return {str(name): json_ready(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [json_ready(item) for item in value]
    return value if value is None or isinstance(value, bool | int | float | str) else str(value)
