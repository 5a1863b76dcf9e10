"""A line of devices: each is joined to the next, the two ends are not."""

from __future__ import annotations

from dataclasses import dataclass

from softmesh.errors import ArgumentValueError


@dataclass(frozen=True)
class Line:
    """`devices` in a row, neighbours joined by `links` links side by side; each link carries one split.

    What spreads from a device on a line travels both ways, to the ends.
    """

    devices: int
    links: int = 1

    def __post_init__(self) -> None:
        check_counts(self.devices, self.links)

    @property
    def splits(self) -> int:
        return self.links

    def link(self, split: int) -> int:
        return split

    def reach(self, source: int, split: int) -> tuple[int, int]:
        """How many hops a split spreads forward and backward until everyone has it."""
        return self.devices - 1 - source, source

    def way(self, source: int, target: int, tie_forward: bool = True) -> tuple[int, int]:
        """The direction, 1 or -1, and the number of hops from one device to another."""
        return (1 if target >= source else -1), abs(target - source)

    def mirrored(self) -> Line:
        return self


def check_counts(devices: int, links: int) -> None:
    if devices < 1:
        raise ArgumentValueError(f"a group has at least one device, got {devices}")
    if links < 1:
        raise ArgumentValueError(f"num_links must be greater than 0, got {links}")
