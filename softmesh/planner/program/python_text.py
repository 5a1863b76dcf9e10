"""Python source: values as a program writes them, names that are free, and lines that are not too long."""

from __future__ import annotations

import builtins
import keyword
from enum import Enum
from typing import Any

from softmesh.hardware.enums import DataType, Layout
from softmesh.hardware.memory_config import DRAM_MEMORY_CONFIG, L1_MEMORY_CONFIG
from softmesh.planner.program.symbols import Extent

WIDTH = 110
_MEMORY = {"DRAM_MEMORY_CONFIG": DRAM_MEMORY_CONFIG, "L1_MEMORY_CONFIG": L1_MEMORY_CONFIG}


class Unwritable(Exception):
    """A value that no source stands for."""


def literal(value: Any) -> str:
    if isinstance(value, Extent):
        return f"{value.whole} // {' // '.join(f'mesh.shape[{axis}]' for axis in value.axes)}"
    if isinstance(value, DataType):
        return f"ttnn.{value.name.lower()}"
    if isinstance(value, Layout):
        return f"ttnn.{value.name}_LAYOUT"
    for name, known in _MEMORY.items():
        if value == known:
            return f"ttnn.{name}"
    if isinstance(value, Enum):
        return f"ttnn.{type(value).__name__}.{value.name}"
    if value is None or isinstance(value, bool | int | str):
        return quoted(value) if isinstance(value, str) else repr(value)
    if isinstance(value, float):
        return f'float("{value}")' if value != value or value in (float("inf"), -float("inf")) else repr(value)
    if isinstance(value, tuple | list):
        items = ", ".join(map(literal, value))
        if isinstance(value, list):
            return f"[{items}]"
        return f"({items},)" if len(value) == 1 else f"({items})"
    raise Unwritable(f"{value!r}")


def quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'


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
