"""Ops of whole models of which only the kind is known, and gaps between ops: a typical time for each kind.

Published per-op times of models in decode name the op and not its shape. A kind's time in one such model is the best
guess for the next one, with a band as wide as the times of one kind differ. What was never published has the time of
its likes: collectives, products, norms, data movement.
"""

from __future__ import annotations

from softmesh.cost.command_cost import Bound
from softmesh.cost.laws.law import Coefficients, Law, Numbers
from softmesh.cost.op_words import OpKind, kind_of
from softmesh.cost.workloads import TypicalOp


def _key(work: TypicalOp) -> str:
    """What goes over links depends on the system's; all else on the chip alone."""
    over_links = kind_of(work.kind) in (OpKind.COLLECTIVE, OpKind.EXPERTS)
    return f"{work.chip.kind if over_links else work.chip.arch_name} {work.phase} {work.kind}"


def _wider(key: str) -> tuple[str, ...]:
    """`wormhole_b0 decode matmul` is one of the products in decode, and one of all ops in decode.

    >>> _wider("wormhole_b0 decode matmul")
    ('any decode product', 'any decode op')
    """
    _, phase, name = key.split()
    kind = kind_of(name)
    everything = f"any {phase} op"
    return (everything,) if kind is None else (f"any {phase} {kind.value}", everything)


def _seconds(terms: tuple[Numbers, ...], c: Coefficients) -> Numbers:
    return terms[0] * c["typical_us"] * 1e-6


TYPICAL_OP = Law(
    name="typical op",
    key=_key,
    starting=lambda key: {"typical_us": 100.0 if " prefill " in key else 5.0},
    terms=lambda work: (1.0,),
    seconds=_seconds,
    position=lambda work: (),
    reach=(),
    doubt=1.8,
    noise=0.1,
    bound=lambda terms, c: Bound.DISPATCH,
    wider=_wider,
    keeps_points=False,
)
