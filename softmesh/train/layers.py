"""Layers, whole or split over a mesh axis. Activations are (batch, 1, tokens, features).

Every layer draws the whole of its weights, in one order whatever the mesh: models of one seed start out the same
on one device and on many.
"""

from __future__ import annotations

import math
from functools import partial

import torch

from softmesh.arguments import checked_function
from softmesh.dispatch.operation import OPERATIONS
from softmesh.errors import ArgumentValueError, MeshError
from softmesh.runtime.device import MeshDevice
from softmesh.tensor.dtype import DataType
from softmesh.tensor.tensor import Tensor
from softmesh.train import training_ops
from softmesh.train.axes import Axis, axis_size, divided
from softmesh.train.collectives import all_gather, all_reduce, broadcast, scatter
from softmesh.train.losses import first_rows
from softmesh.train.module import Module, parameter

_op = OPERATIONS


class Initial:
    """Where first weights come from: one generator for a whole model, and the dtype of its parameters."""

    @partial(checked_function, name="Initial")
    def __init__(self, seed: int = 0, dtype: DataType = DataType.FLOAT32) -> None:
        if not -(1 << 63) <= seed < 1 << 64:
            raise ArgumentValueError("Initial: seed has more than 64 bits.")
        self.generator = torch.Generator().manual_seed(int(seed))
        self.dtype = dtype

    def __repr__(self) -> str:
        return f"Initial(seed={self.generator.initial_seed()}, dtype={self.dtype})"

    def normal(self, *shape: int, std: float) -> torch.Tensor:
        return torch.randn(*shape, generator=self.generator) * std


def _check_sizes(layer: str, **sizes: int) -> None:
    for name, size in sizes.items():
        if size < 1:
            raise ArgumentValueError(f"{layer}: {name} must be at least 1, got {size}.")


class Linear(Module):
    """x @ weight^T + bias, the same on every device. The weight is (1, 1, out, in)."""

    def __init__(
        self,
        mesh: MeshDevice,
        in_features: int,
        out_features: int,
        initial: Initial,
        *,
        bias: bool = True,
        std: float | None = None,
        splits: dict[Axis, int] | None = None,
        bias_splits: dict[Axis, int] | None = None,
    ) -> None:
        _check_sizes("Linear", in_features=in_features, out_features=out_features)
        scale = 1 / math.sqrt(in_features) if std is None else std
        values = initial.normal(1, 1, out_features, in_features, std=scale)
        self.weight = parameter(values, mesh, splits, initial.dtype)
        self.bias = parameter(torch.zeros(1, 1, 1, out_features), mesh, bias_splits, initial.dtype) if bias else None

    def forward(self, x: Tensor) -> Tensor:
        return _op["linear"](x, self.weight, bias=self.bias, transpose_b=True)


class ColumnParallelLinear(Linear):
    """Each device along the axis computes its slice of the outputs, from the whole of x.

    `input_is_broadcast`: the caller has said `broadcast(x, axis)`, for several layers at once.
    """

    def __init__(
        self,
        mesh: MeshDevice,
        in_features: int,
        out_features: int,
        initial: Initial,
        *,
        axis: Axis,
        bias: bool = True,
        gather_output: bool = False,
        input_is_broadcast: bool = False,
        std: float | None = None,
    ) -> None:
        divided("ColumnParallelLinear: out_features", out_features, mesh, axis)
        self.axis, self.gather_output, self.input_is_broadcast = axis, gather_output, input_is_broadcast
        super().__init__(
            mesh,
            in_features,
            out_features,
            initial,
            bias=bias,
            std=std,
            splits={axis: 2},
            bias_splits={axis: 3},
        )

    def forward(self, x: Tensor) -> Tensor:
        out = super().forward(x if self.input_is_broadcast else broadcast(x, self.axis))
        return all_gather(out, 3, self.axis, gradients="replicated") if self.gather_output else out


class RowParallelLinear(Linear):
    """Each device along the axis has a slice of the inputs; the sum of what they compute is everybody's."""

    def __init__(
        self,
        mesh: MeshDevice,
        in_features: int,
        out_features: int,
        initial: Initial,
        *,
        axis: Axis,
        bias: bool = True,
        input_is_parallel: bool = True,
        std: float | None = None,
    ) -> None:
        divided("RowParallelLinear: in_features", in_features, mesh, axis)
        self.axis, self.input_is_parallel = axis, input_is_parallel
        super().__init__(mesh, in_features, out_features, initial, bias=bias, std=std, splits={axis: 3})

    def forward(self, x: Tensor) -> Tensor:
        own = x if self.input_is_parallel else scatter(x, 3, self.axis)
        out = _op["linear"](own, self.weight, transpose_b=True)
        total = all_reduce(out, self.axis, noop_backward=True)
        return total if self.bias is None else _op["add"](total, self.bias)


class Embedding(Module):
    """Rows of a table (1, 1, rows, features), for ids (batch, tokens): (batch, 1, tokens, features)."""

    def __init__(self, mesh: MeshDevice, rows: int, features: int, initial: Initial, *, std: float = 0.02) -> None:
        _check_sizes("Embedding", rows=rows, features=features)
        self.weight = parameter(initial.normal(1, 1, rows, features, std=std), mesh, dtype=initial.dtype)

    def forward(self, ids: Tensor) -> Tensor:
        return _as_rows(_op["embedding"](ids, self.weight), ids)


