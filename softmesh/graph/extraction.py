"""Queries on a captured graph: its call trace, output tensors, peak memory, and levels."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from softmesh.errors import ArgumentError
from softmesh.graph.capture import BUFFER, BUFFER_DEALLOCATE, FUNCTION_END, FUNCTION_START, TENSOR, Node
from softmesh.hardware.enums import BufferType
from softmesh.hardware.shape import Shape

_L1 = (BufferType.L1.name, BufferType.L1_SMALL.name)


@dataclass(frozen=True)
class TensorInfo:
    """A result of the last op."""

    shape: Shape
    size: int
    type: BufferType

    def __repr__(self) -> str:
        return f"TensorInfo{{shape={self.shape}, size={self.size}, type={self.type}}}"


@dataclass(frozen=True)
class PeakMemoryUsagePerCore:
    """The most that one core holds at once, in bytes. Circular buffers of ops are not modelled: `peak_cb` is 0."""

    peak_cb: int
    peak_l1: int
    peak_total: int


def checked_graph(trace: Any) -> Sequence[Node]:
    is_graph = isinstance(trace, list | tuple) and all(
        isinstance(n, dict) and "node_type" in n for n in trace
    )
    if not is_graph or not trace:
        raise ArgumentError(
            "ttnn.graph: incompatible function arguments: it takes what ttnn.graph.end_graph_capture() returned, got "
            f"{type(trace).__name__}."
        )
    nodes: Sequence[Node] = trace
    return nodes


def _of(trace: Any, kind: str) -> list[Node]:
    return [node for node in checked_graph(trace) if node["node_type"] == kind]


def extract_calltrace(trace: Any) -> list[str]:
    """The functions in the order in which they began."""
    return [node["params"]["name"] for node in _of(trace, FUNCTION_START)]


def _outputs(trace: Any) -> list[Node]:
    """The tensors that the last outermost function with results left."""
    graph = checked_graph(trace)
    for end in reversed(_of(trace, FUNCTION_END)):
        made = [graph[at] for at in end["connections"] if graph[at]["node_type"] == TENSOR]
        if made and end["stacking_level"] == 0:
            return made
    return []


def extract_output_tensors(trace: Any) -> set[int]:
    return {int(node["params"]["tensor_id"]) for node in _outputs(trace)}


def extract_output_info(trace: Any) -> list[TensorInfo]:
    graph = checked_graph(trace)
    found = []
    for tensor in _outputs(trace):
        for buffer in graph:
            if buffer["node_type"] == BUFFER and tensor["counter"] in buffer["connections"]:
                shape = Shape([int(n) for n in re.findall(r"\d+", tensor["params"]["shape"])])
                params = buffer["params"]
                found.append(TensorInfo(shape, int(params["size"]), BufferType[params["type"]]))
    return found


def count_intermediate_and_output_tensors(trace: Any) -> tuple[int, int]:
    """How many tensors were made on the way, and how many the last function left."""
    graph = checked_graph(trace)
    made = {
        at
        for end in _of(trace, FUNCTION_END)
        for at in end["connections"]
        if graph[at]["node_type"] == TENSOR
    }
    outputs = {node["counter"] for node in _outputs(trace)}
    return len(made - outputs), len(outputs)


# -- memory ----------------------------------------------------------------------------------------------


def _l1_levels(trace: Any, size: str, divide: int = 1) -> Iterator[int]:
    """The L1 in use after each node: buffers that were there before count from where they are first met."""
    graph = checked_graph(trace)
    held: dict[int, int] = {}
    for node in graph:
        if node["node_type"] == BUFFER and node["params"]["type"] in _L1:
            held[node["counter"]] = -(-int(node["params"][size]) // divide)
        elif node["node_type"] == BUFFER_DEALLOCATE:
            for at in node["connections"]:
                held.pop(at, None)
        yield sum(held.values())


def extract_peak_L1_memory_usage(trace: Any) -> int:
    """The most bytes of L1 that the buffers of one chip take at once."""
    return max(_l1_levels(trace, "size"), default=0)


def extract_resource_usage_per_core(
    trace: Any, interleaved_storage_cores: int | None = None
) -> PeakMemoryUsagePerCore:
    """The same for one core. Interleaved buffers spread over all cores, or over as many as are named."""
    if interleaved_storage_cores is None:
        peak = max(_l1_levels(trace, "max_size_per_bank"), default=0)
    else:
        peak = max(_l1_levels(trace, "size", max(interleaved_storage_cores, 1)), default=0)
    return PeakMemoryUsagePerCore(0, peak, peak)


# -- levels ----------------------------------------------------------------------------------------------


def extract_levelized_graph(trace: Any, max_level: int = 1) -> list[dict[str, Any]]:
    """The functions down to a depth, each with those it takes results from and those that take its own.

    A tensor that nothing in the graph made stands for itself, as `tensor[N]`.
    """
    graph = checked_graph(trace)
    makers: dict[int, int] = {}  # counter of a tensor -> that of the outermost function that made it
    vertices: dict[int, dict[str, Any]] = {}
    open_functions: list[int] = []
    for node in graph:
        counter, kind = node["counter"], node["node_type"]
        if kind == FUNCTION_START:
            open_functions.append(counter)
            if node["stacking_level"] < max_level:
                vertices[counter] = _vertex(node, node["params"]["name"])
                _take_inputs(graph, node, makers, vertices)
        elif kind == FUNCTION_END:
            start = open_functions.pop()
            inside = open_functions and open_functions[-1] in vertices
            if inside and start in vertices:
                vertices[open_functions[-1]]["internals"].append(start)
            if start in vertices:
                for at in node["connections"]:
                    makers[at] = start
                    vertices[start]["output_shape"].append(graph[at]["params"].get("shape"))
    return [vertices[counter] for counter in sorted(vertices)]


def _vertex(node: Node, name: str) -> dict[str, Any]:
    return {
        "counter": node["counter"],
        "stacking_level": node["stacking_level"] + 1,
        "name": name,
        "arguments": node["arguments"],
        "in_edges": [],
        "out_edges": [],
        "internals": [],
        "output_shape": [],
    }


def _take_inputs(
    graph: Sequence[Node], node: Node, makers: dict[int, int], vertices: dict[int, dict[str, Any]]
) -> None:
    for tensor in node["input_tensors"]:
        maker = makers.setdefault(tensor, tensor)
        if maker not in vertices:
            vertices[maker] = _vertex(graph[tensor], f"tensor[{tensor}]")
            vertices[maker]["output_shape"].append(graph[tensor]["params"].get("shape"))
        vertices[node["counter"]]["in_edges"].append(maker)
        vertices[maker]["out_edges"].append(node["counter"])
