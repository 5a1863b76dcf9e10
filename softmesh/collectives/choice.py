"""What a collective asks of the fabric, and what it gets: lines or rings, and how many links side by side."""

from __future__ import annotations

from typing import NamedTuple

from softmesh.arguments import checked, checked_int
from softmesh.collectives.groups import Group
from softmesh.collectives.topology import closes
from softmesh.errors import MeshError, SoftmeshWarning
from softmesh.fabric import settings
from softmesh.hardware import Topology
from softmesh.lenience import warn_or_raise
from softmesh.runtime.device import MeshDevice

_WRAPPING = (Topology.Ring, Topology.Torus)


class Ways(NamedTuple):
    """The shape a group has on its machine: an extent for each axis, whether it closes, and links in parallel."""

    shape: tuple[int, ...]
    wraps: tuple[bool, ...]
    links: int


def ways_of(group: Group, mesh: MeshDevice, topology: Topology | None, num_links: int | None) -> Ways:
    axes = range(mesh.shape.dims()) if group.cluster_axis is None else [group.cluster_axis]
    whole = group.dist.coords is None
    shape = tuple(mesh.shape[axis] for axis in axes) if whole else group.extents
    wants_line = topology is not None and topology not in _WRAPPING
    wraps = tuple(not wants_line and whole and closes(mesh, axis) for axis in axes)
    there = links_there(mesh, group.cluster_axis)
    return Ways(shape, wraps, there if num_links is None else min(num_links, there))


def links_there(mesh: MeshDevice, axis: int | None) -> int:
    axes = range(mesh.shape.dims()) if axis is None else [axis]
    return mesh.system.links_along([line for a in axes for line in mesh.lines_along(a)], axis)


def check_wishes(op: str, mesh: MeshDevice, axis: int | None, topology: object, num_links: object) -> None:
    """Refuse what is no topology or no number; say so where the machine has less than is asked for."""
    if topology is not None:
        checked(op, "topology", topology, Topology, "a ttnn.Topology such as ttnn.Topology.Linear")
        if topology in _WRAPPING:
            _tell_where_it_does_not_close(op, mesh, axis, topology)
    if num_links is not None:
        wanted = checked_int(op, "num_links", num_links)
        if wanted < 1:
            raise MeshError(f"num_links must be greater than 0: {op} got {wanted}.")
        there = links_there(mesh, axis)
        if wanted > there:
            _tell(
                f"{op}: num_links={wanted}, but {mesh.system.name} has {there} for collectives along "
                f"{_named(axis)} of {mesh.shape}; it goes on with {there}."
            )


def _tell_where_it_does_not_close(op: str, mesh: MeshDevice, axis: int | None, topology: object) -> None:
    axes = [a for a in range(mesh.shape.dims()) if mesh.shape[a] > 1] if axis is None else [axis]
    open_ones = [a for a in axes if not closes(mesh, a)]
    if not open_ones:
        return
    extent = mesh.shape[open_ones[0]]
    why = (
        f"a ring needs more than 2 devices, and it has {extent}"
        if extent <= 2
        else f"{settings.active().config} uses no link from its last device to its first"
    )
    _tell(
        f"{op}: topology={topology} was asked for along {_named(open_ones[0])} of {mesh.shape} on "
        f"{mesh.system.name}, but {why}. It goes on as {Topology.Linear}; results are the same, the way is longer."
    )


def _named(axis: int | None) -> str:
    return "all axes" if axis is None else f"axis {axis}"


def _tell(message: str) -> None:
    warn_or_raise(message, SoftmeshWarning, MeshError)
