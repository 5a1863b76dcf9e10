"""Losses: one value on each device, the mean over the rows that this device has."""

from __future__ import annotations

from typing import Any

import torch

from softmesh.arguments import checked
from softmesh.autograd.function import Context, Function
from softmesh.dispatch.operation import OPERATIONS
from softmesh.runtime.device import MeshDevice
from softmesh.tensor.dtype import DataType
from softmesh.tensor.tensor import Tensor
from softmesh.tensor.undefined import note_leaving
from softmesh.train import training_ops
from softmesh.train.axes import Axis, axis_number, axis_size, on_mesh


def cross_entropy(logits: Tensor, targets: Tensor) -> Tensor:
    """Of logits (..., vocabulary) against as many indices."""
    return training_ops.cross_entropy(logits, targets)


def mse_loss(prediction: Tensor, target: Tensor) -> Tensor:
    return training_ops.mean_square(prediction, target)


def first_rows(mesh: MeshDevice, axis: Axis, rows: int) -> Tensor:
    """On each device the number of the first row of its slice, of `rows` each along the axis."""
    starts = torch.arange(axis_size(mesh, axis), dtype=torch.int32) * rows
    return on_mesh(starts, mesh, {axis: 0}, DataType.INT32)


class _VocabParallel(Function):
    @staticmethod
    def forward(ctx: Any, logits: Tensor, targets: Tensor, axis: int) -> Any:
        device = logits.device()
        assert device is not None
        first = first_rows(device, axis, int(logits.shape[-1]))
        op = OPERATIONS
        own_largest = op["max"](logits, dim=-1, keepdim=True)
        largest = op["max"](op["all_gather"](own_largest, -1, cluster_axis=axis), dim=-1, keepdim=True)
        total = op["all_reduce"](training_ops.sum_of_exponentials(logits, largest), cluster_axis=axis)
        wanted = op["all_reduce"](training_ops.own_target_logit(logits, targets, first), cluster_axis=axis)
        ctx.save_for_backward(logits, total, largest, targets, first)
        losses = op["subtract"](op["add"](op["log"](total), largest), wanted)
        return op["mean"](losses)

    @staticmethod
    def backward(ctx: Context, gradient: Tensor) -> Any:
        return training_ops.vocab_gradient(*ctx.saved_tensors, gradient), None, None


def vocab_parallel_cross_entropy(logits: Tensor, targets: Tensor, axis: Axis) -> Tensor:
    """Of logits whose vocabulary is split along a mesh axis: three small collectives instead of gathering them."""
    device = checked("vocab_parallel_cross_entropy", "logits", logits, Tensor, "a ttnn.Tensor").device()
    if device is None or axis_size(device, axis) == 1:
        return cross_entropy(logits, targets)
    return _VocabParallel.apply(logits, targets, axis_number(device, axis))


def loss_value(loss: Tensor) -> float:
    """The mean of what the devices have found, as a number; where several processes hold a mesh, of its own devices."""
    note_leaving(checked("loss_value", "loss", loss, Tensor, "a ttnn.Tensor"))
    return float(loss.pieces().detach().float().mean())
