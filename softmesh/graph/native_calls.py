"""Native names of ops in captured graphs: the device operation that TT-NN launches, and its two arguments.

`ttnn.add` and `ttnn.eq` are `BinaryNgDeviceOperation`; which of them stands among the attributes. Where the name of a
device operation was not seen anywhere it is made of the op's, as most are.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from softmesh.dispatch.operation import OPERATIONS
from softmesh.hardware.enums import NativeEnum
from softmesh.runtime.command_tensor import CommandTensor

_IN_PYTHON = (
    "as_tensor",
    "dump_tensor",
    "from_torch",
    "load_tensor",
    "to_torch",
)  # functions of TT-NN's Python
_COPY = "CopyDeviceOperation"
_WITHOUT_TENSORS = "FullDeviceOperation"
_MOREH = "moreh_"
_EXACT = "ComputeKernelConfig(math_fidelity=MathFidelity::HiFi4)"  # what moreh ops take where none is given


class Form(NamedTuple):
    """The layout and the memory layout of a tensor, by name."""

    layout: str  # TILE
    memory_layout: str  # INTERLEAVED


def form_of(tensors: Sequence[CommandTensor]) -> Form | None:
    """Return the form of the first tensor, if there is one."""
    if not tensors:
        return None
    return Form(tensors[0].layout.name, tensors[0].memory_config().memory_layout.name)


def native_name(name: str, given: Form | None = None, made: Form | None = None) -> str:
    """Name what TT-NN launches for an op. All files of reports use this name: their readers join them by it.

    `add` is `BinaryNgDeviceOperation`; a conversion is named by what it converts from and to; what launches no program
    keeps its own name, `ttnn::to_device`.
    """
    if name in _IN_PYTHON:
        return f"ttnn.{name}"
    if given is not None and made is not None and (conversion := _CONVERSIONS.get(name)) is not None:
        return conversion(given, made)
    op = OPERATIONS.get(name)
    if op is None:
        return _COPY if name == "copy" else f"ttnn::{name.replace('.', '::')}"
    if op.definition.native:
        return op.definition.native
    short = op.name.rpartition(".")[2]
    return _in_capitals(short) + ("Operation" if short.startswith(_MOREH) else "DeviceOperation")


def _new_layout(given: Form, made: Form) -> str:
    return "TilizeDeviceOperation" if made.layout == "TILE" else "UntilizeDeviceOperation"


def _new_memory(given: Form, made: Form) -> str:
    was_sharded, is_sharded = given.memory_layout != "INTERLEAVED", made.memory_layout != "INTERLEAVED"
    if was_sharded and is_sharded:
        return "ReshardDeviceOperation"
    if was_sharded != is_sharded:
        return "InterleavedToShardedDeviceOperation" if is_sharded else "ShardedToInterleavedDeviceOperation"
    return _COPY


_CONVERSIONS: dict[str, Callable[[Form, Form], str]] = {"to_layout": _new_layout, "to_memory_config": _new_memory}


def native_arguments(
    name: str, arguments: Mapping[str, Any], inputs: Sequence[CommandTensor], outputs: Sequence[CommandTensor]
) -> list[str]:
    """Of an op its attributes and its tensors, two texts; of any other function each argument by name."""
    if name not in OPERATIONS:
        return [f"{key}={value!r}" for key, value in arguments.items()]
    shown = [f"{key}={_text(value)}" for key, value in _attributes(name, arguments, inputs).items()]
    if outputs:
        made = outputs[0]
        shown += [made.dtype.cpp_name, made.layout.cpp_name, repr(made.memory_config())]
    if name.startswith(_MOREH) and "compute_kernel_config" not in arguments:
        shown.append(_EXACT)
    tensors = [] if native_name(name) == _WITHOUT_TENSORS else list(map(tensor_text, inputs))
    return [f"operation_attributes_t({', '.join(shown)})", f"{{{', '.join(tensors)}}}"]


def tensor_text(tensor: CommandTensor) -> str:
    form = tensor.shape, tensor.dtype.cpp_name, tensor.layout.cpp_name, tensor.memory_config()
    return "Tensor(shape={}, dtype={}, layout={}, memory_config={})".format(*form)


def _attributes(name: str, arguments: Mapping[str, Any], inputs: Sequence[CommandTensor]) -> Mapping[str, Any]:
    if name == "transpose" and inputs:
        order = list(range(len(inputs[0].shape)))
        a, b = (int(str(arguments[dim])) for dim in ("dim1", "dim2"))
        order[a], order[b] = order[b], order[a]
        return {"dims": order}
    of = {"UnaryDeviceOperation": "op", "BinaryNgDeviceOperation": "binary_op_type"}.get(native_name(name))
    return arguments if of is None else {of: name.rstrip("_").upper(), **arguments}


def _text(value: Any) -> str:
    if value is None:
        return "std::nullopt"
    if isinstance(value, NativeEnum):
        return value.cpp_name
    if isinstance(value, list | tuple):
        return f"SmallVector([{', '.join(map(_text, value))}])"
    return value if isinstance(value, str) else repr(value)


def _in_capitals(name: str) -> str:
    return "".join(part.capitalize() for part in name.rstrip("_").split("_"))
