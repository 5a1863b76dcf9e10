"""What a call means for pieces of tensors that nobody wrote: who warns, and which results are marked.

A rule is asked before the call; what it returns marks the results afterwards.
"""

from __future__ import annotations

from collections.abc import Callable

from softmesh.dispatch.bound_call import BoundCall
from softmesh.dispatch.signature import Signature
from softmesh.tensor.tensor import Tensor
from softmesh.tensor.undefined import mark, propagated, warn_if_undefined

Marking = Callable[[list[Tensor]], None]
UndefinedRule = Callable[[str, Signature, BoundCall], Marking | None]


def carried_over(op: str, signature: Signature, call: BoundCall) -> Marking | None:
    """Each device reads its own piece: what is undefined in it comes to its result."""
    undefined = propagated(op, call.tensors)
    if undefined is None:
        return None

    def tell(made: list[Tensor]) -> None:
        for result in made:
            mark(result, undefined)

    return tell


def warned_about(op: str, signature: Signature, call: BoundCall) -> None:
    """Devices read each other's pieces."""
    for tensor in call.tensors:
        warn_if_undefined(tensor, op)
