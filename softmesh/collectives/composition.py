"""Schedules made of schedules: run backwards, one after another, side by side."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import chain, zip_longest

from softmesh.collectives.schedule import Action, Held, Schedule, Send, Step


def in_steps(sends: Iterable[tuple[int, Send]]) -> tuple[Step, ...]:
    """Numbered sends sorted into steps, and within a step by sender, receiver and slot."""
    steps: dict[int, list[Send]] = defaultdict(list)
    for number, send in sends:
        steps[number].append(send)
    return tuple(_in_order(steps[number]) for number in range(max(steps, default=-1) + 1))


def side_by_side(groups: Iterable[Sequence[Step]]) -> tuple[Step, ...]:
    """Groups that do not meet take their steps at the same time."""
    return tuple(_in_order(chain(*steps)) for steps in zip_longest(*groups, fillvalue=()))


def backwards(spreading: Schedule, name: str) -> Schedule:
    """Last step first, receivers send, and what was copied is added: sums flow to where values came from.

    Every device starts with a value of its own in each slot it would have received.
    """
    steps = tuple(_in_order(map(_returned, step)) for step in reversed(spreading.steps))
    start: Held = {(device, slot): frozenset({device}) for device, slot in spreading.goal}
    receivers: dict[int, set[int]] = defaultdict(set)
    for device, slot in spreading.goal:
        receivers[slot].add(device)
    goal: Held = {(device, slot): frozenset(receivers[slot]) for device, slot in spreading.start}
    return replace(spreading, name=name, steps=steps, start=start, goal=goal)


def scatter_then_gather(scatter: Schedule, gather: Schedule) -> Schedule:
    """An all_reduce: each sum is completed at one device, then spread to all."""
    everyone = frozenset(range(scatter.devices))
    goal: Held = dict.fromkeys(gather.goal, everyone)
    return replace(scatter, name="all_reduce", steps=scatter.steps + gather.steps, goal=goal)


def gather_then_sum(gather: Schedule) -> Schedule:
    """An all_reduce: every device's whole value goes to all, and each adds them up for itself, in piece 0."""
    n, splits = gather.devices, gather.splits
    local = tuple(
        Send(device, device, slot, Action.ADD, slot % splits)
        for device in range(n)
        for slot in range(splits, n * splits)
    )
    everyone = frozenset(range(n))
    goal: Held = {(device, split): everyone for device in range(n) for split in range(splits)}
    steps = (*gather.steps, local) if local else gather.steps
    return replace(gather, name="all_reduce_direct", steps=steps, goal=goal)


def _returned(send: Send) -> Send:
    return Send(send.receiver, send.sender, send.target, Action.ADD, send.slot, send.link)


def _in_order(sends: Iterable[Send]) -> Step:
    return tuple(sorted(sends, key=lambda send: (send.sender, send.receiver, send.slot)))
