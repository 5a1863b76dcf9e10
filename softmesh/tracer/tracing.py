"""Tracing: records torch functions, module calls and ttnn ops as nodes of a networkx graph while a trace is on.

Each tensor is mapped weakly to the node output it is. Names that a program imported from ttnn before tracing began
(`from ttnn import from_torch`) are not seen.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any, NamedTuple

import networkx as nx
import torch
from torch.overrides import TorchFunctionMode
from torch.utils.weak import WeakIdKeyDictionary, WeakTensorKeyDictionary

from softmesh.config import CONFIG
from softmesh.dispatch.entry_point import EntryPoint, Proceed, intercepting
from softmesh.errors import ArgumentValueError, MeshError
from softmesh.graph.python_io import tensors_in
from softmesh.tensor.tensor import Tensor
from softmesh.tracer.nodes import (
    ArgNameValuePairs,
    InputTensorIndex,
    Node,
    PositionalArgumentName,
    TorchFunction,
    TorchModule,
    TorchModuleInput,
    TorchParameter,
    TorchTensor,
    TTNNOperation,
    TTNNTensor,
)

_IDS = itertools.count()
_TENSORS = (torch.Tensor, Tensor)


class NodeOutput(NamedTuple):
    """A tensor is one of the outputs of a node, counted from 0."""

    graph: nx.MultiDiGraph
    node: Node
    output: int


# Of every tensor that a trace has met, for as long as it lives.
_TORCH_PLACES: WeakTensorKeyDictionary = WeakTensorKeyDictionary()
_TTNN_PLACES: WeakIdKeyDictionary = WeakIdKeyDictionary()


def node_output_of(tensor: Any) -> NodeOutput | None:
    places = _TORCH_PLACES if isinstance(tensor, torch.Tensor) else _TTNN_PLACES
    found: NodeOutput | None = places.get(tensor)
    return found


def put(tensor: Any, place: NodeOutput) -> None:
    places = _TORCH_PLACES if isinstance(tensor, torch.Tensor) else _TTNN_PLACES
    places[tensor] = place


class Scope:
    """One graph that grows: that of the program, or of the inside of a module."""

    def __init__(self) -> None:
        self.graph = nx.MultiDiGraph()

    def add(self, name: str, operation: object, outputs: Sequence[Any], inputs: Sequence[Any] = ()) -> Node:
        """A node that made `outputs` from `inputs`; those get nodes of their own where they have none here."""
        sources = [self.place(tensor) for tensor in inputs]
        node = Node(name, next(_IDS))
        shapes = tuple(tuple(tensor.shape) for tensor in outputs)
        self.graph.add_node(node, operation=operation, shapes=shapes, dtypes=tuple(t.dtype for t in outputs))
        for at, source in enumerate(sources):
            self.graph.add_edge(source.node, node, source_output_index=source.output, sink_input_index=at)
        for index, tensor in enumerate(outputs):
            put(tensor, NodeOutput(self.graph, node, index))
        return node

    def place(self, tensor: Any) -> NodeOutput:
        known = node_output_of(tensor)
        if known is None or known.graph is not self.graph:
            self.add(*_source(tensor), [tensor])
            known = node_output_of(tensor)
        assert known is not None
        return known

    def record(
        self,
        name: str,
        make: Callable[[ArgNameValuePairs], object],
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        output: Any,
    ) -> None:
        """A call that returned tensors; one that did not leaves nothing behind."""
        outputs = tensors_in(output, _TENSORS)
        if not outputs:
            return
        inputs: list[Any] = []
        pairs: list[tuple[Any, Any]] = [
            (PositionalArgumentName(at), _indexed(value, inputs)) for at, value in enumerate(args)
        ]
        pairs += [(key, _indexed(value, inputs)) for key, value in kwargs.items()]
        self.add(name, make(tuple(pairs)), outputs, inputs)


def _indexed(value: Any, inputs: list[Any]) -> Any:
    """The value, with a number for each tensor in it."""
    if isinstance(value, _TENSORS):
        inputs.append(value)
        return InputTensorIndex(len(inputs) - 1)
    if isinstance(value, Mapping):
        return {key: _indexed(item, inputs) for key, item in value.items()}
    if type(value) in (list, tuple):
        return type(value)(_indexed(item, inputs) for item in value)
    return value


def _source(tensor: Any) -> tuple[str, object]:
    if isinstance(tensor, torch.nn.Parameter):
        return "parameter", TorchParameter(tensor)
    if isinstance(tensor, torch.Tensor):
        return "tensor", TorchTensor(tensor)
    return "ttnn_tensor", TTNNTensor()


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

    def observe_op(self, op: EntryPoint, args: tuple[Any, ...], kwargs: dict[str, Any], proceed: Proceed) -> Any:
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

    def called_module(self, forward: Callable[..., Any], module: torch.nn.Module, args: Any, kwargs: Any) -> Any:
        if self._hidden:
            return forward(module, *args, **kwargs)
        outer, inner = self.scope, Scope()
        given = tensors_in([args, kwargs], _TENSORS)
        places = [outer.place(tensor) for tensor in given]
        inputs = [
            inner.add(f"input_{at}", TorchModuleInput(f"input_{at}"), [tensor]) for at, tensor in enumerate(given)
        ]
        self.scopes.append(inner)
        try:
            output = forward(module, *args, **kwargs)
            outputs = [inner.place(tensor) for tensor in tensors_in(output, _TENSORS)]
        finally:
            self.scopes.pop()
            for tensor, place in zip(given, places, strict=True):
                put(tensor, place)
        made = partial(TorchModule, module, inner.graph, inputs, [(place.node, place.output) for place in outputs])
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
    """Refused in fast runtime mode, which is the default, as in TT-NN."""
    if CONFIG.enable_fast_runtime_mode:
        raise ArgumentValueError(
            "Tracing is not supported in fast runtime mode. Set ttnn.CONFIG.enable_fast_runtime_mode = False before."
        )
    if _ON:
        raise ArgumentValueError("Tracing is already enabled. ttnn.tracer.trace() blocks do not nest.")
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
    """End tracing; harmless where none is on."""
    if _ON:
        _, attached = _ON.pop()
        attached.close()


def is_tracing_enabled() -> bool:
    return bool(_ON)


def traced(value: Any) -> list[NodeOutput]:
    """Where tensors stand in their trace; an error for those that no trace has seen."""
    found = [node_output_of(tensor) for tensor in tensors_in(value, _TENSORS)]
    if not found or any(place is None for place in found):
        raise MeshError(
            "ttnn.tracer: the tensor was not traced. Make it, or what it is made of, within "
            "`with ttnn.tracer.trace():`."
        )
    return [place for place in found if place is not None]
