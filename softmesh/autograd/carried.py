"""A gradient whose leading dims have other extents than the value it belongs to.

What devices agree on is stored once, and gradients follow other laws of agreement than values do: a weight
that all devices share gets a gradient from each of them, and devices with different pieces may get the same
gradient. torch's engine wants a gradient of the value's own shape, and would add up what is larger. A
`Carried` gradient shows the engine the value's shape and holds its own values inside; all the engine does
with it is to add it to others.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

_ADDITIONS = (torch.ops.aten.add.Tensor, torch.ops.aten.add_.Tensor)
_COPIES = (torch.ops.aten.detach.default, torch.ops.aten.alias.default, torch.ops.aten.clone.default)


class Carried(torch.Tensor):
    held: torch.Tensor

    @staticmethod
    def __new__(cls, values: torch.Tensor, shape: Sequence[int]) -> Carried:
        carried: Carried = torch.Tensor._make_wrapper_subclass(
            cls, tuple(shape), dtype=values.dtype, device=values.device
        )
        carried.held = values
        return carried

    def __repr__(self, *, tensor_contents: Any = None) -> str:  # type: ignore[override]
        return f"Carried({list(self.held.shape)} for {list(self.shape)})"

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]
        cls, func: Callable[..., Any], types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        if func in _ADDITIONS:
            return Carried(values_of(args[0]) + values_of(args[1]), args[0].shape)
        if func in _COPIES:
            return Carried(args[0].held, args[0].shape)
        if func is torch.ops.aten._to_copy.default:
            return Carried(args[0].held.to(**(kwargs or {})), args[0].shape)
        raise NotImplementedError(
            f"{func} of a gradient that differs from device to device: read it with Tensor.grad."
        )


def carry(values: torch.Tensor, shape: Sequence[int]) -> torch.Tensor:
    """A gradient for a value of this shape; as it is where the shape fits."""
    return values if values.shape == tuple(shape) else Carried(values, shape)


def values_of(gradient: torch.Tensor) -> torch.Tensor:
    return gradient.held if isinstance(gradient, Carried) else gradient
