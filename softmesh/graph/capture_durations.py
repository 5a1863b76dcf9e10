"""How long the functions of a captured graph took on the host."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from softmesh.graph.capture import CAPTURE_END, FUNCTION_END


def extract_total_duration_from_graph(graph: Sequence[Mapping[str, Any]]) -> float:
    """Nanoseconds from the start to the end of the capture; where that is not told, of all functions together."""
    for node in reversed(graph):
        if node.get("node_type") == CAPTURE_END and node.get("duration_ns"):
            return float(node["duration_ns"])
    return sum(extract_operation_durations(graph).values())


def extract_operation_durations(graph: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """Nanoseconds by the name of the function, all its calls together."""
    found: dict[str, float] = {}
    for node in graph:
        if node.get("node_type") == FUNCTION_END and "duration_ns" in node:
            name = str(node.get("params", {}).get("name", ""))
            found[name] = found.get(name, 0.0) + float(node["duration_ns"])
    return found
