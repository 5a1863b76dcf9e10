"""Alternatives to a plan, why they lost, and what one more link, chip or GiB would change; all searched, under a limit.

A runner-up is the best plan in which one kind of tensor lies otherwise, and ops up to two steps from those that read it
are split as suits that; what is further away stays as it is planned.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from softmesh.cost.link_costs import Line
from softmesh.distributed.plan_table import size as size_text
from softmesh.distributed.plan_table import time as time_text
from softmesh.errors import MeshError
from softmesh.planner.chosen_layout import ChosenLayout
from softmesh.planner.explanation.bottlenecks import bottlenecks_of
from softmesh.planner.explanation.compared_words import lost_words, others
from softmesh.planner.explanation.plan_rows import placed
from softmesh.planner.explanation.planned_anew import Anew, planned_anew, priced_again
from softmesh.planner.op_graph import OpGraph, Role
from softmesh.planner.op_strategies import OPS_WITH_OWN_SPLITS, OpStrategy
from softmesh.planner.placement_problem import Home, PlacementProblem
from softmesh.planner.problem_setup import Freedom, problem_of
from softmesh.planner.program.leaf_patterns import counted_name

_LEAST = 1.0  # seconds that a search gets
_MOST_TRIED = 12
_GIB = 1 << 30
_HOPS = 2
_SEEN = 5e-8  # seconds: less is not seen in a text
_TOLD = 0.005  # of a plan's time: less than that is no change


class Alternative(NamedTuple):
    """`seconds` is None where nothing of the kind fits, or was found in time."""

    what: str
    seconds: float | None
    reason: str


class Change(NamedTuple):
    """What the plan's time would be with more of something; None where that was not found in time."""

    what: str
    seconds: float | None
    said: str


# -- what lost -------------------------------------------------------------------------------------


def runners_up(plan: ChosenLayout, count: int, time_limit: float) -> list[Alternative]:
    """The best first. Those that fit nowhere come last."""
    until = time.monotonic() + time_limit
    found = {one.what: one for one in _other_shapes(plan)}
    groups = _groups(plan)
    for at, (name, numbers) in enumerate(groups):
        left = until - time.monotonic()
        if left < _LEAST and at:
            break
        problem = _without_home(plan, numbers)
        if problem is not None:
            anew = planned_anew(plan, problem, left / (len(groups) - at))
            one = _alternative(plan, name, numbers, anew)
            if anew.plan is None or anew.tells:
                found.setdefault(one.what, one)
    ranked = sorted(found.values(), key=lambda one: math.inf if one.seconds is None else one.seconds)
    return ranked[:count]


def _other_shapes(plan: ChosenLayout) -> Iterator[Alternative]:
    for one in others(plan):
        shape = "x".join(map(str, one.shape))
        stages = f" in {one.stages} stages" if one.stages > 1 else ""
        yield Alternative(
            f"a {shape} mesh{stages}", one.seconds, lost_words(plan, one) if one.seconds is None else one.why
        )


def _groups(plan: ChosenLayout) -> list[tuple[str, list[int]]]:
    """Kinds of tensors, the largest first."""
    found: dict[str, list[int]] = {}
    sizes: dict[str, int] = {}
    for leaf in plan.problem.graph.leaves:
        if len(plan.problem.homes[leaf.number]) > 1 and leaf.role is not Role.CONSTANT:
            name = counted_name(leaf.name)
            found.setdefault(name, []).append(leaf.number)
            sizes[name] = sizes.get(name, 0) + math.prod(leaf.shape)
    return sorted(found.items(), key=lambda item: -sizes[item[0]])[:_MOST_TRIED]


