"""Arguments of kernels: 32-bit words, checked when they are given."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from softmesh.arguments import checked_int, checked_ints, refused
from softmesh.errors import MeshError

MOST_WORDS = 341  # what every kernel may have in all, its own and the common ones together


def checked_words(where: str, name: str, values: Iterable[int]) -> list[int]:
    words = checked_ints(where, name, values)
    for i, word in enumerate(words):
        _check(where, f"{name}[{i}]", word)
    return words


def _check(where: str, name: str, word: int) -> int:
    if not 0 <= word < 2**32:
        raise refused(
            where, f"{name} must fit 32 bits, 0 to {2**32 - 1}, got {word}; value & 0xFFFFFFFF makes it fit"
        )
    return word


class RuntimeArgsData(list[int]):
    """The arguments of a kernel on one core, or those that all share. Words may be set; their number stays."""

    def __setitem__(self, index: Any, value: Any) -> None:
        if isinstance(index, slice):
            words = checked_words("RuntimeArgsData", "words", value)
            if len(words) != len(self[index]):
                raise MeshError(_fixed(len(self)))
            super().__setitem__(index, words)
        else:
            word = checked_int("RuntimeArgsData", f"[{index}]", value)
            super().__setitem__(index, _check("RuntimeArgsData", f"[{index}]", word))

    def replace(self, words: Sequence[int]) -> None:
        if len(words) != len(self):
            raise MeshError(_fixed(len(self), len(words)))
        super().__setitem__(slice(None), words)

    def _refuse(self, *_: object, **__: object) -> None:
        raise MeshError(_fixed(len(self)))

    append = extend = insert = pop = remove = clear = __delitem__ = __iadd__ = __imul__ = _refuse  # type: ignore[assignment]


def _fixed(have: int, given: int | None = None) -> str:
    got = "" if given is None else f", not {given}"
    return (
        f"Number of runtime args must not change: this kernel was given {have} first{got}. Give as many again, or make "
        "another program."
    )
