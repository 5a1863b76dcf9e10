"""Everything that makes an op, as one value: what its calls may look like, and what sets it apart from other ops."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import torch

from softmesh.dispatch.part_work import OF_KIND, UNNOTICED, PartWork
from softmesh.dispatch.plan import CostRule, Local, Plan
from softmesh.dispatch.roles import READ, WRITTEN, WRITTEN_REMOTELY, Role
from softmesh.dispatch.signature import BoundCall, Signature, listed
from softmesh.kinds import Kind
from softmesh.placement import rules
from softmesh.placement.placements import sentence_of
from softmesh.runtime.device import MeshDevice
from softmesh.tensor.spec import TensorSpec
from softmesh.tensor.tensor import Tensor

AfterRunning = Callable[[list[Tensor]], None]  # called with the results


class UndefinedRule(Protocol):
    """What a call means for pieces of tensors that nobody wrote: it warns, and what it returns marks the results."""

    def __call__(self, op: Definition, call: BoundCall, /) -> AfterRunning | None: ...


# Where an op of such a kind places its results, unless its definition says otherwise.
_RULES: dict[Kind, object] = {
    **dict.fromkeys((Kind.COMPARISON, Kind.ELEMENTWISE, Kind.OPTIMIZER, Kind.RANDOM), rules.elementwise),
    **dict.fromkeys((Kind.COPY, Kind.LAYOUT, Kind.RELOCATION), rules.keeping),
    Kind.PRODUCT: rules.matmul,
    Kind.REDUCTION: rules.reducing,
    Kind.RESHAPE: rules.reshaping,
}

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
    rule: object = None  # the placement rule of all its calls, or the function that makes a rule for each
    roles: Mapping[str, Role] = field(default_factory=dict)  # of arguments; those that are not here are read
    ignores: Callable[[Mapping[str, Any]], Collection[str]] | None = None  # what such a call does not read
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
    undefined: UndefinedRule | None = None  # None: each device reads its own piece
    leaves_undefined: bool = False  # whether there are pieces of its results that it does not write
    is_part: bool = False  # of another op's program: it compiles none of its own
    factors: tuple[int, ...] = ()  # of a matrix product: the operands that it multiplies; others are added
    gradient: Callable[..., Any] | None = None  # in ops: see softmesh.ops.gradients
    torch: str = ""  # torch's op of the same operands, by its name there
    mirrored: str = ""  # the op that takes its two operands the other way round
    native: str = ""  # TT-NN's device operation, where its name does not follow from that of the op
    same_as: str = ""  # the op that computes the same, where this is another form of it
    places: str = ""  # the arguments that say where it writes, as Python numbers
    rows_by: str = ""  # the operand that holds the numbers of rows, also as floats
    part_work: PartWork | None = None  # where it does not follow from the kind
    statistics: int = 0  # columns that it reads of each device that a row is split over
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

    # What follows from the roles:
    writes: tuple[int, ...] = field(init=False)  # the operands that the computation writes to in place
    persistent_output: bool = field(init=False)  # it is given a buffer that serves call after call

    written_remotely: tuple[str, ...] = field(init=False)  # arguments that other devices write when they get there

    def __post_init__(self) -> None:
        if self.rule is None:
            object.__setattr__(self, "rule", _RULES.get(self.kind))
        signature = self.signature
        unknown = [name for name in self.roles if name not in signature.places and name != signature.output_name]
        if unknown:
            raise AssertionError(f"{self.name} states a role of {', '.join(unknown)}, which it does not take")
        has_outputs = signature.output_at is not None  # which are written as a result is
        written = {Role.UPDATES} if has_outputs else WRITTEN
        of_operands = [self.role(name) for name in signature.operand_names]
        object.__setattr__(self, "writes", tuple(at for at, role in enumerate(of_operands) if role in written))
        remote = [name for name, role in self.roles.items() if role in WRITTEN_REMOTELY and self.reads_other_devices]
        object.__setattr__(self, "written_remotely", tuple(remote))
        object.__setattr__(self, "persistent_output", Role.RECEIVES in self.roles.values())

    def local(self, arguments: Mapping[str, Any]) -> Local:
        """Describe one call; its rule is that of the op where the description has none."""
        local: Local = self.define(**arguments)
        if local.rule is not rules.STATED:
            return local
        assert isinstance(self.rule, rules.Rule), f"{self.name} has no rule"
        return replace(local, rule=self.rule)

    @property
    def placement(self) -> str | None:
        """Where its results are placed, in words."""
        return sentence_of(self.define) or sentence_of(self.rule)

    def role(self, argument: str) -> Role:
        return self.roles.get(argument, Role.READS)

    @property
    def along_a_split(self) -> PartWork:
        """The work of each device where the dim that the op works along is split."""
        return self.part_work or OF_KIND.get(self.kind, UNNOTICED)

    @property
    def is_matmul(self) -> bool:
        """True for a product as torch's, either factor of which may be transposed."""
        return self.factors == (0, 1) and "transpose_a" in self.signature.places

    @property
    def changes_in_place(self) -> bool:
        """True if it reads what it writes to: `add_` does, a write into a cache does not."""
        return Role.UPDATES in self.roles.values()

    def read(self, call: BoundCall) -> list[Tensor]:
        """The tensors among the operands that a call reads."""
        ignored = () if self.ignores is None else self.ignores(call.named)
        return [
            item
            for name, at in zip(self.signature.operand_names, self.signature.operand_at, strict=True)
            if self.role(name) in READ and name not in ignored
            for item in listed(call.values[at])
            if isinstance(item, Tensor)
        ]
