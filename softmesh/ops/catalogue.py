"""Importing this file registers every op: one line for each family."""

from __future__ import annotations

from softmesh.ops import (  # noqa: F401
    activation,
    attention,
    binary,
    cache,
    convolution,
    creation,
    embedding,
    heads,
    layout,
    matmul,
    movement,
    normalization,
    operators,
    reduction,
    unary,
)
