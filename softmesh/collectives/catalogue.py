"""Importing this file registers every collective; `COMPOSITES` are those that are functions, by dotted name."""

from __future__ import annotations

from softmesh.collectives import (  # noqa: F401
    asynchronous,
    core,
    dit_norms,
    exchanging,
    experts,
    fused,
    fused_heads,
    fused_products,
    halos,
    merging,
    norms,
    reductions,
    remapping,
    ring_attention,
    sending,
)
from softmesh.collectives.moe import dispatching, pipeline  # noqa: F401
from softmesh.collectives.spelling import COMPOSITES

__all__ = ["COMPOSITES"]
