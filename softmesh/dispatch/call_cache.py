"""The cache of compiled calls of one op, with the one guard that says whether a call may take such a way.

A first call binds, checks and plans. If nothing in it needs a second look, it is compiled: which of the given values
are operands, the computation in one function, the result's spec, distribution and room in the memory pool. A later call
with operands of the same specs and distributions, and the same other arguments, is one look-up and that function.

The guard has two halves. `values_of` is asked of each tensor at each call: its values are here, all of them written, no
view of a shard, and nobody wants their gradient. Everything else (the mesh is open, no trace is captured, the same
fabric, options, programs and memory pools) is what an epoch stands for: a cache holds calls of one epoch only.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol
from weakref import ref

import torch

from softmesh import epoch, strictness
from softmesh.arguments import KEPT_WEAKLY, exact_key
from softmesh.callsite import raw_call_site
from softmesh.dispatch.definition import Definition
from softmesh.dispatch.plan import Plan
from softmesh.dispatch.signature import BoundCall, Signature, listed
from softmesh.kinds import Kind
from softmesh.processes.lockstep import SharedCall
from softmesh.runtime import commands
from softmesh.runtime.commands import Command
from softmesh.runtime.device import MeshDevice
from softmesh.runtime.grad_mode import GRADIENTS
from softmesh.runtime.memory.allocations import Claim
from softmesh.runtime.queues.queue_id import current_queue
from softmesh.strictness import ENVIRONMENT, LENIENT, STRICT
from softmesh.tensor.footprint import room_for
from softmesh.tensor.persistent_results import note_views
from softmesh.tensor.storage import Storage
from softmesh.tensor.tensor import Tensor

_UNKNOWN: tuple[int, None] = (-1, None)  # of no epoch
_MOST = 4096  # of one op: a program that needs more is making up shapes, and starts over


class Compiled(Protocol):
    """What a look-up finds."""

    def run(self, call: Call, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """The result of the call; NotImplemented where it must be made in full after all."""
        ...


class Call(NamedTuple):
    """One call on its way: the key by which another like it is found, what was given, and on which mesh."""

    key: tuple[Any, ...]
    given: list[Any]
    device: MeshDevice
    epoch: int
    compiled: Compiled | None


def is_training() -> bool:
    return GRADIENTS.in_use and torch.is_grad_enabled()


def values_of(tensor: Tensor, training: bool) -> torch.Tensor | None:
    """The values that a compiled call may read as they are; None where there is more to it.

    Asking makes nobody wait: values that are still on their way, or still to be made, are no values yet.
    """
    storage = tensor.storage
    if tensor.shard_positions is not None or storage.is_pending or storage.undefined is not None:
        return None
    if storage.notes is not None and storage.notes.needs_look:
        return None
    data = storage.data
    return None if data is None or (training and data.requires_grad) else data


class Calls(Protocol):
    """A cache as the door sees it."""

    def look_up(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Call | None: ...


class CallCache:
    """`free_floats`: the value of a float that stands for an operand is handed on, and no part of the key."""

    def __init__(self, signature: Signature | None = None, *, free_floats: bool = True) -> None:
        # With the epoch of each: one that another thread has just ended may still be written down.
        self._known: dict[tuple[Any, ...], tuple[int, Compiled]] = {}
        self._epoch = epoch.current
        self._places = signature.places if signature is not None else {}
        operands = signature.operand_at if signature is not None and free_floats else ()
        self._free_at = frozenset(operands)

    def clear(self) -> None:
        self._known.clear()

    def look_up(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Call | None:
        """The call, with what was compiled for it, if anything was; None where nothing can be."""
        if ENVIRONMENT.get(STRICT) is not strictness.compiled_under:
            strictness.note_setting()
        now = epoch.current
        if self._epoch != now:
            self._known.clear()
            self._epoch = now
        key: list[Any] = [LENIENT.get()]
        given: list[Any] = [*args, *kwargs.values()] if kwargs else list(args)
        device: MeshDevice | None = None
        training = GRADIENTS.in_use and torch.is_grad_enabled()
        for at, value in enumerate(given):
            kind = value.__class__
            key.append(kind)  # 1, 1.0 and True are equal, and not the same argument
            if kind is Tensor:
                if values_of(value, training) is None:
                    return None
                storage = value.storage
                if storage.device is not device:
                    if device is not None or storage.device is None:
                        return None
                    device = storage.device
                key.append(value.spec)
                key.append(storage.dist)
            elif kind is list or kind is tuple:
                if (items := _key_of_items(value)) is None:
                    return None
                key.append(items)
            elif kind is not float:
                key.append(ref(value) if kind in KEPT_WEAKLY else value)
            elif self._place(at, args, kwargs) not in self._free_at:
                key.append(_float_key(value))
        if device is None:
            return None
        key.append(device.unique_id)
        if kwargs:
            key += kwargs
        try:
            known = self._known.get(found := tuple(key), _UNKNOWN)
        except TypeError:  # an argument cannot be hashed
            return None
        compiled = known[1] if known[0] == now else None
        # As Call(...) would, in half the time: this is done at every call.
        return tuple.__new__(Call, (found, given, device, now, compiled))

    def _place(self, at: int, args: tuple[Any, ...], kwargs: dict[str, Any]) -> int | None:
        """The place of the parameter that the value at this position was given for; None for a name that is none."""
        return at if at < len(args) else self._places.get(list(kwargs)[at - len(args)])

    def position_of(self, place: int, args: tuple[Any, ...], kwargs: dict[str, Any]) -> int | None:
        """Which of the given values the parameter at this place is."""
        found = (at for at in range(len(args) + len(kwargs)) if self._place(at, args, kwargs) == place)
        return next(found, None)

    def is_free(self, place: int) -> bool:
        return place in self._free_at

    def keep(self, call: Call, compiled: Compiled) -> None:
        """For calls like this one, unless something has changed since it was looked up."""
        if call.epoch != epoch.current or call.device.captures.recordings:
            return
        if len(self._known) >= _MOST:
            self._known.clear()
        self._known[call.key] = call.epoch, compiled


def _key_of_items(values: Sequence[object]) -> object:
    """None where it holds tensors, or itself, which is told where the call is bound."""
    if any(item.__class__ is Tensor for item in values):
        return None
    try:
        return exact_key(values)
    except RecursionError:
        return None


def _float_key(value: float) -> float | str:
    """0.0 and -0.0 are equal, and nan is equal to nothing; `repr` takes longer than all the rest."""
    return value if value and value == value else repr(value)


# -- what is kept --------------------------------------------------------------------------------


class CompiledCall:
    """`slots`: for each operand which of the given values it is, or (None) a constant.

    `shared`: what the ranks of the mesh must agree on, for a call that they make together.
    """

    __slots__ = (
        "_dist",
        "_presented",
        "_room",
        "_shared",
        "_spec",
        "_tensors_at",
        "_topology",
        "compute",
        "definition",
        "plan",
        "slots",
    )

    def __init__(
        self,
        definition: Definition,
        plan: Plan,
        slots: tuple[tuple[int | None, Any], ...],
        call: Call,
        named: dict[str, Any] | None,
        shared: SharedCall | None,
    ) -> None:
        self._shared = shared
        self._tensors_at = [at for at, _ in slots if at is not None and call.given[at].__class__ is Tensor]
        self.definition, self.plan, self.slots = definition, plan, slots
        self.compute = None if plan.is_view else plan.direct()
        output = plan.outputs[0]
        self._spec, self._dist, self._topology = output.spec, output.dist, output.topology
        room = room_for(output.spec, call.device.memory)
        self._room = room if room[1] else None  # of no bytes there is nothing to take
        self._presented = named

    def run(self, call: Call, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        device, given = call.device, call.given
        site = None if self.compute is None else raw_call_site(2)
        if self._shared is not None and (ranks := device.ranks) is not None:
            addresses = tuple([given[at].storage.address for at in self._tensors_at])
            ranks.calls.note(self._shared, addresses, current_queue(), site)
        device.note_launch(None)
        values = []
        for at, constant in self.slots:
            if at is None:
                values.append(constant)
            else:
                value = given[at]
                values.append(value.storage.data if value.__class__ is Tensor else value)
        if self.compute is None:
            return self._stored(self.plan.run(values), call, args, kwargs)
        spec = self._spec
        storage = Storage(self.compute(*values), self._dist, device, spec, self._room, site)
        made = Tensor.make(storage, spec, self._topology)
        if commands.observers:
            self._tell([made], call, args, kwargs, storage.claim)
        return made if self._presented is None else self._present(made)

    def _stored(
        self, results: tuple[torch.Tensor, ...], call: Call, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        """Several results, or one that lies in its operand's memory."""
        plan = self.plan
        made = stored(plan, results, self._tensors(call)[0])
        if commands.observers:
            self._tell(made, call, args, kwargs, None if plan.is_view else made[0].storage.claim)
        result = made[0] if plan.container is None else plan.container(made)
        return result if self._presented is None else self._present(result)

    def _tensors(self, call: Call) -> list[Tensor]:
        return [call.given[at] for at in self._tensors_at]

    def _present(self, result: Any) -> Any:
        present, named = self.definition.present, self._presented
        assert present is not None
        assert named is not None
        return present(self.definition.name, result, named)

    def _tell(
        self,
        made: Sequence[Tensor],
        call: Call,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        claim: Claim | None,
    ) -> None:
        tell(
            self.definition,
            self.plan,
            self._tensors(call),
            made,
            call.device,
            current_queue(),
            lambda: bound_values(self.definition, args, kwargs),
            claim,
            self,
        )


