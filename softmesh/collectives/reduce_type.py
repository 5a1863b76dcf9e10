from __future__ import annotations

from softmesh.native_enum import NativeEnum


class ReduceType(NativeEnum):
    """How contributions combine. Collectives add them."""

    Sum = 0
    Mean = 1
    Max = 2
    Min = 3
    Std = 4
    Var = 5
    Prod = 6
