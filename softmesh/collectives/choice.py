"""What a collective asks of the fabric, and what it gets: lines or rings, and how many links side by side."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from softmesh.arguments import checked, checked_int
from softmesh.collectives.groups import Group
from softmesh.collectives.topology import closes, get_usable_topology, links_there
from softmesh.config import CONFIG
from softmesh.errors import MeshError
from softmesh.fabric import settings
from softmesh.hardware import Topology
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


def remarks_on(
    op: str,
    mesh: MeshDevice,
    axis: int | None,
    topology: object,
    num_links: object,
    tensor: Tensor | None = None,
    *,
    ignores_topology: bool = False,
) -> list[str]:
    """Refuses what is no topology or no number; what the machine has less of than is asked for is remarked.

    `tensor` is the one that is sent; left out, it lies on all devices.
    """
    told = []
    if topology is not None:
        checked(op, "topology", topology, Topology, "a ttnn.Topology such as ttnn.Topology.Linear")
        if topology not in _ALONG_ONE_AXIS and not ignores_topology:
            raise MeshError(
                f"Topology must be either Ring or Linear: {op} got {topology}. "
                "Each step of a collective runs along one axis."
            )
        if topology not in _ALONG_ONE_AXIS:
            told.append(
                f"{op}: topology={topology} is ignored, as TT-NN ignores it: {op} chooses its own way."
            )
    if topology is Topology.Ring or (topology is None and _is_thought_to_close(mesh, axis, tensor)):
        told += _remarks_on_ring(op, mesh, axis, topology, tensor)
    if num_links is not None:
        wanted, there = checked_int(op, "num_links", num_links), links_there(mesh, axis)
        if wanted < 1:
            raise MeshError(f"num_links must be greater than 0: {op} got {wanted}.")
        if wanted > there and _axes_of(mesh, axis):
            told.append(
                f"{op}: num_links={wanted}, but {mesh.system.name} has {there} for collectives along "
                f"{_named(axis)} of {mesh.shape}; it goes on with {there}."
            )
    return told


def _is_thought_to_close(mesh: MeshDevice, axis: int | None, tensor: Tensor | None) -> bool:
    """Whether TT-NN takes a line of devices for a ring though nobody asked for one."""
    is_line = sum(n > 1 for n in mesh.shape) == 1
    return is_line and axis is None and tensor is not None and _usable(tensor, None, None) is Topology.Ring


def _remarks_on_ring(
    op: str, mesh: MeshDevice, axis: int | None, topology: Topology | None, tensor: Tensor | None
) -> list[str]:
    open_axes, why = _why_open(mesh, axis, tensor)
    if why is None:
        return []
    whence = "was asked for" if topology is not None else f"is what {settings.active().config} stands for"
    asked = (
        f"{op}: topology={Topology.Ring} {whence} along {_named(axis)} of {mesh.shape} on {mesh.system.name}"
    )
    if CONFIG.strict_ccl_topology:
        raise MeshError(f"{asked}, but {why}. ttnn.CONFIG.strict_ccl_topology lets it be nothing else.")
    closed = [a for a in _axes_of(mesh, axis) if a not in open_axes]
    where = f" along axis {_joined(open_axes)}, and as a ring along axis {_joined(closed)}" if closed else ""
    return [f"{asked}, but {why}. It goes on as {Topology.Linear}{where}."]


def _why_open(mesh: MeshDevice, axis: int | None, tensor: Tensor | None) -> tuple[list[int], str | None]:
    """Axes that go on as lines, and what is missing for a ring: None where nothing is, or nobody to send to."""
    axes = _axes_of(mesh, axis)
    if not axes:
        return [], None
    two = next((a for a in axes if mesh.shape[a] == 2), None)
    if two is not None:
        return axes, f"a ring needs more than 2 devices, and axis {two} has 2"
    if axis is None and tensor is not None and _usable(tensor, Topology.Ring, None) is not Topology.Ring:
        return axes, "the tensor does not reach from its first device to its last"
    unlinked = [a for a in axes if not closes(mesh, a)]
    if not unlinked:
        return [], None
    missing = (
        f"{settings.active().config} uses no link from the last device of axis {unlinked[0]} to its first"
    )
    if axis is not None:
        return unlinked, missing
    return unlinked, (
        f"{missing}. ttnn.get_usable_topology keeps {Topology.Ring} here, since without cluster_axis TT-NN looks at "
        "the extents alone: silicon would be told to use a link that is not there. Name the axis, or ask for "
        f"{Topology.Linear}"
    )


def _axes_of(mesh: MeshDevice, axis: int | None) -> list[int]:
    return [a for a in range(mesh.shape.dims()) if mesh.shape[a] > 1 and axis in (None, a)]


def _joined(axes: Sequence[int]) -> str:
    return " and ".join(map(str, axes))


def _named(axis: int | None) -> str:
    return "all axes" if axis is None else f"axis {axis}"
