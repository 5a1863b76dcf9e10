"""What ops of softmesh's own could save, which a plan of public ops of TT-NN has to do without: rings of keys, say."""

from __future__ import annotations

from softmesh.planner.chosen_layout import ChosenLayout
from softmesh.planner.op_strategies import OPS_WITH_OWN_SPLITS, StrategyFinder
from softmesh.value_free import without_values


def share_own_ops_could_save(plan: ChosenLayout) -> float:
    """Of the time of all ops and moves, at most: each op at its fastest, and nothing sent to have it so."""
    problem, saved = plan.problem, 0.0
    if not plan.freedom.plain_only or not plan.cost.seconds:
        return 0.0
    finder = StrategyFinder(problem.mesh_shape, problem.chip, problem.lines)
    with without_values():
        for node, chosen in zip(problem.graph.nodes, plan.strategies, strict=True):
            if node.op in OPS_WITH_OWN_SPLITS:
                every = finder.strategies(problem.graph, node, l1_limits=problem.l1_limits)
                own = min((one.total_seconds for one in every if not one.is_plain), default=chosen.total_seconds)
                saved += max(0.0, chosen.total_seconds - own)
    return saved / plan.cost.seconds
