"""TT-NN's overloads, written as it writes them: which names by position, which may be left out.

    Form("input_tensor persistent_output_buffer? dim multi_device_global_semaphore | num_links? cluster_axis?")

Names before the bar may be given by position, the others by name; a `?` marks those that have a default.
Python has no such signature (a required name after an optional one), TT-NN's bindings do.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from numbers import Integral
from typing import Any, cast

from softmesh.arguments import described, refused
from softmesh.collectives.collective import Across, Collective
from softmesh.collectives.reduce_type import ReduceType
from softmesh.collectives.semaphores import GlobalSemaphore
from softmesh.errors import MeshError, did_you_mean
from softmesh.hardware import Topology
from softmesh.mesh import MeshCoordinate
from softmesh.ops.cost import moves_bytes
from softmesh.ops.definition import Definition
from softmesh.ops.registry import OPERATIONS
from softmesh.ops.signature import Signature
from softmesh.runtime.device import MeshDevice
from softmesh.tensor.tensor import Tensor

Arguments = dict[str, Any]
Check = Callable[[str, Arguments], None]
Misfit = Callable[[], str]  # put into words only where no form fits


def _is_int(value: object) -> bool:
    return type(value) is int or (isinstance(value, Integral) and not isinstance(value, bool))


def _is_list_of(is_one: Callable[[object], bool]) -> Callable[[object], bool]:
    return lambda value: isinstance(value, list | tuple) and all(map(is_one, value))


def _is_semaphore(value: object) -> bool:
    return isinstance(value, GlobalSemaphore)


def _is_tensor(value: object) -> bool:
    return isinstance(value, Tensor)


_KINDS: dict[str, tuple[Callable[[object], bool], str]] = {
    "int": (_is_int, "an int"),
    "ints": (_is_list_of(_is_int), "a list of ints"),
    "tensor": (_is_tensor, "a ttnn.Tensor"),
    "tensors": (_is_list_of(_is_tensor), "a list of ttnn.Tensor"),
    "semaphores": (
        lambda value: _is_semaphore(value) or _is_list_of(_is_semaphore)(value),
        "a semaphore of ttnn.create_global_semaphore(...), or a list of them",
    ),
    "mesh": (lambda value: isinstance(value, MeshDevice), "a MeshDevice"),
    "coordinate": (
        lambda value: isinstance(value, MeshCoordinate),
        "a MeshCoordinate such as ttnn.MeshCoordinate(0, 1)",
    ),
    "topology": (lambda value: isinstance(value, Topology), "a ttnn.Topology"),
    "reduction": (lambda value: isinstance(value, ReduceType), "a ttnn.ReduceType"),
    "string": (lambda value: isinstance(value, str), "a string"),
    "any": (lambda value: True, ""),
}
_KIND_OF = {
    **dict.fromkeys(("dim", "in_dim", "out_dim", "cluster_axis", "num_devices", "num_links"), "int"),
    **dict.fromkeys(("output_dim_offset", "output_dim_shape", "reduction_size"), "int"),
    **dict.fromkeys(("sender_coord", "receiver_coord", "root_coord"), "coordinate"),
    **dict.fromkeys(("persistent_output_buffer", "persistent_output_tensor", "buffer_tensor"), "tensor"),
    **dict.fromkeys(("output_tensor", "intermediate_tensor", "persistent_intermediate_buffer"), "tensor"),
    **dict.fromkeys(("optional_output_tensor", "intermediate_packet_buffer"), "tensor"),
    **dict.fromkeys(("output_tensors", "persistent_output_buffers", "persistent_buffers"), "tensors"),
    **dict.fromkeys(
        ("multi_device_global_semaphore", "barrier_semaphore", "barrier_semaphores"), "semaphores"
    ),
    **dict.fromkeys(("rs_global_semaphores", "ag_global_semaphores", "neighbor_semaphore"), "semaphores"),
    **dict.fromkeys(("final_semaphore", "cross_device_semaphore", "ready_semaphore"), "semaphores"),
    "data_valid_semaphore": "semaphores",
    "mesh_device": "mesh",
    "topology": "topology",
    "math_op": "reduction",
    "padding_mode": "string",
}


class Form:
    """One overload. A name may carry its kind (`dim:ints`) where it differs from what the name means elsewhere."""

    def __init__(self, text: str) -> None:
        first, _, rest = text.partition("|")
        self.positional = [_name(word) for word in first.split()]
        self.names = [*self.positional, *map(_name, rest.split())]
        words = dict(zip(self.names, [*first.split(), *rest.split()], strict=True))
        self.required = [name for name in self.names if not words[name].endswith("?")]
        self._checks = {name: (*_kind(name, word), word.endswith("?")) for name, word in words.items()}

    def fitted(self, args: Sequence[Any], kwargs: Arguments) -> Arguments | Misfit:
        """The arguments by name, or why they do not fit."""
        if len(args) > len(self.positional):
            return lambda: self._too_many(len(args))
        given = dict(zip(self.positional, args, strict=False))
        for name, value in kwargs.items():
            if name in given:
                return lambda: f"argument {name!r} is given twice"
            if name not in self._checks:
                return lambda: self._unknown(name)
            given[name] = value
        for name in self.required:
            if name not in given:
                return lambda: f"argument {name!r} is missing"
        for name, value in given.items():
            fits, wanted, may_be_none = self._checks[name]
            if not (fits(value) or (may_be_none and value is None)):
                return lambda: f"{name} must be {wanted}, got {described(value)}"
        return given

    def _too_many(self, count: int) -> str:
        return (
            f"takes {len(self.positional)} positional arguments ({', '.join(self.positional)}), got {count}"
        )

    def _unknown(self, name: str) -> str:
        return (
            f"it has no argument {name!r}.{did_you_mean(name, self.names)} It takes {', '.join(self.names)}"
        )


def _name(word: str) -> str:
    return word.rstrip("?").partition(":")[0]


def _kind(name: str, word: str) -> tuple[Callable[[object], bool], str]:
    own = word.rstrip("?").partition(":")[2]
    return _KINDS[own or _KIND_OF.get(name, "any")]


class Spelling:
    """The forms of one op; the first that fits is taken."""

    def __init__(self, op: str, forms: Sequence[str], check: Check | None = None) -> None:
        self.op = op
        self.forms = [Form(text) for text in forms]
        self.names = list(dict.fromkeys(name for form in self.forms for name in form.names))
        self._check = check

    def arguments(self, args: Sequence[Any], kwargs: Arguments) -> Arguments:
        misfits = []
        for form in self.forms:
            given = form.fitted(args, kwargs)
            if isinstance(given, dict):
                _check_route(self.op, given)
                if self._check is not None:
                    self._check(self.op, given)
                return given
            misfits.append(given)
        causes = [misfit() for misfit in misfits]
        if len(causes) > 1:
            causes = [f"form {i + 1}: {cause}" for i, cause in enumerate(causes)]
        raise refused(self.op, "; ".join(causes))


def _check_route(op: str, given: Arguments) -> None:
    links = given.get("num_links")
    for count in links if isinstance(links, list | tuple) else [links]:
        if count is not None and count < 1:
            raise MeshError(f"num_links must be greater than 0: {op} got num_links={links}.")
    if given.get("topology") in (Topology.Mesh, Topology.Torus):
        raise MeshError(
            f"Topology must be either Ring or Linear: {op} got {given['topology']}. "
            "Each step of a collective runs along one axis."
        )
    mesh, tensor = given.get("mesh_device"), given.get("input_tensor")
    if mesh is not None and isinstance(tensor, Tensor) and tensor.device() not in (None, mesh):
        raise MeshError(
            f"{op}: mesh_device is {mesh}, and the tensor lies on {tensor.device()}: give the tensor's own mesh."
        )


class SpelledSignature(Signature):
    """Binds by forms. `output` names the argument that holds the tensor to write, or finds it."""

    def __init__(
        self,
        spelling: Spelling,
        define: Callable[..., Any],
        controls: Sequence[str],
        output: str | Callable[[Arguments], Any] | None,
    ) -> None:
        own = Signature(spelling.op, define, [], [])
        known = {*own.names, *controls}
        tuning = [name for name in spelling.names if name not in known and name != output]
        super().__init__(
            spelling.op, define, [*controls, *([] if output in own.names else [_TARGET])], tuning
        )
        self._spelling = spelling
        self._output = output
        if isinstance(output, str) and output in own.names:  # what it holds is an operand too
            self.output_at = self.places[output]

    def bind(self, args: tuple[Any, ...], kwargs: Arguments) -> list[Any]:
        given = self._spelling.arguments(args, kwargs)
        if isinstance(given.get("num_links"), list | tuple):  # one for each axis of a call
            given["num_links"] = max(given["num_links"], default=None)
        output = self._output
        if callable(output):
            given[_TARGET] = output(given)
        elif output is not None and output not in self.places:
            given[_TARGET] = given.get(output)
        return [given.get(name, default) for name, default in zip(self.names, self.defaults, strict=True)]


_TARGET = "out"  # one of the registry's names for an output tensor; no collective spells it so


def spelled(
    name: str,
    *forms: str,
    controls: str = "memory_config",
    output: str | Callable[[Arguments], Any] | None = None,
    precision: str = "data",
    check: Check | None = None,
    kind: Callable[[Definition], Collective] = Collective,
) -> Callable[[Callable[..., Across]], Collective]:
    """Register the collective that the decorated function defines, under TT-NN's ways of calling it."""

    def register(define: Callable[..., Across]) -> Collective:
        signature = SpelledSignature(Spelling(name, forms, check), define, controls.split(), output)
        made = kind(Definition(name, define, signature, moves_bytes, precision))  # type: ignore[arg-type]
        OPERATIONS[name] = made
        return made

    return register


def across(op: Collective) -> Callable[..., Across]:
    """The definition of a collective, for others to build on."""
    return cast(Callable[..., Across], op.definition.define)


# Ops made of several others, by their dotted names: functions, where those of the registry are operations.
COMPOSITES: dict[str, Callable[..., Any]] = {}


def composite(
    name: str, form: str, check: Check | None = None
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Publish a function of named arguments under one of TT-NN's forms."""
    spelling = Spelling(name, [form], check)

    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            return function(**spelling.arguments(args, kwargs))

        call.__name__ = call.__qualname__ = name.rpartition(".")[2]
        call.__doc__ = function.__doc__
        COMPOSITES[name] = call
        return call

    return register
