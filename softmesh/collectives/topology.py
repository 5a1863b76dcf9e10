"""Which shape a collective's group has on this machine, and how many links it may use."""

from __future__ import annotations

from softmesh.arguments import checked, checked_int, knows_its_names, refused
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


@knows_its_names
def get_usable_topology(
    tensor: Tensor, topology: Topology | None = None, cluster_axis: int | None = None
) -> Topology:
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


@knows_its_names
def get_num_links(mesh_device: MeshDevice, cluster_axis: int | None = None) -> int:
    """How many links collectives may use side by side along an axis, or along every axis."""
    where = "get_num_links"
    mesh = checked(where, "mesh_device", mesh_device, MeshDevice, "a MeshDevice")
    axis = _checked_axis(where, mesh, cluster_axis)
    return links_there(mesh, axis)


def links_there(mesh: MeshDevice, axis: int | None) -> int:
    axes = range(mesh.shape.dims()) if axis is None else [axis]
    return mesh.system.links_along([line for a in axes for line in mesh.lines_along(a)], axis)
