"""Changes of where a device holds a tensor, from DRAM to shards in L1 and back: to a plan, whose pieces are others,
they are copies."""

from __future__ import annotations

from typing import Any

from softmesh.dispatch.operation import OPERATIONS, Operation

_DTYPE_OF = {  # of the result, where it is another one
    "to_memory_config": "dtype",
    "interleaved_to_sharded": "output_dtype",
    "sharded_to_interleaved": "output_dtype",
    "reshard": None,
}


def as_copy(op: Operation, bound: list[Any]) -> tuple[Operation, list[Any]]:
    """What a plan has in the place of a call; most are left as they are."""
    if op.name not in _DTYPE_OF:
        return op, bound
    given = dict(zip(op.definition.signature.names, bound, strict=True))
    copy = OPERATIONS["clone"]
    defaults = dict(zip(copy.definition.signature.names, copy.definition.signature.defaults, strict=True))
    dtype = given.get(_DTYPE_OF[op.name] or "")
    return copy, list((defaults | {"input": bound[0], "dtype": dtype}).values())
