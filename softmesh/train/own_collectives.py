"""Collectives that training has and TT-NN has not."""

from __future__ import annotations

from collections.abc import Callable

from softmesh.collectives.across import Across
from softmesh.collectives.collective import Collective
from softmesh.dispatch.cost_rules import moves_bytes
from softmesh.dispatch.definition import Definition
from softmesh.dispatch.signature import Signature


def training_collective(define: Callable[..., Across]) -> Collective:
    name = f"train.{define.__name__}"
    signature = Signature(name, define, ["memory_config"], [], [])
    return Collective(Definition(name, define, signature, moves_bytes, "data"))  # type: ignore[arg-type]
