"""Context parallelism: sequences split over a mesh axis, with ring attention. Each device keeps its tokens.

mesh.axis_names = ("dp", "cp")
ids = on_mesh(ids, mesh, {"dp": 0, "cp": 1})
block = ContextParallelBlock(mesh, features, heads, initial, cp="cp")
...
loss.backward()
sync_gradients(model, axes=["dp", "cp"])

Keys and values go round the ring. The loss of each device is the mean over its own tokens, so the gradients of shared
parameters are averaged over the axis, as over that of the data.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch

from softmesh.arguments import checked, checked_int
from softmesh.autograd.function import Context, Function
from softmesh.dispatch.operation import OPERATIONS
from softmesh.errors import ArgumentValueError, MeshError
from softmesh.placement.placements import LOCAL, Shard
from softmesh.runtime.device import MeshDevice
from softmesh.tensor.dtype import DataType
from softmesh.tensor.implicit_operands import device_index_along
from softmesh.tensor.storage import Storage
from softmesh.tensor.tensor import Tensor
from softmesh.train.axes import Axis, axis_number, axis_size, divided, on_mesh
from softmesh.train.blockwise_attention import OP, attention_block, attention_block_gradient
from softmesh.train.layers import Embedding, Initial, MultiHeadAttention, TransformerBlock
from softmesh.train.training_ops import ring_shift

_SEQUENCE_DIM = 2


def ring_attention(
    q: Tensor, k: Tensor, v: Tensor, axis: Axis, *, is_causal: bool = True, scale: float | None = None
) -> Tensor:
    """Attention of (batch, heads, tokens, width) whose tokens follow each other along a mesh axis.

    Keys and values are passed on from device to device, never gathered; the backward pass sends them round once
    more, together with their gradients. Fewer heads of keys and values than of queries are shared by groups.
    """
    mesh = checked(OP, "q", q, Tensor, "a ttnn.Tensor").device()
    if mesh is None:
        raise MeshError(f"{OP}: q is on the host: move it with ttnn.to_device(tensor, mesh_device).")
    factor = int(q.shape[-1]) ** -0.5 if scale is None else scale
    if axis_size(mesh, axis) == 1:
        plain = OPERATIONS["transformer.scaled_dot_product_attention"]
        alone: Tensor = plain(q, k, v, is_causal=is_causal, scale=factor)
        return alone
    along = axis_number(mesh, axis)
    for name, tensor in (("q", q), ("k", k), ("v", v)):
        _check_split(name, tensor, axis, along)
    out: Tensor = _RingAttention.apply(q, k, v, Ring(mesh, along, factor, is_causal))
    return out


def _check_split(name: str, tensor: Tensor, axis: Axis, along: int) -> None:
    """Tokens must be split along the axis, and evenly."""
    word = tensor.view_distribution().placements[along]
    if word is LOCAL or (isinstance(word, Shard) and word.dim == _SEQUENCE_DIM and word.size is None):
        return
    raise MeshError(
        f"{OP}: {name} {tensor.shape} is {word} along mesh axis {axis!r}, and its tokens (dim {_SEQUENCE_DIM}) must be "
        f"split along it in equal parts. Bring the ids to the mesh with on_mesh(ids, mesh, {{{axis!r}: 1}})."
    )


class Ring(NamedTuple):
    """Who passes on to whom, and how scores are made."""

    mesh: MeshDevice
    axis: int
    scale: float
    is_causal: bool

    @property
    def devices(self) -> int:
        return int(self.mesh.shape[self.axis])

    def place(self) -> Tensor:
        return device_index_along(self.mesh, [self.axis], OP)

    def shifted(self, *tensors: Tensor) -> list[Tensor]:
        return [ring_shift(tensor, 1, cluster_axis=self.axis) for tensor in tensors]

    def block_arguments(self, step: int) -> dict[str, Any]:
        return {"step": step, "scale": self.scale, "is_causal": self.is_causal}


class _RingAttention(Function):
    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, ring: Ring) -> Any:
        block, place = [k, v], ring.place()
        found = attention_block(q, *block, place, **ring.block_arguments(0))
        for step in range(1, ring.devices):
            block = ring.shifted(*block)
            found = attention_block(q, *block, place, *found, **ring.block_arguments(step))
        out, weight = found
        ctx.ring = ring
        ctx.save_for_backward(q, k, v, out, weight)
        return _placed_like(q, _rounded(out, q.dtype))

    @staticmethod
    def backward(ctx: Context, gradient: Tensor) -> Any:
        q, k, v, out, weight = ctx.saved_tensors
        ring: Ring = ctx.ring  # type: ignore[attr-defined]
        block, place = [k, v], ring.place()
        so_far: list[Tensor] = []
        for step in range(ring.devices):
            if step:
                block = ring.shifted(*block)
                so_far[1:] = ring.shifted(*so_far[1:])  # a block's gradients go with it
            so_far = list(
                attention_block_gradient(q, *block, place, out, weight, gradient, *so_far, **ring.block_arguments(step))
            )
        so_far[1:] = ring.shifted(*so_far[1:])  # and come home with the last step
        return *(_rounded(each, like.dtype) for each, like in zip(so_far, (q, k, v), strict=True)), None


def _rounded(tensor: Tensor, dtype: DataType) -> Tensor:
    return tensor if tensor.dtype is dtype else OPERATIONS["typecast"](tensor, dtype)


def _placed_like(q: Tensor, out: Tensor) -> Tensor:
    """The result is placed as the queries were, though blocks went round for it."""
    dist, data = q.view_distribution(), out.view_data()
    if tuple(data.shape[: dist.lead]) != dist.extents:
        return out
    return Tensor.make(Storage(data, dist, out.storage.device), out.spec)


def positions(mesh: MeshDevice, tokens: int, cp: Axis | None = None) -> Tensor:
    """(1, tokens / devices) on each device: where in the sequence of `tokens` its own tokens stand."""
    tokens = checked_int("positions", "tokens", tokens)
    if tokens < 1:
        raise ArgumentValueError(f"positions: a sequence has at least one token, got {tokens}.")
    if cp is not None:
        divided("positions: tokens", tokens, mesh, cp)
    counted = torch.arange(tokens, dtype=torch.int32).unsqueeze(0)
    return on_mesh(counted, mesh, {} if cp is None else {cp: 1}, DataType.UINT32)


class PositionalEmbedding(Embedding):
    """A row for each position, added to (batch, 1, tokens, features); with `cp`, of the device's own positions."""

    def __init__(
        self,
        mesh: MeshDevice,
        rows: int,
        features: int,
        initial: Initial,
        *,
        cp: Axis | None = None,
        std: float = 0.02,
    ) -> None:
        super().__init__(mesh, rows, features, initial, std=std)
        self.mesh, self.rows, self.cp = mesh, rows, cp
        self._positions: dict[int, Tensor] = {}

    def forward(self, x: Tensor) -> Tensor:
        tokens = int(x.shape[-2]) * (1 if self.cp is None else axis_size(self.mesh, self.cp))
        if tokens > self.rows:
            raise MeshError(
                f"PositionalEmbedding: a sequence of {tokens} tokens, and there are rows for {self.rows} positions."
            )
        if tokens not in self._positions:
            self._positions[tokens] = positions(self.mesh, tokens, self.cp)
        return OPERATIONS["add"](x, super().forward(self._positions[tokens]))


