"""The training loop: batches to the mesh, losses, gradients reduced, clipped and applied; metrics, checkpoints, resume.

    trainer = Trainer(model, AdamW(model), batches, loss=cross_entropy, checkpoint_dir="runs/gpt", save_every=100)
    trainer.resume()
    trainer.train(steps=1000)

Run again after a crash, the same program continues with the very bits it would have had. A `TrainerCallback` has
methods that are called between the parts of a step.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from time import perf_counter
from typing import Any

import torch

from softmesh.arguments import checked
from softmesh.errors import ArgumentError, ArgumentValueError, MeshError, did_you_mean
from softmesh.runtime.commands import observe
from softmesh.runtime.device import MeshDevice
from softmesh.tensor.tensor import Tensor
from softmesh.train import checkpoints
from softmesh.train.axes import Axis, axis_number, listed, on_mesh
from softmesh.train.batches import Batch, Feed, place_batch
from softmesh.train.checkpoints import index
from softmesh.train.checkpoints.folders import check_keep, chosen
from softmesh.train.finite_checks import NotFinite, check_norm, checked_loss
from softmesh.train.gradients import MODES, clip_grad_norm, sync_gradients
from softmesh.train.metrics import JsonLines, Measured, Traffic, display
from softmesh.train.module import Module
from softmesh.train.optimizers import Optimizer
from softmesh.train.schedules import Scheduler


class TrainerCallback:
    """Subclasses have those of the methods that they need."""

    def on_train_begin(self, trainer: Trainer) -> None: ...

    def on_after_forward(self, trainer: Trainer, loss: float) -> None:
        """After each micro-batch: its loss, the mean over devices."""

    def on_after_backward(self, trainer: Trainer) -> None:
        """Gradients are there, each device's own."""

    def on_before_optimizer_step(self, trainer: Trainer) -> None:
        """Gradients are reduced and clipped."""

    def on_step_end(self, trainer: Trainer, step: int, loss: float) -> None: ...

    def on_save(self, trainer: Trainer, path: Path) -> None: ...

    def on_train_end(self, trainer: Trainer) -> None: ...


EVENTS = tuple(name for name in vars(TrainerCallback) if name.startswith("on_"))


class Callbacks:
    """Any object will do that has some of the methods; a name that is none of them is refused."""

    def __init__(self, callbacks: Sequence[object]) -> None:
        for callback in callbacks:
            given = [name for name in dir(callback) if name.startswith("on_")]
            unknown = [name for name in given if name not in EVENTS]
            if unknown or not given:
                what = f"{unknown[0]!r} is never called.{did_you_mean(unknown[0], EVENTS)}" if unknown else "has none."
                raise ArgumentError(
                    f"Trainer: callback {type(callback).__name__}: {what} The methods are {', '.join(EVENTS)}."
                )
        self._callbacks = tuple(callbacks)

    def notify(self, event: str, *args: Any) -> None:
        for callback in self._callbacks:
            method = getattr(callback, event, None)
            if method is not None:
                method(*args)


Loss = Callable[[Any, Tensor], Tensor]


