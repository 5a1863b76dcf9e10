"""Line or ring, and how many links: the topology that a collective's group has on this machine under the active fabric.

`get_usable_topology` and `get_num_links` are TT-NN's functions; `remarks_on` tells where a call asks for more than
the machine has.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from softmesh.arguments import checked, checked_int, refused, reject_unknown_keywords
from softmesh.collectives.device_groups import Group
from softmesh.config import CONFIG
from softmesh.errors import MeshError
from softmesh.fabric import settings
from softmesh.hardware import FabricConfig, Topology
from softmesh.mesh import MeshCoordinate
from softmesh.runtime.device import MeshDevice
from softmesh.tensor.tensor import Tensor

_OF_FABRIC = {
    FabricConfig.FABRIC_1D_NEIGHBOR_EXCHANGE: Topology.Linear,
    FabricConfig.FABRIC_1D: Topology.Linear,
    FabricConfig.FABRIC_1D_RING: Topology.Ring,
    FabricConfig.FABRIC_2D: Topology.Mesh,
    FabricConfig.FABRIC_2D_TORUS_X: Topology.Torus,
    FabricConfig.FABRIC_2D_TORUS_Y: Topology.Torus,
    FabricConfig.FABRIC_2D_TORUS_XY: Topology.Torus,
    FabricConfig.CUSTOM: Topology.Mesh,
}
_WITHOUT_WRAP = {Topology.Ring: Topology.Linear, Topology.Torus: Topology.Mesh}


@reject_unknown_keywords
def get_usable_topology(tensor: Tensor, topology: Topology | None = None, cluster_axis: int | None = None) -> Topology:
    """The topology a collective on `tensor` can have: a ring only where it closes, else a line.

    With `cluster_axis` the ends of that axis must be linked, by a link that the active fabric uses.
    Without one TT-NN looks at the extents alone, and keeps a ring that is not there for a 1x4 line.
    """
    where = "get_usable_topology"
    checked(where, "tensor", tensor, Tensor, "a ttnn.Tensor on a mesh")
    mesh = tensor.device()
    if mesh is None:
        raise MeshError(f"{where}: the tensor is on host; only tensors on a mesh have a topology.")
    if topology is None:
        topology = _configured()
    checked(where, "topology", topology, Topology, "a ttnn.Topology or None")
    axis = _checked_axis(where, mesh, cluster_axis)
    if topology not in _WITHOUT_WRAP:
        return topology
    keeps = _spans_whole(tensor, mesh) if axis is None else closes(mesh, axis)
    return topology if keeps else _WITHOUT_WRAP[topology]


def _configured() -> Topology:
    config = settings.active().config
    if config is FabricConfig.DISABLED:
        raise MeshError(
            "Trying to get un-initialized fabric context: no fabric is configured, so there is no topology to "
            "take. Call ttnn.set_fabric_config(ttnn.FabricConfig.FABRIC_1D) before opening the mesh."
        )
    return _OF_FABRIC[config]


def _checked_axis(where: str, mesh: MeshDevice, axis: object) -> int | None:
    if axis is None:
        return None
    number = checked_int(where, "cluster_axis", axis)
    if number < 0:
        raise refused(where, f"cluster_axis must be 0 or more, got {number}")
    rank = mesh.shape.dims()
    if number >= rank:
        raise MeshError(f"cluster axis {number} is out of range for mesh shape rank {rank}: {mesh.shape}.")
    return number


def closes(mesh: MeshDevice, axis: int) -> bool:
    """Whether every line of devices along the axis is long enough for a ring and linked at its ends."""
    lines = mesh.lines_along(axis)
    return mesh.shape[axis] > 2 and all(mesh.system.are_joined(line, axis) for line in lines)


def _spans_whole(tensor: Tensor, mesh: MeshDevice) -> bool:
    if any(extent == 2 for extent in mesh.shape):
        return False
    coords = tensor.tensor_topology().mesh_coords()
    corner = MeshCoordinate([n - 1 for n in mesh.shape])
    return MeshCoordinate([0] * mesh.shape.dims()) in coords and corner in coords


@reject_unknown_keywords
def get_num_links(mesh_device: MeshDevice, cluster_axis: int | None = None) -> int:
    """How many links collectives may use side by side along an axis, or along every axis."""
    where = "get_num_links"
    mesh = checked(where, "mesh_device", mesh_device, MeshDevice, "a MeshDevice")
    axis = _checked_axis(where, mesh, cluster_axis)
    return links_there(mesh, axis)


def links_there(mesh: MeshDevice, axis: int | None) -> int:
    axes = range(mesh.shape.dims()) if axis is None else [axis]
    return mesh.system.links_along([line for a in axes for line in mesh.lines_along(a)], axis)


# What a collective asks of the fabric (topology, num_links), and what it gets.


_WRAPPING = (Topology.Ring, Topology.Torus)
_ALONG_ONE_AXIS = (Topology.Ring, Topology.Linear)


class GroupLinks(NamedTuple):
    """The shape a group has on its machine: an extent for each axis, whether it closes, and links in parallel."""

    shape: tuple[int, ...]
    wraps: tuple[bool, ...]
    links: int


def group_links(group: Group, tensor: Tensor, topology: Topology | None, num_links: int | None) -> GroupLinks:
    """A ring where `get_usable_topology` has one and its links are there."""
    mesh = tensor.device()
    assert mesh is not None
    axes = range(mesh.shape.dims()) if group.cluster_axis is None else [group.cluster_axis]
    whole = group.dist.coords is None
    shape = tuple(mesh.shape[axis] for axis in axes) if whole else group.extents
    may_close = whole and _usable(tensor, topology, group.cluster_axis) in _WRAPPING
    wraps = tuple(may_close and closes(mesh, axis) for axis in axes)
    there = links_there(mesh, group.cluster_axis)
    return GroupLinks(shape, wraps, there if num_links is None else min(num_links, there))


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
            told.append(f"{op}: topology={topology} is ignored, as TT-NN ignores it: {op} chooses its own way.")
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
    asked = f"{op}: topology={Topology.Ring} {whence} along {_named(axis)} of {mesh.shape} on {mesh.system.name}"
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
    missing = f"{settings.active().config} uses no link from the last device of axis {unlinked[0]} to its first"
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
