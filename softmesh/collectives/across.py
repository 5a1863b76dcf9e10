"""What a collective's definition says of one call: along which mesh axis, how, and what it needs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from softmesh.collectives.groups import Group
from softmesh.dispatch.plan import CostRule
from softmesh.hardware.memory_config import MemoryConfig
from softmesh.mesh import MeshCoordinate
from softmesh.placement.distribution import Distribution
from softmesh.placement.topology import TensorTopology
from softmesh.tensor.dtype import DataType, Layout


@dataclass(frozen=True)
class Moved:
    """What comes of one call: a function of the operands' data, and where its results lie."""

    compute: Callable[..., Any]
    dists: tuple[Distribution, ...]
    topology: TensorTopology | None = None  # TT-NN's label, where it says something else
    only_sums: bool = False  # contributions that combine otherwise (max, say) would come out wrong
    keeps_memory: bool = False  # the result is the operand, unless it is wanted elsewhere


@dataclass(frozen=True)
class Across:
    """`move` is asked once the group is known; `needs_fabric` is False for what never leaves a chip."""

    cluster_axis: int | None
    move: Callable[[Group], Moved]
    needs_fabric: bool = True
    needs_line: bool = True  # without an axis, one-dimensional fabrics want the mesh to be a line
    ignores_topology: bool = False  # TT-NN takes any one for it
    names_a_device: bool = False  # by its place in the whole mesh, of which a process may hold a block
    ends: tuple[MeshCoordinate, MeshCoordinate] | None = None  # of the only way it takes
    dtypes: tuple[DataType, ...] | None = None
    layouts: tuple[Layout, ...] | None = None
    memory_config: MemoryConfig | None = None
    cost: CostRule | None = None

    @property
    def axis_of_travel(self) -> int | None:
        """None for all axes."""
        if self.ends is None:
            return self.cluster_axis
        moved = [axis for axis, (a, b) in enumerate(zip(*self.ends, strict=False)) if a != b]
        return moved[0] if len(moved) == 1 else None
