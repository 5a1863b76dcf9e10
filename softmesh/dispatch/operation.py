"""The registry: one op is its name, its local computation, its placement rule and its cost.

An op is defined by a function with TT-NN's parameter names. The function sees `Operand`s in place of
tensors (no values, no mesh), checks its arguments and returns a `Local`: a function of torch tensors
that acts on the trailing dims and lets whatever leads broadcast, and the rule for its placements.
That is all SPMD takes.

    @operation(tuning="compute_kernel_config", cost=flops_per_element(5))
    def softmax(input_tensor: Operand, dim: int = -1, *, numeric_stable: bool = True) -> Local:
        at = input_tensor.from_end(dim)
        return Local(lambda x: torch.softmax(x, at), rules.within(at))
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Hashable, Sequence
from typing import Any

import torch

from softmesh import epoch
from softmesh.arguments import described, refused
from softmesh.callsite import raw_call_site
from softmesh.dispatch.call_cache import Call, Shortcut, Shortcuts, take
from softmesh.dispatch.cost_rules import flops_per_element
from softmesh.dispatch.definition import Define, Definition
from softmesh.dispatch.derivatives import differentiated
from softmesh.dispatch.interceptors import INTERCEPTORS, call_through
from softmesh.dispatch.last_call import Repetition, repeatable, repetition_of
from softmesh.dispatch.plan import CostRule, Plan
from softmesh.dispatch.planner import Planner
from softmesh.dispatch.refusal import CallRefused, refused_call
from softmesh.dispatch.signature import Signature, listed
from softmesh.dispatch.trace_steps import check_compiled, record_result, record_writing
from softmesh.errors import ArgumentError, MeshError, PartialError, PartialWarning, SoftmeshWarning
from softmesh.lenience import warn_or_raise
from softmesh.placement.distribution import Distribution
from softmesh.runtime import commands
from softmesh.runtime.commands import Command, observed, tell
from softmesh.runtime.device import MeshDevice
from softmesh.runtime.grad_mode import GRADIENTS, tracks
from softmesh.runtime.memory.claim import Claim
from softmesh.runtime.queues.queue_id import chosen_queue, current_queue
from softmesh.runtime.traces.captures import recording_on
from softmesh.runtime.traces.recording import Recording
from softmesh.tensor.storage import Storage
from softmesh.tensor.tensor import Tensor
from softmesh.tensor.undefined import carried, mark, warn_if_undefined

_ONE_STEP = flops_per_element(1)
_MAX_PLANS = 4096  # per op: a program that needs more is making up shapes, and starts over
OPERATIONS: dict[str, Operation] = {}
Marking = Callable[[list[Tensor]], None]  # tells of results which pieces are undefined


class _InspectedSignature:
    """Of an op, not of the class of ops."""

    def __get__(self, op: Operation | None, _: type[Operation]) -> inspect.Signature | None:
        return None if op is None else op._signature.inspected()


class Operation:
    """A callable op: what `ttnn.relu` is."""

    __signature__ = _InspectedSignature()
    planner: type[Planner] = Planner
    leaves_undefined = False  # whether there are pieces of its results that it does not write
    reads_other_devices = False

    def __init__(self, definition: Definition) -> None:
        self.definition = definition
        self.name = definition.name
        self.__name__ = self.python_fully_qualified_name
        self.__doc__ = definition.define.__doc__
        self._golden: Callable[..., Any] | None = None
        self._signature = definition.signature
        self._writes = definition.writes
        self._plans: dict[tuple[Any, ...], Plan] = {}
        self._programs: dict[tuple[Any, ...], object] = {}
        self.shortcuts = Shortcuts(self._signature)
        # The plan of the last call, where another like it may take a shortcut; the shortcut that the last one took;
        # and, where two in a row took the same, what it takes to do that once more.
        self._latest: Plan | None = None
        self._taken: Shortcut | None = None
        self._again: Repetition | None = None
        self.has_shortcuts = type(self)._call is Operation._call and not (
            self._writes or self.leaves_undefined
        )

    @property
    def python_fully_qualified_name(self) -> str:
        return f"ttnn.{self.name}"

    @property
    def golden_function(self) -> Callable[..., Any] | None:
        """Its torch reference."""
        if self._golden is None:
            from softmesh.ops.golden.lookup import known_golden

            self._golden = known_golden(self)
        return self._golden

    @golden_function.setter
    def golden_function(self, function: Callable[..., Any] | None) -> None:
        self._golden = function

    def forget_plans(self) -> None:
        self._plans.clear()
        self.shortcuts.clear()
        self.forget()

    def keep(self, what: Repetition) -> None:
        """See `assumptions.remember`."""
        self._again = what

    def forget(self) -> None:
        """The last call: the next one may differ, or something that it would take for granted."""
        self._again = self._taken = None

    def circumstances(self, kwargs: dict[str, Any]) -> Hashable:
        """What else a plan depends on, beside the operands and the arguments."""
        return None

    def __repr__(self) -> str:
        return f"<operation ttnn.{self.name}>"

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        again = self._again
        if again is not None and not INTERCEPTORS:
            repeated = again(args, kwargs)
            if repeated is not None:
                return repeated
        call = None
        if self.has_shortcuts and not INTERCEPTORS:
            moment = epoch.moment
            is_training = GRADIENTS.in_use and torch.is_grad_enabled()
            call, known = self.shortcuts.look_up(args, kwargs, self.circumstances(kwargs), is_training)
            if call is not None and known is not None:
                made = take(known, call)
                if known is not self._taken:
                    self._taken, self._again = known, None
                elif self._again is None and not (GRADIENTS.in_use or self.asks_more(kwargs)):
                    self._remember(known, call, tuple(kwargs), moment)
                if commands.observers:
                    bind = functools.partial(self._signature.bind, args, kwargs)
                    tensors = tuple(map(call[1].__getitem__, known.tensors))
                    claim = None if known.plan.is_view else made.storage.claim
                    self._tell(bind, tensors, (made,), known.plan, call[2], current_queue(), claim)
                return made
        try:
            if INTERCEPTORS:
                return call_through(self, lambda *args, **kwargs: self._call(args, kwargs), args, kwargs)
            if call is None:
                return self._call(args, kwargs)
            self._latest = None
            made = self._call(args, kwargs)
            if self._latest is not None:
                self.shortcuts.remember(call, self._latest, args, kwargs)
            return made
        except CallRefused:
            raise
        except ArgumentError as error:
            raise refused_call(self.__name__, self._signature, error, args, kwargs) from error

    def asks_more(self, kwargs: dict[str, Any]) -> bool:
        """Whether its circumstances are more than what is taken for granted."""
        return False

    def _remember(self, known: Shortcut, call: Call, names: tuple[str, ...], moment: object | None) -> None:
        _, given, device = call
        if moment is not None and repeatable(known, given, device):
            epoch.remember(self, repetition_of(known, given, names, device), moment)

    def _call(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        signature = self._signature
        values = signature.bind(args, kwargs)
        key: list[Any] = []
        data: list[Any] = []
        tensors: list[Tensor] = []
        is_marked = self.leaves_undefined
        for at in signature.operand_at:
            value = values[at]
            for item in value if isinstance(value, list | tuple) else (value,):
                if isinstance(item, Tensor):
                    tensors.append(item)
                    storage = item.storage
                    if storage.undefined is not None:
                        is_marked = True
                    plain = item.shard_positions is None
                    key.append(item.spec)
                    key.append(storage.dist if plain else item.view_distribution())
                    data.append(storage.data if plain else item.view_data())
                else:
                    key.append(type(item))
                    data.append(item)
        target = None if signature.output_at is None else values[signature.output_at]
        device = self._check(tensors, data, target)
        marking = self._marking(values, tensors, target) if is_marked else None
        key.append(None if device is None else device.torch_device)
        for at in signature.key_at:
            value = values[at]
            key.append(value.__class__)  # 1, 1.0 and True are equal, and not the same argument
            key.append(value)
        if target is not None:
            key += [one.spec for one in listed(target)]
        is_tracked = GRADIENTS.in_use and tracks(data)
        if is_tracked:
            with torch.no_grad():
                plan, _ = self._planned(key, values, tensors, data, target)
            results = None
        else:
            plan, results = self._planned(key, values, tensors, data, target)
        if plan.problem is not None:
            warn_or_raise(plan.problem, PartialWarning, PartialError)
        for remark in plan.remarks:
            warn_or_raise(remark, SoftmeshWarning, MeshError)
        recording = None if device is None else self._launch(device, plan, values)
        if is_tracked:
            self._refuse_untracked(recording, target)
            made = _store(plan, self._differentiated(plan, values, data), tensors[0], None)
        elif recording is not None:
            made = self._run_recorded(recording, plan, tensors, data, target)
        elif self._writes:
            made = self._run_in_place(plan, [tensors[at] for at in self._writes], data)
        else:
            made = _store(plan, plan.run(data) if results is None else results, tensors[0], target)
        if marking is not None:
            marking(made)
        is_silent = plan.problem is None and not plan.remarks
        if target is None and marking is None and is_silent and plan.container is None:
            self._latest = plan if signature.queue_at is None or values[signature.queue_at] is None else None
        if observed():
            self._tell(lambda: values, tensors, made, plan, device, self._queue(values))
        return made[0] if plan.container is None else plan.container(made)

    def _differentiated(self, plan: Plan, values: list[Any], data: list[Any]) -> tuple[torch.Tensor, ...]:
        return differentiated(plan, data)

    def _refuse_untracked(self, recording: Recording | None, target: Any) -> None:
        """What cannot be done while an operand asks for a gradient."""
        if recording is None and target is None and not self._writes:
            return
        what = "writing in place" if recording is None else "recording a trace"
        raise MeshError(
            f"{self.name}: an operand requires a gradient, and {what} would lose the way back to it. "
            "Compute under softmesh.train.no_grad(), or without the output tensor."
        )

    def _planned(
        self, parts: list[Any], values: list[Any], tensors: list[Tensor], data: list[Any], target: Any
    ) -> tuple[Plan, tuple[torch.Tensor, ...] | None]:
        """The plan for these specs; a new one comes with the results of its first run."""
        key = tuple(parts)
        try:
            plan = self._plans.get(key)
        except TypeError:  # an attribute is a list
            key = tuple(_hashable(part) for part in parts)
            plan = self._plans.get(key)
        if plan is not None:
            return plan, None
        plan, results = self.planner(self.definition, values, tensors, data, target).build()
        if len(self._plans) >= _MAX_PLANS:
            self.forget_plans()
            self._programs.clear()
        self._plans[key] = plan
        form = tuple(part for part in key if not isinstance(part, Distribution))
        plan.program = self._programs.setdefault(form, object())
        return plan, results

    def _check(self, tensors: list[Tensor], data: list[Any], target: Any) -> MeshDevice | None:
        """All operands live, on one open device (or on the host, for the few ops that work there)."""
        if not tensors:
            given = ", ".join(map(_kind_in_words, data)) or "nothing"
            raise ArgumentError(
                f"{self.name}(): incompatible function arguments: it needs a ttnn.Tensor, got {given}. "
                "Make one with ttnn.from_torch(..., device=mesh_device)."
            )
        device = tensors[0].storage.device
        for tensor in tensors:
            storage = tensor.storage
            if storage.data is None:
                tensor.check_allocated(self.name)
            if storage.device is not device:
                self._refuse_devices(tensors)
        if device is None:
            if not self.definition.on_host:
                self._refuse_devices(tensors)
        elif not device.is_open:
            device.check_open(self.name)
        if target is not None:
            self._check_targets(listed(target), tensors, device)
        return device

    def _marking(self, values: list[Any], tensors: list[Tensor], target: Any) -> Marking | None:
        """Pieces of operands that nobody wrote: reading another device's warns, a device's own come to its results."""
        if self.reads_other_devices:
            for tensor in tensors:
                warn_if_undefined(tensor, self.name)
            return None
        undefined = carried(self.name, tensors)
        if undefined is None:
            return None

        def tell(made: list[Tensor]) -> None:
            for result in made:
                mark(result, undefined)

        return tell

    def _check_targets(self, targets: list[Any], tensors: list[Tensor], device: MeshDevice | None) -> None:
        for target in targets or [None]:
            if not isinstance(target, Tensor):
                raise refused(self.name, f"the output tensor must be a ttnn.Tensor, got {described(target)}")
            target.check_allocated(f"{self.name} (output tensor)")
            if target.storage.device is not device:
                self._refuse_devices([*tensors, target])

    def _refuse_devices(self, tensors: list[Tensor]) -> None:
        where = ", ".join(f"{tensor.device() or 'the host'}" for tensor in tensors)
        on_host = [i for i, tensor in enumerate(tensors) if tensor.storage.device is None]
        if on_host:
            raise MeshError(
                f"Input tensor {chr(ord('A') + on_host[0])} must be on device, got storage type: StorageType::HOST. "
                f"{self.name} got operands on {where}: move them with ttnn.to_device(tensor, mesh_device)."
            )
        ids = [device.id() for tensor in tensors for device in tensor.devices()]
        raise MeshError(
            f"Operands to eltwise binary need to be on the same device! {self.name} got operands on {where} "
            f"(mesh ids {ids}): bring one over with ttnn.to_device(ttnn.from_device(tensor), mesh_device)."
        )

    def _run_in_place(self, plan: Plan, targets: list[Tensor], data: list[Any]) -> list[Tensor]:
        """The computation changes the data of some operands, which are given memory of their own first."""
        dists = [output.dist for output in plan.outputs]
        if all(
            t.shard_positions is None and t.storage.dist is dist
            for t, dist in zip(targets, dists, strict=True)
        ):
            for at, target in zip(self._writes, targets, strict=True):
                data[at] = target.storage.writable()
            plan.run(data)
            return targets
        prepared = [v if f is None else f(v) for f, v in zip(plan.adapts, data, strict=True)]
        for at, dist in zip(self._writes, dists, strict=True):
            values = prepared[at]
            prepared[at] = values.expand(*dist.extents, *values.shape[dist.lead :]).clone()
        results = plan.compute(*prepared)
        for target, result, dist in zip(targets, listed(results), dists, strict=True):
            target.overwrite(result, dist)
        return targets

    def _launch(self, device: MeshDevice, plan: Plan, values: list[Any]) -> Recording | None:
        """Count the program, and its launch unless a trace records it."""
        recording = self._recording(device, plan, values) if device.captures.recordings else None
        if plan.program not in device.program_cache:
            device.note_program(plan.program)
        if recording is None:
            at = self._signature.queue_at
            device.note_launch(None if at is None else values[at])
        return recording

    def _recording(self, device: MeshDevice, plan: Plan, values: list[Any]) -> Recording | None:
        recording = recording_on(device, self._queue(values))
        if recording is not None:
            check_compiled(recording, self.name, plan.program in device.program_cache)
        return recording

    def _run_recorded(
        self, recording: Recording, plan: Plan, tensors: list[Tensor], data: list[Any], target: Any
    ) -> list[Tensor]:
        if target is None and not self._writes:
            made = _store(plan, plan.run(data), tensors[0], None)
            record_result(recording, plan, tensors, data, made)
            return made
        targets = [tensors[at] for at in self._writes] or listed(target)

        def run(values: list[Any]) -> object:
            if self._writes:
                return self._run_in_place(plan, targets, values)
            return _store(plan, plan.run(values), tensors[0], targets)

        for written in targets:
            recording.keep_as_it_was(written.storage)
        record_writing(recording, run, tensors, data, targets)
        run(list(data))
        return targets

    def _queue(self, values: list[Any]) -> int:
        at = self._signature.queue_at
        given = None if at is None else values[at]
        return current_queue() if given is None else chosen_queue(self.name, given)

    def _tell(
        self,
        values: Callable[[], list[Any]],
        tensors: Sequence[Tensor],
        made: Sequence[Tensor],
        plan: Plan,
        device: MeshDevice | None,
        queue: int,
        claim: Claim | None = None,
    ) -> None:
        """`claim` is that of memory which this call has asked for: it knows the user's line."""
        cost = plan.cost or self.definition.cost
        tell(
            Command(
                self.name,
                tensors,
                made,
                plan.outputs[0].dist.coordinates(),
                queue,
                device,
                raw_call_site(2) if claim is None or claim.site is None else claim.site,
                lambda: self._arguments(values()),
                lambda: cost([t.spec for t in tensors], [t.spec for t in made]),
            )
        )

    def _arguments(self, values: list[Any]) -> dict[str, Any]:
        """For observers: everything that was given and is no tensor."""
        signature = self._signature
        operands = signature.named(values, signature.operand_at)
        arguments = {name: value for name, value in operands.items() if not _holds_tensors(value)}
        given = signature.named(values, (*signature.key_at, *signature.tuning_at))
        return arguments | {name: value for name, value in given.items() if value is not None}


