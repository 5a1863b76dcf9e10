"""The one door of the public API: every call of an op, a collective, a transfer or a composite passes through here.

    ttnn.relu(x) -> EntryPoint.__call__ +-> interceptors, if any: hooks, log, comparison, tracer, graph capture
                                        +-> a compiled call, if there is one for operands like these (call_cache)
                                        +-> invoke: bind, check, plan, run; and compile it for the next call

Whoever wants to see calls adds an interceptor, and sees all of them, in order; calls that a composite makes are seen
inside of its own. What a call does on the devices is told as commands (runtime.commands).
"""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import MethodType
from typing import TYPE_CHECKING, Any

from softmesh.dispatch.call_cache import Call, Calls
from softmesh.dispatch.diagnosis_hooks import HOOKS
from softmesh.errors import ArgumentError, ArgumentValueError
from softmesh.runtime import commands
from softmesh.runtime.machine_errors import mesh_of, raise_machine_error
from softmesh.runtime.queues import cuda_streams
from softmesh.runtime.queues.queue_id import command_queue

if TYPE_CHECKING:
    from softmesh.dispatch.call_form import CallForm

Proceed = Callable[..., Any]  # the call itself, or the next interceptor in line
Interceptor = Callable[["EntryPoint", tuple[Any, ...], dict[str, Any], Proceed], Any]

_QUEUE = ("queue_id", "cq_id")
# Errors of Python or torch: that of an argument which no check foresaw, or of the program's own function.
UNFORESEEN = (ArithmeticError, AssertionError, AttributeError, LookupError, RuntimeError, TypeError, ValueError)
INTERCEPTORS: list[Interceptor] = []


class _InspectedSignature:
    """Of a callable, not of the class of callables."""

    def __get__(self, op: EntryPoint | None, _: type[EntryPoint]) -> inspect.Signature | None:
        return None if op is None else op.inspected_signature()


class _HelpText:
    """`__doc__` of a callable, put together when somebody asks; of the class, its own."""

    def __init__(self, of_class: str | None) -> None:
        self._of_class = of_class

    def __get__(self, op: EntryPoint | None, _: type[EntryPoint]) -> str | None:
        return self._of_class if op is None else op.help_text()


class EntryPoint:
    """A callable of the public API: what `ttnn.relu`, `ttnn.from_torch` and `ttnn.experimental.send_async` are."""

    __signature__ = _InspectedSignature()
    __name__: str
    name: str  # below `ttnn`
    cache: Calls | None = None  # None: nothing of it can be compiled
    reads_other_devices = False
    may_replay = False  # True: whoever wrote the arguments may be unknown; the call reaches no file of the user
    _golden: Callable[..., Any] | None = None

    def __init_subclass__(cls) -> None:
        cls.__doc__ = _HelpText(cls.__doc__)  # type: ignore[assignment]

    @property
    def python_fully_qualified_name(self) -> str:
        return f"ttnn.{self.name}"

    @property
    def golden_function(self) -> Callable[..., Any] | None:
        """Its torch reference."""
        if self._golden is None:
            self._golden = self.known_golden()
        return self._golden

    @golden_function.setter
    def golden_function(self, function: Callable[..., Any] | None) -> None:
        self._golden = function

    def known_golden(self) -> Callable[..., Any] | None:
        """The reference that comes with softmesh: bound by `ops.golden`, which stands above."""
        return None

    def __repr__(self) -> str:
        return f"<operation {self.python_fully_qualified_name}>"

    def inspected_signature(self) -> inspect.Signature | None:
        """For `inspect` and notebooks; None where there are several forms of calls."""
        return None

    def docstring(self) -> str | None:
        """The docstring of its definition, which may end in an example."""
        raise NotImplementedError

    def description(self) -> str:
        """Return what it computes, in the words of its definition."""
        return self._documentation()[0].strip()

    def example(self) -> str:
        """Return the doctest at the end of its docstring, unless that is of another op."""
        code = "".join(self._documentation()[1:])
        return code if f"{self.python_fully_qualified_name}(" in code else ""

    def _documentation(self) -> tuple[str, str, str]:
        return inspect.cleandoc(self.docstring() or "").partition(">>> ")

    def help_text(self) -> str:
        from softmesh.dispatch.help_text import help_text

        return help_text(self)

    def call_forms(self) -> list[CallForm]:
        """All ways to call it, for whoever shows them."""
        raise NotImplementedError

    def result_type(self) -> object:
        """Of what a call returns: a type, or its name."""
        raise NotImplementedError

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        try:
            if kwargs and cuda_streams.SEVERAL_QUEUES and (queue := cuda_streams.other_queue(kwargs)) is not None:
                with cuda_streams.on_queue(queue):
                    return self(*args, **kwargs)
            if INTERCEPTORS:
                return _through_interceptors(self, args, kwargs)
            cache = self.cache
            if cache is None:
                return self._invoked(args, kwargs, None)
            call = cache.look_up(args, kwargs)
            if call is not None and call.compiled is not None:
                result = call.compiled.run(call, args, kwargs)
                if result is not NotImplemented:
                    return result
            return self._invoked(args, kwargs, call)
        except ArgumentError as error:
            explained = self.explained(error, args, kwargs)
            if explained is error:
                raise
            raise explained from error
        except OverflowError as error:
            raise ArgumentValueError(f"{self.name}: {_too_large(args, kwargs)} ({error}).") from error
        except (MemoryError, RuntimeError) as error:
            raise_machine_error(self.name, error, mesh_of(args, kwargs))
            HOOKS.tell_unforeseen(self.name, error, args, kwargs)
            raise
        except UNFORESEEN as error:
            HOOKS.tell_unforeseen(self.name, error, args, kwargs)
            raise

    def explained(self, error: ArgumentError, args: tuple[Any, ...], kwargs: dict[str, Any]) -> ArgumentError:
        """What the caller is told of arguments that were refused."""
        return error

    def takes(self, name: str) -> bool:
        """Whether it has an argument of this name."""
        return False

    def _invoked(self, args: tuple[Any, ...], kwargs: dict[str, Any], call: Call | None) -> Any:
        """The call in full, on the queue that it names: every entry point takes one, by either name."""
        named = [name for name in _QUEUE if name in kwargs and not self.takes(name)] if kwargs else None
        if not named:
            return self.invoke(args, kwargs, call)
        others = {name: value for name, value in kwargs.items() if name not in named}
        if kwargs[named[0]] is None:
            return self.invoke(args, others, None)
        with command_queue(kwargs[named[0]]):
            return self.invoke(args, others, None)

    def invoke(self, args: tuple[Any, ...], kwargs: dict[str, Any], call: Call | None) -> Any:
        """The call in full. `call` is how the next one like it would be looked up, None where it never could be."""
        raise NotImplementedError


