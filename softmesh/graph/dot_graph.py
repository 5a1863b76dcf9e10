"""A captured graph as text, and as a drawing in graphviz's DOT language."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from softmesh.errors import MeshError
from softmesh.graph.capture import BUFFER_ALLOCATE, BUFFER_DEALLOCATE, FUNCTION_END, FUNCTION_START, Node
from softmesh.graph.extraction import checked_graph
from softmesh.terminal_text import echo

_SECONDS = 60
_SHAPES = {FUNCTION_START: "box", FUNCTION_END: "box", "tensor": "ellipse", "buffer": "cylinder"}


class DotGraph:
    """A graph in the DOT language, growing by nodes and edges: as much of graphviz's Digraph as is asked of it."""

    def __init__(self, name: str = "graph") -> None:
        self._lines: list[str] = [f"digraph {_quoted(name)} {{"]

    def node(self, name: str, label: str = "", **attributes: str) -> None:
        self._lines.append(f"  {_quoted(name)} [{_attributes({'label': label or name, **attributes})}];")

    def edge(self, tail: str, head: str, label: str = "", **attributes: str) -> None:
        shown = {"label": label, **attributes} if label else attributes
        self._lines.append(f"  {_quoted(tail)} -> {_quoted(head)} [{_attributes(shown)}];")

    @property
    def source(self) -> str:
        return "\n".join([*self._lines, "}", ""])

    def render(self, file_name: str | os.PathLike[str]) -> Path:
        """Write `.dot`, or what graphviz makes of it by the ending of the name (`.svg`, `.pdf`, `.png`)."""
        path = Path(file_name)
        kind = path.suffix.removeprefix(".").lower()
        if kind in ("dot", "gv", ""):
            path.write_text(self.source, encoding="utf-8")
            return path
        dot = shutil.which("dot")
        if dot is None:
            path = path.with_suffix(".dot")
            path.write_text(self.source, encoding="utf-8")
            return path
        try:
            subprocess.run(
                [dot, f"-T{kind}", "-o", os.fspath(path)],
                input=self.source.encode(),
                check=True,
                capture_output=True,
                timeout=_SECONDS,
            )
        except (subprocess.SubprocessError, OSError) as error:
            raise MeshError(f"graphviz could not draw {path}: {error}.") from None
        return path


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") + '"'


def _attributes(attributes: dict[str, str]) -> str:
    return ", ".join(f"{name}={_quoted(value)}" for name, value in attributes.items())


def pretty_format(captured_graph: Any) -> str:
    return "\n".join(_lines(captured_graph))


def _lines(captured_graph: Any) -> Iterator[str]:
    for node in checked_graph(captured_graph):
        indent, params = "    " * node["stacking_level"], node["params"]
        if node["node_type"] == FUNCTION_START:
            yield f"{indent}begin: {params['name']}({', '.join(node['arguments'])})"
        elif node["node_type"] == FUNCTION_END:
            yield f"{indent}end:   {params['name']}"
        elif node["node_type"] == BUFFER_ALLOCATE:
            yield f"{indent}allocate   {params['size']} B of {params['type']} at {params['address']}"
        elif node["node_type"] == BUFFER_DEALLOCATE:
            yield f"{indent}deallocate {params['size']} B of {params['type']} at {params['address']}"


def pretty_print(captured_graph: Any) -> None:
    """The functions and the memory that comes and goes, indented by depth."""
    echo(pretty_format(captured_graph))


def visualize_node(graphviz_graph: Any, node: Node) -> None:
    params = node["params"]
    title = params.get("name") or node["node_type"]
    details = [f"{key}: {value}" for key, value in params.items() if key in ("shape", "type", "size", "dtype")]
    shape = _SHAPES.get(node["node_type"], "plaintext")
    graphviz_graph.node(str(node["counter"]), label="\n".join([title, *details]), shape=shape)


def visualize_edge(graphviz_graph: Any, source_node_id: int, sink_node_id: int) -> None:
    graphviz_graph.edge(str(source_node_id), str(sink_node_id))


def visualize(
    captured_graph: Any,
    *,
    file_name: str | os.PathLike[str] | None = None,
    visualize_node: Callable[[Any, Node], None] = visualize_node,
    visualize_edge: Callable[[Any, int, int], None] = visualize_edge,
) -> DotGraph:
    """The graph as DOT; drawn into `file_name` by graphviz where that is installed, else beside it as `.dot`."""
    drawing = DotGraph("captured_graph")
    nodes = checked_graph(captured_graph)
    for node in nodes:
        visualize_node(drawing, node)
    for node in nodes:
        for sink in node["connections"]:
            visualize_edge(drawing, node["counter"], sink)
    if file_name is not None:
        drawing.render(file_name)
    return drawing
