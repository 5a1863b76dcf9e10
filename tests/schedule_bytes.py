"""What a schedule carries, added up in other ways than link by link."""

from __future__ import annotations

from collections import Counter

from softmesh.collectives import Schedule, bytes_per_link


def bytes_per_pair(schedule: Schedule, piece_bytes: int) -> dict[tuple[int, int], int]:
    """From each device to each neighbour, all their links together."""
    pairs: Counter[tuple[int, int]] = Counter()
    for (sender, receiver, _), carried in bytes_per_link(schedule, piece_bytes).items():
        pairs[sender, receiver] += carried
    return dict(pairs)


def total_bytes(schedule: Schedule, piece_bytes: int) -> int:
    return sum(bytes_per_link(schedule, piece_bytes).values())
