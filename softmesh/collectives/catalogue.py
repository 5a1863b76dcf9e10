"""Importing this file registers every collective; `COMPOSITES` are those that are functions, by dotted name."""

from __future__ import annotations

from softmesh.collectives import (  # noqa: F401
    asynchronous,
    core,
    exchanging,
    experts,
    fused,
    merging,
    reductions,
    remapping,
    sending,
)
from softmesh.collectives.spelling import COMPOSITES

__all__ = ["COMPOSITES"]
