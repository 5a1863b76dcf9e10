"""What a program may do between the parts of a step."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from softmesh.errors import ArgumentError, did_you_mean

if TYPE_CHECKING:
    from softmesh.train.trainer import Trainer


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
                what = (
                    f"{unknown[0]!r} is never called.{did_you_mean(unknown[0], EVENTS)}"
                    if unknown
                    else "has none."
                )
                raise ArgumentError(
                    f"Trainer: callback {type(callback).__name__}: {what} The methods are {', '.join(EVENTS)}."
                )
        self._callbacks = tuple(callbacks)

    def tell(self, event: str, *args: Any) -> None:
        for callback in self._callbacks:
            method = getattr(callback, event, None)
            if method is not None:
                method(*args)
