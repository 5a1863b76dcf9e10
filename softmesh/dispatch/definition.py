"""Everything that makes an op, as one value."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from softmesh.dispatch.plan import CostRule, Local
from softmesh.dispatch.signature import Signature

Define = Callable[..., Local]


@dataclass(frozen=True)
class Definition:
    name: str
    define: Define
    signature: Signature
    cost: CostRule
    precision: str = (
        "float32"  # "native": one torch kernel, which widens bfloat16 inside; "data": values untouched
    )
    needs_tile: bool = False
    floats_only: bool = False
    on_host: bool = False
    writes: tuple[int, ...] = ()  # the operands that the computation changes in place
