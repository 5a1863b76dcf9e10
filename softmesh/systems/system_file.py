"""The files of data/systems, read and checked: which board sits in which tray of a host, and which cables there are.

One file may describe several systems: the same boards with one or another group of the cables.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from softmesh.bounded_yaml import read_table
from softmesh.hardware import ClusterType
from softmesh.systems.board_file import Board, built_in_boards
from softmesh.systems.data_file import DataFile
from softmesh.yaml_tree import Table, Text, Value

MOST_HOSTS = 1024


@dataclass(frozen=True)
class Placed:
    """A board in its tray: the id of the chip at each location, and the PCIe number of those on the bus."""

    board: Board
    ids: dict[int, int]
    pcie: dict[int, int]


@dataclass(frozen=True)
class Variant:
    """One system of a file: its names, and which groups of cables it has."""

    name: str
    aliases: tuple[str, ...]
    summary: str
    cabling: tuple[str, ...]


@dataclass(frozen=True)
class Plan:
    """What one file says. `like` names the system that each host is, where the file lists no boards itself."""

    path: Path
    cluster_type: ClusterType
    variants: dict[str, Variant]
    boards: dict[int, Placed]
    cabling: dict[str, tuple[Text, ...]]
    hosts: tuple[str, ...]
    like: str | None


def read_plan(path: Path) -> Plan:
    file = DataFile(path)
    fields = file.fields(
        read_table(path), ["systems", "cluster_type"], ["boards", "like", "hosts", "cabling"]
    )
    if ("boards" in fields) == ("like" in fields):
        raise file.wrong(fields["systems"], "give either the boards of a host, or the system it is like")
    groups = file.table(fields.get("cabling", Table()))
    cabling = {name: tuple(file.texts(cables)) for name, cables in groups.items()}
    cluster_type = file.one_of(fields["cluster_type"], ClusterType.__members__, "cluster type")
    return Plan(
        path,
        ClusterType[cluster_type],
        {name: _variant(file, name, value, cabling) for name, value in file.table(fields["systems"]).items()},
        _placed_boards(file, fields["boards"]) if "boards" in fields else {},
        cabling,
        _hosts(file, fields.get("hosts")),
        str(file.text(fields["like"])) if "like" in fields else None,
    )


def _variant(file: DataFile, name: str, value: Value, groups: dict[str, tuple[Text, ...]]) -> Variant:
    fields = file.fields(value, ["summary"], ["aliases", "cabling"])
    cabling = [file.one_of(group, groups, "group of cables") for group in file.texts(fields.get("cabling"))]
    aliases = map(str, file.texts(fields.get("aliases")))
    return Variant(str(name), tuple(aliases), str(file.text(fields["summary"])), tuple(cabling))


def _hosts(file: DataFile, value: Value | None) -> tuple[str, ...]:
    if value is None:
        return ("host-0",)
    names = tuple(str(name) for name in file.texts(value))
    if not names or len(names) > MOST_HOSTS or len(set(names)) < len(names):
        raise file.wrong(value, f"1 to {MOST_HOSTS} hosts are possible, each with a name of its own")
    return names


def _placed_boards(file: DataFile, value: Value) -> dict[int, Placed]:
    placed: dict[int, Placed] = {}
    for key, entry in file.table(value).entries():
        (tray, *more) = file.numbers(key)
        if more or tray in placed:
            raise file.wrong(entry, f"{key!r} is no tray number of its own")
        placed[tray] = _placed(file, entry)
    if not placed:
        raise file.wrong(value, "a host without boards is no system")
    ids = sorted(chip for board in placed.values() for chip in board.ids.values())
    if ids != list(range(len(ids))):
        raise file.wrong(value, f"the chip ids of a host must be 0 to {len(ids) - 1}, each once")
    pcie = [number for board in placed.values() for number in board.pcie.values()]
    if len(set(pcie)) < len(pcie):
        raise file.wrong(value, "two chips of a host have the same PCIe number")
    if len({board.board.chip for board in placed.values()}) > 1:
        raise file.wrong(value, "the boards of a machine must have chips of one kind")
    return placed


def _placed(file: DataFile, value: Value) -> Placed:
    fields = file.fields(value, ["board", "ids", "pcie"])
    boards = built_in_boards()
    board = boards[file.one_of(fields["board"], boards, "board")]

    def by_location(key: str, locations: tuple[int, ...]) -> dict[int, int]:
        numbers = file.numbers(fields[key])
        if len(numbers) != len(locations):
            raise file.wrong(
                fields[key], f"{board.name} needs {len(locations)} {key}, here are {len(numbers)}"
            )
        return dict(zip(locations, numbers, strict=True))

    return Placed(board, by_location("ids", board.locations), by_location("pcie", board.pcie))
