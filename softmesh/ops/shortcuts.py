"""A call like an earlier one: same specs, distributions and arguments on the same mesh.

Binding, checks and planning gave a plan the first time; where nothing stands in the way (nobody observes,
records or trains), a later call is one look-up by what was given, and the computation itself.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any, NamedTuple

from softmesh.ops.plan import Plan
from softmesh.ops.signature import Signature
from softmesh.runtime.device import MeshDevice
from softmesh.tensor.storage import Storage
from softmesh.tensor.tensor import Tensor

_MOST = 4096  # of one op


class Shortcut(NamedTuple):
    plan: Plan
    slots: tuple[
        int | None, ...
    ]  # which of the given values each operand of the plan is; None for one left out
    first: int  # which of them is the first tensor


class Call(NamedTuple):
    """What was given, and the key by which a call like it is found."""

    key: tuple[Any, ...]
    given: list[Any]
    device: MeshDevice


class Shortcuts:
    """Of one op."""

    def __init__(self, signature: Signature) -> None:
        self._known: dict[tuple[Any, ...], Shortcut] = {}
        self._places = {name: at for at, name in enumerate(signature.names)}
        self._operand_at = signature.operand_at
        self._operands = frozenset(signature.operand_at)

    def clear(self) -> None:
        self._known.clear()

    def described(
        self, args: tuple[Any, ...], kwargs: dict[str, Any], circumstances: Hashable
    ) -> Call | None:
        """None for a call that must take the long way."""
        key: list[Any] = [circumstances]
        given: list[Any] = []
        device: MeshDevice | None = None
        operands = self._operands
        for at, value in enumerate((*args, *kwargs.values()) if kwargs else args):
            key.append(value.__class__)
            given.append(value)
            if value.__class__ is Tensor:
                storage = value._storage
                if value._where is not None or storage.data is None or storage.undefined is not None:
                    return None
                if storage.device is not device:
                    if device is not None or storage.device is None:
                        return None
                    device = storage.device
                key.append(value._spec)
                key.append(storage.dist)
            elif at not in operands or value.__class__ is not float:  # a factor differs, its plan does not
                key.append(value)
        if device is None or device._closed or device.captures.recordings:
            return None
        key.append(device._id)
        if kwargs:
            key += kwargs
        return Call(tuple(key), given, device)

    def taken(self, call: Call) -> Tensor | None:
        """The result, where the way is known."""
        try:
            known = self._known.get(call.key)
        except TypeError:  # an argument is a list
            return None
        device = call.device
        if known is None or known.plan.program not in device._program_cache:
            return None
        plan, given = known.plan, call.given
        device.note_launch(None)
        values = [None if at is None else _value(given[at]) for at in known.slots]
        made, output = plan.run(values)[0], plan.outputs[0]
        storage = Storage(made, output.dist, device)
        if plan.is_view:
            storage.lie_in(given[known.first]._storage, output.spec)
        return Tensor.make(storage, output.spec, output.topology)

    def remember(self, call: Call, plan: Plan, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        places = {at: i for i, at in enumerate((*range(len(args)), *(self._places[name] for name in kwargs)))}
        slots = tuple(places.get(at) for at in self._operand_at)
        first = next(at for at in slots if at is not None and call.given[at].__class__ is Tensor)
        if len(self._known) >= _MOST:
            self._known.clear()
        try:
            self._known[call.key] = Shortcut(plan, slots, first)
        except TypeError:
            return


def _value(given: Any) -> Any:
    return given._storage.data if given.__class__ is Tensor else given
