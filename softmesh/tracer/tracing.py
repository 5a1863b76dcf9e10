"""Watching torch functions, modules and ttnn ops while a trace is on.

Names that a program imported from ttnn before tracing began (`from ttnn import from_torch`) are not seen.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch.overrides import TorchFunctionMode

from softmesh.dispatch.entry_point import EntryPoint, Proceed, intercepting
from softmesh.errors import MeshError
from softmesh.tracer.scope import Place, Scope, place_of, put, tensors_in
from softmesh.tracer.values import TorchFunction, TorchModule, TorchModuleInput, TTNNOperation

if TYPE_CHECKING:
    pass

# Functions of ttnn that are no ops, and bring values in, out or about.


class _Tracer(TorchFunctionMode):
    """The scopes from the program's down to the module that runs; `hidden` while an op's own torch calls run."""

    def __init__(self) -> None:
        super().__init__()
        self.scopes = [Scope()]
        self._hidden = 0

    @property
    def scope(self) -> Scope:
        return self.scopes[-1]

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        output = func(*args, **kwargs)
        if not self._hidden:
            name = getattr(func, "__name__", "function")
            self.scope.record(name, partial(TorchFunction, func), args, kwargs, output)
        return output

    def observe_op(
        self, op: EntryPoint, args: tuple[Any, ...], kwargs: dict[str, Any], proceed: Proceed
    ) -> Any:
        self._hidden += 1
        try:
            output = proceed(*args, **kwargs)
        finally:
            self._hidden -= 1
        if not self._hidden:
            name = op.python_fully_qualified_name
            made = partial(TTNNOperation, name, op)
            self.scope.record(name.rpartition(".")[2], made, args, kwargs, output)
        return output

    def called_module(
        self, forward: Callable[..., Any], module: torch.nn.Module, args: Any, kwargs: Any
    ) -> Any:
        if self._hidden:
            return forward(module, *args, **kwargs)
        outer, inner = self.scope, Scope()
        given = tensors_in([args, kwargs])
        places = [outer.place(tensor) for tensor in given]
        inputs = [
            inner.add(f"input_{at}", TorchModuleInput(f"input_{at}"), [tensor])
            for at, tensor in enumerate(given)
        ]
        self.scopes.append(inner)
        try:
            output = forward(module, *args, **kwargs)
            outputs = [inner.place(tensor) for tensor in tensors_in(output)]
        finally:
            self.scopes.pop()
            for tensor, place in zip(given, places, strict=True):
                put(tensor, place)
        made = partial(
            TorchModule, module, inner.graph, inputs, [(place.node, place.output) for place in outputs]
        )
        outer.record(type(module).__name__, made, args, kwargs, output)
        return output


_ON: list[tuple[_Tracer, ExitStack]] = []


@contextmanager
def trace() -> Iterator[None]:
    """Within the block every torch function, module call and ttnn op becomes a node of a graph.

    >>> with trace():
    ...     y = torch.exp(torch.rand(4))
    >>> [str(node.name) for node in get_graph(y)]
    ['rand', 'exp']
    """
    enable_tracing()
    try:
        yield
    finally:
        disable_tracing()


def enable_tracing() -> None:
    if _ON:
        raise MeshError("Tracing is already enabled: ttnn.tracer.trace() blocks do not nest.")
    tracer, attached = _Tracer(), ExitStack()
    attached.enter_context(tracer)
    attached.enter_context(intercepting(tracer.observe_op))
    call = torch.nn.Module.__call__

    def call_module(module: torch.nn.Module, *args: Any, **kwargs: Any) -> Any:
        return tracer.called_module(call, module, args, kwargs)

    attached.enter_context(_bound(torch.nn.Module, "__call__", call_module))
    _ON.append((tracer, attached))


@contextmanager
def _bound(owner: Any, name: str, value: object) -> Iterator[None]:
    """Another value under a name, for the length of the block."""
    before = getattr(owner, name)
    setattr(owner, name, value)
    try:
        yield
    finally:
        setattr(owner, name, before)


def disable_tracing() -> None:
    if not _ON:
        raise MeshError(
            "Tracing is not enabled: call ttnn.tracer.enable_tracing(), or write `with trace():`."
        )
    _, attached = _ON.pop()
    attached.close()


def is_tracing_enabled() -> bool:
    return bool(_ON)


def traced(value: Any) -> list[Place]:
    """Where tensors stand in their trace; an error for those that no trace has seen."""
    found = [place_of(tensor) for tensor in tensors_in(value)]
    if not found or any(place is None for place in found):
        raise MeshError(
            "ttnn.tracer: the tensor was not traced. Make it, or what it is made of, within "
            "`with ttnn.tracer.trace():`."
        )
    return [place for place in found if place is not None]
