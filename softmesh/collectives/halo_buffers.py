"""Halo buffers: the borders that pieces of a picture get from their neighbours, kept apart from the pieces, or put
around them (neighbor_pad_halo, halo_scatter).
"""

from __future__ import annotations

from typing import Any

import torch

from softmesh.collectives.exchange_collectives import neighbor_pad_async
from softmesh.collectives.overload_signatures import composite
from softmesh.dispatch.cost_rules import moves_bytes
from softmesh.dispatch.definition import Definition
from softmesh.dispatch.operand import Operand
from softmesh.dispatch.operation import Operation, operation
from softmesh.dispatch.plan import Local
from softmesh.dispatch.signature import Signature
from softmesh.errors import MeshError, NotModelled
from softmesh.ops.data_movement.layout_conversion import copy
from softmesh.ops.data_movement.shape_ops import reshape
from softmesh.placement import rules
from softmesh.tensor.broadcasting import broadcast_shapes
from softmesh.tensor.dtype import Layout
from softmesh.tensor.tensor import Tensor

_PAD = "experimental.neighbor_pad_halo"
_SCATTER = "experimental.halo_scatter"


def _border(x: Operand, *, height: int, width: int) -> Local:
    """[..., H, W, C], with the border around it -> [pixels, C]"""

    def compute(data: torch.Tensor) -> torch.Tensor:
        lead = data.dim() - x.rank
        frames = data.reshape(*data.shape[:lead], -1, *x.shape[-3:])
        rows, columns = frames.shape[-3], frames.shape[-2]
        inner = frames.narrow(-2, width, columns - 2 * width)
        parts = [
            inner.narrow(-3, 0, height),
            inner.narrow(-3, rows - height, height),
            frames.narrow(-2, 0, width),
            frames.narrow(-2, columns - width, width),
        ]
        pixels = torch.cat([part.flatten(-3, -2) for part in parts], -2)
        return pixels.flatten(-3, -2)

    return Local(compute, rules.opaque)


_take_border = Operation(Definition(_PAD, _border, Signature(_PAD, _border, [], []), moves_bytes, "data"))


@composite(
    _PAD,
    "input:tensor halo_buffer:tensor np_padding_h:int np_padding_w:int np_cluster_axis:int np_num_links:int "
    "np_topology:topology h_neighbor_semaphore:semaphores barrier_semaphore w_neighbor_semaphore:semaphores "
    "np_pad_dim2:int np_pad2_left:int np_pad2_right:int np_pad2_cluster_axis:int np_pad2_num_links:int | "
    "padding_mode? memory_config? input_pad_h:int? input_pad_w:int? padded_output? border_only?",
)
def neighbor_pad_halo(
    input: Tensor,
    halo_buffer: Tensor,
    np_padding_h: int,
    np_padding_w: int,
    np_cluster_axis: int,
    np_pad_dim2: int,
    np_pad2_left: int,
    np_pad2_right: int,
    np_pad2_cluster_axis: int,
    barrier_semaphore: Any,
    h_neighbor_semaphore: Any,
    np_topology: Any,
    np_num_links: int,
    np_pad2_num_links: int,
    padding_mode: str = "zeros",
    **given: Any,
) -> Tensor:
    """The border of each piece [..., H, W, C], into `halo_buffer`, which must hold just that many pixels.

    Rows come along `np_cluster_axis`, columns of dim `np_pad_dim2` along `np_pad2_cluster_axis`.
    """
    for name in ("input_pad_h", "input_pad_w", "padded_output", "border_only"):
        if given.get(name):
            raise NotModelled(
                f"{_PAD}: {name} is not modelled, its meaning is not documented: use ttnn.experimental."
                "neighbor_pad_async, which gives the piece with its border."
            )
    rank = len(input.shape)
    if rank < 3 or np_pad_dim2 % rank != rank - 2:
        raise MeshError(
            f"{_PAD}: takes [..., H, W, C] and np_pad_dim2={rank - 2}, the dim of W; got {list(input.shape)} and "
            f"np_pad_dim2={np_pad_dim2}."
        )
    if {np_pad2_left, np_pad2_right} != {np_padding_w}:
        raise NotModelled(
            f"{_PAD}: columns are added on both sides alike here: np_pad2_left={np_pad2_left}, np_pad2_right="
            f"{np_pad2_right} and np_padding_w={np_padding_w} must be equal."
        )
    padded = neighbor_pad_async(
        input,
        [rank - 3, rank - 2],
        [np_padding_h, np_padding_w],
        [np_padding_h, np_padding_w],
        padding_mode,
        [np_cluster_axis, np_pad2_cluster_axis],
        h_neighbor_semaphore,
        barrier_semaphore,
        num_links=[np_num_links, np_pad2_num_links],
        topology=np_topology,
    )
    border = _take_border(padded, height=np_padding_h, width=np_padding_w)
    if border.spec.logical_volume() != halo_buffer.spec.logical_volume():
        raise MeshError(
            f"{_PAD}: halo_buffer {list(halo_buffer.shape)} must hold the {border.shape[0]} pixels of "
            f"{border.shape[1]} values of the border of {list(input.shape)}."
        )
    return copy(reshape(border, list(halo_buffer.shape)), halo_buffer)


