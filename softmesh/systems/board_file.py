"""The boards of data/boards.yaml: chips, the links between them, connectors for cables."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from softmesh.bounded_yaml import read_table
from softmesh.systems.chip import CHIPS, Chip
from softmesh.systems.data_file import DataFile, Socket
from softmesh.yaml_tree import Table, Text, Value

BOARDS_FILE = Path(__file__).parent / "data" / "boards.yaml"


@dataclass(frozen=True)
class Board:
    name: str
    chip: Chip
    locations: tuple[int, ...]
    pcie: tuple[int, ...]  # the locations on the host's bus
    links: tuple[tuple[Socket, Socket], ...]
    connectors: dict[str, tuple[Socket, ...]]


@lru_cache(maxsize=1)
def built_in_boards() -> dict[str, Board]:
    return read_boards(BOARDS_FILE)


def read_boards(path: Path) -> dict[str, Board]:
    tables = read_table(path)
    return {name: _Reader(path, name).board(table) for name, table in tables.items()}


class _Reader:
    """One board. Every channel leads to one place only: a link on the board, or one connector."""

    def __init__(self, path: Path, name: str) -> None:
        self.file = DataFile(path)
        self.name = name
        self.locations: tuple[int, ...] = ()
        self.ports = 0
        self.users: dict[Socket, str] = {}

    def board(self, value: Value) -> Board:
        fields = self.file.fields(value, ["chip", "locations", "pcie"], ["links", "connectors"])
        chip = CHIPS[self.file.one_of(fields["chip"], CHIPS, "chip")]
        self.locations, self.ports = tuple(self.file.numbers(fields["locations"])), chip.ethernet_ports
        pcie = tuple(self.file.numbers(fields["pcie"]))
        for location in pcie:
            self.check_location(location, fields["pcie"])
        links = [pair for text in self.file.texts(fields.get("links")) for pair in self.link(text)]
        connectors = self.file.table(fields.get("connectors", Table()))
        return Board(
            self.name,
            chip,
            self.locations,
            pcie,
            tuple(links),
            {name: self.connector(name, ports) for name, ports in connectors.items()},
        )

    def link(self, text: Text) -> list[tuple[Socket, Socket]]:
        one, other = (self.taken(end, f"the link {text}") for end in self.file.ends(text))
        if len(one) != len(other):
            raise self.file.wrong(text, f"{len(one)} channels cannot be joined with {len(other)}")
        return list(zip(one, other, strict=True))

    def connector(self, name: str, ports: Value) -> tuple[Socket, ...]:
        return tuple(self.taken(self.file.text(ports), f"connector {name}"))

    def taken(self, text: Text, user: str) -> list[Socket]:
        sockets = self.file.sockets(text)
        for socket in sockets:
            self.check_location(socket.location, text)
            if socket.channel >= self.ports:
                raise self.file.wrong(
                    text, f"{self.name} has no channel {socket}: its chips have {self.ports}, from 0"
                )
            if socket in self.users:
                raise self.file.wrong(
                    text, f"channel {socket} of {self.name} is used twice: {self.users[socket]}, {user}"
                )
            self.users[socket] = user
        return sockets

    def check_location(self, location: int, where: Value) -> None:
        if location not in self.locations:
            known = ", ".join(map(str, self.locations))
            raise self.file.wrong(where, f"{self.name} has no location {location}, only {known}")
