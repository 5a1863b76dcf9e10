"""Operand, a tensor as an op's definition sees it: shape, dtype, layout; no values, no mesh."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from softmesh.arguments import checked_int, name_kind
from softmesh.errors import MeshError
from softmesh.tensor.dtype import FACTS, DataType, Layout
from softmesh.tensor.spec import TensorSpec


class Operand(NamedTuple):
    op: str  # the op it is an operand of, for messages
    name: str
    spec: TensorSpec
    on_host: bool = False

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.spec.shape)

    @property
    def rank(self) -> int:
        return len(self.spec.shape)

    @property
    def dtype(self) -> DataType:
        return self.spec.dtype

    @property
    def layout(self) -> Layout:
        return self.spec.layout

    @property
    def is_float(self) -> bool:
        return FACTS[self.spec.dtype].is_float

    def dim(self, dim: int, argument: str = "dim") -> int:
        """`dim` counted from the front, or an error that names the argument and the range."""
        rank = self.rank
        at = checked_int(self.op, argument, dim)
        if not -rank <= at < rank:
            allowed = f"use {-rank} to {rank - 1}" if rank else "it has no dims"
            raise MeshError(
                f"{self.op}: {argument}={at} is out of range for {self.name} of shape {list(self.shape)}: {allowed}."
            )
        return at % rank

    def from_end(self, dim: int, argument: str = "dim") -> int:
        """`dim` counted from the end: the same dim whatever mesh dims stand in front."""
        return self.dim(dim, argument) - self.rank

    def dims(self, dims: int | Sequence[int] | None, argument: str = "dim") -> tuple[int, ...]:
        """One, several or (None) all dims, counted from the front, each once."""
        if dims is None:
            return tuple(range(self.rank))
        chosen = list(dims) if isinstance(dims, Sequence) else [dims]
        found = tuple(self.dim(dim, argument) for dim in chosen)
        if len(set(found)) != len(found):
            raise MeshError(f"{self.op}: {argument}={dims} names a dim twice.")
        return found


Value = Operand | float | int  # a tensor or a number
name_kind(Operand, "a ttnn.Tensor", several="tensors")
name_kind(DataType, "a ttnn dtype such as ttnn.bfloat16")
name_kind(Layout, "ttnn.TILE_LAYOUT or ttnn.ROW_MAJOR_LAYOUT")
