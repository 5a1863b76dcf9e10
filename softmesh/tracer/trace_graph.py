"""The graph of a traced tensor: everything it was computed from, modules as one node or flattened; drawn as DOT."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import networkx as nx

from softmesh.graph.dot_graph import DotGraph
from softmesh.tracer.nodes import Node, TorchModule
from softmesh.tracer.tracing import traced


def get_graph(value: Any, flatten: bool = False) -> nx.MultiDiGraph:
    """Everything that `value` was made from; `value` is a traced tensor, several of them, or a graph already."""
    if isinstance(value, nx.MultiDiGraph):
        graph = value
    else:
        places = traced(value)
        graph = places[0].graph
        wanted = {place.node for place in places if place.graph is graph}
        for node in tuple(wanted):
            wanted |= nx.ancestors(graph, node)
        graph = graph.subgraph(sorted(wanted)).copy()
    return flattened(graph) if flatten else graph


def flattened(graph: nx.MultiDiGraph) -> nx.MultiDiGraph:
    """With the inside of each module in its place."""
    flat = nx.MultiDiGraph()
    _splice(flat, graph, {})
    return flat


Places = dict[tuple[Node, int], tuple[Node, int]]  # an output -> where it comes from in the flat graph


def _splice(flat: nx.MultiDiGraph, graph: nx.MultiDiGraph, places: Places) -> Places:
    """Put a graph into `flat`, but for nodes that have a place already: the inputs of a module."""
    for node in nx.lexicographical_topological_sort(graph):
        if (node, 0) in places:
            continue
        sources = [places[source] for source in _sources(graph, node)]
        operation = graph.nodes[node]["operation"]
        if isinstance(operation, TorchModule):
            given = {(taken, 0): source for taken, source in zip(operation.inputs, sources, strict=True)}
            inside = _splice(flat, operation.graph, given)
            places.update({(node, i): inside[output] for i, output in enumerate(operation.outputs)})
            continue
        _copy(flat, graph, node, sources)
        places.update({(node, i): (node, i) for i in range(len(graph.nodes[node]["shapes"]))})
    return places


def _sources(graph: nx.MultiDiGraph, node: Node) -> list[tuple[Node, int]]:
    edges = sorted(graph.in_edges(node, data=True), key=lambda edge: edge[2]["sink_input_index"])
    return [(source, data["source_output_index"]) for source, _, data in edges]


def _copy(flat: nx.MultiDiGraph, graph: nx.MultiDiGraph, node: Node, sources: list[tuple[Node, int]]) -> None:
    flat.add_node(node, **graph.nodes[node])
    for at, (source, index) in enumerate(sources):
        flat.add_edge(source, node, source_output_index=index, sink_input_index=at)


def visualize_node(graphviz_graph: Any, graph: nx.MultiDiGraph, node: Node, verbose: bool = False) -> None:
    data = graph.nodes[node]
    shapes = ", ".join(str(list(shape)) for shape in data["shapes"])
    graphviz_graph.node(str(node), label=f"{data['operation'].to_string(verbose)}\n{shapes}", shape="box")


def visualize_edge(graphviz_graph: Any, edge: tuple[Node, Node, dict[str, int]]) -> None:
    source, sink, data = edge
    graphviz_graph.edge(str(source), str(sink), label=f"{data['source_output_index']}->{data['sink_input_index']}")


def visualize(
    output: Any,
    *,
    show_modules: bool = True,
    file_name: str | os.PathLike[str] | None = None,
    visualize_node: Callable[..., None] = visualize_node,
    visualize_edge: Callable[..., None] = visualize_edge,
    verbose: bool = False,
) -> DotGraph:
    """What led to a traced tensor, as DOT; into `file_name` too. `show_modules=False` shows what is inside them."""
    graph = get_graph(output, flatten=not show_modules)
    drawing = DotGraph("trace")
    for node in graph:
        visualize_node(drawing, graph, node, verbose)
    for edge in graph.edges(data=True):
        visualize_edge(drawing, edge)
    if file_name is not None:
        drawing.render(file_name)
    return drawing
