"""Fits the coefficients of a law to measurements: least squares of logarithms, robust against rows that are off.

Every coefficient is positive, so its logarithm is what moves; the square of a residual counts fully up to a few
percent and about linearly beyond, so that a handful of bad rows bends nothing. A weak pull towards the starting
values settles coefficients that no row speaks of.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

Column = NDArray[np.float64]

_ROUNDS = 80
_TRIES = 10
_STEP = 1e-4
_SLACK = 0.03  # a residual beyond it counts no more than linearly
_PULL = 0.5  # what one unit of log distance from the starting value weighs, against rows


def fitted(formula: Callable[[Column], Column], starting: Column, measured: Column) -> Column:
    """The coefficients at which `formula` comes nearest to `measured`, from `starting` on.

    >>> rate = fitted(lambda c: np.array([1.0, 2.0, 4.0]) / c[0], np.array([1.0]), np.array([0.5, 1.0, 2.0]))
    >>> bool(abs(rate[0] - 2.0) < 1e-2)
    True
    """
    origin = np.log(starting)
    goal = np.log(measured)

    def residuals(at: Column) -> Column:
        return np.log(formula(np.exp(at))) - goal

    def loss(rest: Column, at: Column) -> float:
        rows = np.sum(np.sqrt(1 + (rest / _SLACK) ** 2) - 1)
        return float(rows + _PULL * np.sum((at - origin) ** 2))

    here, damping = origin.copy(), 1e-2
    rest = residuals(here)
    best = loss(rest, here)
    for _ in range(_ROUNDS):
        weights = 1 / (_SLACK**2 * np.sqrt(1 + (rest / _SLACK) ** 2))
        slopes = np.stack([(residuals(here + _STEP * axis) - rest) / _STEP for axis in np.eye(len(here))], axis=1)
        curvature = slopes.T @ (weights[:, None] * slopes) + 2 * _PULL * np.eye(len(here))
        slope = slopes.T @ (weights * rest) + 2 * _PULL * (here - origin)
        for _ in range(_TRIES):
            damped = curvature + damping * np.diag(np.diag(curvature))
            move = np.clip(np.linalg.solve(damped, -slope), -1.0, 1.0)
            rest_there = residuals(here + move)
            there = loss(rest_there, here + move)
            if there < best:
                break
            damping *= 4
        else:
            break
        gained = best - there
        here, rest, best = here + move, rest_there, there
        damping = max(damping / 4, 1e-7)
        if gained < 1e-8 * (1 + best):
            break
    return np.exp(here)
