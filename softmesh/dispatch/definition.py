"""Everything that makes an op, as one value: what its calls may look like, and what sets it apart from other ops."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch

from softmesh.dispatch.plan import CostRule, Plan
from softmesh.dispatch.signature import BoundCall, Signature, listed
from softmesh.runtime.device import MeshDevice
from softmesh.tensor.dtype import Layout
from softmesh.tensor.tensor import Tensor
from softmesh.tensor.undefined import mark, propagated, warn_if_undefined

# What a call means for pieces of tensors that nobody wrote. A rule is asked before the call: it warns, and what it
# returns marks the results afterwards.


Marking = Callable[[list[Tensor]], None]
UndefinedRule = Callable[[str, Signature, BoundCall], Marking | None]


def carried_over(op: str, signature: Signature, call: BoundCall) -> Marking | None:
    """Each device reads its own piece: what is undefined in it comes to its result."""
    undefined = propagated(op, _read(signature, call))
    if undefined is None:
        return None

    def tell(made: list[Tensor]) -> None:
        for result in made:
            mark(result, undefined)

    return tell


def warned_about(op: str, signature: Signature, call: BoundCall) -> None:
    """Devices read each other's pieces."""
    for tensor in _read(signature, call):
        warn_if_undefined(tensor, op)


# Arguments that an op writes to, or uses for what it likes: what they hold before does not count.
_SCRATCH = ("buffer", "scratch", "persistent", "intermediate", "stats", "output", "workspace", "staging")


def _read(signature: Signature, call: BoundCall) -> list[Tensor]:
    """The operands that a call reads, of those that nothing was written to yet."""
    if not any(t.storage.undefined is not None and t.storage.undefined.is_unwritten for t in call.tensors):
        return call.tensors
    given = ((signature.names[at], listed(call.values[at])) for at in signature.operand_at)
    return [
        tensor
        for name, items in given
        if not any(word in name for word in _SCRATCH)
        for tensor in items
        if isinstance(tensor, Tensor)
    ]


Define = Callable[..., Any]  # returns a Local; of a collective, an CollectiveSpec
Arguments = tuple[tuple[Any, ...], dict[str, Any]]


class CallPlanner(Protocol):
    def build(self) -> tuple[Plan, tuple[torch.Tensor, ...] | None]: ...


@dataclass(frozen=True)
class Definition:
    name: str
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
    is_part: bool = False  # of another op's program: it compiles none of its own
    draws: bool = False  # its last operand holds random streams, which advance as it runs
    over_host: Callable[[list[Any]], bool] | None = None  # whether such a call reads back and writes anew
    # memory on the chips that its program keeps, made when the program is
    program_buffers: Callable[[MeshDevice, dict[str, Any]], Sequence[object]] | None = None
    namespace: str = "ttnn"
    # What its calls look like to a reader, where the signature does not tell (see dispatch.call_form):
    results: str = "Tensor"  # the type of what a call returns
    forms: tuple[str, ...] = ()  # other ways to call it, which `rearrange` turns into its own
    provided: tuple[str, ...] = ()  # arguments that `rearrange` adds, and no caller gives

    def marking(self, call: BoundCall) -> Marking | None:
        return self.undefined(self.name, self.signature, call)


def elementwise_program(call: BoundCall, plan: Plan) -> tuple[Any, ...]:
    """Kinds of operands and result, and the other arguments; numbers in place of tensors are handed to the program."""
    return _program(call, plan, ())


def scalar_free_program(call: BoundCall, plan: Plan) -> tuple[Any, ...]:
    """As `elementwise_program`, for ops whose numbers are handed to the program at each launch (addcmul's value)."""
    return _program(call, plan, [at for at in call.signature.attribute_at if isinstance(call.values[at], float | int)])


def scalar_free_program_of_shapes(call: BoundCall, plan: Plan) -> tuple[Any, ...]:
    """As `scalar_free_program`, for ops that have a program for each shape (steps of optimizers)."""
    return (*scalar_free_program(call, plan), *(tuple(tensor.shape) for tensor in call.tensors))


def _program(call: BoundCall, plan: Plan, left_out: Sequence[int]) -> tuple[Any, ...]:
    made = plan.outputs[0].spec
    others = [call.values[at] for at in call.signature.key_at if at not in (*_controls(call), *left_out)]
    key = [made.dtype, made.memory_config, *map(_form, call.tensors), _broadcast(call.tensors), repr(others)]
    return (*key, *(type(item) for item in call.data if not hasattr(item, "shape")))


def _controls(call: BoundCall) -> tuple[int | None, int | None]:
    """They show in the result."""
    return call.signature.dtype_at, call.signature.memory_config_at


def _form(tensor: Tensor) -> tuple[Any, ...]:
    spec = tensor.spec
    rows = tuple(spec.padded_shape) if spec.layout is Layout.ROW_MAJOR else None
    return spec.dtype, spec.layout, spec.memory_config, rows


def _broadcast(tensors: list[Tensor]) -> tuple[tuple[bool, ...], ...]:
    """For the last two dims, which of the operands have one row or column to repeat."""
    shapes = [(1, 1, *tensor.shape)[-2:] for tensor in tensors]
    return tuple(
        tuple(shape[d] == 1 for shape in shapes) if len({shape[d] for shape in shapes}) > 1 else () for d in range(2)
    )