def compiled(
    definition: Definition,
    plan: Plan,
    bound: BoundCall,
    call: Call,
    cache: CallCache,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    shared: SharedCall | None,
) -> CompiledCall | None:
    """For calls like this one, which has just been made; None where each of them must be made in full."""
    if not _is_plain(definition, plan, bound, call):
        return None
    slots: list[tuple[int | None, Any]] = []
    for place in bound.signature.operand_at:
        value = bound.values[place]
        if isinstance(value, Tensor):
            places = [i for i, one in enumerate(call.given) if one is value]
            if len(places) > 1 and definition.rearrange is None:
                places = [at for at in places if at == cache.position_of(place, args, kwargs)]
            if len(places) != 1:  # one tensor stands for several operands, and another call may give several
                return None
            slots.append((places[0], None))
        elif isinstance(value, list | tuple):
            return None
        elif value.__class__ is float and cache.is_free(place):
            slots.append((cache.position_of(place, args, kwargs), value))
        else:
            slots.append((None, value))
    named = None if definition.present is None else bound.named
    return CompiledCall(definition, plan, tuple(slots), call, named, shared)


def _is_plain(definition: Definition, plan: Plan, bound: BoundCall, call: Call) -> bool:
    """Whether the call read tensors and made new ones, and that was all: nothing to write, to tell or to mark."""
    at = bound.signature.queue_at
    return not (
        definition.writes
        or definition.leaves_undefined
        or bound.is_marked
        or bound.target is not None
        or plan.problem is not None
        or plan.remarks
        or (at is not None and bound.values[at] is not None)
        or (not plan.is_view and plan.program not in call.device.program_cache)
        # a tensor was read for its values, is written to, or was made by the op itself
        or sum(one.__class__ is Tensor for one in call.given) != len(bound.tensors)
    )


