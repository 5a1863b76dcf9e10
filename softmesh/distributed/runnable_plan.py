"""`Runnable`: a plan made once for shapes, placements and a machine, and run many times, op by op.

The first run checks that the result lies as planned.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from softmesh.cost.chip_costs import memory_bytes
from softmesh.cost.command_cost import FREE, CommandCost
from softmesh.distributed.call_description import CallDescription
from softmesh.distributed.compiled_plan import Chain, run_recorded
from softmesh.distributed.layout_planner import Inside, Plan, Problem, plan_of
from softmesh.distributed.layouts import Value, along_the_mesh, described, is_whole, unsized
from softmesh.distributed.placement_requests import check_possible, oversplit_dims, wanted_layout
from softmesh.distributed.plan_table import axis_name
from softmesh.distributed.redistribution import Way
from softmesh.distributed.redistribution_ops import Run, runner
from softmesh.distributed.split_choices import Choice, Split, uneven_splits, without_partial_results
from softmesh.distributed.split_prices import Told, WorksOn, split_price
from softmesh.distributed.uneven_shards import UnevenConversion, to_nested_uneven, without_nested_uneven
from softmesh.errors import ArgumentError, MeshError
from softmesh.hardware.activation import UnaryWithParam
from softmesh.runtime.device import MeshDevice
from softmesh.tensor.dtype import facts
from softmesh.tensor.tensor import Tensor


@dataclass(frozen=True)
class SplitOptions:
    """How the work of one call can be split: what a unified op's description returns.

    `call` is asked for the op as one split has it: a function of operands that lie as the split needs them. `after`
    is an element-wise function that `call` leaves out where the split gives contributions: it is not linear; `behind`
    are the activations that it does, one after the other, where public ops do them. `told` are
    the arguments, by name, that a device is given in the place of those of the whole. `works_on`: see `split_price`.
    """

    choices: Sequence[Choice] | Sequence[Sequence[Choice]]  # the same for all axes, or for each
    call: Callable[[Split], Callable[..., Any]]
    inside: Inside | None = None
    after: Run | None = None
    behind: tuple[UnaryWithParam, ...] = ()
    is_true: Callable[[Split], bool] | None = None
    told: Told | None = None
    works_on: WorksOn | None = None
    is_work: bool = True  # nothing is computed, if not

    def price(self, given: CallDescription, split: Split) -> CommandCost:
        """Return what the work takes on each device, of a call that is `given`."""
        return split_price(given, split, self.told, self.works_on) if self.is_work else FREE


REQUESTS = {"redistribute": "placements"}  # what the request is called, where it is not output_topology
Describe = Callable[[CallDescription], SplitOptions]


class Runnable:
    """`moving` brings operands to where the op needs them, `call` does the op, `finish` the rest."""

    def __init__(
        self,
        plan: Plan,
        moving: tuple[tuple[int, tuple[Run, ...]], ...],
        call: Callable[..., Any],
        finish: tuple[Run, ...],
        is_oversplit: bool = False,
    ) -> None:
        self.plan = plan
        self.moving = moving
        self.call = call
        self.finish = finish
        self.inserts = bool(plan.inserted)
        self._is_checked = False
        self.is_oversplit = is_oversplit  # leaves devices without elements, as only lenient mode allows
        self._is_direct = not moving and not finish

    def inserted(self, axis_names: Sequence[str] | None) -> str:
        """The collectives, in words."""
        steps = ((name, step, axis_name(step.axis, axis_names)) for name, step in self.plan.inserted)
        return ", ".join(f"{step.named(axis)} of {name}" for name, step, axis in steps)

    def run_and_record(self, tensors: list[Tensor]) -> tuple[Any, Chain | None]:
        """Its ops one by one; and the chain of their computations, for another run like this one."""
        return run_recorded(self.plan.problem.op, self.run, tensors)

    def run(self, tensors: list[Tensor]) -> Any:
        """Its ops one by one."""
        if self._is_direct and self._is_checked:
            return self.call(*tensors)
        for at, moves in self.moving:
            for move in moves:
                tensors[at] = move(tensors[at])
        result = self.call(*tensors)
        for move in self.finish:
            result = move(result)
        if not self._is_checked:
            self._check(result)
        return result

    def _check(self, result: Any) -> None:
        """The first time: the result lies as planned."""
        for tensor in result if isinstance(result, list | tuple) else [result]:
            found = unsized(tensor.view_distribution().placements)
            if found != self.plan.final_layout:
                raise MeshError(
                    f"distributed.{self.plan.problem.op}: planned as ({described(self.plan.final_layout)}), the result "
                    f"is ({described(found)}): the op and its plan disagree. Please report this with the call."
                )
        self._is_checked = True


def planned(given: CallDescription, work: SplitOptions, request: object, device: MeshDevice) -> Runnable:
    problem, starts, end = _problem(given, work, request, device)
    plan = plan_of(problem)
    strategy = plan.strategy
    prepare: list[tuple[Run, ...]] = [
        (*((along_the_mesh,) if regridded else ()), *start.moves, *moves_along(way, value))
        for regridded, start, way, value in zip(
            given.regridded, starts, strategy.ways_in, problem.operands, strict=True
        )
    ]
    moving = tuple((at, moves) for at, moves in enumerate(prepare) if moves)
    finish = [*moves_along(plan.way_out, problem.result)]
    if work.after is not None and not is_whole(strategy.gives):
        finish.append(work.after)
    crowded = request is not None and bool(oversplit_dims(plan.final_layout, given.shape, device))
    return Runnable(plan, moving, work.call(strategy.split), (*finish, *end.moves), crowded)


def _problem(
    given: CallDescription, work: SplitOptions, request: object, device: MeshDevice
) -> tuple[Problem, list[UnevenConversion], UnevenConversion]:
    """What the planner is asked, and what is taken apart before and put together after."""
    op, lines, result = given.name, given.lines, given.made[0]
    wanted = _wanted(given, request, device)
    starts = [
        without_nested_uneven(layout, value, lines) for layout, value in zip(given.layouts, given.values, strict=True)
    ]
    end = UnevenConversion(()) if wanted is None else to_nested_uneven(wanted, result, lines)
    goal = None if wanted is None else end.layout
    layouts = tuple(start.layout for start in starts)
    choices = _choices(given, work, goal)
    kept = uneven_splits(choices, layouts, goal, (*given.values, result))
    problem = Problem(
        op,
        given.short_names,
        tuple(dtype.name.lower() for dtype in (*(o.dtype for o in given.operands), given.result.dtype)),
        given.layouts,
        tuple(value.keeping(uneven) for value, uneven in zip(given.values, kept, strict=False)),
        layouts,
        result.keeping(kept[-1]),
        goal,
        choices,
        lines,
        memory_bytes(given.chip),
        lambda split: work.price(given, split).seconds,
        work.inside,
        work.is_true,
        tuple(start.steps for start in starts),
        end.steps,
    )
    return problem, starts, end


def _wanted(given: CallDescription, request: object, device: MeshDevice) -> Any:
    where = f"distributed.{given.name}: {REQUESTS.get(given.name, 'output_topology')}"
    if request is not None and given.container is not None:
        raise ArgumentError(
            f"{where}: it has {len(given.results)} results: leave it out, and place them with "
            "softmesh.distributed.redistribute."
        )
    wanted = wanted_layout(where, request, len(given.shape), device)
    if wanted is not None:
        check_possible(where, wanted, given.shape, device)
    return wanted


def _choices(given: CallDescription, work: SplitOptions, goal: Any) -> tuple[tuple[Choice, ...], ...]:
    """For each axis; without those that would cut the fractions of contributions, or leave a last step undone."""
    first = work.choices[0]
    per_axis = [work.choices] * len(given.mesh) if isinstance(first, Choice) else work.choices
    cuts = any(o.is_float for o in given.operands) and not facts(given.result.dtype).is_float
    undone = work.after is not None and goal is not None and not is_whole(goal)
    drop = cuts or undone
    return tuple(without_partial_results(choices) if drop else tuple(choices) for choices in per_axis)  # type: ignore[arg-type]


def moves_along(way: Way, value: Value) -> tuple[Run, ...]:
    return tuple(runner(step, value) for step in way.steps)
