"""Starting and ending graph captures, their run mode (dry run), switches, and report files."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from softmesh import epoch
from softmesh.arguments import checked
from softmesh.callsite import user_call_site
from softmesh.config import CONFIG
from softmesh.dispatch.entry_point import EntryPoint, Proceed, intercepting
from softmesh.errors import MeshError
from softmesh.graph import python_io
from softmesh.graph.capture import GraphCapture, Node
from softmesh.graph.comparison_records import (
    COMPARISON_RECORDS_SIDECAR_SUFFIX,
    has_comparison_records,
    kept_records,
    recording_comparisons,
    reset_comparison_records_data,
)
from softmesh.graph.machine_descriptors import cluster_text, mapping_text
from softmesh.graph.native_calls import native_name
from softmesh.graph.python_io import tensors_in
from softmesh.hardware.enums import NativeEnum
from softmesh.input_files.text_files import checked_path
from softmesh.mesh import MeshCoordinateRange
from softmesh.processes import current_context
from softmesh.runtime.commands import observe
from softmesh.runtime.device import MeshDevice
from softmesh.runtime.device_lifecycle import open_meshes
from softmesh.systems.system_choice import chosen_machine
from softmesh.tensor.buffer_reports import get_buffer_pages, get_buffers, get_device_info
from softmesh.tensor.storage import alias
from softmesh.tensor.tensor import Tensor
from softmesh.tensor.undefined import Undefined, devices_of, mark
from softmesh.terminal_text import readable

# RunMode.NO_DISPATCH: results hold undefined values, as they do on silicon, and reading them says so; what an op would
# have written in place stays as it was. Transfers between host and mesh do take place.


def without_dispatch(op: EntryPoint, args: tuple[Any, ...], kwargs: dict[str, Any], proceed: Proceed) -> Any:
    given = [tensor for tensor in tensors_in((args, kwargs), Tensor) if tensor.storage.data is not None]
    storages = {id(tensor.storage): tensor.storage for tensor in given}
    # A second owner makes every write go to a copy, which is then left behind.
    before = [(s, s.data, alias(s.data), s.dist, s.undefined) for s in storages.values() if s.data is not None]
    programs = [(device, set(device.program_cache)) for device in open_meshes()]
    for storage in storages.values():
        storage.undefined = None  # nothing is read in a dry run: nobody needs to be warned
    try:
        output = proceed(*args, **kwargs)
    finally:
        for storage, data, _, dist, undefined in before:
            storage.data, storage.dist, storage.undefined = data, dist, undefined
        _forget_programs(programs)
    for result in tensors_in(output, Tensor):
        if id(result.storage) not in storages:
            _leave_undefined(result, op.name)
    return output


def _forget_programs(before: list[tuple[MeshDevice, set[object]]]) -> None:
    """What a dry run planned is compiled when it first runs."""
    for device, known in before:
        if len(device.program_cache) != len(known):
            device.program_cache &= known
            epoch.invalidate()


def _leave_undefined(result: Tensor, op: str) -> None:
    storage = result.storage
    assert storage.data is not None
    nothing = math.nan if storage.data.is_floating_point() else torch.iinfo(storage.data.dtype).max
    storage.data = torch.full_like(storage.data, nothing)
    site, coords = user_call_site(), devices_of(result.view_distribution())
    mark(result, Undefined(f"{op} under RunMode.NO_DISPATCH", site, coords))


REPORT_VERSION = 1
PYTHON_IO_SIDECAR_SUFFIX = ".python_io.json"


class RunMode(NativeEnum):
    """Whether ops under capture run, or are only planned."""

    NORMAL = 0
    NO_DISPATCH = 1


@dataclass(frozen=True)
class _Running:
    capture: GraphCapture
    attached: ExitStack


_SWITCHES = python_io.SWITCHES
_RUNNING: list[_Running] = []


def begin_graph_capture(run_mode: RunMode | None = None, *, _internal: bool = False) -> None:
    """From now on every op, transfer and buffer is written down. Captures nest: each sees what runs inside it."""
    mode = RunMode.NORMAL if run_mode is None else run_mode
    checked("begin_graph_capture", "run_mode", mode, RunMode, "ttnn.graph.RunMode.NORMAL or NO_DISPATCH")
    attached = ExitStack()
    if follow_config_for_outer_capture():
        attached.callback(disable_python_stack_traces)
    capture = GraphCapture(_SWITCHES.stack_traces)
    if not _RUNNING:
        python_io.forget()
    attached.enter_context(python_io.recording())
    attached.enter_context(recording_comparisons())
    attached.enter_context(observe(capture))
    attached.enter_context(intercepting(capture.timed))
    if mode is RunMode.NO_DISPATCH:
        attached.enter_context(intercepting(without_dispatch))
    _RUNNING.append(_Running(capture, attached))


def end_graph_capture() -> list[Node]:
    """The graph of the capture that began last: a list of nodes, which JSON can hold."""
    if not _RUNNING:
        raise MeshError("end_graph_capture: no graph capture is active. Call ttnn.graph.begin_graph_capture() first.")
    running = _RUNNING.pop()
    running.attached.close()
    return running.capture.finish()


def abandon_captures() -> int:
    """End all captures that are under way, and forget what they saw; how many there were."""
    count = len(_RUNNING)
    while _RUNNING:
        _RUNNING.pop().attached.close()
    return count


def is_graph_capture_active() -> bool:
    return bool(_RUNNING)


def track_function_start(function_name: str) -> None:
    """A function of the user's own, in all captures that are active."""
    for running in _RUNNING:
        running.capture.begin(
            native_name(checked("track_function_start", "function_name", function_name, str, "a name")), []
        )