def _store(plan: Plan, results: tuple[torch.Tensor, ...], operand: Tensor, target: Any) -> list[Tensor]:
    if target is None:
        made, given = [], operand.storage
        for result, output in zip(results, plan.outputs, strict=True):
            storage = Storage(result, output.dist, given.device)
            if plan.is_view:
                storage.lie_in(given, output.spec)
            made.append(Tensor.make(storage, output.spec, output.topology))
        return made
    targets = listed(target)
    for tensor, result, output in zip(targets, results, plan.outputs, strict=True):
        tensor.overwrite(result, output.dist.written_to(tensor.view_distribution()))
    return targets


def _holds_tensors(value: Any) -> bool:
    return value is None or any(isinstance(item, Tensor) for item in listed(value))


def _kind_in_words(value: Any) -> str:
    return described(value) if hasattr(value, "shape") else type(value).__name__


def _hashable(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return tuple(_hashable(item) for item in value)
    try:
        hash(value)
    except TypeError:
        return repr(value)
    return value


def operation(
    name: str | None = None,
    *,
    cost: CostRule = _ONE_STEP,
    controls: str = "memory_config dtype output_tensor queue_id",
    tuning: str = "",
    positional: str = "",
    writes: str = "",
    aliases: Sequence[str] = (),
    kind: Callable[[Definition], Operation] = Operation,
    **options: Any,
) -> Callable[[Define], Operation]:
    """Register the op that the decorated function defines, under its own name or `name`.

    `writes` names the operands that it changes in place: the first ones, for which no number may stand.
    """

    def register(define: Define) -> Operation:
        known_as = name or define.__name__
        signature = Signature(known_as, define, controls.split(), tuning.split(), positional.split())
        written = tuple(signature.operand_names.index(operand) for operand in writes.split())
        op = kind(Definition(known_as, define, signature, cost, writes=written, **options))
        for spelling in (known_as, *aliases):
            if spelling in OPERATIONS:
                raise AssertionError(f"the operation {spelling} is registered twice")
            OPERATIONS[spelling] = op
        return op

    return register


def operations_under(prefix: str) -> dict[str, Operation]:
    """The ops of one namespace by their short names: `transformer.` gives those of `ttnn.transformer`."""
    return {
        name.removeprefix(prefix): op
        for name, op in OPERATIONS.items()
        if name.startswith(prefix) and "." not in name.removeprefix(prefix)
    }
