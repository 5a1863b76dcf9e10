"""Sharded parameters of FSDP: each device along a mesh axis keeps one piece, all_gather makes the whole.

A parameter is in one of three states: sharded (only the piece is stored), gathered for a forward pass, and, unless
it is kept, released after that pass and gathered once more for the backward pass. A `GatherScope` leads the
parameters of a unit through one forward pass and the backward pass that belongs to it; a piece that changes in
between is an error, for the gradient would be that of other weights.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch

from softmesh.autograd.activation_offload import Offload
from softmesh.autograd.function import with_history
from softmesh.autograd.gradient_wrapper import unwrap_gradient, wrap_gradient
from softmesh.autograd.leaves import detach, gradient_distribution, requires_grad_
from softmesh.collectives.device_groups import group_of, scattered_placement
from softmesh.collectives.torch_expressions import dealt
from softmesh.dispatch.operation import OPERATIONS
from softmesh.errors import MeshError, NotModelled
from softmesh.placement.distribution import Distribution
from softmesh.placement.placements import REPLICATE, Shard
from softmesh.runtime.device import MeshDevice
from softmesh.runtime.grad_mode import without_gradients
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
class Piece(Parameter):
    """What a device keeps of a parameter: its slice of `dim`, along the mesh axis."""

    axis: int
    dim: int

    def gathered(self) -> Tensor:
        own = detach(self.tensor)
        whole: Tensor = without_gradients(lambda: OPERATIONS["all_gather"](own, self.dim, cluster_axis=self.axis))
        return whole

    def mean_gradient(self, gradient: torch.Tensor, dist: Distribution, spec: TensorSpec) -> torch.Tensor:
        """Of the gradient that each device has of the whole (which lies as `dist` says), the mean for each piece."""
        placed = gradient_distribution(dist, gradient)
        contributions = Tensor.make(Storage(gradient, placed, self.tensor.storage.device), spec)
        scatter = OPERATIONS["reduce_scatter"]
        total: Tensor = without_gradients(lambda: scatter(contributions, self.dim, cluster_axis=self.axis))
        return wrap_gradient(total.view_data() / dist.grid[self.axis], self.tensor.view_data().shape)


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
    storage = Storage(values, scattered_placement(group, dim, from_one_value=True), mesh)
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


class GatheredParameter:
    """A parameter as it was gathered from its pieces once."""

    def __init__(self, piece: Piece) -> None:
        self.piece = piece
        self.source = piece.tensor.view_data()
        self.version = self.source._version
        gathered = piece.gathered()
        self.tensor: Tensor | None = gathered  # None while it is away
        self.spec, self.dist = gathered.spec, gathered.view_distribution()

    def is_current(self) -> bool:
        """Whether the pieces are still what they were."""
        return self.piece.tensor.storage.data is self.source and self.source._version == self.version

    def values(self) -> torch.Tensor:
        """Gathered again, if need be."""
        if not self.is_current():
            raise MeshError(
                f"{self.piece.name} was changed between a forward pass and its backward pass, which needs it as it "
                "was: call optimizer.step() behind backward()."
            )
        if self.tensor is None:
            self.tensor = self.piece.gathered()
        return self.tensor.view_data()


class GatherScope:
    """Gathered parameters during one forward pass, and during the backward pass that belongs to it.

    `lends`: they go in between. `done` is called when the backward pass is through with them.
    """

    def __init__(self, wholes: Sequence[GatheredParameter], lends: bool, done: Callable[[], None]) -> None:
        self.wholes = wholes
        self._lends, self._done = lends, done
        self._loans: list[Offload] = []
        self._finished: set[int] = set()  # those with a gradient from the backward pass under way

    def parameters(self) -> list[Tensor]:
        """For use in the forward pass: gradients go back from them to the pieces."""
        found = [whole.tensor for whole in self.wholes if whole.tensor is not None]
        if not torch.is_grad_enabled():
            return found
        tracked = [
            _Use.apply(self, at, tensor.view_data(), whole.source)
            for at, (tensor, whole) in enumerate(zip(found, self.wholes, strict=True))
        ]
        if self._lends:
            self._loans = [Offload(data, self) for data in tracked]
        return [with_history(tensor, data) for tensor, data in zip(found, tracked, strict=True)]

    def end_forward(self, still_read: set[int]) -> None:
        """Let go of all, but for the memory that something behind the pass reads."""
        if not _is_going_back():  # a forward pass that is run again for its backward pass: that comes next
            for at in range(len(self._loans)):
                self._release(at, still_read)

    def reload_values(self) -> None:
        """Gather all that is away: the backward pass has come to it."""
        for at, (whole, loan) in enumerate(zip(self.wholes, self._loans, strict=True)):
            if loan.is_offloaded and at not in self._finished:
                loan.fill(whole.values())

    def has_gradient(self, at: int) -> None:
        """The backward pass under way needs this parameter no more."""
        if not self._finished:
            torch.autograd.Variable._execution_engine.queue_callback(self._end_backward)
        self._finish(at)

    def _end_backward(self) -> None:
        for at in range(len(self.wholes)):
            self._finish(at)
        self._finished.clear()
        self._done()

    def _finish(self, at: int) -> None:
        self._finished.add(at)
        if self._loans and not self._loans[at].is_offloaded:
            self._release(at, set())

    def _release(self, at: int, still_read: set[int]) -> None:
        whole, loan = self.wholes[at], self._loans[at]
        whole.tensor = None
        memory = memory_of(loan.data)
        loan.evict(frees_memory=memory != memory_of(whole.source) and memory not in still_read)


class _Use(torch.autograd.Function):
    """The whole, computed from the pieces."""

    @staticmethod
    def forward(ctx: Any, scope: GatherScope, at: int, whole: torch.Tensor, pieces: torch.Tensor) -> torch.Tensor:
        ctx.scope, ctx.at = scope, at
        return whole.view_as(whole)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[Any, ...]:
        whole = ctx.scope.wholes[ctx.at]
        ctx.scope.has_gradient(ctx.at)
        return None, None, None, whole.piece.mean_gradient(unwrap_gradient(gradient), whole.dist, whole.spec)


def memory_of(data: torch.Tensor) -> int:
    return int(data.untyped_storage()._cdata)


def memories(found: Any) -> set[int]:
    """The memory of all tensors in a result, or in the attributes of a module."""
    if isinstance(found, Tensor):
        data = found.storage.data
        return set() if data is None else {memory_of(data)}
    if isinstance(found, dict):
        found = list(found.values())
    return set().union(*map(memories, found)) if isinstance(found, list | tuple) else set()


def _is_going_back() -> bool:
    return torch._C._current_graph_task_id() != -1
