"""Batches in an order that can be taken up again: the next one, and all that says which one that is."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch

from softmesh.errors import ArgumentError, MeshError
from softmesh.train.checkpoints import random_state

Batch = tuple[torch.Tensor, ...]


class Feed:
    """From a function of the batch's number, a sequence of batches, or something to iterate over again and again.

    A function and a sequence go by number. What is iterated over goes on where it was by drawing as many batches as
    before, from the random numbers that it began with; or, where it has a `state_dict`, by that.
    """

    def __init__(self, batches: Any) -> None:
        if not (callable(batches) or hasattr(batches, "__iter__") or _is_sequence(batches)):
            raise ArgumentError(
                "Trainer: batches must be a list, something to iterate over such as a DataLoader, or a function of "
                f"the number of a batch, got {type(batches).__name__}."
            )
        self.batches = batches
        self.drawn = 0
        self._iterator: Iterator[Any] | None = None
        self._position = 0  # in this epoch
        self._beginning: dict[str, Any] = {}  # the random numbers it began with

    def next(self) -> Batch:
        batch = _as_batch(self._draw(), self.drawn)
        self.drawn += 1
        return batch

    def state(self) -> dict[str, Any]:
        if self._goes_by_number():
            return {"drawn": self.drawn}
        if hasattr(self.batches, "state_dict") and hasattr(self.batches, "load_state_dict"):
            return {"drawn": self.drawn, "state": self.batches.state_dict()}
        return {"drawn": self.drawn, "position": self._position, "beginning": self._beginning}

    def restore(self, state: Mapping[str, Any]) -> None:
        try:
            self._restore(state)
        except (LookupError, ValueError, TypeError, AttributeError, RuntimeError) as error:
            if isinstance(error, MeshError):
                raise
            raise MeshError(
                f"Trainer: batches cannot go on where they were ({error}). Give the kind of batches that was trained "
                "on, or load the model with softmesh.train.checkpoints.load(path, model) and begin anew."
            ) from error

    def _restore(self, state: Mapping[str, Any]) -> None:
        self.drawn = int(state["drawn"])
        if self._goes_by_number():
            return
        self._iterator = None
        if "state" in state:
            self.batches.load_state_dict(state["state"])
            return
        now = random_state.current()
        if state.get("beginning"):
            self._begin_as(state["beginning"])
        for _ in range(int(state.get("position", self.drawn))):
            self._draw()
        random_state.restore(now)

    def _goes_by_number(self) -> bool:
        return _is_sequence(self.batches) or not hasattr(self.batches, "__iter__")

    def _draw(self) -> Any:
        if _is_sequence(self.batches):
            if not len(self.batches):
                raise MeshError("Trainer: batches is empty.")
            return self.batches[self.drawn % len(self.batches)]
        if self._goes_by_number():
            return self.batches(self.drawn)
        iterator = self._iterator or self._begin()
        batch = next(iterator, None)
        if batch is None:
            batch = next(self._begin(), None)
        if batch is None:
            raise MeshError(
                f"Trainer: batches ended after {self.drawn}, and begin no second time. Train for fewer steps, or give "
                "a list, a DataLoader or a function of the number of a batch."
            )
        self._position += 1
        return batch

    def _begin(self) -> Iterator[Any]:
        self._beginning = {"random": random_state.current()}
        generator = getattr(self.batches, "generator", None)
        if isinstance(generator, torch.Generator):
            self._beginning["generator"] = random_state.of_generator(generator)
        self._iterator, self._position = iter(self.batches), 0
        return self._iterator

    def _begin_as(self, beginning: Mapping[str, Any]) -> None:
        random_state.restore(beginning["random"])
        if "generator" in beginning:
            random_state.set_generator(self.batches.generator, beginning["generator"])
        self._begin()


def _is_sequence(batches: Any) -> bool:
    return isinstance(batches, Sequence) or (hasattr(batches, "__getitem__") and hasattr(batches, "__len__"))


def _as_batch(given: Any, number: int) -> Batch:
    parts = tuple(given) if isinstance(given, list | tuple) else (given,)
    if not parts or not all(isinstance(part, torch.Tensor) for part in parts):
        kinds = ", ".join(type(part).__name__ for part in parts) or "nothing"
        raise ArgumentError(
            f"Trainer: batch {number} must be a torch tensor or several (inputs, targets), got {kinds}."
        )
    return parts
