"""The last call of an op, ready to be made again for other tensors of the same kind.

A loop gives an op the same again and again. What it gives is compared by identity (specs and distributions are
interned, arguments are constants of the program), and everything else is taken for granted (see `assumptions`). What
counts is how little is touched: behind megabytes of values, code and objects come from memory, not from the caches.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from softmesh.dispatch.call_cache import Shortcut
from softmesh.hardware.memory_config import MemoryConfig
from softmesh.native_enum import NativeEnum
from softmesh.runtime import commands
from softmesh.runtime.device import MeshDevice
from softmesh.runtime.queues import queue_id
from softmesh.tensor.footprint import room_for
from softmesh.tensor.storage import Storage
from softmesh.tensor.tensor import Tensor

_IMMUTABLE = (bool, int, float, str, type(None), NativeEnum, MemoryConfig)


class Repetition:
    __slots__ = (
        "_compute",
        "_dist",
        "_kinds",
        "_mesh",
        "_names",
        "_room",
        "_spec",
        "_topology",
        "_values",
    )

    def __init__(
        self, known: Shortcut, given: Sequence[Any], names: tuple[str, ...], device: MeshDevice
    ) -> None:
        output = known.plan.outputs[0]
        self._compute = known.compute
        self._mesh = device.unique_id  # a number: what an op remembers keeps no mesh alive
        self._dist, self._spec, self._topology = output.dist, output.spec, output.topology
        room = room_for(output.spec, device.memory)
        self._room = room if room[1] else None  # of no bytes there is nothing to take
        self._names = names
        self._values = [default for _, default in known.slots]
        slots = {at: slot for slot, (at, _) in enumerate(known.slots) if at is not None}
        self._kinds = tuple((*_kind(value), slots.get(at)) for at, value in enumerate(given))

    def __call__(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Tensor | None:
        """The result; None where something else was given."""
        kinds, device, names = self._kinds, None, self._names
        if kwargs:
            if tuple(kwargs) != names:
                return None
            args = (*args, *kwargs.values())
        elif names:
            return None
        if len(args) != len(kinds):
            return None
        values = self._values.copy()
        for value, (spec, held, slot) in zip(args, kinds):  # noqa: B905 - they are as many
            if spec is None:
                if value is not held:
                    return None
            else:
                if (
                    value.__class__ is not Tensor
                    or value.spec is not spec
                    or value.shard_positions is not None
                ):
                    return None
                storage = value.storage
                if (
                    storage.dist is not held
                    or storage.undefined is not None
                    or (value := storage.data) is None
                ):
                    return None
                if storage.device is not device:
                    if device is not None or storage.device is None or storage.device.unique_id != self._mesh:
                        return None
                    device = storage.device
            if slot is not None:
                values[slot] = value
        return Tensor.make(
            Storage(self._compute(*values), self._dist, device, self._spec, self._room),  # type: ignore[misc]
            self._spec,
            self._topology,
        )


class OfOneTensor(Repetition):
    """Of a tensor that comes first, and constants that are given by their names: the same in fewer steps."""

    __slots__ = ("_constants", "_given", "_placed", "_rest")

    def __init__(
        self, known: Shortcut, given: Sequence[Any], names: tuple[str, ...], device: MeshDevice
    ) -> None:
        super().__init__(known, given, names, device)
        self._given, self._placed = _kind(given[0])
        self._constants = tuple(zip(names, given[1:], strict=True))
        self._rest = tuple(default if at is None else given[at] for at, default in known.slots[1:])

    @classmethod
    def fits(cls, known: Shortcut, given: Sequence[Any], names: tuple[str, ...]) -> bool:
        tensors = [at for at, value in enumerate(given) if value.__class__ is Tensor]
        places = [at for at, _ in known.slots]
        return tensors == [0] and len(given) == 1 + len(names) and places[:1] == [0] and 0 not in places[1:]

    def __call__(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Tensor | None:
        constants = self._constants
        if len(args) != 1 or len(kwargs) != len(constants):
            return None
        tensor = args[0]
        if (
            tensor.__class__ is not Tensor
            or tensor.spec is not self._given
            or tensor.shard_positions is not None
        ):
            return None
        for name, constant in constants:
            if kwargs.get(name, self) is not constant:
                return None
        storage = tensor.storage
        data, device = storage.data, storage.device
        if storage.dist is not self._placed or storage.undefined is not None or data is None:
            return None
        if device is None or device.unique_id != self._mesh:
            return None
        return Tensor.make(
            Storage(self._compute(data, *self._rest), self._dist, device, self._spec, self._room),  # type: ignore[misc]
            self._spec,
            self._topology,
        )


def repetition_of(
    known: Shortcut, given: Sequence[Any], names: tuple[str, ...], device: MeshDevice
) -> Repetition:
    kind = OfOneTensor if OfOneTensor.fits(known, given, names) else Repetition
    return kind(known, given, names, device)


def repeatable(known: Shortcut, given: Sequence[Any], device: MeshDevice) -> bool:
    """Whether a call like this one is no more than its computation."""
    return (
        known.compute is not None
        and not known.plan.is_view
        and device.only_queue is not None
        and not queue_id.is_pushed
        and not commands.observers
        and all(value.__class__ is Tensor or isinstance(value, _IMMUTABLE) for value in given)
    )


def _kind(value: Any) -> tuple[Any, Any]:
    """Spec and distribution of a tensor; None and the value, of anything else."""
    return (value.spec, value.storage.dist) if value.__class__ is Tensor else (None, value)
