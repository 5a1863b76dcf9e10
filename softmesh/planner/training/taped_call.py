"""A call that was made of tensors which ask for a gradient, and what the rules of gradients are made of."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch

from softmesh.dispatch.operation import OPERATIONS
from softmesh.hardware.enums import DataType
from softmesh.tensor.tensor import Tensor

Gradient = Tensor | float  # one number for all elements, as a loss begins with
Found = Mapping[str, Any]  # gradients by the names of operands


class Constants(Protocol):
    def put(self, name: str, values: torch.Tensor, dtype: DataType, like: Tensor) -> Tensor:
        """A tensor beside `like`, which is a leaf of the graph; the same one for the same name and shape."""
        ...


@dataclass(frozen=True)
class TapedCall:
    op: str
    arguments: Mapping[str, Any]  # by the names of the op's signature
    results: tuple[Tensor, ...]
    constants: Constants
    site: str
    rule: Rule | None
    saved: Any = None  # by the forward of a composite, for its gradient

    def __getitem__(self, name: str) -> Any:
        return self.arguments[name]

    def needs(self, name: str) -> bool:
        """Whether this operand leads to a parameter."""
        return asks_for_gradient(self.arguments.get(name))


Rule = Callable[[TapedCall, Any], Found]  # of the gradient of the result, or of a list of them where there are several


def asks_for_gradient(value: Any) -> bool:
    data = value.storage.data if isinstance(value, Tensor) else None
    return data is not None and data.requires_grad


def op(name: str) -> Callable[..., Any]:
    return OPERATIONS[name]


def scaled(value: Tensor, factor: Gradient) -> Tensor:
    is_one = isinstance(factor, float) and factor == 1.0
    made: Tensor = value if is_one else op("multiply")(value, factor)
    return made


def shaped(value: Tensor, shape: Sequence[int]) -> Tensor:
    made: Tensor = value if tuple(value.shape) == tuple(shape) else op("reshape")(value, tuple(shape))
    return made


def summed_to(gradient: Tensor, shape: Sequence[int]) -> Tensor:
    """Over the dims along which an operand of this shape was repeated."""
    extents = (1,) * (len(gradient.shape) - len(shape)) + tuple(shape)
    for dim, (n, own) in enumerate(zip(tuple(gradient.shape), extents, strict=True)):
        if own == 1 and n > 1:
            gradient = op("sum")(gradient, dim, True)
    return shaped(gradient, shape)


def rows_of(value: Tensor) -> Tensor:
    """All but the last dim as one, behind as many dims of 1 as there were."""
    *lead, width = tuple(value.shape)
    return shaped(value, (*(1,) * (len(lead) - 1), math.prod(lead), width))
