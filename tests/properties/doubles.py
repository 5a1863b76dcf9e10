"""Everything that is stored or computed in float32 or bfloat16, in float64: for derivatives by differences."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.autograd.graph import _engine_run_backward
from torch.overrides import TorchFunctionMode

from softmesh.dispatch.operation import OPERATIONS

_NARROW = (torch.float32, torch.bfloat16)
_METHODS = {torch.Tensor.float: torch.Tensor.double, torch.Tensor.bfloat16: torch.Tensor.double}


class _InDouble(TorchFunctionMode):
    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        named = {name: _wide(value) for name, value in (kwargs or {}).items()}
        if func is torch.Tensor.backward:
            with self:
                return _run_graph(args[0], bool(named.get("retain_graph")))
        return _METHODS.get(func, func)(*map(_wide, args), **named)


def _run_graph(loss: torch.Tensor, keep: bool) -> None:
    """As torch.autograd.backward, which is a torch function: while a mode handles one, it sees no other."""
    _engine_run_backward(
        (loss,), (torch.ones_like(loss),), keep, False, (), allow_unreachable=True, accumulate_grad=True
    )


def _wide(value: Any) -> Any:
    return torch.float64 if any(value is dtype for dtype in _NARROW) else value


@contextmanager
def in_double() -> Iterator[None]:
    """Tensors made inside are stored in float64, whatever their spec says. They are of no use outside."""
    before = torch.get_default_dtype()
    _forget_plans()
    torch.set_default_dtype(torch.float64)
    try:
        with _InDouble():
            yield
    finally:
        torch.set_default_dtype(before)
        _forget_plans()


def _forget_plans() -> None:
    """They know the dtypes of what they were made for."""
    for op in OPERATIONS.values():
        op.forget_plans()
