"""Environment variables that decide what a program does: the ranks of one mesh must agree on their values.

A module that reads such a variable says so where it names it, `STRICT = agreed("SOFTMESH_STRICT")`; the ranks compare
values when they open a mesh together.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Mapping, Sequence

Meaning = Callable[[str], str]
AGREED: dict[str, tuple[str, Meaning]] = {}  # by name: the value that counts where none is set; what a value means
_MOST_BYTES = 8 << 20  # of a file that a variable names
_LONGEST_VALUE = 80


def agreed(name: str, default: str = "", meaning: Meaning = str) -> str:
    """`meaning` gives values the same form that do the same."""
    AGREED[name] = default, meaning
    return name


def switch(value: str) -> str:
    """Return the meaning of a variable that is on with whatever it is set to."""
    return "1"


def agreed_values() -> dict[str, list[str]]:
    """Return the values of this process by name: the form that is compared, and the form that is shown."""
    return {name: [_compared(name), os.environ.get(name, "")[:_LONGEST_VALUE]] for name in AGREED}


def _compared(name: str) -> str:
    default, meaning = AGREED[name]
    value = os.environ.get(name, "").strip()
    if value in ("", "0"):
        return default
    if not os.path.isfile(value):  # to open a pipe would wait for its writer
        return meaning(value)
    try:
        with open(value, "rb") as file:
            return hashlib.blake2b(file.read(_MOST_BYTES), digest_size=8).hexdigest()
    except (OSError, ValueError):
        return value


def difference(ranks: Sequence[int], values: Sequence[Mapping[str, Sequence[str]]]) -> str | None:
    """The first variable on which ranks do not agree, with the value of each; None where they agree on all."""
    unset = ["", ""]
    for name in sorted({name for own in values for name in own}):
        found = {rank: own.get(name, unset) for rank, own in zip(ranks, values, strict=True)}
        if len({compared for compared, _ in found.values()}) > 1:
            told = (
                f"{value!r} on rank {rank}" if value else f"unset on rank {rank}" for rank, (_, value) in found.items()
            )
            return f"{name} is {', '.join(told)}"
    return None
