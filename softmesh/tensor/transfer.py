"""Moving tensors between torch, the host and a mesh.

`from_torch` splits by a mapper, rounds each piece to its dtype and puts it on the mesh; `to_torch`
composes the pieces again. No value moves between devices here.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch

from softmesh.arguments import checked, checked_int, described, refused, reject_unknown_keywords
from softmesh.errors import MeshError
from softmesh.hardware.memory_config import DRAM_MEMORY_CONFIG, MemoryConfig
from softmesh.mesh import MeshShape
from softmesh.placement.distribution import HOST, Distribution, distribution, mesh_coordinates, replicated
from softmesh.placement.pieces import along_the_mesh
from softmesh.placement.placements import LOCAL, Partial
from softmesh.placement.tensor_topology import TensorTopology
from softmesh.runtime.commands import emit, observed
from softmesh.runtime.device import MeshDevice, checked_open
from softmesh.runtime.queues.cuda_streams import on_queue
from softmesh.runtime.queues.queue_id import QueueId, chosen_queue
from softmesh.tensor.composers import MeshToTensor, compose_by_placement, fitting_composer
from softmesh.tensor.convert import GROUP, from_storage, round_to, to_storage
from softmesh.tensor.dtype import TILE_SIZE, DataType, Layout, default_dtype_for, facts, tile_size
from softmesh.tensor.mappers import Mapper, ReplicateTensorToMeshWrapper, TensorToMesh
from softmesh.tensor.pending_storage import defer_values
from softmesh.tensor.persistent_results import note_overwritten, warn_if_overwritten
from softmesh.tensor.read_doubts import doubt_composer, doubt_part, warn_if_partial
from softmesh.tensor.spec import TensorSpec, make_spec
from softmesh.tensor.storage import Storage, alias
from softmesh.tensor.tensor import Tensor
from softmesh.tensor.tile import DEFAULT_TILE, Tile
from softmesh.tensor.undefined import warn_if_undefined
from softmesh.tensor.untouched_memory import LARGE, untouched_zeros

A_TENSOR = "a ttnn.Tensor: make one with ttnn.from_torch(...)"


@reject_unknown_keywords
def from_torch(
    tensor: torch.Tensor | None,
    dtype: DataType | None = None,
    *,
    spec: TensorSpec | None = None,
    tile: Tile | None = None,
    pad_value: float | None = None,
    layout: Layout | None = None,
    device: MeshDevice | None = None,
    memory_config: MemoryConfig | None = None,
    mesh_mapper: Mapper | None = None,
    cq_id: int | QueueId | None = None,
    preserve_nan_values: bool = False,
    col_tilize: bool = False,
    enable_bfloat_opt: bool = False,
) -> Tensor | Any:  # None of None, which few callers give
    """A torch tensor as a ttnn tensor: on the host, or on `device`, split by `mesh_mapper`.

    Without a mapper every device of the mesh gets the whole tensor, stored once.
    """
    if tensor is None:
        return None
    source = _as_torch(tensor, "from_torch")
    queue = chosen_queue("from_torch", cq_id)
    if device is not None:
        checked_open("from_torch", "device", device)
        device.note_write("from_torch", queue)
    if checked("from_torch", "col_tilize", col_tilize, int, "True or False"):
        _check_turned(source, dtype, layout, spec)
        source = source.transpose(-2, -1)
    if spec is not None:
        _check_spec_alone(spec, source, dtype=dtype, layout=layout, memory_config=memory_config, tile=tile)
        form = _Form(spec.dtype, spec.layout, spec.memory_config, spec.tile)
    else:
        form = _checked_form("from_torch", source, dtype, layout, memory_config, tile)
    host = _host_tensor("from_torch", source, form, mesh_mapper, _checked_pad_value(pad_value))
    result = host if device is None else _place(host, device, host.spec)
    if observed():
        emit("from_torch", (), (result,), coords=result.view_distribution().coordinates(), queue=queue)
    return result


def created(
    where: str,
    values: torch.Tensor,
    dtype: DataType,
    layout: Layout,
    device: MeshDevice | None,
    memory_config: MemoryConfig | None,
    mapper: Mapper | None,
) -> Tensor:
    """What `where` made up, placed as `from_torch` places what it is given."""
    queue = chosen_queue(where, None)
    if device is not None:
        checked_open(where, "device", device)
        device.note_write(where, queue)
    host = _host_tensor(where, values, _checked_form(where, values, dtype, layout, memory_config, None), mapper, 0.0)
    result = host if device is None else _place(host, device, host.spec)
    if observed():
        emit(where, (), (result,), coords=result.view_distribution().coordinates(), queue=queue)
    return result


def created_constant(
    where: str,
    shape: Sequence[int],
    value: float,
    dtype: DataType,
    layout: Layout,
    device: MeshDevice | None,
    memory_config: MemoryConfig | None,
) -> Tensor:
    """As `created`, of one value everywhere; what is large takes no memory of the host before it is written or read."""
    is_float = isinstance(value, float)
    sample = torch.full((GROUP,), value, dtype=torch.float64 if is_float else torch.int64)
    if math.prod(shape) * facts(dtype).storage.itemsize < LARGE or (device is not None and device.block is not None):
        return created(where, sample[0].expand(tuple(shape)), dtype, layout, device, memory_config, None)
    queue = chosen_queue(where, None)
    if device is not None:
        checked_open(where, "device", device)
        device.note_write(where, queue)
    form = _checked_form(where, sample, dtype, layout, memory_config, None)
    spec = make_spec(tuple(shape), *form)
    spec.check(tries_row_major=True)
    storage = Storage(None, HOST if device is None else place_on(HOST, tuple(device.shape)), device)
    result = Tensor.make(storage, spec)  # first of all: is there room on the device?
    stored = _stored(sample.reshape(1, 1, -1), form, sample, 0.0)[0, 0, 0]
    on = None if device is None else device.torch_device
    storage.data = untouched_zeros((*storage.dist.extents, *spec.shape), stored.dtype, on)
    if stored.any() or (stored.is_floating_point() and torch.signbit(stored)):
        defer_values(storage, partial(_fill, value=stored.item()))
    if observed():
        emit(where, (), (result,), coords=result.view_distribution().coordinates(), queue=queue)
    return result


def _fill(memory: torch.Tensor, value: float) -> None:
    memory.fill_(value)


class _Form(NamedTuple):
    """How the pieces of a tensor are held."""

    dtype: DataType
    layout: Layout
    memory_config: MemoryConfig
    tile: Tile


def _checked_form(
    where: str,
    source: torch.Tensor,
    dtype: DataType | None,
    layout: Layout | None,
    memory_config: MemoryConfig | None,
    tile: Tile | None,
) -> _Form:
    if dtype is None:
        dtype = default_dtype_for(source.dtype)
    checked(where, "dtype", dtype, DataType, "a ttnn dtype such as ttnn.bfloat16")
    if layout is not None:
        checked(where, "layout", layout, Layout, "ttnn.TILE_LAYOUT or ttnn.ROW_MAJOR_LAYOUT")
    if facts(dtype).is_block:
        layout = Layout.TILE  # whatever was asked for: they have no other
    if dtype is DataType.FP8_E4M3 and source.dtype is not torch.float32:
        raise MeshError(
            f"ttnn.from_torch: source dtype {source.dtype} is not supported when target is ttnn.fp8_e4m3; only float32 "
            "input is supported. Cast to torch.float32 first."
        )
    if tile is not None:
        checked(where, "tile", tile, Tile, "a ttnn.Tile")
    return _Form(dtype, layout or Layout.ROW_MAJOR, check_memory_config(memory_config, where), tile or DEFAULT_TILE)


def _check_turned(source: torch.Tensor, dtype: DataType | None, layout: Layout | None, spec: TensorSpec | None) -> None:
    """Whether rows and columns may change places on the way into tiles, which share exponents along rows."""
    if spec is not None:
        problem = "is not supported with spec"
    elif dtype is None or not facts(dtype).is_block:
        problem = f"requires BFP dtype: ttnn.bfloat8_b or ttnn.bfloat4_b, got {dtype}"
    elif source.dim() < 2:
        problem = f"requires tensor.ndim >= 2, got {list(source.shape)}"
    elif layout not in (None, Layout.TILE):
        problem = f"requires layout to be None or ttnn.TILE_LAYOUT, got {layout}"
    else:
        return
    raise MeshError(f"from_torch: col_tilize=True {problem}.")


def _checked_pad_value(value: float | None) -> float:
    if value is None:
        return 0.0
    if isinstance(value, bool) or not isinstance(value, int | float | np.number):
        raise refused("from_torch", f"pad_value must be a number, got {described(value)}")
    return float(value)


def _host_tensor(where: str, source: torch.Tensor, form: _Form, mapper: Mapper | None, pad_value: float) -> Tensor:
    pieces, dist, topology = split_by_mapper(source, mapper, where)
    data = _own_memory(_stored(pieces, form, source, pad_value), source)
    spec = make_spec(tuple(data.shape[dist.lead :]), *form)
    spec.check(tries_row_major=True)
    if pad_value:
        spec = spec.padded_to(spec.padded_shape, pad_value)
    return Tensor.make(Storage(data, dist, None), spec, topology)


def _as_torch(tensor: object, where: str) -> torch.Tensor:
    if isinstance(tensor, np.ndarray):
        return _from_numpy(tensor, where)
    if not isinstance(tensor, torch.Tensor):
        raise refused(where, f"tensor must be a torch.Tensor or a numpy array, got {described(tensor)}")
    if tensor.layout is not torch.strided or tensor.is_meta:
        kind = "a meta tensor without values" if tensor.is_meta else f"{tensor.layout}; call .to_dense() first"
        raise refused(where, f"tensor must hold plain values, got {kind}")
    return tensor.detach()


def _from_numpy(array: np.ndarray, where: str) -> torch.Tensor:
    try:
        usable = array.flags.writeable and all(stride >= 0 for stride in array.strides)
        return torch.from_numpy(array if usable else array.copy())
    except TypeError as error:
        raise refused(where, f"tensor is a numpy array of {array.dtype}, which torch does not have") from error


def _check_spec_alone(spec: TensorSpec, source: torch.Tensor, **others: object) -> None:
    checked("from_torch", "spec", spec, TensorSpec, "a ttnn.TensorSpec")
    for name, value in others.items():
        if value is not None:
            raise MeshError(f"ttnn.from_torch: {name} must be None when spec is specified")
    if tuple(source.shape) != tuple(spec.shape):
        raise MeshError(f"ttnn.from_torch: spec has shape {spec.shape}, the tensor {tuple(source.shape)}")


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


def split_by_mapper(
    source: torch.Tensor, mapper: Mapper | None, where: str
) -> tuple[torch.Tensor, Distribution, TensorTopology | None]:
    if mapper is None:
        return source.reshape(1, 1, *source.shape), HOST, None
    if not isinstance(mapper, TensorToMesh | ReplicateTensorToMeshWrapper):
        wanted = "a mapper such as ttnn.ShardTensorToMesh(mesh_device, dim=0)"
        raise refused(where, f"mesh_mapper must be {wanted}, got {described(mapper)}")
    pieces, dist, topology = mapper.unwrap().split(source)
    local = pieces.shape[len(topology.placements()) :]
    return pieces.reshape(*dist.extents, *local), dist, topology


def _stored(pieces: torch.Tensor, form: _Form, source: torch.Tensor, pad_value: float) -> torch.Tensor:
    torch_converts = form.memory_config.is_sharded() and _differ_in_size(source.dtype, form.dtype)
    if source.dim():
        return to_storage(pieces, form.dtype, pad_value=pad_value, torch_converts=torch_converts)
    apart = pieces.unsqueeze(-1)  # keeps a lone value's block apart from the mesh dims
    return to_storage(apart, form.dtype, pad_value=pad_value, torch_converts=torch_converts).squeeze(-1)


def _differ_in_size(source: torch.dtype, target: DataType) -> bool:
    """Whether a tile takes other memory in the target than in the source."""
    return source.itemsize * TILE_SIZE * TILE_SIZE != tile_size(target)


def _own_memory(data: torch.Tensor, source: torch.Tensor) -> torch.Tensor:
    """Contiguous, and not the user's memory."""
    if data.untyped_storage().data_ptr() == source.untyped_storage().data_ptr() and data.numel():
        return data.clone(memory_format=torch.contiguous_format)
    return data.contiguous()