def track_function_end() -> None:
    for running in _RUNNING:
        if not running.capture.depth:
            raise MeshError("track_function_end: no function has begun. Call ttnn.graph.track_function_start(name).")
        running.capture.end()


# -- reports ---------------------------------------------------------------------------------------------


def end_graph_capture_to_file(report_path: str | os.PathLike[str]) -> list[Node]:
    """End the capture and write its report: the graph, the devices and their buffers, and the calls recorded."""
    graph = end_graph_capture()
    report = _report()
    _write(report_path, {**report, "graph": graph})
    _write(Path(report_path).with_suffix(PYTHON_IO_SIDECAR_SUFFIX), report["python_io"])
    if has_comparison_records():
        _write(Path(report_path).with_suffix(COMPARISON_RECORDS_SIDECAR_SUFFIX), kept_records())
        reset_comparison_records_data()
    return graph


def store_captured_graph(captured_graph_json: Any) -> None:
    """The graph of the call that was recorded last; nothing where none was."""
    if python_io.RECORDS:
        python_io.RECORDS[-1]["captured_graph"] = captured_graph_json


def _report() -> dict[str, Any]:
    meshes = open_meshes()
    world = current_context.current_world() if current_context.is_initialized() else None
    rank, ranks = (0, 1) if world is None else (world.rank, world.size)
    places = {chip: at for mesh in reversed(meshes) for chip, at in _coordinates(mesh).items()}
    report: dict[str, Any] = {
        "version": REPORT_VERSION,
        "devices": [facts for mesh in meshes for facts in _devices(mesh)],
        "buffers": _on_every_chip(meshes, get_buffers),
        "python_io": list(python_io.RECORDS),
        "metadata": {"rank": rank, "world_size": ranks},
        "cluster_descriptor": cluster_text(chosen_machine(), places) if places else "",
        "mesh_coordinate_mapping": mapping_text(places),
    }
    if _SWITCHES.buffer_pages:
        report["buffer_pages"] = _on_every_chip(meshes, get_buffer_pages)
    return report


def _devices(mesh: MeshDevice) -> list[dict[str, Any]]:
    """Each chip, under its own number."""
    facts = {
        **get_device_info(mesh).as_json(),
        "arch": mesh.system.chip.arch_name,
        "num_dram_channels": mesh.system.chip.dram_banks,
    }
    return [{"device_id": chip, **facts} for chip in mesh.get_device_ids()]


def _coordinates(mesh: MeshDevice) -> dict[int, tuple[int, ...]]:
    return {mesh.get_device_id(coord): tuple(coord) for coord in MeshCoordinateRange(mesh.shape)}


def _on_every_chip(meshes: Sequence[MeshDevice], told: Callable[[MeshDevice], Sequence[Any]]) -> list[dict[str, Any]]:
    """What is told of a mesh, of each of its chips: allocation goes in lock-step."""
    return [
        {**record.as_json(), "device_id": chip}
        for mesh in meshes
        for record in told(mesh)
        for chip in mesh.get_device_ids()
    ]


def _write(path: str | os.PathLike[str], document: Any) -> None:
    file = Path(checked_path("end_graph_capture_to_file", "report_path", path))
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    except (OSError, TypeError, ValueError) as error:
        cause = getattr(error, "strerror", None) or error
        raise MeshError(f"ttnn.graph: cannot write {readable(str(path))}: {cause}.") from None


@contextmanager
def full_graph_capture(
    report_path: str, *, run_mode: RunMode | None = None, slow_dispatch: bool = True
) -> Iterator[None]:
    """Capture a block with stack traces, pages of buffers and the arguments of every op, into one report.

    Dispatch is the same here, slow or fast: `slow_dispatch` changes nothing.
    """
    before, recorded = dict(vars(_SWITCHES)), python_io.is_python_io_recording_enabled()
    _SWITCHES.stack_traces = _SWITCHES.buffer_pages = True
    python_io.enable_python_io_recording()
    try:
        begin_graph_capture(run_mode)
        try:
            yield
        finally:
            end_graph_capture_to_file(report_path)
    finally:
        vars(_SWITCHES).update(before)
        if not recorded:
            python_io.disable_python_io_recording()


# -- switches --------------------------------------------------------------------------------------------


def enable_python_stack_traces() -> None:
    """Captures that begin from now on tell the lines that led to each op."""
    _SWITCHES.stack_traces = True


def disable_python_stack_traces() -> None:
    _SWITCHES.stack_traces = False


def is_python_stack_trace_enabled() -> bool:
    return _SWITCHES.stack_traces


def enable_detailed_buffer_tracing() -> None:
    """Reports list the pages of every buffer that is alive."""
    _SWITCHES.buffer_pages = True


def disable_detailed_buffer_tracing() -> None:
    _SWITCHES.buffer_pages = False


def is_detailed_buffer_tracing_enabled() -> bool:
    return _SWITCHES.buffer_pages


def follow_config_for_outer_capture(namespace: object = None) -> bool:
    """Switch stack traces on where `ttnn.CONFIG` asks for them and no capture runs; whether that changed anything.

    `namespace` has a CONFIG of its own: as `ttnn` has.
    """
    config = getattr(namespace, "CONFIG", CONFIG)
    asked = ("enable_graph_python_stack_traces", "enable_detailed_tensor_report")
    is_new = any(getattr(config, name, False) for name in asked) and not _RUNNING and not _SWITCHES.stack_traces
    _SWITCHES.stack_traces |= is_new
    return is_new
