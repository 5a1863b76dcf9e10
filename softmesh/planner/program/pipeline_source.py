"""A plan of several stages as a Python file: a function for each, on a submesh of its own, and sockets between them."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass

from softmesh.distributed.plan_table import size, time
from softmesh.errors import NotModelled
from softmesh.planner.chosen_layout import ChosenLayout
from softmesh.planner.goal import Goal, Stage
from softmesh.planner.layer_spans import layer_spans
from softmesh.planner.op_graph import GraphValue, OpGraph
from softmesh.planner.program.file_opening import CLOSING, function_blocks, import_lines, is_shared, opening_lines
from softmesh.planner.program.file_parts import PIPELINE, PROGRAM, SPREADING, random_values
from softmesh.planner.program.function_text import FunctionText, LayerFunction, write_parts
from softmesh.planner.program.layer_functions import Block, blocks_of, parts_of
from softmesh.planner.program.plan_calls import Part, PlanCalls, calls_of
from softmesh.planner.program.python_text import call_lines, literal, precision_lines
from softmesh.planner.program.tensor_tables import SAID_OF_TENSORS, output_dims, tensor_rows


@dataclass(frozen=True)
class _StageText:
    """What a file says of one stage: `handed` values go on to the next one, `left` ones to the caller."""

    stage: Stage
    handed: tuple[int, ...]
    left: tuple[int, ...]
    calls: PlanCalls

    def leaves(self, graph: OpGraph) -> list[GraphValue]:
        return [graph.values[number] for symbol, number in self.calls.leaves.items() if symbol in self.calls.used]


def pipeline_source(plan: ChosenLayout) -> str:
    graph, layers = plan.problem.graph, layer_spans(plan.problem)
    stages = _stage_texts(plan)
    functions: list[LayerFunction] = []
    blocks_by_stage = [blocks_of(one.calls, layers) for one in stages]
    alike = _repeated(blocks_by_stage)
    bodies = []
    for at, one in enumerate(stages):
        text = FunctionText(one.calls, graph)
        parameters = [text.names.free(symbol.hint) for symbol in one.calls.given]
        text.told.update(zip(one.calls.given, parameters, strict=True))
        parts = parts_of(blocks_by_stage[at], one.calls, alike)
        write_parts(text, parts, one.calls, graph, functions, alike)
        bodies.append("\n".join(_stage_lines(at, one, parameters, text)))
    blocks = ["\n".join(_heading(plan)), "\n".join(_tables(plan, stages)), SPREADING.rstrip()]
    blocks += function_blocks(functions, has_masks=any(one.calls.masks for one in stages))
    names = ", ".join(f"stage_{at}" for at in range(len(stages)))
    blocks += [*bodies, f"STAGES = ({names})"]
    opening = "\n".join(opening_lines(plan, "whole_mesh", "WHOLE"))
    blocks.append(PIPELINE.format(opening=opening, closing=CLOSING).rstrip())
    every = "[row for table in TENSORS for row in table.items()]"
    blocks += [random_values(every, has_state=False), PROGRAM.rstrip()]
    return "\n\n\n".join(blocks) + "\n"


def _repeated(stages: Sequence[Sequence[Block]]) -> dict[Hashable, list[Block]]:
    """Those of all stages, by their form; what is there once is no layer."""
    found: dict[Hashable, list[Block]] = {}
    for blocks in stages:
        for block in blocks:
            found.setdefault(block.form, []).append(block)
    return {form: blocks for form, blocks in found.items() if len(blocks) > 1}


def _stage_texts(plan: ChosenLayout) -> list[_StageText]:
    graph, layers = plan.problem.graph, layer_spans(plan.problem)
    _check_caches(plan)
    found: list[_StageText] = []
    given: tuple[int, ...] = ()
    for stage in plan.stages:
        is_last = stage is plan.stages[-1]
        handed = tuple(
            number for number, maker in graph.makers.items() if maker < stage.end and _is_read(graph, number, stage.end)
        )
        left = tuple(
            n for n in graph.outputs if (stage.first <= graph.makers[n] < stage.end if n in graph.makers else is_last)
        )
        part = Part(stage.first, stage.end, given, (*handed, *left))
        calls = calls_of(plan, lambda move: is_shared(move, graph, layers), part)
        found.append(_StageText(stage, handed, left, calls))
        given = handed
    return found


def _is_read(graph: OpGraph, number: int, first: int) -> bool:
    """Whether some node from this one on reads it."""
    return any(node >= first for node, _ in graph.consumers[number])


def _check_caches(plan: ChosenLayout) -> None:
    """What is changed in place is there once."""
    graph = plan.problem.graph
    changed = {graph.root(value.number) for value in graph.values if value.version_of is not None}
    stages: dict[int, set[int]] = {number: set() for number in changed}
    for node in graph.nodes:
        for root in changed & {graph.root(value) for value in node.operands}:
            stages[root] |= {at for at, stage in enumerate(plan.stages) if stage.first <= node.number < stage.end}
    for root, own in stages.items():
        if len(own) > 1 and root not in graph.makers:
            raise NotModelled(
                f"softmesh.plan: {graph.values[root].name} is changed in place, and stages {min(own)} and {max(own)} "
                "of the pipeline use it, which have no memory in common: give each layer one of its own."
            )


def _stage_lines(at: int, one: _StageText, parameters: Sequence[str], text: FunctionText) -> Iterator[str]:
    yield from call_lines(f"def stage_{at}", ["mesh", "t", *parameters], ":", 0)
    took = time(one.stage.seconds)
    sends = f", {time(one.stage.send_seconds)} to hand it on" if one.handed else ""
    held = size(one.stage.memory)
    yield f'    """{took}{sends}; {held} on each device. Returns what the next one gets, and outputs."""'
    yield from text.lines
    told = [text.told[symbol] for symbol in one.calls.outputs]
    handed, left = told[: len(one.handed)], told[len(one.handed) :]
    yield f"    return [{', '.join(handed)}], [{', '.join(left)}]"


def _heading(plan: ChosenLayout) -> Iterator[str]:
    if plan.opening is None:
        raise NotModelled(
            f"softmesh.plan: a pipeline of {len(plan.stages)} stages is opened as a mesh of a system, and this plan is "
            'for a mesh that is open: plan for the system by its name, softmesh.plan(function, "T3000", stages=2).'
        )
    mesh, whole = ("x".join(map(str, shape)) for shape in (plan.mesh_shape, plan.opening.shape))
    on = f"{len(plan.stages)} stages of {mesh} on a {whole} mesh of {plan.opening.system}"
    yield f'"""A model in {on}, laid out by softmesh.plan.'
    yield ""
    pace = "for a call" if plan.goal is Goal.DECODE else "from one call to the next"
    held = f"{size(plan.memory)} of {size(plan.problem.memory_bytes)} on each device"
    yield f"Predicted: {time(plan.seconds)} {pace}; {held}."
    yield '"""'
    yield ""
    yield from import_lines(plan.problem.graph)
    yield f"WHOLE = {literal(plan.opening.shape)}"
    yield f"MESH = {literal(plan.mesh_shape)}  # of each stage"
    yield f"ORDER = {literal(_order(plan))}  # the submesh of each stage: next to the one before"
    yield from precision_lines(plan.problem.graph)


