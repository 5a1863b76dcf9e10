"""Moves tensors between the host and a mesh, and reads them back: `to_device`, `from_device`, `to_torch`, copies.

`to_torch` composes the pieces that `from_torch` (`tensor.from_torch_values`) has split. No value moves between devices
here.
"""

from __future__ import annotations

import torch

from softmesh.arguments import checked, checked_int, reject_unknown_keywords
from softmesh.errors import MeshError
from softmesh.hardware.memory_config import DRAM_MEMORY_CONFIG, MemoryConfig
from softmesh.kinds import Kind
from softmesh.mesh import MeshShape
from softmesh.placement.distribution import HOST, Distribution, distribution, mesh_coordinates, replicated
from softmesh.placement.pieces import along_the_mesh
from softmesh.placement.placements import LOCAL, Partial, placed
from softmesh.runtime import lockstep_check
from softmesh.runtime.commands import emit, observed
from softmesh.runtime.device import MeshDevice, checked_open
from softmesh.runtime.queues.cuda_streams import on_queue
from softmesh.runtime.queues.queue_id import QueueId, chosen_queue
from softmesh.tensor.composers import MeshToTensor, compose_by_placement, fitting_composer
from softmesh.tensor.convert import from_storage, round_to
from softmesh.tensor.dtype import DataType
from softmesh.tensor.number_doubts import carry, doubt_nan
from softmesh.tensor.persistent_results import (
    doubt_lost,
    note_overwritten,
    note_read,
    note_written,
    warn_if_overwritten,
)
from softmesh.tensor.read_doubts import doubt_composer, doubt_part, warn_if_partial, watch_copies
from softmesh.tensor.shards_elsewhere import shard_of
from softmesh.tensor.spec import TensorSpec
from softmesh.tensor.stacked_copies import aggregate_taken_in
from softmesh.tensor.storage import Storage, alias
from softmesh.tensor.tensor import Tensor
from softmesh.tensor.undefined import note_leaving, warn_before_leaving

A_TENSOR = "a ttnn.Tensor: make one with ttnn.from_torch(...)"


def check_memory_config(config: MemoryConfig | None, where: str) -> MemoryConfig:
    if config is None:
        return DRAM_MEMORY_CONFIG
    checked(where, "memory_config", config, MemoryConfig, "a ttnn.MemoryConfig such as ttnn.L1_MEMORY_CONFIG")
    if config.is_sharded() and config.shard_spec is None and config.nd_shard_spec is None:
        raise MeshError(
            f"ttnn.{where}: Shard spec must not be None for sharded tensors: build one with "
            "ttnn.create_sharded_memory_config(...)."
        )
    return config


def put_on_mesh(host: Tensor, device: MeshDevice, spec: TensorSpec) -> Tensor:
    """A host tensor's pieces at their coordinates of `device`."""
    if host.view_distribution().spread is not None:
        _check_own_part(host, device)
        data, dist = host.view_data(), host.view_distribution()
    else:
        data, dist = _own_part(*_placed(host, tuple(device.shape)), device)
    spreads = host.view_distribution() is HOST and device.get_num_devices() > 1
    topology = None if spreads else host.topology_label
    made = Tensor.make(Storage(alias(data.to(device.torch_device)), dist, device), spec, topology)
    carry(host.storage, made.storage)
    aggregate_taken_in(host)
    return made


def _placed(host: Tensor, mesh: tuple[int, ...]) -> tuple[torch.Tensor, Distribution]:
    data, dist = host.view_data(), place_on(host.view_distribution(), mesh)
    return data.reshape(*dist.extents, *host.shape), dist


def _check_own_part(host: Tensor, device: MeshDevice) -> None:
    """What one process wrote of its part of a tensor goes back to where it was."""
    dist, block = host.view_distribution(), device.block
    if block is None or (dist.spread, dist.mesh) != (block.hosts, block.shape):
        raise MeshError(
            f"The tensor is the part that one of {dist.spread} processes held, {MeshShape(dist.mesh)} of its mesh, and "
            f"{device!r} is not held that way here. Dump it with DumpTensorMode.DISTRIBUTED_GATHER to load it anywhere."
        )


def _own_part(data: torch.Tensor, dist: Distribution, device: MeshDevice) -> tuple[torch.Tensor, Distribution]:
    """What this process keeps of a tensor on the whole mesh."""
    if device.block is None:
        return data, dist
    lockstep_check.note_whole(device, data, dist.placements)
    return device.block.own_part(*along_the_mesh(data, dist))


