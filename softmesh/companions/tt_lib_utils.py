"""The module behind `import tt_lib.utils`: arithmetic on tiles and padding that older tests and models share.

The functions take and give torch tensors, and run on the host.
"""

from __future__ import annotations

import math
import struct

import torch

REASON = "tt_lib was TT-NN's interface before ttnn; of it there is tt_lib.utils. Use the op of ttnn with this name"

_TILE = 32
_FACE = 16


def divup(a: int, b: int) -> int:
    """How many b it takes to hold a."""
    return -(-a // b)


def roundup(a: int, b: int) -> int:
    """The next multiple of b."""
    return divup(a, b) * b


def roundup32(a: int) -> int:
    return roundup(a, _TILE)


def _nearest_y(x: float, y: int) -> int:
    return math.ceil(x / y) * y


def _nearest_32(x: float) -> int:
    return _nearest_y(x, _TILE)


def float_to_bits(x: float) -> int:
    """The bits of x as float32, as a number."""
    bits: int = struct.unpack("<I", struct.pack("<f", x))[0]
    return bits


def pad_weight(x: torch.Tensor) -> torch.Tensor:
    """Rank 4, and zeros up to whole tiles.

    >>> pad_weight(torch.ones(5, 40)).shape
    torch.Size([1, 1, 32, 64])
    """
    whole = x.reshape((1,) * (4 - x.dim()) + tuple(x.shape))
    missing = [-size % _TILE for size in whole.shape[-2:]]
    return torch.nn.functional.pad(whole, (0, missing[1], 0, missing[0]))


def pad_activation(x: torch.Tensor) -> torch.Tensor:
    """The same for what goes into a layer."""
    return pad_weight(x)


def tilize(x: torch.Tensor) -> torch.Tensor:
    """The values in the order in which tiles keep them, in the shape they came in.

    >>> tilize(torch.arange(1024).reshape(1, 1, 32, 32)).flatten()[16:18]
    tensor([32, 33])
    """
    rows, columns = _whole_tiles(x)
    cut = x.reshape(-1, rows // _TILE, 2, _FACE, columns // _TILE, 2, _FACE)
    return cut.permute(0, 1, 4, 2, 5, 3, 6).reshape(x.shape)


def tilize_to_list(x: torch.Tensor) -> list[float]:
    values: list[float] = tilize(x).flatten().tolist()
    return values


def untilize(x: torch.Tensor) -> torch.Tensor:
    """Undoes `tilize`."""
    rows, columns = _whole_tiles(x)
    cut = x.reshape(-1, rows // _TILE, columns // _TILE, 2, 2, _FACE, _FACE)
    return cut.permute(0, 1, 3, 5, 2, 4, 6).reshape(x.shape)


def is_close(
    a: torch.Tensor,
    b: torch.Tensor,
    rtol: float = 1e-2,
    atol: float = 1e-2,
    max_mag: float = 2.0,
    max_mag_fraction: float = 0.02,
) -> bool:
    """Whether each pair differs by less than the tolerances, or by less than a fraction of the greatest magnitude."""
    difference = (a.float() - b.float()).abs()
    near = difference <= atol + rtol * b.float().abs()
    return bool((near | (difference < max_mag * max_mag_fraction)).all())


def _whole_tiles(x: torch.Tensor) -> tuple[int, int]:
    if x.dim() < 2 or x.shape[-2] % _TILE or x.shape[-1] % _TILE:
        raise ValueError(f"the last two dims must be whole tiles of 32, not {tuple(x.shape)}: pad_weight pads them")
    return x.shape[-2], x.shape[-1]
