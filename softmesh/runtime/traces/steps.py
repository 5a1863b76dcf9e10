"""What a trace is made of: values of memories, and the calls that make one from others.

A memory is anything with an attribute `data` (a tensor's storage). A slot is a memory as the trace knows
it: one that was there before (external), or one that a step makes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import torch

from softmesh.callsite import RawSite
from softmesh.runtime.memory.span import Span
from softmesh.runtime.traces.in_place import FORMS, Forms


class Memory(Protocol):
    data: torch.Tensor | None
    dist: Any
    freed: RawSite | None

    def span(self) -> Span | None: ...


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


@dataclass(frozen=True)
class Compute:
    """`writes` get the results of the call, each finished by a function of its own (None: as it is)."""

    call: Callable[..., Any]
    reads: tuple[Source, ...]
    writes: tuple[int, ...]
    finishes: tuple[Callable[[torch.Tensor], torch.Tensor] | None, ...]
    is_several: bool
    fits_first: bool = False  # the result has the shape and the dtype of the first operand

    @property
    def forms(self) -> Forms | None:
        """How else the call can be made, where it takes values as they are and its result is left as it is."""
        if any(self.finishes) or not all(isinstance(one, Constant) or _is_plain(one) for one in self.reads):
            return None
        return FORMS.get(self.call) if _is_plain(self.reads[0]) else None


@dataclass(frozen=True)
class Act:
    """A call for its effect on memories, which are looked at again afterwards.

    With `by_address` it finds what it reads and writes by itself: a kernel does.
    """

    call: Callable[..., object]
    reads: tuple[Source, ...]
    changes: tuple[int, ...]
    by_address: bool = False


Step = Compute | Act


def _is_plain(source: Source) -> bool:
    return isinstance(source, Read) and source.prepare is None
