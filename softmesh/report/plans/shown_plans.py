"""`softmesh.plan`: plans that can be shown. A notebook gets a page, `plan.svg()` a picture."""

from __future__ import annotations

from softmesh.planner.explanation.plan_explanation import PAINTERS
from softmesh.planner.layout_plan import plan
from softmesh.report.plans.plan_page import plan_html, plan_page
from softmesh.report.plans.plan_svg import plan_svg

__all__ = ["plan"]

PAINTERS |= {"html": plan_html, "page": plan_page, "svg": plan_svg}
