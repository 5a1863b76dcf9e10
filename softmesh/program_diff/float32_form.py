"""A form of a program to compare it with, in float32: it is the same, what it asks for is answered otherwise."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from softmesh.dispatch.entry_point import EntryPoint, Proceed, intercepting
from softmesh.hardware.enums import DataType

_LIFTED = (DataType.BFLOAT16, DataType.BFLOAT8_B, DataType.BFLOAT4_B, DataType.FP8_E4M3)


@contextmanager
def in_float32() -> Iterator[None]:
    """Every call that asks for a coarser type gets float32."""

    def lifted(op: EntryPoint, args: tuple[Any, ...], kwargs: dict[str, Any], proceed: Proceed) -> Any:
        return proceed(*map(_wide, args), **{name: _wide(value) for name, value in kwargs.items()})

    with intercepting(lifted):
        yield


def _wide(value: Any) -> Any:
    if isinstance(value, DataType):
        return DataType.FLOAT32 if value in _LIFTED else value
    if isinstance(value, torch.Tensor) and value.dtype in (torch.bfloat16, torch.float16):
        return value.float()
    return value
