"""Code generation: a traced computation as Python source, a function of the tensors and objects it began with."""

from __future__ import annotations

from typing import Any

import networkx as nx
import torch

from softmesh.hardware.enums import NativeEnum
from softmesh.hardware.shape import Shape
from softmesh.tracer.nodes import (
    InputTensorIndex,
    Node,
    PositionalArgumentName,
    TorchFunction,
    TTNNOperation,
)
from softmesh.tracer.trace_graph import get_graph
from softmesh.tracer.tracing import traced

_INDENT = "    "


def codegen(output: Any) -> str:
    """The source of a function `forward` that computes `output` again, module by module taken apart."""
    graph = get_graph(output, flatten=True)
    writer = _Writer(graph)
    for node in nx.lexicographical_topological_sort(graph):
        writer.write(node)
    places = [] if isinstance(output, nx.MultiDiGraph) else traced(output)
    last = [writer.outputs(place.node)[place.output] for place in places if place.node in graph]
    return writer.source(last)


class _Writer:
    """Statements one by one; whatever cannot be written as a literal becomes a parameter."""

    def __init__(self, graph: nx.MultiDiGraph) -> None:
        self._graph = graph
        self._parameters: dict[str, None] = {}
        self._known: dict[int, str] = {}  # id of an object -> the parameter that stands for it
        self._statements: list[str] = []

    def outputs(self, node: Node) -> list[str]:
        count = len(self._graph.nodes[node]["shapes"])
        name = f"{node.name.strip('_')}_{node.unique_id}"
        return [name] if count == 1 else [f"{name}_{at}" for at in range(count)]

    def write(self, node: Node) -> None:
        operation = self._graph.nodes[node]["operation"]
        if not isinstance(operation, TorchFunction | TTNNOperation):
            self._parameters[self.outputs(node)[0]] = None
            return
        edges = sorted(self._graph.in_edges(node, data=True), key=lambda edge: edge[2]["sink_input_index"])
        inputs = [self.outputs(source)[data["source_output_index"]] for source, _, data in edges]
        arguments = [
            self._literal(value, inputs, "argument")
            if isinstance(name, PositionalArgumentName)
            else f"{name}={self._literal(value, inputs, str(name))}"
            for name, value in operation.arg_name_value_pairs
        ]
        name = operation.name if isinstance(operation, TorchFunction) else operation.pretty_name
        self._statements.append(f"{', '.join(self.outputs(node))} = {name}({', '.join(arguments)})")

    def _literal(self, value: Any, inputs: list[str], name: str) -> str:
        if isinstance(value, InputTensorIndex):
            return inputs[value.index]
        if isinstance(value, torch.Size | Shape):
            value = tuple(value)
        if isinstance(value, list | tuple):
            items = ", ".join(self._literal(item, inputs, name) for item in value)
            return f"[{items}]" if isinstance(value, list) else f"({items}{',' if len(value) == 1 else ''})"
        if isinstance(value, NativeEnum):
            return f"ttnn.{value!r}"
        if value is None or isinstance(value, bool | int | float | str | torch.dtype):
            return repr(value)
        return self._parameter(value, name)

    def _parameter(self, value: object, name: str) -> str:
        known = self._known.get(id(value))
        if known is None:
            taken = sum(other.startswith(name) for other in self._parameters)
            known = self._known[id(value)] = f"{name}_{taken}" if taken else name
            self._parameters[known] = None
        return known

    def source(self, returned: list[str]) -> str:
        lines = [
            f"def forward({', '.join(self._parameters)}):",
            *(_INDENT + line for line in self._statements),
        ]
        if returned:
            lines.append(f"{_INDENT}return {', '.join(returned)}")
        return "import torch\nimport ttnn\n\n\n" + "\n".join(lines) + "\n"
