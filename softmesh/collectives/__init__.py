"""Moving data between the devices of a mesh.

A collective is written once, as a schedule: data that says who sends what to whom in which step. The step
executor runs it hop by hop, the checker proves it, the painter draws it, and the fast path computes the
same result as one torch expression. What follows is public; a schedule of one's own gets all of it. See
docs/collectives.md for the words.
"""

from __future__ import annotations

import importlib
from typing import Any

# Looked up when they are asked for: importing the package loads none of them. The painter stands above it.
_PUBLIC = {
    "Action": "collectives.schedule",
    "Lane": "collectives.traffic",
    "Schedule": "collectives.schedule",
    "Send": "collectives.schedule",
    "all_gather": "collectives.modes",
    "all_reduce": "collectives.modes",
    "busiest_link": "collectives.traffic",
    "bytes_per_link": "collectives.traffic",
    "bytes_per_step": "collectives.traffic",
    "draw": "report.schedules.draw",
    "neighbours": "collectives.checking",
    "on_system": "collectives.seats",
    "reduce_scatter": "collectives.modes",
    "run": "collectives.executor",
    "schedule_for": "collectives.schedules",
    "violations": "collectives.checking",
}
__all__ = list(_PUBLIC)


def __getattr__(name: str) -> Any:
    if name in _PUBLIC:
        return getattr(importlib.import_module(f"softmesh.{_PUBLIC[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *_PUBLIC})
