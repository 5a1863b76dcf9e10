"""What the files of all plans have: imports, the mesh that is opened under a fabric, and the functions of layers."""

from __future__ import annotations

import math
from collections.abc import Sequence

from softmesh.dispatch.operation import OPERATIONS
from softmesh.fabric import settings
from softmesh.hardware import FabricConfig
from softmesh.planner.chosen_layout import ChosenLayout
from softmesh.planner.op_graph import OpGraph
from softmesh.planner.placement_problem import Move
from softmesh.planner.program.file_parts import MASKS
from softmesh.planner.program.function_text import LayerFunction
from softmesh.planner.program.python_text import call_lines

_PACKAGES = ("import sys", "", "import safetensors.torch", "import torch", "", "import ttnn")
CLOSING = "        ttnn.set_fabric_config(ttnn.FabricConfig.DISABLED)\n"


def import_lines(graph: OpGraph) -> list[str]:
    """Import packages, and the modules of ops that users have defined."""
    modules = {OPERATIONS[node.op].definition.namespace for node in graph.nodes} - {"ttnn", "softmesh"}
    return [*_PACKAGES, *(f"import {module}" for module in sorted(modules)), ""]


def is_shared(move: Move, graph: OpGraph, layers: Sequence[tuple[int, int]]) -> bool:
    """Whether several layers read what is moved, and none of them makes it."""
    readers = {at for node in move.consumers for at, (a, b) in enumerate(layers) if a <= node < b}
    maker = graph.makers.get(move.value)
    return len(readers) > 1 and (maker is None or not any(a <= maker < b for a, b in layers))


def function_blocks(functions: Sequence[LayerFunction], *, has_masks: bool) -> list[str]:
    blocks = ["\n".join(table) for function in functions if (table := function.table())]
    blocks += [MASKS.rstrip()] if has_masks else []
    return blocks + ["\n".join(function.definition()) for function in functions]


def needs_fabric(plan: ChosenLayout) -> bool:
    return math.prod(plan.mesh_shape) > 1 or len(plan.stages) > 1


def opening_lines(plan: ChosenLayout, name: str, shape: str) -> list[str]:
    """`name` and `shape`: the variables that are the mesh, and have its shape."""
    fabric = plan.opening.fabric if plan.opening is not None else settings.active().config
    if needs_fabric(plan) and fabric == FabricConfig.DISABLED:
        fabric = FabricConfig.FABRIC_1D
    lines = [f"    ttnn.set_fabric_config(ttnn.FabricConfig.{fabric.name})"] if needs_fabric(plan) else []
    arguments = [f"ttnn.MeshShape(*{shape})"]
    if plan.opening is not None and plan.opening.offset is not None:  # others have what lies before it
        arguments.append(f"offset=ttnn.MeshCoordinate({', '.join(map(str, plan.opening.offset))})")
    return lines + call_lines(f"{name} = ttnn.open_mesh_device", arguments, "", 4)
