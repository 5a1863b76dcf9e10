"""Who touched a piece of memory since somebody last overwrote it, and which of those touches may overtake a new one."""

from __future__ import annotations

from typing import NamedTuple

from softmesh.runtime.sanitizer.clock import Clock, Places, Step


class Where(NamedTuple):
    """The part of a piece of memory: on which devices (None: all), and there which pages (None: all)."""

    places: Places | None
    pages: range | None = None
    paged: object = None  # how the memory is cut into pages: numbers of other pages mean nothing to these

    def meets(self, other: Where) -> bool:
        if self.places is not None and other.places is not None and self.places.isdisjoint(other.places):
            return False
        if self.pages is None or other.pages is None or self.paged != other.paged:
            return True
        return self.pages.start < other.pages.stop and other.pages.start < self.pages.stop

    def covers(self, other: Where) -> bool:
        if self.places is not None and (other.places is None or not other.places <= self.places):
            return False
        if self.pages is None:
            return True
        if other.pages is None or self.paged != other.paged:
            return False
        return self.pages.start <= other.pages.start and other.pages.stop <= self.pages.stop

    def shared_places(self, other: Where) -> Places | None:
        if self.places is None or other.places is None:
            return self.places or other.places
        return self.places & other.places


EVERYWHERE = Where(None)


class Touch(NamedTuple):
    """A step reads or writes memory. `what` it was then and there, and the number of its allocation, for messages."""

    step: Step
    is_write: bool
    where: Where
    what: object
    allocation: int

    def replaces(self, old: Touch) -> bool:
        """Whether what comes after this and is ordered with it needs no order with the old one."""
        if self.where is not EVERYWHERE and not self.where.covers(old.where):
            return False
        return self.is_write or (not old.is_write and old.step.agent is self.step.agent)


class History:
    """Touches of one piece of memory."""

    __slots__ = ("touches",)

    def __init__(self, touches: list[Touch] | None = None) -> None:
        self.touches = touches or []

    def add(self, touch: Touch, clock: Clock) -> list[Touch]:
        """Those that nothing orders before the new one, and that it conflicts with; `clock` is the new one's."""
        found = [old for old in self.touches if may_overtake(touch, old, clock)]
        self.touches = [old for old in self.touches if not touch.replaces(old)]
        self.touches.append(touch)
        return found


def may_overtake(touch: Touch, old: Touch, clock: Clock) -> bool:
    step = old.step
    if step.agent is touch.step.agent or not (touch.is_write or old.is_write):
        return False
    if clock.counts.get(step.agent.number, 0) >= step.count or not touch.where.meets(old.where):
        return False
    return not clock.knows(step, touch.where.shared_places(old.where))
