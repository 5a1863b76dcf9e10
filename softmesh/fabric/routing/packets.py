"""Packets: how the sender encodes a route in the header, the sizes of header and payload, and the hardware's limits."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from softmesh.errors import MeshError
from softmesh.fabric.mesh_graph import E, LogicalMesh, MeshGraph, N, S, W
from softmesh.fabric.settings import is_two_dimensional
from softmesh.hardware import Arch, FabricConfig, RoutingDirection

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
        return self.ns_hops | self.ew_hops << 7 | self.goes_south << 14 | self.goes_east << 15 | self.turn_point << 16

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


# Hardware limits: what the tables and headers on a chip have room for. A simulated machine may be larger; that is
# reported, not refused.


MOST_CHIPS = 256
MOST_MESHES = 1024
LONGEST_AXIS = 32  # in the compressed tables of 2-D paths


def longest_route(mesh: LogicalMesh, config: FabricConfig) -> int:
    """Hops between the two chips of a mesh that are furthest apart, as this fabric routes."""
    along = [mesh.shape[axis] // 2 if mesh.wraps(axis) else mesh.shape[axis] - 1 for axis in (0, 1)]
    if config is FabricConfig.FABRIC_1D_NEIGHBOR_EXCHANGE:
        return min(1, max(along))
    return sum(along) if is_two_dimensional(config) else max(along)


def hardware_limit_warnings(graph: MeshGraph, config: FabricConfig) -> list[str]:
    """Sentences about what works here and has no room on a chip."""
    found = [text for mesh in graph.meshes for text in _mesh_limit_warnings(mesh, graph.arch, config)]
    if len(graph.meshes) > MOST_MESHES:
        found.append(_limit(f"{graph.source} has {len(graph.meshes)} meshes", f"{MOST_MESHES} meshes"))
    return found


def _mesh_limit_warnings(mesh: LogicalMesh, arch: Arch, config: FabricConfig) -> Iterator[str]:
    name = f"M{mesh.id} ({mesh.shape[0]}x{mesh.shape[1]})"
    if mesh.size > MOST_CHIPS:
        yield _limit(f"{name} has {mesh.size} chips", f"{MOST_CHIPS} chips in a mesh")
    if arch is Arch.WORMHOLE_B0 and all(n % 2 for n in mesh.shape) and mesh.size > 1 and min(mesh.shape) > 1:
        yield f"{name} has two odd extents: on Wormhole silicon one of them must be even. It works here."
    is_2d = is_two_dimensional(config)
    if is_2d and max(mesh.shape) > LONGEST_AXIS:
        yield _limit(f"{name} has an axis of {max(mesh.shape)} chips", f"axes of {LONGEST_AXIS}")
    most = MOST_HOPS_2D if is_2d else MOST_HOPS_1D
    if (hops := longest_route(mesh, config)) > most:
        yield _limit(f"{name} has routes of {hops} hops", f"routes of {most} hops")


def _limit(what: str, most: str) -> str:
    return f"{what}: routing tables on silicon hold {most}. It works here; split the mesh to run it there."
