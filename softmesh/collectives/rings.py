"""A ring of devices: a line whose ends are joined, so that everything has two ways to go."""

from __future__ import annotations

from dataclasses import dataclass, replace

from softmesh.collectives.lines import check_counts
from softmesh.errors import ArgumentValueError


@dataclass(frozen=True)
class Ring:
    """`devices` in a circle, neighbours joined by `links` links side by side.

    What spreads from a device goes half way round in either direction, so that a gather takes half as many
    steps as the ring has devices and both directions of every link carry the same. In an even ring the
    device opposite is as far one way as the other: pieces are cut in halves, and each gets there its own way.

    With one direction (`directions=1`) everything goes forward, all the way round. `forward` False turns the
    ring: forward and backward change places. A ring of two is a line: there is no second way.
    """

    devices: int
    links: int = 1
    directions: int = 2
    forward: bool = True

    def __post_init__(self) -> None:
        check_counts(self.devices, self.links)
        if self.directions not in (1, 2):
            raise ArgumentValueError(f"a ring has directions=1 or directions=2, got {self.directions}")

    @property
    def splits(self) -> int:
        in_halves = self.directions == 2 and self.devices > 2 and self.devices % 2 == 0
        return 2 * self.links if in_halves else self.links

    def link(self, split: int) -> int:
        return split % self.links

    def reach(self, source: int, split: int) -> tuple[int, int]:
        """How many hops a split spreads forward and backward until everyone has it."""
        others = self.devices - 1
        far = others if self.directions == 1 else self.devices // 2
        is_second_half = split >= self.links
        return (far, others - far) if self.forward != is_second_half else (others - far, far)

    def way(self, source: int, target: int, tie_forward: bool = True) -> tuple[int, int]:
        """The direction, 1 or -1, and the number of hops of the shorter way."""
        ahead, behind = (target - source) % self.devices, (source - target) % self.devices
        if self.directions == 1:
            return (1, ahead) if self.forward else (-1, behind)
        goes_forward = ahead < behind or (ahead == behind and tie_forward)
        return (1, ahead) if goes_forward else (-1, behind)

    def mirrored(self) -> Ring:
        return replace(self, forward=not self.forward)
