"""Link traffic: the bytes that a schedule sends over each link, in all and in each step."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from softmesh.arguments import checked_ints
from softmesh.collectives.schedules.language import Schedule, checked_count, checked_schedule, part_sizes
from softmesh.errors import ArgumentValueError

PieceBytes = int | Sequence[int]  # of all pieces, or of each


class Lane(NamedTuple):
    """One direction of one of the links that join two devices."""

    sender: int
    receiver: int
    link: int = 0


def bytes_per_link(schedule: Schedule, piece_bytes: PieceBytes) -> dict[Lane, int]:
    """Bytes over each lane, (sender, receiver, link), if a piece has `piece_bytes`: one size, or one for each.

    Moves within a device cross no link.

    >>> from softmesh.collectives.schedules.generators import schedule_for
    >>> bytes_per_link(schedule_for("all_gather", (2,)), piece_bytes=10)
    {Lane(sender=0, receiver=1, link=0): 10, Lane(sender=1, receiver=0, link=0): 10}
    """
    total: Counter[Lane] = Counter()
    for step in _carried("bytes_per_link", schedule, piece_bytes):
        total.update(step)
    return dict(sorted(total.items()))


def bytes_per_step(schedule: Schedule, piece_bytes: PieceBytes) -> list[dict[Lane, int]]:
    """For each step, what each lane carries in it: a step takes as long as its busiest lane."""
    return _carried("bytes_per_step", schedule, piece_bytes)


def busiest_link(schedule: Schedule, piece_bytes: PieceBytes) -> tuple[Lane, int] | None:
    """The lane that carries most and its bytes, the first of equals; None where nothing is sent."""
    carried = bytes_per_link(schedule, piece_bytes)
    return max(carried.items(), key=lambda item: item[1], default=None)


def piece_sizes(schedule: Schedule, input_bytes: int) -> list[int]:
    """Of each piece, if what a device brings along has so many bytes: near-equal shares of it."""
    sizes = [0] * schedule.pieces
    for device in {device for device, _ in schedule.start}:
        own = schedule.starting_pieces(device)
        for piece, size in zip(own, part_sizes(input_bytes, len(own)), strict=True):
            sizes[piece] = max(sizes[piece], size)
    return sizes


def _carried(where: str, schedule: Schedule, piece_bytes: PieceBytes) -> list[dict[Lane, int]]:
    sizes = _slot_sizes(where, checked_schedule(where, schedule), piece_bytes)
    steps = []
    for step in schedule.steps:
        carried: Counter[Lane] = Counter()
        for send in step:
            if not send.is_local:
                carried[Lane(send.sender, send.receiver, send.link)] += sizes[send.slot % len(sizes)]
        steps.append(dict(carried))
    return steps


def _slot_sizes(where: str, schedule: Schedule, piece_bytes: PieceBytes) -> list[int]:
    """Of all slots; of those of one piece where all pieces are alike."""
    if not isinstance(piece_bytes, list | tuple):
        return part_sizes(checked_count(where, "piece_bytes", piece_bytes, least=0), schedule.splits)
    sizes = checked_ints(where, "piece_bytes", piece_bytes)
    if len(sizes) != schedule.pieces or min(sizes) < 0:
        raise ArgumentValueError(
            f"{where}(): piece_bytes must have a size for each of the {schedule.pieces} pieces, 0 or more, got {sizes}."
        )
    return [part for size in sizes for part in part_sizes(size, schedule.splits)]
