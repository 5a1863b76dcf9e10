"""Words for how a plan compares: with the best there could be, and with the other meshes that were looked at."""

from __future__ import annotations

import math

from softmesh.planner.chosen_layout import ChosenLayout
from softmesh.planner.constraints import MeshShapeIs
from softmesh.planner.goal import SLOWER_AT_BEST, Candidate

_DIGITS = range(4, 9)
_NO_GAP = 1e-5  # of a plan's time
_ALIKE = 5e-4


def seconds_text(seconds: float, digits: int = 4) -> str:
    """
    >>> seconds_text(1.136e-5), seconds_text(0.0204871), seconds_text(0.0204871, 6)
    ('11.36 us', '20.49 ms', '20.4871 ms')
    """
    unit, scale = ("us", 1e6) if seconds < 1e-3 else ("ms", 1e3) if seconds < 1 else ("s", 1.0)
    amount = seconds * scale
    decimals = max(digits - max(math.floor(math.log10(amount)), 0) - 1, 0) if amount else 0
    return f"{amount:.{decimals}f} {unit}"


def told_apart(one: float, other: float) -> tuple[str, str]:
    """Both times, with as many digits as it takes to see which is longer.

    >>> told_apart(1.13634e-5, 1.13648e-5)
    ('11.363 us', '11.365 us')
    """
    texts = [(seconds_text(one, digits), seconds_text(other, digits)) for digits in _DIGITS]
    return next((pair for pair in texts if pair[0] != pair[1]), texts[0])


def gap_words(plan: ChosenLayout, of_what: str = "") -> str:
    """Say how far the plan may be from the optimum `of_what`, as the end of a sentence."""
    optimum = f"the optimum {of_what}".rstrip()
    return optimum if plan.gap < _NO_GAP else f"{optimum} takes at most {share_text(plan.gap)} less"


def share_text(share: float) -> str:
    """
    >>> share_text(0.4879), share_text(0.00061)
    ('49%', '0.061%')
    """
    return f"{share * 100:.2g}%"


def compared(plan: ChosenLayout) -> list[Candidate]:
    """All but those that were ruled out before anything was priced."""
    return [one for one in plan.candidates if one.seconds is not None or one.bound < math.inf]


def others(plan: ChosenLayout) -> list[Candidate]:
    """Return the other candidates, without meshes that nobody asked for if one was asked for."""
    is_asked = any(isinstance(one, MeshShapeIs) for one in plan.freedom.constraints)
    return [one for one in (compared(plan) if is_asked else plan.candidates) if one.why]


def lost_words(plan: ChosenLayout, one: Candidate) -> str:
    """Why a mesh is not the plan's, in numbers that differ from the plan's."""
    if one.seconds is not None:
        took, _ = told_apart(one.seconds, plan.seconds)
        more = one.seconds / plan.seconds - 1 if plan.seconds else 0.0
        if more <= 0:
            return f"{took}, no faster when launches are counted"
        return f"{took}, {share_text(more)} longer"
    if one.why != SLOWER_AT_BEST:
        return one.why
    least, _ = told_apart(one.bound, plan.ranked_seconds)
    more = one.bound / plan.ranked_seconds - 1 if plan.ranked_seconds else 0.0
    if more > _ALIKE:
        return f"no plan on it takes less than {least}, {share_text(more)} longer"
    return "no plan on it is faster" if more >= 0 else f"no plan on it saves more than {share_text(-more)}"
