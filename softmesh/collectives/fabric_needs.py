"""A collective needs an axis that is there, and a fabric that reaches its devices."""

from __future__ import annotations

from softmesh.collectives.across import Across
from softmesh.collectives.topology import closes
from softmesh.errors import MeshError
from softmesh.fabric import settings
from softmesh.hardware import FabricConfig
from softmesh.lenience import is_lenient
from softmesh.mesh import MeshShape
from softmesh.runtime.device import MeshDevice


def check_axis(name: str, device: MeshDevice, axis: int | None) -> None:
    rank = device.shape.dims()
    if axis is not None and axis >= rank:
        raise MeshError(
            f"{name}: cluster axis {axis} is out of range for mesh shape rank {rank}: {device.shape}."
        )


def axes_in_words(rank: int) -> str:
    """Which axes a mesh has to choose from."""
    return "0 down a column, 1 along a row" if rank == 2 else f"0 to {rank - 1}"


def check_fabric(name: str, device: MeshDevice, across: Across) -> None:
    """A fabric must be there, and reach every member of the group."""
    axis = across.cluster_axis
    check_axis(name, device, axis)
    if not across.needs_fabric or is_lenient():
        return
    active = settings.active()
    if not active.is_on:
        raise MeshError(
            f"Trying to get un-initialized fabric context: {name} sends data from chip to chip, and no fabric is "
            "configured. Call ttnn.set_fabric_config(ttnn.FabricConfig.FABRIC_1D) before opening the mesh, or "
            "compute under softmesh.lenient()."
        )
    _check_reach(name, device, across)
    is_line = sum(n > 1 for n in device.shape) <= 1
    if axis is None and across.needs_line and not is_line and active.config in settings.ONE_DIMENSIONAL:
        other_fabric = ", or configure FABRIC_2D" if device.shape.dims() == 2 else ""
        raise MeshError(
            f"1D fabric on a 2D mesh_device requires cluster_axis to be set: {name} on {MeshShape(device.shape)} "
            f"under {active.config}. Name the axis ({axes_in_words(device.shape.dims())}){other_fabric}."
        )


def _check_reach(name: str, device: MeshDevice, across: Across) -> None:
    config, axis, shape = settings.active().config, across.axis_of_travel, device.shape
    if config is not FabricConfig.FABRIC_1D_NEIGHBOR_EXCHANGE or across.ends is None or axis is None:
        return
    sender, receiver = across.ends
    if axis >= shape.dims() or not (sender[axis] < shape[axis] and receiver[axis] < shape[axis]):
        return  # told by whoever looks for the devices
    apart = abs(sender[axis] - receiver[axis])
    if apart == 1 or (apart == shape[axis] - 1 and closes(device, axis)):
        return
    raise MeshError(
        f"Could not find any forwarding direction from src {sender} to dst {receiver}: {name} sends over {apart} "
        f"links, and under {config} a chip reaches its neighbours only. Send it hop by hop, or configure FABRIC_1D."
    )