def _place(host: Tensor, device: MeshDevice, spec: TensorSpec) -> Tensor:
    """A host tensor's pieces at their coordinates of `device`."""
    if host.view_distribution().spread is not None:
        _check_own_part(host, device)
        data, dist = host.view_data(), host.view_distribution()
    else:
        data, dist = _own_part(*_placed(host, tuple(device.shape)), device)
    spreads = host.view_distribution() is HOST and device.get_num_devices() > 1
    topology = None if spreads else host.topology_label
    return Tensor.make(Storage(alias(data.to(device.torch_device)), dist, device), spec, topology)


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
    return (data, dist) if device.block is None else device.block.own_part(*along_the_mesh(data, dist))


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
def to_torch(
    tensor: Tensor,
    dtype: torch.dtype | None = None,
    *,
    torch_rank: int | None = None,
    mesh_composer: MeshToTensor | None = None,
    device: MeshDevice | None = None,
    cq_id: int | QueueId | None = None,
) -> torch.Tensor:
    """A ttnn tensor as a torch tensor of its own memory; pieces are joined by `mesh_composer`."""
    check_readable(tensor, "to_torch")
    queue = _reading(tensor, "to_torch", cq_id)
    warn_if_undefined(tensor, "to_torch")
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
        emit("to_torch", (tensor,), (), coords=dist.coordinates(), queue=queue, blocking=True)
    return result


