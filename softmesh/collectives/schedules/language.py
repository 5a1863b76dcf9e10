"""The schedule language: a `Schedule` is data that says in which step which device sends what to whom.

Every device of a group has the same numbered slots, each a chunk of a buffer. A send reads a slot at the
sender and stores it into, or adds it to, a slot at the receiver. All sends of a step happen at once: they
read what was there when the step began, so two devices may well swap their slots. What slots hold at first
(`start`) and must hold in the end (`goal`) is told by contributions: the devices whose values have been added
up in a slot.

A schedule of one's own is written like this; here device 0 passes its only chunk down a line of three:

>>> own = Schedule(
...     name="pass it on", devices=3, pieces=1, splits=1,
...     steps=((Send(0, 1, 0, Action.STORE, 0),), (Send(1, 2, 0, Action.STORE, 0),)),
...     start={(0, 0): frozenset({0})},
...     goal={(device, 0): frozenset({0}) for device in range(3)},
... )
>>> from softmesh.collectives.schedules.checker import neighbours, violations
>>> violations(own, neighbours((3,)))
[]
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from types import MappingProxyType
from typing import Any, NamedTuple, TypeVar

from softmesh.arguments import checked, checked_all, checked_int, checked_ints, described, refused
from softmesh.errors import ArgumentValueError

Held = Mapping[tuple[int, int], frozenset[int]]  # (device, slot): whose values it holds


class Action(Enum):
    STORE = "store"
    ADD = "add"


class Send(NamedTuple):
    """Slot `slot` of the sender goes to slot `target` of the receiver, over the `link`-th of their links.

    A device may send to itself: the move stays in its own memory and crosses no link, whatever `link` says.
    """

    sender: int
    receiver: int
    slot: int
    action: Action
    target: int
    link: int = 0

    @property
    def is_local(self) -> bool:
        return self.sender == self.receiver


Step = tuple[Send, ...]


@dataclass(frozen=True)
class Schedule:
    """`devices` members, numbered along their line or ring, or row by row through their grid.

    The slots are `pieces` (what the collective itself speaks of: one for each device's shard, say), each cut
    into `splits` parts that travel on their own: the two directions of a ring, the links side by side.

    Several sends of one step may add to the same slot: the receiver adds them to its own value in the order
    in which the step lists them, and rounds once.
    """

    name: str
    devices: int
    pieces: int
    splits: int
    steps: tuple[Step, ...]
    start: Held
    goal: Held

    def __post_init__(self) -> None:
        checked("Schedule", "name", self.name, str, "a string")
        for what in ("devices", "pieces", "splits"):
            checked_count("Schedule", what, getattr(self, what))
        _check_steps(self.steps)
        _check_held("start", self.start)
        _check_held("goal", self.goal)
        for name in ("start", "goal"):  # as it was checked, so it stays
            object.__setattr__(self, name, MappingProxyType(dict(getattr(self, name))))

    def __repr__(self) -> str:
        sends = sum(map(len, self.steps))
        parts = f"{self.pieces} pieces in {self.splits} parts"
        return f"Schedule({self.name!r}, {self.devices} devices, {len(self.steps)} steps, {sends} sends, {parts})"

    @property
    def slots(self) -> int:
        return self.pieces * self.splits

    def slot(self, piece: int, split: int) -> int:
        return piece * self.splits + split

    def starting_pieces(self, device: int) -> list[int]:
        """The pieces that a device brings along."""
        return sorted({slot // self.splits for owner, slot in self.start if owner == device})

    def sends(self) -> Iterator[tuple[int, Send]]:
        """Every send with the index of its step."""
        for index, step in enumerate(self.steps):
            for send in step:
                yield index, send


def part_sizes(total: int, parts: int) -> list[int]:
    """How `total` elements or bytes are cut into near-equal parts, the longer ones first.

    >>> part_sizes(10, 4)
    [3, 3, 2, 2]
    """
    short, longer = divmod(total, parts)
    return [short + 1] * longer + [short] * (parts - longer)


def checked_schedule(where: str, schedule: object) -> Schedule:
    return checked(where, "schedule", schedule, Schedule, "a Schedule, such as schedule_for(...) makes")


def checked_count(where: str, name: str, value: object, least: int = 1) -> int:
    number = checked_int(where, name, value)
    if number < least:
        raise ArgumentValueError(f"{where}(): {name} must be {least} or more, got {number}.")
    return number


def checked_mesh(
    where: str, shape: Sequence[int], wraps: bool | Sequence[bool]
) -> tuple[tuple[int, ...], tuple[bool, ...]]:
    """The extents of a mesh, and of each axis whether its ends are joined."""
    extents = tuple(checked_ints(where, "shape", shape))
    if any(extent < 1 for extent in extents):
        raise ArgumentValueError(f"{where}(): shape must have at least one device along each axis, got {extents}.")
    if isinstance(wraps, bool):
        closed = (wraps,) * len(extents)
    else:
        closed = tuple(checked_all(where, "wraps", wraps, (bool,), "bools"))
    if not extents or len(closed) != len(extents):
        raise ArgumentValueError(
            f"{where}(): wraps must have one entry for each axis of the shape, and shape at least one axis, got "
            f"{list(closed)} for {list(extents)}."
        )
    return extents, closed


def _check_steps(steps: object) -> None:
    if not isinstance(steps, tuple | list):
        raise refused("Schedule", f"steps must be a tuple of steps, got {described(steps)}")
    for number, step in enumerate(steps):
        if isinstance(step, Send) or not isinstance(step, tuple | list):
            raise refused("Schedule", f"steps[{number}] must be a tuple of Sends, got {described(step)}")
        for send in step:
            _check_send(number, send)


def _check_send(number: int, send: object) -> None:
    if not isinstance(send, Send):
        raise refused("Schedule", f"steps[{number}] must hold Sends, got {described(send)}")
    if not isinstance(send.action, Action):
        raise refused(
            "Schedule",
            f"action must be Action.STORE or Action.ADD, got {send.action!r} in steps[{number}]: {send}",
        )
    for name, value in zip(send._fields, send, strict=True):
        if value.__class__ is not int and name != "action":
            checked_int("Schedule", f"{name} of a Send in steps[{number}]", value)


def _check_held(name: str, held: object) -> None:
    """Places and whose values they hold."""
    wanted = f"{name} must be a dict from (device, slot) to device numbers"
    if not isinstance(held, Mapping):
        raise refused("Schedule", f"{wanted}, got {described(held)}")
    for place, devices in held.items():
        if not (isinstance(place, tuple) and len(place) == 2 and isinstance(devices, frozenset | set)):
            raise refused(
                "Schedule",
                f"{wanted} such as frozenset({{0}}), got {described(place)}: {described(devices)}",
            )
        for number in place:
            if number.__class__ is not int:
                checked_int("Schedule", f"a device or slot of the {name}", number)
        if not devices:
            raise refused("Schedule", f"{name}[{place}] is empty: name a device, or leave the place out")
    for devices in {id(devices): devices for devices in held.values()}.values():  # many places share a set
        for number in devices:
            if number.__class__ is not int:
                checked_int("Schedule", f"a device whose value the {name} holds", number)


# How contributions travel: what a step finds in each slot, what it sends, and what the slots hold afterwards.


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
