"""Packets: how the sender writes a route into the header, and how large header and payload are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from softmesh.errors import MeshError
from softmesh.fabric.mesh_graph import E, N, S, W
from softmesh.hardware import RoutingDirection

DEFAULT_PAYLOAD = 4352  # bytes: four bfloat8_b tiles
MOST_HOPS_1D = 63
MOST_HOPS_2D = 67

_WRITE, _FORWARD = 1, 2  # 1-D: two bits for each hop
_BITS_2D = {E: 1, W: 2, N: 4, S: 8}
_HEADER_1D = ((16, 48), (MOST_HOPS_1D, 64))  # hops that fit, bytes: extension words share the second line
_HEADER_2D = ((35, 96), (51, 112), (MOST_HOPS_2D, 128))


def unicast_1d(hops: int) -> int:
    """Forwarded until the last chip, written there; the first hop is in the low bits.

    >>> hex(unicast_1d(3))
    '0x1a'
    """
    return multicast_1d(hops, 1)


def multicast_1d(start: int, span: int) -> int:
    """Written on `span` chips in a row, the first of them `start` hops away.

    >>> hex(multicast_1d(3, 2))
    '0x7a'
    """
    last = start + span - 1
    if start < 1 or span < 1 or last > MOST_HOPS_1D:
        raise MeshError(
            f"A 1-D packet reaches 1 to {MOST_HOPS_1D} hops: start {start} with range {span} ends at hop {last}."
        )
    route = 0
    for hop in range(1, last + 1):
        command = (_FORWARD if hop < last else 0) | (_WRITE if hop >= start else 0)
        route |= command << 2 * (hop - 1)
    return route


def unicast_2d(directions: Sequence[RoutingDirection]) -> bytes:
    """One byte for each chip reached: where it forwards to, and at the last one back where it came from.

    The first hop is not written: the sender takes it by choosing the router.

    >>> unicast_2d([S, S, E]).hex()
    '080102'
    """
    if not 1 <= len(directions) <= MOST_HOPS_2D:
        raise MeshError(f"A 2-D packet reaches 1 to {MOST_HOPS_2D} hops, this route has {len(directions)}.")
    return bytes(_BITS_2D[way] for way in (*directions[1:], directions[-1].opposite))


class CompressedRoute(NamedTuple):
    """A 2-D route inside a mesh as the tables on the chip keep it: 23 bits."""

    ns_hops: int
    ew_hops: int
    goes_south: bool
    goes_east: bool

    @classmethod
    def of(cls, directions: Sequence[RoutingDirection]) -> CompressedRoute:
        vertical = [way for way in directions if way.axis == 0]
        horizontal = [way for way in directions if way.axis == 1]
        return cls(len(vertical), len(horizontal), S in vertical, E in horizontal)

    @property
    def turn_point(self) -> int:
        """The hop after which the packet turns."""
        return self.ns_hops

    @property
    def bits(self) -> int:
        return (
            self.ns_hops
            | self.ew_hops << 7
            | self.goes_south << 14
            | self.goes_east << 15
            | self.turn_point << 16
        )

    @classmethod
    def from_bits(cls, bits: int) -> CompressedRoute:
        return cls(bits & 0x7F, bits >> 7 & 0x7F, bool(bits >> 14 & 1), bool(bits >> 15 & 1))

    @property
    def directions(self) -> list[RoutingDirection]:
        vertical = [S if self.goes_south else N] * self.ns_hops
        return vertical + [E if self.goes_east else W] * self.ew_hops


def header_bytes(hops: int, *, two_dimensional: bool) -> int:
    """The header that holds a route of so many hops; the largest there is where none does.

    >>> header_bytes(16, two_dimensional=False), header_bytes(10, two_dimensional=True)
    (48, 96)
    """
    sizes = _HEADER_2D if two_dimensional else _HEADER_1D
    return next((size for most, size in sizes if hops <= most), sizes[-1][1])


def payload_bytes(wanted: int | None, largest: int) -> int:
    """What one packet carries: the default, or what the router's configuration asks for."""
    if wanted is None:
        return DEFAULT_PAYLOAD
    if not 0 < wanted <= largest:
        raise MeshError(
            f"max_packet_payload_size_bytes is {wanted}: this chip's packets carry 1 to {largest} bytes; "
            f"None takes the default of {DEFAULT_PAYLOAD}."
        )
    return wanted