class Trainer:
    """`step` counts the steps that are done.

    `batches`: a function of a batch's number, a list, or something to iterate over; each batch torch tensors, split
    along `splits` (dim 0 over each of `axes`, if not said). The loss of a batch is `loss(model(*inputs), target)`,
    its last tensor the target, or `model(*batch)` without a loss function. A step takes `accumulate` batches.
    """

    def __init__(
        self,
        model: Module,
        optimizer: Optimizer,
        batches: Any,
        *,
        loss: Loss | None = None,
        axes: Axis | Sequence[Axis] = ("dp",),
        splits: Mapping[Axis, int] | None = None,
        sync: str = "fabric",
        accumulate: int = 1,
        max_grad_norm: float | None = None,
        scheduler: Scheduler | None = None,
        checkpoint_dir: str | os.PathLike[str] | None = None,
        save_every: int = 0,
        keep: int | None = 2,
        log_every: int = 1,
        metrics: str | os.PathLike[str] | None = None,
        progress: bool = True,
        callbacks: Sequence[object] = (),
    ) -> None:
        if sync not in MODES:
            raise ArgumentValueError(f'Trainer: sync must be "host" or "fabric", got {sync!r}.')
        for name, value, least in (
            ("accumulate", accumulate, 1),
            ("save_every", save_every, 0),
            ("log_every", log_every, 0),
        ):
            _check_count(name, value, least)
        check_keep(keep)
        if save_every and checkpoint_dir is None:
            raise ArgumentError(f"Trainer: save_every={save_every} needs a checkpoint_dir to save into.")
        self.model, self.optimizer, self.scheduler = model, optimizer, scheduler
        self.mesh = _mesh_of(optimizer)
        self.loss, self.sync, self.accumulate, self.max_grad_norm = loss, sync, accumulate, max_grad_norm
        self.axes = listed(axes)
        self.splits = dict.fromkeys(self.axes, 0) if splits is None else dict(splits)
        for axis in (*self.axes, *self.splits):
            axis_number(self.mesh, axis)
        self.checkpoint_dir = None if checkpoint_dir is None else Path(checkpoint_dir)
        self.save_every, self.keep, self.log_every, self.progress = save_every, keep, log_every, progress
        self.step = 0
        self.last_checkpoint: Path | None = None
        self._feed = Feed(batches)
        self._callbacks = Callbacks(callbacks)
        self._speaks = self.mesh.ranks is None or self.mesh.ranks.context.rank == 0
        self._metrics = JsonLines(metrics) if metrics is not None and self._speaks else None
        self._measures = metrics is not None

    def __repr__(self) -> str:
        return f"Trainer({type(self.model).__name__}, {self.optimizer!r}, {self.step} steps done)"

    def resume(self, step: int | None = None) -> int:
        """Go on from the last checkpoint of `checkpoint_dir`, if there is one, or that of `step`; returns its step.

        Without any, a run begins at step 0.
        """
        if self.checkpoint_dir is None:
            raise ArgumentError("Trainer: resume needs a checkpoint_dir to look in.")
        path = checkpoints.latest(self.checkpoint_dir) if step is None else chosen(self.checkpoint_dir, step)
        if path is None:
            return 0
        state = index.read(path).extra.get("batches")
        if not isinstance(state, Mapping):
            raise MeshError(
                f"{path} was not saved by a Trainer: it does not say which batch comes next. Load it with "
                "softmesh.train.checkpoints.load(path, model, optimizer), and train from there."
            )
        found = checkpoints.load(path, self.model, self.optimizer, scheduler=self.scheduler, restore_random=True)
        self._feed.restore(state)
        self.step, self.last_checkpoint = found.step, path
        return self.step

    def train(self, steps: int) -> list[float]:
        """Until `steps` steps are done in all, those before a resume included; returns the losses of the new ones."""
        _check_count("steps", steps, 0)
        losses = []
        if self._metrics is not None:
            self._metrics.truncate_after(self.step)
        with display(self.progress, self.log_every, self.step, steps, self._speaks) as shown:
            self._callbacks.notify("on_train_begin", self)
            while self.step < steps:
                measured = self._one_step()
                losses.append(measured.loss)
                shown.show(measured)
                self._callbacks.notify("on_step_end", self, self.step, measured.loss)
                if self.save_every and (self.step % self.save_every == 0 or self.step == steps):
                    self.save()
            self._callbacks.notify("on_train_end", self)
        return losses

    def save(self) -> Path:
        """A checkpoint of the step that is done, with all that `resume` needs."""
        if self.checkpoint_dir is None:
            raise ArgumentError("Trainer: save needs a checkpoint_dir to save into.")
        self.last_checkpoint = checkpoints.save(
            self.checkpoint_dir,
            self.model,
            self.optimizer,
            step=self.step,
            scheduler=self.scheduler,
            extra={"batches": self._feed.state()},
            keep=self.keep,
        )
        self._callbacks.notify("on_save", self, self.last_checkpoint)
        return self.last_checkpoint

    def _one_step(self) -> Measured:
        started, lr = perf_counter(), self.optimizer.lr
        traffic = Traffic() if self._measures else None
        batches = [self._feed.next() for _ in range(self.accumulate)]
        with nullcontext() if traffic is None else observe(traffic), self._noting():
            loss = self._backward(batches)
            norm = self._update()
        self.step += 1
        rows = sum(len(batch[0]) for batch in batches)
        measured = Measured(self.step, loss, lr, perf_counter() - started, rows, _tokens(batches), norm, traffic)
        if self._metrics is not None:
            self._metrics.write(measured.as_record())
        return measured

    @contextmanager
    def _noting(self) -> Iterator[None]:
        """Values that are no numbers end the run, and are told of among the metrics."""
        try:
            yield
        except NotFinite as event:
            self.optimizer.zero_grad()
            if self._metrics is not None:
                self._metrics.write(event.as_record())
            raise

    def _backward(self, batches: Sequence[Batch]) -> float:
        """Gradients of the mean loss over the batches; returns that."""
        total = 0.0
        for batch in batches:
            loss = self._loss_of(batch)
            value = checked_loss(loss, self.step + 1, self.last_checkpoint)
            self._callbacks.notify("on_after_forward", self, value)
            loss.backward(self._share_of(loss))
            total += value
        self._callbacks.notify("on_after_backward", self)
        return total / self.accumulate

    def _share_of(self, loss: Tensor) -> Tensor | None:
        """What the loss of one of several batches weighs in their mean."""
        if self.accumulate == 1:
            return None
        return on_mesh(torch.full(tuple(loss.shape), 1 / self.accumulate), self.mesh, {}, loss.dtype, loss.layout)

    def _loss_of(self, batch: Batch) -> Tensor:
        what = f"Trainer: the batch of step {self.step + 1}"
        tensors = [place_batch(what, values, self.mesh, self.splits) for values in batch]
        if self.loss is None:
            loss = self.model(*tensors)
        else:
            *inputs, target = tensors
            loss = self.loss(self.model(*inputs), target)
        if not isinstance(loss, Tensor) or loss.logical_volume() != 1:
            told = list(loss.shape) if isinstance(loss, Tensor) else type(loss).__name__
            raise MeshError(
                f"Trainer: the loss must be a single value on each device, got {told}. Say loss=... (such as "
                "softmesh.train.cross_entropy), or let the model return its loss."
            )
        return loss

    def _update(self) -> float | None:
        """Reduce, clip, apply; returns the norm of the gradients where somebody wants it."""
        found = {name: t for name, t in self.optimizer.params.items() if t.storage.gradient is not None}
        sync_gradients(found.items(), self.axes, self.sync)
        norm = None
        if found and (self.max_grad_norm is not None or self._measures):
            norm = clip_grad_norm(found.items(), self.max_grad_norm or float("inf"))
            check_norm(norm, found, self.step + 1, self.last_checkpoint)
        self._callbacks.notify("on_before_optimizer_step", self)
        self.optimizer.step()
        if self.scheduler is not None:
            self.scheduler.step()
        self.optimizer.zero_grad()
        return norm


def _mesh_of(optimizer: Optimizer) -> MeshDevice:
    checked("Trainer", "optimizer", optimizer, Optimizer, "an optimizer such as ttnn.train.AdamW")
    mesh = next(iter(optimizer.params.values())).device()
    if mesh is None:
        raise MeshError("Trainer: the parameters are on the host: build the model on a mesh.")
    return mesh


def _check_count(name: str, value: int, least: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise ArgumentValueError(f"Trainer: {name} must be a whole number of at least {least}, got {value!r}.")


def _tokens(batches: Sequence[Batch]) -> int | None:
    """Of batches of ids, (rows, tokens)."""
    ids = [batch[0] for batch in batches if batch[0].ndim > 1 and not batch[0].is_floating_point()]
    return sum(one.numel() for one in ids) or None
