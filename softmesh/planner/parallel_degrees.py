"""Parallel degrees of a plan along each axis of its mesh, in the words of hand-made splits: data, tensor, expert.

Along an axis it is what most of the seconds of matrix products and attention are split by.
"""

from __future__ import annotations

from dataclasses import dataclass

from softmesh.kinds import Kind
from softmesh.placement.placements import Placement, Shard
from softmesh.planner.layout_plan import LayoutPlan
from softmesh.planner.op_graph import GraphNode, GraphValue, Role
from softmesh.planner.op_strategies import OpStrategy

DATA, TENSOR, SEQUENCE, EXPERT, FULLY_SHARDED = "data", "tensor", "sequence", "expert", "fully sharded data"
COPIES = "copies"  # every device of the axis does the same
_HEAVY = (Kind.PRODUCT, Kind.ATTENTION, Kind.CONVOLUTION, Kind.ROUTING)


@dataclass(frozen=True)
class AxisUse:
    axis: int
    devices: int
    kind: str
    share: float  # of the seconds of heavy ops


def axis_uses(plan: LayoutPlan) -> tuple[AxisUse, ...]:
    """For each axis of several devices."""
    return tuple(_use(plan, axis, n) for axis, n in enumerate(plan.mesh_shape) if n > 1)


def degrees(plan: LayoutPlan) -> dict[str, int]:
    """How many devices share the work in each way; of a pipeline, its stages."""
    found: dict[str, int] = {}
    for use in axis_uses(plan):
        found[use.kind] = found.get(use.kind, 1) * use.devices
    if plan.stages:
        found["pipeline"] = len(plan.stages)
    return found


def _use(plan: LayoutPlan, axis: int, devices: int) -> AxisUse:
    seconds: dict[str, float] = {}
    for node, own, chosen in zip(
        plan.problem.graph.nodes, plan.problem.strategies, plan.assignment.strategies, strict=True
    ):
        if node.kind in _HEAVY:
            kind = _kind(plan, node, own[chosen], axis)
            seconds[kind] = seconds.get(kind, 0.0) + own[chosen].total_seconds
    total = sum(seconds.values())
    if not total:
        return AxisUse(axis, devices, COPIES, 0.0)
    kind = max(seconds, key=lambda one: seconds[one])
    return AxisUse(axis, devices, kind, seconds[kind] / total)


def _kind(plan: LayoutPlan, node: GraphNode, strategy: OpStrategy, axis: int) -> str:
    graph = plan.problem.graph
    words = [layout[axis] for layout in strategy.needs]
    if not any(isinstance(word, Shard) for word in words):
        return COPIES
    if node.kind is Kind.ATTENTION:
        return _of_attention(node, words)
    weights: list[tuple[GraphValue, Placement]] = []
    others: list[tuple[GraphValue, Placement]] = []
    for number, word in zip(node.operands, words, strict=True):
        value = graph.values[number]
        is_weight = value.role in (Role.WEIGHT, Role.OPTIMIZER_STATE)
        (weights if is_weight else others).append((value, word))
    if not weights:
        return TENSOR if all(isinstance(word, Shard) for _, word in others) else _of_rows(*others[0])
    for value, word in weights:
        if isinstance(word, Shard):
            return EXPERT if word.dim < len(value.shape) - 2 else TENSOR
    if any(isinstance(plan.layout(value.name)[axis], Shard) for value, _ in weights):
        return FULLY_SHARDED
    return _of_rows(*next((value, word) for value, word in others if isinstance(word, Shard)))


def _of_attention(node: GraphNode, words: list[Placement]) -> str:
    """q [batch, heads, rows, width]; of a decode step [1, users, heads, width]."""
    word = words[0]
    if not isinstance(word, Shard):
        return SEQUENCE
    of_dims = {0: DATA, 1: DATA, 2: TENSOR} if "decode" in node.op else {0: DATA, 1: TENSOR, 2: SEQUENCE}
    return of_dims.get(word.dim, TENSOR)


def _of_rows(value: GraphValue, word: Placement) -> str:
    """Rows of several prompts or users are data; those of one are its sequence, where its leading dims say so."""
    if isinstance(word, Shard) and word.dim == len(value.shape) - 1:
        return TENSOR
    if isinstance(word, Shard) and word.dim == len(value.shape) - 2 and len(value.shape) > 2:
        return SEQUENCE
    return DATA
