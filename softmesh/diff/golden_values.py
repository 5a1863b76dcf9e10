"""An op once more, in plain torch, by its golden function: what it should have made of what it was given."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from softmesh.diff.assembly import whole_of
from softmesh.diff.recording import Entry, Given, Recording
from softmesh.dispatch.operation import OPERATIONS

_SMALL = 0.1  # errors of inputs below this are followed through an op; above it they are no rounding


def golden_of(entry: Entry, inputs: Sequence[torch.Tensor]) -> list[torch.Tensor] | None:
    """In float64 where it may be; None where there is no golden function, or none for such a call."""
    op = OPERATIONS.get(entry.name)
    golden = None if op is None or entry.sends or entry.call is None else op.golden_function
    if golden is None or entry.call is None:
        return None
    wide = [one.double() if one.is_floating_point() else one for one in inputs]
    args, kwargs = entry.call
    try:
        made = golden(*_filled(args, wide), **_filled(kwargs, wide))
    except Exception:  # a reference of torch takes less than the op
        return None
    found = [made] if isinstance(made, torch.Tensor) else list(made) if isinstance(made, list | tuple) else []
    tensors = [one for one in found if isinstance(one, torch.Tensor)]
    return tensors or None


def _filled(nest: Any, tensors: Sequence[torch.Tensor]) -> Any:
    if isinstance(nest, Given):
        return tensors[nest.at]
    if isinstance(nest, dict):
        return {name: _filled(item, tensors) for name, item in nest.items()}
    return type(nest)(_filled(item, tensors) for item in nest) if type(nest) in (list, tuple) else nest


def wholes(run: Recording, entry: Entry) -> list[torch.Tensor] | None:
    """What the op read, put together; None where some of it is no one value."""
    found = [whole_of(run, operand) for operand in entry.inputs]
    return None if any(one is None for one in found) else [one for one in found if one is not None]


def _alike(mine: torch.Tensor, yours: torch.Tensor) -> bool:
    """The same but for rounding: another tensor explains nothing."""
    if mine.shape != yours.shape:
        return False
    off = float((mine.double() - yours.double()).norm())
    return off <= _SMALL * float(yours.double().norm())


def inherited_error(ours: Recording, entry: Entry, theirs: Recording, other: Entry, at: int) -> float | None:
    """How much of an op's difference its inputs explain: the op once with ours, once with theirs.

    None where that cannot be told, also where the golden function does not tell what the reference made.
    """
    mine, yours = wholes(ours, entry), wholes(theirs, other)
    if mine is None or yours is None or len(mine) != len(yours) or not all(map(_alike, mine, yours)):
        return None
    with_ours, with_theirs = golden_of(other, mine), golden_of(other, yours)
    expected = whole_of(theirs, other.outputs[at])
    if with_ours is None or with_theirs is None or expected is None or len(with_ours) <= at:
        return None
    if with_ours[at].numel() != expected.numel() or with_theirs[at].numel() != expected.numel():
        return None
    size = float(expected.double().norm())
    moved = float((with_ours[at].double() - with_theirs[at].double()).norm())
    if not size > 0:
        return None
    off = with_theirs[at].reshape(expected.shape).double() - expected.double()
    return moved / size if float(off.norm()) / size < _SMALL / 2 else None
