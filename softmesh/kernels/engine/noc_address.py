"""NoC addresses: encode and decode the 64-bit numbers that name a core, or a rectangle of cores, and a byte.

36 bits of address, then six each for x and y; a multicast address has the two corners of a rectangle and a
bit of its own, so that one is not taken for the other.
"""

from __future__ import annotations

from typing import NamedTuple

from softmesh.errors import MeshError

_LOCAL_BITS, _NODE_BITS = 36, 6
_LOCAL, _NODE = (1 << _LOCAL_BITS) - 1, (1 << _NODE_BITS) - 1
_MULTICAST = 1 << 60


class NocCoord(NamedTuple):
    x: int
    y: int


class Rectangle(NamedTuple):
    """Both corners included, whichever way round they were given: the two NoCs run in opposite directions."""

    low: NocCoord
    high: NocCoord

    def places(self) -> list[NocCoord]:
        xs, ys = range(self.low.x, self.high.x + 1), range(self.low.y, self.high.y + 1)
        return [NocCoord(x, y) for y in ys for x in xs]


def encode(x: int, y: int, address: int) -> int:
    return _checked(address, x, y) | x << _LOCAL_BITS | y << _LOCAL_BITS + _NODE_BITS


def encode_multicast(x0: int, y0: int, x1: int, y1: int, address: int) -> int:
    start = _checked(0, x0, y0) | x0 << _LOCAL_BITS + 2 * _NODE_BITS | y0 << _LOCAL_BITS + 3 * _NODE_BITS
    return encode(x1, y1, address) | start | _MULTICAST


def decode(noc_address: int) -> tuple[NocCoord, int]:
    if noc_address & _MULTICAST:
        raise MeshError("This is a multicast address: get_noc_addr(x, y, address) makes one for a single core.")
    return NocCoord(_field(noc_address, 0), _field(noc_address, 1)), noc_address & _LOCAL


def decode_multicast(noc_address: int) -> tuple[Rectangle, int]:
    if not noc_address & _MULTICAST:
        raise MeshError("This is no multicast address: get_noc_multicast_addr(x0, y0, x1, y1, address) makes one.")
    xs = sorted((_field(noc_address, 0), _field(noc_address, 2)))
    ys = sorted((_field(noc_address, 1), _field(noc_address, 3)))
    return Rectangle(NocCoord(xs[0], ys[0]), NocCoord(xs[1], ys[1])), noc_address & _LOCAL


def _field(noc_address: int, number: int) -> int:
    return noc_address >> _LOCAL_BITS + number * _NODE_BITS & _NODE


def _checked(address: int, x: int, y: int) -> int:
    if not (0 <= x <= _NODE and 0 <= y <= _NODE and 0 <= address <= _LOCAL):
        raise MeshError(
            f"({x}, {y}, {address}) is no place on the NoC: x and y are 0 to {_NODE}, addresses 0 to {_LOCAL}."
        )
    return address
