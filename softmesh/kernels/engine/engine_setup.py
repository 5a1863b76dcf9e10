"""What the engines of a core are set up for: the op of matrix and vector engine, the formats of unpackers and packer.

An op does not set them up by itself: on a chip it runs with whatever the last init call has left there.
"""

from __future__ import annotations

from typing import NamedTuple

from softmesh.tensor.dtype import DataType


class Format(NamedTuple):
    """Of the circular buffer that an unpacker or the packer was set up with."""

    cb: int
    dtype: DataType | None  # None where the core has no such circular buffer


class EngineSetup:
    def __init__(self) -> None:
        self.matrix_op = ""
        self.variant: tuple[str, ...] = ()  # of that op, as far as its init has said: what is reduced, or broadcast
        self.accumulates = False  # element-wise ops add to what is in the register
        self.transposes = False  # products take their second operand transposed
        self.vector_op = ""
        self.is_started = False  # some call has set up unpackers and packer
        self.source_a: Format | None = None  # None: nobody has said
        self.source_b: Format | None = None
        self.packed: Format | None = None


def agrees(format: Format | None, dtype: DataType) -> bool:
    return format is None or format.dtype is dtype
