"""TT-NN's argument names of an op, sorted by what they are for.

operands     tensors (or numbers in their place): annotated Operand or Value in the definition
attributes   what else the computation depends on: all other parameters of the definition
controls     what the registry itself answers to: dtype, memory_config, output_tensor, queue_id
tuning       what only steers hardware: accepted, shown to observers, without effect on values
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import copy
from typing import TYPE_CHECKING, Any

from softmesh.arguments import ArgumentNames, described, exact_key, refused
from softmesh.errors import ArgumentError, MeshError
from softmesh.runtime.device import MeshDevice
from softmesh.tensor.tensor import Tensor

if TYPE_CHECKING:
    from softmesh.dispatch.call_form import CallForm, Types

_MISSING = inspect.Parameter.empty
_SPELLINGS = {
    "dtype": ("dtype", "output_dtype"),
    "memory_config": ("memory_config", "output_memory_config"),
    "output_tensor": (
        "output_tensor",
        "output",
        "optional_tensor",
        "optional_output_tensor",
        "output_tensors",
        "preallocated_output",
        "out",
    ),
    "queue_id": ("queue_id", "cq_id"),
}
_ONE_OF = ("sub_core_grids", "sub_device_id")  # two ways to say on which cores an op runs

# What of the tuning the chips compile a program for.
_COMPILED = ("sub_core_grids", "program_config", "compute_kernel_config")


# How annotations of definitions say "a tensor" and "a tensor or a number" (see dispatch.operand).
_OPERAND = re.compile(r"\b(Operand|Value)\b")


def _written(annotation: object) -> str:
    """As the source has it, whether or not the module leaves annotations unevaluated."""
    if isinstance(annotation, type):
        return annotation.__name__
    return annotation if isinstance(annotation, str) else repr(annotation)


class Signature:
    """How an op is called.

    `positional` names controls, tuning or keyword-only parameters that TT-NN also takes by position.
    """

    has_forms = False  # which check all arguments themselves

    def __init__(
        self,
        op: str,
        define: Callable[..., Any],
        controls: Sequence[str],
        tuning: Sequence[str],
        positional: Sequence[str] = (),
    ) -> None:
        parameters = inspect.signature(define).parameters
        first = [name for name, p in parameters.items() if p.kind is p.POSITIONAL_OR_KEYWORD]
        others = [name for name in (*parameters, *controls, *tuning) if name not in (*first, *positional)]
        self.op = op
        self.names = [*first, *positional, *others]
        self.positional = len(first) + len(positional)
        self.defaults = [parameters[n].default if n in parameters else None for n in self.names]
        required = [n for n, default in zip(self.names, self.defaults, strict=True) if default is _MISSING]
        self._known = ArgumentNames(self.names, self.positional, required)
        self.places = self._known.places  # of other spellings too
        self.operand_names = [n for n, p in parameters.items() if _OPERAND.search(_written(p.annotation))]
        self.operand_at = self._positions(self.operand_names)
        self.attribute_at = self._positions([n for n in parameters if n not in self.operand_names])
        self.tuning_at = self._positions(tuning)
        self.dtype_at = self._control(controls, "dtype")
        self.memory_config_at = self._control(controls, "memory_config")
        self.output_at = self._control(controls, "output_tensor")
        self.output_name = None if self.output_at is None else self.names[self.output_at]
        self.queue_at = self._control(controls, "queue_id")
        compiled_for = (self.places[name] for name in _COMPILED if name in tuning)
        chosen = (self.dtype_at, self.memory_config_at, *compiled_for)
        self.key_at = (*self.attribute_at, *(at for at in chosen if at is not None))  # what a plan depends on
        self._cores_at = self._positions(_ONE_OF) if all(name in self.places for name in _ONE_OF) else ()

    def _positions(self, names: Sequence[str]) -> tuple[int, ...]:
        return tuple(self.places[name] for name in names)

    def _control(self, controls: Sequence[str], purpose: str) -> int | None:
        spelled = next((name for name in controls if name in _SPELLINGS[purpose]), None)
        return None if spelled is None else self.places[spelled]

    def spelled(self, spellings: Mapping[str, str]) -> Signature:
        """The same, with other names beside its own: `spellings` has for each the one that is meant."""
        other = copy(self)
        other._known = self._known.with_aliases(spellings)
        other.places = other._known.places
        return other

    def bind(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Any]:
        """One value for each name, or an error that says which name is wrong, double or missing."""
        given = self._known.bound(args, kwargs)
        if isinstance(given, str):
            raise refused(self.op, given)
        if self._cores_at and all(given.get(at) is not None for at in self._cores_at):
            raise MeshError(f"Cannot specify both {' and '.join(_ONE_OF)}: {self.op} got two choices of cores.")
        return [given.get(at, default) for at, default in enumerate(self.defaults)]

    def text(self) -> str:
        """`(input_tensor, dim=-1, *, memory_config=None)`"""
        parts = [
            name if default is _MISSING else f"{name}={default!r}"
            for name, default in zip(self.names, self.defaults, strict=True)
        ]
        if self.positional < len(parts):
            parts.insert(self.positional, "*")
        return f"({', '.join(parts)})"

    def texts(self) -> list[str]:
        """One for each way to call it."""
        return [self.text()]

    def call_forms(self, types: Types) -> list[CallForm]:
        """As data, for whoever shows them: its own, and with its other names for arguments."""
        from softmesh.dispatch.call_form import Argument, CallForm

        arguments = [
            Argument(name, types.get(name, object), default)
            for name, default in zip(self.names, self.defaults, strict=True)
        ]
        own = CallForm(tuple(arguments[: self.positional]), tuple(arguments[self.positional :]))
        others = {self.names[at]: name for name, at in self.places.items() if name != self.names[at]}
        return [own, own.renamed(others)] if others else [own]

    def inspected(self) -> inspect.Signature | None:
        """For `inspect` and notebooks; None where there are forms of calls."""
        if self.texts() != [self.text()]:
            return None
        kinds = inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY
        return inspect.Signature(
            [
                inspect.Parameter(name, kinds[at >= self.positional], default=default)
                for at, (name, default) in enumerate(zip(self.names, self.defaults, strict=True))
            ]
        )

    def named(self, values: list[Any], positions: Sequence[int]) -> dict[str, Any]:
        return {self.names[i]: values[i] for i in positions}


def listed(value: Any) -> list[Any]:
    """Of an argument that is one or several."""
    return list(value) if isinstance(value, list | tuple) else [value]


class BoundCall:
    """`values` has one entry for each name of the signature; `tensors` and `data` are its operands, flat."""

    __slots__ = ("data", "is_marked", "key", "signature", "target", "tensors", "values")

    def __init__(self, signature: Signature, values: list[Any]) -> None:
        self.signature = signature
        self.values = values
        self.tensors: list[Tensor] = []
        self.data: list[Any] = []  # torch tensors, and what stands in their place
        self.key: list[Any] = []  # what a plan depends on
        self.is_marked = False  # whether an operand has pieces that nobody wrote
        for at in signature.operand_at:
            value = values[at]
            for item in value if isinstance(value, list | tuple) else (value,):
                self._take(item)
        output_at = signature.output_at
        self.target: Any = None if output_at is None else values[output_at]

    def _take(self, item: Any) -> None:
        if not isinstance(item, Tensor):
            self.key.append(type(item))
            self.data.append(item)
            return
        storage, is_plain = item.storage, item.shard_positions is None
        self.tensors.append(item)
        notes = storage.notes
        self.is_marked = self.is_marked or storage.undefined is not None or (notes is not None and notes.needs_look)
        self.key += (item.spec, storage.dist if is_plain else item.view_distribution())
        self.data.append(storage.data if is_plain else item.view_data())

    @property
    def device(self) -> MeshDevice | None:
        return self.tensors[0].storage.device

    @property
    def named(self) -> dict[str, Any]:
        return self.signature.named(self.values, range(len(self.values)))

    @property
    def labels(self) -> list[str]:
        """The operands, as messages call them; those of a list by their places in it."""
        found: list[str] = []
        for name, value in self.signature.named(self.values, self.signature.operand_at).items():
            many = isinstance(value, list | tuple)
            found += [f"{name}[{i}]" for i in range(len(value))] if many else [name]
        return found

    @property
    def targets(self) -> list[Any]:
        return [] if self.target is None else listed(self.target)

    def plan_key(self, more: Iterable[Any] = ()) -> tuple[Any, ...]:
        """Specs and distributions of the operands, kinds and values of the other arguments, the specs of outputs."""
        key, device = self.key, self.device
        key.append(None if device is None else device.torch_device)
        for at in self.signature.key_at:
            try:
                key.append(exact_key(self.values[at]))
            except RecursionError:
                signature = self.signature
                what = f"{signature.names[at]} is a list that contains itself, or has lists in lists without end"
                raise refused(signature.op, what) from None
        key += [target.spec for target in self.targets]
        key += more
        try:
            hash(found := tuple(key))
        except TypeError:  # an argument is a list
            return tuple(_hashable(part) for part in key)
        return found

    def refuse_without_tensor(self, op: str) -> None:
        given = ", ".join(map(_kind_in_words, self.data)) or "nothing"
        raise ArgumentError(
            f"{op}(): incompatible function arguments: it needs a ttnn.Tensor, got {given}. "
            "Make one with ttnn.from_torch(..., device=mesh_device)."
        )


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
