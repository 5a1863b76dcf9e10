"""Routes as the sender writes them, and the sizes of headers and payloads."""

from __future__ import annotations

import pytest

from softmesh.errors import MeshError
from softmesh.fabric.mesh_graph import E, N, S, W
from softmesh.fabric.routing.packets import (
    CompressedRoute,
    header_bytes,
    multicast_1d,
    payload_bytes,
    unicast_1d,
    unicast_2d,
)


def test_a_1d_unicast_over_three_hops_forwards_twice_and_writes() -> None:
    assert unicast_1d(3) == 0x1A


def test_a_1d_multicast_writes_and_forwards_from_its_start_on() -> None:
    assert multicast_1d(3, 2) == 0x7A


def test_a_1d_packet_cannot_go_further_than_its_header_holds() -> None:
    assert unicast_1d(63).bit_length() == 2 * 63 - 1
    with pytest.raises(MeshError, match="1 to 63 hops"):
        unicast_1d(64)
    with pytest.raises(MeshError, match="range 0"):
        multicast_1d(1, 0)


def test_a_2d_route_has_a_byte_for_each_chip_it_reaches_and_ends_with_the_way_back() -> None:
    assert unicast_2d([N, N, W]) == bytes([4, 2, 1])
    assert unicast_2d([S]) == bytes([4])
    assert unicast_2d([E, E]) == bytes([1, 2])


def test_a_2d_route_of_no_hops_or_too_many_is_refused() -> None:
    with pytest.raises(MeshError, match="1 to 67 hops"):
        unicast_2d([])
    with pytest.raises(MeshError, match="this route has 68"):
        unicast_2d([E] * 68)


def test_a_compressed_route_keeps_hops_directions_and_turn_in_23_bits() -> None:
    route = CompressedRoute.of([S, S, W])
    assert route.bits == 2 | 1 << 7 | 1 << 14 | 0 << 15 | 2 << 16
    assert CompressedRoute.from_bits(route.bits) == route
    assert route.directions == [S, S, W]
    assert CompressedRoute.of([N, E]).bits == 1 | 1 << 7 | 1 << 15 | 1 << 16


@pytest.mark.parametrize(("hops", "size"), [(1, 48), (16, 48), (17, 64), (63, 64)])
def test_1d_headers_grow_once(hops: int, size: int) -> None:
    assert header_bytes(hops, two_dimensional=False) == size


@pytest.mark.parametrize(("hops", "size"), [(1, 96), (35, 96), (36, 112), (51, 112), (52, 128), (67, 128)])
def test_2d_headers_grow_with_their_route_buffer(hops: int, size: int) -> None:
    assert header_bytes(hops, two_dimensional=True) == size


def test_the_payload_is_the_default_or_what_is_asked_for_within_the_chips_limit() -> None:
    assert payload_bytes(None, 7616) == 4352
    assert payload_bytes(7616, 7616) == 7616
    with pytest.raises(MeshError, match="carry 1 to 7616 bytes"):
        payload_bytes(15232, 7616)
