"""Everything that makes an op, as one value: what its calls may look like, and what sets it apart from other ops."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch

from softmesh.dispatch.bound_call import BoundCall
from softmesh.dispatch.plan import CostRule, Plan
from softmesh.dispatch.signature import Signature
from softmesh.dispatch.undefined_values import Marking, UndefinedRule, carried_over
from softmesh.runtime.device import MeshDevice
from softmesh.tensor.spec import TensorSpec

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

    def marking(self, call: BoundCall) -> Marking | None:
        return self.undefined(self.name, self.signature, call)
