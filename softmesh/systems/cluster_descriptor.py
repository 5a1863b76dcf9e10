"""Reads and writes cluster descriptors: one host's file, or a mapping that gives each rank its host's file."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path, PurePosixPath

from softmesh.errors import MeshError, did_you_mean
from softmesh.input_files.text_files import FileError
from softmesh.input_files.yaml_files import Table, Text, Value, read_table, shown
from softmesh.systems.host_descriptor import MAX_CHIPS, HostDescription, described
from softmesh.systems.machine import Asic, Link, Machine, OutsideLink, Port
from softmesh.systems.product_detection import (
    UBB_BOARDS,
    boards_of,
    chip_kind,
    detect,
    harvest_mask,
    position,
    ubb_bus_id,
)

__all__ = ["descriptor_text", "load_cluster", "load_descriptor", "load_hosts", "load_mapping"]

MAPPING_KEY = "rank_to_cluster_mock_cluster_desc"
MAX_RANKS = 4096

# How TT-Metal's own mappings spell the root of its repository of descriptors.
_REPOSITORY = PurePosixPath("tt_metal/third_party/tt-cluster-descriptors")


def load_cluster(path: str | Path) -> Machine:
    """Either kind of file; its keys tell which."""
    file = Path(path)
    document = read_table(file)
    return _mapped(file, document) if MAPPING_KEY in document else _joined([described(file, document)], file.stem)


def load_descriptor(path: str | Path) -> Machine:
    """The host one file describes. Chips keep the numbers of the file; the host has the file's name."""
    file = Path(path)
    return _joined([_description(file)], file.stem)


def load_hosts(paths: Sequence[str | Path]) -> Machine:
    """Hosts of one file each, as the machine that a mapping of them would be."""
    files = list(dict.fromkeys(Path(path).resolve() for path in paths))
    _check_names(files[0], files)
    name = files[0].stem + (f" and {len(files) - 1} more" if len(files) > 1 else "")
    return _joined([_description(file) for file in files], name)


def load_mapping(path: str | Path) -> Machine:
    """The hosts of all ranks as one machine.

    Ranks that name one file share that host, which is there once. With several hosts, chips are numbered
    through: the first rank's host has 0..n-1 in the order of its own numbers, the next one goes on with n.
    So chip c of a host is the c-th of `machine.chips_of(host)`. A link between two hosts is there when
    both ends report it; otherwise it stays a link to the outside.
    """
    file = Path(path)
    document = read_table(file)
    if MAPPING_KEY not in document:
        raise FileError(file, f"no `{MAPPING_KEY}`, so not a mapping; load_descriptor reads a single host's file")
    return _mapped(file, document)


def _description(file: Path) -> HostDescription:
    document = read_table(file)
    if MAPPING_KEY in document:
        raise FileError(file, "a mapping of ranks, where the descriptor of one host is expected")
    return described(file, document)


def _mapped(file: Path, document: Table) -> Machine:
    files: dict[Path, None] = {}
    for value in _rank_files(file, document[MAPPING_KEY]):
        files.setdefault(_resolved(file, value))
    _check_names(file, list(files))
    return _joined([_description(path) for path in files], file.stem)


def _rank_files(file: Path, ranks: Value) -> list[Text]:
    """In the order of ranks."""
    if not isinstance(ranks, Table) or not ranks:
        what = f"{MAPPING_KEY}: expected `rank: path` entries, found {shown(ranks)}"
        raise FileError(file, what, ranks.line)
    if len(ranks) > MAX_RANKS:
        raise FileError(file, f"{len(ranks)} ranks; at most {MAX_RANKS} are taken", ranks.line)
    found: dict[int, Text] = {}
    for rank, path in ranks.entries():
        if not (rank.isascii() and rank.isdigit() and len(rank) < 8) or int(rank) in found:
            raise FileError(file, f"ranks are whole numbers, each once; found {shown(rank)}", rank.line)
        if not isinstance(path, Text) or not path or "\0" in path:
            raise FileError(file, f"rank {rank}: expected a path, found {shown(path)}", path.line)
        found[int(rank)] = path
    return [found[rank] for rank in sorted(found)]


