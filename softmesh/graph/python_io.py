"""Records of op calls with the arguments the program gave, written to the report beside a captured graph.

A record has TT-NN's fields: `name`, `arguments` by name or place, `input_tensor_ids`, `output_tensor_ids`, and
`python_stack_trace` while stack traces are wanted.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import torch

from softmesh.arguments import described
from softmesh.dispatch.entry_point import EntryPoint, Proceed, intercepting
from softmesh.graph.stack_trace_sources import user_frames
from softmesh.tensor.tensor import Tensor

Record = dict[str, Any]


@dataclass
class Switches:
    """What captures and records tell beside what happened."""

    stack_traces: bool = False
    buffer_pages: bool = False


SWITCHES = Switches()
RECORDS: list[Record] = []
_RECORDING = ExitStack()
_users = 0  # captures, and the switch
_is_on = False


def forget() -> None:
    RECORDS.clear()


@contextmanager
def recording() -> Iterator[None]:
    """Calls are recorded within the block; once, however many ask for it."""
    global _users
    if not _users:
        _RECORDING.enter_context(intercepting(_recorded))
    _users += 1
    try:
        yield
    finally:
        _users -= 1
        if not _users:
            _RECORDING.close()


_SWITCHED_ON = ExitStack()


def enable_python_io_recording() -> None:
    global _is_on
    if not _is_on:
        _SWITCHED_ON.enter_context(recording())
        _is_on = True


def disable_python_io_recording() -> None:
    global _is_on
    _SWITCHED_ON.close()
    _is_on = False


def is_python_io_recording_enabled() -> bool:
    return _is_on


def _recorded(op: EntryPoint, args: tuple[Any, ...], kwargs: dict[str, Any], proceed: Proceed) -> Any:
    record = append_python_io_record(op.python_fully_qualified_name)
    record_python_operation(op.python_fully_qualified_name, args, kwargs, record=record)
    try:
        output = proceed(*args, **kwargs)
    except Exception as error:
        record_python_operation_error(record, type(error).__name__, str(error))
        raise
    record["output_tensor_ids"] = [tensor.tensor_id for tensor in tensors_in(output, Tensor)]
    return output


def append_python_io_record(name: str) -> Record:
    record: Record = {"name": name, "arguments": {}, "input_tensor_ids": [], "output_tensor_ids": [], "error": None}
    if SWITCHES.stack_traces:
        record["python_stack_trace"] = user_frames()
    RECORDS.append(record)
    return record


def record_python_operation(
    name: str, function_args: Sequence[Any], function_kwargs: dict[str, Any], *, record: Record | None = None
) -> Record:
    """Write down a call: in `record`, or in a new one."""
    kept = append_python_io_record(name) if record is None else record
    given = {**{str(at): value for at, value in enumerate(function_args)}, **function_kwargs}
    kept["arguments"] = {name: safe_arg_str(value) for name, value in given.items()}
    kept["input_tensor_ids"] = [tensor.tensor_id for tensor in tensors_in(given, Tensor)]
    return kept


def record_python_operation_error(record: Record, error_type: str, error_message: str) -> None:
    record["error"] = {"type": error_type, "message": error_message}


def store_output_tensor_ids(output_tensor_ids: Sequence[int]) -> None:
    """The results of the call that was recorded last."""
    if RECORDS:
        RECORDS[-1]["output_tensor_ids"] = list(output_tensor_ids)


def safe_arg_str(value: Any) -> str:
    """An argument as a report shows it: of a tensor what it is, not what it holds."""
    if isinstance(value, Tensor):
        what = f"shape={value.shape}, dtype={value.dtype}, layout={value.layout}"
        return f"ttnn.Tensor(tensor_id={value.tensor_id}, {what})"
    if isinstance(value, torch.Tensor):
        return f"torch.Tensor(shape={list(value.shape)}, dtype={value.dtype})"
    try:
        return value if isinstance(value, str) else described(value)
    except Exception as error:  # a repr of the user's own
        return f"<{type(value).__name__}, which cannot be shown: {type(error).__name__}>"


def tensors_in(nest: Any, kinds: type | tuple[type, ...]) -> list[Any]:
    """The tensors in arguments or results, however deep in lists and dicts."""
    if isinstance(nest, kinds):
        return [nest]
    if isinstance(nest, Mapping):
        nest = nest.values()
    elif not isinstance(nest, list | tuple):
        return []
    return [tensor for item in nest for tensor in tensors_in(item, kinds)]
