"""Graph capture: an observer of the command stream that records ops, tensors and buffers as graph nodes.

An op is a function, named as the device operation that TT-NN launches for it (`BinaryNgDeviceOperation`), any other by
its Python (`ttnn.from_torch`). Inside it stands what softmesh knows to happen there: memory for its results, and for
some what its program keeps on each core (`program_memory.py`). The other programs that TT-NN may launch on the way have
no nodes here. Nodes are TT-NN's: dictionaries of plain values, joined by their counters.

    capture_start, capture_end           the first and the last
    function_start, function_end         an op, and what it does inside
    tensor, buffer                       a tensor, and the memory it lies in
    buffer_allocate, buffer_deallocate   memory that comes and goes
    circular_buffer_allocate, ...        what a program has on each core, until circular_buffer_deallocate_all
"""

from __future__ import annotations

import json
import time
import weakref
from collections.abc import Sequence
from typing import Any

from softmesh.dispatch.entry_point import EntryPoint, Proceed
from softmesh.graph.native_calls import form_of, native_arguments, native_name
from softmesh.graph.program_memory import PROGRAM_ENDS, of_program
from softmesh.graph.stack_trace_sources import user_frames
from softmesh.kinds import Kind
from softmesh.runtime.command_tensor import CommandTensor, TensorMemory
from softmesh.runtime.commands import Command
from softmesh.tensor.footprint import footprint

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
        self._open: list[tuple[int, int]] = []  # functions that have begun and not ended, and when they began

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

    def begin_function(self, name: str, inputs: list[int], began_ns: int | None = None, **more: Any) -> int:
        """`began_ns` is when it began, by `time.perf_counter_ns`, where that is not now."""
        params = {"name": name, "inputs": str(len(inputs))}
        counter = self.add(FUNCTION_START, params, input_tensors=list(inputs), **more)
        self.join(self.innermost(), counter)
        for tensor in inputs:
            self.join(tensor, counter)
        self._open.append((counter, time.perf_counter_ns() if began_ns is None else began_ns))
        return counter

    def end_function(self) -> int:
        start, began = self._open.pop()
        name, duration = self.all[start]["params"]["name"], time.perf_counter_ns() - began
        counter = self.add(FUNCTION_END, {"name": name}, duration_ns=duration)
        self.join(start, counter)
        return counter

    def innermost(self) -> int:
        """The function that runs, or the start of the capture."""
        return self._open[-1][0] if self._open else 0

    @property
    def depth(self) -> int:
        return len(self._open)


_CREATION = "tt::tt_metal::create_device_tensor"


