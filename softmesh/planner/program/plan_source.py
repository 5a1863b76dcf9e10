"""A plan as a Python file of plain TT-NN calls: where each tensor lies, the ops, and the collectives between them."""

from __future__ import annotations

from collections.abc import Iterator

from softmesh.distributed.plan_table import size, time
from softmesh.planner.chosen_layout import ChosenLayout
from softmesh.planner.layer_spans import layer_spans
from softmesh.planner.op_graph import GraphValue, OpGraph, Role
from softmesh.planner.program.file_opening import (
    CLOSING,
    function_blocks,
    import_lines,
    is_shared,
    needs_fabric,
    opening_lines,
)
from softmesh.planner.program.file_parts import JOINING, PROGRAM, RUNNING, SPREADING, random_values
from softmesh.planner.program.function_text import FunctionText, LayerFunction, write_parts
from softmesh.planner.program.layer_functions import blocks_of, parts_of
from softmesh.planner.program.pipeline_source import pipeline_source
from softmesh.planner.program.plan_calls import calls_of
from softmesh.planner.program.python_text import literal, precision_lines
from softmesh.planner.program.tensor_tables import SAID_OF_TENSORS, joined_rows, output_dims, tensor_rows


def source_of(plan: ChosenLayout) -> str:
    return pipeline_source(plan) if len(plan.stages) > 1 else _mesh_source(plan)


def _mesh_source(plan: ChosenLayout) -> str:
    """Of a plan without a pipeline."""
    graph = plan.problem.graph
    layers = layer_spans(plan.problem)
    calls = calls_of(plan, lambda move: is_shared(move, graph, layers))
    text, functions = FunctionText(calls, graph), list[LayerFunction]()
    write_parts(text, parts_of(blocks_of(calls, layers), calls), calls, graph, functions, {})
    outputs = ", ".join(text.told[symbol] for symbol in calls.outputs)
    text.lines.append(f"    return [{outputs}]")
    blocks = ["\n".join(_heading(plan)), "\n".join(_tables(plan)), SPREADING.rstrip()]
    blocks += function_blocks(functions, has_masks=bool(calls.masks))
    blocks.append(
        "\n".join(["def forward(mesh, t):", '    """All of it; `t` has the tensors by name."""', *text.lines])
    )
    opening, closing = opening_lines(plan, "mesh", "MESH"), CLOSING if needs_fabric(plan) else ""
    tensors, has_joined = "placed(mesh, values, TENSORS)", any(one.joined is not None for one in plan.strategies)
    if has_joined:
        blocks.append(JOINING.rstrip())
        tensors = f"joined({tensors})"
    blocks.append(RUNNING.format(opening="\n".join(opening), closing=closing, tensors=tensors).rstrip())
    blocks += [random_values("TENSORS.items()", has_state=bool(_remembered(graph))), PROGRAM.rstrip()]
    return "\n\n\n".join(blocks) + "\n"


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
    yield from import_lines(plan.problem.graph)
    yield f"MESH = {literal(plan.mesh_shape)}"
    yield from precision_lines(plan.problem.graph)


def _remembered(graph: OpGraph) -> list[GraphValue]:
    return [leaf for leaf in graph.leaves if leaf.role is Role.OPTIMIZER_STATE]


def _tables(plan: ChosenLayout) -> Iterator[str]:
    graph = plan.problem.graph
    yield SAID_OF_TENSORS
    yield "TENSORS = {"
    remembered = _remembered(graph)
    yield from tensor_rows(plan, (leaf for leaf in graph.leaves if leaf not in remembered))
    yield "}"
    if remembered:
        yield ""
        yield "# What an optimizer remembers of them, zeros before its first step but for a master in more digits."
        yield "STATE = {"
        yield from tensor_rows(plan, remembered)
        yield "}"
        yield "TENSORS |= STATE"
    if joined := list(joined_rows(plan)):
        yield from ("", "# Weights that are one: each device has its pieces of them side by side.", "JOINED = {")
        yield from (*joined, "}")
    yield ""
    yield "# What `forward` returns: the dim that is shared along each axis."
    yield f"OUTPUTS = {literal(tuple(output_dims(plan, number) for number in graph.outputs))}"