def _without_home(plan: ChosenLayout, numbers: Sequence[int]) -> PlacementProblem | None:
    """The same problem, in which these tensors do not lie where the plan has them."""
    problem = plan.problem
    nodes = _around(problem.graph, numbers)
    open_leaves = {value for node in nodes for value in problem.graph.nodes[node].operands}
    open_leaves |= {value for node in nodes for value in problem.graph.nodes[node].results}
    homes: dict[int, tuple[Home, ...]] = {}
    known: dict[tuple[Home, ...], tuple[Home, ...]] = {}
    for number, own in problem.homes.items():
        chosen = own[plan.assignment.homes[number]]
        if number in numbers:
            left = tuple(home for home in own if home.layout != chosen.layout)
        else:
            left = own if number in open_leaves else (chosen,)
        if not left:
            return None
        homes[number] = known.setdefault(left, left)
    fixed: dict[tuple[int, int], tuple[OpStrategy, ...]] = {}  # one object for equal choices
    strategies = tuple(
        own if node in nodes else fixed.setdefault((id(own), at), (own[at],))
        for node, (own, at) in enumerate(zip(problem.strategies, plan.assignment.strategies, strict=True))
    )
    return replace(problem, homes=homes, strategies=strategies)


def _around(graph: OpGraph, numbers: Sequence[int]) -> set[int]:
    """The nodes that read these values, and those a few steps from them."""
    nodes = {node for number in numbers for node, _ in graph.consumers[number]}
    for _ in range(_HOPS):
        values = {v for node in nodes for v in (*graph.nodes[node].operands, *graph.nodes[node].results)}
        nodes |= {node for value in values if value in graph.makers for node, _ in graph.consumers[value]}
        nodes |= {graph.makers[value] for value in values if value in graph.makers}
    return nodes


def _alternative(plan: ChosenLayout, name: str, numbers: Sequence[int], anew: Anew) -> Alternative:
    problem, other = plan.problem, anew.plan
    if other is None:
        chosen = placed(problem.given(plan.assignment, numbers[0]).layout, plan.mesh_shape)
        why = "nothing fits the memory" if anew.bound == math.inf else "nothing was found that fits"
        return Alternative(f"{name} otherwise than {chosen}", None, why)
    return Alternative(_difference(plan, other), other.seconds, _reason(plan, other))


def _difference(plan: ChosenLayout, other: ChosenLayout) -> str:
    """The tensors that lie otherwise, those that lie alike together."""
    mine, theirs = _layouts(plan), _layouts(other)
    by_place: dict[str, list[str]] = {}
    for name, place in theirs.items():
        if mine.get(name) != place:
            by_place.setdefault(place, []).append(name)
    said = []
    for place, names in by_place.items():
        shown = ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
        said.append(f"{shown}: {place}")
    return "; ".join(said[:2]) + (f"; and {len(said) - 2} other changes" if len(said) > 2 else "")


def _layouts(plan: ChosenLayout) -> Mapping[str, str]:
    problem = plan.problem
    return {
        counted_name(leaf.name): placed(problem.given(plan.assignment, leaf.number).layout, plan.mesh_shape)
        for leaf in problem.graph.leaves
    }


def _reason(plan: ChosenLayout, other: ChosenLayout) -> str:
    """Where most of the difference lies."""
    if other.seconds <= plan.seconds:
        return "as fast, with more launches"
    mine = {part.what: part.seconds for part in bottlenecks_of(plan).parts}
    theirs = {part.what: part.seconds for part in bottlenecks_of(other).parts}
    what = max(theirs, key=lambda name: theirs[name] - mine.get(name, 0.0))
    more = theirs[what] - mine.get(what, 0.0)
    held = other.cost.peak - plan.cost.peak
    memory = f", and {size_text(held)} more on each device" if held > plan.cost.peak // 10 else ""
    return (f"{what.partition(':')[0]}: {time_text(more)} more" if more > _SEEN else "hardly longer") + memory


# -- what more would change ------------------------------------------------------------------------


class _Changed(NamedTuple):
    """`said`: why there is no problem to be solved, or why the change of it may change nothing."""

    what: str
    problem: PlacementProblem | None
    said: str = ""


