"""Halo buffers: the borders that pieces of a picture get from their neighbours, kept apart from the pieces, or put
around them (neighbor_pad_halo, halo_scatter).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, cast

import torch

from softmesh.collectives.exchange_collectives import neighbor_pad_async
from softmesh.collectives.overload_signatures import composite
from softmesh.dispatch.call_cache import Call
from softmesh.dispatch.cost_rules import moves_bytes
from softmesh.dispatch.definition import Definition
from softmesh.dispatch.operand import Operand
from softmesh.dispatch.operation import Operation, operation
from softmesh.dispatch.plan import Local
from softmesh.dispatch.roles import Role
from softmesh.dispatch.signature import Signature
from softmesh.errors import MeshError, NotModelled
from softmesh.kinds import Kind
from softmesh.ops.conv.border_sections import Border
from softmesh.ops.data_movement.layout_conversion import copy
from softmesh.ops.data_movement.slice_and_pad import slice_
from softmesh.placement import rules
from softmesh.tensor.convert import round_to
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
        return torch.cat([part.flatten(-4, -2) for part in parts], -2)

    return Local(compute, rules.opaque)


_take_border = Operation(
    Definition(_PAD, Kind.MOVEMENT, _border, Signature(_PAD, _border, [], []), moves_bytes, "data")
)


@composite(
    _PAD,
    "input:tensor halo_buffer:tensor np_padding_h:int np_padding_w:int np_cluster_axis:int np_num_links:int "
    "np_topology:topology h_neighbor_semaphore:semaphores barrier_semaphore w_neighbor_semaphore:semaphores "
    "np_pad_dim2:int np_pad2_left:int np_pad2_right:int np_pad2_cluster_axis:int np_pad2_num_links:int | "
    "padding_mode? memory_config? input_pad_h:int? input_pad_w:int? padded_output? border_only?",
    patches="halo_buffer",
    writes="padded_output",
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
    input_pad_h: int | None = None,
    input_pad_w: int | None = None,
    padded_output: Tensor | None = None,
    **given: Any,
) -> Tensor:
    """The border of each piece [..., H, W, C], into the first pixels of `halo_buffer`, which is returned.

    Rows come along `np_cluster_axis`, columns of dim `np_pad_dim2` along `np_pad2_cluster_axis`. With `input_pad_h`
    or `input_pad_w` the input has a border of that size, which does not count. A `padded_output` is filled with
    the piece and its border, and returned instead.
    """
    if given.get("border_only"):
        raise NotModelled(
            f"{_PAD}: border_only is not modelled, its meaning is not documented: use ttnn.experimental."
            "neighbor_pad_async, which gives the piece with its border."
        )
    rank = _checked_rank(input, np_pad_dim2)
    if {np_pad2_left, np_pad2_right} != {np_padding_w}:
        raise NotModelled(
            f"{_PAD}: columns are added on both sides alike here: np_pad2_left={np_pad2_left}, np_pad2_right="
            f"{np_pad2_right} and np_padding_w={np_padding_w} must be equal."
        )
    padded = neighbor_pad_async(
        _within_border(input, input_pad_h or 0, input_pad_w or 0),
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
    _check_room(halo_buffer, border, input)
    filled = cast(Tensor, _write_border(halo_buffer, border))
    return filled if padded_output is None else copy(padded, padded_output)


def _checked_rank(input: Tensor, columns_dim: int) -> int:
    rank = len(input.shape)
    if rank < 3 or columns_dim % rank != rank - 2:
        raise MeshError(
            f"{_PAD}: takes [..., H, W, C] and np_pad_dim2={rank - 2}, the dim of W; got {list(input.shape)} and "
            f"np_pad_dim2={columns_dim}."
        )
    return rank


def _check_room(halo_buffer: Tensor, border: Tensor, input: Tensor) -> None:
    pages = halo_buffer.spec.logical_volume() // halo_buffer.shape[-1]
    if pages < border.shape[0] or halo_buffer.shape[-1] != border.shape[1]:
        raise MeshError(
            f"halo_buffer holds {pages} pages but the [Htop|Hbot|Wleft|Wright] sections need {border.shape[0]}: "
            f"{_PAD} got {list(halo_buffer.shape)} for the border of {list(input.shape)}, pixels of "
            f"{border.shape[1]} values."
        )


def _within_border(input: Tensor, high: int, wide: int) -> Tensor:
    if not (high or wide):
        return input
    *lead, rows, columns, width = input.shape
    starts = [*(0 for _ in lead), high, wide, 0]
    return cast(Tensor, slice_(input, starts, [*lead, rows - high, columns - wide, width]))


def _first_pixels(buffer: Operand, border: Operand) -> Local:
    """`border` [pixels, C], written over the first pixels of `buffer`."""

    def compute(target: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
        lead = target.dim() - buffer.rank
        pixels = target.view(*target.shape[:lead], -1, buffer.shape[-1])
        pixels[..., : border.shape[0], :] = round_to(values, buffer.dtype)
        return target

    return Local(compute, rules.opaque)


_write_border = Operation(
    Definition(
        _PAD,
        Kind.MOVEMENT,
        _first_pixels,
        Signature(_PAD, _first_pixels, [], []),
        moves_bytes,
        "data",
        roles={"buffer": Role.PATCHES},
    )
)


class HaloScatter(Operation):
    """With `border_only` the second operand has its border already, which is written over in place."""

    def invoke(self, args: tuple[Any, ...], kwargs: dict[str, Any], call: Call | None) -> Any:
        given = {**dict(zip(self.definition.signature.names, args, strict=False)), **kwargs}
        if given.pop("border_only", False) is not True:  # what is no bool is refused like any other argument
            return super().invoke(args, kwargs, call)
        given.pop("memory_config", None)
        return _scatter_in_place.invoke((), given, None)


def _sections(compact: Operand, interior: Operand, shape: Sequence[int], high: int, wide: int) -> Border:
    """How many pixels of which section lie one behind the other in `compact`, for pieces of this shape."""
    if interior.rank < 3 or min(high, wide) < 0:
        raise MeshError(f"{_SCATTER}: interior_src must be [..., H, W, C], got {list(interior.shape)}.")
    if interior.layout is not Layout.ROW_MAJOR or compact.layout is not Layout.ROW_MAJOR:
        raise MeshError(f"{_SCATTER}: takes ROW_MAJOR tensors: use ttnn.to_layout(tensor, ttnn.ROW_MAJOR_LAYOUT).")
    rows, columns, width = shape[-3:]
    if min(rows, columns) < 0:
        raise MeshError(
            f"{_SCATTER}: interior_src {list(interior.shape)} with border_only has a border of {high} and {wide}."
        )
    border = Border(math.prod(shape[:-3]), rows, columns, width, high, wide)
    if compact.shape[-1] != width or compact.spec.logical_volume() < border.pixels * width:
        raise MeshError(
            f"{_SCATTER}: compact_buffer {list(compact.shape)} must hold {border.pixels} pixels of {width} values, "
            f"the border of {list(shape)}."
        )
    return border


@operation(
    _SCATTER,
    kind=Kind.MOVEMENT,
    rule=rules.opaque,
    cost=moves_bytes,
    precision="data",
    controls="memory_config",
    reads="compact_buffer",
    operation_class=HaloScatter,
)
def halo_scatter(
    compact_buffer: Operand,
    interior_src: Operand,
    np_padding_h: int,
    np_padding_w: int,
    *,
    border_only: bool = False,
) -> Local:
    """A piece [..., H, W, C] with the border that neighbor_pad_halo made: [..., H + 2 h, W + 2 w, C].

    With `border_only` the piece has a border already: that is overwritten, and the piece returned.
    """
    high, wide = np_padding_h, np_padding_w
    border = _sections(compact_buffer, interior_src, interior_src.shape, high, wide)
    rows, columns, width = interior_src.shape[-3:]
    shape = (*interior_src.shape[:-3], rows + 2 * high, columns + 2 * wide, width)

    def compute(compact: torch.Tensor, inside: torch.Tensor) -> torch.Tensor:
        whole = border.around(compact, inside, inside.dim() - interior_src.rank)
        return whole.reshape(*whole.shape[:-4], *shape)

    return Local(compute, dtypes=(interior_src.dtype,))


def _overwritten_border(interior_src: Operand, compact_buffer: Operand, np_padding_h: int, np_padding_w: int) -> Local:
    high, wide = np_padding_h, np_padding_w
    if interior_src.rank < 3:
        raise MeshError(
            f"{interior_src.op}: interior_src {list(interior_src.shape)} must end in rows, columns and channels."
        )
    *lead_shape, rows, columns, width = interior_src.shape
    inner = [*lead_shape, rows - 2 * high, columns - 2 * wide, width]
    border = _sections(compact_buffer, interior_src, inner, high, wide)

    def compute(padded: torch.Tensor, compact: torch.Tensor) -> torch.Tensor:
        lead = padded.dim() - interior_src.rank
        frames = padded.view(*padded.shape[:lead], border.frames, rows, columns, width)
        border.write(compact, frames, lead)
        return padded

    return Local(compute, rules.opaque)


_scatter_in_place = Operation(
    Definition(
        _SCATTER,
        Kind.MOVEMENT,
        _overwritten_border,
        Signature(_SCATTER, _overwritten_border, [], []),
        moves_bytes,
        "data",
        roles={"interior_src": Role.PATCHES, "compact_buffer": Role.READS},
    )
)
