"""Operations: ops that are planned from a definition. One op is its name, its local computation, its placement rule
and its cost.

An op is defined by a function with TT-NN's parameter names. The function sees `Operand`s in place of
tensors (no values, no mesh), checks its arguments and returns a `Local`: a function of torch tensors
that acts on the trailing dims and lets whatever leads broadcast, and the rule for its placements.
That is all SPMD takes.

    @operation(kind=Kind.NORM, tuning="compute_kernel_config", cost=flops_per_element(5))
    def softmax(input_tensor: Operand, dim: int = -1, *, numeric_stable: bool = True) -> Local:
        at = input_tensor.from_end(dim)
        return Local(lambda x: torch.softmax(x, at), rules.within(at))
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any
from weakref import ref

import torch

from softmesh.arguments import described, refused
from softmesh.cores import CoreRangeSet
from softmesh.dispatch.call_cache import Call, CallCache, bound_values, compiled, stored, tell
from softmesh.dispatch.cost_rules import flops_per_element
from softmesh.dispatch.definition import AfterRunning, Define, Definition
from softmesh.dispatch.derivatives import differentiated
from softmesh.dispatch.diagnosis_hooks import HOOKS, PlannedCall
from softmesh.dispatch.entry_point import EntryPoint
from softmesh.dispatch.plan import CostRule, Plan
from softmesh.dispatch.planner import Planner
from softmesh.dispatch.roles import Role, take_roles, with_role
from softmesh.dispatch.signature import BoundCall, Signature, listed
from softmesh.dispatch.trace_steps import check_compiled, planned_anew, record_result, record_writing
from softmesh.errors import ArgumentError, MeshError
from softmesh.hardware.enums import BufferType
from softmesh.kinds import Kind
from softmesh.placement.distribution import Distribution
from softmesh.runtime import commands
from softmesh.runtime.device import MeshDevice
from softmesh.runtime.grad_mode import GRADIENTS, tracks, without_gradients
from softmesh.runtime.queues.operation_ids import LAUNCHED
from softmesh.runtime.queues.queue_id import chosen_queue, current_queue
from softmesh.runtime.traces.recording import Recording
from softmesh.runtime.traces.trace import recording_on
from softmesh.strictness import doubts_are_heard, is_strict
from softmesh.tensor.persistent_results import (
    handed_out,
    note_overwritten,
    recorded_out,
)
from softmesh.tensor.storage import Storage
from softmesh.tensor.tensor import Tensor
from softmesh.tensor.undefined import is_unwritten

if TYPE_CHECKING:
    from softmesh.dispatch.call_form import CallForm

_ONE_STEP = flops_per_element(1)
_MAX_PLANS = 4096  # per op: a program that needs more is making up shapes, and starts over
OPERATIONS: dict[str, Operation] = {}


class Operation(EntryPoint):
    """An op that is planned: once for operands of given specs and distributions, then run by its plan."""

    cache: CallCache
    may_replay = True  # a definition sees neither values nor files, and what it plans computes on torch tensors

    def __init__(self, definition: Definition) -> None:
        self.definition = definition
        self.name = definition.name
        self.reads_other_devices = definition.reads_other_devices
        self.__name__ = self.python_fully_qualified_name
        self._signature = definition.signature
        self._plans: dict[tuple[Any, ...], Plan] = {}
        self._programs: dict[tuple[Any, ...], object] = {}
        self._others: dict[type, Callable[..., Any]] = {}
        self.cache = CallCache(definition.signature, free_floats=definition.rearrange is None)

    @property
    def python_fully_qualified_name(self) -> str:
        return f"{self.definition.namespace}.{self.name}"

    def inspected_signature(self) -> inspect.Signature | None:
        return self._signature.inspected()

    def docstring(self) -> str | None:
        return self.definition.define.__doc__

    def help_text(self) -> str:
        from softmesh.dispatch.help_text import help_text

        return help_text(self, self.definition)

    def call_forms(self) -> list[CallForm]:
        from softmesh.dispatch.call_form import forms_of

        return forms_of(self.definition)

    def result_type(self) -> str:
        from softmesh.dispatch.call_form import result_of

        return result_of(self.definition)

    def takes(self, name: str) -> bool:
        return name in self._signature.places

    def forget_plans(self) -> None:
        self._plans.clear()
        self.cache.clear()

    def take_also(self, kind: type, function: Callable[..., Any]) -> None:
        """Calls with an argument of this kind are calls of the function: another op under the same name."""
        self._others[kind] = function

    def invoke(self, args: tuple[Any, ...], kwargs: dict[str, Any], call: Call | None) -> Any:
        if self._others:
            for value in (*args, *kwargs.values()):
                if type(value) in self._others:
                    return self._others[type(value)](*args, **kwargs)
        bound = BoundCall(self._signature, bound_values(self.definition, args, kwargs))
        device = self._check(bound)
        shared = None
        if device is not None and device.ranks is not None and self.definition.reads_other_devices:
            shared = HOOKS.tell_ranks(self.definition, bound, device)
        plan, made = self._run(bound, device)
        if bound.target is not None or self.definition.writes:
            made = self._handed_out(bound, made)
        if call is not None:
            known = compiled(self.definition, plan, bound, call, self.cache, args, kwargs, shared)
            if known is not None and not is_strict():  # which looks at the numbers of each call
                self.cache.keep(call, known)
        result = made[0] if plan.container is None else plan.container(made)
        present = self.definition.present
        return result if present is None else present(self.name, result, bound.named)

    def explained(self, error: ArgumentError, args: tuple[Any, ...], kwargs: dict[str, Any]) -> ArgumentError:
        return HOOKS.explained(self.__name__, self._signature, error, args, kwargs)

    def _run(self, bound: BoundCall, device: MeshDevice | None) -> tuple[Plan, list[Tensor]]:
        """Plan the call, or find its plan, and run it."""
        definition = self.definition
        is_tracked = GRADIENTS.in_use and tracks(bound.data)
        plan, results = without_gradients(lambda: self._planned(bound)) if is_tracked else self._planned(bound)
        recording = None
        if device is not None and device.captures.recordings:
            recording = recording_on(device, self._queue(bound.values))
        call = PlannedCall(definition, plan, bound, recording, is_tracked, self.run_in_place)
        listeners: Sequence[AfterRunning] = ()
        if bound.is_marked or definition.leaves_undefined or plan.problem or plan.remarks or doubts_are_heard():
            listeners = HOOKS.after_planning(call)
        if device is not None and not plan.is_view and plan.program is not None:  # otherwise nothing runs on a chip
            self._launch(device, plan, bound, recording)
        made = self._computed(call, results)
        for listener in listeners:
            listener(made)
        if commands.observers:
            tell(definition, plan, bound.tensors, made, device, self._queue(bound.values), lambda: bound.values)
        return plan, made

    def _computed(self, call: PlannedCall, results: tuple[torch.Tensor, ...] | None) -> list[Tensor]:
        """The tensors that the call makes or writes to; `results` are those of a plan that is new."""
        definition, plan, bound, recording = call.definition, call.plan, call.bound, call.recording
        tensors, data = bound.tensors, bound.data
        if call.is_tracked:
            self._refuse_untracked(recording, bound.target)
            derive = definition.derive
            derived = differentiated(plan, data) if derive is None else derive(self, plan, bound)
            return stored(plan, derived, tensors[0])
        if recording is not None:
            return self._run_recorded(recording, plan, bound)
        if definition.writes:
            return self.run_in_place(plan, [tensors[at] for at in definition.writes], data)
        return stored(plan, plan.run(data) if results is None else results, tensors[0], bound.target)

    def _planned(self, bound: BoundCall) -> tuple[Plan, tuple[torch.Tensor, ...] | None]:
        """The plan for these specs; a new one comes with the results of its first run."""
        definition = self.definition
        if definition.check is not None:
            definition.check(definition, bound)
        key = bound.plan_key(() if definition.plan_key is None else definition.plan_key(bound))
        plan = self._plans.get(key)
        if plan is not None:
            return plan, None
        planner = definition.planner or Planner
        plan, results = planner(definition, bound).build()
        if len(self._plans) >= _MAX_PLANS:
            self.forget_plans()
            self._programs.clear()
        self._plans[key] = plan
        form = tuple(part for part in key if not isinstance(part, Distribution))
        if definition.program_key is not None:
            form = definition.program_key(bound, plan)
        plan.program = None if definition.is_part else self._programs.setdefault(form, object())
        return plan, results

    def _handed_out(self, bound: BoundCall, made: list[Tensor]) -> list[Tensor]:
        """The tensors that were written to, as results; in a persistent buffer each call has one of its own."""
        for tensor in made:
            tensor.handed_on()
        if bound.target is None:
            return made
        device, is_buffer = bound.device, self.definition.persistent_output
        if device is not None and device.captures.recordings:
            recording = recording_on(device, self._queue(bound.values)) if is_buffer else None
            if recording is None:
                return made
            results = [recorded_out(tensor, self.name) for tensor in made]
            recording.renewals += [renew for _, renew in results]
            return [tensor for tensor, _ in results]
        if is_buffer:
            return [handed_out(tensor, self.name) for tensor in made]
        for tensor in made:
            if tensor.storage.notes is not None:
                note_overwritten(tensor, self.name)
        return made

    # -- what a call must meet -------------------------------------------------------------------

    def _check(self, bound: BoundCall) -> MeshDevice | None:
        """All operands live, on one open device (or on the host, for the few ops that work there)."""
        tensors = bound.tensors
        if not tensors:
            bound.refuse_without_tensor(self.name)
        device = bound.device
        for tensor in tensors:
            storage = tensor.storage
            if storage.data is None:
                tensor.check_allocated(self.name)
            if storage.device is not device:
                self._refuse_devices(tensors)
        if device is None:
            if not self.definition.on_host:
                self._refuse_devices(tensors)
        elif device.closed:
            device.check_open(self.name)
        if bound.target is not None:
            self._check_targets(bound, device)
        return device

    def _check_targets(self, bound: BoundCall, device: MeshDevice | None) -> None:
        if self.definition.check_targets is not None:
            self.definition.check_targets(self.definition, bound)
        for target in bound.targets or [None]:
            if not isinstance(target, Tensor):
                raise refused(self.name, f"the output tensor must be a ttnn.Tensor, got {described(target)}")
            target.check_allocated(f"{self.name} (output tensor)")
            if target.storage.device is not device:
                self._refuse_devices([*bound.tensors, target])

    def _refuse_devices(self, tensors: list[Tensor]) -> None:
        where = ", ".join(f"{tensor.device() or 'the host'}" for tensor in tensors)
        on_host = [i for i, tensor in enumerate(tensors) if tensor.storage.device is None]
        if on_host:
            said = self.definition.off_mesh.format(letter=chr(ord("A") + on_host[0]))
            got = "a tensor" if len(tensors) == 1 else "operands"
            raise MeshError(
                f"{said} {self.name} got {got} on {where}. Device Operations expect device tensors as inputs: move to "
                "the mesh with ttnn.to_device(tensor, mesh_device)."
            )
        ids = [device.id() for tensor in tensors if (device := tensor.device()) is not None]
        raise MeshError(
            f"Operands to eltwise binary need to be on the same device! {self.name} got operands on {where} "
            f"(mesh ids {ids}): bring one over with ttnn.to_device(ttnn.from_device(tensor), mesh_device)."
        )

    def _refuse_untracked(self, recording: Recording | None, target: Any) -> None:
        """What cannot be done while an operand asks for a gradient."""
        if recording is None and target is None and not self.definition.writes:
            return
        what = "writing in place" if recording is None else "recording a trace"
        raise MeshError(
            f"{self.name}: an operand requires a gradient, and {what} would lose the way back to it. "
            "Compute under softmesh.train.no_grad(), or without the output tensor."
        )

    # -- how a plan runs -------------------------------------------------------------------------

    def _launch(self, device: MeshDevice, plan: Plan, bound: BoundCall, recording: Recording | None) -> None:
        """Count the program, and its launch unless a trace records it."""
        values = bound.values
        if recording is not None:
            check_compiled(recording, self.name, plan.program in device.program_cache)
        if plan.program not in device.program_cache:
            self._note_programs(device, plan, values)
        if not device.sub_devices.active.is_default:
            device.sub_devices.check_one(self.name, _shard_grids([*bound.tensors, *bound.targets]))
        if recording is None:
            at = self._signature.queue_at
            device.note_launch(None if at is None else values[at])
        else:
            LAUNCHED.total += 1

    def _note_programs(self, device: MeshDevice, plan: Plan, values: list[Any]) -> None:
        """The program of the op, those of its other parts, and the memory that they keep."""
        definition, given = self.definition, self._signature.named(values, range(len(values)))
        device.note_program(plan.program)
        if definition.program_count is not None:
            for part in range(1, definition.program_count(device, values[0].spec, given)):
                device.note_program((plan.program, part))
        if definition.program_buffers is not None and plan.program in device.program_cache:
            device.program_buffers += definition.program_buffers(device, given)

    def run_in_place(self, plan: Plan, targets: list[Tensor], data: list[Any]) -> list[Tensor]:
        """The computation changes the data of some operands, which are given memory of their own first."""
        writes = self.definition.writes
        dists = [output.dist for output in plan.outputs]
        if all(t.shard_positions is None and t.storage.dist is dist for t, dist in zip(targets, dists, strict=True)):
            for at, target in zip(writes, targets, strict=True):
                data[at] = target.storage.writable()
            plan.run(data)
            for target in targets:
                target.storage.tell_sharers()
            return targets
        prepared = [v if f is None else f(v) for f, v in zip(plan.adapts, data, strict=True)]
        for at, dist in zip(writes, dists, strict=True):
            values = prepared[at]
            prepared[at] = values.expand(*dist.extents, *values.shape[dist.lead :]).clone()
        results = plan.compute(*prepared)
        for target, result, dist in zip(targets, listed(results), dists, strict=True):
            target.overwrite(result, dist)
        return targets

    def _run_recorded(self, recording: Recording, plan: Plan, bound: BoundCall) -> list[Tensor]:
        """Run it, and make it a step of the trace that is being captured."""
        tensors, data, writes = bound.tensors, bound.data, self.definition.writes
        if self.definition.draws and not writes:
            recording.save_before_write(tensors[-1].storage)
            data[-1] = tensors[-1].view_data()
        if bound.target is None and not writes:
            made = stored(plan, plan.run(data), tensors[0])
            again = planned_anew(recording, bound.values, self._made_anew)
            record_result(recording, plan, tensors, data, made, again, self.name)
            return made
        targets = [tensors[at] for at in writes] or bound.targets

        def run(values: list[Any]) -> object:
            if writes:
                return self.run_in_place(plan, targets, values)
            return stored(plan, plan.run(values), tensors[0], targets)

        recording.first_written += [ref(written.storage) for written in targets if is_unwritten(written)]
        for written in targets:
            for memory in written.storage.sharers():
                recording.save_before_write(memory)
        again = planned_anew(recording, bound.values, self._written_anew)
        record_writing(recording, run, tensors, data, targets, again, self.name)
        run(list(data))
        return targets

    def _made_anew(self, values: list[Any]) -> list[Storage]:
        """The results of a recorded call, for operands as they are distributed now; they take no memory."""
        bound = BoundCall(self._signature, values)
        plan, results = self._planned(bound)
        made = plan.run(bound.data) if results is None else results
        return [
            Storage(value, output.dist, bound.device, output.spec)
            for value, output in zip(made, plan.outputs, strict=True)
        ]

    def _written_anew(self, values: list[Any]) -> list[Storage]:
        """A recorded call that writes to tensors, for operands as they are distributed now."""
        bound, writes = BoundCall(self._signature, values), self.definition.writes
        plan, results = self._planned(bound)
        if writes:
            written = self.run_in_place(plan, [bound.tensors[at] for at in writes], bound.data)
        else:
            made = plan.run(bound.data) if results is None else results
            written = stored(plan, made, bound.tensors[0], bound.targets)
        return [tensor.storage for tensor in written]

    def _queue(self, values: list[Any]) -> int:
        at = self._signature.queue_at
        given = None if at is None else values[at]
        return current_queue() if given is None else chosen_queue(self.name, given)


def _shard_grids(tensors: Sequence[object]) -> Iterator[CoreRangeSet]:
    """The cores that hold shards in L1, on which an op's kernels run."""
    for tensor in tensors:
        config = tensor.memory_config() if isinstance(tensor, Tensor) else None
        if config is not None and config.shard_spec is not None and config.buffer_type is BufferType.L1:
            yield config.shard_spec.grid


