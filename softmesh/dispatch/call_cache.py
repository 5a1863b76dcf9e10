"""A call like an earlier one: same specs, distributions and arguments on the same mesh.

Binding, checks and planning gave a plan the first time; where nothing stands in the way (nobody records, no
operand asks for a gradient), a later call is one look-up by what was given, and the computation itself.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from typing import Any, NamedTuple

from softmesh.dispatch.plan import Plan
from softmesh.dispatch.signature import Signature
from softmesh.runtime.device import MeshDevice
from softmesh.runtime.queues import queue_id
from softmesh.tensor.storage import Storage
from softmesh.tensor.tensor import Tensor

_MOST = 4096  # of one op


class Shortcut(NamedTuple):
    """Where a call like an earlier one goes."""

    plan: Plan
    compute: Callable[..., Any] | None  # in one step, where the plan has no more
    slots: tuple[tuple[int | None, Any], ...]  # which of the given values each operand is, or its default
    tensors: tuple[int, ...]  # and which are tensors, in the order of the op's parameters


# The key by which a call like it is found, what was given, and the mesh: a plain tuple, for it is made at every call.
Call = tuple[tuple[Any, ...], list[Any], MeshDevice]
_THE_LONG_WAY = None, None


class Shortcuts:
    """Of one op."""

    def __init__(self, signature: Signature) -> None:
        self._known: dict[tuple[Any, ...], Shortcut] = {}
        self._places = signature.places
        self._defaults = signature.defaults
        self._operand_at = signature.operand_at
        self._operands = frozenset(signature.operand_at)

    def clear(self) -> None:
        self._known.clear()

    def look_up(
        self, args: tuple[Any, ...], kwargs: dict[str, Any], circumstances: Hashable, is_training: bool
    ) -> tuple[Call | None, Shortcut | None]:
        """The call, None where it must take the long way; and the short one, where it is known."""
        key: list[Any] = [circumstances]
        given: list[Any] = []
        device: MeshDevice | None = None
        operands = self._operands
        for at, value in self._placed(args, kwargs) if kwargs else enumerate(args):
            key.append(value.__class__)
            given.append(value)
            if value.__class__ is Tensor:
                storage = value.storage
                data = storage.data
                if value.shard_positions is not None or data is None or storage.undefined is not None:
                    return _THE_LONG_WAY
                if is_training and data.requires_grad:
                    return _THE_LONG_WAY
                if storage.device is not device:
                    if device is not None or storage.device is None:
                        return _THE_LONG_WAY
                    device = storage.device
                key.append(value.spec)
                key.append(storage.dist)
            elif at not in operands or value.__class__ is not float:  # a factor differs, its plan does not
                key.append(value)
        if device is None or device.closed or device.captures.recordings:
            return _THE_LONG_WAY
        key.append(device.unique_id)
        if kwargs:
            key += kwargs
        call = tuple(key), given, device
        try:
            known = self._known.get(call[0])
        except TypeError:  # an argument is a list
            return call, None
        if known is None or known[0].program not in device.program_cache:
            return call, None
        return call, known

    def _placed(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Iterable[tuple[int | None, Any]]:
        """Each value with the place of its parameter; None for a name that is none."""
        return *enumerate(args), *((self._places.get(name), value) for name, value in kwargs.items())

    def remember(self, call: Call, plan: Plan, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        places = {at: i for i, (at, _) in enumerate(self._placed(args, kwargs))}
        slots = tuple((places.get(at), self._defaults[at]) for at in self._operand_at)
        key, given, _ = call
        operands = [default if at is None else given[at] for at, default in slots]
        if any(isinstance(value, list | tuple) for value in operands):  # several values of the plan
            return
        tensors = tuple(at for at, _ in slots if at is not None and given[at].__class__ is Tensor)
        if len(self._known) >= _MOST:
            self._known.clear()
        try:
            self._known[key] = Shortcut(plan, plan.direct(), slots, tensors)
        except TypeError:
            return


def take(known: Shortcut, call: Call) -> Tensor:
    """The result."""
    plan, compute, slots, tensors = known
    _, given, device = call
    only = device.only_queue
    if only is None or queue_id.is_pushed:
        device.note_launch(None)
    else:
        only.in_use = True
    values = []
    for at, default in slots:
        value = default if at is None else given[at]
        values.append(value.storage.data if value.__class__ is Tensor else value)
    made, output = plan.run(values)[0] if compute is None else compute(*values), plan.outputs[0]
    storage = Storage(made, output.dist, device)
    if plan.is_view:
        storage.lie_in(given[tensors[0]].storage, output.spec)
    return Tensor.make(storage, output.spec, output.topology)
