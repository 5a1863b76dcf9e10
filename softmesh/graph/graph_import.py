"""Writes a captured graph into the tables of a report: operations, tensors, memory after each operation, errors.

What Python knows of a call (`python_io`: its arguments, its stack trace, its graph) belongs to the operation of the
same name, in the order of calls.
"""

from __future__ import annotations

import json
import sqlite3
from collections import defaultdict, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from softmesh.graph.buffer_chunks import buffer_number
from softmesh.graph.capture import TENSOR
from softmesh.graph.captured_operations import (
    CapturedOperation,
    Devices,
    Node,
    captured_operations,
    operation_graph,
)
from softmesh.graph.report_tables import DEVICE_COLUMNS, insert_rows, join_tensors
from softmesh.graph.stack_trace_sources import insert_stack_traces
from softmesh.graph.tensor_lifetimes import DEALLOCATIONS, compute_tensor_lifetime_records

Row = tuple[Any, ...]
Record = Mapping[str, Any]


def import_devices(cursor: sqlite3.Cursor, devices: Sequence[Record], rank: int = 0) -> None:
    numbers = Devices(devices)
    rows = {
        numbers.number(device["device_id"]): tuple(device.get(column) for column in DEVICE_COLUMNS[1:])
        for device in devices
        if device.get("device_id") is not None
    }
    insert_rows(cursor, "devices", [(number, *facts, rank) for number, facts in sorted(rows.items())])


def import_graph(
    cursor: sqlite3.Cursor,
    graph: Sequence[Node],
    base_operation_id: int = 0,
    devices: Sequence[Record] | None = None,
    python_io: Sequence[Record] | None = None,
    per_operation_buffers: Record | None = None,
    rank: int = 0,
    record_tensor_lifetime: bool = False,
) -> dict[str, Any]:
    """How many rows there are now of each kind, and what did not fit together (`warnings`).

    Operations are numbered from `base_operation_id` + 1. Memory is followed through the graph itself, so
    `per_operation_buffers` is not needed.
    """
    return _Import(cursor, graph, base_operation_id, devices, python_io or (), rank).run(record_tensor_lifetime)


