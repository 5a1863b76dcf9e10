"""Remembering the last answer: all layers of a model ask of the same positions and pages, one after the other."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Generic, TypeVar

import torch

T = TypeVar("T")


class Latest(Generic[T]):
    """A function of small tensors and of hashable values that computes only where those are others than last time.

    Tensors are compared value by value: whoever has written to them since, and how, does not matter.
    """

    def __init__(self, compute: Callable[..., T]) -> None:
        self._compute = compute
        self._last: tuple[tuple[torch.Tensor, ...], tuple[Any, ...], T] | None = None

    def __call__(self, tensors: Sequence[torch.Tensor], *given: Any) -> T:
        last = self._last
        if last is not None and last[1] == given and all(map(_are_equal, last[0], tensors)):
            return last[2]
        answer = self._compute(*tensors, *given)
        self._last = tuple(tensor.clone() for tensor in tensors), given, answer
        return answer


def _are_equal(a: torch.Tensor, b: torch.Tensor) -> bool:
    return a.dtype is b.dtype and a.device == b.device and torch.equal(a, b)
