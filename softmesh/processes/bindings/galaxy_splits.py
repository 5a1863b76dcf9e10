"""Presets that split a Galaxy: tray by tray, as its own tools generate them, and joined in the third dimension."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from softmesh.errors import MeshError, did_you_mean
from softmesh.fabric.matching.find_match import match
from softmesh.fabric.matching.match import Match, MatchError
from softmesh.fabric.mesh_graph import Connection, MeshGraph, Node, Side
from softmesh.hardware import Arch
from softmesh.processes.bindings.machine_split import (
    Piece,
    Split,
    bare_graph,
    corner_pins,
    groups_of,
    split_by_chips,
)
from softmesh.systems.machine import Machine

TRAY_FILE = "tray_to_pcie_device_mapping.yaml"
_TRAYS = 4


@dataclass(frozen=True)
class Preset:
    """`trays` of each rank, in rank order; the ranks of a mesh follow each other."""

    name: str
    trays: tuple[tuple[int, ...], ...]
    pieces: tuple[Piece, ...]
    in_z: bool = False  # meshes are joined by the ports of the third dimension

    def places(self) -> list[tuple[int, int]]:
        """(mesh id, host rank) of each rank."""
        return [
            (mesh, host_rank)
            for mesh, piece in enumerate(self.pieces)
            for host_rank in range(piece.hosts[0] * piece.hosts[1])
        ]


_TALL, _FLAT, _SQUARE, _LONG = Piece((4, 2)), Piece((2, 4)), Piece((4, 4)), Piece((2, 8))
_SHARED_SQUARE = Piece((4, 4), hosts=(1, 2))

PRESETS = {
    Arch.WORMHOLE_B0: (
        Preset("4x4_multi_mesh", ((1, 2), (3, 4)), (_SQUARE, _SQUARE)),
        Preset("4x4_multi_big_mesh", ((1,), (2,), (3,), (4,)), (_SHARED_SQUARE, _SHARED_SQUARE)),
        Preset("4x2_multi_mesh", ((1,), (2,), (3,), (4,)), (_TALL,) * 4),
        Preset("2x4_multi_mesh_cyclic", ((1,), (3,), (4,), (2,)), (_FLAT,) * 4),
        Preset("4x4_2x4_3_mesh", ((1, 2), (3,), (4,)), (_SQUARE, _FLAT, _FLAT)),
        Preset("2x8_2x4_3_mesh", ((1,), (3,), (2, 4)), (_FLAT, _FLAT, _LONG)),
    ),
    Arch.BLACKHOLE: (
        Preset("bh_4x4_multi_mesh", ((1, 3), (2, 4)), (_SQUARE, _SQUARE)),
        Preset("bh_4x4_z", ((1, 3), (2, 4)), (_SQUARE, _SQUARE), in_z=True),
        Preset("bh_4x2_multi_mesh", ((1,), (3,), (4,), (2,)), (_TALL,) * 4),
        Preset("bh_galaxy_split_4x2", ((1,), (3,), (4,), (2,)), (_TALL,) * 4),
    ),
}


def devices_of_trays(machine: Machine) -> dict[int, list[int]]:
    """The chips of each tray of a Galaxy; an error for any other machine."""
    trays = {tray: sorted(a.id for a in machine.asics.values() if a.tray == tray) for tray in range(1, _TRAYS + 1)}
    is_one_galaxy = machine.cluster_type.is_galaxy and len(machine.hosts) == 1
    if not is_one_galaxy or len(machine.asics) != 32 or any(len(chips) != 8 for chips in trays.values()):
        raise MeshError(
            f"The presets are for a single Galaxy with 32 devices; {machine.name} has {len(machine.asics)} on "
            f"{len(machine.hosts)} host{'' if len(machine.hosts) == 1 else 's'}. "
            "Any machine can be split with --split, for example --split 2x2,2x2."
        )
    return trays


def preset_split(preset: Preset, machine: Machine) -> Split:
    trays = devices_of_trays(machine)
    chips = {
        place: [chip for tray in of_rank for chip in trays[tray]]
        for place, of_rank in zip(preset.places(), preset.trays, strict=True)
    }
    return split_by_chips(machine, preset.pieces, chips, preset.name, in_z=preset.in_z)


def tray_text(machine: Machine) -> str:
    lines = [f"arch: {machine.chip.arch_name}", "device_mapping:"]
    lines += [f"  {tray}: {chips}" for tray, chips in devices_of_trays(machine).items()]
    return "\n".join(lines) + "\n"


# Blackhole Galaxies whose meshes are joined in the third dimension: each a mesh, or cut into slices. A slice is two
# rows of a Galaxy, 2x4 chips. A 4x4 mesh of two slices lies within one Galaxy, or half in one and half in the next.


_CHANNELS = 8  # between two meshes, as descriptors of these products ask for
_CHIPS = 32  # of a Galaxy


@dataclass(frozen=True)
class Arrangement:
    """`galaxies` has, for each mesh, the Galaxy of each of its ranks, counted around the ring they form."""

    name: str
    pieces: tuple[Piece, ...]
    galaxies: tuple[tuple[int, ...], ...]

    @property
    def size(self) -> int:
        return 1 + max(max(own) for own in self.galaxies)


_HALF_GALAXY, _ACROSS, _WHOLE = Piece((4, 4)), Piece((4, 4), hosts=(2, 1)), Piece((8, 4))

SLICE_CONFIGS = {
    "2x4x4z": Arrangement("2x4x4z", (_HALF_GALAXY, _HALF_GALAXY), ((0,), (0,))),
    "8x4x4z": Arrangement(
        "8x4x4z",
        (_HALF_GALAXY, _ACROSS) * 4,
        tuple(own for i in range(4) for own in ((i,), (i, (i + 1) % 4))),
    ),
}
FABRIC_CONFIGS = {"4x8z": Arrangement("4x8z", (_WHOLE,) * 4, tuple((i,) for i in range(4)))}


def split_in_z(machine: Machine, wanted: Arrangement, hosts: Sequence[str] | None = None) -> Split:
    """As tori where the cabling allows it. `hosts` are the Galaxies in ring order; else they are found."""
    _check(machine, wanted, hosts)
    places = None if hosts is None else _places(wanted, hosts)
    first: MatchError | None = None
    for graph in _graphs(machine, wanted):
        try:
            found = match(graph, machine, hosts=places)
            if places is None:
                found = _in_ring_order(found, wanted)
            return Split(replace(graph, pinnings=corner_pins(found)), tuple(groups_of(found)))
        except MatchError as error:
            first = first or error
    raise first or MeshError(f"{machine.name} cannot be arranged as {wanted.name}")


def _in_ring_order(found: Match, wanted: Arrangement) -> Match:
    """The same Galaxies, with the first half of each mesh that lies across two in the first of them."""
    hosts = {own[0]: _host_of(found, mesh) for mesh, own in enumerate(wanted.galaxies) if len(own) == 1}
    try:
        order = [hosts[galaxy] for galaxy in range(wanted.size)]
        return match(found.graph, found.machine, hosts=_places(wanted, order))
    except MatchError:
        return found


def _host_of(found: Match, mesh: int) -> str:
    return found.machine.asics[found.chips[Node(mesh, 0)]].host


def _graphs(machine: Machine, wanted: Arrangement) -> Iterator[MeshGraph]:
    bare = bare_graph(machine, wanted.pieces, wanted.name)
    count = len(bare.meshes)
    pairs = [(i, (i + 1) % count) for i in range(count if count > 2 else 1)]
    joined = tuple(Connection(Side((a,)), Side((b,)), _CHANNELS, strict=False, z=True) for a, b in pairs)
    for rings in ((True, True), (False, False)):
        meshes = tuple(replace(mesh, rings=rings) for mesh in bare.meshes)
        yield replace(bare, meshes=meshes, connections=joined)


def _places(wanted: Arrangement, hosts: Sequence[str]) -> dict[tuple[int, int], str]:
    return {
        (mesh, host_rank): hosts[galaxy]
        for mesh, own in enumerate(wanted.galaxies)
        for host_rank, galaxy in enumerate(own)
    }


def _check(machine: Machine, wanted: Arrangement, hosts: Sequence[str] | None) -> None:
    each = {len(machine.chips_of(host)) for host in machine.hosts}
    if machine.chip.arch is not Arch.BLACKHOLE or each != {_CHIPS} or len(machine.hosts) < wanted.size:
        raise MeshError(
            f"{wanted.name} is for {wanted.size} Blackhole Galax{'y' if wanted.size == 1 else 'ies'} with "
            f"{_CHIPS} devices each; {machine.name} has {len(machine.asics)} {machine.chip.arch_name} devices on "
            f"{len(machine.hosts)} host{'' if len(machine.hosts) == 1 else 's'}. Any machine can be split with --split."
        )
    for host in hosts or ():
        if host not in machine.hosts:
            raise MeshError(
                f"--hosts: {machine.name} has no host {host!r}; its hosts: {', '.join(machine.hosts)}."
                f"{did_you_mean(host, machine.hosts)}"
            )
    if hosts is not None and (len(hosts) != wanted.size or len(set(hosts)) != len(hosts)):
        raise MeshError(
            f"--hosts: {wanted.name} lies on {wanted.size} hosts; name as many different ones, in ring order."
        )
