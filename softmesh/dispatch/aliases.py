"""Ops whose arguments have other names in other forms: `scalar` for the tensor beside it, `value` for the third."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from softmesh.dispatch.definition import Definition
from softmesh.dispatch.operation import Operation


class Spelled(Operation):
    """`spellings` has for each other name the one that the definition knows."""

    def __init__(self, definition: Definition, spellings: Mapping[str, str] | None = None) -> None:
        if spellings:
            definition = replace(definition, signature=definition.signature.spelled(spellings))
        super().__init__(definition)
