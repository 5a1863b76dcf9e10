"""Plain ops that only unified ones use: planned, run and observed as all others, under no name of TT-NN's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from softmesh.dispatch.cost_rules import flops_per_element
from softmesh.dispatch.definition import Define, Definition
from softmesh.dispatch.operation import Operation
from softmesh.dispatch.plan import CostRule
from softmesh.dispatch.signature import Signature


def own_operation(
    name: str, *, cost: CostRule | None = None, controls: str = "", **options: Any
) -> Callable[[Define], Operation]:
    def make(define: Define) -> Operation:
        known_as = f"distributed.{name}"
        signature = Signature(known_as, define, controls.split(), [])
        return Operation(Definition(known_as, define, signature, cost or flops_per_element(1), **options))

    return make
