"""A file as a function to be planned: run from its first line to its last, on one device of a system."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stdout

from softmesh import value_free
from softmesh.errors import DeviceMemoryWarning, NotModelled
from softmesh.one_device import on_one_device
from softmesh.planner.capture import TooManyOps, ValuesNeeded
from softmesh.program_start import as_program, run_as_main
from softmesh.runtime.commands import Command, observe
from softmesh.runtime.device_lifecycle import close_mesh_device, open_meshes
from softmesh.runtime.fabric_api import get_fabric_config, set_fabric_config
from softmesh.runtime.memory.out_of_memory import VARIABLE as MEMORY
from softmesh.systems.system_choice import DOWN, MOCK_DESCRIPTOR, SYSTEM, choose_in_environment
from softmesh.terminal_text import printable

_MOST_SAID = 200
_MOST_FLOPS = 2e10  # of a program that is run again with values: some seconds


class WholeProgram:
    """Called, it runs the file as `python FILE ARGS` would; what ended it too early is kept in `ended_by`.

    What it prints is not shown: without values it would be of zeros, and nothing of it is about the mesh it opens. A
    check of its results may fail without values; a small program is then run again with them.
    """

    def __init__(self, file: str, args: Sequence[str], system: str) -> None:
        self.file, self._args, self._system = file, args, system
        self.ended_by: BaseException | None = None
        self._had_values = False

    def __call__(self) -> None:
        self.ended_by, self._had_values = None, not value_free.is_on
        work = _Work()
        with _on(self._system), on_one_device(), _unseen_output(), as_program(self.file, self._args, False):
            try:
                with observe(work):
                    run_as_main(self.file, False)
            except SystemExit as ended:
                self.ended_by = ended if ended.code else None
            except (TooManyOps, NotModelled):  # what cannot be planned, and not what ended the program
                raise
            except Exception as error:
                self.ended_by = error
        if isinstance(self.ended_by, Exception) and not self._had_values and work.flops <= _MOST_FLOPS:
            raise ValuesNeeded("The program ended with an error while it was run without values.")

    def without_values(self) -> str:
        """Words that say so, where it is true."""
        return "" if self._had_values else ", and without values"

    def early_end(self) -> str | None:
        """What it ended with, as one line."""
        error = self.ended_by
        if error is None:
            return None
        kind = "exit code" if isinstance(error, SystemExit) else type(error).__name__
        said = _words_of(error).strip().partition("\n")[0][:_MOST_SAID].rstrip(".:")
        return f"{kind} {said}" if isinstance(error, SystemExit) else f"{kind}: {said}" if said else kind


class _Work:
    """An observer that adds up what ops compute."""

    flops = 0

    def on_command(self, command: Command) -> None:
        self.flops += command.cost.flops


@contextmanager
def _unseen_output() -> Iterator[None]:
    with open(os.devnull, "w") as nowhere, redirect_stdout(nowhere):
        yield


def _words_of(error: BaseException) -> str:
    try:
        return printable(str(error))
    except Exception:  # of the program's own class
        return "its text cannot be had"


@contextmanager
def _on(system: str) -> Iterator[None]:
    """Of a machine whose memory has no end; what the program left open is closed."""
    kept = {name: os.environ.get(name) for name in (SYSTEM, MOCK_DESCRIPTOR, DOWN, MEMORY)}
    before, fabric = set(map(id, open_meshes())), get_fabric_config()
    try:
        os.environ[MEMORY] = "track"
        choose_in_environment(system, ())
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeviceMemoryWarning)
            yield
    finally:
        for mesh in reversed(open_meshes()):
            if id(mesh) not in before and mesh.is_open:
                close_mesh_device(mesh)
        if get_fabric_config() != fabric:
            set_fabric_config(fabric)
        for name, value in kept.items():
            os.environ.pop(name, None)
            os.environ.update({} if value is None else {name: value})
