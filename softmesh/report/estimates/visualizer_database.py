"""An estimate as the database of TT-NN Visualizer: operations with predicted durations, tensors, and memory after each.

Memory is told device by device although all devices of a mesh hold the same, for the visualizer asks so. A long program
on many chips would make that millions of rows: beyond a bound, what follows is told of the first device of each mesh
only, beyond twice that not at all, and the metadata says so.
"""

from __future__ import annotations

import json
import math
import sqlite3
from collections.abc import Iterator, Sequence
from typing import Any

from softmesh.cost.timeline import Estimate, MemoryEvent, MeshRecord, TensorRecord, TimedCommand
from softmesh.graph.report_tables import insert_rows, join_tensors
from softmesh.graph.stack_trace_sources import frame_text, insert_stack_traces
from softmesh.graph.tensor_lifetimes import compute_tensor_lifetime_records
from softmesh.hardware.enums import BufferType
from softmesh.hardware.memory_config import TensorMemoryLayout
from softmesh.report.estimates.visualizer_graphs import captured_graph, python_name
from softmesh.runtime.memory.memory_map import MemoryMap

MOST_BUFFER_ROWS = 2_000_000
MOST_CHUNK_ROWS = 1_000_000

Row = tuple[Any, ...]


def insert_estimate(cursor: sqlite3.Cursor, estimate: Estimate) -> dict[str, str]:
    """All ranks; what was left out, as metadata."""
    left_out: dict[str, str] = {}
    for rank in sorted({mesh.rank for mesh in estimate.meshes} | {command.rank for command in estimate.commands}):
        left_out |= _Rank(cursor, estimate, rank).insert()
    return left_out


def is_operation(command: TimedCommand) -> bool:
    """What reads or makes tensors; events and waits are none."""
    return bool(command.inputs or command.outputs)


