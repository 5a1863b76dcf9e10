"""`softmesh.estimate`: what a block of a program would take on the machine, and `mark_step` for parts of it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from softmesh.arguments import checked, described, refused
from softmesh.cost.calibration_files import read_calibration
from softmesh.cost.estimate_from_runs import assembled
from softmesh.cost.modelled_clock import Clock, Clocked
from softmesh.cost.recorded_run import RecordedRun
from softmesh.cost.run_recorder import STEP, RunRecorder
from softmesh.cost.summaries import LineCost, OpCost, busy_share, by_line, by_op, text_table
from softmesh.cost.timeline import Estimate, LinkUse
from softmesh.errors import MeshError
from softmesh.kinds import Kind
from softmesh.runtime import commands
from softmesh.runtime.device import MeshDevice
from softmesh.value_free import without_values

if TYPE_CHECKING:
    from rich.table import Table


class ProgramCost:
    """What `with softmesh.estimate(mesh) as cost:` yields; it can be asked when the block has ended."""

    def __init__(self, run: RecordedRun | None = None, *, has_values: bool = True, calibration: str = "") -> None:
        self._run = run
        self._has_values = has_values
        self._calibration = calibration

    def __repr__(self) -> str:
        return "ProgramCost(under way)" if self._run is None else f"ProgramCost({self.seconds * 1e3:.3f} ms)"

    @property
    def has_ended(self) -> bool:
        return self._run is not None

    @cached_property
    def estimate(self) -> Estimate:
        """Everything that is known, as a value that reports are made from."""
        run = self._ended()
        return assembled([run], self._clocked, calibration=self._calibration, has_values=self._has_values)

    @cached_property
    def _clocked(self) -> Clocked:
        return Clock([self._ended()]).go()

    def _ended(self) -> RecordedRun:
        if self._run is None:
            raise MeshError("softmesh.estimate: the block has not ended: ask for its cost after it.")
        return self._run

    @property
    def seconds(self) -> float:
        """From the first command to the end of the last."""
        return self._clocked.seconds

    @property
    def band(self) -> tuple[float, float]:
        """Between which the seconds are expected to lie."""
        return self.estimate.band()

    def by_op(self) -> list[OpCost]:
        return by_op(self.estimate)

    def by_line(self) -> list[LineCost]:
        return by_line(self.estimate)

    @property
    def busy(self) -> float:
        """The part of the time in which programs run, on average over the chips."""
        return busy_share(self.estimate)

    @property
    def busiest_link(self) -> LinkUse | None:
        return self.estimate.busiest_link()

    @property
    def tokens_per_second(self) -> float | None:
        """Over all steps that say how many tokens they made; None without any."""
        return self.estimate.tokens_per_second()

    def table(self) -> Table:
        """Time by op, for a terminal or a notebook."""
        return text_table(self.estimate)

    @contextmanager
    def step(self, name: str = "step", tokens: float | None = None) -> Iterator[None]:
        """A part of the block that is told apart; `tokens` are made in it."""
        mark_step(name, tokens)
        yield
        mark_step("")


@contextmanager
def estimate(
    mesh_device: MeshDevice | None = None, *, values: bool = True, calibration: str | Path | None = None
) -> Iterator[ProgramCost]:
    """Tell what the commands of the block take on the machine that the mesh was opened on.

    >>> with ttnn.estimate(mesh) as cost:
    ...     y = model(x)
    >>> cost.seconds, cost.by_op()[0].name

    `values=False` computes shapes only. `calibration` is the path of a file of `softmesh calibrate`.
    """
    if mesh_device is not None:
        checked("estimate", "mesh_device", mesh_device, MeshDevice, "a mesh from ttnn.open_mesh_device")
    fitted = None if calibration is None else read_calibration(calibration)
    cost = ProgramCost(has_values=values, calibration="built in" if calibration is None else str(calibration))
    recorder = RunRecorder(fitted)
    commands.attach(recorder)
    try:
        if values:
            yield cost
        else:
            with without_values():
                yield cost
    except BaseException as error:
        recorder.run.error = f"{type(error).__name__}: {error}"
        raise
    finally:
        commands.detach(recorder)
        cost._run = recorder.finish()


def mark_step(name: str = "step", tokens: float | None = None) -> None:
    """From here on a step of the program runs, until the next mark; an estimate tells its time, and tokens a second.

    Without an estimate nothing happens.
    """
    text = checked("mark_step", "name", name, str, "a text")
    if tokens is not None and (isinstance(tokens, bool) or not isinstance(tokens, int | float) or tokens < 0):
        raise refused("mark_step", f"tokens must be a number of tokens, got {described(tokens)}")
    if commands.observers:
        commands.emit(f"{STEP}{text}", Kind.STEP, (), (), coords=(), arguments={"tokens": tokens})
