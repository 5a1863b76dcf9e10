"""Records calls from light_metal_begin_capture to light_metal_end_capture; LightMetalReplay makes them again."""

from __future__ import annotations

import tempfile
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from pathlib import Path
from typing import Any

import torch

from softmesh.dispatch.entry_point import FUNCTIONS, EntryPoint, Proceed, intercepting
from softmesh.dispatch.operation import OPERATIONS
from softmesh.errors import ArgumentError, MeshError, SoftmeshError, SoftmeshWarning
from softmesh.light_metal.binary_format import LightMetalBinary, packed, unpacked
from softmesh.light_metal.call_values import decoded, encoded, torch_dtype
from softmesh.mesh import MeshShape
from softmesh.runtime.commands import Command, observe
from softmesh.runtime.device import MeshDevice
from softmesh.runtime.device_lifecycle import close_mesh_device, open_mesh_device
from softmesh.runtime.traces import trace_api
from softmesh.runtime.traces.recording import MeshTraceId
from softmesh.runtime.traces.trace import ended
from softmesh.tensor.files import dump_tensor, load_tensor
from softmesh.tensor.tensor import Tensor
from softmesh.terminal_text import readable

_OPENED = ("trace_region_size", "l1_small_size")  # of the mesh, beside its shape
_TRACES = ("begin_trace_capture", "end_trace_capture", "execute_trace", "release_trace")


