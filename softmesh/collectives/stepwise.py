"""A collective on a mesh tensor, run hop by hop along its schedule: the twin of the fast path.

`numerics="chip"` rounds each partial sum to the tensor's dtype as it is formed, as the chip does;
`"fp32"` lets them travel in fp32 and rounds once. Groups run side by side, as one tensor.
"""

from __future__ import annotations

from collections.abc import Callable

import torch

from softmesh.arguments import refused
from softmesh.collectives.choice import Ways, ways_of
from softmesh.collectives.executor import run
from softmesh.collectives.groups import Group, group_of, spread
from softmesh.collectives.labels import dealing, replicating
from softmesh.collectives.schedule import Schedule
from softmesh.collectives.schedules import schedule_for
from softmesh.errors import MeshError
from softmesh.hardware import Topology
from softmesh.placement.distribution import Distribution
from softmesh.tensor.convert import round_to
from softmesh.tensor.dtype import DataType, facts
from softmesh.tensor.spec import make_spec
from softmesh.tensor.storage import Storage
from softmesh.tensor.tensor import Tensor

_NUMERICS = ("chip", "fp32")


class Stepwise:
    """One tensor and one group, ready to be sent around."""

    def __init__(
        self,
        tensor: Tensor,
        cluster_axis: int | None,
        numerics: str = "chip",
        topology: Topology | None = None,
        num_links: int | None = None,
    ) -> None:
        mesh = tensor.device()
        if mesh is None:
            raise MeshError("Mesh device is required for a collective: move the tensor with ttnn.to_device.")
        if numerics not in _NUMERICS:
            raise refused("numerics", f"it must be 'chip' or 'fp32', got {numerics!r}")
        self.tensor = tensor
        self.numerics = numerics
        dist = tensor.view_distribution()
        self.group: Group = group_of(dist, cluster_axis)
        self.ways: Ways = ways_of(self.group, mesh, topology, num_links)
        self.parts = self._parts(spread(tensor.view_data(), dist, self.group))

    def _parts(self, data: torch.Tensor) -> list[torch.Tensor]:
        """What each member holds, all groups together: (other leading dims, *local)."""
        axes = self.group.axes
        rest = [d for d in range(data.ndim) if d not in axes]
        whole = self.group.full(data).permute(*axes, *rest)
        return list(whole.reshape(-1, *whole.shape[len(axes) :]))

    def schedule(self, name: str, **endpoints: int) -> Schedule:
        return schedule_for(name, self.ways.shape, self.ways.wraps, self.ways.links, **endpoints)

    def all_gather(self, dim: int) -> Tensor:
        at = self._at(dim)
        held = run(self.schedule("all_gather"), [[part] for part in self.parts])
        joined = torch.cat([held[0, piece] for piece in range(self.group.size)], at)
        return self._made(joined, replicating(self.group, dim % self._rank))

    def all_reduce(self) -> Tensor:
        schedule = self.schedule("all_reduce")
        cut = [list(part.reshape(-1).tensor_split(schedule.pieces)) for part in self.parts]
        held = self._summed(schedule, cut)
        whole = torch.cat([held[0, piece] for piece in range(schedule.pieces)])
        return self._made(whole.reshape(self.parts[0].shape), replicating(self.group))

    def reduce_scatter(self, dim: int) -> Tensor:
        at = self._at(dim)
        schedule = self.schedule("reduce_scatter")
        if self.parts[0].shape[at] % self.group.size:
            raise MeshError(
                f"Dimension {dim % self._rank} must be divisible by ring_size: {self.parts[0].shape[at]} elements for "
                f"{self.group.size} devices."
            )
        held = self._summed(schedule, [list(part.chunk(self.group.size, at)) for part in self.parts])
        own = torch.stack([held[device, device] for device in range(self.group.size)])
        return self._made(own, dealing(self.group, dim % self._rank, from_one_value=True), spread_out=True)

    def _summed(
        self, schedule: Schedule, inputs: list[list[torch.Tensor]]
    ) -> dict[tuple[int, int], torch.Tensor]:
        accumulate = torch.float32 if self.numerics == "fp32" else None
        return run(schedule, inputs, accumulate=accumulate, round_to=_hop_rounding(self.tensor.dtype))

    @property
    def _rank(self) -> int:
        return len(self.tensor.shape)

    def _at(self, dim: int) -> int:
        rank = self._rank
        if not -rank <= dim < rank:
            raise MeshError(f"Invalid dim {dim} for {rank}D input tensor: use {-rank} to {rank - 1}.")
        return dim % rank - rank

    def _made(self, values: torch.Tensor, dist: Distribution, *, spread_out: bool = False) -> Tensor:
        """The result as a tensor: `values` has the members in front where they differ."""
        group = self.group
        lead = group.extents if spread_out else (1,) * len(group.axes)
        local = values.shape[values.ndim - self._rank :]
        others = [n for axis, n in enumerate(dist.extents) if axis not in group.axes]
        shaped = values.reshape(*lead, *others, *local)
        order = [*group.axes, *(axis for axis in range(dist.lead) if axis not in group.axes)]
        back = [order.index(axis) for axis in range(dist.lead)]
        placed = shaped.permute(*back, *range(dist.lead, shaped.ndim)).contiguous()
        spec = self.tensor.spec
        new = make_spec(tuple(local), spec.dtype, spec.layout, spec.memory_config, spec.tile)
        return Tensor.make(Storage(round_to(placed, spec.dtype), dist, self.tensor.device()), new)


def _hop_rounding(dtype: DataType) -> Callable[[torch.Tensor], torch.Tensor]:
    """Block floats travel as bfloat16; everything else as itself."""
    storage = facts(dtype).storage
    if facts(dtype).is_block:
        return lambda values: values.to(torch.bfloat16).to(storage)
    return lambda values: values.to(storage)
