"""What a schedule sends over each link: the numbers under every picture and every estimate of time."""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

from softmesh.collectives.schedule import Schedule, checked_count, checked_schedule, part_sizes


class Lane(NamedTuple):
    """One direction of one of the links that join two devices."""

    sender: int
    receiver: int
    link: int = 0


def bytes_per_link(schedule: Schedule, piece_bytes: int) -> dict[Lane, int]:
    """Bytes over each lane, (sender, receiver, link), if a piece has `piece_bytes`.

    Moves within a device cross no link.

    >>> from softmesh.collectives.schedules import schedule_for
    >>> bytes_per_link(schedule_for("all_gather", (2,)), piece_bytes=10)
    {Lane(sender=0, receiver=1, link=0): 10, Lane(sender=1, receiver=0, link=0): 10}
    """
    total: Counter[Lane] = Counter()
    for step in bytes_per_step(schedule, piece_bytes):
        total.update(step)
    return dict(sorted(total.items()))


def bytes_per_step(schedule: Schedule, piece_bytes: int) -> list[dict[Lane, int]]:
    """For each step, what each lane carries in it: a step takes as long as its busiest lane."""
    where = "bytes_per_step"
    splits = checked_schedule(where, schedule).splits
    sizes = part_sizes(checked_count(where, "piece_bytes", piece_bytes, least=0), splits)
    steps = []
    for step in schedule.steps:
        carried: Counter[Lane] = Counter()
        for send in step:
            if not send.is_local:
                carried[Lane(send.sender, send.receiver, send.link)] += sizes[send.slot % splits]
        steps.append(dict(carried))
    return steps


def bytes_per_pair(schedule: Schedule, piece_bytes: int) -> dict[tuple[int, int], int]:
    """Bytes from each device to each neighbour, all their links together."""
    pairs: Counter[tuple[int, int]] = Counter()
    for (sender, receiver, _), count in bytes_per_link(schedule, piece_bytes).items():
        pairs[sender, receiver] += count
    return dict(pairs)


def total_bytes(schedule: Schedule, piece_bytes: int) -> int:
    return sum(bytes_per_link(schedule, piece_bytes).values())


def busiest_link(schedule: Schedule, piece_bytes: int) -> tuple[Lane, int] | None:
    """The lane that carries most and its bytes, the first of equals; None where nothing is sent."""
    carried = bytes_per_link(schedule, piece_bytes)
    if not carried:
        return None
    lane = max(carried, key=lambda lane: carried[lane])
    return lane, carried[lane]
