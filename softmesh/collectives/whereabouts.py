"""Where values lay after which step: why one that a goal asks for is not there, and what would bring it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from softmesh.collectives.contributions import Contributions, Place, after_step
from softmesh.collectives.schedule import Step

Moment = tuple[int, frozenset[int]]  # the step since which a slot holds something, and what; 0 is the start
Moments = list[Moment]


class Whereabouts:
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
            return (
                f"{has}, and what step {sent[-1]} sends of it is stored over at once; send it in another step"
            )
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
