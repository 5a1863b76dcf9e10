"""Ops of two forms, told apart by whether one argument is a tensor: positions then stand for other names."""

from __future__ import annotations

from typing import Any

from softmesh.arguments import refused
from softmesh.dispatch.definition import Definition
from softmesh.dispatch.operation import Operation
from softmesh.tensor.tensor import Tensor


class Overloaded(Operation):
    """Where the argument at position `at` is a tensor, the positional arguments have these `names`."""

    def __init__(self, definition: Definition, at: int, names: str) -> None:
        super().__init__(definition)
        self._at = at
        self._positional = names.split()

    def _call(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if len(args) <= self._at or not isinstance(args[self._at], Tensor):
            return super()._call(args, kwargs)
        if len(args) > len(self._positional):
            raise refused(self.name, f"takes {', '.join(self._positional)} by position, got {len(args)}")
        named = dict(zip(self._positional, args, strict=False))
        twice = sorted(named.keys() & kwargs.keys())
        if twice:
            raise refused(self.name, f"argument {twice[0]!r} is given twice")
        return super()._call((), named | kwargs)
