"""Batches of a training run: a feed that can be resumed where it was, and the placement of a batch on the mesh.

The state of a `Feed` says which batch is next, with the random numbers that its order was drawn from. On the mesh
the rows are divided among the devices that train on different ones.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch

from softmesh.dispatch.operation import OPERATIONS
from softmesh.errors import ArgumentError, MeshError
from softmesh.runtime.device import MeshDevice
from softmesh.tensor.dtype import DataType, Layout
from softmesh.tensor.tensor import Tensor
from softmesh.train.axes import Axis, axis_number, divided, on_mesh
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


_FLOATS = {torch.bfloat16: DataType.BFLOAT16, torch.float16: DataType.BFLOAT16}


def place_batch(what: str, values: torch.Tensor, mesh: MeshDevice, splits: Mapping[Axis, int]) -> Tensor:
    """Integers become uint32 rows, anything else tiles. Two axes may split one dim: the first counts slowest."""
    _check_divides(what, values, mesh, splits)
    first = {axis: dim for axis, dim in splits.items() if dim not in _before(splits, axis)}
    if values.is_floating_point():
        dtype, layout = _FLOATS.get(values.dtype, DataType.FLOAT32), Layout.TILE
    else:
        dtype, layout = DataType.UINT32, Layout.ROW_MAJOR
    tensor = on_mesh(values, mesh, first, dtype, layout)
    for axis, dim in splits.items():
        if axis not in first:
            tensor = OPERATIONS["mesh_partition"](tensor, dim, cluster_axis=axis_number(mesh, axis))
    return tensor


def _before(splits: Mapping[Axis, int], axis: Axis) -> list[int]:
    """The dims that axes before this one split."""
    axes = list(splits)
    return [splits[other] for other in axes[: axes.index(axis)]]


def _check_divides(what: str, values: torch.Tensor, mesh: MeshDevice, splits: Mapping[Axis, int]) -> None:
    extents = list(values.shape)
    for axis, dim in splits.items():
        if not 0 <= dim < len(extents):
            raise MeshError(f"{what} has the shape {list(values.shape)}, and mesh axis {axis!r} is to split dim {dim}.")
        extents[dim] = divided(f"{what}, dim {dim} of {list(values.shape)}", extents[dim], mesh, axis)
