"""All-reduce and all-gather by two ways: over the host, or over the fabric.

    mode="host"     read back, reduce in the order of the devices in fp32, round once, write to all
    mode="fabric"   the collective itself: at memory speed, or, with `numerics`, hop by hop

Results agree within one rounding of the dtype for each device that adds.
"""

from __future__ import annotations

import torch

from softmesh.arguments import checked, refused
from softmesh.collectives import core
from softmesh.collectives.groups import group_of, spread
from softmesh.collectives.labels import replicating
from softmesh.collectives.stepwise import Stepwise
from softmesh.errors import MeshError
from softmesh.hardware import Topology
from softmesh.placement.distribution import Distribution
from softmesh.tensor.convert import round_to
from softmesh.tensor.spec import make_spec
from softmesh.tensor.storage import Storage
from softmesh.tensor.tensor import Tensor

_MODES = ("host", "fabric")


def all_reduce(
    tensor: Tensor,
    mode: str = "fabric",
    *,
    cluster_axis: int | None = None,
    numerics: str | None = None,
    topology: Topology | None = None,
    num_links: int | None = None,
) -> Tensor:
    """The sum over a group. `numerics="chip"` rounds at each hop of the schedule, "fp32" once at its end."""
    if _goes_over_host("all_reduce", tensor, mode, numerics):
        members, dist = _read_back(tensor, cluster_axis)
        wide = torch.float32 if members[0].is_floating_point() else torch.int64
        total = members[0].to(wide)
        for member in members[1:]:
            total = total + member.to(wide)
        return _written(tensor, total, dist)
    if numerics is not None:
        return Stepwise(tensor, cluster_axis, numerics, topology, num_links).all_reduce()
    result: Tensor = core.all_reduce(
        tensor, cluster_axis=cluster_axis, topology=topology, num_links=num_links
    )
    return result


def all_gather(
    tensor: Tensor,
    dim: int = 0,
    mode: str = "fabric",
    *,
    cluster_axis: int | None = None,
    numerics: str | None = None,
    topology: Topology | None = None,
    num_links: int | None = None,
) -> Tensor:
    """Every member's piece, side by side along `dim`."""
    if _goes_over_host("all_gather", tensor, mode, numerics):
        members, dist = _read_back(tensor, cluster_axis, dim % len(tensor.shape))
        return _written(tensor, torch.cat(members, dim % len(tensor.shape) - len(tensor.shape)), dist)
    if numerics is not None:
        return Stepwise(tensor, cluster_axis, numerics, topology, num_links).all_gather(dim)
    result: Tensor = core.all_gather(
        tensor, dim, cluster_axis=cluster_axis, topology=topology, num_links=num_links
    )
    return result


def _goes_over_host(op: str, tensor: Tensor, mode: str, numerics: str | None) -> bool:
    checked(op, "tensor", tensor, Tensor, "a ttnn.Tensor on a mesh")
    if mode not in _MODES:
        raise refused(op, f"mode must be 'host' or 'fabric', got {mode!r}")
    if tensor.device() is None:
        raise MeshError(f"Mesh device is required for {op} operation: move the tensor with ttnn.to_device.")
    if mode == "host" and numerics is not None:
        raise refused(op, "numerics is about the hops of a fabric; mode='host' adds in fp32 and rounds once")
    return mode == "host"


def _read_back(
    tensor: Tensor, cluster_axis: int | None, gathers: int | None = None
) -> tuple[list[torch.Tensor], Distribution]:
    """What each member of a group holds, in the order of the devices, on the host; all groups side by side."""
    dist = tensor.view_distribution()
    group = group_of(dist, cluster_axis)
    data = group.full(spread(tensor.view_data(), dist, group)).cpu()
    rest = [d for d in range(data.ndim) if d not in group.axes]
    members = data.permute(*group.axes, *rest).reshape(-1, *(data.shape[d] for d in rest))
    return list(members), replicating(group, gathers)


def _written(tensor: Tensor, values: torch.Tensor, dist: Distribution) -> Tensor:
    spec, device = tensor.spec, tensor.device()
    assert device is not None
    local = tuple(values.shape[values.ndim - len(tensor.shape) :])
    new = make_spec(local, spec.dtype, spec.layout, spec.memory_config, spec.tile)
    placed = round_to(values, spec.dtype).reshape(*dist.extents, *local).to(device.torch_device)
    return Tensor.make(Storage(placed, dist, device), new)