def _resolved(mapping: Path, written: Text) -> Path:
    relative = PurePosixPath(written)
    spellings = [relative]
    if relative.is_relative_to(_REPOSITORY):
        spellings.append(relative.relative_to(_REPOSITORY))
    for folder in mapping.absolute().parents:
        for spelling in spellings:
            candidate = folder / spelling
            if os.path.isfile(candidate):  # unlike Path.is_file, it answers for a name that is too long
                return candidate.resolve()
    what = f"{shown(written)} was found neither beside this file nor under any folder above it"
    raise FileError(mapping, what, written.line)


def _check_names(mapping: Path, files: Sequence[Path]) -> None:
    names: dict[str, Path] = {}
    for path in files:
        if names.setdefault(path.name, path) != path:
            what = (
                f"{names[path.name]} and {path} have one name, and the name of its file is the name of a host; "
                "rename one"
            )
            raise FileError(mapping, what)


def _joined(hosts: Sequence[HostDescription], name: str) -> Machine:
    _check_fit_together(hosts)
    moved = [hosts[0]] if len(hosts) == 1 else list(_numbered_through(hosts))
    asics = {id: asic for host in moved for id, asic in host.asics.items()}
    outside = [link for host in moved for link in host.outside]
    between, left = _links_between_hosts(asics, outside)
    links = tuple(sorted([*(link for host in moved for link in host.links), *between]))
    masks = [mask for host in hosts for mask in host.harvest_masks]
    kind = chip_kind(hosts[0].arch, next(iter(asics.values())).board, masks)
    return Machine(name, kind, detect(asics, links), asics, links, tuple(sorted(left)))


def _check_fit_together(hosts: Sequence[HostDescription]) -> None:
    first = hosts[0]
    owner: dict[int, Path] = {}
    for host in hosts:
        if host.arch is not first.arch:
            what = (
                f"chips of {host.arch.name}, while {first.path} has {first.arch.name}; one machine has one architecture"
            )
            raise FileError(host.path, what)
        for asic in host.asics.values():
            if owner.setdefault(asic.unique_id, host.path) != host.path:
                what = (
                    f"the chip with unique id {asic.unique_id} is also in {owner[asic.unique_id]}; "
                    "two hosts cannot hold one chip"
                )
                raise FileError(host.path, what)
    if len(owner) > MAX_CHIPS:
        raise MeshError(f"{len(owner)} chips on {len(hosts)} hosts; at most {MAX_CHIPS} are taken")


def _numbered_through(hosts: Sequence[HostDescription]) -> Iterator[HostDescription]:
    start = 0
    for host in hosts:
        ids = {old: start + place for place, old in enumerate(host.asics)}
        start += len(ids)
        yield _renumbered(host, ids)


def _renumbered(host: HostDescription, ids: dict[int, int]) -> HostDescription:
    def moved(port: Port) -> Port:
        return Port(ids[port.chip], port.channel)

    return replace(
        host,
        asics={ids[old]: replace(asic, id=ids[old]) for old, asic in host.asics.items()},
        links=tuple(Link.between(moved(link.a), moved(link.b)) for link in host.links),
        outside=tuple(link._replace(near=moved(link.near)) for link in host.outside),
    )


def _links_between_hosts(asics: dict[int, Asic], outside: Sequence[OutsideLink]) -> tuple[set[Link], list[OutsideLink]]:
    """The links both ends report, and the reports that found no answer."""
    ids = {asic.unique_id: id for id, asic in asics.items()}
    reports = {link.near: link for link in outside}
    between: set[Link] = set()
    left = []
    for link in outside:
        far = Port(ids.get(link.far_unique_id, -1), link.far_channel)
        answer = reports.get(far)
        here = (asics[link.near.chip].unique_id, link.near.channel)
        if answer is not None and far != link.near and (answer.far_unique_id, answer.far_channel) == here:
            between.add(Link.between(link.near, far))
        else:
            left.append(link)
    return between, left


# Writing: a machine, or one host of it, as a cluster descriptor.


def descriptor_text(machine: Machine, host: str | None = None) -> str:
    """YAML that `load_descriptor` reads back to the same chips and links; `host`: the first one.

    Chips get their host's own numbers. Links to other hosts are written as links to remote devices. Where
    a tray does not follow from the board, `asic_trays` states it: a key of softmesh's, others pass over it.
    """
    return "\n".join(_Writer(machine, machine.hosts[0] if host is None else host).lines()) + "\n"


