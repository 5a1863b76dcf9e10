"""Tiles: the rectangles the chip computes on, and how a layout pads a shape up to whole ones.

Knows sizes only. Where elements lie inside a tile does not matter here: tensors keep logical values.
"""

from __future__ import annotations

from collections.abc import Sequence

from softmesh.arguments import checked_ints
from softmesh.errors import MeshError
from softmesh.tensor.dtype import TILE_SIZE, DataType, Layout, block_bytes

FACE_SIZE = 16
_LEGAL_HEIGHTS = (32, 16, 8, 4, 2, 1)
_LEGAL_WIDTHS = (32, 16)
# The exponents of a block-float tile fill whole 16-byte lines of L1.
_EXPONENT_ALIGNMENT = 16


def _round_up(n: int, multiple: int) -> int:
    return -(-n // multiple) * multiple


class Tile:
    """A tile of height x width elements, made of faces that are 16 wide and up to 16 tall.

    >>> Tile((16, 32)).num_faces
    2
    """

    __slots__ = ("_shape", "_transposed")

    def __init__(self, tile_shape: Sequence[int], transpose_tile: bool = False) -> None:
        shape = tuple(checked_ints("Tile", "tile_shape", tile_shape))
        if len(shape) != 2 or shape[0] not in _LEGAL_HEIGHTS or shape[1] not in _LEGAL_WIDTHS:
            raise MeshError(
                f"Tile size is not valid for our hardware: got {list(shape)}; "
                f"height must be one of {_LEGAL_HEIGHTS} and width one of {_LEGAL_WIDTHS}"
            )
        self._shape = shape
        self._transposed = transpose_tile

    @property
    def height(self) -> int:
        return self._shape[0]

    @property
    def width(self) -> int:
        return self._shape[1]

    @property
    def tile_shape(self) -> list[int]:
        return list(self._shape)

    @property
    def face_shape(self) -> list[int]:
        return [min(FACE_SIZE, self.height), FACE_SIZE]

    @property
    def num_faces(self) -> int:
        return self.height * self.width // (min(FACE_SIZE, self.height) * FACE_SIZE)

    @property
    def partial_face(self) -> int:
        """1 where the tile is less than a full 32 rows tall."""
        return int(self.height < TILE_SIZE)

    @property
    def narrow_tile(self) -> int:
        """1 where the tile is less than a full 32 columns wide."""
        return int(self.width < TILE_SIZE)

    @property
    def transpose_within_face(self) -> bool:
        return self._transposed

    @property
    def transpose_of_faces(self) -> bool:
        return self._transposed

    def get_tile_size(self, dtype: DataType) -> int:
        """Bytes of one such tile, shared exponents included."""
        elements = self.height * self.width
        exponents = _round_up(elements // FACE_SIZE, _EXPONENT_ALIGNMENT)
        return block_bytes(dtype, elements, exponents)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Tile):
            return NotImplemented
        return self._shape == other._shape and self._transposed == other._transposed

    def __hash__(self) -> int:
        return hash((self._shape, self._transposed))

    def __repr__(self) -> str:
        return f"Tile with shape: {self.tile_shape}"


DEFAULT_TILE = Tile((TILE_SIZE, TILE_SIZE))


def padded_shape(
    shape: tuple[int, ...], layout: Layout, tile: Tile = DEFAULT_TILE, row_alignment: int = 1
) -> tuple[int, ...]:
    """The shape that is stored: tiled layouts round the last two dims up to whole tiles, others the last to shards.

    >>> padded_shape((1, 3, 40, 50), Layout.TILE)
    (1, 3, 64, 64)
    >>> padded_shape((5,), Layout.TILE)
    (32, 32)
    """
    if layout is not Layout.TILE:
        extents = shape or (1,)
        return (*extents[:-1], _round_up(extents[-1], row_alignment))
    *batch, rows, columns = (1,) * (2 - len(shape)) + shape
    return (*batch, _round_up(rows, tile.height), _round_up(columns, tile.width))