def stored(plan: Plan, results: tuple[torch.Tensor, ...], operand: Tensor, target: Any = None) -> list[Tensor]:
    """The results of a run as tensors: new ones, or the targets that were given for them."""
    if target is None:
        made, given = [], operand.storage
        for result, output in zip(results, plan.outputs, strict=True):
            storage = Storage(result, output.dist, given.device)
            if plan.is_view:
                storage.use_memory_of(given, output.spec)
            made.append(Tensor.make(storage, output.spec, output.topology))
        if plan.is_view and given.notes is not None:
            note_views(operand, made)
        return made
    targets = listed(target)
    for tensor, result, output in zip(targets, results, plan.outputs, strict=True):
        tensor.overwrite(result, output.dist.written_to(tensor.view_distribution()))
    return targets


def bound_values(definition: Definition, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Any]:
    """One value for each name of the signature, whatever form the call has."""
    if definition.rearrange is not None:
        args, kwargs = definition.rearrange(definition.signature, args, kwargs)
    return definition.signature.bind(args, kwargs)


def tell(
    definition: Definition,
    plan: Plan,
    tensors: Sequence[Tensor],
    made: Sequence[Tensor],
    device: MeshDevice | None,
    queue: int,
    values: Any,
    claim: Claim | None = None,
    call: CompiledCall | None = None,
) -> None:
    """To observers. `claim` is that of memory which this call has asked for: it knows the user's line."""
    cost, coords = plan.cost or definition.cost, plan.outputs[0].dist.coordinates()
    is_over_host = definition.over_host is not None and definition.over_host(values())
    if is_over_host:
        commands.emit("from_device", Kind.HOST_READ, tensors, (), coords=coords, queue=queue, blocking=True)
    command = Command(
        definition.name,
        definition.kind,
        tensors,
        made,
        coords,
        queue,
        device,
        raw_call_site() if claim is None or claim.site is None else claim.site,
        lambda: _arguments(definition.signature, values()),
        lambda: cost([t.spec for t in tensors], [t.spec for t in made]),
    )
    command.call, command.written_remotely = call, definition.written_remotely
    commands.tell(command)
    if is_over_host:
        commands.emit("to_device", Kind.HOST_WRITE, (), made, coords=coords, queue=queue)


def _arguments(signature: Signature, values: list[Any]) -> dict[str, Any]:
    """For observers: everything that was given and is no tensor."""
    operands = signature.named(values, signature.operand_at)
    arguments = {name: value for name, value in operands.items() if not _holds_tensors(value)}
    given = signature.named(values, (*signature.key_at, *signature.tuning_at))
    return arguments | {name: value for name, value in given.items() if value is not None}


def _holds_tensors(value: Any) -> bool:
    return value is None or any(isinstance(item, Tensor) for item in listed(value))