def place_on(dist: Distribution, mesh: tuple[int, ...]) -> Distribution:
    """A host distribution as it lies on a mesh: an undistributed tensor goes to every device."""
    if dist.mesh == (1, 1) and dist.is_replicated:
        return replicated(mesh)
    if dist.mesh == mesh:
        return dist
    known = set(mesh_coordinates(mesh))
    for coord in dist.coordinates():
        if coord not in known:
            raise MeshError(
                f"Coordinate {coord} not found in mesh {MeshShape(mesh)}: the tensor was distributed for a mesh "
                f"{MeshShape(dist.mesh)}. Map it for the mesh it goes to."
            )
    return distribution(mesh, dist.grid, dist.placements, dist.coordinates(), dist.label)


@reject_unknown_keywords
@placed("On the host, put together by `mesh_composer`.")
def to_torch(
    tensor: Tensor,
    dtype: torch.dtype | None = None,
    *,
    torch_rank: int | None = None,
    mesh_composer: MeshToTensor | None = None,
    device: MeshDevice | None = None,
    cq_id: int | QueueId | None = None,
) -> torch.Tensor:
    """A ttnn tensor as a torch tensor of its own memory; pieces are joined by `mesh_composer`.

    >>> composer = ttnn.ConcatMeshToTensor(mesh, dim=1)
    >>> ttnn.to_torch(split(8, 64, dim=1), mesh_composer=composer).shape
    torch.Size([8, 64])
    """
    check_readable(tensor, "to_torch")
    queue = _reading(tensor, "to_torch", cq_id)
    tensor = gathered_from_ranks(tensor, "to_torch")
    if dtype is not None:
        checked("to_torch", "dtype", dtype, torch.dtype, "a torch dtype such as torch.float32")
    dist = tensor.view_distribution()
    data = tensor.view_data()
    doubt_part(tensor, "to_torch")
    if mesh_composer is not None:
        whole = composed(tensor, mesh_composer, "to_torch")
    elif len(dist.coordinates()) > 1:
        raise MeshError(
            f"Can't convert a tensor distributed on {MeshShape(dist.mesh)} mesh to row-major logical tensor. "
            f"Supply a mesh composer to concatenate multi-device shards. It is {_words(dist)}: use "
            f"{fitting_composer(dist)}."
        )
    elif tensor.dtype is DataType.FP8_E4M3:
        raise MeshError(
            "FP8_E4M3 single-device to_torch is not supported: convert it first, on the host with "
            "ttnn.to_dtype(t, ttnn.float32), on a device with ttnn.typecast."
        )
    else:
        whole = data.reshape(data.shape[dist.lead :])
    result = _hand_over(whole, data, tensor.dtype, dtype)
    if torch_rank is not None:
        result = _squeeze_to_rank(result, checked_int("to_torch", "torch_rank", torch_rank))
    if observed():
        emit("to_torch", Kind.HOST_READ, (tensor,), (), coords=dist.coordinates(), queue=queue, blocking=True)
    return watch_copies(tensor, dist, mesh_composer, result)


def composed(tensor: Tensor, composer: MeshToTensor, where: str) -> torch.Tensor:
    wanted = "a composer such as ttnn.ConcatMeshToTensor(mesh_device, dim=0)"
    checked(where, "mesh_composer", composer, MeshToTensor, wanted)
    dist = tensor.view_distribution()
    warn_if_partial(tensor, where, composer)
    doubt_composer(tensor, composer, where)
    return composer.compose(tensor.view_data(), dist)


def compose(tensor: Tensor) -> torch.Tensor:
    """The value that the pieces make, by their placement: no composer needed.

    Shards are concatenated, replicas taken once. A Partial is combined, with a warning: on silicon
    that takes a collective.
    """
    check_readable(tensor, "compose")
    tell_host_use(tensor, "compose")
    _reading(tensor, "compose", None)
    tensor = gathered_from_ranks(tensor, "compose")
    dist, data = tensor.view_distribution(), tensor.view_data()
    if LOCAL in dist.placements:
        raise MeshError(
            f"compose: the tensor is {_words(dist)}: the devices along a Local axis hold values of their own that "
            "make no single tensor. Take them one by one with ttnn.get_device_tensors(t)."
        )
    warn_if_partial(tensor, "compose")
    partial = any(isinstance(word, Partial) for word in dist.placements)
    source = data.float() if partial and data.is_floating_point() else data
    whole = compose_by_placement(source, dist)
    return _hand_over(round_to(whole, tensor.dtype) if partial else whole, data, tensor.dtype, None)


def _words(dist: Distribution) -> str:
    return " x ".join(map(repr, dist.placements)) + f" over {' x '.join(map(str, dist.grid))} devices"


def _hand_over(whole: torch.Tensor, data: torch.Tensor, dtype: DataType, wanted: torch.dtype | None) -> torch.Tensor:
    result = from_storage(whole, dtype).detach().cpu()
    if wanted is not None:
        result = result.to(wanted)
    if result.untyped_storage().data_ptr() == data.untyped_storage().data_ptr() or not result.is_contiguous():
        result = result.clone(memory_format=torch.contiguous_format)
    return result


