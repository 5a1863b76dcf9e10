"""A tensor's values as the pages that device memory holds, and back: tiles face by face, or rows.

    values  (*lead, *spec.shape)                           in the storage type of the dtype
    pages   (*lead, spec.num_pages(), spec.page_size())    of torch.uint8

`lead` is whatever stands in front: mesh dims, devices, nothing. Pages are numbered row-major over the padded
tensor, whichever core they lie on.
"""

from __future__ import annotations

import math

import torch

from softmesh.tensor.dtype import FACTS, Layout
from softmesh.tensor.spec import TensorSpec
from softmesh.tensor.tile_bytes import element_bytes, elements, faces_in_rows, pack_tiles, unpack_faces

_MANY = 1 << 16


def to_pages(values: torch.Tensor, spec: TensorSpec) -> torch.Tensor:
    lead = values.shape[: values.ndim - len(spec.shape)]
    if not spec.num_pages():
        return values.new_empty((*lead, 0, spec.page_size()), dtype=torch.uint8)
    padded = _padded(values.detach(), lead, spec).reshape(*lead, *_cut(spec))
    if spec.layout is not Layout.TILE:
        return element_bytes(padded, spec.dtype).reshape(*lead, spec.num_pages(), spec.page_size())
    return pack_tiles(padded.movedim(-3, -2), spec.dtype, spec.tile).flatten(len(lead), -2)


def from_pages(pages: torch.Tensor, spec: TensorSpec, room: torch.Tensor | None = None) -> torch.Tensor:
    """The inverse of `to_pages`; what lies in the padding is dropped.

    `room` is memory of the result's shape and dtype: filled and returned, where that saves a copy.
    """
    lead = pages.shape[:-2]
    if not spec.num_pages():
        return pages.new_zeros((*lead, *spec.shape), dtype=FACTS[spec.dtype].storage)
    cut = _cut(spec)
    if spec.layout is not Layout.TILE:
        padded = elements(pages, spec.dtype).reshape(*lead, *cut)
    else:
        rows, _, columns, _ = cut
        faces = unpack_faces(pages.unflatten(-2, (rows, columns)), spec.dtype, spec.tile)
        if room is not None and room.is_contiguous() and room.numel() == faces.numel():
            _fill(room, faces_in_rows(faces, spec.tile).movedim(-5, -3))
            return room
        padded = faces_in_rows(faces, spec.tile).movedim(-5, -3)  # not copied yet: once is enough
    whole = padded.reshape(*lead, *_whole(spec))
    return whole[_logical(spec, len(lead))].reshape(*lead, *spec.shape)


def _fill(room: torch.Tensor, tiles: torch.Tensor) -> None:
    """With (..., faces, their rows, tiles in a row, faces, their columns).

    Of many values the faces are copied one by one: the same bytes in a third of the time, for then torch's inner
    loops run over all tiles of a row.
    """
    made = room.view(tiles.shape)
    if tiles.numel() < _MANY or not tiles.is_cpu:
        made.copy_(tiles)
        return
    for down in range(made.shape[-5]):
        for across in range(made.shape[-2]):
            made[..., down, :, :, across, :].copy_(tiles[..., down, :, :, across, :])


def _whole(spec: TensorSpec) -> tuple[int, ...]:
    """The padded shape, its last dim filled up to whole pages."""
    *rows, columns = spec.padded_shape
    width = spec.page_shape()[1]
    return (*rows, -(-columns // width) * width)


def _cut(spec: TensorSpec) -> tuple[int, int, int, int]:
    """The same as rows of pages, rows in a page, pages in a row, and columns in a page."""
    *rows, columns = _whole(spec)
    height, width = spec.page_shape()
    return math.prod(rows) // height, height, columns // width, width


def _logical(spec: TensorSpec, lead: int) -> tuple[slice, ...]:
    """Where the values lie in the padded shape, behind so many leading dims."""
    shape, padded = tuple(spec.shape), tuple(spec.padded_shape)
    inside = (1,) * (len(padded) - len(shape)) + shape
    return (slice(None),) * lead + tuple(map(slice, inside))


def _padded(values: torch.Tensor, lead: torch.Size, spec: TensorSpec) -> torch.Tensor:
    whole = _whole(spec)
    if math.prod(whole) == spec.logical_volume():
        return values
    filled = values.new_full((*lead, *whole), spec.pad_value)
    inside = filled[_logical(spec, len(lead))]
    inside.copy_(values.reshape(inside.shape))
    return filled
