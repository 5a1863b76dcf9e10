"""`softmesh.estimate` for notebooks: importing this binds `_repr_html_` of estimates, which show their page inline."""

from __future__ import annotations

from softmesh.cost.program_cost import ProgramCost, estimate, mark_step
from softmesh.cost.timeline import Estimate

__all__ = ["estimate", "mark_step"]


def estimate_html(self: Estimate) -> str:
    from softmesh.report.estimates.estimate_page import notebook_html

    return notebook_html(self)


def cost_html(self: ProgramCost) -> str | None:
    """Nothing while the block is under way: a notebook then shows the plain text."""
    return estimate_html(self.estimate) if self.has_ended else None


Estimate._repr_html_ = estimate_html  # type: ignore[attr-defined]
ProgramCost._repr_html_ = cost_html  # type: ignore[attr-defined]