@operation(_SCATTER, cost=moves_bytes, precision="data", controls="memory_config")
def halo_scatter(
    compact_buffer: Operand,
    interior_src: Operand,
    np_padding_h: int,
    np_padding_w: int,
    *,
    border_only: bool = False,
) -> Local:
    """A piece [..., H, W, C] with the border that neighbor_pad_halo made: [..., H + 2 h, W + 2 w, C]."""
    if border_only:
        raise NotModelled(
            f"{_SCATTER}: border_only is not modelled, what it leaves inside is not documented."
        )
    high, wide = np_padding_h, np_padding_w
    if interior_src.rank < 3 or min(high, wide) < 0:
        raise MeshError(f"{_SCATTER}: interior_src must be [..., H, W, C], got {list(interior_src.shape)}.")
    if interior_src.layout is not Layout.ROW_MAJOR or compact_buffer.layout is not Layout.ROW_MAJOR:
        raise MeshError(
            f"{_SCATTER}: takes ROW_MAJOR tensors: use ttnn.to_layout(tensor, ttnn.ROW_MAJOR_LAYOUT)."
        )
    rows, columns, width = interior_src.shape[-3:]
    frames = interior_src.spec.logical_volume() // max(rows * columns * width, 1)
    sizes = [high * columns] * 2 + [(rows + 2 * high) * wide] * 2
    if compact_buffer.spec.logical_volume() != frames * sum(sizes) * width:
        raise MeshError(
            f"{_SCATTER}: compact_buffer {list(compact_buffer.shape)} must hold {frames * sum(sizes)} pixels of "
            f"{width} values, the border of {list(interior_src.shape)}."
        )
    shape = (*interior_src.shape[:-3], rows + 2 * high, columns + 2 * wide, width)

    def compute(border: torch.Tensor, inside: torch.Tensor) -> torch.Tensor:
        lead = inside.dim() - interior_src.rank
        axes = broadcast_shapes(border.shape[:lead], inside.shape[:lead])
        pixels = border.reshape(*border.shape[:lead], frames, sum(sizes), width)
        pixels = pixels.expand(*axes, *pixels.shape[lead:])
        top, bottom, left, right = pixels.split(sizes, -2)
        middle = inside.reshape(*inside.shape[:lead], frames, rows, columns, width)
        column = torch.cat(
            [
                top.unflatten(-2, (high, columns)),
                middle.expand(*axes, *middle.shape[lead:]),
                bottom.unflatten(-2, (high, columns)),
            ],
            -3,
        )
        sides = [side.unflatten(-2, (rows + 2 * high, wide)) for side in (left, right)]
        whole = torch.cat([sides[0], column, sides[1]], -2)
        return whole.reshape(*axes, *shape)

    return Local(compute, rules.opaque, dtypes=(interior_src.dtype,))