class VocabParallelEmbedding(Module):
    """Each device along the axis has a slice of the rows, and contributes those of its own."""

    def __init__(
        self,
        mesh: MeshDevice,
        rows: int,
        features: int,
        initial: Initial,
        *,
        axis: Axis,
        std: float = 0.02,
    ) -> None:
        own = divided("VocabParallelEmbedding: rows", rows, mesh, axis)
        values = initial.normal(1, 1, rows, features, std=std)
        self.weight = parameter(values, mesh, {axis: 2}, initial.dtype)
        self.axis = axis
        self._first = first_rows(mesh, axis, own)

    def forward(self, ids: Tensor) -> Tensor:
        found = training_ops.own_embedding(ids, self.weight, self._first)
        return all_reduce(_as_rows(found, ids), self.axis, noop_backward=True)


def _as_rows(found: Tensor, ids: Tensor) -> Tensor:
    batch, tokens = int(ids.shape[0]), int(ids.shape[-1])
    return _op["reshape"](found, (batch, 1, tokens, int(found.shape[-1])))


class LayerNorm(Module):
    def __init__(self, mesh: MeshDevice, features: int, initial: Initial, *, epsilon: float = 1e-5) -> None:
        _check_sizes("LayerNorm", features=features)
        self.weight = parameter(torch.ones(1, 1, 1, features), mesh, dtype=initial.dtype)
        self.bias = parameter(torch.zeros(1, 1, 1, features), mesh, dtype=initial.dtype)
        self.epsilon = epsilon

    def forward(self, x: Tensor) -> Tensor:
        return _op["layer_norm"](x, epsilon=self.epsilon, weight=self.weight, bias=self.bias)


class RMSNorm(Module):
    def __init__(self, mesh: MeshDevice, features: int, initial: Initial, *, epsilon: float = 1e-5) -> None:
        _check_sizes("RMSNorm", features=features)
        self.weight = parameter(torch.ones(1, 1, 1, features), mesh, dtype=initial.dtype)
        self.epsilon = epsilon

    def forward(self, x: Tensor) -> Tensor:
        return _op["rms_norm"](x, epsilon=self.epsilon, weight=self.weight)


def _linear(
    split: type[ColumnParallelLinear] | type[RowParallelLinear],
    mesh: MeshDevice,
    in_features: int,
    out_features: int,
    initial: Initial,
    axis: Axis | None,
    *,
    bias: bool = True,
) -> Linear:
    if axis is None:
        return Linear(mesh, in_features, out_features, initial, bias=bias)
    return split(mesh, in_features, out_features, initial, axis=axis, bias=bias)


# Linears whose outputs, or whose inputs, are split along the axis; whole without one.
column, row = partial(_linear, ColumnParallelLinear), partial(_linear, RowParallelLinear)


class MultiHeadAttention(Module):
    """Causal self-attention; with `tp`, the heads are dealt out along that mesh axis.

    `asking` gives queries, keys and values in one product: its rows are, head by head, those of the three.
    """

    def __init__(
        self, mesh: MeshDevice, features: int, heads: int, initial: Initial, *, tp: Axis | None = None
    ) -> None:
        _check_sizes("MultiHeadAttention", features=features, heads=heads)
        if features % heads:
            raise MeshError(f"MultiHeadAttention: {features} features do not divide among {heads} heads.")
        self.heads = heads if tp is None else divided("MultiHeadAttention: heads", heads, mesh, tp)
        self.width = features // heads
        self.asking = column(mesh, features, 3 * features, initial, tp)
        self.out = row(mesh, features, features, initial, tp)

    def forward(self, x: Tensor) -> Tensor:
        asked = training_ops.split_heads(self.asking(x), self.heads)
        return self.out(training_ops.join_heads(self.attend(*asked)))

    def attend(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return _op["transformer.scaled_dot_product_attention"](q, k, v, is_causal=True)


class MLP(Module):
    def __init__(
        self, mesh: MeshDevice, features: int, hidden: int, initial: Initial, *, tp: Axis | None = None
    ) -> None:
        self.up = column(mesh, features, hidden, initial, tp)
        self.down = row(mesh, hidden, features, initial, tp)

    def forward(self, x: Tensor) -> Tensor:
        return self.down(_op["gelu"](self.up(x)))


class TransformerBlock(Module):
    """Attention and an MLP, each behind a norm and beside what goes past it."""

    def __init__(
        self, mesh: MeshDevice, features: int, heads: int, initial: Initial, *, tp: Axis | None = None
    ) -> None:
        self.norm_1 = LayerNorm(mesh, features, initial)
        self.attention = self.make_attention(mesh, features, heads, initial, tp)
        self.norm_2 = LayerNorm(mesh, features, initial)
        self.mlp = MLP(mesh, features, 4 * features, initial, tp=tp)

    def make_attention(
        self, mesh: MeshDevice, features: int, heads: int, initial: Initial, tp: Axis | None
    ) -> MultiHeadAttention:
        return MultiHeadAttention(mesh, features, heads, initial, tp=tp)

    def forward(self, x: Tensor) -> Tensor:
        x = _op["add"](x, self.attention(self.norm_1(x)))
        return _op["add"](x, self.mlp(self.norm_2(x)))


def tensor_parallel(mesh: MeshDevice, axis: Axis | None) -> Axis | None:
    """The axis, where it has several devices to split over."""
    return None if axis is None or axis_size(mesh, axis) == 1 else axis