def registered(op: Operation, aliases: Sequence[str] = ()) -> Operation:
    """The op, under its name and these in the table of all ops."""
    for spelling in (op.name, *aliases):
        if spelling in OPERATIONS:
            raise AssertionError(f"the operation {spelling} is registered twice")
        OPERATIONS[spelling] = op
    return op


def operation(
    name: str | None = None,
    *,
    kind: Kind,
    cost: CostRule = _ONE_STEP,
    controls: str = "memory_config dtype output_tensor queue_id",
    tuning: str = "",
    positional: str = "",
    aliases: Sequence[str] = (),
    argument_aliases: Mapping[str, str] | None = None,
    operation_class: Callable[[Definition], Operation] = Operation,
    **options: Any,
) -> Callable[[Define], Operation]:
    """Register the op that the decorated function defines, under its own name or `name`.

    The role of an argument that is not read is stated by `writes="output_tensor"`, `patches="cache"`, `updates=...`
    and so on (see dispatch.roles). No number may stand for an operand that is written in place.
    `argument_aliases` has for each other name of an argument the one that the definition knows.
    """

    roles = take_roles(options)

    def register(define: Define) -> Operation:
        known_as = name or define.__name__
        signature = Signature(known_as, define, controls.split(), tuning.split(), positional.split())
        if argument_aliases:
            signature = signature.spelled(argument_aliases)
        stated = with_role(roles, signature.output_name, Role.WRITES)
        made = operation_class(Definition(known_as, kind, define, signature, cost, roles=stated, **options))
        return registered(made, aliases)

    return register


def kind_of(name: str) -> Kind | None:
    """Return the kind of the op of this name, if there is one."""
    op = OPERATIONS.get(name)
    return None if op is None else op.definition.kind


def factors_of(name: str) -> tuple[int, ...]:
    """Return the operands that the op of this name multiplies as matrices; none where it is no such product."""
    op = OPERATIONS.get(name)
    return () if op is None else op.definition.factors


def operations_under(prefix: str) -> dict[str, Operation]:
    """The ops of one namespace by their short names: `transformer.` gives those of `ttnn.transformer`."""
    return {
        name.removeprefix(prefix): op
        for name, op in OPERATIONS.items()
        if name.startswith(prefix) and "." not in name.removeprefix(prefix)
    }
