"""Where a trace grows: a graph, and which node made which tensor."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import networkx as nx
import torch
from torch.utils.weak import WeakIdKeyDictionary, WeakTensorKeyDictionary

from softmesh.tensor.tensor import Tensor
from softmesh.tracer.values import (
    ArgNameValuePairs,
    InputTensorIndex,
    Node,
    PositionalArgumentName,
    TorchParameter,
    TorchTensor,
    TTNNTensor,
)

_IDS = itertools.count()


class Place(NamedTuple):
    """A tensor is one of the outputs of a node, counted from 0."""

    graph: nx.MultiDiGraph
    node: Node
    output: int


# Of every tensor that a trace has met, for as long as it lives.
_TORCH_PLACES: WeakTensorKeyDictionary = WeakTensorKeyDictionary()
_TTNN_PLACES: WeakIdKeyDictionary = WeakIdKeyDictionary()


def place_of(tensor: Any) -> Place | None:
    places = _TORCH_PLACES if isinstance(tensor, torch.Tensor) else _TTNN_PLACES
    found: Place | None = places.get(tensor)
    return found


def put(tensor: Any, place: Place) -> None:
    places = _TORCH_PLACES if isinstance(tensor, torch.Tensor) else _TTNN_PLACES
    places[tensor] = place


def is_tensor(value: object) -> bool:
    return isinstance(value, torch.Tensor | Tensor)


def tensors_in(nest: Any) -> list[Any]:
    if is_tensor(nest):
        return [nest]
    if isinstance(nest, Mapping):
        nest = nest.values()
    elif not isinstance(nest, list | tuple):
        return []
    return [tensor for item in nest for tensor in tensors_in(item)]


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
            put(tensor, Place(self.graph, node, index))
        return node

    def place(self, tensor: Any) -> Place:
        known = place_of(tensor)
        if known is None or known.graph is not self.graph:
            self.add(*_source(tensor), [tensor])
            known = place_of(tensor)
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
        outputs = tensors_in(output)
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
    if is_tensor(value):
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
