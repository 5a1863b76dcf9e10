"""`Unified`, the class of ops that plan their communication: looks the plan up in a cache, checks the policy, runs it.

A cached plan costs one look-up by the specs and distributions of the operands, and the calls it consists of.
`listening` tells plans to `explain()`; `own_operation` makes the plain ops that only unified ones use: planned, run
and observed as all others, under no name of TT-NN's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import replace
from itertools import count
from typing import TYPE_CHECKING, Any, NamedTuple

from softmesh.arguments import refused
from softmesh.cost.link_costs import Line
from softmesh.cost.mesh_lines import routed_lines
from softmesh.dispatch.call_cache import Call, CallCache
from softmesh.dispatch.cost_rules import flops_per_element
from softmesh.dispatch.definition import Define, Definition
from softmesh.dispatch.entry_point import EntryPoint
from softmesh.dispatch.operation import OPERATIONS, Operation
from softmesh.dispatch.plan import CostRule
from softmesh.dispatch.signature import Signature
from softmesh.distributed import communication_policy
from softmesh.distributed.call_description import CallDescription, ShapeOf, describe_call, describe_whole, tensors_of
from softmesh.distributed.compiled_plan import CompiledPlan
from softmesh.distributed.layout_planner import Plan
from softmesh.distributed.layouts import Extents, mesh_of
from softmesh.distributed.placement_requests import axis_names, request_key
from softmesh.distributed.runnable_plan import Describe, Runnable, SplitOptions, planned
from softmesh.errors import ArgumentError, FabricWarning, MeshError, did_you_mean
from softmesh.fabric import settings
from softmesh.hardware import FabricConfig
from softmesh.kinds import Kind
from softmesh.placement.placements import REPLICATE
from softmesh.runtime import commands
from softmesh.runtime.commands import observed, within
from softmesh.runtime.device import MeshDevice
from softmesh.runtime.fabric_api import configure_while_open
from softmesh.strictness import is_lenient, is_strict, warn
from softmesh.systems.chip import Chip
from softmesh.tensor.tensor import Tensor

if TYPE_CHECKING:
    from softmesh.dispatch.call_form import CallForm

Listener = Callable[[Plan, MeshDevice], None]
LISTENERS: ContextVar[tuple[Listener, ...]] = ContextVar("softmesh_explain", default=())


@contextmanager
def listening(listener: Listener) -> Iterator[None]:
    """Within the block, each unified op tells its plan before it runs."""
    token = LISTENERS.set((*LISTENERS.get(), listener))
    try:
        yield
    finally:
        LISTENERS.reset(token)


_OWN = ("output_topology", "implicit")  # arguments beside those of the plain op
_MAX_PLANS = 4096  # a program that needs more is making up shapes, and starts over
_SAY_IT = (
    "Write these collectives where you want them, place the operands so that none is needed, or allow it: "
    'softmesh.distributed.implicit("allow").'
)


_Found = tuple[Runnable, tuple[int, ...] | None]  # and the order of the operands, where a call names them in another


class Unified(EntryPoint):
    """What `softmesh.distributed.matmul` is: the plain op of that name, on whole values however they are placed."""

    cache: CallCache

    def __init__(
        self,
        plain: str,
        describe: Describe,
        shape_of: ShapeOf,
        spellings: Mapping[str, str] | None = None,
        called: str | None = None,
    ) -> None:
        self.plain: Operation = OPERATIONS[plain]
        short = called or plain.rpartition(".")[2]
        self.name = f"distributed.{short}"
        self.__name__ = self.short_name = short
        self._describe = describe
        self._shape_of = shape_of
        self._signature = self.plain.definition.signature.spelled(spellings or {})
        self._plans: dict[Any, _Found] = {}
        self.cache = CallCache(self._signature, free_floats=False)

    @property
    def python_fully_qualified_name(self) -> str:
        return f"softmesh.{self.name}"

    def __repr__(self) -> str:
        return f"<unified operation softmesh.{self.name}>"

    def docstring(self) -> str:
        return self.plain.description()

    def help_text(self) -> str:
        from softmesh.dispatch.help_text import help_text

        placement = "As `output_topology` asks; without it, where the cheapest plan leaves it."
        return help_text(self, self.plain.definition, placement)

    def call_forms(self) -> list[CallForm]:
        from softmesh.dispatch.call_form import Argument, CallForm

        asked = (Argument("output_topology", object, None), Argument("implicit", str | None, None))
        types = {argument.name: argument.type for form in self.plain.call_forms() for argument in form.arguments}
        forms = [form.without(self.plain.definition.provided) for form in self._signature.call_forms(types)]
        return [CallForm(form.positional, (*form.named, *asked)) for form in forms]

    def result_type(self) -> str:
        return self.plain.result_type()

    def invoke(self, args: tuple[Any, ...], kwargs: dict[str, Any], call: Call | None) -> Any:
        """As the plain op; `output_topology` has a placement for each mesh axis, `implicit` is the policy."""
        output_topology, implicit = kwargs.get("output_topology"), kwargs.get("implicit")
        given = {name: value for name, value in kwargs.items() if name not in _OWN}
        runnable, tensors, device = self.planned(args, given, output_topology)
        if implicit is not None:
            communication_policy.checked_policy(implicit)
        if runnable.inserts:
            self._check_insertion(runnable, communication_policy.checked_policy(implicit), device)
            if not settings.active().is_on and not is_lenient():
                self._configure_fabric(runnable, device)
                runnable, tensors, device = self.planned(args, given, output_topology)
        for listener in LISTENERS.get():
            listener(runnable.plan, device)
        with within(self.name):
            if call is None or observed() or any(t.storage.dist.spread is not None for t in tensors):
                return runnable.run(tensors)
            result, chain = runnable.run_and_record(tensors)
        if chain is not None and device.ranks is None:  # ranks compare the calls inside, one by one
            places = [next(at for at, one in enumerate(call.given) if one is tensor) for tensor in tensors]
            self.cache.keep(call, CompiledPlan(chain, places, _may_run(runnable.inserts, implicit)))
        return result

    def planned(
        self, args: tuple[Any, ...], kwargs: dict[str, Any], request: Any = None
    ) -> tuple[Runnable, list[Tensor], MeshDevice]:
        """The plan for such a call, the tensors that it is for, and their mesh. Nothing is moved."""
        tensors: list[Tensor] = []
        key: list[Any] = []
        for value in args:
            if value.__class__ is Tensor and value.shard_positions is None:  # as _note, without the call
                tensors.append(value)
                key += (value.spec, value.storage.dist)
            else:
                _note(value, tensors, key)
        if kwargs:
            for name, value in kwargs.items():
                key.append(name)
                _note(value, tensors, key)
        device = mesh_of(self.short_name, tensors) if tensors else self._refuse(args)
        key += (device.unique_id, settings.serial)
        if request is not None:
            key += request_key(request, device)
        try:
            found = self._plans.get(tuple(key))
        except TypeError:  # an argument is a list
            key = [_hashable(part) for part in key]
            found = self._plans.get(tuple(key))
        if found is None or (found[0].is_oversplit and not is_lenient()):
            found = self._new(tuple(key), args, kwargs, request, device)
        runnable, order = found
        return runnable, tensors if order is None else [tensors[at] for at in order], device

    def _new(
        self,
        key: Any,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        request: Any,
        device: MeshDevice,
    ) -> _Found:
        bound = self.bound(args, kwargs)
        given = describe_call(self.short_name, self.plain, bound, device, routed_lines(device), self._shape_of)
        runnable = planned(given, self._describe(given), request, device)
        order = self._order(args, kwargs)
        if len(self._plans) >= _MAX_PLANS:
            self._plans.clear()
        found = self._plans[key] = (runnable, None if order == tuple(range(len(order))) else order)
        return found

    def split_options(
        self, whole: list[Any], mesh: Extents, chip: Chip, lines: tuple[Line, ...], l1_limits: Sequence[int] = ()
    ) -> tuple[CallDescription, SplitOptions]:
        """How a call can be split over a mesh that need not be open: its tensors are blank, and replicated.

        `l1_limits` has for each operand and each result the bytes up to which a piece of it is in L1.
        """
        tensors, _ = tensors_of(self.plain, whole)
        layouts = ((REPLICATE,) * len(mesh),) * len(tensors)
        given = describe_whole(self.short_name, self.plain, whole, layouts, mesh, chip, lines, self._shape_of)
        if any(l1_limits):
            specs = [tensor.spec for tensor in tensors] + list(given.results)
            limited = [
                replace(value, form=spec.layout, l1_limit=limit)
                for value, spec, limit in zip((*given.values, *given.made), specs, l1_limits, strict=False)
            ]
            given = replace(given, values=tuple(limited[: len(tensors)]), made=tuple(limited[len(tensors) :]))
        return given, self._describe(given)

    def bound(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Any]:
        """The arguments of the plain op, in its order."""
        given = {name: value for name, value in kwargs.items() if name not in _OWN}
        self._check_names(given)
        return self._signature.bind(args, given)

    def _check_names(self, kwargs: dict[str, Any]) -> None:
        signature = self._signature
        wrong = next((name for name in kwargs if name not in signature.places), None)
        if wrong is not None:
            hint = did_you_mean(wrong, (*signature.places, *_OWN))
            takes = ", ".join((*signature.names, *_OWN))
            raise refused(self.name, f"it has no argument {wrong!r}.{hint} It takes {takes}")

    def _order(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[int, ...]:
        """For each operand of the plain op, which of the call's tensors it is."""
        marks = iter(map(_Mark, count()))
        placed = [_marked(value, marks) for value in args]
        named = {name: _marked(value, marks) for name, value in kwargs.items()}
        signature = self._signature
        bound = signature.bind(tuple(placed), named)
        found: list[Any] = []
        for at in signature.operand_at:
            found += bound[at] if isinstance(bound[at], list) else [bound[at]]
        return tuple(mark.number for mark in found if isinstance(mark, _Mark))

    def _check_insertion(self, runnable: Runnable, allowed: str, device: MeshDevice) -> None:
        """Communication needs leave, which is known before anything is moved."""
        if allowed != "allow":
            inserted = runnable.inserted(axis_names(device))
            communication_policy.apply(allowed, f"{self.name} inserts {inserted}. {_SAY_IT}")

    def _configure_fabric(self, runnable: Runnable, device: MeshDevice) -> None:
        """Whoever asks a unified op for a layout asks for a fabric, too; a plain collective wants it configured."""
        inserted = runnable.inserted(axis_names(device))
        line = "ttnn.set_fabric_config(ttnn.FabricConfig.FABRIC_1D)"
        if is_strict():
            raise MeshError(
                f"Trying to get un-initialized fabric context: {self.name} inserts {inserted}, and no fabric is "
                f"configured. Call {line} before opening the mesh, or compute under softmesh.lenient()."
            )
        configure_while_open(FabricConfig.FABRIC_1D, device)
        warn(
            f"{self.name} inserts {inserted}, and no fabric was configured: softmesh configures "
            f"{FabricConfig.FABRIC_1D} from here on. On a machine you must call {line} before opening the mesh; "
            "SOFTMESH_STRICT=1 asks for it here as well.",
            FabricWarning,
        )

    def _refuse(self, args: tuple[Any, ...]) -> MeshDevice:
        given = ", ".join(type(value).__name__ for value in args) or "nothing"
        raise ArgumentError(
            f"{self.name}(): incompatible function arguments: it needs a ttnn.Tensor, got {given}. "
            "Make one with ttnn.from_torch(..., device=mesh_device)."
        )


