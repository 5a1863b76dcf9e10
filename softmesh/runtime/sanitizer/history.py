"""Who touched a piece of memory since somebody last overwrote it, and which of those touches may overtake a new one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from softmesh.runtime.memory.span import Span
from softmesh.runtime.sanitizer.clock import Agent, Clock, Places, Step


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
    """A step reads or writes memory, `span` as it was then."""

    step: Step
    is_write: bool
    where: Where
    span: Span


class History:
    """Touches of one piece of memory.

    A write replaces what it covers, and a read the last read of its agent: what is ordered with the new one needs
    no order with the old one. While one agent alone touches it, all of it at a time, only its last write and its
    last read since are noted.
    """

    __slots__ = ("_read", "_touches", "_write", "only")

    def __init__(self, touches: Sequence[Touch] = ()) -> None:
        self._write: tuple[Step, Span] | None = None
        self._read: tuple[Step, Span] | None = None
        self._touches = list(touches)
        self.only = _only_agent(self._touches)

    @property
    def touches(self) -> list[Touch]:
        if self._write is not None:
            step, span = self._write
            self._touches = [Touch(step, True, EVERYWHERE, span)]
        if self._read is not None:
            if self._touches and not self._touches[-1].is_write:
                self._touches.pop()
            step, span = self._read
            self._touches.append(Touch(step, False, EVERYWHERE, span))
        self._write = self._read = None
        return self._touches

    def note(self, step: Step, is_write: bool, span: Span) -> None:
        """`only` touches all of it once more: nobody can be overtaken."""
        if is_write:
            self._write, self._read = (step, span), None
        else:
            self._read = (step, span)

    def add(self, touch: Touch, clock: Clock) -> Sequence[Touch]:
        """Those that nothing orders before the new one, and that it conflicts with; `clock` is the new one's."""
        if touch.where is not EVERYWHERE or self.only is not touch.step.agent:
            return self._add_among_others(touch, clock)
        self.note(touch.step, touch.is_write, touch.span)
        return ()

    def _add_among_others(self, touch: Touch, clock: Clock) -> list[Touch]:
        found, kept = [], []
        for old in self.touches:
            is_mine = old.step.agent is touch.step.agent
            if not is_mine and (touch.is_write or old.is_write) and _may_overtake(touch, old, clock):
                found.append(old)
            is_replaced = touch.is_write or (is_mine and not old.is_write)
            if not is_replaced or not touch.where.covers(old.where):
                kept.append(old)
        self._touches = [*kept, touch]
        self.only = _only_agent(self._touches)
        return found


def _only_agent(touches: list[Touch]) -> Agent | None:
    agents = {touch.step.agent for touch in touches}
    return agents.pop() if len(agents) == 1 else None


def _may_overtake(touch: Touch, old: Touch, clock: Clock) -> bool:
    step = old.step
    if clock.counts.get(step.agent.number, 0) >= step.number or not touch.where.meets(old.where):
        return False
    return not clock.knows(step, touch.where.shared_places(old.where))