def _order(plan: ChosenLayout) -> tuple[int, ...]:
    assert plan.opening is not None
    grid = tuple(n // own for n, own in zip(plan.opening.shape, plan.mesh_shape, strict=True))
    return tuple(_there_and_back(grid))


def _there_and_back(grid: tuple[int, ...]) -> list[int]:
    """The numbers of a grid's places, row by row, every second row from its end."""
    if not grid:
        return [0]
    row = _there_and_back(grid[1:])
    return [n * len(row) + at for n in range(grid[0]) for at in (row[::-1] if n % 2 else row)]


def _tables(plan: ChosenLayout, stages: Sequence[_StageText]) -> Iterator[str]:
    graph = plan.problem.graph
    yield f"{SAID_OF_TENSORS} Of each stage:"
    yield "TENSORS = ("
    for one in stages:
        yield "    {"
        yield from tensor_rows(plan, one.leaves(graph), 8)
        yield "    },"
    yield ")"
    outputs = []
    for number in graph.outputs:
        at = next(at for at, one in enumerate(stages) if number in one.left)
        outputs.append((at, output_dims(plan, number)))
    yield ""
    yield "# Of each output: the stage that makes it, and the dim that is shared along each axis."
    yield f"OUTPUTS = {literal(tuple(outputs))}"
