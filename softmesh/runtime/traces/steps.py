"""The steps of a trace: reads of memories, torch calls that compute new values, and calls for their effect.

A memory is anything with an attribute `data` (a tensor's storage). A slot is a memory as the trace knows
it: one that was there before (external), or one that a step makes.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple, Protocol

import torch
import torch.nn.functional as F

from softmesh.callsite import CallSite, RawSite
from softmesh.runtime.memory.allocations import Span

# Torch calls that can write their result over their first operand. Every call listed here allocates its result and
# returns no view of an operand, so what it made belongs to the trace for as long as only such calls read it. A call
# that may return a view (a reshape) must never be listed.


_Call = Callable[..., Any]


class Forms(NamedTuple):
    """One computation: as a torch function, and writing over its first operand."""

    out_of_place: _Call
    in_place: _Call


FORMS: dict[_Call, Forms] = {
    operator.add: Forms(torch.add, torch.Tensor.add_),
    operator.sub: Forms(torch.sub, torch.Tensor.sub_),
    operator.mul: Forms(torch.mul, torch.Tensor.mul_),
    torch.abs: Forms(torch.abs, torch.abs_),
    torch.cos: Forms(torch.cos, torch.cos_),
    torch.exp: Forms(torch.exp, torch.exp_),
    torch.log: Forms(torch.log, torch.log_),
    torch.neg: Forms(torch.neg, torch.neg_),
    torch.reciprocal: Forms(torch.reciprocal, torch.reciprocal_),
    torch.relu: Forms(torch.relu, torch.relu_),
    torch.sigmoid: Forms(torch.sigmoid, torch.sigmoid_),
    torch.sin: Forms(torch.sin, torch.sin_),
    torch.sqrt: Forms(torch.sqrt, torch.sqrt_),
    torch.square: Forms(torch.square, torch.square_),
    torch.tanh: Forms(torch.tanh, torch.tanh_),
    F.silu: Forms(F.silu, partial(F.silu, inplace=True)),
}


class Memory(Protocol):
    data: torch.Tensor | None
    dist: Any
    freed: RawSite | None

    def span(self) -> Span | None: ...

    def tell_sharers(self) -> None: ...

    def await_replay(self, captured: CallSite) -> None: ...

    def replayed(self) -> None: ...

    def warn_if_unwritten(self, doing: str) -> None: ...

    def warn_if_unreplayed(self, doing: str) -> None: ...

    def warn_if_overwritten(self, doing: str) -> None: ...


@dataclass(frozen=True)
class Read:
    """The present value of a slot, as it is or prepared first."""

    slot: int
    prepare: Callable[[torch.Tensor], torch.Tensor] | None = None


@dataclass(frozen=True)
class Constant:
    value: Any


@dataclass(frozen=True)
class View:
    """A value that is looked up anew: some devices' part of a memory."""

    slot: int
    look: Callable[[], torch.Tensor]


Source = Read | Constant | View


Lookup = Callable[[int], Memory]  # the memory of a slot
Again = Callable[[Lookup], Sequence[Memory]]  # the call planned anew, for memories as they are distributed now


@dataclass(frozen=True)
class Compute:
    """`writes` get the results of the call, each finished by a function of its own (None: as it is)."""

    call: Callable[..., Any]
    reads: tuple[Source, ...]
    writes: tuple[int, ...]
    finishes: tuple[Callable[[torch.Tensor], torch.Tensor] | None, ...]
    is_several: bool
    fits_first: bool = False  # the result has the shape and the dtype of the first operand
    again: Again | None = None  # makes new memories for `writes`
    name: str = ""  # of the op

    @property
    def forms(self) -> Forms | None:
        """How else the call can be made, where it takes values as they are and its result is left as it is."""
        if any(self.finishes) or not all(isinstance(one, Constant) or _is_plain(one) for one in self.reads):
            return None
        return FORMS.get(self.call) if self.reads and _is_plain(self.reads[0]) else None


@dataclass(frozen=True)
class Act:
    """A call for its effect on memories, which are looked at again afterwards.

    With `by_address` it finds what it reads and writes by itself: a kernel does.
    """

    call: Callable[..., object]
    reads: tuple[Source, ...]
    changes: tuple[int, ...]
    by_address: bool = False
    again: Again | None = None  # changes the memories itself
    name: str = ""
    is_torch: bool = False  # it does nothing but launch kernels of torch


Step = Compute | Act


def _is_plain(source: Source) -> bool:
    return isinstance(source, Read) and source.prepare is None
