"""How contributions travel: what a step finds in each slot, what it sends, and what lies there afterwards."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple, TypeVar

from softmesh.collectives.schedule import Action, Send

Place = tuple[int, int]  # device and slot
Contributions = Mapping[Place, frozenset[int]]
_Held = TypeVar("_Held", bound=frozenset[Any])
_NOTHING: frozenset[Any] = frozenset()


class Arrival(NamedTuple):
    """A send, what it carries, and what its target has before and after it."""

    send: Send
    carried: frozenset[Any]
    before: frozenset[Any]
    after: frozenset[Any]


def arrivals(step: Iterable[Send], held: Mapping[Place, _Held]) -> Iterator[Arrival]:
    """All sends read what was there when the step began; those to one slot arrive in the order of the step.

    A send from an empty slot changes nothing.
    """
    written: dict[Place, frozenset[Any]] = {}
    for send in step:
        place = send.receiver, send.target
        carried = held.get((send.sender, send.slot), _NOTHING)
        before = written.get(place) or held.get(place, _NOTHING)
        after = before | carried if send.action is Action.ADD or not carried else carried
        written[place] = after
        yield Arrival(send, carried, before, after)


def after_step(step: Iterable[Send], held: Mapping[Place, _Held]) -> dict[Place, Any]:
    """What the slots hold that a step writes."""
    return {(send.receiver, send.target): after for send, _, _, after in arrivals(step, held)}
