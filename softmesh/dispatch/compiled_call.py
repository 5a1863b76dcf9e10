"""A compiled call of a planned op: its computation in one function, its results' specs, and their room in memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from softmesh.callsite import raw_call_site
from softmesh.dispatch.bound_call import BoundCall
from softmesh.dispatch.call_cache import Call, CallCache
from softmesh.dispatch.definition import Definition
from softmesh.dispatch.plan import Plan
from softmesh.dispatch.signature import Signature, listed
from softmesh.runtime import commands
from softmesh.runtime.commands import Command
from softmesh.runtime.device import MeshDevice
from softmesh.runtime.memory.allocations import Claim
from softmesh.runtime.queues import queue_id
from softmesh.runtime.queues.queue_id import current_queue
from softmesh.tensor.footprint import room_for
from softmesh.tensor.storage import Storage
from softmesh.tensor.tensor import Tensor


class CompiledCall:
    """`slots`: for each operand which of the given values it is, or (None) a constant."""

    __slots__ = (
        "_dist",
        "_presented",
        "_room",
        "_spec",
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
        device: MeshDevice,
        named: dict[str, Any] | None,
    ) -> None:
        self.definition, self.plan, self.slots = definition, plan, slots
        self.compute = None if plan.is_view else plan.direct()
        output = plan.outputs[0]
        self._spec, self._dist, self._topology = output.spec, output.dist, output.topology
        room = room_for(output.spec, device.memory)
        self._room = room if room[1] else None  # of no bytes there is nothing to take
        self._presented = named

    def run(self, call: Call, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        device, given = call.device, call.given
        only = device.only_queue
        if only is None or queue_id.is_pushed:
            device.note_launch(None)
        else:
            only.in_use = True
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
        storage = Storage(self.compute(*values), self._dist, device, spec, self._room)
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
        given = [call.given[at] for at, _ in self.slots if at is not None]
        return [value for value in given if value.__class__ is Tensor]

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
        )


def compiled(
    definition: Definition,
    plan: Plan,
    bound: BoundCall,
    call: Call,
    cache: CallCache,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
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
    return CompiledCall(definition, plan, tuple(slots), call.device, named)


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
) -> None:
    """To observers. `claim` is that of memory which this call has asked for: it knows the user's line."""
    cost, coords = plan.cost or definition.cost, plan.outputs[0].dist.coordinates()
    is_over_host = definition.over_host is not None and definition.over_host(values())
    if is_over_host:
        commands.emit("from_device", tensors, (), coords=coords, queue=queue, blocking=True)
    commands.tell(
        Command(
            definition.name,
            tensors,
            made,
            coords,
            queue,
            device,
            raw_call_site() if claim is None or claim.site is None else claim.site,
            lambda: _arguments(definition.signature, values()),
            lambda: cost([t.spec for t in tensors], [t.spec for t in made]),
        )
    )
    if is_over_host:
        commands.emit("to_device", (), made, coords=coords, queue=queue)


def _arguments(signature: Signature, values: list[Any]) -> dict[str, Any]:
    """For observers: everything that was given and is no tensor."""
    operands = signature.named(values, signature.operand_at)
    arguments = {name: value for name, value in operands.items() if not _holds_tensors(value)}
    given = signature.named(values, (*signature.key_at, *signature.tuning_at))
    return arguments | {name: value for name, value in given.items() if value is not None}


def _holds_tensors(value: Any) -> bool:
    return value is None or any(isinstance(item, Tensor) for item in listed(value))
