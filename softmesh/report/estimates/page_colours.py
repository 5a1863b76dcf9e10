"""Colours of the page of an estimate, by name: the style sheet has them for light and for dark.

What bounds a command has a colour of Okabe and Ito's set, which differ for all common kinds of colour vision. Amounts
have seven steps of one scale, from pale to strong by light and from dull to bright in the dark.
"""

from __future__ import annotations

from softmesh.cost.command_cost import Bound

BOUND = {bound: f"var(--{bound.name.lower()})" for bound in Bound}
STEPS = 7
INK, FADED, LINE, PAPER, GROUND = (f"var(--{name})" for name in ("ink", "faded", "line", "paper", "ground"))
TINTS = 8
IDLE = {"host": FADED, "launch": BOUND[Bound.DISPATCH], "waiting": LINE}


def heat(amount: float, most: float) -> str:
    """The step of an amount; nothing at all is the colour of a line."""
    if amount <= 0 or most <= 0:
        return LINE
    return f"var(--heat-{min(STEPS - 1, int(STEPS * amount / most))})"


def tint(number: int) -> str:
    return f"var(--tint-{number % TINTS})"
