"""Importing this file registers every op: one line for each family."""

from __future__ import annotations

from softmesh.ops import (  # noqa: F401
    activation,
    binary,
    cache,
    convolution,
    creation,
    embedding,
    head_forms,
    heads,
    layout,
    matmul,
    movement,
    normalization,
    operators,
    paged_fill,
    paged_update,
    reduction,
    rotary,
    softmax,
    unary,
)
from softmesh.ops.attention import chunked, decode, joint, paged_decode, prefill  # noqa: F401
