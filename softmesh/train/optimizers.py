"""Optimizers: SGD and AdamW, in place on what each device stores. Parameters in bfloat16 get fp32 masters."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch

from softmesh.arguments import checked, checked_int, checked_number, described
from softmesh.autograd.leaves import gradient_distribution, requires_grad_
from softmesh.autograd.process_gradients import apart_among
from softmesh.callsite import user_call_site
from softmesh.errors import (
    ArgumentValueError,
    MeshError,
    PartialError,
    PartialWarning,
    did_you_mean,
)
from softmesh.placement.placements import LOCAL, Partial
from softmesh.runtime.grad_mode import without_gradients
from softmesh.strictness import warn_or_raise
from softmesh.tensor.convert import round_to
from softmesh.tensor.dtype import DataType
from softmesh.tensor.gradient_sums import doubt_sums_of_averages, doubt_unused, doubt_used_before, note_used
from softmesh.tensor.tensor import Tensor
from softmesh.train.axes import axis_label
from softmesh.train.module import Parameters, Phase, named, tell_phase, tell_ranks, zero_gradients

GradientOf = Callable[[str, Tensor], torch.Tensor | None]
STEP_TAKERS: list[Callable[[Optimizer, GradientOf], None]] = []  # the last one changes the parameters


def _warn_if_named_twice(params: dict[str, Tensor]) -> None:
    """A parameter that two layers share takes one step, as it has one gradient."""
    names: dict[int, str] = {}
    for name, tensor in params.items():
        first = names.setdefault(id(tensor.storage), name)
        if first != name:
            warn_or_raise(
                f"{first} and {name} are the same parameter: each step would change it twice by one gradient. Give the "
                "optimizer each parameter once.",
            )


class Optimizer:
    """Keeps its state by parameter name; `lr` may be set between steps."""

    slots: tuple[str, ...] = ()  # what is kept for each parameter, of its shape
    settings: tuple[str, ...] = ("lr", "steps")  # attributes on which a step depends: processes of a mesh share them

    def __init__(self, params: Parameters, lr: float, skip_missing: bool = False) -> None:
        self.params = named(params)
        if not self.params:
            raise MeshError("An optimizer needs parameters: mark tensors with requires_grad_().")
        _warn_if_named_twice(self.params)
        checked_number(type(self).__name__, "lr", lr)
        if lr < 0:
            raise ArgumentValueError(f"lr must not be negative, got {lr}.")
        self.lr = lr
        self.steps = 0
        self._skips_missing = skip_missing
        self._state: dict[str, dict[str, torch.Tensor]] = {}
        self._apart: set[tuple[str, int]] = set()  # gradients that processes along an axis have not combined

    def __repr__(self) -> str:
        return f"{type(self).__name__}(lr={self.lr:g}, {len(self.params)} parameters, {self.steps} steps done)"

    def zero_grad(self) -> None:
        doubt_unused("zero_grad", {name: tensor.storage for name, tensor in self.params.items()})
        zero_gradients(self.params.values())

    def set_lr(self, lr: float) -> None:
        self.lr = lr

    def get_lr(self) -> float:
        return self.lr

    def get_steps(self) -> int:
        return self.steps

    def set_steps(self, steps: int) -> None:
        self.steps = steps

    def step(self) -> None:
        """Change every parameter by its gradient."""
        name = type(self).__name__
        changed = {own: tensor for own, tensor in self.params.items() if tensor.storage.gradient is not None}
        tell_ranks(self._told("step"), changed)
        tell_phase(Phase.BEFORE_STEP, name, self.params)
        axes = {own: range(tensor.storage.dist.lead) for own, tensor in self.params.items()}
        self._apart = apart_among(self.params, axes, f"{name}.step")
        storages = {own: tensor.storage for own, tensor in self.params.items()}
        doubt_used_before(name, storages)
        doubt_sums_of_averages(name, storages)
        taker = partial(STEP_TAKERS[-1], self, self._gradient) if STEP_TAKERS else self._step
        without_gradients(taker)
        site = user_call_site()
        for tensor in self.params.values():
            note_used(tensor.storage, site)
        tell_phase(Phase.STEP, name, self.params)

    def _told(self, method: str) -> str:
        """To other processes, which must call it alike."""
        return f"{type(self).__name__}.{method}({', '.join(f'{name}={getattr(self, name)}' for name in self.settings)})"

    def _step(self) -> None:
        names, values, gradients = [], [], []
        for name, tensor in self.params.items():
            gradient = self._gradient(name, tensor)
            if gradient is not None:
                names.append(name)
                values.append(self._values(name, tensor))
                gradients.append(gradient.to(values[-1].dtype))
        self.steps += 1
        if names:
            self.update(names, values, gradients)
        for name in names:
            self._write_back(name, self.params[name])

    def update(self, names: Sequence[str], values: Sequence[torch.Tensor], gradients: Sequence[torch.Tensor]) -> None:
        raise NotImplementedError

    def slots_of(self, names: Sequence[str], slot: str) -> list[torch.Tensor]:
        """This part of the state of each parameter, zeros at first."""
        return [self._slot(name, slot) for name in names]

    def state_of(self, name: str, slot: str) -> torch.Tensor:
        """A slot of one parameter, or the "master" of one that is not in fp32."""
        return self._values(name, self.params[name]) if slot == "master" else self._slot(name, slot)

    def state_dict(self) -> dict[str, Any]:
        return {
            "steps": self.steps,
            "lr": self.lr,
            "state": {name: dict(s) for name, s in self._state.items()},
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        checked("load_state_dict", "state", state, dict, "the dict that state_dict() of an optimizer gives")
        if not {"steps", "lr", "state"} <= set(state):
            has = described(list(state))
            raise MeshError(f"This is no state of an optimizer: it has {has}, not steps, lr and state.")
        for name, slots in state["state"].items():
            self._check_slots(name, slots)
        steps = checked_int("load_state_dict", "steps", state["steps"])
        self.steps, self.lr = steps, checked_number("load_state_dict", "lr", state["lr"])
        self._state = {
            name: {slot: values.clone() for slot, values in slots.items()} for name, slots in state["state"].items()
        }
        tell_ranks(self._told("load_state_dict"), self.params)

    def _check_slots(self, name: str, slots: dict[str, torch.Tensor]) -> None:
        if name not in self.params:
            raise MeshError(f"The optimizer's state is for another model: this one has no parameter {name!r}.")
        data = self.params[name].storage.data
        for slot, values in slots.items():
            if data is not None and values.shape != data.shape:
                raise MeshError(
                    f"The optimizer's state is for another model or mesh: {slot} of {name} has shape "
                    f"{list(values.shape)}, the parameter is stored as {list(data.shape)}."
                )

    def _slot(self, name: str, slot: str) -> torch.Tensor:
        if not isinstance(name, str) or name not in self.params:
            hint = did_you_mean(name, self.params) if isinstance(name, str) else ""
            raise ArgumentValueError(f"This optimizer has no parameter {described(name)}.{hint}")
        state = self._state.setdefault(name, {})
        if slot not in state:
            state[slot] = torch.zeros_like(self._values(name, self.params[name]))
        return state[slot]

    def _values(self, name: str, tensor: Tensor) -> torch.Tensor:
        """What is updated: the parameter itself, or its fp32 master."""
        data = tensor.storage.data
        assert data is not None
        if tensor.dtype is DataType.FLOAT32:
            return data
        state = self._state.setdefault(name, {})
        if "master" not in state:
            state["master"] = data.detach().float().clone()
        return state["master"]

    def _write_back(self, name: str, tensor: Tensor) -> None:
        if tensor.dtype is not DataType.FLOAT32:
            data = tensor.storage.data
            assert data is not None
            data.copy_(round_to(self._state[name]["master"], tensor.dtype))

    def _gradient(self, name: str, tensor: Tensor) -> torch.Tensor | None:
        tensor.check_writable(f"a step of {type(self).__name__}")
        storage = tensor.storage
        gradient = storage.gradient
        if gradient is None:
            if self._skips_missing:
                return None
            raise MeshError(
                f"{type(self).__name__}: {name} has no gradient: it took no part in the loss, or backward() was not "
                "called. Leave it out of the optimizer, or say skip_missing=True."
            )
        assert storage.data is not None
        words = [
            Partial("sum") if (name, axis) in self._apart else word
            for axis, word in enumerate(gradient_distribution(storage.dist, gradient).placements)
        ]
        axes = [axis for axis, word in enumerate(words) if isinstance(word, Partial)]
        if axes:
            assert storage.device is not None
            label = axis_label(storage.device, axes[0])
            warn_or_raise(
                f"{type(self).__name__}: the gradient of {name} is still {words[axes[0]]} over mesh axis {label!r}: "
                "its devices hold contributions of their own, and the parameter would come apart. Missing before "
                f"this: softmesh.train.sync_gradients(params, axes=[{label!r}]).",
                PartialWarning,
                PartialError,
            )
            self._give_each_its_own(name, tensor, gradient)
        return gradient.expand(storage.data.shape)

    def _give_each_its_own(self, name: str, tensor: Tensor, gradient: torch.Tensor) -> None:
        """The parameter comes apart, as it would on chips: each device that has a gradient of its own gets a value."""
        storage = tensor.storage
        assert storage.data is not None
        lead = storage.dist.lead
        extents = tuple(map(max, storage.data.shape[:lead], gradient.shape[:lead]))
        words = tuple(
            word if have == want and (name, axis) not in self._apart else LOCAL
            for axis, (word, have, want) in enumerate(
                zip(storage.dist.placements, storage.data.shape, extents, strict=False)
            )
        )
        storage.data = storage.data.detach().expand(*extents, *storage.data.shape[lead:]).clone()
        storage.dist = storage.dist.with_placements(words)
        requires_grad_(tensor)
        state = self._state.get(name, {})
        state.update({slot: kept.expand(storage.data.shape).clone() for slot, kept in state.items()})


class SGD(Optimizer):
    """With momentum, Nesterov's form of it, and weight decay, if asked for."""

    slots = ("momentum",)
    settings = (*Optimizer.settings, "momentum", "weight_decay", "nesterov")

    def __init__(
        self,
        params: Parameters,
        lr: float,
        momentum: float = 0.0,
        weight_decay: float = 0.0,
        nesterov: bool = False,
        skip_missing: bool = False,
    ) -> None:
        super().__init__(params, lr, skip_missing)
        if nesterov and not momentum:
            raise ArgumentValueError("SGD: nesterov needs a momentum.")
        self.momentum, self.weight_decay, self.nesterov = momentum, weight_decay, nesterov

    def update(self, names: Sequence[str], values: Sequence[torch.Tensor], gradients: Sequence[torch.Tensor]) -> None:
        moves = list(gradients)
        if self.weight_decay:
            moves = list(torch._foreach_add(moves, list(values), alpha=self.weight_decay))
        if self.momentum:
            kept = self.slots_of(names, "momentum")
            torch._foreach_mul_(kept, self.momentum)
            torch._foreach_add_(kept, moves)
            moves = list(torch._foreach_add(moves, kept, alpha=self.momentum)) if self.nesterov else kept
        torch._foreach_add_(list(values), moves, alpha=-self.lr)


class AdamW(Optimizer):
    """Adam with decoupled weight decay; moments in fp32."""

    slots = ("first", "second")
    settings = (*Optimizer.settings, "betas", "eps", "weight_decay")

    def __init__(
        self,
        params: Parameters,
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.01,
        skip_missing: bool = False,
    ) -> None:
        super().__init__(params, lr, skip_missing)
        if not all(0 <= beta < 1 for beta in betas):
            raise ArgumentValueError(f"AdamW: betas must lie in [0, 1), got {betas}.")
        self.betas, self.eps, self.weight_decay = betas, eps, weight_decay

    def update(self, names: Sequence[str], values: Sequence[torch.Tensor], gradients: Sequence[torch.Tensor]) -> None:
        torch._fused_adamw_(
            list(values),
            [gradient.contiguous() for gradient in gradients],
            self.slots_of(names, "first"),
            self.slots_of(names, "second"),
            [],
            [torch.tensor(float(self.steps), device=values[0].device)] * len(names),
            amsgrad=False,
            lr=self.lr,
            beta1=self.betas[0],
            beta2=self.betas[1],
            weight_decay=self.weight_decay,
            eps=self.eps,
            maximize=False,
        )
