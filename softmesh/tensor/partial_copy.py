"""`copy_host_to_device_tensor_partial`: only the shards that lie on some cores are written."""

from __future__ import annotations

import math

import torch

from softmesh.arguments import checked, reject_unknown_keywords
from softmesh.cores import CoreRangeSet
from softmesh.errors import MeshError
from softmesh.placement.distribution import HOST
from softmesh.runtime.buffers.buffer_config import BufferDistributionSpec
from softmesh.runtime.queues.queue_id import QueueId
from softmesh.tensor.device_pages import folded, shards_of
from softmesh.tensor.spec import TensorSpec
from softmesh.tensor.tensor import Tensor
from softmesh.tensor.transfer import check_pair, copy_host_to_device_tensor, from_device

_WHERE = "copy_host_to_device_tensor_partial"


@reject_unknown_keywords
def copy_host_to_device_tensor_partial(
    host_tensor: Tensor,
    device_tensor: Tensor,
    logical_core_filter: CoreRangeSet,
    cq_id: int | QueueId | None = None,
) -> None:
    """Overwrite the shards of a device tensor that lie on these cores; DRAM bank x is core (x, 0)."""
    check_pair(host_tensor, device_tensor, _WHERE)
    cores = checked(_WHERE, "logical_core_filter", logical_core_filter, CoreRangeSet, "a ttnn.CoreRangeSet")
    shards = shards_of(device_tensor.spec)
    if shards is None:
        layout = device_tensor.memory_config().memory_layout
        raise MeshError(
            f"logical_core_filter is only supported for sharded buffer layouts ({layout.cpp_name}): give the device "
            "tensor a sharded memory config, or use ttnn.copy_host_to_device_tensor."
        )
    if not cores.num_cores():
        return
    written = _elements_on(device_tensor.spec, shards, cores)
    merged = from_device(device_tensor, queue_id=cq_id)
    kept, new = merged.storage, host_tensor.view_data()
    if host_tensor.view_distribution().mesh == HOST.mesh:  # one piece, for all devices
        new = new.reshape(*[1] * kept.dist.lead, *host_tensor.shape)
    elif host_tensor.view_distribution().with_label(kept.dist.label) is not kept.dist:
        raise MeshError(
            f"{_WHERE}: the host tensor is {host_tensor.view_distribution()}, the device tensor {kept.dist}: "
            "distribute both in the same way."
        )
    assert kept.data is not None
    kept.data = torch.where(written, new, kept.data)
    copy_host_to_device_tensor(merged, device_tensor, cq_id)


def _elements_on(spec: TensorSpec, shards: BufferDistributionSpec, cores: CoreRangeSet) -> torch.Tensor:
    """Which elements of one piece, of its logical shape, lie on the cores."""
    config = spec.memory_config
    flat, nd = config.shard_spec, config.nd_shard_spec
    shard = tuple(nd.shard_shape) if nd is not None else tuple(flat.shape if flat is not None else ())
    padded, shape = tuple(spec.padded_shape), tuple(spec.shape)
    whole, grid = folded(padded, len(shard)), shards.shard_grid()
    numbers = torch.zeros(whole, dtype=torch.long)
    for dim, (extent, part) in enumerate(zip(whole, shard, strict=True)):
        view = [1] * len(whole)
        view[dim] = extent
        stride = math.prod(grid[dim + 1 :])
        numbers += (torch.arange(extent) // part).view(view) * stride
    on_cores = [cores.contains(shards.core_of(number)) for number in range(math.prod(grid))]
    mask = torch.tensor(on_cores)[numbers].reshape(padded)
    inner = (1,) * (len(padded) - len(shape)) + shape
    return mask[tuple(slice(0, n) for n in inner)].reshape(shape)