def one_more(plan: ChosenLayout, time_limit: float) -> list[Change]:
    """A link along each axis that is used, a GiB on each device, twice the chips, and ops of softmesh's own."""
    until, found = time.monotonic() + time_limit, list[Change]()
    changes = [*_more_links(plan), _more_memory(plan), _more_chips(plan), *_own_ops(plan)]
    for at, one in enumerate(changes):
        if one.problem is None:
            found.append(Change(one.what, None, one.said))
            continue
        anew = planned_anew(plan, one.problem, (until - time.monotonic()) / (len(changes) - at))
        found.append(_change(plan, one, anew))
    return found


def _more_links(plan: ChosenLayout) -> Iterator[_Changed]:
    """Along each axis that is used; stages of a pipeline are joined along any."""
    problem = plan.problem
    used = sorted({part.axis for part in bottlenecks_of(plan).parts if part.axis is not None})
    for axis in used:
        lines = tuple(_with_a_link(line) if at == axis else line for at, line in enumerate(problem.lines))
        yield _Changed(f"one more link along axis {axis}", replace(problem, lines=lines))
    if plan.stages:
        lines = tuple(map(_with_a_link, problem.lines))
        yield _Changed("one more link along each axis and between stages", replace(problem, lines=lines))
    elif not used:
        yield _Changed("one more link", None, "changes nothing: nothing is sent")


def _with_a_link(line: Line) -> Line:
    return line._replace(links=line.links + 1)


def _more_memory(plan: ChosenLayout) -> _Changed:
    room = plan.problem.memory_bytes
    more = replace(plan.problem, memory_bytes=room + _GIB)
    return _Changed("one more GiB on each device", more, f"{size_text(plan.memory)} of {size_text(room)} are used")


def _more_chips(plan: ChosenLayout) -> _Changed:
    """Twice as many along the longest axis, of each stage where there are several."""
    problem, mesh = plan.problem, plan.mesh_shape
    axis = max(range(len(mesh)), key=lambda at: (mesh[at], at))
    line = problem.lines[axis]
    shape = (*mesh[:axis], 2 * mesh[axis], *mesh[axis + 1 :])
    longer = Line(line.chip, shape[axis], max(line.links, 1), line.is_ring)
    lines = (*problem.lines[:axis], longer, *problem.lines[axis + 1 :])
    what = f"twice the chips, as a {'x'.join(map(str, shape))} mesh" + (" for each stage" if plan.stages else "")
    return _problem_on(plan, what, lines, plan.freedom)


def _own_ops(plan: ChosenLayout) -> Iterator[_Changed]:
    """Where the plan has to do without, and an op could be split by them."""
    if plan.freedom.plain_only and any(node.op in OPS_WITH_OWN_SPLITS for node in plan.problem.graph.nodes):
        free = replace(plan.freedom, plain_only=False)
        yield _problem_on(plan, "ops of softmesh's own, by --own-ops", plan.problem.lines, free)


def _problem_on(plan: ChosenLayout, what: str, lines: tuple[Line, ...], freedom: Freedom) -> _Changed:
    problem, shape = plan.problem, tuple(line.devices for line in lines)
    try:
        other = problem_of(problem.graph, shape, lines, problem.chip, freedom, stages=max(len(plan.stages), 1))
    except MeshError as error:
        return _Changed(what, None, str(error).removeprefix("softmesh.plan: "))
    return _Changed(what, other)


def _change(plan: ChosenLayout, one: _Changed, anew: Anew) -> Change:
    problem, mine = one.problem, plan.problem
    least = math.inf if anew.plan is None else anew.plan.seconds
    if problem is not None and problem.mesh_shape == mine.mesh_shape:  # the plan as it is can be had, too
        is_same = problem.strategies is mine.strategies
        least = min(least, priced_again(plan, problem).seconds if is_same else plan.seconds)
    saved = 1 - least / plan.seconds if plan.seconds else 0.0
    if not anew.tells and saved < _TOLD:
        return Change(one.what, None, "not known: its search ran out of time")
    if abs(saved) < _TOLD:
        return Change(one.what, least, f"changes nothing: {one.said}" if one.said else "changes nothing")
    how = "" if anew.tells else ", or still less"
    return Change(one.what, least, f"{time_text(least)}, {abs(saved):.0%} {'less' if saved > 0 else 'more'}{how}")
