"""A piece of a tensor as the bytes that a chip's memory holds: rows, or tiles face by face, in aligned pages."""

from __future__ import annotations

import math

import torch
from torch.nn.functional import pad

from softmesh.errors import MeshError
from softmesh.tensor.convert import from_storage
from softmesh.tensor.dtype import FACTS, Layout
from softmesh.tensor.spec import TensorSpec


def byte_count(spec: TensorSpec) -> int:
    return spec.num_pages() * spec.aligned_page_size()


def to_bytes(values: torch.Tensor, spec: TensorSpec) -> torch.Tensor:
    """Of one piece, whose values are in the storage's type."""
    _check_elements(spec)
    elements = from_storage(values.detach().cpu(), spec.dtype)
    if spec.layout is Layout.TILE:
        elements = _padded(elements, spec)
        elements = elements.reshape(_tiled(spec)).permute(0, 1, 4, 2, 5, 3, 6)
    pages = elements.contiguous().view(torch.uint8).reshape(spec.num_pages(), spec.page_size())
    return pad(pages, (0, spec.aligned_page_size() - spec.page_size())).reshape(-1)


def from_bytes(data: torch.Tensor, spec: TensorSpec) -> torch.Tensor:
    """The values of a piece, in the storage's type; the inverse of `to_bytes`."""
    _check_elements(spec)
    known = FACTS[spec.dtype]
    pages = data.reshape(spec.num_pages(), spec.aligned_page_size())[:, : spec.page_size()]
    elements = pages.contiguous().view(known.torch)
    if spec.layout is not Layout.TILE:
        return elements.reshape(tuple(spec.shape)).to(known.storage)
    batch, rows, height, face_rows, columns, width, face_columns = _tiled(spec)
    tiles = elements.to(known.storage).reshape(batch, rows, columns, height, width, face_rows, face_columns)
    padded = tiles.permute(0, 1, 3, 5, 2, 4, 6).reshape(tuple(spec.padded_shape))
    return padded[_logical(spec)].reshape(tuple(spec.shape))


def _check_elements(spec: TensorSpec) -> None:
    if FACTS[spec.dtype].is_block:
        raise MeshError(
            f"{spec.dtype} shares exponents within a tile, and softmesh keeps no packed bytes of it: use "
            "ttnn.typecast(tensor, ttnn.bfloat16) on what goes through a host socket."
        )


def _padded(elements: torch.Tensor, spec: TensorSpec) -> torch.Tensor:
    """Filled up to whole tiles; small integer types of torch know no padding, so it is put into place."""
    whole = torch.zeros(tuple(spec.padded_shape), dtype=elements.dtype)
    index = _logical(spec)
    whole[index] = elements.reshape(whole[index].shape)
    return whole


def _logical(spec: TensorSpec) -> tuple[slice, ...]:
    """Where the values lie in the padded shape."""
    shape, padded = tuple(spec.shape), tuple(spec.padded_shape)
    return tuple(slice(n) for n in (1,) * (len(padded) - len(shape)) + shape)


def _tiled(spec: TensorSpec) -> tuple[int, ...]:
    """The padded shape as batch, rows of tiles, rows of faces, rows, and the same for columns."""
    *batch, height, width = spec.padded_shape
    tile, (face_height, face_width) = spec.tile, spec.tile.face_shape
    return (
        math.prod(batch),
        height // tile.height,
        tile.height // face_height,
        face_height,
        width // tile.width,
        tile.width // face_width,
        face_width,
    )
