"""Execution of a pipeline's training step: stages on submeshes of one process, or one stage on each rank of a job.

    stages = [Stage(mesh, part) for mesh, part in zip(meshes, parts)]
    pipeline = Pipeline(stages, schedule="1f1b", micro_batches=8, loss=cross_entropy)
    loss = pipeline.step(inputs, targets)
    sync_gradients(pipeline, axes=["dp"])
    optimizer.step()

On a rank the first argument is its own Stage alone. All ranks call `step` with the same batch, which is split into
micro-batches. Between its forward and its backward a micro-batch's input and output stay with their part.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import cached_property

import torch

from softmesh.arguments import checked
from softmesh.autograd.leaves import detach, requires_grad_
from softmesh.errors import ArgumentValueError, MeshError
from softmesh.runtime.device import MeshDevice
from softmesh.tensor.dtype import DataType, Layout
from softmesh.tensor.tensor import Tensor
from softmesh.train.axes import Axis, divided, has_axis, on_mesh
from softmesh.train.module import Module
from softmesh.train.pipeline.analysis import Fifo, Report, check, room_of, simulated
from softmesh.train.pipeline.stage_schedules import (
    Action,
    Backward,
    Forward,
    RecvActivation,
    RecvGradient,
    Schedule,
    SendActivation,
    SendGradient,
    connection_of,
    schedule_named,
)
from softmesh.train.pipeline.stage_sockets import Descriptions, Plan, plan_for
from softmesh.train.pipeline.stages import Stage, Stages, stages_of

BATCH_AXIS = "dp"


def split_batch(count: int, name: str, batch: torch.Tensor) -> list[torch.Tensor]:
    """Equal shares of the rows, one after the other."""
    values = checked("step", name, batch, torch.Tensor, "a torch.Tensor with the rows of the whole batch")
    rows = values.shape[0] if values.ndim else 0
    if rows == 0 or rows % count:
        raise MeshError(
            f"step: the {rows} rows of {name} do not divide into {count} micro-batches. Use a multiple of {count}, or "
            "another number of micro-batches."
        )
    return list(values.chunk(count))


def place_micro_batch(name: str, values: torch.Tensor, mesh: MeshDevice, splits: dict[Axis, int] | None) -> Tensor:
    """On the mesh: numbers as float32 tiles, indices as uint32 rows. Without `splits`, rows are split along "dp"."""
    along: dict[Axis, int] = ({BATCH_AXIS: 0} if has_axis(mesh, BATCH_AXIS) else {}) if splits is None else splits
    for axis, dim in along.items():
        divided(f"step: dim {dim} of a micro-batch of {name}", values.shape[dim], mesh, axis)
    if values.is_floating_point():
        return on_mesh(values, mesh, along, DataType.FLOAT32, Layout.TILE)
    return on_mesh(values.to(torch.int32), mesh, along, DataType.UINT32)


Loss = Callable[[Tensor, Tensor], Tensor]
_At = tuple[int, int]  # micro-batch, and the part of the model


class StepExecution:
    """`inputs` are the micro-batches where the first part is here, `targets` where the last is."""

    def __init__(
        self,
        schedule: Schedule,
        stages: Stages,
        plan: Plan,
        inputs: list[Tensor],
        targets: list[Tensor],
        loss: Loss,
    ) -> None:
        self._schedule, self._stages, self._plan, self._loss = schedule, stages, plan, loss
        self._inputs = {(number, 0): batch for number, batch in enumerate(inputs)}  # of a part, by micro-batch
        self._targets = targets
        self._kept: dict[_At, tuple[Tensor, Tensor]] = {}  # input and output, from forward to backward
        self._outputs: dict[_At, Tensor] = {}  # until they are sent
        self._gradients: dict[_At, Tensor] = {}  # of the output of a part
        self._losses: list[Tensor] = []

    def do(self, stage: int, action: Action) -> None:
        part = self._schedule.part(stage, action.chunk)
        at = (action.micro_batch, part)
        match action:
            case Forward():
                self._forward(at)
            case Backward():
                self._backward(at)
            case SendActivation():
                self._plan.links.send(connection_of(stage, action), self._outputs.pop(at))
            case RecvActivation():
                spec = self._plan.specs[part - 1]
                self._inputs[at] = requires_grad_(self._plan.links.receive(connection_of(stage, action), spec))
            case SendGradient():
                before = (action.micro_batch, part - 1)
                self._plan.links.send(connection_of(stage, action), self._gradients.pop(before))
            case RecvGradient():
                spec = self._plan.specs[part]
                self._gradients[at] = self._plan.links.receive(connection_of(stage, action), spec)

    def mean_loss(self) -> float | None:
        if not self._losses:
            return None
        values = [float(loss.view_data().detach().double().mean()) for loss in self._losses]
        return sum(values) / len(values)

    def _forward(self, at: _At) -> None:
        micro_batch, number = at
        given, part = self._inputs.pop(at), self._stages.part(number)
        assert part is not None
        output = part(given)
        if number == self._schedule.parts - 1:
            output = self._loss(output, self._targets[micro_batch])
            self._gradients[at] = self._share(output)
            self._losses.append(detach(output))
        elif len(self._schedule.stages) == 1:
            self._inputs[micro_batch, number + 1] = requires_grad_(detach(output))
        else:
            self._outputs[at] = output
        self._kept[at] = (given, output)

    def _share(self, loss: object) -> Tensor:
        """Of one micro-batch in the gradients: the loss of the batch is the mean of theirs."""
        if not isinstance(loss, Tensor) or loss.logical_volume() != 1 or (mesh := loss.device()) is None:
            what = f"a tensor of shape {loss.shape}" if isinstance(loss, Tensor) else type(loss).__name__
            raise MeshError(f"Pipeline: loss must return one value on each device, got {what}. Reduce it (ttnn.mean).")
        share = torch.full(tuple(loss.shape), 1 / self._schedule.micro_batches)
        return on_mesh(share, mesh, dtype=loss.dtype)

    def _backward(self, at: _At) -> None:
        micro_batch, number = at
        given, output = self._kept.pop(at)
        gradient = self._gradients.pop(at)
        if number > 0 or output.requires_grad:  # the first part may have nothing to train
            output.backward(gradient)
        if number == 0:
            return
        if given.grad is None:
            raise MeshError(
                f"Part {number} of the pipeline does not depend on what the part before it sends: no gradient goes "
                "back. Let its output follow from its input."
            )
        self._gradients[micro_batch, number - 1] = given.grad


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
        self._stages = stages_of(stages)
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

    def __repr__(self) -> str:
        return f"Pipeline({self.schedule!r})"

    def children(self) -> Iterator[tuple[str, Module]]:
        return self._stages.modules()

    def step(self, inputs: torch.Tensor, targets: torch.Tensor) -> float | None:
        """Forward and backward of a whole batch; gradients are added to those that are there.

        Returns the loss, the mean over micro-batches and devices; None where the last stage is on another rank.
        """
        count = self.schedule.micro_batches
        given, wanted = split_batch(count, "inputs", inputs), split_batch(count, "targets", targets)
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

    def _work(self, inputs: list[torch.Tensor], targets: list[torch.Tensor]) -> StepExecution:
        given = self._on_part(0, "inputs", inputs)
        wanted = self._on_part(self.schedule.parts - 1, "targets", targets)
        shape = tuple(inputs[0].shape)
        if shape not in self._plans:
            plan = self._plans[shape] = plan_for(self._stages, self._room, given, self._descriptions)
            self.report = replace(self.report, message_bytes=plan.message_bytes)
        return StepExecution(self.schedule, self._stages, self._plans[shape], given, wanted, self._loss)

    def _on_part(self, part: int, name: str, batches: list[torch.Tensor]) -> list[Tensor]:
        """The micro-batches where they are needed; none on other ranks."""
        if self._stages.part(part) is None:
            return []
        return [place_micro_batch(name, values, self._stages.mesh(part), self._splits) for values in batches]

    @cached_property
    def _order(self) -> list[tuple[int, Action]]:
        """The actions of this process. Where it has all stages, each receive comes after its send."""
        if self._stages.is_spread:
            return [(stage, action) for stage in self._stages.here for action in self.schedule.stages[stage]]
        return [(step.stage, step.action) for step in simulated(self.schedule, self._room).steps]


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
