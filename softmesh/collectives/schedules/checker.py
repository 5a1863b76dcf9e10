"""The schedule checker: what is sent is there, nothing counts twice, all goals are reached; else what is wrong.

Follows contributions through the steps, not values; needs no tensors and no machine. Steps are counted from 1
in the messages, as in the pictures: step 1 is `Schedule.steps[0]`.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property

from softmesh.arguments import described, refused
from softmesh.collectives.schedules.language import (
    Action,
    Arrival,
    Contributions,
    Place,
    Schedule,
    Send,
    Step,
    after_step,
    arrivals,
    checked_mesh,
    checked_schedule,
)
from softmesh.errors import ArgumentValueError

Joined = Callable[[int, int], bool]
LinksBetween = Callable[[int, int], int]
_MOST_SHOWN = 3


def violations(
    schedule: Schedule,
    joined: Joined | None = None,
    *,
    links_between: LinksBetween | None = None,
    one_send_per_link: bool = False,
    keeps_places: bool = True,
) -> list[str]:
    """What is wrong with a schedule and how to mend it, one sentence each; an empty list if nothing is.

    `joined` says which devices are neighbours, `links_between` how many links two of them have; left out,
    anyone may send to anyone over any link. `one_send_per_link` asks that no link carries two sends one way in
    one step. A schedule that renumbers its pieces on the way sets `keeps_places` to False; in any other, what
    ends in a slot must have begun in the same slot, at every device that began with something there.
    """
    checked_schedule("violations", schedule)
    _check_callable("joined", joined)
    _check_callable("links_between", links_between)
    complaints = [*_misnamed(schedule, "start", schedule.start), *_misnamed(schedule, "goal", schedule.goal)]
    walk = _Walk(schedule, follows_places=keeps_places)
    for number, step in enumerate(schedule.steps, 1):
        wrong = {
            at: fault
            for at, send in enumerate(step)
            if (fault := _impossible(schedule, send) or _unlinked(send, joined, links_between))
        }
        sends = [send for at, send in enumerate(step) if at not in wrong]
        crowded = _crowded(sends) if one_send_per_link else ()
        complaints += (f"step {number}: {text}" for text in (*wrong.values(), *crowded, *walk.take(number, sends)))
    complaints += walk.missed_goals()
    if keeps_places:
        complaints += walk.misplaced()
    return complaints


def refuse_broken(where: str, schedule: Schedule) -> None:
    """Refuse what no machine can run. Asked once of each object: those of `schedule_for` are run again and again."""
    known = vars(checked_schedule(where, schedule))
    if "faults" not in known:
        known["faults"] = violations(schedule, keeps_places=False)
    faults = known["faults"]
    if faults:
        more = len(faults) - _MOST_SHOWN
        rest = [f"and {more} more; softmesh.collectives.violations(schedule) tells all"] if more > 0 else []
        told = "\n  ".join([*faults[:_MOST_SHOWN], *rest])
        raise ArgumentValueError(f"{where}(): the schedule {schedule.name!r} is broken:\n  {told}")


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

    def __init__(self, schedule: Schedule, follows_places: bool) -> None:
        self.schedule = schedule
        self.held = dict(schedule.start)
        self.origins = {place: frozenset({place}) for place in self.held} if follows_places else {}
        self._taken: list[Step] = []
        self._arriving: dict[Place, list[int]] | None = None

    def take(self, number: int, step: Sequence[Send]) -> Iterator[str]:
        targets: dict[Place, list[Send]] = defaultdict(list)
        written: dict[Place, frozenset[int]] = {}
        for arrival in arrivals(step, self.held):
            yield from self._faults(number, arrival)
            place = arrival.send.receiver, arrival.send.target
            written[place] = arrival.after
            if arrival.carried:
                targets[place].append(arrival.send)
        for place, sends in targets.items():
            yield from _collisions(place, sends)
        if self.origins:
            self.origins.update(after_step(step, self.origins))
        self.held.update(written)
        self._taken.append(tuple(step))

    def _faults(self, number: int, arrival: Arrival) -> Iterator[str]:
        send, carried, before, _ = arrival
        if not carried:
            when = self._when_something_comes((send.sender, send.slot), number)
            yield f"{_said(send)}, but device {send.sender} has nothing there yet: {when}"
        elif send.action is Action.ADD and not before:
            yield (
                f"{_said(send)}, to be added to slot {send.target}, but device {send.receiver} has nothing there; "
                "let it store, or start with something there"
            )
        elif send.action is Action.ADD and carried & before:
            yield (
                f"{_said(send)}, which adds {values_of(carried & before)} a second time to slot {send.target}; "
                "leave this send out, or let it store"
            )

    def _when_something_comes(self, place: Place, number: int) -> str:
        if self._arriving is None:
            self._arriving = defaultdict(list)
            for index, send in self.schedule.sends():
                self._arriving[send.receiver, send.target].append(index + 1)
        later = [step for step in self._arriving.get(place, ()) if step >= number]
        if later:
            return f"step {later[0]} brings something; send it on after that"
        return "no step brings anything; send something there first, or start with it"

    @cached_property
    def _history(self) -> ValueHistory:
        """Looked into when something is missing only."""
        return ValueHistory(self.schedule.start, self._taken)

    def missed_goals(self) -> Iterator[str]:
        slots, devices = range(self.schedule.slots), range(self.schedule.devices)
        for place, goal in self.schedule.goal.items():
            device, slot = place
            held = self.held.get(place, frozenset())
            if held == goal or device not in devices or slot not in slots:  # the last are told of elsewhere
                continue
            wanted = f"in the end device {device} should have {values_of(goal)} in slot {slot}"
            if goal <= held:
                more = held - goal
                yield f"{wanted}, but has {values_of(more)} there, too: {self._where_from(place, more)}"
            else:
                lack = f"{values_of(goal - held)} never came" if held else "has nothing there"
                yield f"{wanted}, but {lack}: {self._history.why_missing(place, goal - held)}"

    def _where_from(self, place: Place, extra: frozenset[int]) -> str:
        since = self._history.since(place, extra)
        what = in_words(extra, extra)
        if since:
            return f"step {since} brings {what}; leave that send out, or name {what} in the goal"
        return f"{what} was there from the start; store over {what}, or name {what} in the goal"

    def misplaced(self) -> Iterator[str]:
        splits = self.schedule.splits
        for device, slot in self.schedule.goal:
            for owner, origin in sorted(self.origins.get((device, slot), ())):
                begins_here = (owner, slot) in self.schedule.start
                if origin != slot and (begins_here or origin % splits != slot % splits):
                    yield (
                        f"in the end slot {slot} of device {device} has what was slot {origin} of device {owner}, "
                        "not the same slot; send it to the slot that it comes from, or ask with keeps_places=False"
                    )


def _check_callable(name: str, value: object) -> None:
    if value is not None and not callable(value):
        raise refused("violations", f"{name} must be a function of two device numbers, got {described(value)}")


def _collisions(place: Place, sends: Sequence[Send]) -> Iterator[str]:
    device, slot = place
    if len(sends) > 1 and any(send.action is Action.STORE for send in sends):
        senders = " and ".join(f"device {send.sender}" for send in sends)
        yield (
            f"slot {slot} of device {device} is written by {senders} at once, so what it holds is undefined; "
            "let them come in different steps, or all add"
        )


def _impossible(schedule: Schedule, send: Send) -> str | None:
    for device in (send.sender, send.receiver):
        if not 0 <= device < schedule.devices:
            return f"{_said(send)}, but there is no device {device}; {_known('device', schedule.devices)}"
    for slot in (send.slot, send.target):
        if not 0 <= slot < schedule.slots:
            return f"{_said(send)}, but there is no slot {slot}; {_known('slot', schedule.slots)}"
    return None


def _unlinked(send: Send, joined: Joined | None, links_between: LinksBetween | None) -> str | None:
    if send.is_local:
        return None
    count = links_between(send.sender, send.receiver) if links_between else None
    if count == 0 or (joined and not joined(send.sender, send.receiver)):
        return f"{_said(send)}, but no link joins them; send it hop by hop, over devices that are joined"
    if send.link < 0 or (count is not None and send.link >= count):
        has = (
            "links are counted from 0; use 0 or more"
            if count is None
            else f"they have {count}; {_known('link', count)}"
        )
        return f"{_said(send)} over link {send.link}, but {has}"
    return None


def _crowded(step: Iterable[Send]) -> Iterator[str]:
    counts = Counter((send.sender, send.receiver, send.link) for send in step if not send.is_local)
    for (sender, receiver, link), count in counts.items():
        if count > 1:
            yield (
                f"link {link} from device {sender} to {receiver} carries {count} sends at once; spread them over "
                "links or steps"
            )


def _misnamed(schedule: Schedule, which: str, held: Mapping[Place, frozenset[int]]) -> Iterator[str]:
    """Places and devices of the start or the goal that do not exist, and pieces named in part."""
    everyone, slots = frozenset(range(schedule.devices)), range(schedule.slots)
    named: dict[Place, list[int]] = defaultdict(list)  # slots by device and piece
    for (device, slot), values in held.items():
        fault = None
        if device not in everyone:
            fault = f"there is no device {device}; {_known('device', schedule.devices)}"
        elif slot not in slots:
            fault = f"there is no slot {slot}; {_known('slot', schedule.slots)}"
        else:
            named[device, slot // schedule.splits].append(slot)
            if not values <= everyone:
                gone = min(values - everyone)
                fault = f"has the value of device {gone} there, and there is none; {_known('device', schedule.devices)}"
        if fault:
            yield f"the {which} speaks of slot {slot} of device {device}, but {fault}"
    for (device, piece), there in named.items():
        if len(there) < schedule.splits:
            absent = next(slot for slot in slots[piece * schedule.splits :] if slot not in there)
            yield (
                f"the {which} names slot {there[0]} of device {device} without slot {absent}, another split of "
                f"piece {piece}; name all {schedule.splits} splits of a piece"
            )


def _known(what: str, count: int) -> str:
    return f"use {what} 0" if count == 1 else f"use {what}s 0 to {count - 1}"


def _said(send: Send) -> str:
    return f"device {send.sender} sends slot {send.slot} to {send.receiver}"


# Why a value that a goal asks for is missing: where values lay after which step, and what would bring it.


Moment = tuple[int, frozenset[int]]  # the step since which a slot holds something, and what; 0 is the start
Moments = list[Moment]


class ValueHistory:
    """Of a schedule's values, as its steps are followed; they are counted from 1."""

    def __init__(self, start: Contributions, steps: Iterable[Step]) -> None:
        self._moments: dict[Place, Moments] = {place: [(0, held)] for place, held in start.items()}
        self._sent: dict[tuple[Place, Place], list[int]] = defaultdict(list)
        self._by_slot: dict[int, list[Place]] | None = None
        now = dict(start)
        for number, step in enumerate(steps, 1):
            written = after_step(step, now)
            now.update(written)
            self._note(number, step, written)

    def _note(self, number: int, step: Step, written: Contributions) -> None:
        for send in step:
            self._sent[(send.sender, send.slot), (send.receiver, send.target)].append(number)
        for place, held in written.items():
            if held:
                self._moments.setdefault(place, []).append((number, held))

    def since(self, place: Place, values: frozenset[int]) -> int:
        """The step since which all of the values have been there."""
        since = 0
        for number, held in reversed(self._moments[place]):
            if not values <= held:
                break
            since = number
        return since

    def why_missing(self, place: Place, missing: frozenset[int]) -> str:
        """Why the values are not there in the end, and a remedy."""
        for (_, before), (number, _) in _pairs_from_the_end(self._moments.get(place, [])):
            if before & missing:
                return f"step {number} stores over what was there; let it add, or store into another slot"
        holder = self._best_holder(place, missing)
        if holder is None:
            return self._why_lost(missing)
        found = missing & self._moments[holder][-1][1]
        return self._why_not_sent(holder, place, found, in_words(missing, found))

    def _why_not_sent(self, holder: Place, place: Place, found: frozenset[int], what: str) -> str:
        (_, slot), (device, target) = holder, place
        since = self.since(holder, found)
        has = f"{_named(holder, place)} has {what} " + (f"since step {since}" if since else "from the start")
        sent = self._sent.get((holder, place), [])
        if any(step > since for step in sent):
            return f"{has}, and what step {sent[-1]} sends of it is stored over at once; send it in another step"
        if sent:
            return f"{has}, but step {sent[-1]} sends slot {slot} on before; send it after step {since}"
        later, when = ("later ", f" after step {since}") if since else ("", "")
        return f"{has}, and no {later}step sends slot {slot} to slot {target} of device {device}; add a send{when}"

    def _best_holder(self, place: Place, missing: frozenset[int]) -> Place | None:
        """One that has most of them; of those one that sent too soon, and the one that got them last."""
        if self._by_slot is None:
            self._by_slot = defaultdict(list)
            for held in sorted(self._moments):
                self._by_slot[held[1]].append(held)
        for candidates in (self._by_slot.get(place[1], []), self._moments):
            having = [one for one in candidates if missing & self._moments[one][-1][1]]
            if having:
                return max(having, key=lambda one: self._rank(one, place, missing))
        return None

    def _rank(self, holder: Place, place: Place, missing: frozenset[int]) -> tuple[int, bool, int]:
        found = missing & self._moments[holder][-1][1]
        return (
            len(found),
            (holder, place) in self._sent,
            self.since(holder, found),
        )  # sent: too soon, or in vain

    def _why_lost(self, missing: frozenset[int]) -> str:
        lost = [
            (number, place)
            for place, moments in self._moments.items()
            for (_, before), (number, _) in _pairs_from_the_end(moments)
            if before & missing
        ]
        if not lost:
            return "no device starts with it; name it in the start, or leave it out of the goal"
        number, (device, slot) = max(lost)
        return (
            f"step {number} stores over the last of it, in slot {slot} of device {device}; send it on before, "
            "or let that step add"
        )


def values_of(devices: Iterable[int]) -> str:
    numbers = sorted(devices)
    listed = ", ".join(map(str, numbers))
    return f"the value of device {listed}" if len(numbers) == 1 else f"the values of devices {listed}"


def in_words(spoken_of: frozenset[int], found: frozenset[int]) -> str:
    if spoken_of == found:
        return "it" if len(found) == 1 else "them"
    return values_of(found)


def _named(holder: Place, place: Place) -> str:
    device, slot = holder
    return f"device {device}" if slot == place[1] else f"slot {slot} of device {device}"


def _pairs_from_the_end(moments: Moments) -> Iterable[tuple[Moment, Moment]]:
    return zip(reversed(moments[:-1]), reversed(moments[1:]), strict=True)
