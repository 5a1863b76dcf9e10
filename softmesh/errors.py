"""Exceptions and warnings, one family of each.

Where TT-NN raises, it raises RuntimeError (its native checks), TypeError (its bindings), ValueError or
IndexError (its Python helpers). Users' tests catch those, so each error here is also one of them; the
first line of a message holds TT-NN's own words where it has any, what follows says cause and remedy.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import Any

from softmesh.terminal_text import printable


class _Printable(Exception):
    """Text in printable words: names of files, of users' functions and of a file's content come into it."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*(printable(said) if isinstance(said, str) else said for said in args), **kwargs)


class SoftmeshError(_Printable):
    """Every error raised on purpose."""


class MeshError(SoftmeshError, RuntimeError):
    """What TT-NN's native layer refuses: the caller asked for something that cannot be."""


class ArgumentError(SoftmeshError, TypeError):
    """An argument of the wrong kind, or a name the operation does not have."""


class ArgumentValueError(SoftmeshError, ValueError):
    """An argument of the right kind whose value cannot be used."""


class TensorIndexError(SoftmeshError, IndexError):
    """An index outside the tensor."""


class NotModelled(SoftmeshError, AttributeError, NotImplementedError):
    """TT-NN has it; softmesh does not, yet."""


class UnknownNameError(SoftmeshError, AttributeError):
    """A name that TT-NN does not have, and softmesh neither."""


class PartialError(MeshError):
    """In strict mode: a value that is still a partial sum was used as if it were whole."""


class OutOfDeviceMemory(MeshError):
    """A buffer or tensor for which the chips have no room."""


class OutOfHostMemory(MeshError):
    """The machine that simulates the chips has no room left."""


class OutOfGpuMemory(MeshError):
    """The card that holds the values of the chips has no room for more."""


class GpuFailure(MeshError):
    """The card that holds the values of the chips works no more."""


class SanitizerError(MeshError):
    """In strict mode: what the sanitizer found."""


class SoftmeshWarning(_Printable, UserWarning):
    """Every warning given on purpose; an error under SOFTMESH_STRICT=1."""


class GpuRemark(_Printable, UserWarning):
    """What a program on a GPU does in another way than one would expect: its values are the same."""


class PartialWarning(SoftmeshWarning):
    """A value that is still a partial sum was used as if it were whole: a collective is missing."""


class FabricWarning(SoftmeshWarning):
    """A fabric that nobody configured was brought up, because a unified op had to communicate."""


class DeviceMemoryWarning(SoftmeshWarning):
    """More memory is in use than the chips have; told under SOFTMESH_MEMORY=track."""


class SanitizerWarning(SoftmeshWarning):
    """The sanitizer found accesses that nothing orders, or memory that is used for two things at once."""


_LONGEST_NAME = 80  # comparing names takes as long as the product of their lengths


def did_you_mean(wrong: str, known: Iterable[str], cutoff: float = 0.6) -> str:
    """`" Did you mean 'memory_config'?"`, or nothing where no known name is near.

    >>> did_you_mean("memory_confg", ["dtype", "memory_config"])
    " Did you mean 'memory_config'?"
    """
    if len(wrong) > _LONGEST_NAME:
        return ""
    near = difflib.get_close_matches(wrong, list(known), n=1, cutoff=cutoff)
    return f" Did you mean {near[0]!r}?" if near else ""


def ranges_text(numbers: Iterable[int]) -> str:
    """
    >>> ranges_text([1, 3, 4, 5, 8])
    '1, 3-5, 8'
    """
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return ", ".join(str(first) if first == last else f"{first}-{last}" for first, last in runs)
