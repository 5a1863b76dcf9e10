"""Joins on the host: what torch.cat put side by side, and what was put in another order, in strict mode.

A tensor is known again by a row of its values, which survives a transpose, a copy and a change of dtype.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any

import torch

from softmesh.strictness import is_strict

_MOST_JOINS = 1024  # the latest ones are remembered
_LONGEST = 1 << 18  # of a row that is remembered
_CALLS = ("cat", "concat", "concatenate")
_COPIES = ("reshape", "flatten", "contiguous")  # of blocks that were permuted
# The extents of the pieces, by a digest of a row of the result; none where the row was put in another order.
_JOINS: OrderedDict[bytes, tuple[int, ...]] = OrderedDict()


def watch_joins() -> None:
    """Watch torch.cat and copies of permuted blocks from now on in strict mode, and leave them alone otherwise."""
    for name in _CALLS:
        _watch(torch, name, _watched_join)
    for name in _COPIES:
        _watch(torch.Tensor, name, _watched_copy)


def _watch(
    owner: Any, name: str, watched: Callable[[Callable[..., torch.Tensor]], Callable[..., torch.Tensor]]
) -> None:
    call = getattr(owner, name)
    plain = getattr(call, "softmesh_plain", None)
    if is_strict() and plain is None:
        setattr(owner, name, watched(call))
    elif plain is not None and not is_strict():
        setattr(owner, name, plain)


def _watched_copy(copy: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    @wraps(copy)
    def copied(self: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
        result = copy(self, *args, **kwargs)
        if self.dim() > 2 and type(self) is torch.Tensor and _has_values(self) and not self.is_contiguous():
            _note_order(self, result)
        return result

    copied.softmesh_plain = copy  # type: ignore[attr-defined]
    return copied


def _note_order(blocks: torch.Tensor, result: torch.Tensor) -> None:
    """Remember rows of a copy whose blocks lay in another order in one row before."""
    steps = [step for step, n in zip(blocks.stride(), blocks.shape, strict=True) if n > 1]
    if not result.is_contiguous() or not result.numel() or result.dim() < 2:
        return
    for merged, row in ((steps[1:], result.flatten(1)), (steps[:-1], result.flatten(0, -2).T)):
        if merged != sorted(merged, reverse=True):
            _remember(_row(row, 1), ())


def _watched_join(join: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    @wraps(join)
    def joined(*args: Any, **kwargs: Any) -> torch.Tensor:
        result = join(*args, **kwargs)
        pieces = args[0] if args else kwargs.get("tensors", ())
        dim = args[1] if len(args) > 1 else kwargs.get("dim", kwargs.get("axis", 0))
        if isinstance(pieces, list | tuple) and isinstance(dim, int) and _has_values(result):
            with torch._C.DisableTorchFunctionSubclass():  # a tensor that notes how it is used is not used here
                _note(result, [one.shape[dim] for one in pieces if one.dim() == result.dim()], dim)
        return result

    joined.softmesh_plain = join  # type: ignore[attr-defined]
    register = getattr(torch.jit._builtins, "_register_builtin", None)
    if register is not None:  # so that torch.jit.script still knows it
        register(joined, "aten::cat")
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
        _remember(_row(result, dim, in_order=True), ())


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
    found = _JOINS.get(_row(values, dim) or b"")
    return _JOINS.get(_row(values, dim, in_order=True) or b"") if found is None else found
