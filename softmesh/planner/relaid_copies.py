"""Changes of where a device holds a tensor, from DRAM to shards in L1 and back: to a plan, whose pieces are others,
they are copies."""

from __future__ import annotations

from typing import Any

from softmesh.dispatch.operation import OPERATIONS, Operation
from softmesh.kinds import Kind


def as_copy(op: Operation, bound: list[Any]) -> tuple[Operation, list[Any]]:
    """What a plan has in the place of a call; most are left as they are."""
    if op.definition.kind is not Kind.RELOCATION:
        return op, bound
    given = dict(zip(op.definition.signature.names, bound, strict=True))
    copy = OPERATIONS["clone"]
    defaults = dict(zip(copy.definition.signature.names, copy.definition.signature.defaults, strict=True))
    dtype = given.get("output_dtype", given.get("dtype"))
    return copy, list((defaults | {"input": bound[0], "dtype": dtype}).values())
