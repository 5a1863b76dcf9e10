"""Equivalence check: does a model split over devices compute what it computes on one device?

check(model, (ids, targets), sync=["dp"]).raise_if_wrong()
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from softmesh.errors import MeshError, PartialError
from softmesh.runtime.device import MeshDevice
from softmesh.tensor.tensor import Tensor
from softmesh.train.axes import Axis, listed
from softmesh.train.equivalence.backward_check import BackwardCheck
from softmesh.train.equivalence.diagnosis import missing_reduce
from softmesh.train.equivalence.findings import CheckFailed, Comparison, Finding, Report
from softmesh.train.equivalence.forward_check import ForwardCheck
from softmesh.train.equivalence.run_recorder import Run
from softmesh.train.equivalence.single_device import (
    Build,
    one_device,
    single_device_batch,
    single_device_model,
)
from softmesh.train.gradients import sync_gradients
from softmesh.train.module import Module

__all__ = ["CheckFailed", "Finding", "Report", "check"]

Sync = Axis | Sequence[Axis] | Callable[[Module], Any] | None


def check(
    model: Module,
    batch: Any,
    *,
    loss: Callable[..., Tensor] | None = None,
    sync: Sync = None,
    reference: Build | None = None,
    tolerance: float | None = None,
) -> Report:
    """Run the model on its mesh and on one device, forwards and backwards, and tell where they part first.

    `batch` is what the model is called with, on the mesh: a tensor, or several. The model returns the loss, or
    `loss(model, *batch)` does. `sync` is what the training loop does between backward() and step(): the axes of
    sync_gradients, or a function of the model; without it gradients are judged as backward() leaves them. The model
    on one device is made again with the arguments this one was made with, or by `reference(mesh)`, and given the
    values of the parameters of the mesh. Differences count from `tolerance` on, relative to the largest value.
    Gradients and parameters of the model are left as they were; layers that draw random numbers must be off.
    """
    mesh = _mesh_of(model)
    items = list(batch) if isinstance(batch, list | tuple) else [batch]
    function = loss if loss is not None else lambda model, *args: model(*args)
    comparison = Comparison(mesh, model, tolerance)
    comparison.find_diverged_parameters()
    if comparison.findings:
        return comparison.report()
    before = {name: tensor.storage.gradient for name, tensor in model.named_parameters()}
    model.zero_grad()
    try:
        with torch.enable_grad(), torch.random.fork_rng(devices=[]), one_device(mesh) as device:
            single = single_device_model(model, device, reference)
            theirs = Run(single)
            expected = theirs.forward(function, single, single_device_batch(items, device))
            theirs.backward(expected)
            mesh.quiesce_devices()
            ours = Run(model)
            loss_here = _forward(comparison, ours, function, model, items)
            if loss_here is not None and ForwardCheck(comparison, ours, theirs).agrees(loss_here, expected):
                ours.backward(loss_here)
                _combine(model, sync)
                backward = BackwardCheck(comparison, ours, theirs)
                backward.find_first()
                backward.find_parameters(single)
    finally:
        for name, tensor in model.named_parameters():
            tensor.storage.gradient = before[name]
    return comparison.report()


def _forward(
    comparison: Comparison, run: Run, function: Callable[..., Tensor], model: Module, batch: Sequence[Any]
) -> Tensor | None:
    """The loss; None where strict mode stops at a contribution that was taken for the whole."""
    try:
        return run.forward(function, model, batch)
    except PartialError as error:
        first = next((op for op in run.ops if op.problem is not None), None)  # which was doubted before
        if first is None:
            comparison.findings.append(Finding("forward", f"op {len(run.ops)}", str(error), run.here))
            return None
        message, _ = missing_reduce(comparison.mesh, run.ops, first.number)
        comparison.findings.append(
            Finding("forward", first.describe(), f"{message} It ended with: {error}", first.path)
        )
        return None


def _combine(model: Module, sync: Sync) -> None:
    """Do to the gradients what the training loop does."""
    if callable(sync):
        sync(model)
    elif sync is not None:
        have = [pair for pair in model.named_parameters() if pair[1].storage.gradient is not None]
        sync_gradients(have, listed(sync))


def _mesh_of(model: Module) -> MeshDevice:
    if not isinstance(model, Module):
        raise MeshError(f"check: the model must be a softmesh.train.Module, got {type(model).__name__}.")
    for name, tensor in model.named_parameters():
        mesh = tensor.device()
        if mesh is None:
            raise MeshError(f"check: {name} is on the host: move the model to a mesh.")
        if mesh.block is not None:
            raise MeshError(
                "check: several processes hold this mesh, and the check compares all of it in one. Run it in one "
                "process, on a mesh of the same shape."
            )
        return mesh
    raise MeshError("check: the model has no parameters: mark tensors with requires_grad_().")
