"""Makes tensors of torch values: `from_torch`, and what creation ops make up.

Values are split by a mapper, rounded to their dtype on the host, and then put on the mesh (`tensor.transfer`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch

from softmesh.arguments import checked, described, refused, reject_unknown_keywords
from softmesh.errors import MeshError
from softmesh.hardware.memory_config import MemoryConfig
from softmesh.kinds import Kind
from softmesh.placement.distribution import HOST, Distribution
from softmesh.placement.placements import placed
from softmesh.placement.tensor_topology import TensorTopology
from softmesh.runtime.commands import emit, observed
from softmesh.runtime.device import MeshDevice, checked_open
from softmesh.runtime.queues.queue_id import QueueId, chosen_queue
from softmesh.runtime.sanitizer.borrowed_memory import LENDERS
from softmesh.runtime.traces.recording import Recording
from softmesh.runtime.traces.steps import Lookup
from softmesh.runtime.traces.trace import recording_on
from softmesh.tensor.convert import GROUP, to_storage
from softmesh.tensor.dtype import TILE_SIZE, DataType, Layout, default_dtype_for, facts, tile_size
from softmesh.tensor.joined_columns import note_split
from softmesh.tensor.mappers import Mapper, ReplicateTensorToMeshWrapper, TensorToMesh
from softmesh.tensor.number_doubts import note_stored
from softmesh.tensor.pending_storage import defer_values
from softmesh.tensor.spec import TensorSpec, make_spec
from softmesh.tensor.stacked_copies import taken_in
from softmesh.tensor.storage import Storage
from softmesh.tensor.tensor import Tensor
from softmesh.tensor.tile import DEFAULT_TILE, Tile
from softmesh.tensor.transfer import check_memory_config, place_on, put_on_mesh
from softmesh.tensor.untouched_memory import LARGE, untouched_zeros


@reject_unknown_keywords
@placed("As `mesh_mapper` splits it; without one, the same on all devices.")
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

    >>> x = ttnn.from_torch(torch.ones(8, 64), device=mesh, mesh_mapper=ttnn.ShardTensorToMesh(mesh, dim=1))
    >>> x.shape, ttnn.placements(x)
    (Shape([8, 16]), (Replicate, Shard(1)))
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
    result = host if device is None else put_on_mesh(host, device, host.spec)
    if observed():
        _note_lender(host, source, mesh_mapper)
        emit("from_torch", Kind.HOST_WRITE, (), (result,), coords=result.view_distribution().coordinates(), queue=queue)
    return result


def _note_lender(host: Tensor, source: torch.Tensor, mapper: Mapper | None) -> None:
    """On a chip such a host tensor has no memory of its own."""
    is_same = source.dtype is facts(host.dtype).torch and host.layout is Layout.ROW_MAJOR
    if mapper is None and is_same and source.is_contiguous() and source.is_cpu and source.dim():
        LENDERS[host.storage] = source


def created(
    where: str,
    values: torch.Tensor,
    dtype: DataType,
    layout: Layout,
    device: MeshDevice | None,
    memory_config: MemoryConfig | None,
    mapper: Mapper | None,
    *,
    is_drawn: bool = False,
) -> Tensor:
    """What `where` made up, placed as `from_torch` places what it is given.

    With `is_drawn` a program on the chips makes the values, with a seed that is one of its arguments. A trace records
    its launch, and draws the same at each replay.
    """
    queue = chosen_queue(where, None)
    recording = recording_on(device, queue) if is_drawn else None
    if device is not None and recording is None:
        _note_write(where, device, queue)
    host = _host_tensor(where, values, _checked_form(where, values, dtype, layout, memory_config, None), mapper, 0.0)
    result = host if device is None else put_on_mesh(host, device, host.spec)
    if recording is not None:
        _record_drawn(recording, result, where)
    if observed():
        emit(where, Kind.HOST_FILL, (), (result,), coords=result.view_distribution().coordinates(), queue=queue)
    return result


def _record_drawn(recording: Recording, made: Tensor, where: str) -> None:
    values, dist, device, spec = made.view_data().clone(), made.storage.dist, made.storage.device, made.spec

    def again(lookup: Lookup) -> list[Storage]:
        return [Storage(values.clone(), dist, device, spec)]

    recording.compute(values.clone, (), [made.storage], (None,), is_several=False, again=again, name=where)


def _note_write(where: str, device: MeshDevice, queue: int) -> None:
    """Memory that nothing is written to can be had while a trace is recorded, too."""
    checked_open(where, "device", device)
    if where != "empty":
        device.note_write(where, queue)


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
        _note_write(where, device, queue)
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
        emit(where, Kind.HOST_FILL, (), (result,), coords=result.view_distribution().coordinates(), queue=queue)
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
    made = Tensor.make(Storage(data, dist, None), spec, topology)
    note_stored(made, pieces, where)
    note_split(made, source)
    return made


def _as_torch(tensor: object, where: str) -> torch.Tensor:
    if isinstance(tensor, np.ndarray):
        return _from_numpy(taken_in(tensor), where)
    if not isinstance(tensor, torch.Tensor):
        raise refused(where, f"tensor must be a torch.Tensor or a numpy array, got {described(tensor)}")
    if tensor.layout is not torch.strided or tensor.is_meta:
        kind = "a meta tensor without values" if tensor.is_meta else f"{tensor.layout}; call .to_dense() first"
        raise refused(where, f"tensor must hold plain values, got {kind}")
    return taken_in(tensor).detach()


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
