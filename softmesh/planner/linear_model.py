"""A mixed-integer linear model, put together row by row and minimised by HiGHS under a time limit.

It may grow after it was solved, and be solved again for other costs: what is known of it is kept. Its relaxation, in
which the integers may be fractions, is solved in a small part of the time, and is often all that is needed.
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np

from softmesh.errors import MeshError

INFINITE = math.inf
Terms = list[tuple[int, float]]  # variables and their factors
Costs = dict[int, float]  # of variables: nothing for those that are not in it
_THREADS = 2
_NEVER_WAITS = 0.1  # seconds: the least that a search gets
_WHOLE = 1e-6  # from a whole number


class Answer(NamedTuple):
    values: list[float] | None  # of all variables; None where nothing was found
    bound: float  # no solution is below
    is_out_of_time: bool
    is_whole: bool = True  # whether all integers are


class LinearModel:
    def __init__(self) -> None:
        self._upper: list[float] = []
        self._is_integer: list[bool] = []
        self._rows: list[tuple[float, float]] = []
        self._starts, self._columns, self._factors = [0], list[int](), list[float]()
        self._solver: Any = None
        self._known_columns, self._known_rows = 0, 0  # that the solver has
        self._closed: set[int] = set()

    @property
    def size(self) -> tuple[int, int]:
        """Variables and rows."""
        return len(self._upper), len(self._rows)

    def continuous(self, upper: float = 1.0) -> int:
        return self._variable(upper, False)

    def binaries(self, count: int) -> list[int]:
        """Of which exactly one is 1."""
        made = [self._variable(1.0, True) for _ in range(count)]
        self.add_row(1, 1, [(variable, 1.0) for variable in made])
        return made

    def _variable(self, upper: float, is_integer: bool) -> int:
        self._upper.append(upper)
        self._is_integer.append(is_integer)
        return len(self._upper) - 1

    def add_row(self, low: float, high: float, terms: Terms) -> None:
        together: dict[int, float] = {}
        for variable, factor in terms:
            together[variable] = together.get(variable, 0.0) + factor
        self._rows.append((low, high))
        self._columns += together
        self._factors += together.values()
        self._starts.append(len(self._columns))

    def close(self, variables: Iterable[int]) -> None:
        """These are 0 from now on, and no others."""
        changed, self._closed = self._closed, set(variables)
        for variable in changed | self._closed if self._solver is not None else ():
            if variable < self._known_columns:
                self._solver.changeColBounds(variable, 0.0, self._upper_of(variable))

    def _upper_of(self, variable: int) -> float:
        return 0.0 if variable in self._closed else self._upper[variable]

    # -- solving ---------------------------------------------------------------------------------

    def relaxed(self, time_limit_s: float, costs: Costs) -> Answer:
        """The least that any solution costs, and whether the one that costs it is whole."""
        highs, solver = self._ready(costs)
        solver.setOptionValue("solve_relaxation", True)
        # Its clock goes on from one run to the next, and only branch and bound begins anew.
        solver.setOptionValue("time_limit", solver.getRunTime() + max(time_limit_s, _NEVER_WAITS))
        solver.run()
        status = solver.getModelStatus()
        if status == highs.HighsModelStatus.kInfeasible:
            return Answer(None, INFINITE, False)
        if status != highs.HighsModelStatus.kOptimal:
            return Answer(None, 0.0, status == highs.HighsModelStatus.kTimeLimit, False)
        values = list(solver.getSolution().col_value)
        whole = (
            abs(x - round(x)) < _WHOLE for x, is_integer in zip(values, self._is_integer, strict=True) if is_integer
        )
        return Answer(values, solver.getInfo().objective_function_value, False, all(whole))

    def minimised(self, time_limit_s: float, gap: float, below: float, costs: Costs) -> Answer:
        """`below`: a solution that costs more is of no use; without one that costs less, that is the bound.

        What stops the solver before it knows counts as the end of its time.
        """
        highs, solver = self._ready(costs)
        solver.setOptionValue("solve_relaxation", False)
        solver.setOptionValue("time_limit", max(time_limit_s, _NEVER_WAITS))
        solver.setOptionValue("mip_rel_gap", gap)
        solver.setOptionValue("objective_bound", below)
        solver.run()
        info, status = solver.getInfo(), solver.getModelStatus()
        solver.setOptionValue("objective_bound", INFINITE)
        is_found = info.primal_solution_status == highs.SolutionStatus.kSolutionStatusFeasible
        values = list(solver.getSolution().col_value) if is_found else None
        known = highs.HighsModelStatus
        is_settled = status in (known.kOptimal, known.kInfeasible, known.kUnboundedOrInfeasible, known.kObjectiveBound)
        is_ruled_out = values is None and is_settled
        return Answer(values, below if is_ruled_out else float(info.mip_dual_bound), not is_settled)

    def _ready(self, costs: Costs) -> tuple[Any, Any]:
        """The solver, which knows all that was added."""
        highs = _highs()
        if self._solver is None:
            self._solver = highs.Highs()
            for name, value in {"output_flag": False, "threads": _THREADS, "random_seed": 1}.items():
                self._solver.setOptionValue(name, value)
            self._solver.setOptionValue("mip_heuristic_run_feasibility_jump", False)
            self._solver.passModel(self._as_lp(highs))
        else:
            self._pass_what_is_new()
        self._known_columns, self._known_rows = self.size
        given = [costs.get(at, 0.0) for at in range(len(self._upper))]
        numbers = np.arange(len(given), dtype=np.int32)
        self._solver.changeColsCost(len(given), numbers, np.array(given, dtype=np.float64))
        return highs, self._solver

    def _pass_what_is_new(self) -> None:
        first, more = self._known_columns, len(self._upper) - self._known_columns
        upper = np.array([self._upper_of(variable) for variable in range(first, first + more)])
        none, nothing = np.empty(0, np.int32), np.empty(0)
        if more:
            self._solver.addCols(more, np.zeros(more), np.zeros(more), upper, 0, none, none, nothing)
        rows, at = self._rows[self._known_rows :], self._starts[self._known_rows]
        if rows:
            low, high = (np.array(bounds) for bounds in zip(*rows, strict=True))
            starts = np.array(self._starts[self._known_rows : -1], np.int32) - at
            columns, factors = np.array(self._columns[at:], np.int32), np.array(self._factors[at:])
            self._solver.addRows(len(rows), low, high, len(columns), starts, columns, factors)

    def _as_lp(self, highs: Any) -> Any:
        lp = highs.HighsLp()
        lp.num_col_, lp.num_row_ = self.size
        lp.col_cost_ = lp.col_lower_ = np.zeros(len(self._upper))
        lp.col_upper_ = np.array([self._upper_of(variable) for variable in range(len(self._upper))])
        lp.row_lower_ = np.array([low for low, _ in self._rows])
        lp.row_upper_ = np.array([high for _, high in self._rows])
        lp.a_matrix_.format_ = highs.MatrixFormat.kRowwise
        lp.a_matrix_.start_ = np.array(self._starts)
        lp.a_matrix_.index_ = np.array(self._columns)
        lp.a_matrix_.value_ = np.array(self._factors)
        kinds = highs.HighsVarType.kContinuous, highs.HighsVarType.kInteger
        lp.integrality_ = [kinds[is_integer] for is_integer in self._is_integer]
        return lp


def _highs() -> Any:
    try:
        return importlib.import_module("highspy")
    except ImportError as error:
        raise MeshError(
            "softmesh.plan searches with HiGHS, and highspy is not installed: pip install 'softmesh[plan]'."
        ) from error
