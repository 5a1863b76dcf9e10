"""`ttnn.operation_tracer`: the parameters of every op, each call in a JSON file of its own.

Files go below `ttnn.CONFIG.root_report_path`, into `operation_parameters`. Suites switch it by the underscored
names of this module too, so setting those does what the functions do.
"""

from __future__ import annotations

import functools
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

from softmesh.config import CONFIG
from softmesh.config_serialization import (
    compute_kernel_config_to_dict,
    memory_config_to_dict,
    plain,
    program_config_to_dict,
)
from softmesh.dispatch.entry_point import EntryPoint, Proceed, switch_interceptor
from softmesh.errors import MeshError
from softmesh.tensor.tensor import Tensor

__all__ = [
    "compute_kernel_config_to_dict",
    "enable_tensor_value_serialization",
    "enable_tracing",
    "is_tracing_enabled",
    "memory_config_to_dict",
    "program_config_to_dict",
    "serialize_operation_parameters",
    "set_sweep_source_hash",
    "wrap_function_for_tracing",
]

_ENABLE_TRACE = False
_SERIALIZE_TENSOR_VALUES = False
_OPERATION_COUNTER = 0
_sweep_source_hash: str | None = None


class _Switched(ModuleType):
    """This module: assigning `_ENABLE_TRACE` begins and ends tracing."""

    def __setattr__(self, name: str, value: object) -> None:
        super().__setattr__(name, value)
        if name == "_ENABLE_TRACE":
            _switch(bool(value))


def _switch(on: bool) -> None:
    switch_interceptor(_written, on)


def enable_tracing(enable: bool = True) -> None:
    """From now on every op leaves a file."""
    _this()._ENABLE_TRACE = enable


def is_tracing_enabled() -> bool:
    return _ENABLE_TRACE


def enable_tensor_value_serialization(enable: bool = True) -> None:
    """Whether files hold the values of tensors too, or only what they are."""
    _this()._SERIALIZE_TENSOR_VALUES = enable


def set_sweep_source_hash(hash_value: str | None = None) -> None:
    """A mark of the sweep that runs, kept in every file."""
    _this()._sweep_source_hash = hash_value


def _this() -> Any:
    return sys.modules[__name__]


def _written(op: EntryPoint, args: tuple[Any, ...], kwargs: dict[str, Any], proceed: Proceed) -> Any:
    return _called(op.python_fully_qualified_name, proceed, args, kwargs)


def wrap_function_for_tracing(original_function: Callable[..., Any], operation_name: str) -> Callable[..., Any]:
    """A function that leaves a file whenever tracing is on."""

    @functools.wraps(original_function)
    def call(*args: Any, **kwargs: Any) -> Any:
        if not _ENABLE_TRACE:
            return original_function(*args, **kwargs)
        return _called(operation_name, original_function, args, kwargs)

    return call


def _called(name: str, call: Proceed, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    output = call(*args, **kwargs)
    folder = CONFIG.root_report_path / "operation_parameters"
    serialize_operation_parameters(name, args, kwargs, folder, output, _SERIALIZE_TENSOR_VALUES)
    return output


def serialize_operation_parameters(
    operation_name: str,
    function_args: Sequence[Any],
    function_kwargs: Mapping[str, Any],
    log_dir: Path,
    return_value: Any = None,
    serialize_tensor_values: bool = True,
) -> Path:
    """Write one call into `log_dir`; files are numbered in the order of the calls."""
    number = _OPERATION_COUNTER + 1
    _this()._OPERATION_COUNTER = number
    written = functools.partial(_value, with_values=serialize_tensor_values)
    document = {
        "operation_number": number,
        "operation_name": operation_name,
        "args": [{"position": at, "value": written(value)} for at, value in enumerate(function_args)],
        "kwargs": {name: written(value) for name, value in function_kwargs.items()},
        "return_value": written(return_value),
    }
    if _sweep_source_hash is not None:
        document["sweep_source_hash"] = _sweep_source_hash
    path = Path(log_dir) / f"{number:06d}_{operation_name.replace('.', '_')}.json"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    except OSError as error:
        raise MeshError(f"operation_tracer: cannot write {path}: {error}.") from None
    return path


def _value(value: Any, with_values: bool) -> Any:
    if isinstance(value, Tensor):
        found: dict[str, Any] = {
            "type": "ttnn.Tensor",
            "shape": list(value.shape),
            "dtype": value.dtype.name,
            "layout": value.layout.name,
            "storage_type": value.storage_type().name,
            "memory_config": memory_config_to_dict(value.memory_config()),
        }
        if with_values and value.is_allocated():
            found["values"] = value.pieces().tolist()
        return found
    if isinstance(value, torch.Tensor):
        made = {"type": "torch.Tensor", "shape": list(value.shape), "dtype": str(value.dtype)}
        return made | ({"values": value.tolist()} if with_values else {})
    if isinstance(value, list | tuple):
        return [_value(item, with_values) for item in value]
    return plain(value)


sys.modules[__name__].__class__ = _Switched
