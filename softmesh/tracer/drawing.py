"""A trace as a drawing in the DOT language."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import networkx as nx

from softmesh.graph.picture import DotGraph
from softmesh.tracer.graphs import get_graph
from softmesh.tracer.values import Node


def visualize_node(graphviz_graph: Any, graph: nx.MultiDiGraph, node: Node, verbose: bool = False) -> None:
    data = graph.nodes[node]
    shapes = ", ".join(str(list(shape)) for shape in data["shapes"])
    graphviz_graph.node(str(node), label=f"{data['operation'].to_string(verbose)}\n{shapes}", shape="box")


def visualize_edge(graphviz_graph: Any, edge: tuple[Node, Node, dict[str, int]]) -> None:
    source, sink, data = edge
    graphviz_graph.edge(
        str(source), str(sink), label=f"{data['source_output_index']}->{data['sink_input_index']}"
    )


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
