"""Schedule generators along one line or ring, and the ways to combine schedules into others.

One movement is behind all of them. A value spreads from its device hop by hop, both ways, and every device
that gets it keeps a copy and passes it on in the next step (store and forward). All devices spreading their
own at once is an all_gather. Run backwards it is a reduce_scatter: where copies went out, partial sums come
in. A path (`Line`, `Ring`) says how far a value spreads each way and which link it takes.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain, zip_longest
from typing import Protocol

from softmesh.collectives.schedules.language import Action, Held, Schedule, Send, Step
from softmesh.errors import ArgumentValueError

# Schedules made of schedules: run backwards, one after another, side by side.


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


@dataclass(frozen=True)
class Line:
    """`devices` in a row, neighbours joined by `links` links side by side; each link carries one split.

    What spreads from a device on a line travels both ways, to the ends.
    """

    devices: int
    links: int = 1

    def __post_init__(self) -> None:
        check_counts(self.devices, self.links)

    @property
    def splits(self) -> int:
        return self.links

    def link(self, split: int) -> int:
        return split

    def reach(self, source: int, split: int) -> tuple[int, int]:
        """How many hops a split spreads forward and backward until everyone has it."""
        return self.devices - 1 - source, source

    def way(self, source: int, target: int, tie_forward: bool = True) -> tuple[int, int]:
        """The direction, 1 or -1, and the number of hops from one device to another."""
        return (1 if target >= source else -1), abs(target - source)

    def mirrored(self) -> Line:
        return self


def check_counts(devices: int, links: int) -> None:
    if devices < 1:
        raise ArgumentValueError(f"a group has at least one device, got {devices}")
    if links < 1:
        raise ArgumentValueError(f"num_links must be greater than 0, got {links}")


@dataclass(frozen=True)
class Ring:
    """`devices` in a circle, neighbours joined by `links` links side by side.

    What spreads from a device goes half way round in either direction, so that a gather takes half as many
    steps as the ring has devices and both directions of every link carry the same. In an even ring the
    device opposite is as far one way as the other: pieces are cut in halves, and each gets there its own way.

    With one direction (`directions=1`) everything goes forward, all the way round. `forward` False turns the
    ring: forward and backward change places. A ring of two is a line: there is no second way.
    """

    devices: int
    links: int = 1
    directions: int = 2
    forward: bool = True

    def __post_init__(self) -> None:
        check_counts(self.devices, self.links)
        if self.directions not in (1, 2):
            raise ArgumentValueError(f"a ring has directions=1 or directions=2, got {self.directions}")

    @property
    def splits(self) -> int:
        in_halves = self.directions == 2 and self.devices > 2 and self.devices % 2 == 0
        return 2 * self.links if in_halves else self.links

    def link(self, split: int) -> int:
        return split % self.links

    def reach(self, source: int, split: int) -> tuple[int, int]:
        """How many hops a split spreads forward and backward until everyone has it."""
        others = self.devices - 1
        far = others if self.directions == 1 else self.devices // 2
        is_second_half = split >= self.links
        return (far, others - far) if self.forward != is_second_half else (others - far, far)

    def way(self, source: int, target: int, tie_forward: bool = True) -> tuple[int, int]:
        """The direction, 1 or -1, and the number of hops of the shorter way."""
        ahead, behind = (target - source) % self.devices, (source - target) % self.devices
        if self.directions == 1:
            return (1, ahead) if self.forward else (-1, behind)
        goes_forward = ahead < behind or (ahead == behind and tie_forward)
        return (1, ahead) if goes_forward else (-1, behind)

    def mirrored(self) -> Ring:
        return replace(self, forward=not self.forward)


class Path(Protocol):
    @property
    def devices(self) -> int: ...
    @property
    def links(self) -> int: ...
    @property
    def splits(self) -> int: ...
    def link(self, split: int) -> int: ...
    def reach(self, source: int, split: int) -> tuple[int, int]: ...
    def way(self, source: int, target: int, tie_forward: bool = True) -> tuple[int, int]: ...
    def mirrored(self) -> Path: ...


Sends = Iterator[tuple[int, Send]]  # with the number of the step


def all_gather(path: Path) -> Schedule:
    """Piece d starts at device d; in the end every device has every piece."""
    return _gather("all_gather", path, path.splits)


def reduce_scatter(path: Path) -> Schedule:
    """Every device starts with all pieces; in the end piece d, summed over the devices, is at device d.

    The last addition at device d takes its own value first, then the partial sums from its neighbours, that
    of the lower-numbered one first. In a ring of one direction piece d starts at device d + 1.
    """
    return backwards(all_gather(path.mirrored()), "reduce_scatter")


def all_reduce(path: Path) -> Schedule:
    """A reduce_scatter, then an all_gather of the sums: every device has every piece, summed."""
    return scatter_then_gather(reduce_scatter(path), all_gather(path))


def all_reduce_direct(path: Path) -> Schedule:
    """Device d's whole value is piece d, travels to all, and is added there: the sum is piece 0.

    More bytes than the composed form, but fewer steps, and everyone adds in the order of the devices.
    """
    return gather_then_sum(all_gather(path))


def broadcast(path: Path, root: int) -> Schedule:
    """The one piece of `root` reaches everyone."""
    check_member(path.devices, "root", root)
    sends = (hop for split in range(path.splits) for hop in _spread(path, root, split, split))
    slots = range(path.splits)
    start: Held = {(root, slot): frozenset({root}) for slot in slots}
    goal: Held = {(device, slot): frozenset({root}) for device in range(path.devices) for slot in slots}
    return Schedule("broadcast", path.devices, 1, path.splits, in_steps(sends), start, goal)


def reduce_to(path: Path, root: int) -> Schedule:
    """Everyone's one piece is summed at `root`: a broadcast run backwards."""
    return backwards(broadcast(path.mirrored(), root), "reduce_to")


