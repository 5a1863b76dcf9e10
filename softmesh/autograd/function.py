"""Custom autograd functions of mesh tensors with a backward of their own; and activation checkpointing.

class Double(Function):
    @staticmethod
    def forward(ctx, x):
        return ttnn.multiply(x, 2.0)

    @staticmethod
    def backward(ctx, gradient):
        return ttnn.multiply(gradient, 2.0)

y = Double.apply(x)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from softmesh.autograd.gradient_wrapper import unwrap_gradient, wrap_gradient
from softmesh.autograd.leaves import detach, gradient_tensor, requires_grad_
from softmesh.autograd.process_gradients import told_apart
from softmesh.errors import MeshError
from softmesh.runtime.grad_mode import keeps_graph, run_backward, tracks
from softmesh.tensor.storage import Storage
from softmesh.tensor.tensor import Tensor

FUNCTION_TAKERS: list[Callable[[type[Function], Context, tuple[Any, ...]], Any]] = []  # the last one applies them
RECOMPUTED_TAKERS: list[Callable[[Callable[..., Any], tuple[Any, ...]], Any]] = []  # the last one calls the function


class Context:
    """What forward leaves for backward: saved tensors, and whatever it sets on it."""

    saved_tensors: tuple[Any, ...] = ()

    def save_for_backward(self, *tensors: Any) -> None:
        self.saved_tensors = tensors


class Function:
    """Subclass with static `forward(ctx, *args)` and `backward(ctx, *gradients)`; call through `apply`.

    Without a `backward`, the ops of `forward` are differentiated themselves.
    """

    @staticmethod
    def forward(ctx: Context, *args: Any) -> Any:
        raise NotImplementedError

    backward: Callable[..., Any] | None = None

    @classmethod
    def apply(cls, *args: Any) -> Any:
        context = Context()
        inputs = [arg for arg in args if isinstance(arg, Tensor)]
        data = [tensor.view_data() for tensor in inputs]
        if cls.backward is None or not tracks(data):
            return cls.forward(context, *args)
        if FUNCTION_TAKERS:
            return FUNCTION_TAKERS[-1](cls, context, args)
        made: list[Tensor] = []
        tracked = _Call.apply(cls, context, args, made, *data)
        results = [with_history(tensor, values) for tensor, values in zip(made, tracked, strict=True)]
        return results[0] if context.__dict__.pop("_is_single") else tuple(results)


class _Call(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, cls: type[Function], context: Any, args: Any, made: list[Tensor], *data: Any) -> Any:
        ctx.set_materialize_grads(False)
        given = [detach(arg) if isinstance(arg, Tensor) else arg for arg in args]
        out = cls.forward(context, *given)
        context._is_single = isinstance(out, Tensor)
        made += _listed(out)
        ctx.cls, ctx.context, ctx.args, ctx.made = cls, context, given, [detach(tensor) for tensor in made]
        return tuple(tensor.view_data().view_as(tensor.view_data()) for tensor in made)

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor | None) -> tuple[Any, ...]:
        given = [
            None if gradient is None else _arrived(ctx.cls.__name__, made, gradient)
            for made, gradient in zip(ctx.made, gradients, strict=True)
        ]
        with torch.no_grad():
            answer = ctx.cls.backward(ctx.context, *given)
        answers = list(answer) if isinstance(answer, tuple | list) else [answer]
        if len(answers) != len(ctx.args):
            raise MeshError(
                f"{ctx.cls.__name__}.backward returned {len(answers)} gradients for the {len(ctx.args)} arguments of "
                "forward: return one for each, None for what has none."
            )
        pairs = [pair for pair in zip(ctx.args, answers, strict=True) if isinstance(pair[0], Tensor)]
        return None, None, None, None, *(_checked(ctx.cls.__name__, *pair) for pair in pairs)


def _arrived(name: str, made: Tensor, gradient: torch.Tensor) -> Tensor:
    return told_apart(gradient_tensor(made.storage, made, unwrap_gradient(gradient)), f"{name}.backward")


def _listed(made: Any) -> list[Tensor]:
    return [made] if isinstance(made, Tensor) else list(made)


def with_history(tensor: Tensor, data: torch.Tensor) -> Tensor:
    """The tensor with the same values, under a graph that torch keeps of them."""
    storage = Storage(data, tensor.view_distribution(), tensor.storage.device)
    if storage.device is not None:
        storage.use_memory_of(tensor.storage, tensor.spec)
    return Tensor.make(storage, tensor.spec, tensor.topology_label)


def _checked(name: str, tensor: Tensor, gradient: Any) -> torch.Tensor | None:
    if gradient is None:
        return None
    if not isinstance(gradient, Tensor) or tuple(gradient.shape) != tuple(tensor.shape):
        got = gradient.shape if isinstance(gradient, Tensor) else type(gradient).__name__
        raise MeshError(f"{name}.backward returned {got} as the gradient of a tensor of shape {tensor.shape}.")
    if gradient.view_distribution().grid != tensor.view_distribution().grid:
        raise MeshError(
            f"{name}.backward returned a gradient over {gradient.view_distribution().grid} for a tensor over "
            f"{tensor.view_distribution().grid}."
        )
    data = tensor.view_data()
    return wrap_gradient(gradient.view_data().detach().to(data.dtype), data.shape)


def recomputed(function: Callable[..., Any], *args: Any) -> Any:
    """`function(*args)`, of which only the arguments are kept: backward computes it again.

    Parameters that the function uses by itself get their gradients as usual.
    """
    inputs = [arg for arg in args if isinstance(arg, Tensor)]
    if not torch.is_grad_enabled():
        return function(*args)
    if RECOMPUTED_TAKERS:
        return RECOMPUTED_TAKERS[-1](function, args)
    made: list[Any] = []
    anchor = torch.zeros((), requires_grad=True)  # parameters may need gradients where no argument does
    tracked = _Recomputed.apply(function, args, made, anchor, *(tensor.view_data() for tensor in inputs))
    results = [with_history(tensor, values) for tensor, values in zip(_listed(made[0]), tracked, strict=True)]
    return results[0] if isinstance(made[0], Tensor) else type(made[0])(results)


class _Recomputed(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, function: Any, args: Sequence[Any], made: list[Any], *data: Any) -> Any:
        """What `function` gives is left in `made`."""
        ctx.set_materialize_grads(False)
        ctx.chance = torch.random.get_rng_state()
        ctx.function = function
        ctx.args = [detach(arg) if isinstance(arg, Tensor) else arg for arg in args]
        with torch.no_grad():
            made.append(function(*ctx.args))
        return tuple(tensor.view_data().view_as(tensor.view_data()) for tensor in _listed(made[0]))

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor | None) -> tuple[Any, ...]:
        needs = iter(ctx.needs_input_grad[4:])
        args = [
            (requires_grad_(detach(arg)) if next(needs) else arg) if isinstance(arg, Tensor) else arg
            for arg in ctx.args
        ]
        with torch.random.fork_rng(devices=[]), torch.enable_grad():
            torch.random.set_rng_state(ctx.chance)
            out = ctx.function(*args)
        pairs = [
            (result.view_data(), gradient)
            for result, gradient in zip(_listed(out), gradients, strict=True)
            if gradient is not None and result.view_data().requires_grad
        ]
        if pairs:
            run_backward([value for value, _ in pairs], [gradient for _, gradient in pairs], keeps_graph())
        return None, None, None, None, *(_found(arg) for arg in args if isinstance(arg, Tensor))


def _found(leaf: Tensor) -> torch.Tensor | None:
    storage = leaf.storage
    if storage.gradient is None or storage.data is None:
        return None
    return wrap_gradient(storage.gradient, storage.data.shape)
