"""An op once more, in plain torch, by its golden function: what it should have made of what it was given."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch

from softmesh.diff.assembly import by_device, own_axes, value_of
from softmesh.diff.recording import Entry, Given, Recording
from softmesh.dispatch.operation import OPERATIONS
from softmesh.train.equivalence.values import whole

_MOST_DEVICES = 64  # that have something of their own
_SMALL = 0.1  # errors of inputs below this are followed through an op; above it they are no rounding


class Read(NamedTuple):
    """The tensors that an op read, each put together; where devices have their own, those are the leading dims."""

    tensors: list[torch.Tensor]
    devices: tuple[int, ...] = ()  # how many there are along each mesh axis of that kind


def golden_of(entry: Entry, read: Read) -> list[torch.Tensor] | None:
    """In float64 where it may be; None where there is no golden function, or none for such a call."""
    if not read.devices:
        return _golden_of(entry, read.tensors)
    if math.prod(read.devices) > _MOST_DEVICES:
        return None
    flat = [one.flatten(0, len(read.devices) - 1) for one in read.tensors]
    made = [_golden_of(entry, list(each)) for each in zip(*flat, strict=True)]
    own = [one for one in made if one is not None]
    if len(own) < len(made) or len({len(one) for one in own}) != 1:
        return None
    return [torch.stack(each).unflatten(0, read.devices) for each in zip(*own, strict=True)]


def _golden_of(entry: Entry, inputs: Sequence[torch.Tensor]) -> list[torch.Tensor] | None:
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


def wholes(run: Recording, entry: Entry) -> Read | None:
    """Return what the op read, or None if some of it was not kept."""
    found = [value_of(run, operand) for operand in entry.inputs]
    values = [one for one in found if one is not None]
    axes = own_axes(*values)
    if len(values) < len(found) or (len({one.dist.grid for one in values}) > 1 and axes):
        return None
    grid = values[0].dist.grid if values else ()
    tensors = [whole("a value", by_device(one, axes) if axes else one) for one in values]
    return Read(tensors, tuple(grid[axis] for axis in axes))


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
    if mine is None or yours is None or mine.devices != yours.devices or len(mine.tensors) != len(yours.tensors):
        return None
    if not all(map(_alike, mine.tensors, yours.tensors)):
        return None
    with_ours, with_theirs = golden_of(other, mine), golden_of(other, yours)
    expected = made_by_device(theirs, other, at)
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


def made_by_device(run: Recording, entry: Entry, at: int) -> torch.Tensor | None:
    """Return what the op made, composed as what it read, or None if that cannot be done."""
    values = [value_of(run, one) for one in entry.inputs]
    made, axes = value_of(run, entry.outputs[at]), own_axes(*(one for one in values if one is not None))
    if made is None or not set(own_axes(made)) <= set(axes) or (axes and max(axes) >= made.dist.lead):
        return None
    return whole("a value", by_device(made, axes) if axes else made)