def _too_large(args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
    """Which number it was; dtypes hold numbers up to a size."""
    named = {**{f"argument {at}": value for at, value in enumerate(args)}, **kwargs}
    numbers = {name: value for name, value in named.items() if isinstance(value, int) and abs(value) >= 1 << 31}
    if not numbers:
        return "a number is larger than any dtype can hold"
    name, value = max(numbers.items(), key=lambda item: abs(item[1]))
    return f"{name} is a number of about {value.bit_length()} bits, larger than any dtype can hold"


def _through_interceptors(op: EntryPoint, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The call, asked through everyone in line; the latest comes first."""

    def proceed(*args: Any, **kwargs: Any) -> Any:
        call = None if op.cache is None else op.cache.look_up(args, kwargs)
        if call is not None and call.compiled is not None:
            result = call.compiled.run(call, args, kwargs)
            if result is not NotImplemented:
                return result
        return op._invoked(args, kwargs, call)

    for interceptor in INTERCEPTORS:
        proceed = functools.partial(_ask, interceptor, op, proceed)
    return proceed(*args, **kwargs)


def _ask(interceptor: Interceptor, op: EntryPoint, proceed: Proceed, *args: Any, **kwargs: Any) -> Any:
    return interceptor(op, args, kwargs, proceed)


@contextmanager
def intercepting(interceptor: Interceptor) -> Iterator[None]:
    """Within the block `interceptor(op, args, kwargs, proceed)` answers for every call.

    What it returns is the call's result: mostly that of `proceed(*args, **kwargs)`.
    """
    INTERCEPTORS.append(interceptor)
    try:
        yield
    finally:
        INTERCEPTORS.remove(interceptor)


def switch_interceptor(interceptor: Interceptor, on: bool) -> None:
    """Put it in line, or take it out; once, however often it is asked for."""
    if on and interceptor not in INTERCEPTORS:
        INTERCEPTORS.append(interceptor)
    elif not on and interceptor in INTERCEPTORS:
        INTERCEPTORS.remove(interceptor)


def _takes_paths(function: Callable[..., Any]) -> bool:
    """True if a parameter has no type, or one that a path has: free text counts, a `Literal` does not."""
    parameters = inspect.signature(function).parameters.values()
    types = [str(parameter.annotation) for parameter in parameters if parameter.name not in ("self", "cls")]
    return any(kind == str(inspect.Parameter.empty) or _PATH.search(_LITERAL.sub("", kind)) for kind in types)


_PATH = re.compile(r"\b(str|bytes|Path|PathLike|IO|TextIO|BinaryIO|Callable)\b")
_LITERAL = re.compile(r"Literal\[[^\]]*\]")
FUNCTIONS: dict[str, EntryPoint] = {}  # by name, all that were made so far


class Function(EntryPoint):
    """A Python function behind the door: a transfer such as `from_torch`, or a composite of several ops.

    `function` has checked its arguments by the time it computes (see `softmesh.arguments`).
    """

    def __init__(self, function: Callable[..., Any], name: str | None = None) -> None:
        """`function`'s types tell whether it may be replayed: only one that takes no path, and no free text."""
        functools.update_wrapper(self, function, [n for n in functools.WRAPPER_ASSIGNMENTS if n != "__doc__"])
        self.function = function
        self.name = name or function.__name__
        self.may_replay = not _takes_paths(function)
        FUNCTIONS[self.name] = self

    def inspected_signature(self) -> inspect.Signature:
        return inspect.signature(self.function)

    def docstring(self) -> str | None:
        return self.function.__doc__

    def call_forms(self) -> list[CallForm]:
        from softmesh.dispatch.call_form import form_of_function

        return [form_of_function(self.function)]

    def result_type(self) -> object:
        from softmesh.dispatch.call_form import types_of

        return types_of(inspect.unwrap(self.function)).get("return", Any)

    def takes(self, name: str) -> bool:
        parameters = self.inspected_signature().parameters
        return name in parameters or any(p.kind is p.VAR_KEYWORD for p in parameters.values())

    def __get__(self, instance: object, owner: type | None = None) -> Callable[..., Any]:
        return self if instance is None else MethodType(self, instance)

    def invoke(self, args: tuple[Any, ...], kwargs: dict[str, Any], call: Call | None) -> Any:
        if not commands.observers:
            return self.function(*args, **kwargs)
        with commands.within(self.name):
            return self.function(*args, **kwargs)
