"""The operations of a captured graph: its outermost functions, each with what it read, made and left allocated.

Functions that only convert between the host's tensors and the device's are seen through: what they call counts as
called from outside. Tensors that come in before the first op are no operations.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from softmesh.graph.buffer_chunks import buffer_number
from softmesh.graph.capture import BUFFER_ALLOCATE, BUFFER_DEALLOCATE, FUNCTION_END, FUNCTION_START, TENSOR
from softmesh.hardware.memory_config import TensorMemoryLayout

ERROR = "error"
SEEN_THROUGH = (
    "Tensor::",
    "tt::tt_metal::",
    "ttnn::convert_python_tensor_to_tt_tensor",
)
_INCOMING = ("ttnn.from_torch", "ttnn::from_torch")

Node = Mapping[str, Any]


@dataclass(frozen=True)
class HeldBuffer:
    device_id: int
    address: int
    max_size_per_bank: int
    buffer_type: int | None
    buffer_layout: int


@dataclass
class CapturedOperation:
    name: str
    first: int  # place of its start in the graph
    last: int  # of its end, or of the last node that belongs to it
    start: Node
    inputs: list[int] = field(default_factory=list)  # tensor ids
    outputs: list[int] = field(default_factory=list)
    duration_ns: int = 0
    buffers: list[HeldBuffer] = field(default_factory=list)  # that are allocated after it
    errors: list[Node] = field(default_factory=list)


class Devices:
    """The devices of a report, numbered from 0 in the order of their own numbers."""

    def __init__(self, devices: Sequence[Mapping[str, Any]] | None) -> None:
        self.all = list(devices or ())
        own = sorted({int(device["device_id"]) for device in self.all if device.get("device_id") is not None})
        self._numbers = {device: number for number, device in enumerate(own)}

    def number(self, device: object) -> int:
        own = int(str(device))
        return self._numbers.get(own, own)

    def banks(self, device: object, kind: int | None) -> int | None:
        name = "num_dram_channels" if kind == 0 else "l1_num_banks"
        for found in self.all:
            if found.get(name) and str(found.get("device_id")) == str(device):
                return int(found[name])
        return None


def captured_operations(graph: Sequence[Node], devices: Devices) -> list[CapturedOperation]:
    reader = _Reader(graph, devices)
    for place, node in enumerate(graph):
        reader.read(place, node)
    return reader.finished()


class _Reader:
    def __init__(self, graph: Sequence[Node], devices: Devices) -> None:
        self.devices = devices
        self.by_counter = {node["counter"]: node for node in graph}
        self.found: list[CapturedOperation] = []
        self._open: list[CapturedOperation | None] = []  # functions that have begun; None: seen through, or inside
        self._held: dict[tuple[int, int, int | None], HeldBuffer] = {}
        self._last = 0

    @property
    def _running(self) -> CapturedOperation | None:
        return next((each for each in self._open if each is not None), None)

    def read(self, place: int, node: Node) -> None:
        kind = node.get("node_type")
        if kind == FUNCTION_START:
            self._begin(place, node)
        elif kind == FUNCTION_END:
            self._end(place, node)
        elif kind == BUFFER_ALLOCATE:
            for buffer in held_buffers(node.get("params", {}), self.devices):
                self._held[buffer.device_id, buffer.address, buffer.buffer_type] = buffer
        elif kind == BUFFER_DEALLOCATE:
            for buffer in held_buffers(node.get("params", {}), self.devices):
                self._held.pop((buffer.device_id, buffer.address, buffer.buffer_type), None)
        elif kind == ERROR and self._running is not None:
            self._running.errors.append(node)
        self._last = place

    def _begin(self, place: int, node: Node) -> None:
        name = str(node.get("params", {}).get("name", ""))
        is_inner = self._running is not None
        if is_inner or name.startswith(SEEN_THROUGH) or (name in _INCOMING and not self.found):
            self._open.append(None)
            return
        operation = CapturedOperation(name, place, place, node)
        operation.inputs = list(self._tensor_ids(node.get("input_tensors", ())))
        self.found.append(operation)
        self._open.append(operation)

    def _end(self, place: int, node: Node) -> None:
        operation = self._open.pop() if self._open else None
        if operation is not None:
            operation.last = place
            operation.outputs = list(dict.fromkeys(self._tensor_ids(node.get("connections", ()))))
            operation.duration_ns = int(node.get("duration_ns", 0) or 0)
            operation.buffers = list(self._held.values())

    def _tensor_ids(self, counters: Iterable[int]) -> Iterable[int]:
        """What is no tensor of the graph is passed over."""
        for counter in counters:
            node = self.by_counter.get(counter)
            if node is not None and node.get("node_type") == TENSOR and "tensor_id" in node.get("params", {}):
                yield int(node["params"]["tensor_id"])

    def finished(self) -> list[CapturedOperation]:
        for operation in self._open:  # that never returned
            if operation is not None:
                operation.last, operation.buffers = self._last, list(self._held.values())
        return self.found


def held_buffers(params: Mapping[str, Any], devices: Devices) -> list[HeldBuffer]:
    """On each device that the node names."""
    named = params.get("device_ids")
    chips = json.loads(named) if isinstance(named, str) else [params.get("device_id") or 0]
    kind = buffer_number(params.get("type") or params.get("buffer_type"))
    layout = str(params.get("layout", "INTERLEAVED")).rpartition("::")[2]
    number = TensorMemoryLayout[layout].value if layout in TensorMemoryLayout.__members__ else 0
    address = int(params.get("address") or 0)
    return [
        HeldBuffer(devices.number(chip), address, _per_bank(params, layout, kind, devices, chip), kind, number)
        for chip in chips
    ]


def _per_bank(params: Mapping[str, Any], layout: str, kind: int | None, devices: Devices, chip: object) -> int:
    """As told; else by pages over banks, or over the cores of shards."""
    if params.get("max_size_per_bank"):
        return int(params["max_size_per_bank"])
    size, page = int(params.get("size") or 0), int(params.get("page_size") or 0)
    cores = int(params.get("num_cores") or 0)
    if layout != "INTERLEAVED" and cores:
        return -(-size // cores)
    banks = devices.banks(chip, kind)
    if not banks or not page:
        return size
    pages = -(-size // page)
    return -(-pages // banks) * page


def operation_graph(graph: Sequence[Node], operation: CapturedOperation) -> list[dict[str, Any]]:
    """Its part of the graph, with counters of its own: what it read, and all from its start to its end."""
    by_counter = {node["counter"]: node for node in graph}
    part = [by_counter[at] for at in operation.start.get("input_tensors", ()) if at in by_counter]
    part += [node for node in graph[operation.first : operation.last + 1] if node not in part]
    end = graph[operation.last]
    part += [by_counter[at] for at in end.get("connections", ()) if at in by_counter and by_counter[at] not in part]
    inner = [node for node in part if node["node_type"] not in ("capture_start", "capture_end")]
    number = {node["counter"]: at for at, node in enumerate(inner, 1)}
    return [
        _numbered(
            {"node_type": "capture_start", "params": {}}, 0, [number[operation.start["counter"]], len(inner) + 1]
        ),
        *(
            _numbered(node, at, [number[sink] for sink in node.get("connections", ()) if sink in number])
            for at, node in enumerate(inner, 1)
        ),
        _numbered({"node_type": "capture_end", "params": {}}, len(inner) + 1, []),
    ]


def _numbered(node: Node, number: int, connections: list[int]) -> dict[str, Any]:
    return {**node, "counter": number, "id": number, "connections": connections}
