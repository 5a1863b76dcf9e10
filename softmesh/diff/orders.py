"""Finds values again that stand in another order: slices of a dim, and parts of a fused weight dealt out to devices."""

from __future__ import annotations

import torch

from softmesh.diff.judged import Order
from softmesh.placement.placements import Shard
from softmesh.train.equivalence.values import Value

_MOST_SLICES = 1024
_MOST_ELEMENTS = 1 << 22
_OF_ANY_ORDER = (torch.max, torch.min, torch.sum)


def slice_order(found: torch.Tensor, expected: torch.Tensor, dim: int, tolerance: float) -> list[int] | None:
    """Where each slice along `dim` stands in the reference; None where they are not the same slices."""
    count = expected.shape[dim]
    if not 1 < count <= _MOST_SLICES or expected.numel() > _MOST_ELEMENTS or found.shape != expected.shape:
        return None
    ours, theirs = (one.movedim(dim, 0).reshape(count, -1).float() for one in (found, expected))
    units = [one / one.norm(dim=1, keepdim=True).clamp(min=1e-30) for one in (ours, theirs)]
    order = (units[0] @ units[1].T).argmax(1)
    if len(order.unique()) != count:
        return None
    off = float((ours - theirs[order]).norm())
    return order.tolist() if off <= tolerance * float(theirs.norm()) else None


def is_reordered(found: torch.Tensor, expected: torch.Tensor, tolerance: float) -> int | None:
    """The dim along which slices stand in another order; -1: element by element; None: they are other values."""
    if found.numel() != expected.numel():
        return None
    if found.shape == expected.shape:
        for dim in range(expected.dim()):
            order = slice_order(found, expected, dim, tolerance)
            if order is not None and order != sorted(order):
                return dim
    if expected.numel() > _MOST_ELEMENTS:
        return None
    ours, theirs = found.double(), expected.double()
    if not all(torch.allclose(each(ours), each(theirs), rtol=1e-9, atol=1e-12) for each in _OF_ANY_ORDER):
        return None
    same = torch.equal(found.flatten().sort().values.float(), expected.flatten().sort().values.float())
    return -1 if same else None


def out_of_order(value: Value, found: torch.Tensor, expected: torch.Tensor) -> tuple[int, list[int]] | None:
    """A fused weight, of which each device has its share of every part: (mesh axis, devices that have another share).

    On one device the parts (queries, keys, values) stand one after the other; on several, each device's shares do.
    None where the columns are no such thing.
    """
    if not expected.is_floating_point():
        return None  # small numbers are found again anywhere
    for axis, word in enumerate(value.words):
        if not isinstance(word, Shard) or found.shape != expected.shape:
            continue
        dim = word.dim % expected.dim()
        places = _places(found, expected, dim)
        if places is not None:
            wrong = _dealt_otherwise(places.reshape(value.dist.grid[axis], -1))
            if wrong is not None:
                return axis, wrong
    return None


def dealt_order(value: Value, found: torch.Tensor | None, expected: torch.Tensor, tolerance: float) -> Order | None:
    """The order of slices in a weight whose parts are dealt out, each device's shares side by side.

    A part may be given to several devices, as keys and values are where there are fewer of them than devices.
    """
    if found is None or not expected.is_floating_point() or found.dim() != expected.dim():
        return None
    for axis, word in enumerate(value.words):
        dim = word.dim % expected.dim() if isinstance(word, Shard) else -1
        same = [n for at, n in enumerate(found.shape) if at != dim] == [
            n for at, n in enumerate(expected.shape) if at != dim
        ]
        if dim < 0 or not same:
            continue
        places = _places(found, expected, dim) if found.shape == expected.shape else None
        if places is None:
            places = _nearest(found, expected, dim, tolerance)
        if places is not None and _is_dealt(places.reshape(value.dist.grid[axis], -1), expected.shape[dim]):
            return Order(dim - expected.dim(), places)
    return None


def _is_dealt(shares: torch.Tensor, count: int) -> bool:
    if shares.numel() == count:
        return _dealt_otherwise(shares) == []
    if len(shares.unique()) != count:
        return False
    breaks = [int((share.diff() != 1).sum()) for share in shares]
    return len(set(breaks)) == 1 and breaks[0] < max(4, shares.shape[1] // 8) and bool((shares.diff(dim=0) >= 0).all())


def _nearest(found: torch.Tensor, expected: torch.Tensor, dim: int, tolerance: float) -> torch.Tensor | None:
    """By the direction of each slice, where the two were rounded otherwise or a slice is there more than once."""
    if max(found.shape[dim], expected.shape[dim]) > _MOST_SLICES or found.numel() > _MOST_ELEMENTS:
        return None
    ours, theirs = (one.movedim(dim, 0).reshape(one.shape[dim], -1).float() for one in (found, expected))
    units = [one / one.norm(dim=1, keepdim=True).clamp(min=1e-30) for one in (ours, theirs)]
    places = (units[0] @ units[1].T).argmax(1)
    off = float((ours - theirs[places]).norm())
    return places if off <= tolerance * float(ours.norm()) else None


def _places(found: torch.Tensor, expected: torch.Tensor, dim: int) -> torch.Tensor | None:
    """Where each slice stands in the reference, by a number that tells slices apart."""
    ours, theirs = (one.movedim(dim, 0).reshape(one.shape[dim], -1).double() for one in (found, expected))
    draw = torch.Generator().manual_seed(0)
    weight = torch.randn(ours.shape[1], dtype=torch.float64, generator=draw)
    a, b = ours @ weight, theirs @ weight
    first, second = a.sort(), b.sort()
    if not torch.allclose(first.values, second.values, rtol=1e-9, atol=1e-9):
        return None
    places = torch.empty_like(first.indices)
    places[first.indices] = second.indices
    return places


def _dealt_otherwise(shares: torch.Tensor) -> list[int] | None:
    """Devices that do not follow the pattern which most do; None where no pattern fits more than half."""
    devices, count = shares.shape
    best: list[int] | None = None
    for model in range(devices):
        breaks = (shares[model].diff() != 1).nonzero().flatten() + 1
        runs = torch.tensor_split(shares[model], breaks)
        if len(runs) > max(4, count // 8):
            continue
        dealt = [torch.cat([run + (device - model) * len(run) for run in runs]) for device in range(devices)]
        if int(dealt[0].min()) != 0:
            continue  # the first device has the first share of everything
        wrong = [device for device in range(devices) if not torch.equal(dealt[device], shares[device])]
        if best is None or len(wrong) < len(best):
            best = wrong
    return best if best is not None and 2 * len(best) <= devices else None
