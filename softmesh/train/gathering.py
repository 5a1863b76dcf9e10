"""Parameters in pieces, gathered for a forward pass and once more for its backward pass."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from softmesh.autograd.carried import values_of
from softmesh.autograd.function import with_history
from softmesh.autograd.lending import Loan
from softmesh.errors import MeshError
from softmesh.tensor.tensor import Tensor
from softmesh.train.sharding import Piece


class Whole:
    """A parameter as it was gathered from its pieces once."""

    def __init__(self, piece: Piece) -> None:
        self.piece = piece
        self.source = piece.tensor.view_data()
        self.version = self.source._version
        gathered = piece.gathered()
        self.tensor: Tensor | None = gathered  # None while it is away
        self.spec, self.dist = gathered.spec, gathered.view_distribution()

    def is_current(self) -> bool:
        """Whether the pieces are still what they were."""
        return self.piece.tensor.storage.data is self.source and self.source._version == self.version

    def values(self) -> torch.Tensor:
        """Gathered again, if need be."""
        if not self.is_current():
            raise MeshError(
                f"{self.piece.name} was changed between a forward pass and its backward pass, which needs it as it "
                "was: call optimizer.step() behind backward()."
            )
        if self.tensor is None:
            self.tensor = self.piece.gathered()
        return self.tensor.view_data()


class Stay:
    """Whole parameters during one forward pass, and during the backward pass that belongs to it.

    `lends`: they go in between. `done` is called when the backward pass is through with them.
    """

    def __init__(self, wholes: Sequence[Whole], lends: bool, done: Callable[[], None]) -> None:
        self.wholes = wholes
        self._lends, self._done = lends, done
        self._loans: list[Loan] = []
        self._finished: set[int] = set()  # those with a gradient from the backward pass under way

    def parameters(self) -> list[Tensor]:
        """For use in the forward pass: gradients go back from them to the pieces."""
        found = [whole.tensor for whole in self.wholes if whole.tensor is not None]
        if not torch.is_grad_enabled():
            return found
        tracked = [
            _Use.apply(self, at, tensor.view_data(), whole.source)
            for at, (tensor, whole) in enumerate(zip(found, self.wholes, strict=True))
        ]
        if self._lends:
            self._loans = [Loan(data, self) for data in tracked]
        return [with_history(tensor, data) for tensor, data in zip(found, tracked, strict=True)]

    def end_forward(self, still_read: set[int]) -> None:
        """Let go of all, but for the memory that something behind the pass reads."""
        if not _is_going_back():  # a forward pass that is run again for its backward pass: that comes next
            for at in range(len(self._loans)):
                self._take_away(at, still_read)

    def bring_back(self) -> None:
        """Gather all that is away: the backward pass has come to it."""
        for at, (whole, loan) in enumerate(zip(self.wholes, self._loans, strict=True)):
            if loan.is_away and at not in self._finished:
                loan.fill(whole.values())

    def has_gradient(self, at: int) -> None:
        """The backward pass under way needs this parameter no more."""
        if not self._finished:
            torch.autograd.Variable._execution_engine.queue_callback(self._end_backward)
        self._finish(at)

    def _end_backward(self) -> None:
        for at in range(len(self.wholes)):
            self._finish(at)
        self._finished.clear()
        self._done()

    def _finish(self, at: int) -> None:
        self._finished.add(at)
        if self._loans and not self._loans[at].is_away:
            self._take_away(at, set())

    def _take_away(self, at: int, still_read: set[int]) -> None:
        whole, loan = self.wholes[at], self._loans[at]
        whole.tensor = None
        memory = memory_of(loan.data)
        loan.take_away(empties=memory != memory_of(whole.source) and memory not in still_read)


class _Use(torch.autograd.Function):
    """The whole, computed from the pieces."""

    @staticmethod
    def forward(ctx: Any, stay: Stay, at: int, whole: torch.Tensor, pieces: torch.Tensor) -> torch.Tensor:
        ctx.stay, ctx.at = stay, at
        return whole.view_as(whole)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[Any, ...]:
        whole = ctx.stay.wholes[ctx.at]
        ctx.stay.has_gradient(ctx.at)
        return None, None, None, whole.piece.mean_gradient(values_of(gradient), whole.dist, whole.spec)


def memory_of(data: torch.Tensor) -> int:
    return int(data.untyped_storage()._cdata)


def memories(found: Any) -> set[int]:
    """The memory of all tensors in a result, or in the attributes of a module."""
    if isinstance(found, Tensor):
        data = found.storage.data
        return set() if data is None else {memory_of(data)}
    if isinstance(found, dict):
        found = list(found.values())
    return set().union(*map(memories, found)) if isinstance(found, list | tuple) else set()


def _is_going_back() -> bool:
    return torch._C._current_graph_task_id() != -1