def _may_run(inserts: bool, implicit: str | None) -> Callable[[], bool]:
    """Whether nobody wants to hear of a plan like this one today, or of what it inserts."""

    def is_silent() -> bool:
        if commands.observers or LISTENERS.get():
            return False
        return not inserts or communication_policy.checked_policy(implicit) == "allow"

    return is_silent


def _note(value: Any, tensors: list[Tensor], key: list[Any]) -> None:
    """Write down what a plan depends on."""
    if isinstance(value, Tensor):
        tensors.append(value)
        key.append(value.spec)
        key.append(value.storage.dist if value.shard_positions is None else value.view_distribution())
    elif isinstance(value, list | tuple) and any(isinstance(item, Tensor) for item in value):
        key.append(len(value))
        for item in value:
            _note(item, tensors, key)
    else:
        key.append(value.__class__)  # 1, 1.0 and True are equal, and not the same argument; nor are 0.0 and -0.0
        key.append(repr(value) if value.__class__ is float else value)


class _Mark(NamedTuple):
    """Stands for a tensor of the call."""

    number: int


def _marked(value: Any, marks: Iterator[_Mark]) -> Any:
    if isinstance(value, list | tuple):
        return [_marked(item, marks) for item in value]
    return next(marks) if isinstance(value, Tensor) else value


def _hashable(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return tuple(_hashable(item) for item in value)
    try:
        hash(value)
    except TypeError:
        return repr(value)
    return value


def own_operation(
    name: str, kind: Kind, *, cost: CostRule | None = None, controls: str = "", **options: Any
) -> Callable[[Define], Operation]:
    def make(define: Define) -> Operation:
        known_as = f"distributed.{name}"
        signature = Signature(known_as, define, controls.split(), [])
        return Operation(Definition(known_as, kind, define, signature, cost or flops_per_element(1), **options))

    return make
