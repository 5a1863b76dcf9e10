"""The cache of compiled calls of one op, with the one guard that says whether a call may take such a way.

A first call binds, checks and plans. If nothing in it needs a second look, it is compiled: which of the given values
are operands, the computation in one function, the result's spec, distribution and room in the memory pool. A later call
with operands of the same specs and distributions, and the same other arguments, is one look-up and that function.

The guard has two halves. `values_of` is asked of each tensor at each call: its values are here, all of them written, no
view of a shard, and nobody wants their gradient. Everything else (the mesh is open, no trace is captured, the same
fabric, options, programs and memory pools) is what an epoch stands for: a cache holds calls of one epoch only.
"""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

import torch

from softmesh import epoch
from softmesh.arguments import exact_key
from softmesh.dispatch.signature import Signature
from softmesh.runtime.device import MeshDevice
from softmesh.runtime.grad_mode import GRADIENTS
from softmesh.strictness import LENIENT
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
                if any(item.__class__ is Tensor for item in value):
                    return None
                key.append(exact_key(value))
            elif kind is not float:
                key.append(value)
            elif self._place(at, args, kwargs) not in self._free_at:
                key.append(repr(value))  # 0.0 and -0.0 are equal, too
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
