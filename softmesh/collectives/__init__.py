"""Moving data between the devices of a mesh.

A collective is written once, as a schedule: data that says who sends what to whom in which step. The step
executor runs it hop by hop, the checker proves it, the painter draws it, and the fast path computes the
same result as one torch expression. What follows is public; a schedule of one's own gets all of it.
"""

from __future__ import annotations

import importlib
from typing import Any

_PUBLIC = {
    "Action": "schedule",
    "Schedule": "schedule",
    "Send": "schedule",
    "all_gather": "modes",
    "all_reduce": "modes",
    "bytes_per_link": "traffic",
    "neighbours": "checking",
    "run": "executor",
    "schedule_for": "schedules",
    "violations": "checking",
}


def __getattr__(name: str) -> Any:
    if name in _PUBLIC:
        return getattr(importlib.import_module(f"softmesh.collectives.{_PUBLIC[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
