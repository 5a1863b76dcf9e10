"""`ttnn.graph_tracer_utils`: the calls of a captured graph, as a document of operations and their arguments."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from softmesh.graph.capture import FUNCTION_START
from softmesh.graph.extraction import checked_graph

_CONTROL = re.compile(r"[\x00-\x1f\x7f]+")


class GraphTracerUtils:
    @staticmethod
    def replace_control_chars(value: Any) -> Any:
        """Line ends, tabs and the like as blanks, however deep they stand."""
        if isinstance(value, str):
            return _CONTROL.sub(" ", value)
        if isinstance(value, dict):
            return {key: GraphTracerUtils.replace_control_chars(item) for key, item in value.items()}
        if isinstance(value, list | tuple):
            return [GraphTracerUtils.replace_control_chars(item) for item in value]
        return value

    @staticmethod
    def serialize_arguments_to_json(operation_name: str, arguments: Sequence[Any]) -> dict[str, Any]:
        """`{"operation": "ttnn::add", "arguments": [{"arg0": ...}, ...]}`; shapes and memory configs are objects."""
        named = [{f"arg{at}": _parsed(str(argument))} for at, argument in enumerate(arguments)]
        return {"operation": operation_name, "arguments": GraphTracerUtils.replace_control_chars(named)}

    @staticmethod
    def serialize_graph(captured_graph: Any) -> dict[str, list[dict[str, Any]]]:
        """The functions of a graph in the order of their calls, each with its tensors and other arguments."""
        graph = checked_graph(captured_graph)
        content = []
        for node in graph:
            if node["node_type"] == FUNCTION_START:
                tensors = [_tensor_text(graph[at]["params"]) for at in node["input_tensors"]]
                name = node["params"]["name"]
                content.append(GraphTracerUtils.serialize_arguments_to_json(name, [*tensors, *node["arguments"]]))
        return {"content": content}


_SHAPE = re.compile(r"Shape\(\[([\d, ]*)\]\)")
_MEMORY_CONFIG = re.compile(r"MemoryConfig\((.*)\)", re.DOTALL)
_OPENING, _CLOSING = "([{", ")]}"


def _parsed(text: str) -> Any:
    shape, config = _SHAPE.fullmatch(text), _MEMORY_CONFIG.fullmatch(text)
    if shape is not None:
        return {"Shape": [int(n) for n in shape[1].split(",") if n.strip()]}
    if config is not None:
        pairs = (part.partition("=") for part in _parts(config[1]))
        return {"MemoryConfig": {name: value for name, _, value in pairs}}
    return text


def _parts(text: str) -> list[str]:
    """What stands between commas, apart from those inside of brackets."""
    parts, depth = [""], 0
    for letter in text:
        depth += (letter in _OPENING) - (letter in _CLOSING)
        if letter == "," and not depth:
            parts.append("")
        else:
            parts[-1] += letter
    return parts


def _tensor_text(params: dict[str, str]) -> str:
    known = ("shape", "dtype", "layout", "memory_config")
    return f"Tensor({', '.join(f'{name}={params[name]}' for name in known if name in params)})"
