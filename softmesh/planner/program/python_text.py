"""Python source: values as a program writes them, names that are free, and lines that are not too long."""

from __future__ import annotations

import builtins
import keyword
import math
from collections.abc import Callable
from dataclasses import fields
from enum import Enum
from typing import Any

from softmesh.cores import CoreGrid
from softmesh.dispatch.entry_point import EntryPoint
from softmesh.hardware.activation import UnaryWithParam
from softmesh.hardware.convolution_configs import Conv2dConfig
from softmesh.hardware.enums import DataType, Layout
from softmesh.hardware.memory_config import DRAM_MEMORY_CONFIG, L1_MEMORY_CONFIG
from softmesh.hardware.program_configs import MathFidelity, ThrottleLevel, WormholeComputeKernelConfig
from softmesh.planner.op_graph import OpGraph
from softmesh.planner.program.symbols import Extent

WIDTH = 110
_MEMORY = {"DRAM_MEMORY_CONFIG": DRAM_MEMORY_CONFIG, "L1_MEMORY_CONFIG": L1_MEMORY_CONFIG}


class Unwritable(Exception):
    """A value that no source stands for."""


def spelled(op: EntryPoint) -> str:
    """Return the name by which a file calls an op: TT-NN's, or that of the module of a user's own."""
    name = op.python_fully_qualified_name
    return f"ttnn.{op.name}" if name.startswith("softmesh.") else name


def literal(value: Any) -> str:
    for name, known in _MEMORY.items():
        if value == known:
            return f"ttnn.{name}"
    write = next((write for kind, write in _WRITTEN.items() if isinstance(value, kind)), None)
    if write is not None:
        return write(value)
    if isinstance(value, Enum):
        return f"ttnn.{type(value).__name__}.{value.name}"
    if value is None or isinstance(value, bool | int):
        return repr(value)
    raise Unwritable(f"{value!r}")


def _extent(value: Extent) -> str:
    return f"{value.whole} // {' // '.join(f'mesh.shape[{axis}]' for axis in value.axes)}"


def _float(value: float) -> str:
    return repr(value) if math.isfinite(value) else f'float("{value}")'


def _tuple(value: tuple[Any, ...]) -> str:
    items = ", ".join(map(literal, value))
    return f"({items},)" if len(value) == 1 else f"({items})"


def precision_lines(graph: OpGraph) -> list[str]:
    """The compute configs that its ops are called with, by the names that `literal` has for them."""
    used = dict.fromkeys(
        value for node in graph.nodes for value in node.bound if isinstance(value, WormholeComputeKernelConfig)
    )
    lines = [line for config in used for line in call_lines(_precision_name(config) + _MADE, _chosen(config), "", 0)]
    return ["", "# How exactly ops compute.", *lines] if lines else []


_MADE = " = ttnn.WormholeComputeKernelConfig"


def _chosen(config: WormholeComputeKernelConfig | Conv2dConfig) -> list[str]:
    given = {field.name: (getattr(config, field.name), field.default) for field in fields(config)}
    return [f"{name}={literal(value)}" for name, (value, usual) in given.items() if value != usual]


def _precision_name(config: WormholeComputeKernelConfig) -> str:
    words = [config.math_fidelity.name.upper() if config.math_fidelity is not MathFidelity.Invalid else "USUAL"]
    words += ["EXACT"] * (not config.math_approx_mode) + ["FP32"] * config.fp32_dest_acc_en
    words += ["PACKER_L1"] * config.packer_l1_acc + ["FULL_SYNC"] * config.dst_full_sync_en
    if config.throttle_level is not ThrottleLevel.NO_THROTTLE:
        words.append(f"THROTTLE_{config.throttle_level.value}")
    return "_".join(words)


def quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'


_WRITTEN: dict[type, Callable[[Any], str]] = {
    Extent: _extent,
    DataType: lambda dtype: f"ttnn.{dtype.name.lower()}",
    Layout: lambda layout: f"ttnn.{layout.name}_LAYOUT",
    UnaryWithParam: lambda one: f"ttnn.UnaryWithParam({', '.join(map(literal, (one.op_type, *one.params)))})",
    WormholeComputeKernelConfig: lambda config: _precision_name(config),
    Conv2dConfig: lambda config: f"ttnn.Conv2dConfig({', '.join(_chosen(config))})",
    CoreGrid: lambda grid: f"ttnn.CoreGrid(x={grid.x}, y={grid.y})",
    str: quoted,
    float: _float,
    tuple: _tuple,
    list: lambda items: f"[{', '.join(map(literal, items))}]",
}


class Names:
    """Of the variables of one function."""

    def __init__(self, *taken: str) -> None:
        self._taken = {*taken, *keyword.kwlist, *dir(builtins), "ttnn", "torch"}

    def free(self, wanted: str) -> str:
        """The name itself, or with a number behind it."""
        name = "".join(c if c.isalnum() or c == "_" else "_" for c in wanted).strip("_") or "tensor"
        name = f"_{name}" if name[0].isdigit() else name
        found, count = name, 2
        while found in self._taken:
            found, count = f"{name}_{count}", count + 1
        self._taken.add(found)
        return found


def call_lines(before: str, arguments: list[str], after: str, indent: int) -> list[str]:
    """`before(arguments)after`, over several lines where it is too long for one."""
    pad = " " * indent
    whole = f"{pad}{before}({', '.join(arguments)}){after}"
    if len(whole) <= WIDTH:
        return [whole]
    return [f"{pad}{before}(", *(f"{pad}    {argument}," for argument in arguments), f"{pad}){after}"]
