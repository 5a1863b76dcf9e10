"""Collectives that training has and TT-NN has not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from softmesh.collectives.across import Across
from softmesh.collectives.collective import unlisted_collective
from softmesh.dispatch.operation import Operation


def training_collective(**options: Any) -> Callable[[Callable[..., Across]], Operation]:
    return lambda define: unlisted_collective(f"train.{define.__name__}", define, "memory_config", **options)
