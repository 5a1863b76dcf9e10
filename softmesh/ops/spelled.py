"""Ops whose arguments have other names in other forms: `scalar` for the tensor beside it, `value` for the third."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from softmesh.arguments import refused
from softmesh.ops.definition import Definition
from softmesh.ops.registry import Operation


class Spelled(Operation):
    """`spellings` has for each other name the one that the definition knows."""

    def __init__(self, definition: Definition, spellings: Mapping[str, str] | None = None) -> None:
        super().__init__(definition)
        self._spellings = spellings or {}

    def _call(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return super()._call(args, self._respelled(kwargs))

    def _respelled(self, kwargs: dict[str, Any]) -> dict[str, Any]:
        if self._spellings.keys().isdisjoint(kwargs):
            return kwargs
        named: dict[str, Any] = {}
        for name, value in kwargs.items():
            known = self._spellings.get(name, name)
            if known in named:
                raise refused(self.name, f"argument {known!r} is given twice, as {name!r} too")
            named[known] = value
        return named
