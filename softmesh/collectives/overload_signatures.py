"""Overload resolution of collectives: TT-NN's call forms as text, and the signature that binds a call to the first fit.

    Overload("input_tensor persistent_output_buffer? dim multi_device_global_semaphore | num_links? cluster_axis?")

Names before the bar may be given by position, the others by name; a `?` marks those that have a default.
Python has no such signature (a required name after an optional one), TT-NN's bindings do.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from softmesh.arguments import ArgumentNames, refused
from softmesh.arguments import Kind as ArgumentKind
from softmesh.collectives.argument_checks import HINTS, KIND_OF, KINDS, check_aliases, check_resources, desc
from softmesh.collectives.collective_operation import collective_definition
from softmesh.collectives.collective_spec import CollectiveSpec
from softmesh.dispatch.definition import Definition
from softmesh.dispatch.entry_point import Function
from softmesh.dispatch.operation import Operation, registered
from softmesh.dispatch.roles import WRITTEN_REMOTELY, Role, take_roles
from softmesh.dispatch.signature import Signature
from softmesh.errors import MeshError
from softmesh.hardware import Topology
from softmesh.kinds import Kind
from softmesh.tensor.tensor import Tensor

if TYPE_CHECKING:
    from softmesh.dispatch.call_form import CallForm, Types

Arguments = dict[str, Any]
Check = Callable[[str, Arguments], None]
Misfit = Callable[[], str]  # put into words only where no form fits


class Overload:
    """One overload. A name may carry its kind (`dim:ints`) where it differs from what the name means elsewhere."""

    def __init__(self, text: str) -> None:
        self.source = text
        first, _, rest = text.partition("|")
        words = {_name(word): word for word in (*first.split(), *rest.split())}
        self.required = [name for name, word in words.items() if not word.endswith("?")]
        self._known = ArgumentNames(list(words), len(first.split()), self.required)
        self.names, self.positional = self._known.names, self._known.positional
        self._checks: dict[str, tuple[ArgumentKind, bool]] = {}  # and whether None will do
        for name, word in words.items():
            kind = word.rstrip("?").partition(":")[2] or KIND_OF.get(name, "any")
            self._checks[name] = KINDS[kind], word.endswith("?") or kind in HINTS

    def fitted(self, args: Sequence[Any], kwargs: Arguments) -> Arguments | Misfit:
        """The arguments by name, or why they do not fit."""
        bound = self._known.bound(args, kwargs)
        if isinstance(bound, str):
            return lambda: bound
        given = {self.names[at]: value for at, value in bound.items()}
        for name, value in given.items():
            kind, may_be_none = self._checks[name]
            if not ((may_be_none and value is None) or kind.fits(value)):
                return partial(kind.misfit, name, value)
        return given

    def text(self) -> str:
        """`(input_tensor, persistent_output_buffer=None, dim, *, num_links=None)`"""
        words = [name if name in self.required else f"{name}=None" for name in self.names]
        if self.positional < len(words):
            words.insert(self.positional, "*")
        return f"({', '.join(words)})"


def _name(word: str) -> str:
    return word.rstrip("?").partition(":")[0]


class OverloadSet:
    """The forms of one op; the first that fits is taken."""

    def __init__(self, op: str, forms: Sequence[str], check: Check | None = None) -> None:
        self.op = op
        self.forms = [Overload(text) for text in forms]
        self.names = list(dict.fromkeys(name for form in self.forms for name in form.names))
        self._check = check
        self.written_remotely: Sequence[str] = ()  # arguments that other devices write into

    def arguments(self, args: Sequence[Any], kwargs: Arguments) -> Arguments:
        misfits = []
        for form in self.forms:
            given = form.fitted(args, kwargs)
            if isinstance(given, dict):
                _check_route(self.op, given)
                if self._check is not None:
                    self._check(self.op, given)
                self._check_resources(given)
                return given
            misfits.append(given)
        causes = [misfit() for misfit in misfits]
        if len(causes) > 1:
            causes = [f"form {i + 1}: {cause}" for i, cause in enumerate(causes)]
        raise refused(self.op, "; ".join(causes))

    def call_forms(self, types: Types) -> list[CallForm]:
        """As data; `types` are those of arguments that are not of the kind their name has elsewhere."""
        from softmesh.collectives.argument_types import KIND_TYPES, TYPES_BY_NAME
        from softmesh.dispatch.call_form import form_of_text

        known = {**TYPES_BY_NAME, **types, **KIND_TYPES}
        return [form_of_text(form.source, known) for form in self.forms]

    def _check_resources(self, given: Arguments) -> None:
        operand = _first_operand(given)
        mesh = None if operand is None else operand.device()
        if mesh is None or not mesh.is_open:
            return  # the registry answers for operands
        named = given.get("mesh_device")
        if named is not None and named is not mesh:
            raise MeshError(
                f"{self.op}: mesh_device is {desc(named)}, and the tensor lies on {desc(mesh)}: give the tensor's own "
                "mesh."
            )
        check_resources(self.op, given, mesh)
        received = {name: given[name] for name in self.written_remotely if name in given}
        check_aliases(self.op, given.get(self.names[0]), received)


def _first_operand(given: Arguments) -> Tensor | None:
    for value in given.values():
        one = value[0] if isinstance(value, list | tuple) and value else value
        if isinstance(one, Tensor):
            return one
    return None


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


class OverloadSignature(Signature):
    """Binds by forms. `output` names the argument that holds the tensor to write, or finds it."""

    has_forms = True

    def __init__(
        self,
        overloads: OverloadSet,
        define: Callable[..., Any],
        controls: Sequence[str],
        output: str | Callable[[Arguments], Any] | None,
    ) -> None:
        own = Signature(overloads.op, define, [], [])
        known = {*own.names, *controls}
        tuning = [name for name in overloads.names if name not in known and name != output]
        super().__init__(overloads.op, define, [*controls, *([] if output in own.names else [_TARGET])], tuning)
        self._overloads = overloads
        self._output = output
        self.output_name = output if isinstance(output, str) else None  # else several may hold them
        if isinstance(output, str) and output in own.names:  # what it holds is an operand too
            self.output_at = self.places[output]

    def texts(self) -> list[str]:
        return [form.text() for form in self._overloads.forms]

    def call_forms(self, types: Types) -> list[CallForm]:
        return self._overloads.call_forms(types)

    def bind(self, args: tuple[Any, ...], kwargs: Arguments) -> list[Any]:
        given = self._overloads.arguments(args, kwargs)
        if isinstance(given.get("num_links"), list | tuple):  # one for each axis of a call
            given["num_links"] = max(given["num_links"], default=None)
        output = self._output
        if callable(output):
            given[_TARGET] = output(given)
        elif output is not None and output not in self.places:
            given[_TARGET] = given.get(output)
        return [given.get(name, default) for name, default in zip(self.names, self.defaults, strict=True)]


_TARGET = "out"  # one of the registry's names for an output tensor; no collective spells it so


def overloaded_collective(
    name: str,
    *forms: str,
    kind: Kind,
    controls: str = "memory_config",
    output: str | Callable[[Arguments], Any] | None = None,
    check: Check | None = None,
    operation_class: Callable[[Definition], Operation] = Operation,
    **options: Any,
) -> Callable[[Callable[..., CollectiveSpec]], Operation]:
    """Register the collective that the decorated function defines, under TT-NN's ways of calling it."""

    def register(define: Callable[..., CollectiveSpec]) -> Operation:
        overloads = OverloadSet(name, forms, check)
        signature = OverloadSignature(overloads, define, controls.split(), output)
        definition = collective_definition(name, kind, define, signature, **options)
        overloads.written_remotely = definition.written_remotely
        return registered(operation_class(definition))

    return register


