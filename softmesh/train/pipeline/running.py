"""A training step through a pipeline: stages on submeshes of one process, or one stage on each rank of a job.

    stages = [Stage(mesh, part) for mesh, part in zip(meshes, parts)]
    pipeline = Pipeline(stages, schedule="1f1b", micro_batches=8, loss=cross_entropy)
    loss = pipeline.step(inputs, targets)
    sync_gradients(pipeline, axes=["dp"])
    optimizer.step()

On a rank the first argument is its own Stage alone. All ranks call `step` with the same batch.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cached_property

import torch

from softmesh.arguments import checked
from softmesh.errors import ArgumentValueError, MeshError
from softmesh.tensor.tensor import Tensor
from softmesh.train.axes import Axis
from softmesh.train.module import Module
from softmesh.train.pipeline.batches import cut_into, placed
from softmesh.train.pipeline.checking import Fifo, Report, check, played, room_of
from softmesh.train.pipeline.links import Descriptions
from softmesh.train.pipeline.planning import Plan, planned
from softmesh.train.pipeline.schedules import Action, Schedule, schedule_named
from softmesh.train.pipeline.stages import Stage, Stages, gathered
from softmesh.train.pipeline.work import Loss, Work


class Pipeline(Module):
    """A model in parts, trained by a schedule that is checked first. Its parameters are those that are here.

    `loss` is a function of the last part's output and the targets. `splits` says which dim of inputs and targets is
    split along which mesh axis: left out, rows along "dp" where there is such an axis. `fifo` is the room of the
    sockets in messages: left out, enough that no send has to wait.

    The first step, and any with a batch of another shape, lets one micro-batch through without gradients to see
    what goes from stage to stage.
    """

    def __init__(
        self,
        stages: Stage | Sequence[Stage],
        *,
        loss: Loss,
        schedule: str | Schedule = "1f1b",
        micro_batches: int | None = None,
        splits: dict[Axis, int] | None = None,
        fifo: Fifo = None,
    ) -> None:
        self._stages = gathered(stages)
        self.schedule = _chosen(schedule, self._stages, micro_batches)
        self.report: Report = check(self.schedule)
        self.report.raise_if_unsafe()
        self._room = {each: need.unhindered for each, need in self.report.fifos.items()}
        if fifo is not None:
            self._room.update(room_of(self.schedule, fifo))
            self.report = check(self.schedule, self._room)
            self.report.raise_if_unsafe()
        self._loss, self._splits = loss, splits
        self._descriptions = Descriptions() if self._stages.is_spread else None
        self._plans: dict[tuple[int, ...], Plan] = {}

    def children(self) -> Iterator[tuple[str, Module]]:
        return self._stages.modules()

    def step(self, inputs: torch.Tensor, targets: torch.Tensor) -> float | None:
        """Forward and backward of a whole batch; gradients are added to those that are there.

        Returns the loss, the mean over micro-batches and devices; None where the last stage is on another rank.
        """
        count = self.schedule.micro_batches
        given, wanted = cut_into(count, "inputs", inputs), cut_into(count, "targets", targets)
        if len(inputs) != len(targets):
            raise MeshError(f"step: there are {len(inputs)} rows of inputs and {len(targets)} of targets.")
        try:
            work = self._work(given, wanted)
            for stage, action in self._order:
                work.do(stage, action)
        except BaseException:
            self._plans.clear()  # messages may be left in the sockets
            raise
        return work.mean_loss()

    def _work(self, inputs: list[torch.Tensor], targets: list[torch.Tensor]) -> Work:
        given = self._on_part(0, "inputs", inputs)
        wanted = self._on_part(self.schedule.parts - 1, "targets", targets)
        shape = tuple(inputs[0].shape)
        if shape not in self._plans:
            plan = self._plans[shape] = planned(self._stages, self._room, given, self._descriptions)
            self.report = replace(self.report, message_bytes=plan.message_bytes)
        return Work(self.schedule, self._stages, self._plans[shape], given, wanted, self._loss)

    def _on_part(self, part: int, name: str, batches: list[torch.Tensor]) -> list[Tensor]:
        """The micro-batches where they are needed; none on other ranks."""
        if self._stages.part(part) is None:
            return []
        return [placed(name, values, self._stages.mesh(part), self._splits) for values in batches]

    @cached_property
    def _order(self) -> list[tuple[int, Action]]:
        """The actions of this process. Where it has all stages, each receive comes after its send."""
        if self._stages.is_spread:
            return [(stage, action) for stage in self._stages.here for action in self.schedule.stages[stage]]
        return [(step.stage, step.action) for step in played(self.schedule, self._room).steps]


def _chosen(schedule: str | Schedule, stages: Stages, micro_batches: int | None) -> Schedule:
    if not isinstance(schedule, Schedule):
        name = checked("Pipeline", "schedule", schedule, str, "a name such as '1f1b', or a Schedule")
        if micro_batches is None:
            raise ArgumentValueError("Pipeline: say into how many micro_batches a batch is cut.")
        return schedule_named(name, stages.count, micro_batches, stages.chunks)
    given = (len(schedule.stages), schedule.chunks, schedule.micro_batches)
    wanted = (stages.count, stages.chunks, schedule.micro_batches if micro_batches is None else micro_batches)
    if given != wanted:
        names = ("stages", "chunks to a stage", "micro-batches")
        pairs = [
            f"{there} {name}, not {here}"
            for name, there, here in zip(names, given, wanted, strict=True)
            if there != here
        ]
        raise ArgumentValueError(f"Pipeline: the schedule {schedule.name!r} is for {'; '.join(pairs)}.")
    return schedule
