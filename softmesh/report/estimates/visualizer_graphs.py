"""The graph of one command, as a capture of TT-NN records it: the function, its tensors, memory that it took."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from softmesh.cost.timeline import MemoryEvent, TensorRecord, TimedCommand
from softmesh.report.estimates.device_programs import op_code

Node = dict[str, Any]


def python_name(command: TimedCommand) -> str:
    return f"ttnn.{command.name}"


def captured_graph(command: TimedCommand, taken: Sequence[MemoryEvent], devices: Sequence[int]) -> list[Node]:
    """The Python function, in it the program that it launches; counters are places in the list."""
    nodes: list[Node] = []

    def add(kind: str, params: dict[str, str] | None = None, level: int = 0, **more: Any) -> int:
        at = len(nodes)
        node = {"counter": at, "id": at, "node_type": kind, "params": params or {}, "connections": []}
        nodes.append(node | {"arguments": [], "input_tensors": [], "stacking_level": level, **more})
        return at

    start = add("capture_start")
    inputs = [add("tensor", _tensor(tensor, devices)) for tensor in command.inputs]
    names = python_name(command), op_code(command)
    arguments = [f"{name}={value}" for name, value in command.arguments.items()]
    begun = [
        add(
            "function_start",
            {"name": name, "inputs": str(len(inputs))},
            level,
            input_tensors=inputs,
            arguments=arguments,
        )
        for level, name in enumerate(names)
    ]
    nodes[start]["connections"].append(begun[0])
    nodes[begun[0]]["connections"].append(begun[1])
    for tensor in inputs:
        nodes[tensor]["connections"].append(begun[0])
    for event in taken:
        allocation = add("buffer_allocate", _buffer(event, devices), len(names))
        nodes[begun[1]]["connections"].append(allocation)
    outputs = [add("tensor", _tensor(tensor, devices)) for tensor in command.outputs]
    for level, name in reversed(list(enumerate(names))):
        end = add("function_end", {"name": name}, level, duration_ns=round(command.seconds * 1e9))
        nodes[begun[level]]["connections"].append(end)
        nodes[end]["connections"] += outputs
    end = add("capture_end", duration_ns=round(command.seconds * 1e9))
    nodes[start]["connections"].append(end)
    return nodes


def _tensor(tensor: TensorRecord, devices: Sequence[int]) -> dict[str, str]:
    params = {
        "tensor_id": str(tensor.tensor_id),
        "shape": f"Shape({list(tensor.shape)})",
        "dtype": f"DataType::{tensor.dtype}",
        "layout": f"Layout::{tensor.layout}",
    }
    if not tensor.is_on_host:
        params |= {
            "memory_config": tensor.memory_config,
            "device_id": str(devices[0]) if devices else "",
            "address": str(tensor.address),
            "buffer_type": f"BufferType::{tensor.buffer_type}",
        }
    return params


def _buffer(event: MemoryEvent, devices: Sequence[int]) -> dict[str, str]:
    return {
        "address": str(event.address),
        "size": str(event.bytes_per_bank),
        "max_size_per_bank": str(event.bytes_per_bank),
        "type": event.buffer_type,
        "layout": "INTERLEAVED",
        "device_id": str(devices[0]) if devices else "",
    }
