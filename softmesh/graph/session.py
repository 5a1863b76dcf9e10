"""Starting and ending graph captures, their run mode (dry run), switches, and report files."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from softmesh import epoch
from softmesh.arguments import checked, refused
from softmesh.callsite import user_call_site
from softmesh.dispatch.entry_point import EntryPoint, Proceed, intercepting
from softmesh.errors import MeshError
from softmesh.graph import python_io
from softmesh.graph.capture import GraphCapture, Node
from softmesh.graph.python_io import tensors_in
from softmesh.hardware.enums import NativeEnum
from softmesh.processes import current_context
from softmesh.runtime.commands import observe
from softmesh.runtime.device import MeshDevice
from softmesh.runtime.device_lifecycle import open_meshes
from softmesh.tensor.buffer_reports import get_buffer_pages, get_buffers, get_device_info
from softmesh.tensor.storage import alias
from softmesh.tensor.tensor import Tensor
from softmesh.tensor.undefined import Undefined, devices_of, mark

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


class RunMode(NativeEnum):
    """Whether ops under capture run, or are only planned."""

    NORMAL = 0
    NO_DISPATCH = 1


@dataclass
class _Switches:
    stack_traces: bool = False
    buffer_pages: bool = False


@dataclass(frozen=True)
class _Running:
    capture: GraphCapture
    attached: ExitStack


_SWITCHES = _Switches()
_RUNNING: list[_Running] = []


def begin_graph_capture(run_mode: RunMode | None = None, *, _internal: bool = False) -> None:
    """From now on every op, transfer and buffer is written down. Captures nest: each sees what runs inside it."""
    mode = RunMode.NORMAL if run_mode is None else run_mode
    checked("begin_graph_capture", "run_mode", mode, RunMode, "ttnn.graph.RunMode.NORMAL or NO_DISPATCH")
    capture, attached = GraphCapture(_SWITCHES.stack_traces), ExitStack()
    if not _RUNNING:
        python_io.forget()
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
        running.capture.begin(checked("track_function_start", "function_name", function_name, str, "a name"), [])


def track_function_end() -> None:
    for running in _RUNNING:
        if not running.capture.depth:
            raise MeshError("track_function_end: no function has begun. Call ttnn.graph.track_function_start(name).")
        running.capture.end()


# -- reports ---------------------------------------------------------------------------------------------


def end_graph_capture_to_file(report_path: str | os.PathLike[str]) -> list[Node]:
    """End the capture and write its report: the graph, the devices and their buffers, and the calls recorded."""
    graph = end_graph_capture()
    _write(report_path, {**_report(), "graph": graph})
    return graph


def store_captured_graph(captured_graph_json: Any) -> None:
    """Keep a graph beside the reports: `captured_graph.json` in the folder that `ttnn.CONFIG` names."""
    from softmesh.config import CONFIG

    folder = CONFIG.report_path or CONFIG.root_report_path
    _write(folder / "captured_graph.json", captured_graph_json)


def _report() -> dict[str, Any]:
    meshes = open_meshes()
    world = current_context.current_world() if current_context.is_initialized() else None
    rank, ranks = (0, 1) if world is None else (world.rank, world.size)
    report: dict[str, Any] = {
        "version": REPORT_VERSION,
        "devices": [get_device_info(mesh).as_json() for mesh in meshes],
        "buffers": [buffer.as_json() for buffer in get_buffers(meshes)],
        "python_io": list(python_io.RECORDS),
        "metadata": {"rank": rank, "world_size": ranks},
    }
    if _SWITCHES.buffer_pages:
        report["buffer_pages"] = [page.as_json() for page in get_buffer_pages(meshes)]
    return report


def _write(path: str | os.PathLike[str], document: Any) -> None:
    if not isinstance(path, str | os.PathLike):
        raise refused("end_graph_capture_to_file", f"report_path must be a path, got {path!r}")
    try:
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        Path(path).write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    except (OSError, TypeError, ValueError) as error:
        raise MeshError(f"ttnn.graph: cannot write {path}: {error}.") from None


@contextmanager
def full_graph_capture(
    report_path: str, *, run_mode: RunMode | None = None, slow_dispatch: bool = True
) -> Iterator[None]:
    """Capture a block with stack traces, pages of buffers and the arguments of every op, into one report.

    Dispatch is the same here, slow or fast: `slow_dispatch` changes nothing.
    """
    before, recorded = _Switches(**vars(_SWITCHES)), python_io.is_python_io_recording_enabled()
    _SWITCHES.stack_traces = _SWITCHES.buffer_pages = True
    python_io.enable_python_io_recording()
    try:
        begin_graph_capture(run_mode)
        try:
            yield
        finally:
            end_graph_capture_to_file(report_path)
    finally:
        vars(_SWITCHES).update(vars(before))
        if not recorded:
            python_io.disable_python_io_recording()


# -- switches --------------------------------------------------------------------------------------------


def enable_python_stack_traces() -> None:
    """Captures that begin from now on tell the line that called each op."""
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


def follow_config_for_outer_capture() -> None:
    """Stack traces as `ttnn.CONFIG.enable_graph_python_stack_traces` has them, unless a capture is running."""
    from softmesh.config import CONFIG

    if not _RUNNING:
        _SWITCHES.stack_traces = CONFIG.enable_graph_python_stack_traces
