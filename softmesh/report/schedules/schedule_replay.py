"""A schedule replayed step by step: the contents of every slot, the effect of each send, the bytes on each link.

Text, film strip and web page are all drawn from one `ScheduleReplay`; nothing here knows of ink or of columns.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

from softmesh.collectives.schedules.checker import refuse_broken
from softmesh.collectives.schedules.language import Action, Contributions, Schedule, Send, after_step
from softmesh.collectives.schedules.link_traffic import Lane, PieceBytes, bytes_per_link, bytes_per_step
from softmesh.errors import ArgumentValueError

_MOST_LABELLED = 24


class SendEffect(NamedTuple):
    """A send, how many contributions it carries, and how many its target has before and after."""

    send: Send
    carried: int
    before: int
    after: int

    @property
    def lane(self) -> Lane:
        return Lane(self.send.sender, self.send.receiver, self.send.link)


@dataclass(frozen=True)
class ScheduleReplay:
    """A schedule on devices that lie along `shape`; `wraps` tells which of its axes close to rings.

    `names` are what the devices are called (chips of a machine, say), `lane_names` what the links are.
    `piece_bytes` is the size of each piece, or of all; None where nobody asked.
    """

    schedule: Schedule
    shape: tuple[int, ...]
    wraps: tuple[bool, ...]
    piece_bytes: PieceBytes | None = None
    title: str = ""
    names: tuple[str, ...] = ()
    lane_names: Mapping[Lane, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        refuse_broken("draw", self.schedule)
        if math.prod(self.shape) != self.schedule.devices or len(self.wraps) != len(self.shape):
            raise ArgumentValueError(
                f"draw(): {self.schedule.name} is for {self.schedule.devices} devices, and a shape of "
                f"{list(self.shape)} has {math.prod(self.shape)}; wraps has an entry for each of its axes."
            )

    @property
    def heading(self) -> str:
        return self.title or f"{self.schedule.name}: {self.devices_in_words}"

    @property
    def devices_in_words(self) -> str:
        extents = [extent for extent in self.shape if extent > 1]
        count = self.schedule.devices
        if len(extents) > 1:
            kind = "torus" if all(self.wraps) else "grid"
            return f"{count} devices, a {kind} of {'x'.join(map(str, self.shape))}"
        if count == 1:
            return "one device"
        return f"{count} devices in a {'ring' if self.is_ring else 'line'}"

    @property
    def is_ring(self) -> bool:
        long = [wrap for extent, wrap in zip(self.shape, self.wraps, strict=True) if extent > 1]
        return long == [True]

    @cached_property
    def states(self) -> tuple[Contributions, ...]:
        """What is held at the start and after each step: one more than there are steps."""
        states: list[Contributions] = [self.schedule.start]
        for step in self.schedule.steps:
            states.append({**states[-1], **after_step(step, states[-1])})
        return tuple(states)

    def send_effects(self, step: int) -> list[SendEffect]:
        before, after = self.states[step], self.states[step + 1]
        return [
            SendEffect(
                send,
                len(before.get((send.sender, send.slot), ())),
                len(before.get((send.receiver, send.target), ())),
                len(after.get((send.receiver, send.target), ())),
            )
            for send in self.schedule.steps[step]
        ]

    def sends_by_lane(self, step: int) -> dict[Lane, list[SendEffect]]:
        by_lane: dict[Lane, list[SendEffect]] = {}
        for sent in self.send_effects(step):
            by_lane.setdefault(sent.lane, []).append(sent)
        return by_lane

    @cached_property
    def complete_counts(self) -> tuple[int, ...]:
        """For each slot, how many contributions make it complete."""
        sizes = [1] * self.schedule.slots
        for (_, slot), held in self.schedule.goal.items():
            sizes[slot] = max(sizes[slot], len(held))
        return tuple(sizes)

    def share(self, count: int, slot: int) -> float:
        return min(1.0, count / self.complete_counts[slot])

    @cached_property
    def adds(self) -> bool:
        """Whether anything is summed; where nothing is, counts of contributions say nothing."""
        return max(self.complete_counts, default=1) > 1 or any(
            send.action is Action.ADD for _, send in self.schedule.sends()
        )

    @cached_property
    def _uses(self) -> dict[tuple[int, int], list[tuple[int, bool]]]:
        """For each slot of a device, the steps that touch it, in order; whether its value matters there."""
        uses: dict[tuple[int, int], list[tuple[int, bool]]] = {}
        for number, step in enumerate(self.schedule.steps):
            for send in step:
                uses.setdefault((send.sender, send.slot), []).append((number, True))
            for send in step:
                uses.setdefault((send.receiver, send.target), []).append((number, send.action is Action.ADD))
        return uses

    def is_spent(self, step: int, device: int, slot: int) -> bool:
        """Whether nobody needs the value that lies here after `step` steps."""
        for number, matters in self._uses.get((device, slot), ()):
            if number >= step:
                return not matters
        return (device, slot) not in self.schedule.goal

    @property
    def _sizes(self) -> PieceBytes:
        """Where no sizes are known, chunks are counted: each split of a piece is one."""
        return self.schedule.splits if self.piece_bytes is None else self.piece_bytes

    @cached_property
    def carried(self) -> dict[Lane, int]:
        """Bytes over each lane in all, or chunks."""
        return bytes_per_link(self.schedule, self._sizes)

    @cached_property
    def carried_in(self) -> list[dict[Lane, int]]:
        """The same of each step."""
        return bytes_per_step(self.schedule, self._sizes)

    @cached_property
    def most_carried(self) -> int:
        return max(self.carried.values(), default=1) or 1

    @cached_property
    def input_bytes(self) -> int | None:
        """What a device brings along, at most."""
        size = self.piece_bytes
        if size is None:
            return None
        brought: Counter[int] = Counter()
        for device, slot in self.schedule.start:
            if slot % self.schedule.splits == 0:
                brought[device] += size if isinstance(size, int) else size[slot // self.schedule.splits]
        return max(brought.values(), default=0)

    @property
    def is_even(self) -> bool:
        """Whether all lanes in use carry the same."""
        return len(set(self.carried.values())) <= 1

    def busiest_first(self) -> list[tuple[Lane, int]]:
        return sorted(self.carried.items(), key=lambda item: (-item[1], item[0]))

    def amount(self, carried: int) -> str:
        """In words: bytes where sizes are known, else chunks."""
        if self.piece_bytes is None:
            return f"{carried} {'chunk' if carried == 1 else 'chunks'}"
        return bytes_text(carried)

    def short_amount(self, carried: int) -> str:
        """The same in few characters."""
        if self.piece_bytes is None:
            return str(carried)
        return bytes_text(carried, digits=3).replace(" ", "").removesuffix("iB")

    def name(self, device: int) -> str:
        return self.names[device] if self.names else str(device)

    def device(self, device: int) -> str:
        return self.names[device] if self.names else f"device {device}"

    def short_name(self, device: int) -> str:
        """For a disc: of chip 12, the number."""
        return self.name(device).split()[-1]

    def lane_name(self, lane: Lane) -> str:
        if lane in self.lane_names:
            return self.lane_names[lane]
        several = any(other.link for other in self.carried)
        return f"{self.name(lane.sender)} → {self.name(lane.receiver)}" + (f", link {lane.link}" if several else "")

    @property
    def is_crowded(self) -> bool:
        """So many devices that arrows have no labels."""
        return self.schedule.devices > _MOST_LABELLED

    def labels(self, step: int) -> dict[tuple[int, int], str]:
        """What is written beside the arrows from one device to another."""
        if self.is_crowded:
            return {}
        slots: dict[tuple[int, int], list[int]] = {}
        for send in self.schedule.steps[step]:
            if not send.is_local:
                slots.setdefault((send.sender, send.receiver), []).append(send.slot)
        return {ends: self.label(there) for ends, there in slots.items()}

    def label(self, slots: list[int]) -> str:
        """The first chunks; a piece that goes as a whole is named as a whole."""
        splits = self.schedule.splits
        parts = Counter(slot // splits for slot in slots)
        names = list(
            dict.fromkeys(
                self.piece_name(piece) if self.journeys or parts[piece] == splits else self.chunk(slot)
                for slot in slots
                for piece in (slot // splits,)
            )
        )
        most = 1 if self.journeys else 2
        return " ".join(names) if len(names) <= most else f"{names[0]} +{len(names) - 1}"

    @cached_property
    def label_length(self) -> int:
        """Of the longest label of any step or of the total, in characters."""
        if self.is_crowded:
            return 0
        labels = [label for step in range(len(self.schedule.steps)) for label in self.labels(step).values()]
        totals = [] if self.is_even else [self.short_amount(amount) for amount in self.carried.values()]
        return max(map(len, labels + totals), default=0)

    @cached_property
    def journeys(self) -> tuple[tuple[int, int], ...]:
        """Of each piece where it starts and where it ends, if pieces are known by that: as in all_to_all."""
        starts = _single_owners(self.schedule, self.schedule.start)
        ends = _single_owners(self.schedule, self.schedule.goal)
        pieces = self.schedule.pieces
        journeys = tuple((starts[piece], ends[piece]) for piece in range(pieces) if piece in starts and piece in ends)
        return journeys if pieces > 1 and len(set(journeys)) == pieces else ()

    def piece_name(self, piece: int) -> str:
        """A letter; or from where to where the piece travels."""
        if self.journeys:
            return "{}›{}".format(*map(self.short_name, self.journeys[piece]))
        return letters(piece)

    def chunk(self, slot: int) -> str:
        """The piece, and the number of its part where it is split."""
        piece, split = divmod(slot, self.schedule.splits)
        between = "." if self.journeys else ""
        return self.piece_name(piece) + (f"{between}{split + 1}" if self.schedule.splits > 1 else "")

    @property
    def colour_count(self) -> int:
        return self.schedule.devices if self.journeys else self.schedule.pieces

    def colour(self, slot: int) -> int:
        """The number of a slot's colour: one for each piece, or for each device that pieces come from."""
        piece = slot // self.schedule.splits
        return self.journeys[piece][0] if self.journeys else piece