class _Import:
    def __init__(
        self,
        cursor: sqlite3.Cursor,
        graph: Sequence[Node],
        base: int,
        devices: Sequence[Record] | None,
        python_io: Sequence[Record],
        rank: int,
    ) -> None:
        self.cursor, self.graph, self.rank, self.base = cursor, graph, rank, base
        self.devices = Devices(devices)
        self.operations = dict(enumerate(captured_operations(graph, self.devices), base + 1))
        self.unmatched: list[Record] = []
        self.calls = self._matched(python_io)

    def _matched(self, python_io: Sequence[Record]) -> dict[int, Record]:
        by_name: dict[str, deque[int]] = defaultdict(deque)
        for number, operation in self.operations.items():
            by_name[operation.name].append(number)
        found: dict[int, Record] = {}
        for record in python_io:
            numbers = by_name.get(str(record.get("name")))
            if numbers:
                found[numbers.popleft()] = record
            else:
                self.unmatched.append(record)
        return found

    def run(self, with_lifetimes: bool) -> dict[str, Any]:
        tensors = self._tensor_rows()
        operations = [(number, each.name, each.duration_ns * 1e-9) for number, each in self.operations.items()]
        arguments = list(self._argument_rows())
        known = {row[0] for row in tensors}
        inputs = [(n, at, t) for n, each in self.operations.items() for at, t in enumerate(self._read(n, each, known))]
        outputs = [(n, at, t) for n, each in self.operations.items() for at, t in enumerate(self._made(n, each))]
        tensors += self._renamed(tensors)
        known = {row[0] for row in tensors}
        placed = list(self._device_tensor_rows())
        buffers = [(n, *vars(held).values()) for n, each in self.operations.items() for held in each.buffers]
        traces = list(self._traces())
        self._insert("tensors", tensors)
        self._insert("operations", operations)
        self._insert("operation_arguments", arguments)
        self._insert("device_tensors", placed)
        self._insert("buffers", buffers)
        join_tensors(self.cursor, inputs, outputs, self.rank)
        insert_stack_traces(self.cursor, traces, self.rank)
        self._insert_graphs()
        self._insert("errors", self._error_rows())
        if with_lifetimes or traces:
            lives = compute_tensor_lifetime_records(operations, inputs, outputs, traces, known)
            self._insert("tensor_lifetime", [tuple(life.values()) for life in lives])
        warnings = validate_graph_integrity(
            operations, tensors, inputs, outputs, arguments, placed, buffers, self.devices.all
        )
        counts = {"operations": len(operations), "tensors": len(tensors), "buffers": len(buffers)}
        return {
            **counts,
            "errors": self.cursor.execute("SELECT COUNT(*) FROM errors").fetchone()[0],
            "warnings": warnings,
        }

    def _insert(self, table: str, rows: Iterable[Row]) -> None:
        insert_rows(self.cursor, table, [(*row, self.rank) for row in rows])

    def _read(self, number: int, operation: CapturedOperation, known: set[int]) -> list[int]:
        """As the graph has it; where that says nothing, as Python saw it."""
        told = self.calls.get(number, {}).get("input_tensor_ids") or ()
        return operation.inputs or [int(tensor) for tensor in told if int(tensor) in known]

    def _made(self, number: int, operation: CapturedOperation) -> list[int]:
        """Under the numbers that Python knows, where it names as many; what is given back makes nothing."""
        if operation.name in DEALLOCATIONS:
            return []
        told = self.calls.get(number, {}).get("output_tensor_ids") or ()
        return [int(tensor) for tensor in told] if len(told) == len(operation.outputs) else operation.outputs

    def _renamed(self, tensors: Sequence[Row]) -> list[Row]:
        """Tensors that only Python's numbers name, as the graph has them."""
        rows = {row[0]: row for row in tensors}
        names: dict[int, int] = {}
        for number, operation in self.operations.items():
            names.update(zip(self._made(number, operation), operation.outputs, strict=False))
        return [(new, *rows[old][1:]) for new, old in names.items() if new not in rows and old in rows]

    def _tensor_rows(self) -> list[Row]:
        rows: dict[int, Row] = {}
        for node in self._tensor_nodes():
            params = node["params"]
            what = [params.get(name) for name in ("shape", "dtype", "layout", "memory_config")]
            device, address = params.get("device_id"), params.get("address")
            where = None if device in (None, "") else self.devices.number(device)
            number = int(params["tensor_id"])
            kind = buffer_number(params.get("buffer_type"))
            rows[number] = (number, *what, where, None if address in (None, "") else int(address), kind)
        return list(rows.values())

    def _tensor_nodes(self) -> Iterator[Node]:
        for node in self.graph:
            if node.get("node_type") == TENSOR and "tensor_id" in node.get("params", {}):
                yield node

    def _device_tensor_rows(self) -> Iterator[Row]:
        seen: set[Row] = set()
        for node in self._tensor_nodes():
            params = node["params"]
            listed = params.get("device_tensors")
            placed = json.loads(listed) if isinstance(listed, str) else listed or ()
            if not placed and params.get("device_id") not in (None, "") and params.get("address") not in (None, ""):
                placed = [params]
            for each in placed:
                device = each.get("mesh_device_id", each.get("device_id"))
                row = (int(params["tensor_id"]), self.devices.number(device), int(each["address"]))
                if row not in seen:
                    seen.add(row)
                    yield row

    def _argument_rows(self) -> Iterator[Row]:
        for number, operation in self.operations.items():
            given = self.calls.get(number, {}).get("arguments") or {
                f"arg_{at}": value for at, value in enumerate(operation.start.get("arguments", ()))
            }
            yield from ((number, str(name), str(value)) for name, value in given.items())

    def _traces(self) -> Iterator[tuple[int, str]]:
        for number, operation in self.operations.items():
            frames = self.calls.get(number, {}).get("python_stack_trace") or operation.start.get("stack_trace") or ()
            if frames:
                yield number, "".join(frame if frame.endswith("\n") else f"{frame}\n" for frame in map(str, frames))

    def _insert_graphs(self) -> None:
        for number, operation in self.operations.items():
            own = self.calls.get(number, {}).get("captured_graph")
            nodes = [{**node, "id": node["counter"]} for node in own] if own else operation_graph(self.graph, operation)
            self._insert("captured_graph", [(number, json.dumps(nodes))])
            named = [(number, node["counter"], number, _node_name(node)) for node in nodes]
            self._insert("nodes", named)
            edges = [
                (number, node["counter"], sink, 0, 0, at)
                for node in nodes
                for at, sink in enumerate(node.get("connections", ()))
            ]
            self._insert("edges", edges)

    def _error_rows(self) -> Iterator[Row]:
        """Of the graph, and of calls that ended before they became an operation."""
        for number, operation in self.operations.items():
            for node in operation.errors:
                params = node.get("params", {})
                name = params.get("error_operation") or operation.name
                message = params.get("error_message", "")
                yield number, name, params.get("error_type", ""), message, "\n".join(node.get("stack_trace", ())), ""
        for record in self.unmatched:
            error = record.get("error")
            if error:
                trace = "".join(map(str, record.get("python_stack_trace", ())))
                yield self.base, record.get("name"), error.get("type"), error.get("message"), trace, ""


def _node_name(node: Node) -> str:
    return str(node.get("params", {}).get("name", node.get("node_type", "")))


def validate_graph_integrity(
    operations_batch: Sequence[Row],
    tensors_batch: Sequence[Row],
    input_tensors_batch: Sequence[Row],
    output_tensors_batch: Sequence[Row],
    operation_arguments_batch: Sequence[Row],
    device_tensors_batch: Sequence[Row],
    buffers_batch: Sequence[Row],
    devices: Sequence[Record] | None,
) -> list[str]:
    """Rows that speak of what is not there."""
    operations, tensors = {row[0] for row in operations_batch}, {row[0] for row in tensors_batch}
    numbers = Devices(devices)
    known = {numbers.number(device["device_id"]) for device in devices or () if device.get("device_id") is not None}
    found = [
        f"{table}: tensor_id={row[at]} is no tensor of the graph"
        for table, at, rows in (
            ("input_tensors", 2, input_tensors_batch),
            ("output_tensors", 2, output_tensors_batch),
            ("device_tensors", 0, device_tensors_batch),
        )
        for row in rows
        if row[at] not in tensors
    ]
    found += [
        f"{table}: operation_id={row[0]} is no operation of the graph"
        for table, rows in (("operation_arguments", operation_arguments_batch), ("buffers", buffers_batch))
        for row in rows
        if row[0] not in operations
    ]
    if known:
        found += [f"buffers: device_id={row[1]} is no device" for row in buffers_batch if row[1] not in known]
    return list(dict.fromkeys(found))
