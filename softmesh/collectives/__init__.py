"""Collectives: operations that move data between the devices of a mesh (all_gather, all_reduce, reduce_scatter, ...).

`ttnn_collectives.py` and its neighbours define TT-NN's collectives; `mode_collectives.py` is softmesh's own second API
(`softmesh.collectives.all_reduce(x, mode="host")`); `collective_spec.py`, `collective_operation.py` and what they
import are the engine that plans and runs them; `moe/` holds the exchanges of mixtures of experts.

`schedules/` is the language in which a collective can be written down: data that says who sends what to whom in
which step. The step executor runs it hop by hop, the checker proves it, the painter draws it, and the fast path
(`torch_expressions.py`) computes the same result as one torch expression. What follows is public; a schedule of
one's own gets all of it. See docs/collectives.md for the words.
"""

from __future__ import annotations

import importlib
from typing import Any

# Looked up when they are asked for: importing the package loads none of them. The painter stands above it.
_PUBLIC = {
    "Action": "collectives.schedules.language",
    "Lane": "collectives.schedules.link_traffic",
    "Schedule": "collectives.schedules.language",
    "Send": "collectives.schedules.language",
    "all_gather": "collectives.mode_collectives",
    "all_reduce": "collectives.mode_collectives",
    "busiest_link": "collectives.schedules.link_traffic",
    "bytes_per_link": "collectives.schedules.link_traffic",
    "bytes_per_step": "collectives.schedules.link_traffic",
    "draw": "report.schedules.draw",
    "neighbours": "collectives.schedules.checker",
    "on_system": "collectives.schedules.chip_assignment",
    "reduce_scatter": "collectives.mode_collectives",
    "run": "collectives.schedules.executor",
    "schedule_for": "collectives.schedules.generators",
    "violations": "collectives.schedules.checker",
}
__all__ = list(_PUBLIC)


def __getattr__(name: str) -> Any:
    if name in _PUBLIC:
        return getattr(importlib.import_module(f"softmesh.{_PUBLIC[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *_PUBLIC})
