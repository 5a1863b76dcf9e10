"""The memories of a chip that buffers can lie in."""

from __future__ import annotations

from softmesh.native_enum import NativeEnum


class BufferType(NativeEnum):
    """The memory a buffer is in."""

    DRAM = 0
    L1 = 1
    L1_SMALL = 3
    TRACE = 4
