"""The process-wide state of autograd: whether anything trains, whether the graph is retained, and the backward pass.

`GRADIENTS.in_use` is set by the first tensor that asks for a gradient; until then no op looks for one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

import torch

from softmesh.runtime.float32_precision import full_float32

_Found = TypeVar("_Found")


class _State:
    keeps_graph = False
    natively = False
    in_use = False  # set by the first tensor that asks for a gradient: till then no op looks for one


GRADIENTS = _State()


def keeps_graph() -> bool:
    return GRADIENTS.keeps_graph


def without_gradients(call: Callable[[], _Found]) -> _Found:
    """What the call gives. Ctrl-C at the end of a `with torch.no_grad()` would leave gradients off for good; not here:
    there is no step of Python between the end of the call and what sets them back."""
    before = torch.is_grad_enabled()
    try:
        torch._C._set_grad_enabled(False)
        return call()
    finally:
        torch._C._set_grad_enabled(before)


@contextmanager
def natively() -> Iterator[None]:
    """Leave ops to torch's own derivation, for data in which every device has a piece of its own."""
    before, GRADIENTS.natively = GRADIENTS.natively, True
    try:
        yield
    finally:
        GRADIENTS.natively = before


@contextmanager
def _keeping(retain: bool) -> Iterator[None]:
    before, GRADIENTS.keeps_graph = GRADIENTS.keeps_graph, retain
    try:
        yield
    finally:
        GRADIENTS.keeps_graph = before


def tracks(data: Sequence[Any]) -> bool:
    """Whether one of these values asks for a gradient, and gradients are being taken."""
    return (
        torch.is_grad_enabled()
        and not GRADIENTS.natively
        and any(isinstance(value, torch.Tensor) and value.requires_grad for value in data)
    )


class _Seed(torch.autograd.Function):
    """A scalar whose gradients are given: the way into the graph with gradients of any extents."""

    @staticmethod
    def forward(ctx: Any, seeds: Sequence[torch.Tensor], *values: torch.Tensor) -> torch.Tensor:
        ctx.seeds = seeds
        return torch.zeros(())

    @staticmethod
    def backward(ctx: Any, _: torch.Tensor) -> tuple[Any, ...]:
        return None, *ctx.seeds


def run_backward(values: Sequence[torch.Tensor], seeds: Sequence[torch.Tensor], retain: bool) -> None:
    """Gradients from these values back to every leaf. `seeds` are of the values' shapes, or carried."""
    with torch.enable_grad():
        start = _Seed.apply(list(seeds), *values)
    with _keeping(retain), full_float32(values[0].device):
        start.backward(retain_graph=retain)
