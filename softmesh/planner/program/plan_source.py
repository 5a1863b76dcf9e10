"""A plan as a Python file of plain TT-NN calls: where each tensor lies, the ops, and the collectives between them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby

from softmesh.distributed.layouts import Layout
from softmesh.distributed.plan_table import size, time
from softmesh.errors import NotModelled
from softmesh.fabric import settings
from softmesh.hardware import FabricConfig
from softmesh.placement.placements import Shard
from softmesh.planner.chosen_layout import ChosenLayout
from softmesh.planner.placement_problem import Move
from softmesh.planner.program.file_parts import MASKS, RUNNING, SPREADING
from softmesh.planner.program.function_text import FunctionText, write_parts
from softmesh.planner.program.layer_functions import parts_of
from softmesh.planner.program.layer_spans import layer_spans
from softmesh.planner.program.leaf_patterns import counted_name, pattern_of
from softmesh.planner.program.plan_calls import calls_of
from softmesh.planner.program.python_text import call_lines, literal, quoted


def source_of(plan: ChosenLayout) -> str:
    """Of a plan without a pipeline."""
    if len(plan.stages) > 1:
        raise NotModelled(
            f"softmesh.plan: this plan is a pipeline of {len(plan.stages)} stages, and a file is written for one mesh: "
            "plan with stages=1, or take the stages' layouts from the plan."
        )
    graph = plan.problem.graph
    layers = layer_spans(plan.problem)
    calls = calls_of(plan, lambda move: _is_shared(move, layers))
    text = FunctionText(calls, graph)
    functions = write_parts(text, parts_of(calls, layers), calls, graph)
    outputs = ", ".join(text.told[symbol] for symbol in calls.outputs)
    text.lines.append(f"    return [{outputs}]")
    blocks = ["\n".join(_heading(plan)), "\n".join(_tables(plan)), SPREADING.rstrip()]
    blocks += ["\n".join(table) for function in functions if (table := function.table())]
    blocks += [MASKS.rstrip()] if calls.masks else []
    blocks += ["\n".join(function.definition()) for function in functions]
    blocks.append(
        "\n".join(["def forward(mesh, t):", '    """All of it; `t` has the tensors by name."""', *text.lines])
    )
    blocks.append(_running(plan).rstrip())
    return "\n\n\n".join(blocks) + "\n"


def _is_shared(move: Move, layers: Sequence[tuple[int, int]]) -> bool:
    """Whether several layers read what is moved."""
    return len({at for node in move.consumers for at, (a, b) in enumerate(layers) if a <= node < b}) > 1


def _heading(plan: ChosenLayout) -> Iterator[str]:
    mesh = "x".join(map(str, plan.mesh_shape))
    system = "" if plan.opening is None or plan.opening.system is None else f" of {plan.opening.system}"
    yield f'"""A model on a {mesh} mesh{system}, laid out by softmesh.plan.'
    yield ""
    moving = plan.cost.move_seconds
    yield f"Predicted: {time(plan.seconds)} for a call, of that {time(moving)} to bring values where they are needed;"
    yield f"{size(plan.memory)} of {size(plan.problem.memory_bytes)} on each device."
    yield '"""'
    yield ""
    yield from ("import sys", "", "import safetensors.torch", "import torch", "", "import ttnn", "")
    yield f"MESH = {literal(plan.mesh_shape)}"


def _tables(plan: ChosenLayout) -> Iterator[str]:
    graph = plan.problem.graph
    yield "# Each tensor: its shape, dtype and layout, and the dim that is shared along each axis of the mesh."
    yield "TENSORS = {"
    facts = []
    for leaf in graph.leaves:
        home = plan.home(leaf.name)
        dims = _dims(plan, leaf.name, home.layout)
        facts.append((leaf.name, literal((leaf.shape, home.dtype, leaf.layout, dims))))
    for (_, said), group in groupby(sorted_by_form(facts), key=lambda fact: (counted_name(fact[0]), fact[1])):
        yield from _entries([name for name, _ in group], said)
    yield "}"
    outputs = []
    for number in graph.outputs:
        outputs.append(_dims(plan, graph.values[number].name, plan.left(number)))
    yield ""
    yield "# What `forward` returns: the dim that is shared along each axis."
    yield f"OUTPUTS = {literal(tuple(outputs))}"


def sorted_by_form(facts: list[tuple[str, str]]) -> list[tuple[str, str]]:
    """Names that count follow each other, at the place of the first."""
    places: dict[tuple[str, str], int] = {}
    for name, said in facts:
        places.setdefault((counted_name(name), said), len(places))
    return sorted(facts, key=lambda fact: places[counted_name(fact[0]), fact[1]])


def _entries(names: list[str], said: str) -> Iterator[str]:
    pattern = pattern_of(names)
    if pattern is None:
        for name in names:
            yield f"    {quoted(name)}: {said},"
        return
    span = f"range({pattern.first}, {pattern.first + len(names)})" if pattern.first else f"range({len(names)})"
    yield f"    **{{{pattern.f_string()}: {said} for i in {span}}},"


def _dims(plan: ChosenLayout, name: str, layout: Layout) -> tuple[int | None, ...]:
    """What `mapper` takes; TT-NN cuts a dim along one axis or along all."""
    dims = tuple(word.dim if isinstance(word, Shard) else None for word in layout)
    shared = [dim for dim in dims if dim is not None]
    several = sum(n > 1 for n in plan.mesh_shape)
    if len(set(shared)) < len(shared) and not (len(set(shared)) == 1 and len(shared) == several):
        raise NotModelled(
            f"softmesh.plan: {name} is split along one dim by some of the axes of {plan.mesh_shape}, which TT-NN's "
            "mappers do along one axis or along all: pin its placement, or plan for a mesh of two axes."
        )
    return dims


def _running(plan: ChosenLayout) -> str:
    fabric = plan.opening.fabric if plan.opening is not None else settings.active().config
    several = any(n > 1 for n in plan.mesh_shape)
    if several and fabric == FabricConfig.DISABLED:
        fabric = FabricConfig.FABRIC_1D
    opening = [f"    ttnn.set_fabric_config(ttnn.FabricConfig.{fabric.name})"] if several else []
    opening += call_lines("mesh = ttnn.open_mesh_device", ["ttnn.MeshShape(*MESH)"], "", 4)
    closing = "        ttnn.set_fabric_config(ttnn.FabricConfig.DISABLED)\n" if several else ""
    return RUNNING.format(opening="\n".join(opening), closing=closing)
