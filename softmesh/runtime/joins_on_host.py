"""Joins on the host: what torch.cat put side by side, and what was put in another order, in strict mode.

A tensor is known again by a row of its values, which survives a transpose, a copy and a change of dtype.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any

import numpy as np
import torch

from softmesh.strictness import is_strict

_MOST_JOINS = 1024  # the latest ones are remembered
_LONGEST = 1 << 18  # of a row that is remembered
_CALLS = ("cat", "concat", "concatenate", "hstack", "vstack", "stack")
_COPIES = ("reshape", "flatten", "contiguous")  # of blocks that were permuted
_CHOICES = ("__getitem__", "index_select")  # of all columns, in another order
# The extents of the pieces, by a digest of a row of the result; none where the row was put in another order.
_JOINS: OrderedDict[bytes, tuple[int, ...]] = OrderedDict()


def watch_joins() -> None:
    """Watch torch.cat and what permutes columns from now on in strict mode, and leave them alone otherwise."""
    for name in _CALLS:
        _watch(torch, name, _watched_join)
    for name in _COPIES:
        _watch(torch.Tensor, name, _watched_copy)
    for name in _CHOICES:
        _watch(torch.Tensor, name, _watched_choice)
    _watch(torch, "index_select", _watched_choice)


_Call = Callable[..., torch.Tensor]


def _watch(owner: Any, name: str, watched: Callable[[_Call], _Call]) -> None:
    call = getattr(owner, name)
    is_ours = getattr(call, "softmesh_watcher", None) is call  # others' wrappers of it copy its attributes
    if is_strict() and not is_ours:
        made = watched(call)
        made.softmesh_watcher = made  # type: ignore[attr-defined]
        setattr(owner, name, made)
        register = getattr(torch.jit._builtins, "_register_builtin", None)
        if owner is torch and register is not None:  # so that torch.jit.script still knows it
            register(made, f"aten::{name}")
    elif is_ours and not is_strict():
        plain = call.__wrapped__
        if getattr(torch._C.TensorBase, name, None) is plain:
            delattr(owner, name)  # which is inherited
        else:
            setattr(owner, name, plain)


def _watched_choice(choose: _Call) -> _Call:
    @wraps(choose)
    def chosen(values: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        result = choose(values, *args, **kwargs)
        if (
            _is_list(args[-1:])
            and type(values) is torch.Tensor
            and _has_values(values)
            and result.shape == values.shape
        ):
            for dim in range(max(values.dim() - 2, 0), values.dim()):
                if _row(values, dim) != _row(result, dim) and _row(values, dim, True) == _row(result, dim, True):
                    _remember(_row(result, dim), ())
        return result

    return chosen


def _is_list(key: object) -> bool:
    """True for places, or for an index that has some."""
    if isinstance(key, tuple):
        return any(map(_is_list, key))
    return isinstance(key, list) or (isinstance(key, torch.Tensor | np.ndarray) and len(key.shape) == 1)


def _watched_copy(copy: _Call) -> _Call:
    @wraps(copy)
    def copied(self: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
        result = copy(self, *args, **kwargs)
        if self.dim() > 2 and type(self) is torch.Tensor and _has_values(self) and not self.is_contiguous():
            _note_order(self, result)
        return result

    return copied


def _note_order(blocks: torch.Tensor, result: torch.Tensor) -> None:
    """Remember rows of a copy whose blocks lay in another order in one row before."""
    steps = [step for step, n in zip(blocks.stride(), blocks.shape, strict=True) if n > 1]
    if not result.is_contiguous() or not result.numel() or result.dim() < 2:
        return
    for merged, row in ((steps[1:], result.flatten(1)), (steps[:-1], result.flatten(0, -2).T)):
        if merged != sorted(merged, reverse=True):
            _remember(_row(row, 1), ())


def _watched_join(join: _Call) -> _Call:
    @wraps(join)
    def joined(*args: Any, **kwargs: Any) -> torch.Tensor:
        result = join(*args, **kwargs)
        pieces = args[0] if args else kwargs.get("tensors", ())
        dim = args[1] if len(args) > 1 else kwargs.get("dim", kwargs.get("axis", 0))
        dim = 1 if join.__name__ == "hstack" and result.dim() > 1 else dim
        if isinstance(pieces, list | tuple) and isinstance(dim, int) and _has_values(result):
            with torch._C.DisableTorchFunctionSubclass():  # a tensor that notes how it is used is not used here
                if join.__name__ == "stack":
                    _note_stack(result, dim % result.dim())
                else:
                    _note(result, [one.shape[dim] for one in pieces if one.dim() == result.dim()], dim)
        return result

    return joined


def _has_values(result: object) -> bool:
    """True for a plain tensor on the host; not while torch traces, compiles, maps or fakes."""
    kind = type(result)
    if not isinstance(result, torch.Tensor) or not (kind is torch.Tensor or kind.__module__.startswith("softmesh.")):
        return False
    if result.layout is not torch.strided or result.is_nested:
        return False
    if torch.jit.is_tracing() or torch.compiler.is_compiling() or not result.is_cpu:
        return False
    return not torch._C._functorch.is_functorch_wrapped_tensor(result) and not torch._C._len_torch_dispatch_stack()


def _note(result: torch.Tensor, extents: Sequence[int], dim: int) -> None:
    if len(extents) > 1:
        _remember(_row(result, dim), tuple(extents))


def _note_stack(result: torch.Tensor, dim: int) -> None:
    """Remember the rows that a reshape makes of what was stacked: side by side, or part by part in turns."""
    for first, row in ((1, result.flatten(1)), (0, result.flatten(0, -2).T)) if result.dim() > 2 else ():
        if first <= dim < first + result.dim() - 1:
            count = result.shape[dim]
            _remember(_row(row, 1), (row.shape[1] // count,) * count if dim == first else ())


def _remember(key: bytes | None, pieces: tuple[int, ...]) -> None:
    if key is not None:
        _JOINS[key] = pieces
        _JOINS.move_to_end(key)
        if len(_JOINS) > _MOST_JOINS:
            _JOINS.popitem(last=False)


def _row(values: torch.Tensor, dim: int, in_order: bool = False) -> bytes | None:
    """The first row along a dim, as bfloat16 has it; None where it tells nothing. `in_order`: of its sorted values."""
    if (
        not values.is_floating_point()
        or not values.is_cpu
        or not 1 < values.shape[dim] <= _LONGEST
        or not values.numel()
    ):
        return None
    row = values.detach().movedim(dim, -1)[(0,) * (values.dim() - 1)].bfloat16()
    if bool((row == row[0]).all()):
        return None
    if in_order:
        row = row.sort().values
    return hashlib.blake2b(row.contiguous().view(torch.int16).numpy().tobytes(), digest_size=16).digest()


def pieces_along(values: torch.Tensor, dim: int) -> tuple[int, ...] | None:
    """The extents of what was joined along a dim of this tensor; () if it was put in another order, None if unknown."""
    if not _JOINS:
        return None
    return _JOINS.get(_row(values, dim) or b"")