def barrier(path: Path) -> Schedule:
    """Everyone's token, of no bytes, reaches everyone; a device leaves when it has them all."""
    return _gather("barrier", path, 1)


def all_to_all(path: Path) -> Schedule:
    """Piece s * devices + d starts at device s and ends at device d."""
    n, splits = path.devices, path.splits
    sends = (hop for source in range(n) for split in range(splits) for hop in _deal_out(path, source, split))
    start, goal = ends_of_all_to_all(n, splits)
    return Schedule("all_to_all", n, n * n, splits, in_steps(sends), start, goal)


def point_to_point(path: Path, src: int, dst: int, *, tie_forward: bool = True) -> Schedule:
    """The one piece of `src` goes to `dst`, in a ring the shorter way; `tie_forward` if both are equal."""
    check_member(path.devices, "src", src)
    check_member(path.devices, "dst", dst)
    direction, hops = path.way(src, dst, tie_forward)
    sends = (hop for link in range(path.links) for hop in _carry(path, src, direction, hops, slot=link, link=link))
    start: Held = {(src, slot): frozenset({src}) for slot in range(path.links)}
    goal: Held = {(dst, slot): frozenset({src}) for slot in range(path.links)}
    return Schedule("point_to_point", path.devices, 1, path.links, in_steps(sends), start, goal)


def ends_of_gather(devices: int, splits: int) -> tuple[Held, Held]:
    """Everyone starts with the piece of its number; everyone ends with all of them."""
    owners = {slot: frozenset({slot // splits}) for slot in range(devices * splits)}
    start: Held = {(slot // splits, slot): owner for slot, owner in owners.items()}
    goal: Held = {(device, slot): owner for device in range(devices) for slot, owner in owners.items()}
    return start, goal


def ends_of_all_to_all(devices: int, splits: int) -> tuple[Held, Held]:
    start: dict[tuple[int, int], frozenset[int]] = {}
    goal: dict[tuple[int, int], frozenset[int]] = {}
    for slot in range(devices * devices * splits):
        source, target = divmod(slot // splits, devices)
        start[source, slot] = goal[target, slot] = frozenset({source})
    return start, goal


def check_member(devices: int, argument: str, device: int) -> None:
    if not 0 <= device < devices:
        raise ArgumentValueError(f"{argument} must be a device of the group, 0 to {devices - 1}, got {device}")


def _gather(name: str, path: Path, splits: int) -> Schedule:
    n = path.devices
    sends: Iterable[tuple[int, Send]] = (
        hop
        for source in range(n)
        for split in range(splits)
        for hop in _spread(path, source, split, slot=source * splits + split)
    )
    return Schedule(name, n, n, splits, in_steps(sends), *ends_of_gather(n, splits))


def _spread(path: Path, source: int, split: int, slot: int) -> Sends:
    """A slot goes both ways as far as the path has it reach."""
    for direction, hops in zip((1, -1), path.reach(source, split), strict=True):
        yield from _carry(path, source, direction, hops, slot, path.link(split))


def _deal_out(path: Path, source: int, split: int) -> Sends:
    """A device's pieces go to those they are meant for, each split the way the path has it reach."""
    for direction, hops in zip((1, -1), path.reach(source, split), strict=True):
        for distance in range(1, hops + 1):
            target = (source + direction * distance) % path.devices
            slot = (source * path.devices + target) * path.splits + split
            yield from _carry(path, source, direction, distance, slot, path.link(split))


def _carry(path: Path, source: int, direction: int, hops: int, slot: int, link: int) -> Sends:
    """One hop in each step, from neighbour to neighbour."""
    n = path.devices
    for hop in range(hops):
        sender = (source + direction * hop) % n
        yield hop, Send(sender, (sender + direction) % n, slot, Action.STORE, slot, link)
