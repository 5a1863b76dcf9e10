"""Seconds of one collective over the links between chips in a row, and the bytes of each link.

Bytes are those that the schedules of softmesh.collectives send over the busiest link; seconds are those of the
measured algorithms, by the calibrated law.
"""

from __future__ import annotations

from typing import NamedTuple

from softmesh.cost.calibration_files import default_calibration
from softmesh.cost.workloads import Exchange
from softmesh.systems.chip import Chip


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


def all_gather(line: Line, piece: int, *, in_l1: bool = False) -> LinkCost:
    """Every device gets the pieces of all; `piece` is the bytes of one."""
    others = (line.devices - 1) * piece
    return _timed(line, "all_gather", line.devices * piece, -(-others // 2) if line.is_ring else others, in_l1=in_l1)


def reduce_scatter(line: Line, whole: int, *, in_l1: bool = False) -> LinkCost:
    """Every device gets its share of the sum; `whole` is the bytes that each holds before."""
    others = (line.devices - 1) * -(-whole // line.devices)
    return _timed(line, "reduce_scatter", whole, -(-others // 2) if line.is_ring else others, in_l1=in_l1)


def all_reduce(line: Line, whole: int, *, in_l1: bool = False) -> LinkCost:
    """The one, then the other. In a line they keep different links busy: the first of each way, then the last."""
    if line.devices == 1:
        return FREE
    scattered, gathered = reduce_scatter(line, whole), all_gather(line, -(-whole // line.devices))
    through = scattered.bytes_per_link + gathered.bytes_per_link if line.is_ring else -(-whole // line.links)
    return LinkCost(_seconds(line, "all_reduce", whole, in_l1=in_l1), through)


def all_to_all(line: Line, whole: int, *, in_l1: bool = False) -> LinkCost:
    """Every device sends each other an equal share of the `whole` it holds.

    Through the middle of a line half of the devices reach the other half; a ring has two middles.
    """
    share = -(-whole // line.devices)
    half = line.devices // 2
    crossing = half * (line.devices - half) * share
    return _timed(line, "all_to_all", whole, -(-crossing // 2) if line.is_ring else crossing, in_l1=in_l1)


def ring_passes(line: Line, block: int) -> LinkCost:
    """Every device sees the blocks of all, passed on to the next neighbour; a line carries one back from its end."""
    rounds = line.devices - 1
    passed = _timed(line._replace(is_ring=False), "all_gather", line.devices * block, rounds * block)
    back = 0 if line.is_ring else rounds * (rounds - 1)
    return LinkCost(passed.seconds + back * hop_seconds(line.chip), passed.bytes_per_link)


def hop_seconds(chip: Chip) -> float:
    """What a further hop adds to a gather."""
    near, far = (Exchange("all_gather", chip, devices, 1, False, 1) for devices in (4, 8))
    calibration = default_calibration()
    return (calibration.formula(far) - calibration.formula(near)) / 4


def _timed(line: Line, op: str, size: int, through: int, *, in_l1: bool = False) -> LinkCost:
    if line.devices == 1:
        return FREE
    return LinkCost(_seconds(line, op, size, in_l1=in_l1), -(-through // line.links))


def _seconds(line: Line, op: str, size: int, *, in_l1: bool = False) -> float:
    work = Exchange(op, line.chip, line.devices, line.links, line.is_ring, size, in_l1=in_l1)
    return default_calibration().estimate(work).seconds
