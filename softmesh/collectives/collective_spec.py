"""CollectiveSpec, the answer of a collective's definition to one call, and the check that the fabric can carry it.

The spec names the mesh axis and what the call needs. Once the group is known, its `move` gives the
`GroupComputation`: a function of the operands' data, and the distribution of the results.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from softmesh.collectives.device_groups import Group
from softmesh.collectives.fabric_topology import closes
from softmesh.dispatch.plan import CostRule
from softmesh.errors import MeshError
from softmesh.fabric import settings
from softmesh.hardware import FabricConfig
from softmesh.hardware.memory_config import MemoryConfig
from softmesh.mesh import MeshCoordinate, MeshShape
from softmesh.placement.distribution import Distribution
from softmesh.placement.tensor_topology import TensorTopology
from softmesh.runtime.device import MeshDevice
from softmesh.strictness import is_lenient
from softmesh.tensor.dtype import DataType, Layout
from softmesh.tensor.spec import TensorSpec


@dataclass(frozen=True)
class GroupComputation:
    """What comes of one call: a function of the operands' data, and where its results lie."""

    compute: Callable[..., Any]
    dists: tuple[Distribution, ...]
    topology: TensorTopology | None = None  # TT-NN's label, where it says something else
    only_sums: bool = False  # contributions that combine otherwise (max, say) would come out wrong
    keeps_memory: bool = False  # the result is the operand, unless it is wanted elsewhere


@dataclass(frozen=True)
class CollectiveSpec:
    """`move` is asked once the group is known; `needs_fabric` is False for what never leaves a chip."""

    cluster_axis: int | None
    move: Callable[[Group], GroupComputation]
    needs_fabric: bool = True
    needs_line: bool = True  # without an axis, one-dimensional fabrics want the mesh to be a line
    ignores_topology: bool = False  # TT-NN takes any one for it
    keeps_one_piece: bool = False  # what the other devices of a group hold is on none of them afterwards
    joins: int | None = None  # the dim along which pieces of several devices come to lie side by side
    names_a_device: bool = False  # by its place or number in the whole mesh, of which a process may hold a block
    ends: tuple[MeshCoordinate, MeshCoordinate] | None = None  # of the only way it takes
    dtypes: tuple[DataType, ...] | None = None
    layouts: tuple[Layout, ...] | None = None
    memory_config: MemoryConfig | None = None
    inherits: tuple[TensorSpec, ...] | None = None  # whose memory each result takes, where not the first operand's
    cost: CostRule | None = None
    pad_value: float = 0.0  # what the result's padding holds
    padded_shape: tuple[int, ...] | None = None  # where the padding is more than what whole tiles take

    @property
    def axis_of_travel(self) -> int | None:
        """None for all axes."""
        if self.ends is None:
            return self.cluster_axis
        moved = [axis for axis, (a, b) in enumerate(zip(*self.ends, strict=False)) if a != b]
        return moved[0] if len(moved) == 1 else None


# The check of a call against mesh and fabric: the axis is there, and the fabric reaches every member of the group.


def check_axis(name: str, device: MeshDevice, axis: int | None) -> None:
    rank = device.shape.dims()
    if axis is not None and axis >= rank:
        raise MeshError(f"{name}: cluster axis {axis} is out of range for mesh shape rank {rank}: {device.shape}.")


def axes_in_words(rank: int) -> str:
    """Which axes a mesh has to choose from."""
    return "0 down a column, 1 along a row" if rank == 2 else f"0 to {rank - 1}"


def check_fabric(name: str, device: MeshDevice, declared: CollectiveSpec) -> None:
    """A fabric must be there, and reach every member of the group."""
    axis = declared.cluster_axis
    check_axis(name, device, axis)
    if not declared.needs_fabric or is_lenient():
        return
    active = settings.active()
    if not active.is_on:
        raise MeshError(
            f"Trying to get un-initialized fabric context: {name} sends data from chip to chip, and no fabric is "
            "configured. Call ttnn.set_fabric_config(ttnn.FabricConfig.FABRIC_1D) before opening the mesh, or "
            "compute under softmesh.lenient()."
        )
    _check_reach(name, device, declared)
    if declared.needs_line:
        check_line(name, device.shape, axis)


def check_line(name: str, mesh: Iterable[int], axis: int | None) -> None:
    """Without an axis, a one-dimensional fabric reaches all devices of a line only."""
    config, shape = settings.active().config, tuple(mesh)
    if axis is not None or sum(n > 1 for n in shape) <= 1 or config not in settings.ONE_DIMENSIONAL or is_lenient():
        return
    rank = len(shape)
    other_fabric = ", or configure FABRIC_2D" if rank == 2 else ""
    raise MeshError(
        f"1D fabric on a 2D mesh_device requires cluster_axis to be set: {name} on {MeshShape(shape)} "
        f"under {config}. Name the axis ({axes_in_words(rank)}){other_fabric}."
    )


def _check_reach(name: str, device: MeshDevice, declared: CollectiveSpec) -> None:
    config, axis, shape = settings.active().config, declared.axis_of_travel, device.shape
    if config is not FabricConfig.FABRIC_1D_NEIGHBOR_EXCHANGE or declared.ends is None or axis is None:
        return
    sender, receiver = declared.ends
    if axis >= shape.dims() or not (sender[axis] < shape[axis] and receiver[axis] < shape[axis]):
        return  # told by whoever looks for the devices
    apart = abs(sender[axis] - receiver[axis])
    if apart == 1 or (apart == shape[axis] - 1 and closes(device, axis)):
        return
    raise MeshError(
        f"Could not find any forwarding direction from src {sender} to dst {receiver}: {name} sends over {apart} "
        f"links, and under {config} a chip reaches its neighbours only. Send it hop by hop, or configure FABRIC_1D."
    )
