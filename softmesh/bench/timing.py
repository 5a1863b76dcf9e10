"""Timing peers against each other on a machine that has other things to do.

The peers take turns within each round, so that a slow moment falls on all of them; what is reported are
medians over the rounds, and comparisons are medians of what each round saw side by side.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

_PATIENCE = 60.0  # seconds
Peer = Callable[[], float]  # does its work and tells the seconds of one call


@dataclass(frozen=True)
class Timing:
    """Seconds of one call, round by round."""

    rounds: tuple[float, ...]

    @property
    def median(self) -> float:
        return statistics.median(self.rounds)

    def above(self, other: Timing) -> float:
        """Seconds more than `other`."""
        return statistics.median(a - b for a, b in zip(self.rounds, other.rounds, strict=True))

    def relative_to(self, other: Timing) -> float:
        """Times as long as `other`."""
        return statistics.median(a / b for a, b in zip(self.rounds, other.rounds, strict=True))


def timed(call: Callable[[], object], repetitions: int = 1) -> Peer:
    def peer() -> float:
        start = time.perf_counter()
        for _ in range(repetitions):
            call()
        return (time.perf_counter() - start) / repetitions

    return peer


def repetitions_for(call: Callable[[], object], seconds: float) -> int:
    """How many calls fill this time; warms `call` up on the way."""
    call()
    return max(1, round(seconds / timed(call, 3)()))


def interleave(
    peers: Mapping[str, Peer], rounds: int, warm_ups: int = 1, patience: float = _PATIENCE
) -> dict[str, Timing]:
    """Let the peers take turns, `rounds` times over after some that do not count.

    Every other round goes backwards: who comes second finds caches warm. A round that ends after `patience`
    seconds is the last one: a peer may be a hundred times slower on one machine than on another.
    """
    seen: dict[str, list[float]] = {name: [] for name in peers}
    order = list(peers)
    end = time.perf_counter() + patience
    for turn in range(warm_ups + rounds):
        for name in order:
            seconds = peers[name]()
            if turn >= warm_ups:
                seen[name].append(seconds)
        if turn >= warm_ups and time.perf_counter() > end:
            break
        order.reverse()
    return {name: Timing(tuple(seconds)) for name, seconds in seen.items()}