class GraphCapture:
    """One capture: `nodes` grow with every command."""

    def __init__(self, with_sites: bool = False) -> None:
        self._nodes = Nodes()
        self._with_sites = with_sites
        self._tensors: dict[int, int] = {}  # tensor id -> counter
        self._buffers: dict[int, int] = {}  # id of a storage -> counter
        self._watched: list[weakref.finalize[Any, TensorMemory]] = []
        self._began = time.perf_counter_ns()
        self._calls: list[int] = []  # when those began that have not returned
        self._nodes.add(CAPTURE_START)

    # -- what ran ----------------------------------------------------------------------------------

    def timed(self, op: EntryPoint, args: tuple[Any, ...], kwargs: dict[str, Any], proceed: Proceed) -> Any:
        """A call that goes on as it is: only its beginning is noted."""
        self._calls.append(time.perf_counter_ns())
        try:
            return proceed(*args, **kwargs)
        finally:
            self._calls.pop()

    def on_command(self, command: Command) -> None:
        inputs = [self._tensor(tensor) for tensor in command.inputs]
        shown = native_arguments(command.name, command.arguments, command.inputs, command.outputs)
        native = native_name(command.name, form_of(command.inputs), form_of(command.outputs))
        self.begin(native, inputs, shown, self._calls[-1] if self._calls else None)
        if command.kind is Kind.DEALLOCATION:
            for tensor in command.inputs:
                self._freed(id(tensor.storage))
        made = [tensor for tensor in command.outputs if tensor.tensor_id not in self._tensors]
        for tensor in made:
            self._allocate(tensor)
        self._run_program(command)
        end = self._nodes.end_function()
        for tensor in command.outputs:
            self._nodes.join(end, self._tensor(tensor))

    def _run_program(self, command: Command) -> None:
        on_cores = of_program(native_name(command.name), command.arguments, command.inputs, command.outputs)
        for kind, memory in [(one.kind, one.params) for one in on_cores] + [(PROGRAM_ENDS, {})] * bool(on_cores):
            self._nodes.join(self._nodes.innermost(), self._nodes.add(kind, memory))

    def begin(self, name: str, inputs: list[int], shown: Sequence[str] = (), began_ns: int | None = None) -> None:
        """A function begins, under its native name; `on_command` ends its own, `end` those of others."""
        traces = {"stack_trace": user_frames()} if self._with_sites else {}
        self._nodes.begin_function(name, inputs, began_ns, arguments=list(shown), **traces)

    def end(self) -> None:
        self._nodes.end_function()

    @property
    def depth(self) -> int:
        return self._nodes.depth

    def finish(self) -> list[Node]:
        """The graph; memory that goes from now on is none of its business."""
        for watch in self._watched:
            watch.detach()
        end = self._nodes.add(CAPTURE_END, duration_ns=time.perf_counter_ns() - self._began)
        self._nodes.join(0, end)
        return self._nodes.all

    # -- tensors and their memory --------------------------------------------------------------------

    def _tensor(self, tensor: CommandTensor) -> int:
        known = self._tensors.get(tensor.tensor_id)
        if known is not None:
            return known
        params = {
            "tensor_id": str(tensor.tensor_id),
            "shape": repr(tensor.shape),
            "dtype": tensor.dtype.cpp_name,
            "layout": tensor.layout.cpp_name,
        }
        if tensor.storage.device is not None:
            params["memory_config"] = repr(tensor.memory_config())
            params["device_id"] = str(tensor.storage.device.get_device_ids()[0])
            params["address"] = str(tensor.storage.address)
            params["buffer_type"] = tensor.memory_config().buffer_type.cpp_name
            params["device_tensors"] = _device_tensors(tensor.storage)
        counter = self._tensors[tensor.tensor_id] = self._nodes.add(TENSOR, params)
        if tensor.storage.device is not None and tensor.storage.data is not None:
            self._nodes.join(self._buffer(tensor.storage), counter)
        return counter

    def _buffer(self, storage: TensorMemory) -> int:
        known = self._buffers.get(id(storage))
        if known is None:
            known = self._buffers[id(storage)] = self._nodes.add(BUFFER, buffer_params(storage))
            watch = weakref.finalize(storage, self._freed, id(storage))
            watch.atexit = False
            self._watched.append(watch)
        return known

    def _allocate(self, tensor: CommandTensor) -> None:
        storage = tensor.storage
        if storage.device is None or id(storage) in self._buffers:
            return
        form = (tensor.dtype.cpp_name, tensor.layout.cpp_name, repr(storage.device), repr(tensor.memory_config()))
        self._nodes.begin_function(_CREATION, [], arguments=[repr(tensor.shape), *form])
        allocation = self._nodes.add(BUFFER_ALLOCATE, buffer_params(storage))
        self._nodes.join(self._nodes.innermost(), allocation)
        self._nodes.join(allocation, self._buffer(storage))
        end = self._nodes.end_function()
        self._nodes.join(end, self._tensor(tensor))

    def _freed(self, storage: int) -> None:
        buffer = self._buffers.pop(storage, None)
        if buffer is None:
            return
        node = self._nodes.add(BUFFER_DEALLOCATE, dict(self._nodes.all[buffer]["params"]))
        self._nodes.join(self._nodes.innermost(), node)
        self._nodes.join(node, buffer)


def _device_tensors(storage: TensorMemory) -> str:
    """Where it lies on each chip of its mesh, as JSON: at one address, for allocation goes in lock-step."""
    assert storage.device is not None
    address = storage.address
    return json.dumps([{"device_id": chip, "address": address} for chip in storage.device.get_device_ids()])


def buffer_params(storage: TensorMemory) -> dict[str, str]:
    """What TT-NN tells of a buffer: sizes are those on one chip."""
    spec, device = storage.spec, storage.device
    assert spec is not None
    assert device is not None
    config = spec.memory_config
    room = footprint(spec, device.memory.memory_map)
    shard = config.shard_spec or config.nd_shard_spec
    return {
        "address": str(storage.address),
        "size": str(room.bytes),
        "type": config.buffer_type.name,
        "layout": config.memory_layout.name,
        "page_size": str(spec.page_size()),
        "num_cores": str(shard.num_cores() if shard is not None else 0),
        "max_size_per_bank": str(room.bytes_per_bank),
        "device_id": str(device.get_device_ids()[0]),
        "device_ids": json.dumps(device.get_device_ids()),
    }
