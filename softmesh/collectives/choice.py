"""What a collective asks of the fabric, and what it gets: lines or rings, and how many links side by side."""

from __future__ import annotations

from typing import NamedTuple

from softmesh.arguments import checked, checked_int
from softmesh.collectives.groups import Group
from softmesh.collectives.topology import closes, get_usable_topology
from softmesh.config import CONFIG
from softmesh.errors import MeshError, SoftmeshWarning
from softmesh.fabric import settings
from softmesh.hardware import Topology
from softmesh.lenience import warn_or_raise
from softmesh.runtime.device import MeshDevice
from softmesh.tensor.tensor import Tensor

_WRAPPING = (Topology.Ring, Topology.Torus)
_ALONG_ONE_AXIS = (Topology.Ring, Topology.Linear)


class Ways(NamedTuple):
    """The shape a group has on its machine: an extent for each axis, whether it closes, and links in parallel."""

    shape: tuple[int, ...]
    wraps: tuple[bool, ...]
    links: int


def ways_of(group: Group, tensor: Tensor, topology: Topology | None, num_links: int | None) -> Ways:
    """A ring where `get_usable_topology` has one and its links are there."""
    mesh = tensor.device()
    assert mesh is not None
    axes = range(mesh.shape.dims()) if group.cluster_axis is None else [group.cluster_axis]
    whole = group.dist.coords is None
    shape = tuple(mesh.shape[axis] for axis in axes) if whole else group.extents
    may_close = whole and _usable(tensor, topology, group.cluster_axis) in _WRAPPING
    wraps = tuple(may_close and closes(mesh, axis) for axis in axes)
    there = links_there(mesh, group.cluster_axis)
    return Ways(shape, wraps, there if num_links is None else min(num_links, there))


def _usable(tensor: Tensor, topology: Topology | None, axis: int | None) -> Topology:
    if topology is None and not settings.active().is_on:  # computing leniently, on links that nobody set up
        return Topology.Linear
    return get_usable_topology(tensor, topology, axis)


def links_there(mesh: MeshDevice, axis: int | None) -> int:
    axes = range(mesh.shape.dims()) if axis is None else [axis]
    return mesh.system.links_along([line for a in axes for line in mesh.lines_along(a)], axis)


def check_wishes(
    op: str,
    mesh: MeshDevice,
    axis: int | None,
    topology: object,
    num_links: object,
    tensor: Tensor | None = None,
) -> None:
    """Refuse what is no topology or no number; say so where the machine has less than is asked for.

    `tensor` is the one that is sent; left out, it lies on all devices.
    """
    if topology is not None:
        checked(op, "topology", topology, Topology, "a ttnn.Topology such as ttnn.Topology.Linear")
        if topology not in _ALONG_ONE_AXIS:
            raise MeshError(
                f"Topology must be either Ring or Linear: {op} got {topology}. "
                "Each step of a collective runs along one axis."
            )
        if topology is Topology.Ring:
            _tell_where_it_does_not_close(op, mesh, axis, tensor)
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


def _tell_where_it_does_not_close(op: str, mesh: MeshDevice, axis: int | None, tensor: Tensor | None) -> None:
    why = _why_open(mesh, axis, tensor)
    if why is None:
        return
    asked = (
        f"{op}: topology={Topology.Ring} was asked for along {_named(axis)} of {mesh.shape} on "
        f"{mesh.system.name}, but {why}."
    )
    if CONFIG.strict_ccl_topology:
        raise MeshError(f"{asked} ttnn.CONFIG.strict_ccl_topology lets it be nothing else.")
    _tell(f"{asked} It goes on as {Topology.Linear}, which is the longer way.")


def _why_open(mesh: MeshDevice, axis: int | None, tensor: Tensor | None) -> str | None:
    """What is missing for a ring; None where nothing is, or where there is nobody to send to."""
    axes = [a for a in range(mesh.shape.dims()) if mesh.shape[a] > 1 and axis in (None, a)]
    if not axes:
        return None
    if any(mesh.shape[a] == 2 for a in axes):
        two = next(a for a in axes if mesh.shape[a] == 2)
        return f"a ring needs more than 2 devices, and axis {two} has 2"
    if axis is None and tensor is not None and _usable(tensor, Topology.Ring, None) is not Topology.Ring:
        return "the tensor does not reach from its first device to its last"
    unlinked = next((a for a in axes if not closes(mesh, a)), None)
    if unlinked is None:
        return None
    missing = f"{settings.active().config} uses no link from the last device of axis {unlinked} to its first"
    if axis is not None:
        return missing
    return (
        f"{missing}. ttnn.get_usable_topology keeps {Topology.Ring} here, since without cluster_axis TT-NN looks at "
        "the extents alone: silicon would be told to use a link that is not there. Name the axis, or ask for "
        f"{Topology.Linear}"
    )


def _named(axis: int | None) -> str:
    return "all axes" if axis is None else f"axis {axis}"


def _tell(message: str) -> None:
    warn_or_raise(message, SoftmeshWarning, MeshError)