def _squeeze_to_rank(result: torch.Tensor, rank: int) -> torch.Tensor:
    surplus = result.dim() - rank
    if surplus < 0 or any(n != 1 for n in result.shape[:surplus]):
        raise MeshError(
            f"ttnn: Unable to squeeze to desired rank! {tuple(result.shape)} becomes rank {rank} only where its "
            "leading dims are 1 and there are enough of them."
        )
    return result.reshape(result.shape[surplus:])


def gathered_from_ranks(tensor: Tensor, doing: str) -> Tensor:
    """The tensor itself; on the host and whole where several processes hold it together.

    What was made of a single shard is its own process's alone.
    """
    device, dist = tensor.storage.device, tensor.view_distribution()
    if device is None or device.block is None or device.ranks is None:
        return tensor
    ranks = device.ranks
    ranks.calls.check()
    if dist.spread is None:
        return tensor
    axes, spec = range(dist.lead), tensor.spec
    if device.block.spread_axes(dist, axes):  # others hold some of it, and have to send that
        device.tell_ranks(f"{doing}({spec.dtype.name} {list(spec.shape)})", (tensor.storage.address,))
    data = device.block.widened(tensor.view_data().cpu(), dist, axes, lambda d, axis: ranks.gather(d, axis, doing))
    return Tensor.make(Storage(data, device.block.wide(dist, axes), None), tensor.spec, tensor.topology_label)


def _reading(tensor: Tensor, where: str, cq_id: int | QueueId | None, blocking: bool = True) -> int:
    """The number of the queue that a tensor is read on; of a host tensor it does not matter."""
    device = tensor.storage.device
    doubt_nan(tensor, where)
    note_read([tensor])
    doubt_lost(tensor, where)
    queue = chosen_queue(where, cq_id) if device is None else device.note_read(where, cq_id, blocking)
    warn_before_leaving(tensor, where)
    return queue


def check_readable(tensor: Tensor, where: str, name: str = "tensor") -> None:
    checked(where, name, tensor, Tensor, A_TENSOR).check_readable(where)
    if tensor.storage.notes is not None:
        warn_if_overwritten(tensor, where)


def tell_host_use(tensor: Tensor, doing: str) -> None:
    """The host looks at values of its own, which a read that does not block may still be bringing."""
    if tensor.storage.device is None and observed():
        emit(doing, Kind.HOST_USE, (tensor,), (), coords=tensor.view_distribution().coordinates())


@reject_unknown_keywords
@placed("As it was split on the host; otherwise the same on all devices.")
def to_device(
    tensor: Tensor,
    device: MeshDevice,
    memory_config: MemoryConfig | None = None,
    *,
    queue_id: int | QueueId | None = None,
) -> Tensor:
    """A host tensor onto a mesh: an undistributed one to every device, a distributed one piece by piece.

    >>> y = ttnn.to_device(ttnn.from_torch(torch.ones(8, 64)), mesh)
    >>> y.shape, ttnn.placements(y)
    (Shape([8, 64]), (Replicate, Replicate))
    """
    check_readable(tensor, "to_device")
    checked_open("to_device", "device", device)
    if tensor.storage.device is not None:
        return tensor.handed_on()
    queue = device.note_write("to_device", queue_id)
    config = tensor.memory_config() if memory_config is None else memory_config
    spec = tensor.spec.with_memory_config(check_memory_config(config, "to_device"))
    spec.check()
    result = put_on_mesh(tensor, device, spec)
    if observed():
        coords = result.view_distribution().coordinates()
        emit("to_device", Kind.HOST_WRITE, (tensor,), (result,), coords=coords, queue=queue)
    return result


@reject_unknown_keywords
@placed("On the host, in the pieces that the devices held.")
def from_device(tensor: Tensor, blocking: bool = True, *, queue_id: int | QueueId | None = None) -> Tensor:
    """A device tensor's pieces on the host, still distributed; a host tensor is returned as it is.

    >>> y = ttnn.from_device(split(8, 64, dim=1))
    >>> y.shape, y.storage_type().name
    (Shape([8, 16]), 'HOST')
    """
    check_readable(tensor, "from_device")
    if tensor.storage.device is None:
        return tensor
    queue = _reading(tensor, "from_device", queue_id, blocking)
    doubt_part(tensor, "from_device")
    held = gathered_from_ranks(tensor, "from_device")
    dist = held.view_distribution()
    data = alias(held.view_data().cpu())
    result = Tensor.make(Storage(data, dist, None), tensor.spec, tensor.topology_label)
    if observed():
        emit(
            "from_device",
            Kind.HOST_READ,
            (tensor,),
            (result,),
            coords=dist.coordinates(),
            queue=queue,
            blocking=blocking,
        )
    return result


