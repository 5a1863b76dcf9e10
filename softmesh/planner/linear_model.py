"""A mixed-integer linear model, put together row by row and minimised by HiGHS under a time limit."""

from __future__ import annotations

import importlib
import math
from typing import Any, NamedTuple

import numpy as np

from softmesh.errors import MeshError

INFINITE = math.inf
Terms = list[tuple[int, float]]  # variables and their factors
_THREADS = 2
_NEVER_WAITS = 0.1  # seconds: the least that a search gets


class Answer(NamedTuple):
    values: list[float] | None  # of all variables; None where nothing was found
    bound: float  # no solution is below
    is_out_of_time: bool


class LinearModel:
    def __init__(self) -> None:
        self._costs: list[float] = []
        self._upper: list[float] = []
        self._is_integer: list[bool] = []
        self._rows: list[tuple[float, float]] = []
        self._starts, self._columns, self._factors = [0], list[int](), list[float]()

    @property
    def size(self) -> tuple[int, int]:
        """Variables and rows."""
        return len(self._costs), len(self._rows)

    def continuous(self, upper: float = 1.0) -> int:
        return self._variable(upper, False)

    def binaries(self, count: int) -> list[int]:
        """Of which exactly one is 1."""
        made = [self._variable(1.0, True) for _ in range(count)]
        self.add_row(1, 1, [(variable, 1.0) for variable in made])
        return made

    def _variable(self, upper: float, is_integer: bool) -> int:
        self._costs.append(0.0)
        self._upper.append(upper)
        self._is_integer.append(is_integer)
        return len(self._costs) - 1

    def add_cost(self, variable: int, cost: float) -> None:
        self._costs[variable] += cost

    def add_row(self, low: float, high: float, terms: Terms) -> None:
        together: dict[int, float] = {}
        for variable, factor in terms:
            together[variable] = together.get(variable, 0.0) + factor
        self._rows.append((low, high))
        self._columns += together
        self._factors += together.values()
        self._starts.append(len(self._columns))

    def minimised(self, time_limit_s: float, gap: float, below: float = INFINITE) -> Answer:
        """`below`: a solution that costs more is of no use; without one that costs less, that is the bound."""
        highs = _highs()
        solver = highs.Highs()
        options = {"output_flag": False, "time_limit": max(time_limit_s, _NEVER_WAITS), "mip_rel_gap": gap}
        for name, value in (options | {"threads": _THREADS, "random_seed": 1}).items():
            solver.setOptionValue(name, value)
        if math.isfinite(below):
            self.add_row(-INFINITE, below, [(at, cost) for at, cost in enumerate(self._costs) if cost])
        solver.passModel(self._as_lp(highs))
        solver.run()
        info, status = solver.getInfo(), solver.getModelStatus()
        is_found = info.primal_solution_status == highs.SolutionStatus.kSolutionStatusFeasible
        values = list(solver.getSolution().col_value) if is_found else None
        out_of_time = status == highs.HighsModelStatus.kTimeLimit
        is_ruled_out = values is None and not out_of_time and math.isfinite(below)
        return Answer(values, below if is_ruled_out else float(info.mip_dual_bound), out_of_time)

    def _as_lp(self, highs: Any) -> Any:
        lp = highs.HighsLp()
        lp.num_col_, lp.num_row_ = self.size
        lp.col_cost_ = np.array(self._costs)
        lp.col_lower_ = np.zeros(len(self._costs))
        lp.col_upper_ = np.array(self._upper)
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