def definition_of(op: Operation) -> Callable[..., CollectiveSpec]:
    """The definition of a collective, for others to build on."""
    return cast(Callable[..., CollectiveSpec], op.definition.define)


class Composite(Function):
    """A function of named arguments that is called in TT-NN's forms; all that it runs is one program of the chips."""

    def __init__(
        self, name: str, overloads: OverloadSet, function: Callable[..., Any], roles: Mapping[str, Role]
    ) -> None:
        def call(*args: Any, **kwargs: Any) -> Any:
            given = overloads.arguments(args, kwargs)
            operand = _first_operand(given)
            mesh = None if operand is None else operand.device()
            if mesh is None:
                return function(**given)
            with mesh.one_program(name):
                return function(**given)

        call.__name__ = call.__qualname__ = name.rpartition(".")[2]
        call.__doc__ = function.__doc__
        super().__init__(call, name)
        self._overloads = overloads
        self._composed = function
        self.roles = roles

    def call_forms(self) -> list[CallForm]:
        from softmesh.dispatch.call_form import types_of

        return self._overloads.call_forms(types_of(self._composed))

    def result_type(self) -> object:
        from softmesh.dispatch.call_form import types_of

        return types_of(self._composed).get("return", Any)


# Ops made of several others, by their dotted names.
COMPOSITES: dict[str, Function] = {}


def composite(
    name: str, form: str, check: Check | None = None, **roles: str
) -> Callable[[Callable[..., Any]], Function]:
    """Publish a function of named arguments under one of TT-NN's forms, with the roles of those it does not read."""
    overloads = OverloadSet(name, [form], check)
    stated = take_roles(dict(roles))
    overloads.written_remotely = [name for name, role in stated.items() if role in WRITTEN_REMOTELY]

    def register(function: Callable[..., Any]) -> Function:
        made = COMPOSITES[name] = Composite(name, overloads, function, stated)
        return made

    return register