def own_part_on_host(tensor: Tensor, doing: str) -> Tensor:
    """As `from_device`, of what this process holds, without asking the others."""
    check_readable(tensor, doing)
    note_leaving(tensor)
    data = alias(tensor.view_data().cpu())
    return Tensor.make(Storage(data, tensor.view_distribution(), None), tensor.spec, tensor.topology_label)


@reject_unknown_keywords
@placed("The device tensor is placed as the host tensor is.")
def copy_host_to_device_tensor(host_tensor: Tensor, device_tensor: Tensor, cq_id: int | QueueId | None = None) -> None:
    """Overwrite a device tensor in place with a host tensor of the same spec.

    A host tensor that covers only some devices leaves the others as they are. To a shard that another process holds
    that process writes.

    >>> x = whole(8, 64)
    >>> ttnn.copy_host_to_device_tensor(ttnn.from_device(whole(8, 64)), x)
    >>> x.shape, ttnn.placements(x)
    (Shape([8, 64]), (Replicate, Replicate))
    """
    if isinstance(device_tensor, Tensor) and (elsewhere := shard_of(device_tensor)) is not None:
        check_readable(host_tensor, "copy_host_to_device_tensor", "host_tensor")
        check_alike(host_tensor, device_tensor)
        device_tensor.overwrite(host_tensor.pieces()[:1].clone().reshape(1, 1, *host_tensor.shape), HOST)
        elsewhere[0].note_piece_elsewhere()
        return
    device = check_pair(host_tensor, device_tensor, "copy_host_to_device_tensor")
    queue = device.note_write("copy_host_to_device_tensor", cq_id)
    mesh = device_tensor.storage.dist.mesh if device.block is None else tuple(device.shape)
    data, dist = _own_part(*_placed(host_tensor, mesh), device)
    with on_queue(queue):
        device_tensor.overwrite(data.to(device.torch_device), dist)
    note_overwritten(device_tensor, "copy_host_to_device_tensor")
    carry(host_tensor.storage, device_tensor.storage)
    note_written(device_tensor.storage)
    if observed():
        coords = device_tensor.view_distribution().coordinates()
        emit(
            "copy_host_to_device_tensor", Kind.HOST_WRITE, (host_tensor,), (device_tensor,), coords=coords, queue=queue
        )


@reject_unknown_keywords
def copy_device_to_host_tensor(
    device_tensor: Tensor, host_tensor: Tensor, blocking: bool = True, cq_id: int | QueueId | None = None
) -> None:
    """Overwrite a host tensor in place with a device tensor of the same spec."""
    check_pair(host_tensor, device_tensor, "copy_device_to_host_tensor").check_local("copy_device_to_host_tensor")
    queue = _reading(device_tensor, "copy_device_to_host_tensor", cq_id, blocking)
    device_tensor = gathered_from_ranks(device_tensor, "copy_device_to_host_tensor")
    dist, host_dist = device_tensor.view_distribution(), host_tensor.view_distribution()
    data = device_tensor.view_data().cpu()
    if len(dist.coordinates()) == 1 and host_dist.mesh == HOST.mesh:
        host_tensor.overwrite(data.reshape(*HOST.extents, *host_tensor.shape), host_dist)
    elif dist.mesh == host_dist.mesh:
        host_tensor.overwrite(data, dist)
    else:
        raise MeshError(
            f"copy_device_to_host_tensor: the device tensor lies on {MeshShape(dist.mesh)}, the host tensor on "
            f"{MeshShape(host_dist.mesh)}: make it with ttnn.allocate_tensor_on_host(device_tensor.spec, mesh_device)."
        )
    if observed():
        emit(
            "copy_device_to_host_tensor",
            Kind.HOST_READ,
            (device_tensor,),
            (host_tensor,),
            coords=dist.coordinates(),
            queue=queue,
            blocking=blocking,
        )


def check_pair(host: Tensor, device: Tensor, where: str) -> MeshDevice:
    """Refuse what cannot be copied between; the mesh of the device tensor."""
    check_readable(host, where, "host_tensor")
    checked(where, "device_tensor", device, Tensor, A_TENSOR).check_writable(where)
    mesh_device = device.storage.device
    if host.storage.device is not None or mesh_device is None:
        raise MeshError(
            f"{where} needs one tensor on the host and one on a device: host_tensor is "
            f"{host.storage_type()}, device_tensor is {device.storage_type()}."
        )
    check_alike(host, device)
    return mesh_device


def check_alike(host: Tensor, device: Tensor) -> None:
    for what, here, there in (
        ("shape", host.shape, device.shape),
        ("dtype", host.dtype, device.dtype),
        ("page config", host.layout, device.layout),
    ):
        if here != there:
            raise MeshError(f"Host tensor has different {what}: {here} on the host, {there} on the device.")