class _Writer:
    def __init__(self, machine: Machine, host: str) -> None:
        if host not in machine.hosts:
            raise MeshError(
                f"{machine.name} has no host {host!r}; its hosts: {', '.join(machine.hosts)}."
                f"{did_you_mean(host, machine.hosts)}"
            )
        self.machine = machine
        self.asics = [machine.asics[id] for id in machine.chips_of(host)]
        several = len(machine.hosts) > 1
        self.local = {asic.id: place if several else asic.id for place, asic in enumerate(self.asics)}

    def lines(self) -> Iterator[str]:
        asics = self.asics
        bus_ids = {asic.id: bus_id for asic in asics if (bus_id := _bus_id(self.machine, asic)) is not None}
        yield from self.table("arch", ((asic.id, self.machine.chip.arch_name) for asic in asics))
        yield "chips: {}"
        yield from self.table("chip_unique_ids", ((asic.id, asic.unique_id) for asic in asics))
        yield from _listed("ethernet_connections", self.links())
        yield from _listed("ethernet_connections_to_remote_devices", self.links_outside())
        yield from _listed(
            "chips_with_mmio",
            (f"{self.local[asic.id]}: {asic.pcie}" for asic in asics if asic.pcie is not None),
        )
        yield from self.harvesting()
        yield from self.table("chip_to_boardtype", ((asic.id, asic.board) for asic in asics))
        yield from self.table("chip_to_bus_id", ((id, f"0x{bus_id:02x}") for id, bus_id in bus_ids.items()))
        yield from _listed("boards", self.boards())
        yield from self.table("asic_locations", ((asic.id, asic.location) for asic in asics))
        trays = [(asic.id, asic.tray) for asic in asics if asic.tray != self.tray_by_rule(asic, bus_ids.get(asic.id))]
        if trays:
            yield from self.table("asic_trays", trays)

    def tray_by_rule(self, asic: Asic, bus_id: int | None) -> int:
        return position(self.machine.chip.arch, asic.board, bus_id, asic.location, asic.pcie is None)[0]

    def table(self, key: str, entries: Iterable[tuple[int, object]]) -> Iterator[str]:
        written = [f"  {self.local[id]}: {value}" for id, value in entries]
        yield from [f"{key}:", *written] if written else [f"{key}: {{}}"]

    def end(self, port: Port) -> str:
        return f"{{chip: {self.local[port.chip]}, chan: {port.channel}}}"

    def links(self) -> Iterator[str]:
        for link in self.machine.links:
            if link.a.chip in self.local and link.b.chip in self.local:
                yield f"[{self.end(link.a)}, {self.end(link.b)}]"

    def links_outside(self) -> Iterator[str]:
        for near, unique_id, channel in self.machine.outside:
            if near.chip in self.local:
                yield f"[{self.end(near)}, {{remote_chip_id: {unique_id}, chan: {channel}}}]"
        for link in self.machine.links:
            for near, far in ((link.a, link.b), (link.b, link.a)):
                if near.chip in self.local and far.chip not in self.local:
                    unique_id = self.machine.asics[far.chip].unique_id
                    yield f"[{self.end(near)}, {{remote_chip_id: {unique_id}, chan: {far.channel}}}]"

    def harvesting(self) -> Iterator[str]:
        mask = harvest_mask(self.machine.chip)
        return self.table(
            "harvesting",
            ((asic.id, f"{{noc_translation: true, harvest_mask: {mask}}}") for asic in self.asics),
        )

    def boards(self) -> Iterator[str]:
        for number, board in enumerate(boards_of(self.asics), start=1):
            chips = ", ".join(str(self.local[asic.id]) for asic in board)
            yield f"[{{board_id: {number}}}, {{board_type: {board[0].board}}}, {{chips: [{chips}]}}]"


def _bus_id(machine: Machine, asic: Asic) -> int | None:
    """Only Galaxy trays show in bus ids; those of other boards are the host's affair."""
    if asic.board in UBB_BOARDS and 1 <= asic.tray <= 4 and asic.location < 16:
        return ubb_bus_id(machine.chip.arch, asic.tray, asic.location)
    return None


def _listed(key: str, rows: Iterable[str]) -> Iterator[str]:
    written = [f"  - {row}" for row in rows]
    yield from [f"{key}:", *written] if written else [f"{key}: []"]