class _Recording:
    """The calls since the capture began: outermost ones, for those make the others again."""

    def __init__(self) -> None:
        self.calls: list[dict[str, Any]] = []
        self.blobs: list[bytes] = []
        self.devices: list[MeshDevice] = []
        self._known: set[int] = set()  # ids of tensors that a recorded call made, or that were kept
        self._depth = 0
        self.attached = ExitStack()
        self.attached.enter_context(intercepting(self.intercept))
        self.attached.enter_context(observe(self))

    def intercept(self, op: EntryPoint, args: tuple[Any, ...], kwargs: dict[str, Any], proceed: Proceed) -> Any:
        if self._depth:
            return proceed(*args, **kwargs)
        if not op.may_replay:
            return self._unrecorded(proceed, args, kwargs)
        _resolved(op.name)
        call = {"name": op.name, "args": self._data(op, list(args)), "kwargs": self._data(op, kwargs)}
        made = self._unrecorded(proceed, args, kwargs)
        call["made"] = [tensor.tensor_id for tensor in _tensors(made)]
        self._known.update(call["made"])
        self.calls.append(call)
        return made

    def _unrecorded(self, proceed: Proceed, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Make a call that is recorded as a whole, or not at all: a file's tensor is kept when a call uses it."""
        self._depth += 1
        try:
            return proceed(*args, **kwargs)
        finally:
            self._depth -= 1

    def on_command(self, command: Command) -> None:
        if command.name in _TRACES and command.device is not None:
            self.calls.append({"trace": command.name, "number": command.trace, "queue": command.queue, "made": []})
            self._device(command.device)

    def _data(self, op: EntryPoint, values: Any) -> Any:
        return encoded(values, self._other, f"ttnn.{op.name}")

    def _other(self, value: Any) -> Any:
        if isinstance(value, Tensor):
            if value.tensor_id not in self._known:
                self._keep(value)
            return {"tensor": value.tensor_id}
        if isinstance(value, torch.Tensor):
            plain = value.detach().cpu().contiguous()
            self.blobs.append(plain.reshape(-1).view(torch.uint8).numpy().tobytes())
            form = {"dtype": str(plain.dtype).removeprefix("torch."), "shape": list(plain.shape)}
            return {"values": {"blob": len(self.blobs) - 1, **form}}
        return self._device(value) if isinstance(value, MeshDevice) else None

    def _device(self, mesh: MeshDevice) -> dict[str, int]:
        if mesh not in self.devices:
            self.devices.append(mesh)
        if len(self.devices) > 1:
            raise MeshError("light_metal_begin_capture: one mesh is recorded, and this program works on two.")
        return {"device": 0}

    def _keep(self, tensor: Tensor) -> None:
        """A tensor from before the capture comes with what it holds now."""
        self._depth += 1
        try:
            with tempfile.TemporaryDirectory() as folder:
                path = Path(folder, "kept.tensorbin")
                dump_tensor(path, tensor)
                self.blobs.append(path.read_bytes())
        finally:
            self._depth -= 1
        mesh = tensor.device()
        if mesh is not None:
            self._device(mesh)
        self.calls.append({"kept": len(self.blobs) - 1, "on_mesh": mesh is not None, "made": [tensor.tensor_id]})
        self._known.add(tensor.tensor_id)


_RECORDINGS: list[_Recording] = []  # none, or the one that is under way


def light_metal_begin_capture() -> None:
    """From here on the calls of ops, transfers and traces are recorded; they run as they would without."""
    if _RECORDINGS:
        raise MeshError("light_metal_begin_capture: a capture is under way; end it with light_metal_end_capture().")
    _RECORDINGS.append(_Recording())


def light_metal_end_capture() -> LightMetalBinary:
    """The calls since light_metal_begin_capture."""
    if not _RECORDINGS:
        raise MeshError("light_metal_end_capture: no capture is under way; call light_metal_begin_capture() first.")
    recording = _RECORDINGS.pop()
    recording.attached.close()
    mesh = next(iter(recording.devices), None)
    opened = None if mesh is None else {"shape": list(mesh.shape), **{name: mesh.options.get(name) for name in _OPENED}}
    return packed({"mesh": opened, "calls": recording.calls}, recording.blobs)


class LightMetalReplay:
    """A recorded program on a mesh of the same shape; without one, on a mesh that is opened for each run."""

    def __init__(self, binary: LightMetalBinary, device: MeshDevice | None) -> None:
        self._table, self._blobs = unpacked(binary)
        self._device = device
        self._opened = self._table["mesh"]
        if device is not None and self._opened is not None and list(device.shape) != self._opened["shape"]:
            raise MeshError(
                f"LightMetalReplay: recorded on a mesh {self._opened['shape']}, and this one is {list(device.shape)}."
            )

    @staticmethod
    def create(binary: LightMetalBinary, device: MeshDevice | None = None) -> LightMetalReplay:
        if not isinstance(binary, LightMetalBinary):
            raise ArgumentError(f"LightMetalReplay.create(): binary must be a LightMetalBinary, got {binary!r}.")
        return LightMetalReplay(binary, device)

    def __repr__(self) -> str:
        mesh = "a mesh of its own" if self._device is None else repr(self._device)
        return f"LightMetalReplay({len(self._blobs)} values, on {mesh})"

    def run(self) -> bool:
        """Make the recorded calls; True if all of them did what they should. A warning tells what went wrong.

        The bytes may come from anywhere, so whatever a call raises is the answer to them.
        """
        opened = None
        try:
            if self._device is None and self._opened is not None:
                sizes = {name: self._opened[name] for name in _OPENED if self._opened.get(name) is not None}
                opened = open_mesh_device(MeshShape(self._opened["shape"]), **sizes)
            mesh = self._device or opened
            with nullcontext() if mesh is None else _traces_of_its_own(mesh):
                self._make_calls(mesh)
        except Exception as error:
            said = str(error) if isinstance(error, SoftmeshError) else f"{type(error).__name__}: {error}"
            warnings.warn(f"LightMetalReplay.run: {readable(said)}", SoftmeshWarning, stacklevel=2)
            return False
        finally:
            if opened is not None:
                close_mesh_device(opened)
        return True

    def _make_calls(self, mesh: MeshDevice | None) -> None:
        calls = self._table["calls"]
        last = {number: at for at, call in enumerate(calls) for number in (*call["made"], *_uses(call))}
        tensors: dict[int, Tensor] = {}
        traces: dict[int, MeshTraceId] = {}

        def other(kind: str, of: Any) -> Any:
            if kind == "tensor":
                return tensors[of]
            if kind == "device":
                return mesh
            if kind == "values":
                return self._values(of)
            raise MeshError(f"it has a value of an unknown kind, {kind!r}.")

        for at, call in enumerate(calls):
            if "trace" in call:
                _run_trace(call, mesh, traces)
                continue
            made = self._kept(call, mesh) if "kept" in call else _called(at, call, other)
            found = list(_tensors(made))
            if len(found) != len(call["made"]):
                raise MeshError(f"call {at} made {len(found)} tensors, and the table of calls has {len(call['made'])}.")
            tensors.update(zip(call["made"], found, strict=True))
            for number in [number for number in tensors if last[number] <= at and not traces]:
                del tensors[number]

    def _values(self, of: dict[str, Any]) -> torch.Tensor:
        values = bytearray(self._blobs[of["blob"]])
        dtype = torch_dtype(of["dtype"])
        return (
            torch.frombuffer(values, dtype=dtype).reshape(of["shape"])
            if values
            else torch.empty(of["shape"], dtype=dtype)
        )

    def _kept(self, call: dict[str, Any], mesh: MeshDevice | None) -> Tensor:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "kept.tensorbin")
            path.write_bytes(self._blobs[call["kept"]])
            return load_tensor(path, device=mesh if call["on_mesh"] else None)