class ContextParallelAttention(MultiHeadAttention):
    """Causal self-attention of a sequence that is split along `cp`; the heads may be split along `tp`."""

    def __init__(
        self,
        mesh: MeshDevice,
        features: int,
        heads: int,
        initial: Initial,
        *,
        cp: Axis,
        tp: Axis | None = None,
    ) -> None:
        axis_number(mesh, cp)  # an axis that is not there is refused before weights are drawn
        if tp is not None and axis_number(mesh, tp) == axis_number(mesh, cp):
            raise ArgumentValueError(
                f"ContextParallelAttention: tokens and heads cannot both be split along mesh axis {cp!r}."
            )
        self.cp = cp
        super().__init__(mesh, features, heads, initial, tp=tp)

    def attend(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return ring_attention(q, k, v, self.cp)


class ContextParallelBlock(TransformerBlock):
    """A TransformerBlock for a sequence that is split along `cp`, with the weights it would have otherwise."""

    def __init__(
        self,
        mesh: MeshDevice,
        features: int,
        heads: int,
        initial: Initial,
        *,
        cp: Axis,
        tp: Axis | None = None,
    ) -> None:
        self.cp = cp
        super().__init__(mesh, features, heads, initial, tp=tp)

    def make_attention(
        self, mesh: MeshDevice, features: int, heads: int, initial: Initial, tp: Axis | None
    ) -> MultiHeadAttention:
        return ContextParallelAttention(mesh, features, heads, initial, cp=self.cp, tp=tp)
