"""Wrong arguments to an op, told as TT-NN tells them: the op, what it was called with, how it can be called."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from softmesh.arguments import described
from softmesh.errors import ArgumentError
from softmesh.tensor.tensor import Tensor

if TYPE_CHECKING:
    from softmesh.dispatch.signature import Signature

_OPENING = re.compile(r"\s*\S{1,200}\(\): incompatible function arguments[:.] ")


class CallRefused(ArgumentError):
    """An ArgumentError that tells the whole call."""


def refused_call(
    name: str, signature: Signature, error: ArgumentError, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> CallRefused:
    if isinstance(error, CallRefused):
        return error
    text = str(error)
    opening = _OPENING.match(text)  # searched for, it takes the square of the length of a long argument
    cause = text[opening.end() :] if opening else text
    ways = "".join(f"\n    {name}{text}" for text in signature.texts())
    return CallRefused(
        f"\n{name}(): incompatible function arguments. {cause}\n"
        f"Called with: ({called_with(args, kwargs)})\nAvailable signatures:{ways}"
    )


def called_with(args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
    return ", ".join([*map(_shown, args), *(f"{key}={_shown(value)}" for key, value in kwargs.items())])


def _shown(value: object) -> str:
    if isinstance(value, Tensor):
        return f"ttnn.Tensor({list(value.shape)}, {value.dtype.name}, {value.layout.name})"
    return described(value)
