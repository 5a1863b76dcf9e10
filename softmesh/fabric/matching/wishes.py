"""What connections ask for in one round of the search, and how their links are counted."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from softmesh.fabric.mesh_graph import Connection, Side


@dataclass(frozen=True)
class Wish:
    """`links` between two sides.

    The fabric gives a chip one peer in each other mesh, and `each` links at most to it; None: every link counts.
    """

    a: Side
    b: Side
    links: int
    each: int | None = None

    @property
    def is_pairwise(self) -> bool:
        return len(self.a.meshes) == len(self.b.meshes) == 1 and self.a.meshes != self.b.meshes

    @property
    def turned(self) -> Wish:
        return replace(self, a=self.b, b=self.a)


def wishes(connections: Iterable[Connection], in_full: bool, each: int | None = None) -> list[Wish]:
    """A relaxed connection is content with one link, a named pair of chips and a strict one never are."""
    return [
        Wish(one.a, one.b, one.count if in_full or one.strict or one.is_between_chips else 1, each)
        for one in connections
    ]


def hit_often(hits: Iterable[int], times: int) -> int:
    """The members of at least so many of these sets: `reached[n]` are those of more than n so far."""
    reached = [0] * times
    for hit in hits:
        for n in range(times - 1, 0, -1):
            reached[n] |= reached[n - 1] & hit
        reached[0] |= hit
    return reached[-1]
