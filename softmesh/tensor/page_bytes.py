"""Encoding of a tensor's values as the bytes of tiles and pages in device memory, and decoding.

    tile     values  (..., height, width)          bytes  (..., tile.get_tile_size(dtype))
    tensor   values  (*lead, *spec.shape)          pages  (*lead, spec.num_pages(), spec.page_size())

Values are in the storage type of the dtype, bytes are torch.uint8. `lead` is whatever stands in front: mesh dims,
devices, nothing. A tile is stored face after face, block floats with their shared exponents in front. Pages are
numbered row-major over the padded tensor, whichever core they lie on.
"""

from __future__ import annotations

import math

import torch
from torch.nn.functional import pad

from softmesh.tensor.convert import GROUP, from_storage, round_to
from softmesh.tensor.dtype import FACTS, DataType, Layout
from softmesh.tensor.spec import TensorSpec
from softmesh.tensor.tile import Tile

_HIDDEN_BIT = 1 << 23


def pack_tiles(values: torch.Tensor, dtype: DataType, tile: Tile) -> torch.Tensor:
    """The bytes of each tile. Values that the dtype cannot hold are rounded to it."""
    return pack_faces(by_faces(values, tile), dtype, tile)


def pack_faces(rows: torch.Tensor, dtype: DataType, tile: Tile) -> torch.Tensor:
    """The same for values in the order of memory, one row for each tile."""
    if FACTS[dtype].is_block:
        return _pack_blocks(round_to(rows, dtype), dtype, tile)
    return element_bytes(rows, dtype).flatten(-2)


def unpack_faces(data: torch.Tensor, dtype: DataType, tile: Tile) -> torch.Tensor:
    """The values of each tile in the order of memory, in the dtype's storage type; the inverse of `pack_faces`."""
    return _unpack_blocks(data, dtype, tile) if FACTS[dtype].is_block else elements(data, dtype)


def element_bytes(values: torch.Tensor, dtype: DataType) -> torch.Tensor:
    """Elements as bytes, one dim more than `values`; of types that share no exponents."""
    held = from_storage(values, dtype).contiguous()
    return held.view(torch.uint8).reshape(*values.shape, held.element_size())


def elements(data: torch.Tensor, dtype: DataType) -> torch.Tensor:
    """Bytes as elements in the storage type: the last dim shrinks by an element's size."""
    known = FACTS[dtype]
    return data.contiguous().view(known.torch).to(known.storage)


def by_faces(values: torch.Tensor, tile: Tile) -> torch.Tensor:
    """(..., height, width) as one row for each tile, in the order of its memory."""
    down, across, face_h, face_w = _faces(tile)
    split = values.reshape(*values.shape[:-2], down, face_h, across, face_w)
    lead = range(split.ndim - 4)
    # From (down, face_h, across, face_w); a transposed tile has both its faces and their elements transposed.
    order = (-2, -4, -1, -3) if tile.transpose_of_faces else (-4, -2, -3, -1)
    return split.permute(*lead, *order).flatten(-4)


def from_faces(rows: torch.Tensor, tile: Tile) -> torch.Tensor:
    """The inverse of `by_faces`."""
    return faces_in_rows(rows, tile).reshape(*rows.shape[:-1], tile.height, tile.width)


def faces_in_rows(rows: torch.Tensor, tile: Tile) -> torch.Tensor:
    """A view of the same: (..., faces below each other, their rows, faces beside each other, their columns)."""
    down, across, face_h, face_w = _faces(tile)
    lead = rows.shape[:-1]
    first = range(len(lead))
    if tile.transpose_of_faces:
        return rows.reshape(*lead, across, down, face_w, face_h).permute(*first, -3, -1, -4, -2)
    return rows.reshape(*lead, down, across, face_h, face_w).permute(*first, -4, -2, -3, -1)


def _faces(tile: Tile) -> tuple[int, int, int, int]:
    """How many faces stand below and beside each other, and a face's height and width."""
    face_h, face_w = tile.face_shape
    return tile.height // face_h, tile.width // face_w, face_h, face_w


def _pack_blocks(rows: torch.Tensor, dtype: DataType, tile: Tile) -> torch.Tensor:
    """One byte of exponent for each 16 elements, filled up to whole lines; then the elements, sign first.

    In a group whose largest exponent is E an element is a whole multiple of 2**(E - 127 - bits of mantissa + 1),
    so its 24-bit mantissa is shifted without loss.
    """
    bits = rows.float().unflatten(-1, (-1, GROUP)).contiguous().view(torch.int32)
    exponent = (bits >> 23) & 0xFF
    shared = exponent.amax(-1, keepdim=True)
    mantissa_bits = FACTS[dtype].mantissa_bits
    assert mantissa_bits is not None
    shift = (24 - mantissa_bits + shared - exponent).clamp_(max=31)
    mantissa = (((bits & (_HIDDEN_BIT - 1)) | _HIDDEN_BIT) >> shift) * (exponent > 0)
    sign = ((bits < 0) & (mantissa > 0)).to(torch.int32)
    element = ((sign << mantissa_bits) | mantissa).flatten(-2).to(torch.uint8)
    if FACTS[dtype].bits == 4:
        element = element[..., 0::2] | (element[..., 1::2] << 4)
    exponents = shared.flatten(-2).to(torch.uint8)
    return torch.cat([pad(exponents, (0, _exponent_bytes(dtype, tile) - exponents.shape[-1])), element], -1)


def _unpack_blocks(data: torch.Tensor, dtype: DataType, tile: Tile) -> torch.Tensor:
    known, count = FACTS[dtype], tile.height * tile.width
    assert known.mantissa_bits is not None
    element = data[..., _exponent_bytes(dtype, tile) :]
    if known.bits == 4:
        element = torch.stack([element & 0xF, element >> 4], -1).flatten(-2)
    groups = element.reshape(*data.shape[:-1], count // GROUP, GROUP).to(torch.int32)
    shared = data[..., : count // GROUP].to(torch.int32).unsqueeze(-1)
    mantissa = groups & ((1 << known.mantissa_bits) - 1)
    value = mantissa * _power_of_two(shared - 126 - known.mantissa_bits)
    is_nan = (shared == 0xFF) & (mantissa > 1 << (known.mantissa_bits - 1))
    value = torch.where(is_nan, math.nan, value)
    return torch.where(groups >> known.mantissa_bits > 0, -value, value).flatten(-2).to(known.storage)


def _power_of_two(exponent: torch.Tensor) -> torch.Tensor:
    """2.0**exponent in float64, put together from bits: float32 has no 2.0**-133 but as a denormal."""
    return ((exponent.to(torch.int64) + 1023) << 52).view(torch.float64)


def _exponent_bytes(dtype: DataType, tile: Tile) -> int:
    return tile.get_tile_size(dtype) - tile.height * tile.width * FACTS[dtype].bits // 8


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
    return whole[_logical(spec, len(lead))].reshape((*lead, *spec.shape))


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