def composed(tensor: Tensor, composer: MeshToTensor, where: str) -> torch.Tensor:
    wanted = "a composer such as ttnn.ConcatMeshToTensor(mesh_device, dim=0)"
    checked(where, "mesh_composer", composer, MeshToTensor, wanted)
    dist = tensor.view_distribution()
    warn_if_partial(tensor, where)
    doubt_composer(tensor, composer, where)
    return composer.compose(tensor.view_data(), dist)


def compose(tensor: Tensor) -> torch.Tensor:
    """The value that the pieces make, by their placement: no composer needed.

    Shards are concatenated, replicas taken once. A Partial is combined, with a warning: on silicon
    that takes a collective.
    """
    check_readable(tensor, "compose")
    _reading(tensor, "compose", None)
    warn_if_undefined(tensor, "compose")
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
    return chosen_queue(where, cq_id) if device is None else device.note_read(where, cq_id, blocking)


def check_readable(tensor: Tensor, where: str, name: str = "tensor") -> None:
    checked(where, name, tensor, Tensor, A_TENSOR).check_readable(where)
    if tensor.storage.notes is not None:
        warn_if_overwritten(tensor, where)


@reject_unknown_keywords
def to_device(
    tensor: Tensor,
    device: MeshDevice,
    memory_config: MemoryConfig | None = None,
    *,
    queue_id: int | QueueId | None = None,
) -> Tensor:
    """A host tensor onto a mesh: an undistributed one to every device, a distributed one piece by piece."""
    check_readable(tensor, "to_device")
    checked_open("to_device", "device", device)
    if tensor.storage.device is not None:
        return tensor.handed_on()
    queue = device.note_write("to_device", queue_id)
    config = tensor.memory_config() if memory_config is None else memory_config
    spec = tensor.spec.with_memory_config(check_memory_config(config, "to_device"))
    spec.check()
    result = _place(tensor, device, spec)
    if observed():
        coords = result.view_distribution().coordinates()
        emit("to_device", (tensor,), (result,), coords=coords, queue=queue)
    return result


