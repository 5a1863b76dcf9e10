"""Seconds of one collective over the links between `devices` chips in a row, and the bytes of each link.

A hop costs a latency, and its bytes over what a link carries of fabric traffic (about 9 GB/s of 12.5 on
Wormhole, 25 of 50 on Blackhole). On a ring both directions are used: half of the pieces go each way.
"""

from __future__ import annotations

from typing import NamedTuple

from softmesh.hardware import Arch
from softmesh.systems.chip import Chip

_HOP = {Arch.WORMHOLE_B0: 1.0e-6, Arch.BLACKHOLE: 0.75e-6}
_GB_PER_S = {Arch.WORMHOLE_B0: 9.0, Arch.BLACKHOLE: 25.0}
_LAUNCH = 5e-6  # published collectives on tiny tensors take 7 us and more


class Line(NamedTuple):
    """Chips in a row: how many, how many links join neighbours, and whether the last is joined to the first."""

    chip: Chip
    devices: int
    links: int
    is_ring: bool


class LinkCost(NamedTuple):
    seconds: float
    bytes_per_link: int  # through the busiest link, in one direction


FREE = LinkCost(0.0, 0)


def all_gather(line: Line, piece: int) -> LinkCost:
    """Every device gets the pieces of all; `piece` is the bytes of one."""
    others = (line.devices - 1) * piece
    return _timed(line, _hops(line), -(-others // 2) if line.is_ring else others)


def reduce_scatter(line: Line, whole: int) -> LinkCost:
    """Every device gets its share of the sum; `whole` is the bytes that each holds before."""
    return all_gather(line, -(-whole // line.devices))


def all_reduce(line: Line, whole: int) -> LinkCost:
    """The one, then the other. In a line they keep different links busy: the first of each way, then the last."""
    scattered, gathered = reduce_scatter(line, whole), all_gather(line, -(-whole // line.devices))
    if line.devices == 1:
        return FREE
    through = scattered.bytes_per_link + gathered.bytes_per_link if line.is_ring else -(-whole // line.links)
    return LinkCost(scattered.seconds + gathered.seconds, through)


def all_to_all(line: Line, whole: int) -> LinkCost:
    """Every device sends each other an equal share of the `whole` it holds.

    Through the middle of a line half of the devices reach the other half; a ring has two middles.
    """
    share = -(-whole // line.devices)
    half = line.devices // 2
    crossing = half * (line.devices - half) * share
    return _timed(line, _hops(line), -(-crossing // 2) if line.is_ring else crossing)


def _hops(line: Line) -> int:
    """To the farthest device."""
    return line.devices // 2 if line.is_ring else line.devices - 1


def _timed(line: Line, hops: int, through: int) -> LinkCost:
    if line.devices == 1:
        return FREE
    per_link = -(-through // line.links)
    arch = line.chip.arch
    return LinkCost(_LAUNCH + hops * _HOP[arch] + per_link / (_GB_PER_S[arch] * 1e9), per_link)


def ring_passes(line: Line, block: int) -> LinkCost:
    """Every device sees the blocks of all, passed on to the next neighbour; a line carries one back from its end."""
    rounds = line.devices - 1
    hops = rounds if line.is_ring else rounds * rounds
    return _timed(line, hops, rounds * block)
