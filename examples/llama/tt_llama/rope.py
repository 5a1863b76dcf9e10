"""Rotary position embeddings: tables of cosines and sines, and the matrix that turns pairs of columns.

Checkpoints of Hugging Face pair column i of a head with column i + head_dim / 2; the chips pair neighbours. So the
rows of the query and key weights change places once, when they are loaded.
"""

from __future__ import annotations

import math

import torch
import ttnn

from tt_llama.model_args import TILE, ModelArgs, RopeScaling
from tt_llama.tensor_parallel import TensorParallel


def frequencies(args: ModelArgs) -> torch.Tensor:
    """Radians per position, for each pair of columns."""
    pairs = torch.arange(0, args.head_dim, 2, dtype=torch.float64)
    plain = args.rope_theta ** (-pairs / args.head_dim)
    return plain if args.rope_scaling is None else _stretched(plain, args.rope_scaling)


def _stretched(plain: torch.Tensor, scaling: RopeScaling) -> torch.Tensor:
    low, high = scaling.low_freq_factor, scaling.high_freq_factor
    turns = scaling.original_max_position_embeddings * plain / (2 * math.pi)
    kept = ((turns - low) / (high - low)).clamp(0, 1)
    return kept * plain + (1 - kept) * plain / scaling.factor


def angles(args: ModelArgs, length: int) -> torch.Tensor:
    """(length, head_dim / 2)"""
    return torch.arange(length, dtype=torch.float64).unsqueeze(1) * frequencies(args)


def neighbours_paired(weight: torch.Tensor, head_dim: int) -> torch.Tensor:
    """A query or key weight (heads * head_dim, hidden) for pairs of neighbouring columns."""
    halves = weight.reshape(-1, 2, head_dim // 2, weight.shape[1])
    return halves.transpose(1, 2).reshape(weight.shape)


class Rope:
    def __init__(self, tp: TensorParallel, args: ModelArgs, length: int) -> None:
        each_column = angles(args, length).repeat_interleave(2, dim=1)
        self._cos, self._sin = (table.float() for table in (each_column.cos(), each_column.sin()))
        self._tp = tp
        self._tables = [tp.put(table, layout=ttnn.ROW_MAJOR_LAYOUT) for table in (self._cos, self._sin)]
        self.turning = tp.put(_turning_matrix())

    def of_sequence(self, length: int) -> tuple[ttnn.Tensor, ttnn.Tensor]:
        """cos and sin of positions 0 to length - 1, [1, 1, length, head_dim]."""
        cos, sin = (self._tp.put(table[None, None, :length]) for table in (self._cos, self._sin))
        return cos, sin

    def of_users(self, positions: ttnn.Tensor) -> tuple[ttnn.Tensor, ttnn.Tensor]:
        """cos and sin of each user's position [1, users], [1, users, 1, head_dim]."""
        cos, sin = (self._rows(table, positions) for table in self._tables)
        return cos, sin

    def _rows(self, table: ttnn.Tensor, positions: ttnn.Tensor) -> ttnn.Tensor:
        rows = ttnn.embedding(positions, table, layout=ttnn.TILE_LAYOUT)
        return ttnn.transpose(ttnn.unsqueeze_to_4D(rows), 1, 2)


def _turning_matrix() -> torch.Tensor:
    """[1, 1, 32, 32]: columns (a, b) of each pair become (-b, a)."""
    matrix = torch.zeros(1, 1, TILE, TILE)
    first = torch.arange(0, TILE, 2)
    matrix[..., first, first + 1] = 1
    matrix[..., first + 1, first] = -1
    return matrix
