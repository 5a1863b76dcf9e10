"""Ops that can be called in several forms: how the arguments of one form become those of the op's definition."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from softmesh.arguments import refused
from softmesh.dispatch.definition import Arguments
from softmesh.dispatch.signature import Signature
from softmesh.tensor.tensor import Tensor

Rearrange = Callable[[Signature, tuple[Any, ...], dict[str, Any]], Arguments]


def named_by_position(at: int, names: str) -> Rearrange:
    """Where the argument at position `at` is a tensor, the positional arguments have these `names`."""
    positional = names.split()

    def rearrange(signature: Signature, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Arguments:
        if len(args) <= at or not isinstance(args[at], Tensor):
            return args, kwargs
        if len(args) > len(positional):
            raise refused(signature.op, f"takes {', '.join(positional)} by position, got {len(args)}")
        named = dict(zip(positional, args, strict=False))
        twice = sorted(named.keys() & kwargs.keys())
        if twice:
            raise refused(signature.op, f"argument {twice[0]!r} is given twice")
        return (), named | kwargs

    return rearrange


def one_after_the_other(*steps: Rearrange) -> Rearrange:
    def rearrange(signature: Signature, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Arguments:
        for step in steps:
            args, kwargs = step(signature, args, kwargs)
        return args, kwargs

    return rearrange