class _Rank:
    def __init__(self, cursor: sqlite3.Cursor, estimate: Estimate, rank: int) -> None:
        self.cursor, self.estimate, self.rank = cursor, estimate, rank
        mine = [command for command in estimate.commands if command.rank == rank and is_operation(command)]
        self.operations = dict(enumerate(mine, 1))
        self.meshes = [mesh for mesh in estimate.meshes if mesh.rank == rank]
        self.events = [event for event in estimate.memory if estimate.meshes[event.mesh].rank == rank]
        self.tensors: dict[int, tuple[TensorRecord, Sequence[int]]] = {}
        for command in mine:
            for tensor in (*command.inputs, *command.outputs):
                known = self.tensors.get(tensor.tensor_id)
                if known is None or (known[0].is_on_host and not tensor.is_on_host):
                    self.tensors[tensor.tensor_id] = tensor, self._devices(command)

    def insert(self) -> dict[str, str]:
        insert_rows(self.cursor, "devices", self._device_rows())
        self._insert_operations()
        insert_rows(self.cursor, "tensors", self._tensor_rows())
        insert_rows(self.cursor, "device_tensors", self._device_tensor_rows())
        buffers = _Bounded(self._buffer_rows(), MOST_BUFFER_ROWS)
        insert_rows(self.cursor, "buffers", buffers)
        chunks = _Bounded(self._chunk_rows(), MOST_CHUNK_ROWS)
        insert_rows(self.cursor, "buffer_chunks", chunks)
        told = {"buffers": buffers, "buffer_chunks": chunks}
        return {f"{name} of rank {self.rank}": rows.note for name, rows in told.items() if rows.note}

    def _devices(self, command: TimedCommand) -> Sequence[int]:
        return self.estimate.meshes[command.mesh].devices if command.mesh >= 0 else ()

    # -- operations -----------------------------------------------------------------------------------------

    def _insert_operations(self) -> None:
        operations = self.operations.items()
        rows = [(number, python_name(command), command.seconds) for number, command in operations]
        insert_rows(self.cursor, "operations", [(*row, self.rank) for row in rows])
        arguments = [
            (number, name, str(value), self.rank)
            for number, command in operations
            for name, value in (*_tensor_arguments(command), *command.arguments.items())
        ]
        insert_rows(self.cursor, "operation_arguments", arguments)
        read = [(n, at, t.tensor_id) for n, command in operations for at, t in enumerate(command.inputs)]
        made = [(n, at, t.tensor_id) for n, command in operations for at, t in enumerate(command.outputs)]
        join_tensors(self.cursor, read, made, self.rank)
        traces = [(number, frame_text(command.site)) for number, command in operations]
        insert_stack_traces(self.cursor, traces, self.rank)
        lives = compute_tensor_lifetime_records(rows, read, made, traces, list(self.tensors))
        insert_rows(self.cursor, "tensor_lifetime", [(*life.values(), self.rank) for life in lives])
        self._insert_graphs()
        self._insert_error()

    def _insert_graphs(self) -> None:
        taken: dict[int, list[MemoryEvent]] = {}
        for event in self.events:
            if event.bytes_per_bank > 0:
                taken.setdefault(event.command, []).append(event)
        for number, command in self.operations.items():
            graph = captured_graph(command, taken.get(command.index, ()), self._devices(command))
            insert_rows(self.cursor, "captured_graph", [(number, json.dumps(graph), self.rank)])
            nodes = [(number, node["counter"], number, node["params"].get("name", node["node_type"])) for node in graph]
            insert_rows(self.cursor, "nodes", [(*node, self.rank) for node in nodes])
            edges = [
                (number, node["counter"], sink, 0, 0, at, self.rank)
                for node in graph
                for at, sink in enumerate(node["connections"])
            ]
            insert_rows(self.cursor, "edges", edges)

    def _insert_error(self) -> None:
        """How the program ended, at the last operation of it."""
        if self.estimate.error and self.operations:
            number, command = max(self.operations.items())
            kind, _, message = self.estimate.error.partition(": ")
            row = (number, python_name(command), kind, message or kind, frame_text(command.site), "", self.rank)
            insert_rows(self.cursor, "errors", [row])

    # -- devices and tensors --------------------------------------------------------------------------------

    def _device_rows(self) -> Iterator[Row]:
        seen = set()
        for mesh in self.meshes:
            for device in mesh.devices:
                if device not in seen:
                    seen.add(device)
                    yield (device, *_device_facts(mesh), self.rank)

    def _tensor_rows(self) -> Iterator[Row]:
        for number, (tensor, devices) in self.tensors.items():
            device = devices[0] if devices and not tensor.is_on_host else None
            config = None if tensor.is_on_host else tensor.memory_config
            what = f"Shape({list(tensor.shape)})", f"DataType::{tensor.dtype}", f"Layout::{tensor.layout}", config
            yield number, *what, device, tensor.address, buffer_number(tensor.buffer_type), self.rank

    def _device_tensor_rows(self) -> Iterator[Row]:
        for number, (tensor, devices) in self.tensors.items():
            if not tensor.is_on_host and tensor.address is not None:
                yield from ((number, device, tensor.address, self.rank) for device in devices)

    # -- memory ----------------------------------------------------------------------------------------------

    def _buffer_rows(self) -> Iterator[tuple[int, Row]]:
        """After each operation all that is allocated; with each row its device's place in the mesh."""
        held: dict[tuple[int, int], tuple[Row, Sequence[int]]] = {}
        events = iter([*self.events, None])
        event = next(events)
        for number, command in self.operations.items():
            while event is not None and event.command <= command.index:
                key = event.mesh, event.number
                if event.bytes_per_bank <= 0 or event.address is None:
                    held.pop(key, None)
                else:
                    held[key] = self._buffer(event), self.estimate.meshes[event.mesh].devices
                event = next(events)
            for what, devices in held.values():
                for place, device in enumerate(devices):
                    yield place, (number, device, *what, self.rank)

    def _buffer(self, event: MemoryEvent) -> Row:
        known = self.tensors.get(event.tensor_id) if event.tensor_id is not None else None
        layout = known[0].memory_layout if known is not None else "INTERLEAVED"
        kind = buffer_number(event.buffer_type)
        return event.address, event.bytes_per_bank, kind, TensorMemoryLayout[layout].value

    def _chunk_rows(self) -> Iterator[tuple[int, Row]]:
        """The pages of what each operation reads and makes."""
        for number, command in self.operations.items():
            if command.mesh < 0:
                continue
            mesh = self.estimate.meshes[command.mesh]
            seen = set()
            for tensor in (*command.inputs, *command.outputs):
                if tensor.is_on_host or tensor.address is None or tensor.address in seen:
                    continue
                seen.add(tensor.address)
                chunks = tensor_chunks(tensor, mesh)
                for place, device in enumerate(mesh.devices):
                    for bank, core, size, pages in chunks:
                        where = (tensor.address, bank, *core, tensor.address, size, tensor.page_bytes, pages)
                        row = (number, device, *where, buffer_number(tensor.buffer_type), self.rank)
                        yield place, row


