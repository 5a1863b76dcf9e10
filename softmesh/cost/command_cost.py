"""CommandCost, the price of one command on one device: seconds with a band, what bounds it, the work and traffic."""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple


class Bound(Enum):
    """What a command waits for most of its time."""

    COMPUTE = "compute"
    DRAM = "DRAM"
    NOC = "NoC"
    LINK = "link"
    DISPATCH = "dispatch"
    HOST = "host"


class CommandCost(NamedTuple):
    """`seconds` on the device, expected to lie in `low` .. `high`; `law` names the formula and what it was fitted on.

    Bytes and floating-point operations are those of one device; `link_bytes` go through its busiest link, one way.
    """

    seconds: float
    low: float
    high: float
    bound: Bound
    law: str
    flops: int = 0
    dram_bytes: int = 0
    l1_bytes: int = 0
    link_bytes: int = 0
    cores: int = 0
    is_measured: bool = False  # whether measurements stand behind the band, or only the data sheet


FREE = CommandCost(0.0, 0.0, 0.0, Bound.DISPATCH, "free", is_measured=True)
UNPRICED = FREE._replace(law="no price: it tells of no tensor", is_measured=False)
