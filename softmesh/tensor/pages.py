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
from softmesh.tensor.tile_bytes import element_bytes, elements, pack_tiles, unpack_tiles


def to_pages(values: torch.Tensor, spec: TensorSpec) -> torch.Tensor:
    lead = values.shape[: values.ndim - len(spec.shape)]
    if not spec.num_pages():
        return values.new_empty((*lead, 0, spec.page_size()), dtype=torch.uint8)
    padded = _padded(values.detach(), lead, spec).reshape(*lead, *_cut(spec))
    if spec.layout is not Layout.TILE:
        return element_bytes(padded, spec.dtype).reshape(*lead, spec.num_pages(), spec.page_size())
    tiles = padded.movedim(-3, -2).flatten(len(lead), -3)
    return pack_tiles(tiles, spec.dtype, spec.tile)


def from_pages(pages: torch.Tensor, spec: TensorSpec) -> torch.Tensor:
    """The inverse of `to_pages`; what lies in the padding is dropped."""
    lead = pages.shape[:-2]
    if not spec.num_pages():
        return pages.new_zeros((*lead, *spec.shape), dtype=FACTS[spec.dtype].storage)
    cut = _cut(spec)
    if spec.layout is not Layout.TILE:
        padded = elements(pages, spec.dtype).reshape(*lead, *cut)
    else:
        tiles = unpack_tiles(pages, spec.dtype, spec.tile)
        rows, height, columns, width = cut
        padded = tiles.reshape(*lead, rows, columns, height, width).movedim(-2, -3)
    whole = padded.reshape(*lead, *_whole(spec))
    return whole[_logical(spec, len(lead))].reshape(*lead, *spec.shape)


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
