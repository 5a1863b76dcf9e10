"""Builds machines: from the boards and cables of data/systems, or generated as a mesh, torus or line.

A system of many hosts has the same boards in every host, and cables between them.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from softmesh.errors import MeshError
from softmesh.hardware import ClusterType
from softmesh.input_files.yaml_files import Text, shown
from softmesh.systems.chip import WORMHOLE
from softmesh.systems.machine import Asic, Link, Machine, Port, numbered
from softmesh.systems.system_files import BoardPort, DataFile, PlacedBoard, SystemFile, Variant, part_of

_CABLE_END = re.compile(
    r"((?P<host>[\w-]+):)?(?P<tray>\d{1,4})\.(?P<connector>[\w-]+)(/(?P<location>\d{1,4}))?", re.ASCII
)


def build(system_file: SystemFile, name: str, find: Callable[[str], tuple[SystemFile, str]]) -> Machine:
    """The system of this name; `find` looks up the file that describes another one, and its full name."""
    assembly = _Assembly(system_file)
    variant = system_file.variants[name]
    if system_file.like is None:
        assembly.fill(system_file, variant)
    else:
        base, base_name = find(system_file.like)
        if base.like is not None:
            raise MeshError(f"{system_file.path}: {system_file.like} is itself like another system; name that one")
        assembly.fill(base, base.variants[base_name])
        assembly.add_cables(system_file, variant)
    return assembly.machine(system_file, variant)


@dataclass
class _Assembly:
    system_file: SystemFile
    boards: dict[int, PlacedBoard] = field(default_factory=dict)
    links: list[Link] = field(default_factory=list)
    users: dict[Port, str] = field(default_factory=dict)

    @property
    def chips_per_host(self) -> int:
        return sum(len(placed.ids) for placed in self.boards.values())

    def fill(self, system_file: SystemFile, variant: Variant) -> None:
        self.boards = system_file.boards
        for host in range(len(self.system_file.hosts)):
            for tray, placed in self.boards.items():
                for one, other in placed.board.links:
                    self.join(self.port(host, tray, one), self.port(host, tray, other), "a link of the board")
        self.add_cables(system_file, variant)

    def add_cables(self, system_file: SystemFile, variant: Variant) -> None:
        for group in variant.cabling:
            for cable in system_file.cabling[group]:
                self.add_cable(DataFile(system_file.path), cable)

    def add_cable(self, file: DataFile, cable: Text) -> None:
        ends = [_CableEnd(file, end, self.system_file.hosts, self.boards) for end in file.ends(cable)]
        if (ends[0].host is None) != (ends[1].host is None):
            raise file.wrong(cable, f"{cable}: name the host at both ends, or at neither")
        if len(ends[0].board_ports) != len(ends[1].board_ports):
            counts = " and ".join(str(len(end.board_ports)) for end in ends)
            raise file.wrong(cable, f"{cable}: the ends have {counts} channels; both need the same number")
        user = f"{file.path}:{cable.line}: the cable {cable}"
        for near_host, far_host in self.host_pairs(ends[0].host, ends[1].host):
            for near, far in zip(ends[0].board_ports, ends[1].board_ports, strict=True):
                one, other = self.port(near_host, ends[0].tray, near), self.port(far_host, ends[1].tray, far)
                self.join(one, other, user)

    def host_pairs(self, one: int | None, other: int | None) -> Iterator[tuple[int, int]]:
        """A cable that names no hosts is in every one of them."""
        if one is not None and other is not None:
            yield one, other
        else:
            yield from ((host, host) for host in range(len(self.system_file.hosts)))

    def port(self, host: int, tray: int, board_port: BoardPort) -> Port:
        return Port(host * self.chips_per_host + self.boards[tray].ids[board_port.location], board_port.channel)

    def join(self, one: Port, other: Port, user: str) -> None:
        for port in (one, other):
            if port in self.users:
                raise MeshError(f"{user}: {port} is taken already, by {self.users[port]}")
            self.users[port] = user
        self.links.append(Link.between(one, other))

    def machine(self, system_file: SystemFile, variant: Variant) -> Machine:
        return Machine(
            name=variant.name,
            chip=next(iter(self.boards.values())).board.chip,
            cluster_type=system_file.cluster_type,
            asics=numbered(self.asics()),
            links=tuple(sorted(self.links)),
            summary=variant.summary,
        )

    def asics(self) -> Iterator[Asic]:
        for index, host in enumerate(self.system_file.hosts):
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

    def __init__(self, file: DataFile, text: Text, hosts: tuple[str, ...], boards: dict[int, PlacedBoard]) -> None:
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
        connector = file.one_of(part_of(text, parts["connector"]), board.connectors, f"connector of {board.name}")
        self.board_ports = board.connectors[connector]
        if parts["location"] is not None:
            self.board_ports = tuple(s for s in self.board_ports if s.location == int(parts["location"]))
            if not self.board_ports:
                raise file.wrong(text, f"{text}: no channel of location {parts['location']} is behind {connector}")


# Generated machines: `mesh:16x16`, `torus:32x32`, `line:64`, of Wormhole chips with 4 links per edge.
#
# Ids run row by row, all chips are on one host and on its bus. Each row is a tray, and its chips are the locations
# 1, 2, ... of that tray, so that pinnings can name them.


MOST_CHIPS = 4096
LINKS_PER_EDGE = 4
# The channels towards each neighbour, as on the trays of a Galaxy.
_WEST, _NORTH, _SOUTH, _EAST = range(4), range(4, 8), range(8, 12), range(12, 16)

_GRID = re.compile(r"(?P<kind>mesh|torus):(?P<rows>\d{1,9})x(?P<columns>\d{1,9})", re.ASCII | re.IGNORECASE)
_LINE = re.compile(r"line:(?P<columns>\d{1,9})", re.ASCII | re.IGNORECASE)
FORMS = "mesh:RxC, torus:RxC or line:N"


def is_generated(spec: str) -> bool:
    return spec.partition(":")[0].lower() in ("mesh", "torus", "line")


def generated(spec: str) -> Machine:
    """
    >>> generated("torus:4x8").links_between(0, 7)[0]   # the first row's ends
    Link(a=Port(chip=0, channel=0), b=Port(chip=7, channel=12))
    """
    found = _GRID.fullmatch(spec) or _LINE.fullmatch(spec)
    if found is None:
        raise MeshError(f"{spec[:60]!r} is no system: write {FORMS}, for instance mesh:16x16")
    sizes = found.groupdict()
    shape = int(sizes.get("rows", 1)), int(sizes["columns"])
    if not 1 <= math.prod(shape) <= MOST_CHIPS:
        raise MeshError(f"{spec} would have {math.prod(shape)} chips; 1 to {MOST_CHIPS} are possible")
    return _grid(spec.lower(), shape, is_torus=sizes.get("kind", "").lower() == "torus")


def _grid(name: str, shape: tuple[int, int], is_torus: bool) -> Machine:
    rows, columns = shape
    # With two chips the neighbour on either side is the same one: nothing to close.
    wraps = (is_torus and rows > 2, is_torus and columns > 2)
    plural = "s" if rows * columns > 1 else ""
    size = f"{rows * columns} Wormhole chip{plural} in a grid of {rows}x{columns}"
    return Machine(
        name=name,
        chip=WORMHOLE,
        cluster_type=ClusterType.CUSTOM,
        asics={chip: _asic(chip, columns) for chip in range(rows * columns)},
        links=tuple(sorted(_links(shape, wraps))),
        summary=f"{size}, {LINKS_PER_EDGE} links per edge",
        grid=shape,
        wraps=wraps,
    )


def _asic(chip: int, columns: int) -> Asic:
    row, column = divmod(chip, columns)
    return Asic(
        id=chip,
        unique_id=chip + 1,
        host="host-0",
        tray=row + 1,
        location=column + 1,
        board="generated",
        pcie=chip,
    )


def _links(shape: tuple[int, int], wraps: tuple[bool, bool]) -> Iterator[Link]:
    rows, columns = shape
    for chip in range(rows * columns):
        row, column = divmod(chip, columns)
        if column + 1 < columns or wraps[1]:
            yield from _edge(chip, _EAST, row * columns + (column + 1) % columns, _WEST)
        if row + 1 < rows or wraps[0]:
            yield from _edge(chip, _SOUTH, (row + 1) % rows * columns + column, _NORTH)


def _edge(one: int, channels: range, other: int, far_channels: range) -> Iterator[Link]:
    for channel, far_channel in zip(channels, far_channels, strict=True):
        yield Link.between(Port(one, channel), Port(other, far_channel))