class _Bounded:
    """Rows until there are too many; then only those of first devices, at last none. Operations are told as a whole."""

    def __init__(self, rows: Iterator[tuple[int, Row]], most: int) -> None:
        self._rows, self._most = rows, most
        self._first_only: int | None = None  # from this operation on
        self._nothing: int | None = None

    @property
    def note(self) -> str:
        told = f"from operation {self._first_only} on of the first device of each mesh only" if self._first_only else ""
        return told + (f", from operation {self._nothing} on of none" if self._nothing else "")

    def __iter__(self) -> Iterator[Row]:
        count = 0
        for place, row in self._rows:
            operation = row[0]
            if count >= self._most and self._first_only is None:
                self._first_only = operation + 1
            if count >= 2 * self._most and self._nothing is None:
                self._nothing = operation + 1
            if self._nothing is not None and operation >= self._nothing:
                return
            if place == 0 or self._first_only is None or operation < self._first_only:
                count += 1
                yield row


def tensor_chunks(tensor: TensorRecord, mesh: MeshRecord) -> list[tuple[int, tuple[int, int], int, int]]:
    """What of it lies in each bank: (bank, core, bytes, pages)."""
    cores = MemoryMap({}, mesh.grid, mesh.worker_l1_size).core_of_bank
    on_workers = tensor.buffer_type in ("L1", "L1_SMALL")
    pages = _pages(tensor)
    found = []
    for bank in range(tensor.banks):
        count = pages // tensor.banks + (bank < pages % tensor.banks) if pages else 0
        if tensor.memory_layout != "INTERLEAVED":
            count = tensor.bytes_per_bank // tensor.page_bytes
        if count:
            core = (cores[bank % len(cores)].x, cores[bank % len(cores)].y) if on_workers else (bank, 0)
            found.append((bank, core, count * tensor.page_bytes, count))
    return found


def _pages(tensor: TensorRecord) -> int:
    """A tile is a page, or a row."""
    if tensor.layout == "TILE":
        return math.prod(tensor.padded_shape) // 1024
    return math.prod(tensor.padded_shape[:-1])


def _tensor_arguments(command: TimedCommand) -> Iterator[tuple[str, str]]:
    for at, tensor in enumerate(command.inputs):
        yield str(at), f"ttnn.Tensor(tensor_id={tensor.tensor_id}, shape={list(tensor.shape)}, dtype={tensor.dtype})"


def _device_facts(mesh: MeshRecord) -> Row:
    """The columns of a device after its number."""
    columns, rows = mesh.grid
    l1 = mesh.region("L1")
    for_tensors = l1.banks * l1.size
    return (
        mesh.chip.tensix_grid[1],
        mesh.chip.tensix_grid[0],
        rows,
        columns,
        mesh.worker_l1_size,
        l1.banks,
        l1.size,
        l1.base,
        l1.base,
        1,
        columns * rows,
        l1.banks,
        l1.banks * mesh.worker_l1_size,
        for_tensors,
        for_tensors,
        for_tensors,
        mesh.worker_l1_size - l1.base,
    )


def buffer_number(buffer_type: str | None) -> int | None:
    return None if buffer_type is None else BufferType[buffer_type].value
