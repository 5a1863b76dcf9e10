"""A schedule drawn in text: stages down, time across.

F2 is the forward of micro-batch 2, B2 its backward, a letter the chunk where there are several; -- goes on with the
same, and . waits.
"""

from __future__ import annotations

from collections.abc import Sequence

from softmesh.train.pipeline.checking import Fifo, bubble_share, counted, headline, live_activations, played
from softmesh.train.pipeline.schedules import Forward, Pass, Schedule, checked_count
from softmesh.train.pipeline.simulation import Step

_LONGEST = 1000  # units of time that are drawn


def picture(schedule: Schedule, forward: int = 1, backward: int = 2, fifo: Fifo = None) -> str:
    """Rows of stages with what each loses: while the pipeline fills, in between, and while it drains.

    >>> from softmesh.train.pipeline.schedules import gpipe
    >>> print(picture(gpipe(stages=2, micro_batches=2), backward=1))
    gpipe: 2 stages, 2 micro-batches
    stage 0  F0 F1  .  . B0 B1   waits 0 to fill, 2 between, 0 to drain; keeps 2 activations
    stage 1   . F0 F1 B0 B1  .   waits 1 to fill, 0 between, 1 to drain; keeps 2 activations
    4 of 12 units are bubbles: 1/3, 33.3%
    """
    times = (checked_count("picture", "forward", forward), checked_count("picture", "backward", backward))
    simulation = played(schedule, fifo, *times)
    length, live = int(simulation.makespan), live_activations(schedule)
    rows = [_Row(schedule, stage, simulation.steps, length) for stage in range(len(schedule.stages))]
    shown = min(length, _LONGEST)
    width = 1 + max((len(cell) for row in rows for cell in row.cells[:shown]), default=0)
    lines = [
        f"stage {stage:<{len(str(len(rows) - 1))}} {row.drawn(width, shown)}   {row.account()}; "
        f"keeps {counted(live[stage], 'activation')}"
        for stage, row in enumerate(rows)
    ]
    share = bubble_share(schedule, *times, fifo)
    waits = sum(row.waits for row in rows)
    tail = f"{waits} of {length * len(rows)} units are bubbles: {share}, {float(share):.1%}"
    return "\n".join([headline(schedule), *lines, tail])


class _Row:
    def __init__(self, schedule: Schedule, stage: int, steps: Sequence[Step], length: int) -> None:
        self.cells = [""] * length
        for step in steps:
            if step.stage == stage and isinstance(step.action, Pass):
                name = _name(step.action, schedule.chunks)
                cells = [name, *["-" * len(name)] * (int(step.end - step.start) - 1)]
                self.cells[int(step.start) : int(step.end)] = cells

    @property
    def waits(self) -> int:
        return self.cells.count("")

    def drawn(self, width: int, shown: int) -> str:
        return "".join(f"{cell or '.':>{width}}" for cell in self.cells[:shown])

    def account(self) -> str:
        fill, drain = self._leading(self.cells), self._leading(self.cells[::-1])
        return f"waits {fill} to fill, {self.waits - fill - drain} between, {drain} to drain"

    @staticmethod
    def _leading(cells: Sequence[str]) -> int:
        return next((number for number, cell in enumerate(cells) if cell), len(cells))


def _name(action: Pass, chunks: int) -> str:
    letter = "F" if isinstance(action, Forward) else "B"
    return f"{letter}{action.micro_batch}{_chunk_letters(action.chunk) if chunks > 1 else ''}"


def _chunk_letters(chunk: int) -> str:
    return chr(ord("a") + chunk) if chunk < 26 else f".{chunk}"