@reject_unknown_keywords
def from_device(tensor: Tensor, blocking: bool = True, *, queue_id: int | QueueId | None = None) -> Tensor:
    """A device tensor's pieces on the host, still distributed; a host tensor is returned as it is."""
    check_readable(tensor, "from_device")
    if tensor.storage.device is None:
        return tensor
    queue = _reading(tensor, "from_device", queue_id, blocking)
    warn_if_undefined(tensor, "from_device")
    doubt_part(tensor, "from_device")
    held = gathered_from_ranks(tensor, "from_device")
    dist = held.view_distribution()
    data = alias(held.view_data().cpu())
    result = Tensor.make(Storage(data, dist, None), tensor.spec, tensor.topology_label)
    if observed():
        emit("from_device", (tensor,), (result,), coords=dist.coordinates(), queue=queue, blocking=blocking)
    return result


def own_part_on_host(tensor: Tensor, doing: str) -> Tensor:
    """As `from_device`, of what this process holds, without asking the others."""
    check_readable(tensor, doing)
    data = alias(tensor.view_data().cpu())
    return Tensor.make(Storage(data, tensor.view_distribution(), None), tensor.spec, tensor.topology_label)


@reject_unknown_keywords
def copy_host_to_device_tensor(host_tensor: Tensor, device_tensor: Tensor, cq_id: int | QueueId | None = None) -> None:
    """Overwrite a device tensor in place with a host tensor of the same spec.

    A host tensor that covers only some devices leaves the others as they are.
    """
    device = check_pair(host_tensor, device_tensor, "copy_host_to_device_tensor")
    queue = device.note_write("copy_host_to_device_tensor", cq_id)
    mesh = device_tensor.storage.dist.mesh if device.block is None else tuple(device.shape)
    data, dist = _own_part(*_placed(host_tensor, mesh), device)
    with on_queue(queue):
        device_tensor.overwrite(data.to(device.torch_device), dist)
    note_overwritten(device_tensor, "copy_host_to_device_tensor")
    if observed():
        coords = device_tensor.view_distribution().coordinates()
        emit("copy_host_to_device_tensor", (host_tensor,), (device_tensor,), coords=coords, queue=queue)


@reject_unknown_keywords
def copy_device_to_host_tensor(
    device_tensor: Tensor, host_tensor: Tensor, blocking: bool = True, cq_id: int | QueueId | None = None
) -> None:
    """Overwrite a host tensor in place with a device tensor of the same spec."""
    check_pair(host_tensor, device_tensor, "copy_device_to_host_tensor").check_local("copy_device_to_host_tensor")
    queue = _reading(device_tensor, "copy_device_to_host_tensor", cq_id, blocking)
    warn_if_undefined(device_tensor, "copy_device_to_host_tensor")
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
    for what, here, there in (
        ("shape", host.shape, device.shape),
        ("dtype", host.dtype, device.dtype),
        ("page config", host.layout, device.layout),
    ):
        if here != there:
            raise MeshError(f"Host tensor has different {what}: {here} on the host, {there} on the device.")
    return mesh_device