def _single_owners(schedule: Schedule, held: Contributions) -> dict[int, int]:
    """The device that has a piece, for the pieces that one device has."""
    owners: dict[int, set[int]] = {}
    for device, slot in held:
        owners.setdefault(slot // schedule.splits, set()).add(device)
    return {piece: devices.pop() for piece, devices in owners.items() if len(devices) == 1}


def letters(number: int) -> str:
    """A to Z, then AA, AB and so on."""
    text = ""
    while number >= 0:
        number, digit = divmod(number, 26)
        text, number = chr(65 + digit) + text, number - 1
    return text


_UNITS = ("B", "KiB", "MiB", "GiB", "TiB")


def bytes_text(count: float, digits: int = 4) -> str:
    unit = 0
    while count >= 1024 and unit < len(_UNITS) - 1:
        count, unit = count / 1024, unit + 1
    return f"{count:.{digits if count < 1000 else 4}g} {_UNITS[unit]}"


# Steps and sends as sentences.


def sentence(replay: ScheduleReplay, sent: SendEffect) -> str:
    send = sent.send
    what = f"chunk {replay.chunk(send.slot)}"
    if replay.adds:
        whole = replay.complete_counts[send.slot]
        if sent.carried >= whole > 1:
            what = f"the complete {what}"
        elif sent.carried > 1:
            what = f"its sum of {what} ({sent.carried} of {whole} contributions)"
        else:
            what = f"its own {what}"
    return f"{replay.device(send.sender)} sends {what} to {replay.device(send.receiver)}, {_reception(replay, sent)}"


def _reception(replay: ScheduleReplay, sent: SendEffect) -> str:
    send = sent.send
    where = "" if send.target == send.slot else f" as chunk {replay.chunk(send.target)}"
    if send.action is Action.STORE:
        return f"which {'stores it over what it had' if sent.before else 'stores it'}{where}"
    own = "its own" if sent.before == 1 else f"it to its sum of {sent.before}"
    whole = replay.complete_counts[send.target]
    ready = "complete now" if sent.after >= whole else f"{sent.after} of {whole} now"
    return f"which adds {own}{where}: {ready}" if sent.before else f"which stores it{where}"


def summary(replay: ScheduleReplay, step: int) -> str:
    """A step in one line: how many sends, and what becomes of them."""
    actions = Counter(send.action for send in replay.schedule.steps[step])
    count = sum(actions.values())
    if not count:
        return "nothing is sent"
    senders = len({send.sender for send in replay.schedule.steps[step]})
    who = f"{senders} {'device sends' if senders == 1 else 'devices send'}"
    what = f"{count} {'chunk' if count == 1 else 'chunks'}"
    if len(actions) == 2:
        fate = f"{actions[Action.ADD]} added, {actions[Action.STORE]} stored"
    elif Action.ADD in actions:
        fate = "added where they arrive" if count > 1 else "added where it arrives"
    else:
        fate = "stored where they arrive" if count > 1 else "stored where it arrives"
    return f"{who} {what}, {fate}"
