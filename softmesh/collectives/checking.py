"""Whether a schedule keeps the rules: what is sent is there, nothing counts twice, all goals are reached.

Follows contributions through the steps, not values; needs no tensors and no machine. Steps are numbered from
0 in the messages, as they are in `Schedule.steps`.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence

from softmesh.arguments import described, refused
from softmesh.collectives.schedule import Action, Schedule, Send, checked_mesh, checked_schedule

Joined = Callable[[int, int], bool]
Place = tuple[int, int]  # device and slot
Contributions = dict[Place, frozenset[int]]
Origins = dict[Place, frozenset[Place]]  # the places of the start whose values have come here


def violations(
    schedule: Schedule,
    joined: Joined | None = None,
    *,
    links_between: Callable[[int, int], int] | None = None,
    one_send_per_link: bool = False,
    keeps_places: bool = True,
) -> list[str]:
    """What is wrong with a schedule, one sentence each; an empty list if nothing is.

    `joined` says which devices are neighbours, `links_between` how many links two of them have; left out,
    anyone may send to anyone over any link. `one_send_per_link` asks that no link carries two sends one way in
    one step. A schedule that renumbers its pieces on the way sets `keeps_places` to False; in any other, what
    ends in a slot must have begun in the same slot, at every device that began with something there.
    """
    walk = _Walk(checked_schedule("violations", schedule))
    _check_callable("joined", joined)
    _check_callable("links_between", links_between)
    complaints = [
        *_out_of_range(schedule, "start", schedule.start),
        *_out_of_range(schedule, "goal", schedule.goal),
    ]
    for number, step in enumerate(schedule.steps):
        sends = []
        for send in step:
            wrong = _impossible(schedule, send) or _unlinked(send, joined, links_between)
            if wrong:
                complaints.append(f"step {number}: {wrong}")
            else:
                sends.append(send)
        if one_send_per_link:
            complaints += (f"step {number}: {text}" for text in _crowded(sends))
        complaints += (f"step {number}: {text}" for text in walk.take(sends))
    complaints += walk.missed_goals()
    if keeps_places:
        complaints += walk.misplaced()
    return complaints


def neighbours(shape: Sequence[int], wraps: bool | Sequence[bool] = False) -> Joined:
    """Who is joined in a mesh numbered row by row: devices one apart along one axis. Others do not exist.

    >>> joined = neighbours((2, 4), wraps=(False, True))
    >>> joined(0, 4), joined(0, 3), joined(0, 5)
    (True, True, False)
    """
    extents, closed = checked_mesh("neighbours", shape, wraps)
    strides = [math.prod(extents[axis + 1 :]) for axis in range(len(extents))]
    devices = range(math.prod(extents))

    def joined(a: int, b: int) -> bool:
        if a not in devices or b not in devices:
            return False
        apart = [
            (abs(a // stride % extent - b // stride % extent), extent, wrap)
            for stride, extent, wrap in zip(strides, extents, closed, strict=True)
        ]
        moved = [(distance, extent, wrap) for distance, extent, wrap in apart if distance]
        return len(moved) == 1 and any(
            distance == 1 or (wrap and distance == extent - 1) for distance, extent, wrap in moved
        )

    return joined


class _Walk:
    """What every slot holds as the steps are taken."""

    def __init__(self, schedule: Schedule) -> None:
        self.schedule = schedule
        self.held: Contributions = {place: held for place, held in schedule.start.items() if held}
        self.origins: Origins = {place: frozenset({place}) for place in self.held}

    def take(self, step: Iterable[Send]) -> Iterator[str]:
        arrivals: dict[Place, list[Send]] = defaultdict(list)
        for send in step:
            if (send.sender, send.slot) in self.held:
                arrivals[send.receiver, send.target].append(send)
            else:
                yield f"{_said(send)}, but device {send.sender} has nothing there yet"
        held, origins = dict(self.held), dict(self.origins)
        for place, sends in arrivals.items():
            yield from _collisions(place, sends)
            for send in sends:
                yield from self._arrive(send, held, origins)
        self.held, self.origins = held, origins

    def _arrive(self, send: Send, held: Contributions, origins: Origins) -> Iterator[str]:
        source, place = (send.sender, send.slot), (send.receiver, send.target)
        if send.action is Action.STORE:
            held[place], origins[place] = self.held[source], self.origins[source]
            return
        if place not in held:
            yield f"{_said(send)}, to be added to slot {send.target}, but device {send.receiver} has nothing there"
        twice = self.held[source] & held.get(place, frozenset())
        if twice:
            yield f"{_said(send)}, which adds {_values(twice)} a second time to slot {send.target}"
        held[place] = held.get(place, frozenset()) | self.held[source]
        origins[place] = origins.get(place, frozenset()) | self.origins[source]

    def missed_goals(self) -> Iterator[str]:
        for (device, slot), goal in self.schedule.goal.items():
            held = self.held.get((device, slot), frozenset())
            wanted = f"in the end device {device} should have {_values(goal)} in slot {slot}"
            if not held:
                yield f"{wanted}, but has nothing there"
            elif goal - held:
                yield f"{wanted}, but {_values(goal - held)} never came"
            elif held - goal:
                yield f"{wanted}, but has {_values(held - goal)} there, too"

    def misplaced(self) -> Iterator[str]:
        splits = self.schedule.splits
        for device, slot in self.schedule.goal:
            for owner, origin in sorted(self.origins.get((device, slot), ())):
                begins_here = (owner, slot) in self.schedule.start
                if origin != slot and (begins_here or origin % splits != slot % splits):
                    yield (
                        f"in the end slot {slot} of device {device} has what was slot {origin} of device {owner}, "
                        "not the same slot"
                    )


def _check_callable(name: str, value: object) -> None:
    if value is not None and not callable(value):
        raise refused(
            "violations", f"{name} must be a function of two device numbers, got {described(value)}"
        )


def _collisions(place: Place, sends: Sequence[Send]) -> Iterator[str]:
    device, slot = place
    if len(sends) > 1 and any(send.action is Action.STORE for send in sends):
        senders = " and ".join(f"device {send.sender}" for send in sends)
        yield f"slot {slot} of device {device} is written by {senders} at once, so what it holds is undefined"


def _impossible(schedule: Schedule, send: Send) -> str | None:
    for device in (send.sender, send.receiver):
        if not 0 <= device < schedule.devices:
            return f"{_said(send)}, but there is no device {device}; there are {schedule.devices}"
    for slot in (send.slot, send.target):
        if not 0 <= slot < schedule.slots:
            return f"{_said(send)}, but there is no slot {slot}; there are {schedule.slots}"
    return None


def _unlinked(
    send: Send, joined: Joined | None, links_between: Callable[[int, int], int] | None
) -> str | None:
    if send.is_local:
        return None
    count = links_between(send.sender, send.receiver) if links_between else None
    if count == 0 or (joined and not joined(send.sender, send.receiver)):
        return f"{_said(send)}, but no link joins them"
    if send.link < 0 or (count is not None and send.link >= count):
        has = "links are counted from 0" if count is None else f"they have {count}, counted from 0"
        return f"{_said(send)} over link {send.link}, but {has}"
    return None


def _crowded(step: Iterable[Send]) -> Iterator[str]:
    counts = Counter((send.sender, send.receiver, send.link) for send in step if not send.is_local)
    for (sender, receiver, link), count in counts.items():
        if count > 1:
            yield f"link {link} from device {sender} to {receiver} carries {count} sends at once"


def _out_of_range(schedule: Schedule, which: str, places: Iterable[Place]) -> Iterator[str]:
    for device, slot in places:
        if not (0 <= device < schedule.devices and 0 <= slot < schedule.slots):
            yield f"the {which} speaks of slot {slot} of device {device}, which does not exist"


def _said(send: Send) -> str:
    return f"device {send.sender} sends slot {send.slot} to {send.receiver}"


def _values(devices: Iterable[int]) -> str:
    numbers = sorted(devices)
    listed = ", ".join(map(str, numbers))
    return f"the value of device {listed}" if len(numbers) == 1 else f"the values of devices {listed}"
