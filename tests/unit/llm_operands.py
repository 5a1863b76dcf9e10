"""Operands of attention and caches, and the textbook forms that tests compare with."""

from __future__ import annotations

import torch
from operands import R, Words, put

import softmesh as ttnn


def ints(values: object, device: ttnn.MeshDevice, words: Words = (R, R)) -> ttnn.Tensor:
    given = values if isinstance(values, torch.Tensor) else torch.tensor(values)
    return put(given.to(torch.int32), device, words, ttnn.int32, ttnn.ROW_MAJOR_LAYOUT)


def attention(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    visible: torch.Tensor | None = None,
    scale: float | None = None,
    sink: torch.Tensor | None = None,
) -> torch.Tensor:
    """In float64, head by head copies and all; queries that see nothing get 0."""
    q, k, v = (x.double() for x in (q, k, v))
    k, v = (x.repeat_interleave(q.shape[1] // k.shape[1], 1) for x in (k, v))
    factor = q.shape[-1] ** -0.5 if scale is None else scale
    scores = q @ k.transpose(-2, -1) * factor
    if visible is not None:
        scores = scores.masked_fill(~visible, float("-inf"))
    if sink is not None:
        column = (sink.double() * factor).expand(*scores.shape[:-1], 1)
        scores = torch.cat([scores, column], -1)
        v = torch.nn.functional.pad(v, (0, 0, 0, 1))
    return (torch.softmax(scores, -1).nan_to_num() @ v).float()


def in_pages(cache: torch.Tensor, table: torch.Tensor) -> torch.Tensor:
    """[users, heads, positions, width] of blocks [n, heads, block, width]."""
    return cache[table.long()].transpose(1, 2).flatten(2, 3)


def some_pages(users: int, pages: int, blocks: int) -> torch.Tensor:
    order = torch.randperm(blocks, generator=torch.Generator().manual_seed(7))
    return order[: users * pages].reshape(users, pages)


def assert_close(result: ttnn.Tensor, expected: torch.Tensor, tolerance: float = 2e-5) -> None:
    torch.testing.assert_close(ttnn.compose(result).float(), expected.float(), rtol=tolerance * 10, atol=tolerance)
