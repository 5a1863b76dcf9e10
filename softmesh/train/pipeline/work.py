"""One step's actions carried out: what each pass leaves for later ones, and what goes over the sockets."""

from __future__ import annotations

from collections.abc import Callable

import torch

from softmesh.autograd.leaves import detach, requires_grad_
from softmesh.errors import MeshError
from softmesh.tensor.tensor import Tensor
from softmesh.train.axes import on_mesh
from softmesh.train.pipeline.planning import Plan
from softmesh.train.pipeline.schedules import (
    Action,
    Backward,
    Forward,
    RecvActivation,
    RecvGradient,
    Schedule,
    SendActivation,
    SendGradient,
    connection_of,
)
from softmesh.train.pipeline.stages import Stages

Loss = Callable[[Tensor, Tensor], Tensor]
_At = tuple[int, int]  # micro-batch, and the part of the model


class Work:
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
        self._inputs = {
            (number, 0): batch for number, batch in enumerate(inputs)
        }  # of a part, by micro-batch
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
                self._inputs[at] = requires_grad_(
                    self._plan.links.receive(connection_of(stage, action), spec)
                )
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
            raise MeshError(
                f"Pipeline: loss must return one value on each device, got {what}. Reduce it (ttnn.mean)."
            )
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
