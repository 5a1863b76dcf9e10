"""A parameter of which each device along a mesh axis keeps one piece."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch

from softmesh.autograd.carried import carry
from softmesh.autograd.leaves import detach, gradient_distribution, requires_grad_
from softmesh.collectives.expressions import dealt
from softmesh.collectives.groups import group_of
from softmesh.collectives.labels import dealing
from softmesh.dispatch.operation import OPERATIONS
from softmesh.errors import MeshError, NotModelled
from softmesh.placement.distribution import Distribution
from softmesh.placement.words import REPLICATE, Shard
from softmesh.runtime.device import MeshDevice
from softmesh.tensor.spec import TensorSpec, make_spec
from softmesh.tensor.storage import Storage
from softmesh.tensor.tensor import Tensor
from softmesh.train.axes import Axis, axis_number, axis_size
from softmesh.train.module import Module

ShardDim = int | Literal["auto"]
_FEWEST_DIMS = 2  # of what can be scattered


@dataclass
class Parameter:
    """A tensor, and the attributes of modules that refer to it."""

    name: str
    tensor: Tensor
    owners: list[tuple[Module, str]]

    def mesh(self) -> MeshDevice:
        device = self.tensor.device()
        if device is None:
            raise MeshError(f"fully_shard: {self.name} is on the host: make it with parameter(values, mesh).")
        if device.block is not None:
            raise NotModelled(
                f"fully_shard: {self.name} is on a mesh that several processes hold, where splitting parameters is "
                "not modelled. Give each process a mesh of its own."
            )
        return device


@dataclass
class Piece:
    """What a device keeps of a parameter: its slice of `dim`, along the mesh axis."""

    name: str
    tensor: Tensor
    owners: list[tuple[Module, str]]
    axis: int
    dim: int

    def gathered(self) -> Tensor:
        with torch.no_grad():
            whole: Tensor = OPERATIONS["all_gather"](detach(self.tensor), self.dim, cluster_axis=self.axis)
        return whole

    def mean_gradient(self, gradient: torch.Tensor, dist: Distribution, spec: TensorSpec) -> torch.Tensor:
        """Of the gradient that each device has of the whole (which lies as `dist` says), the mean for each piece."""
        placed = gradient_distribution(dist, gradient)
        contributions = Tensor.make(Storage(gradient, placed, self.tensor.storage.device), spec)
        with torch.no_grad():
            total = OPERATIONS["reduce_scatter"](contributions, self.dim, cluster_axis=self.axis)
        return carry(total.view_data() / dist.grid[self.axis], self.tensor.view_data().shape)


def split(whole: Parameter, axis: Axis, shard_dim: ShardDim) -> Piece | None:
    """Let each device along the axis keep its piece, in place; None where the parameter stays whole."""
    mesh, tensor = whole.mesh(), whole.tensor
    along, devices = axis_number(mesh, axis), axis_size(mesh, axis)
    if devices == 1:
        return None
    dist = tensor.view_distribution()
    if dist.placements[along] is not REPLICATE:
        raise MeshError(
            f"fully_shard: {whole.name} is {dist.placements[along]} along mesh axis {axis!r} already: its pieces "
            "cannot be split over the same devices once more. Name another axis."
        )
    dim = _dim_to_split(tensor, devices, shard_dim)
    if dim is None:
        return None
    group = group_of(dist, along)
    values = dealt(tensor.view_data().detach(), group, dim).clone(memory_format=torch.contiguous_format)
    storage = Storage(values, dealing(group, dim, from_one_value=True), mesh)
    shape = tuple(n // devices if at == dim else n for at, n in enumerate(tensor.shape))
    spec = make_spec(shape, tensor.dtype, tensor.layout, tensor.memory_config(), tensor.tile)
    storage.place(spec)
    tensor.storage, tensor.spec, tensor.topology_label = storage, spec, None
    return Piece(whole.name, requires_grad_(tensor), whole.owners, along, dim)


def _dim_to_split(tensor: Tensor, devices: int, shard_dim: ShardDim) -> int | None:
    """The longest of the dims that divide and that no other axis splits; or the one that is asked for."""
    shape = [int(n) for n in tensor.shape]
    rank = len(shape)
    taken = {word.dim for word in tensor.view_distribution().placements if isinstance(word, Shard)}
    fitting = [dim for dim, n in enumerate(shape) if n % devices == 0 and dim not in taken]
    if shard_dim != "auto":
        fitting = [dim for dim in fitting if dim in (shard_dim, shard_dim + rank)]
    return max(fitting, key=lambda dim: shape[dim]) if fitting and rank >= _FEWEST_DIMS else None
