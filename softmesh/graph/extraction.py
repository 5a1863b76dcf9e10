"""Queries on a captured graph: its call trace, output tensors, peak memory, levels, and durations on the host."""

from __future__ import annotations

import functools
import re
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar, cast

from softmesh.errors import ArgumentError, SoftmeshError
from softmesh.graph.capture import BUFFER, BUFFER_DEALLOCATE, CAPTURE_END, FUNCTION_END, FUNCTION_START, TENSOR, Node
from softmesh.graph.program_memory import BORROWED, CIRCULAR_BUFFER, DATAFLOW_BUFFER, PROGRAM_ENDS, SCRATCHPAD
from softmesh.hardware.enums import BufferType
from softmesh.hardware.shape import Shape
from softmesh.terminal_text import readable

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
    """The most that one core holds at once, in bytes: of each kind, and of all together."""

    peak_cb: int
    peak_l1: int
    peak_total: int
    peak_dataflow_buffer: int = 0
    peak_scratchpad: int = 0

    def __str__(self) -> str:
        kinds = {"CB": self.peak_cb, "Dataflow buffers": self.peak_dataflow_buffer, "Scratchpad": self.peak_scratchpad}
        rows = {**kinds, "L1": self.peak_l1, "Total": self.peak_total}
        return "\n".join(["Peak Memory Usage Per Core:", *(f"  {kind}: {n} bytes" for kind, n in rows.items())])


_Extraction = TypeVar("_Extraction", bound=Callable[..., Any])


def _of_a_graph(function: _Extraction) -> _Extraction:
    """Turn what the parts of a malformed graph bring about, as of an edited file, into one error."""

    @functools.wraps(function)
    def told(*args: Any, **kwargs: Any) -> Any:
        try:
            return function(*args, **kwargs)
        except SoftmeshError:
            raise
        except (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError) as error:
            raise ArgumentError(
                f"ttnn.graph.{function.__name__}: it takes what ttnn.graph.end_graph_capture() returned, and this "
                f"graph is no such one: {readable(repr(error))}."
            ) from None

    return cast(_Extraction, told)


def checked_graph(trace: Any) -> Sequence[Node]:
    is_graph = isinstance(trace, list | tuple) and all(isinstance(n, dict) and "node_type" in n for n in trace)
    if not is_graph or not trace:
        raise ArgumentError(
            "ttnn.graph: incompatible function arguments: it takes what ttnn.graph.end_graph_capture() returned, got "
            f"{type(trace).__name__}."
        )
    nodes: Sequence[Node] = trace
    return nodes


def _of(trace: Any, kind: str) -> list[Node]:
    return [node for node in checked_graph(trace) if node["node_type"] == kind]


@_of_a_graph
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


@_of_a_graph
def extract_output_tensors(trace: Any) -> set[int]:
    return {int(node["params"]["tensor_id"]) for node in _outputs(trace)}


@_of_a_graph
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


@_of_a_graph
def count_intermediate_and_output_tensors(trace: Any) -> tuple[int, int]:
    """How many tensors were made on the way, and how many the last function left."""
    graph = checked_graph(trace)
    made = {at for end in _of(trace, FUNCTION_END) for at in end["connections"] if graph[at]["node_type"] == TENSOR}
    outputs = {node["counter"] for node in _outputs(trace)}
    return len(made - outputs), len(outputs)


# -- memory ----------------------------------------------------------------------------------------------


def _l1_levels(trace: Any, size: str) -> Iterator[dict[str, int]]:
    """The L1 in use after each node, by kind: buffers that were there before count from where they are first met."""
    graph = checked_graph(trace)
    held: dict[int, int] = {}
    of_program = dict.fromkeys(BORROWED, 0)
    for node in graph:
        kind, params = node["node_type"], node["params"]
        if kind == BUFFER and params["type"] in _L1:
            held[node["counter"]] = int(params[size])
        elif kind == BUFFER_DEALLOCATE:
            for at in node["connections"]:
                held.pop(at, None)
        elif kind == PROGRAM_ENDS:
            of_program = dict.fromkeys(BORROWED, 0)
        elif kind in BORROWED and params.get(BORROWED[kind], "0") == "0":
            of_program[kind] += int(params["size"])
        yield {BUFFER: sum(held.values()), **of_program}


@_of_a_graph
def extract_peak_L1_memory_usage(trace: Any) -> int:
    """The most bytes of L1 that one chip holds at once: its buffers, and what a program has on a core."""
    return max((sum(level.values()) for level in _l1_levels(trace, "size")), default=0)


@_of_a_graph
def extract_resource_usage_per_core(trace: Any, interleaved_storage_cores: int | None = None) -> PeakMemoryUsagePerCore:
    """The same for one core, kind by kind. Interleaved buffers spread over all cores, whatever is named."""
    if interleaved_storage_cores is not None:
        warnings.warn(
            "extract_resource_usage_per_core: interleaved_storage_cores has no effect; leave it out.",
            DeprecationWarning,
            stacklevel=2,
        )
    levels = list(_l1_levels(trace, "max_size_per_bank"))
    peak = {kind: max((level[kind] for level in levels), default=0) for kind in (BUFFER, *BORROWED)}
    total = max((sum(level.values()) for level in levels), default=0)
    return PeakMemoryUsagePerCore(peak[CIRCULAR_BUFFER], peak[BUFFER], total, peak[DATAFLOW_BUFFER], peak[SCRATCHPAD])


# -- levels ----------------------------------------------------------------------------------------------


@_of_a_graph
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


@_of_a_graph
def extract_total_duration_from_graph(graph: Sequence[Node]) -> float:
    """Nanoseconds from the start to the end of the capture; where that is not told, of all functions together."""
    for node in reversed(graph):
        if node.get("node_type") == CAPTURE_END and node.get("duration_ns"):
            return float(node["duration_ns"])
    return sum(extract_operation_durations(graph).values())


@_of_a_graph
def extract_operation_durations(graph: Sequence[Node]) -> dict[str, float]:
    """Nanoseconds by the name of the function, all its calls together."""
    found: dict[str, float] = {}
    for node in graph:
        if node.get("node_type") == FUNCTION_END and "duration_ns" in node:
            name = str(node.get("params", {}).get("name", ""))
            found[name] = found.get(name, 0.0) + float(node["duration_ns"])
    return found
