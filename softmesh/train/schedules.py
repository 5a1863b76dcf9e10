"""Learning rate schedules: functions of the step number; a `Scheduler` applies one to an optimizer."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from softmesh.errors import ArgumentError, ArgumentValueError

Schedule = Callable[[int], float]  # the factor of the base rate at a step, counted from 0


class HasRate(Protocol):
    lr: float


def constant() -> Schedule:
    return lambda step: 1.0


def linear(steps: int, start: float = 1.0, end: float = 0.0) -> Schedule:
    """From `start` to `end` in so many steps, and `end` from then on."""
    _check_steps("linear", steps)
    return lambda step: start + (end - start) * min(step / steps, 1.0)


def warmup(steps: int) -> Schedule:
    """Up from 1/steps: the first step is not lost at rate 0."""
    _check_steps("warmup", steps)
    return lambda step: min((step + 1) / steps, 1.0)


def cosine(steps: int, end: float = 0.0) -> Schedule:
    """Half a cosine from 1 down to `end`."""
    _check_steps("cosine", steps)
    return lambda step: end + (1 - end) * 0.5 * (1 + math.cos(math.pi * min(step / steps, 1.0)))


def stepwise(every: int, factor: float = 0.1) -> Schedule:
    """Times `factor` after each `every` steps."""
    _check_steps("stepwise", every)
    return lambda step: factor ** (step // every)


def sequential(parts: Sequence[tuple[int, Schedule]], last: Schedule) -> Schedule:
    """One schedule after the other: (its steps, the schedule) each, and `last` for the rest."""
    for steps, _ in parts:
        _check_steps("sequential", steps)

    def at(step: int) -> float:
        for steps, schedule in parts:
            if step < steps:
                return schedule(step)
            step -= steps
        return last(step)

    return at


class Scheduler:
    """Sets the optimizer's rate for each step from the one it had at first."""

    def __init__(self, optimizer: HasRate, schedule: Schedule) -> None:
        if not hasattr(optimizer, "lr") or not callable(schedule):
            raise ArgumentError("Scheduler(): it takes an optimizer, which has an lr, and a function of the step")
        self.optimizer, self.schedule = optimizer, schedule
        self.base = optimizer.lr
        self.steps = 0
        self._apply()

    def __repr__(self) -> str:
        return f"Scheduler(lr={self.optimizer.lr:g} of {self.base:g}, {self.steps} steps done)"

    def step(self) -> None:
        self.steps += 1
        self._apply()

    def _apply(self) -> None:
        self.optimizer.lr = self.base * self.schedule(self.steps)

    def state_dict(self) -> dict[str, Any]:
        return {"steps": self.steps, "base": self.base}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.steps, self.base = int(state["steps"]), float(state["base"])
        self._apply()


def _check_steps(schedule: str, steps: int) -> None:
    if steps < 1:
        raise ArgumentValueError(f"{schedule}: needs at least 1 step, got {steps}.")
