"""Blackhole Galaxies whose meshes are joined in the third dimension: each a mesh, or cut into slices.

A slice is two rows of a Galaxy, 2x4 chips. A 4x4 mesh of two slices lies within one Galaxy, or half in one and
half in the next.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from softmesh.errors import MeshError, did_you_mean
from softmesh.fabric.match import Match, MatchError
from softmesh.fabric.matching.entry import match
from softmesh.fabric.mesh_graph import Connection, MeshGraph, Node, Side
from softmesh.hardware import Arch
from softmesh.processes.allocation import groups_of
from softmesh.processes.splitting import Piece, Split, bare_graph, corner_pins
from softmesh.systems.machine import Machine

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


_SQUARE, _ACROSS, _WHOLE = Piece((4, 4)), Piece((4, 4), hosts=(2, 1)), Piece((8, 4))

SLICE_CONFIGS = {
    "2x4x4z": Arrangement("2x4x4z", (_SQUARE, _SQUARE), ((0,), (0,))),
    "8x4x4z": Arrangement(
        "8x4x4z",
        (_SQUARE, _ACROSS) * 4,
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
