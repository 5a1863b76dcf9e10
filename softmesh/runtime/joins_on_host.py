"""Joins on the host: what torch.cat put side by side, in strict mode.

A tensor is known again by a row of its values, which survives a transpose, a copy and a change of dtype.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any

import torch

from softmesh.strictness import is_strict

_MOST_JOINS = 1024  # the latest ones are remembered
_LONGEST = 1 << 18  # of a row that is remembered
_CALLS = ("cat", "concat", "concatenate")
_JOINS: OrderedDict[bytes, tuple[int, ...]] = OrderedDict()  # the extents of the pieces, by a row of the result


def watch_joins() -> None:
    """Watch torch.cat from now on in strict mode, and leave it alone otherwise."""
    for name in _CALLS:
        call = getattr(torch, name)
        plain = getattr(call, "__wrapped__", call)
        setattr(torch, name, _watched(plain) if is_strict() else plain)


def _watched(join: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    @wraps(join)
    def joined(*args: Any, **kwargs: Any) -> torch.Tensor:
        result = join(*args, **kwargs)
        pieces = args[0] if args else kwargs.get("tensors", ())
        dim = args[1] if len(args) > 1 else kwargs.get("dim", kwargs.get("axis", 0))
        if isinstance(pieces, list | tuple) and isinstance(dim, int):
            with torch._C.DisableTorchFunctionSubclass():  # a tensor that notes how it is used is not used here
                _note(result, [one.shape[dim] for one in pieces if one.dim() == result.dim()], dim)
        return result

    return joined


def _note(result: torch.Tensor, extents: Sequence[int], dim: int) -> None:
    key = _row(result, dim) if len(extents) > 1 else None
    if key is not None:
        _JOINS[key] = tuple(extents)
        _JOINS.move_to_end(key)
        if len(_JOINS) > _MOST_JOINS:
            _JOINS.popitem(last=False)


def _row(values: torch.Tensor, dim: int) -> bytes | None:
    """The first row along a dim, as bfloat16 has it; None where it tells nothing."""
    if not values.is_floating_point() or values.is_meta or not 1 < values.shape[dim] <= _LONGEST or not values.numel():
        return None
    row = values.detach().movedim(dim, -1)[(0,) * (values.dim() - 1)].bfloat16()
    return None if bool((row == row[0]).all()) else row.cpu().view(torch.int16).numpy().tobytes()


def pieces_along(values: torch.Tensor, dim: int) -> tuple[int, ...] | None:
    """The extents of what was joined along a dim of this tensor; None where that is not known."""
    return _JOINS.get(_row(values, dim) or b"") if _JOINS else None
