"""Which op has which reference."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

Reference = Callable[
    ..., Any
]  # torch tensors, by the op's own parameter names or in the order of its operands

REFERENCES: dict[str, Reference] = {}


def reference(*names: str) -> Callable[[Reference], Reference]:
    """The decorated function is the reference of these ops; its parameters are some of theirs, by name."""

    def add(function: Reference) -> Reference:
        for name in names:
            REFERENCES[name] = function
        return function

    return add


def plain_references(functions: Mapping[str, Callable[..., Any]]) -> None:
    """References that take an op's operands in their order, and nothing else."""
    for name, function in functions.items():
        REFERENCES[name] = _Plain(function)


class _Plain:
    """A function of the operands alone."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function

    def __call__(self, *operands: Any) -> Any:
        return self.function(*operands)


def is_plain(function: Reference) -> bool:
    return isinstance(function, _Plain)
