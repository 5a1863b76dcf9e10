"""Division and rounding of whole numbers, upwards."""

from __future__ import annotations


def divup(a: int, b: int) -> int:
    """How many times `b` it takes to reach `a`.

    >>> divup(33, 32)
    2
    """
    return -(-a // b)


def roundup(a: int, b: int) -> int:
    """The first multiple of `b` that is not below `a`.

    >>> roundup(33, 32)
    64
    """
    return divup(a, b) * b
