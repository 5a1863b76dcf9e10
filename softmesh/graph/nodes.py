"""The nodes of a captured graph, as TT-NN writes them: dictionaries of plain values, joined by their counters.

capture_start, capture_end           the first and the last
function_start, function_end         an op, and what it does inside
tensor, buffer                       a tensor, and the memory it lies in
buffer_allocate, buffer_deallocate   memory that comes and goes
"""

from __future__ import annotations

from typing import Any

Node = dict[str, Any]

CAPTURE_START = "capture_start"
CAPTURE_END = "capture_end"
FUNCTION_START = "function_start"
FUNCTION_END = "function_end"
TENSOR = "tensor"
BUFFER = "buffer"
BUFFER_ALLOCATE = "buffer_allocate"
BUFFER_DEALLOCATE = "buffer_deallocate"


class Nodes:
    """A growing list of nodes; a node's counter is its place in the list."""

    def __init__(self) -> None:
        self.all: list[Node] = []
        self._open: list[int] = []  # functions that have begun and not ended

    def add(self, kind: str, params: dict[str, str] | None = None, **more: Any) -> int:
        counter = len(self.all)
        node = {
            "counter": counter,
            "node_type": kind,
            "params": params or {},
            "connections": [],
            "arguments": [],
            "input_tensors": [],
            "stacking_level": len(self._open),
            **more,
        }
        self.all.append(node)
        return counter

    def join(self, source: int, sink: int) -> None:
        connections = self.all[source]["connections"]
        if sink not in connections:
            connections.append(sink)

    def begin_function(self, name: str, inputs: list[int], **more: Any) -> int:
        params = {"name": name, "inputs": str(len(inputs))}
        counter = self.add(FUNCTION_START, params, input_tensors=list(inputs), **more)
        self.join(self.innermost(), counter)
        for tensor in inputs:
            self.join(tensor, counter)
        self._open.append(counter)
        return counter

    def end_function(self) -> int:
        start = self._open.pop()
        counter = self.add(FUNCTION_END, {"name": self.all[start]["params"]["name"]})
        self.join(start, counter)
        return counter

    def innermost(self) -> int:
        """The function that runs, or the start of the capture."""
        return self._open[-1] if self._open else 0

    @property
    def depth(self) -> int:
        return len(self._open)
