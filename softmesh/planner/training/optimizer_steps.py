"""What an optimizer does to a parameter, in place and in ops of TT-NN."""

from __future__ import annotations

from collections.abc import Callable

from softmesh.ops.gradients import op, scaled
from softmesh.tensor.tensor import Tensor
from softmesh.train.optimizers import SGD, AdamW, Optimizer

Slot = Callable[[str], Tensor]  # what is remembered of the parameter, by name
Update = Callable[[Optimizer, Tensor, Tensor, Slot], None]


def _adamw(optimizer: Optimizer, value: Tensor, gradient: Tensor, slot: Slot) -> None:
    assert isinstance(optimizer, AdamW)
    (beta1, beta2), number = optimizer.betas, optimizer.steps
    first, second = slot("first"), slot("second")
    op("multiply_")(first, beta1)
    op("add_")(first, op("multiply")(gradient, 1 - beta1))
    op("multiply_")(second, beta2)
    op("add_")(second, op("multiply")(op("multiply")(gradient, gradient), 1 - beta2))
    root = op("multiply")(op("sqrt")(second), (1 - beta2**number) ** -0.5)
    change = op("divide")(first, op("add")(root, optimizer.eps))
    if optimizer.weight_decay:
        op("multiply_")(value, 1 - optimizer.lr * optimizer.weight_decay)
    op("subtract_")(value, op("multiply")(change, optimizer.lr / (1 - beta1**number)))


def _sgd(optimizer: Optimizer, value: Tensor, gradient: Tensor, slot: Slot) -> None:
    assert isinstance(optimizer, SGD)
    move = gradient
    if optimizer.weight_decay:
        move = op("add")(move, op("multiply")(value, optimizer.weight_decay))
    if optimizer.momentum:
        kept = slot("momentum")
        op("multiply_")(kept, optimizer.momentum)
        op("add_")(kept, move)
        move = op("add")(move, op("multiply")(kept, optimizer.momentum)) if optimizer.nesterov else kept
    op("subtract_")(value, scaled(move, optimizer.lr))


UPDATES: dict[type[Optimizer], Update] = {AdamW: _adamw, SGD: _sgd}
