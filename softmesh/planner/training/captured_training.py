"""Training as ops: who asks for gradients, clips them or does an optimizer's step is answered with calls of ops."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch

from softmesh.autograd.function import FUNCTION_TAKERS, RECOMPUTED_TAKERS, Context, Function
from softmesh.autograd.leaves import BACKWARD_TAKERS, requires_grad_
from softmesh.callsite import user_call_site
from softmesh.dispatch.operation import OPERATIONS, Operation
from softmesh.errors import NotModelled
from softmesh.hardware.enums import DataType, Layout
from softmesh.ops.gradients import Found, TapedCall, by_its_backward, op, scaled
from softmesh.planner.training.composite_ops import COMPOSITES
from softmesh.planner.training.gradient_tape import GradientTape, tensors_in
from softmesh.planner.training.optimizer_steps import UPDATES
from softmesh.tensor.from_torch_values import from_torch
from softmesh.tensor.tensor import Tensor
from softmesh.train.gradients import CLIP_TAKERS
from softmesh.train.optimizers import STEP_TAKERS, Optimizer

_OF_TRAINING = "train."
_UNKNOWN_NORM = float("nan")  # to a program that is run without values


def _has_gradient(activation: str) -> bool:
    return activation in OPERATIONS and OPERATIONS[activation].definition.gradient is by_its_backward


class CapturedTraining:
    """`number` tells which value a tensor holds, `say` gives a leaf its name."""

    def __init__(self, number: Callable[[Tensor], int], say: Callable[[Tensor, str], None]) -> None:
        self._number, self._say = number, say
        self.tape = GradientTape(number, self)
        self._constants: dict[Any, Tensor] = {}
        self._state: dict[tuple[int, str, str], Tensor] = {}  # by id of the optimizer, parameter and slot
        self._gradients: dict[int, tuple[torch.Tensor, Tensor]] = {}  # by id of a parameter's storage
        self._kept: list[Any] = []
        self.goes_back = False

    @contextmanager
    def taken_over(self) -> Iterator[None]:
        takers: list[tuple[list[Any], Any]] = [
            (BACKWARD_TAKERS, self._backward),
            (STEP_TAKERS, self._step),
            (CLIP_TAKERS, self._clip),
            (FUNCTION_TAKERS, self._function),
            (RECOMPUTED_TAKERS, self._recomputed),
        ]
        with ExitStack() as stack:
            for takers_of, taker in takers:
                takers_of.append(taker)
                stack.callback(takers_of.remove, taker)
            yield

    # -- ops ---------------------------------------------------------------------------------------------

    def composite(self, called: Operation, bound: list[Any]) -> Any:
        """The results of an op of softmesh.train, by ops of TT-NN; None of any other."""
        known = COMPOSITES.get(called.name)
        given = dict(zip(called.definition.signature.names, bound, strict=True))
        if known is None and called.name.startswith(_OF_TRAINING):
            raise NotModelled(
                f"softmesh.plan: {called.name} at {user_call_site()} is softmesh's own, and splits work over devices: "
                "a function that is to be planned is written as on one device. Leave the split to the plan."
            )
        if known is None:
            return self._with_activation(called, given)
        with self.tape.paused():
            made, saved = known.forward(given, self)
        self.tape.note(called.name, given, tuple(tensors_in(made)), known.gradient, saved)
        return made

    def _with_activation(self, called: Operation, given: dict[str, Any]) -> Any:
        """Where gradients go back through a product and its activation, they are two ops."""
        activation = given.get("activation")
        if not called.definition.factors or not isinstance(activation, str) or not _has_gradient(activation):
            return None
        tracked = (value for value in given.values() if isinstance(value, Tensor))
        if not torch.is_grad_enabled() or not any(tensor.requires_grad for tensor in tracked):
            return None
        product = {name: value for name, value in given.items() if value is not None and name != "activation"}
        return op(activation)(called(**product))

    def _function(self, of: type[Function], context: Context, args: tuple[Any, ...]) -> Any:
        """Forward is computed with the rest; backward is its rule."""

        def rule(call: TapedCall, gradients: Any) -> Found:
            given = gradients if isinstance(gradients, list) else [gradients]
            answer = of.backward(context, *given) if of.backward is not None else ()
            answers = answer if isinstance(answer, tuple | list) else (answer,)
            return {f"argument {at}": one for at, one in enumerate(answers) if one is not None}

        with self.tape.paused():
            made = of.forward(context, *args)
        named = {f"argument {at}": one for at, one in enumerate(args)}
        self.tape.note(f"{of.__name__}.apply", named, tuple(tensors_in(made)), rule)
        return made

    def _recomputed(self, function: Callable[..., Any], args: tuple[Any, ...]) -> Any:
        with self.tape.paused():
            made = function(*args)
        named = {f"argument {at}": one for at, one in enumerate(args)}
        self.tape.note("recomputed", named, tuple(tensors_in(made)), again=lambda: function(*args))
        return made

    def put(self, name: str, values: torch.Tensor, dtype: DataType, like: Tensor) -> Tensor:
        key = (name, tuple(values.shape), dtype)
        if key not in self._constants:
            made: Tensor = from_torch(values, dtype, layout=Layout.TILE, device=like.device())
            self._say(made, name)
            self._constants[key] = made
        return self._constants[key]

    # -- phases of a step --------------------------------------------------------------------------------

    def _backward(self, tensors: list[Tensor], gradients: list[Tensor | None]) -> None:
        self.goes_back = True
        for leaf, gradient in self.tape.backward(tensors, gradients):
            before = leaf.storage.gradient
            with torch.no_grad():
                total = gradient if before is None else op("add")(self._gradient(leaf), gradient)
            self._set_gradient(leaf, total)

    def _set_gradient(self, leaf: Tensor, gradient: Tensor) -> None:
        leaf.storage.gradient = gradient.view_data().detach()
        self._gradients[id(leaf.storage)] = leaf.storage.gradient, gradient
        self._kept.append(leaf.storage)

    def _gradient(self, leaf: Tensor) -> Tensor:
        """As it was computed, where the program has not set another one."""
        data, gradient = self._gradients.get(id(leaf.storage), (None, None))
        if gradient is not None and data is leaf.storage.gradient:
            return gradient
        found = leaf.grad
        assert found is not None
        return found

    def _step(self, optimizer: Optimizer, gradient_of: Callable[[str, Tensor], Any]) -> None:
        update = UPDATES.get(type(optimizer))
        if update is None:
            covered = ", ".join(known.__name__ for known in UPDATES)
            raise NotModelled(
                f"softmesh.plan: {type(optimizer).__name__}.step() at {user_call_site()} is not covered in a training "
                f"step that is planned. Covered are {covered}; another one is written with ttnn's ops in place."
            )
        optimizer.steps += 1
        for name, tensor in optimizer.params.items():
            if gradient_of(name, tensor) is not None:
                self._update(update, optimizer, name, tensor)
                requires_grad_(tensor)  # what an op has written no longer does

    def _update(self, update: Any, optimizer: Optimizer, name: str, tensor: Tensor) -> None:
        def slot(kind: str) -> Tensor:
            return self._slot(optimizer, name, tensor, kind)

        gradient = self._gradient(tensor)
        if tensor.dtype is DataType.FLOAT32:
            update(optimizer, tensor, gradient, slot)
            return
        master = slot("master")
        update(optimizer, master, op("typecast")(gradient, DataType.FLOAT32), slot)
        op("add_")(tensor, op("subtract")(master, tensor))  # the master, rounded

    def _slot(self, optimizer: Optimizer, name: str, tensor: Tensor, kind: str) -> Tensor:
        key = (id(optimizer), name, kind)
        if key not in self._state:
            values = optimizer.state_of(name, kind).reshape(tuple(tensor.shape))
            made: Tensor = from_torch(values.clone(), DataType.FLOAT32, layout=Layout.TILE, device=tensor.device())
            self._say(made, f"{kind}.{name}")
            self._state[key] = made
            self._kept.append(optimizer)
        return self._state[key]

    def _clip(self, params: dict[str, Tensor], max_norm: float) -> float:
        gradients = {name: self._gradient(tensor) for name, tensor in params.items()}
        total = None
        for gradient in gradients.values():
            own = op("sum")(op("multiply")(gradient, gradient))
            total = own if total is None else op("add")(total, own)
        factor = op("clamp")(op("multiply")(op("rsqrt")(total), max_norm), max=1.0)
        for name, tensor in params.items():
            self._set_gradient(tensor, scaled(gradients[name], factor))
        return _UNKNOWN_NORM
