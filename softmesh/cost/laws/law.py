"""A law: what a workload asks of the machine as numbers, and seconds from these and fitted coefficients.

A law keeps the two apart so that one formula serves a single command and, over columns of numbers, a whole table of
measurements. Coefficients are positive and carry their unit in their name; a workload's `key` says which set of them
is its own; sets of one `wider` group borrow from each other what no row of their own tells. Where neighbours were
measured, `position` says how near they are: see softmesh.cost.corrections.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from softmesh.cost.command_cost import Bound

Numbers = Any  # a float, or a column of them: the formulas serve both
Coefficients = Mapping[str, float]


@dataclass(frozen=True)
class Law:
    """`key`, `terms`, `position` and `bound` ask a workload; `seconds` combines terms and coefficients."""

    name: str
    key: Callable[[Any], str]
    starting: Callable[[str], dict[str, float]]  # coefficients of a key, before anything was measured
    terms: Callable[[Any], tuple[float, ...]]
    seconds: Callable[[tuple[Numbers, ...], Coefficients], Numbers]
    position: Callable[[Any], tuple[float, ...]]
    reach: tuple[float, ...]  # how far along each coordinate of `position` a measurement speaks
    doubt: float  # log of the factor by which the formula alone may be off, one standard deviation
    noise: float  # the same for a repetition of one measurement
    bound: Callable[[tuple[float, ...], Coefficients], Bound]
    keeps_points: bool = True  # whether measured points correct the formula, or only set its band
    wider: Callable[[str], tuple[str, ...]] = lambda key: ()  # groups that a key belongs to, the narrowest first


def larger(*parts: Numbers, sharpness: float = 3.0) -> Numbers:
    """A maximum with a rounded corner: of parts that overlap, and of which none hides another wholly.

    >>> round(float(larger(3.0, 4.0, sharpness=2.0)), 6)
    5.0
    """
    total = sum((np.asarray(part, dtype=float) / 1e-6) ** sharpness for part in parts)
    return total ** (1.0 / sharpness) * 1e-6


def largest(parts: Mapping[Bound, float]) -> Bound:
    return max(parts, key=lambda bound: float(parts[bound]))