def _called(at: int, call: dict[str, Any], other: Callable[[str, Any], Any]) -> Any:
    op = _replayable(call["name"])
    try:
        args, kwargs = list(decoded(call["args"], other)), dict(decoded(call["kwargs"], other))
    except Exception as error:
        cause = str(error) if isinstance(error, SoftmeshError) else f"{type(error).__name__} {error}".strip()
        raise MeshError(
            f"call {at}, of ttnn.{op.name}, has arguments that no capture has written ({cause}): record the program "
            "anew."
        ) from None
    return op(*args, **kwargs)


@contextmanager
def _traces_of_its_own(mesh: MeshDevice) -> Iterator[None]:
    """Nobody else knows the traces of a run: they go with it, also a capture that an error left open."""
    before = {int(one.number) for one in mesh.captures.recordings.values()} | set(mesh.captures.traces)
    try:
        yield
    finally:
        for queue, recording in list(mesh.captures.recordings.items()):
            if int(recording.number) not in before:
                ended(mesh, queue, recording.number)
        for number in sorted(set(mesh.captures.traces) - before):
            trace_api.release_trace(mesh, MeshTraceId(number))


def _run_trace(call: dict[str, Any], mesh: MeshDevice | None, traces: dict[int, MeshTraceId]) -> None:
    if mesh is None:
        raise MeshError("a trace needs a mesh.")
    name, number, queue = call["trace"], call["number"], call["queue"]
    if name == "begin_trace_capture":
        traces[number] = trace_api.begin_trace_capture(mesh, queue)
    elif name == "end_trace_capture":
        trace_api.end_trace_capture(mesh, traces[number], queue)
    elif name == "execute_trace":
        trace_api.execute_trace(mesh, traces[number], queue)
    else:
        trace_api.release_trace(mesh, traces[number])


def _uses(data: Any) -> Iterator[int]:
    """The numbers of all tensors that a recorded call names."""
    if isinstance(data, dict):
        for key, value in data.items():
            if key == "tensor" and isinstance(value, int):
                yield value
            else:
                yield from _uses(value)
    elif isinstance(data, list):
        for item in data:
            yield from _uses(item)


def _tensors(made: Any) -> Iterator[Tensor]:
    if isinstance(made, Tensor):
        yield made
    elif isinstance(made, list | tuple):
        for item in made:
            yield from _tensors(item)


def _resolved(name: str) -> EntryPoint:
    """The op of this name, or else the function."""
    found = OPERATIONS.get(name) or FUNCTIONS.get(name)
    if found is None:
        raise MeshError(f"light_metal_begin_capture: calls of {name} cannot be recorded.")
    return found


def _replayable(name: str) -> EntryPoint:
    """The op or function of this name, if a recorded program may call it: its author is not its user."""
    found = _resolved(name)
    if not found.may_replay:
        raise MeshError(
            f"the recorded program calls ttnn.{name}, which takes a path or free text, and may reach your files. No "
            "capture of today records such a call: record the program anew, or do not use what a stranger wrote."
        )
    return found
