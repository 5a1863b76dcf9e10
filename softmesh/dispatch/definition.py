"""Everything that makes an op, as one value: what its calls may look like, and what sets it apart from other ops."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch

from softmesh.dispatch.plan import CostRule, Plan
from softmesh.dispatch.signature import BoundCall, Signature, listed
from softmesh.kinds import Kind
from softmesh.runtime.device import MeshDevice
from softmesh.tensor.spec import TensorSpec
from softmesh.tensor.tensor import Tensor
from softmesh.tensor.undefined import mark, propagated, warn_if_undefined

# What a call means for pieces of tensors that nobody wrote. A rule is asked before the call: it warns, and what it
# returns marks the results afterwards.


Marking = Callable[[list[Tensor]], None]
UndefinedRule = Callable[[str, Signature, BoundCall], Marking | None]


def carried_over(op: str, signature: Signature, call: BoundCall) -> Marking | None:
    """Each device reads its own piece: what is undefined in it comes to its result."""
    undefined = propagated(op, operands_read(signature, call))
    if undefined is None:
        return None

    def tell(made: list[Tensor]) -> None:
        for result in made:
            mark(result, undefined)

    return tell


def warned_about(op: str, signature: Signature, call: BoundCall) -> None:
    """Devices read each other's pieces."""
    for tensor in operands_read(signature, call):
        warn_if_undefined(tensor, op)


# Arguments that an op writes to, or uses for what it likes: what they hold before does not count.
_SCRATCH = ("buffer", "scratch", "persistent", "intermediate", "stats", "output", "workspace", "staging")


def operands_read(signature: Signature, call: BoundCall) -> list[Tensor]:
    """The operands that a call reads, of those that not all was written to yet."""
    marks = [tensor.storage.undefined for tensor in call.tensors]
    if not any(mark is not None and mark.ends_with_a_write for mark in marks):
        return call.tensors
    given = ((signature.names[at], listed(call.values[at])) for at in signature.operand_at)
    return [
        tensor
        for name, items in given
        if not any(word in name for word in _SCRATCH)
        for tensor in items
        if isinstance(tensor, Tensor)
    ]


_IN_PLACE = ("input", "tensor", "running")  # how an operand is named that is changed, and not only written to

Define = Callable[..., Any]  # returns a Local; of a collective, an CollectiveSpec
Arguments = tuple[tuple[Any, ...], dict[str, Any]]


class CallPlanner(Protocol):
    def build(self) -> tuple[Plan, tuple[torch.Tensor, ...] | None]: ...


@dataclass(frozen=True)
class Definition:
    name: str
    kind: Kind
    define: Define
    signature: Signature
    cost: CostRule
    precision: str = "float32"  # "native": one torch kernel, which widens bfloat16 inside; "data": values untouched
    needs_tile: bool = False
    floats_only: bool = False
    on_host: bool = False
    writes: tuple[int, ...] = ()  # the operands that the computation changes in place
    # What few ops do otherwise than most:
    planner: Callable[[Definition, BoundCall], CallPlanner] | None = None
    rearrange: Callable[[Signature, tuple[Any, ...], dict[str, Any]], Arguments] | None = None
    check: Callable[[Definition, BoundCall], None] | None = None  # before it is planned
    check_targets: Callable[[Definition, BoundCall], None] | None = None  # beside what all outputs must be
    plan_key: Callable[[BoundCall], list[Any]] | None = None  # what else its plan depends on
    program_key: Callable[[BoundCall, Plan], tuple[Any, ...]] | None = None  # what one program serves
    derive: Callable[[Any, Plan, BoundCall], tuple[torch.Tensor, ...]] | None = None  # with gradients
    present: Callable[[str, Any, dict[str, Any]], Any] | None = None  # what the caller gets, of the results
    off_mesh: str = "Input tensor {letter} must be on device, got storage type: StorageType::HOST."
    reads_other_devices: bool = False
    undefined: UndefinedRule = carried_over
    leaves_undefined: bool = False  # whether there are pieces of its results that it does not write
    writes_all: bool = False  # of what it writes to, it leaves nothing as it was
    is_part: bool = False  # of another op's program: it compiles none of its own
    persistent_output: bool = False  # what it is given to write into is a buffer that serves call after call
    factors: tuple[int, ...] = ()  # of a matrix product: the operands that it multiplies; others are added
    same_as: str = ""  # the op that computes the same, where this is another form of it
    places: str = ""  # the arguments that say where it writes, as Python numbers
    rows_by: str = ""  # the operand that holds the numbers of rows, also as floats
    cuts_columns: bool = False  # into what may be several tensors side by side: queries, keys and values
    joins_columns: bool = False  # of several operands, on each device
    draws: bool = False  # its last operand holds random streams, which advance as it runs
    over_host: Callable[[list[Any]], bool] | None = None  # whether such a call reads back and writes anew
    # memory on the chips that its program keeps, made when the program is
    program_buffers: Callable[[MeshDevice, dict[str, Any]], Sequence[object]] | None = None
    # how many programs there are of it on the chips, for an operand of this spec; one, where it does not say
    program_count: Callable[[MeshDevice, TensorSpec, dict[str, Any]], int] | None = None
    namespace: str = "ttnn"
    # What its calls look like to a reader, where the signature does not tell (see dispatch.call_form):
    results: str = "Tensor"  # the type of what a call returns
    forms: tuple[str, ...] = ()  # other ways to call it, which `rearrange` turns into its own
    provided: tuple[str, ...] = ()  # arguments that `rearrange` adds, and no caller gives

    @property
    def changes_in_place(self) -> bool:
        """Whether it reads what it writes to: `add_` does, an update of a cache writes some of it."""
        names = [self.signature.names[self.signature.operand_at[at]] for at in self.writes]
        return any(name.startswith(_IN_PLACE) for name in names)

    def unwritten(self, call: BoundCall) -> list[Tensor]:
        """The operands that a call reads, of which nothing was written yet."""
        read = operands_read(self.signature, call)
        return [t for t in read if t.storage.undefined is not None and t.storage.undefined.is_unwritten]

    def marking(self, call: BoundCall) -> Marking | None:
        return self.undefined(self.name, self.signature, call)
