"""Short forms of `from_torch` and `to_torch`: `put` by the names of mesh axes, and defaults within a block."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch

from softmesh.arguments import refused
from softmesh.errors import ArgumentValueError
from softmesh.hardware.enums import DataType, Layout
from softmesh.hardware.memory_config import MemoryConfig
from softmesh.placement.tensor_topology import PlacementReplicate, PlacementShard
from softmesh.runtime.device import MeshDevice, checked_open
from softmesh.tensor.composers import MeshToTensor
from softmesh.tensor.mappers import (
    Mapper,
    MeshMapperConfig,
    ReplicateTensorToMeshWrapper,
    TensorToMesh,
    create_mesh_mapper,
)
from softmesh.tensor.tensor import Tensor


@contextmanager
def distribute(default: Mapper | MeshToTensor) -> Iterator[None]:
    """Within the block `ttnn.from_torch` maps, or `ttnn.to_torch` composes, as given here.

    An explicit keyword still wins; blocks nest. As in TT-NN the name in the namespace is rebound, so a
    function imported earlier with `from ttnn import from_torch` does not change.
    """
    if isinstance(default, TensorToMesh | ReplicateTensorToMeshWrapper):
        name, keyword = "from_torch", "mesh_mapper"
    elif isinstance(default, MeshToTensor):
        name, keyword = "to_torch", "mesh_composer"
    else:
        raise ArgumentValueError("Argument must be an instance of either TensorToMesh or MeshToTensor.")
    namespace = sys.modules["softmesh"]
    before = getattr(namespace, name)
    setattr(namespace, name, partial(before, **{keyword: default}))
    try:
        yield
    finally:
        setattr(namespace, name, before)


def public_function(name: str) -> Callable[..., Any]:
    """What `ttnn.<name>` is at this moment: inside of a `distribute` block, the function with its default."""
    found: Callable[..., Any] = getattr(sys.modules["softmesh"], name)
    return found


def put(
    values: torch.Tensor,
    mesh_device: MeshDevice,
    *,
    rows: int | None = None,
    columns: int | None = None,
    dims: Sequence[int | None] | None = None,
    dtype: DataType | None = None,
    layout: Layout = Layout.TILE,
    memory_config: MemoryConfig | None = None,
) -> Tensor:
    """Put a torch tensor on a mesh: the mesh's rows split dim `rows` of it, the mesh's columns dim `columns`.

    Along an axis that is not named all devices hold the same. `dims` has one entry for each axis of a mesh of any rank,
    None for one that splits nothing. `compose` is the way back. In TT-NN's calls this is

        mapper = ttnn.ShardTensor2dMesh(mesh_device, tuple(mesh_device.shape), dims=(rows, columns))
        ttnn.from_torch(values, layout=ttnn.TILE_LAYOUT, device=mesh_device, mesh_mapper=mapper)

    >>> x = put(torch.ones(8, 64), mesh, rows=0, columns=1)  # on a 2x4 mesh each device holds [4, 16]
    """
    extents = list(checked_open("put", "mesh_device", mesh_device).shape)
    if dims is None and len(extents) == 2:
        dims = (rows, columns)
    elif dims is None or rows is not None or columns is not None or len(dims) != len(extents):
        by = "rows and columns, or by dims" if len(extents) == 2 else "dims"
        raise refused(
            "put", f"the mesh is {'x'.join(map(str, extents))}: say what its axes split by {by}, one way only"
        )
    placements = [PlacementReplicate() if dim is None else PlacementShard(dim) for dim in dims]
    mapper = create_mesh_mapper(mesh_device, MeshMapperConfig(placements))
    form = {"layout": layout, "memory_config": memory_config}
    made: Tensor = public_function("from_torch")(values, dtype, device=mesh_device, mesh_mapper=mapper, **form)
    return made
