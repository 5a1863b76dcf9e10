"""Boards and cables become machines: builds the systems that the files of data/systems describe.

A system of many hosts has the same boards in every host, and cables between them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from softmesh.errors import MeshError
from softmesh.systems.data_file import DataFile, Socket, part_of
from softmesh.systems.machine import Asic, Link, Machine, Port, numbered
from softmesh.systems.system_file import Placed, Plan, Variant
from softmesh.yaml_tree import Text, shown

_CABLE_END = re.compile(
    r"((?P<host>[\w-]+):)?(?P<tray>\d{1,4})\.(?P<connector>[\w-]+)(/(?P<location>\d{1,4}))?", re.ASCII
)


def build(plan: Plan, name: str, find: Callable[[str], tuple[Plan, str]]) -> Machine:
    """The system of this name; `find` looks up the file that describes another one, and its full name."""
    assembly = _Assembly(plan)
    variant = plan.variants[name]
    if plan.like is None:
        assembly.fill(plan, variant)
    else:
        base, base_name = find(plan.like)
        if base.like is not None:
            raise MeshError(f"{plan.path}: {plan.like} is itself like another system; name that one")
        assembly.fill(base, base.variants[base_name])
        assembly.add_cables(plan, variant)
    return assembly.machine(plan, variant)


@dataclass
class _Assembly:
    plan: Plan
    boards: dict[int, Placed] = field(default_factory=dict)
    links: list[Link] = field(default_factory=list)
    users: dict[Port, str] = field(default_factory=dict)

    @property
    def chips_per_host(self) -> int:
        return sum(len(placed.ids) for placed in self.boards.values())

    def fill(self, plan: Plan, variant: Variant) -> None:
        self.boards = plan.boards
        for host in range(len(self.plan.hosts)):
            for tray, placed in self.boards.items():
                for one, other in placed.board.links:
                    self.join(self.port(host, tray, one), self.port(host, tray, other), "a link of the board")
        self.add_cables(plan, variant)

    def add_cables(self, plan: Plan, variant: Variant) -> None:
        for group in variant.cabling:
            for cable in plan.cabling[group]:
                self.add_cable(DataFile(plan.path), cable)

    def add_cable(self, file: DataFile, cable: Text) -> None:
        ends = [_CableEnd(file, end, self.plan.hosts, self.boards) for end in file.ends(cable)]
        if (ends[0].host is None) != (ends[1].host is None):
            raise file.wrong(cable, f"{cable}: name the host at both ends, or at neither")
        if len(ends[0].sockets) != len(ends[1].sockets):
            counts = " and ".join(str(len(end.sockets)) for end in ends)
            raise file.wrong(cable, f"{cable}: the ends have {counts} channels; both need the same number")
        user = f"{file.path}:{cable.line}: the cable {cable}"
        for near_host, far_host in self.host_pairs(ends[0].host, ends[1].host):
            for near, far in zip(ends[0].sockets, ends[1].sockets, strict=True):
                one, other = self.port(near_host, ends[0].tray, near), self.port(far_host, ends[1].tray, far)
                self.join(one, other, user)

    def host_pairs(self, one: int | None, other: int | None) -> Iterator[tuple[int, int]]:
        """A cable that names no hosts is in every one of them."""
        if one is not None and other is not None:
            yield one, other
        else:
            yield from ((host, host) for host in range(len(self.plan.hosts)))

    def port(self, host: int, tray: int, socket: Socket) -> Port:
        return Port(host * self.chips_per_host + self.boards[tray].ids[socket.location], socket.channel)

    def join(self, one: Port, other: Port, user: str) -> None:
        for port in (one, other):
            if port in self.users:
                raise MeshError(f"{user}: {port} is taken already, by {self.users[port]}")
            self.users[port] = user
        self.links.append(Link.between(one, other))

    def machine(self, plan: Plan, variant: Variant) -> Machine:
        return Machine(
            name=variant.name,
            chip=next(iter(self.boards.values())).board.chip,
            cluster_type=plan.cluster_type,
            asics=numbered(self.asics()),
            links=tuple(sorted(self.links)),
            summary=variant.summary,
        )

    def asics(self) -> Iterator[Asic]:
        for index, host in enumerate(self.plan.hosts):
            for tray, placed in self.boards.items():
                for location, chip in placed.ids.items():
                    yield Asic(
                        id=index * self.chips_per_host + chip,
                        # Chips of one board share the low half, as on real boards: its serial number.
                        unique_id=(location + 1) << 32 | (index + 1) << 16 | tray,
                        host=host,
                        tray=tray,
                        location=location,
                        board=placed.board.name,
                        pcie=placed.pcie.get(location),
                    )


class _CableEnd:
    """`[host:]tray.connector[/location]`: a connector, or the channels of one chip behind it."""

    def __init__(self, file: DataFile, text: Text, hosts: tuple[str, ...], boards: dict[int, Placed]) -> None:
        parts = _CABLE_END.fullmatch(text)
        if parts is None:
            raise file.wrong(text, f"expected an end such as 1.qsfp-1 or box-0:1.qsfp-1, found {shown(text)}")
        self.host = None
        if parts["host"] is not None:
            self.host = hosts.index(file.one_of(part_of(text, parts["host"]), hosts, "host"))
        self.tray = int(parts["tray"])
        if self.tray not in boards:
            raise file.wrong(text, f"{text}: no tray {self.tray}, only {', '.join(map(str, boards))}")
        board = boards[self.tray].board
        connector = file.one_of(
            part_of(text, parts["connector"]), board.connectors, f"connector of {board.name}"
        )
        self.sockets = board.connectors[connector]
        if parts["location"] is not None:
            self.sockets = tuple(s for s in self.sockets if s.location == int(parts["location"]))
            if not self.sockets:
                raise file.wrong(
                    text, f"{text}: no channel of location {parts['location']} is behind {connector}"
                )
