"""reduce_scatter_minimal_direct, and the scratch buffers of reduce_scatters as TT-NN lays them out: pages of tiles.

What they hold is nobody's business; how large they are is, where L1 or DRAM is short.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from softmesh.collectives.argument_checks import check_buffer
from softmesh.collectives.collective_operation import group_along
from softmesh.collectives.collective_spec import CollectiveSpec, check_axis
from softmesh.collectives.fabric_topology import get_usable_topology
from softmesh.collectives.overload_signatures import (
    Arguments,
    composite,
    definition_of,
    overloaded_collective,
)
from softmesh.collectives.ttnn_collectives import reduce_scatter
from softmesh.cores import CoreCoord, CoreRange, CoreRangeSet
from softmesh.dispatch.operand import Operand
from softmesh.errors import MeshError
from softmesh.hardware import Topology
from softmesh.hardware.memory_config import (
    DRAM_MEMORY_CONFIG,
    L1_MEMORY_CONFIG,
    BufferType,
    MemoryConfig,
    ShardOrientation,
    ShardSpec,
    TensorMemoryLayout,
)
from softmesh.kinds import Kind
from softmesh.runtime.device import MeshDevice
from softmesh.tensor.device_allocation import allocate_tensor_on_device
from softmesh.tensor.dtype import TILE_SIZE, DataType, Layout
from softmesh.tensor.spec import TensorSpec, make_spec
from softmesh.tensor.tensor import Tensor

_INTERMEDIATE = "experimental.reduce_scatter_minimal_async_create_intermediate_buffer"
_DIRECT = "experimental.reduce_scatter_minimal_direct"
_STAGING = "experimental.reduce_scatter_minimal_direct_create_staging_buffer"
_PERSISTENT = "experimental.reduce_scatter_minimal_direct_create_persistent_buffers"
_LARGEST_PACKET = 4352  # bytes
_ON_EVERY_CORE, _IN_L1 = 640 * 1024, 4 * 1024 * 1024  # bytes up to which staging lies there


class _Slice(NamedTuple):
    """What one of `devices` gets."""

    mesh: MeshDevice
    devices: int
    dim: int
    shape: tuple[int, ...]
    page: int  # bytes
    tiles_of_a_page: int

    def tiles(self, *, of_a_channel: bool) -> int:
        height, width = (-(-n // TILE_SIZE) for n in self.shape[-2:])
        return height * width * (1 if of_a_channel else math.prod(self.shape[:-2]))

    @property
    def channels(self) -> int:
        rank = len(self.shape)
        if rank == 2:
            return 1
        deep = self.dim <= rank - 4 and rank > 4
        return math.prod(self.shape[self.dim : -2]) if deep else self.shape[-3]

    @property
    def pages(self) -> int:
        """Of what one device keeps while it adds."""
        return self.channels * -(-self.tiles(of_a_channel=True) // self.tiles_of_a_page)


def _slice(op: str, tensor: Tensor, dim: int, axis: int | None, is_wide: bool | None = None) -> _Slice:
    """Of a reduce_scatter that can be. `is_wide`: sums are kept in fp32, as they are of fp32 tensors."""
    mesh = tensor.device()
    if mesh is None:
        raise MeshError("Input tensor must to be on device! Move it with ttnn.to_device(tensor, mesh_device).")
    tensor.check_allocated(op)
    scattering = definition_of(reduce_scatter)(Operand(op, "input_tensor", tensor.spec), dim, cluster_axis=axis)
    check_axis(op, mesh, axis)
    group = group_along(op, tensor, axis)
    scattering.move(group)
    at, shape = dim % len(tensor.shape), list(tensor.shape)
    shape[at] //= group.size
    tiled = make_spec((TILE_SIZE, TILE_SIZE), tensor.dtype, Layout.TILE, DRAM_MEMORY_CONFIG)
    tile = tiled.bytes()
    most = 4 if (tensor.dtype is DataType.FLOAT32 if is_wide is None else is_wide) else 8
    together = min(4 * max(min(4, _LARGEST_PACKET // tile), 1), most)
    return _Slice(mesh, group.size, at, tuple(shape), together * tile, together)


def _keeps_fp32(compute_kernel_config: Any) -> bool | None:
    return None if compute_kernel_config is None else bool(compute_kernel_config.fp32_dest_acc_en)


def _pages(mesh: MeshDevice, count: int, page: int, config: MemoryConfig) -> Tensor:
    return allocate_tensor_on_device((count, page), DataType.UINT8, Layout.ROW_MAJOR, mesh, config)


@composite(_INTERMEDIATE, "input_tensor:tensor dim | topology? cluster_axis? compute_kernel_config?")
def reduce_scatter_minimal_async_create_intermediate_buffer(
    input_tensor: Tensor,
    dim: int,
    cluster_axis: int | None = None,
    topology: Topology | None = None,
    compute_kernel_config: Any = None,
) -> list[Tensor]:
    """[intermediate, penultimate], for `persistent_output_buffers=[intermediate, output, penultimate]`."""
    part = _slice(_INTERMEDIATE, input_tensor, dim, cluster_axis, _keeps_fp32(compute_kernel_config))
    usable = get_usable_topology(input_tensor, topology or Topology.Ring, cluster_axis)
    if usable is not Topology.Ring or (part.dim == 0 and len(part.shape) in (3, 4)):
        raise MeshError(
            f"{_INTERMEDIATE} only applies to the contiguous fast path (Ring topology, scatter dim != 0). It got dim "
            f"{dim} of {list(input_tensor.shape)} and can use {usable}: give reduce_scatter_minimal_async no buffers."
        )
    return [_pages(part.mesh, n * part.pages, part.page, DRAM_MEMORY_CONFIG) for n in (part.devices, 1)]


def check_intermediate(op: str, given: Arguments) -> None:
    """The first of `persistent_output_buffers` is one of the two forms: like the operand, or pages around a ring.

    Along a line chunks come from both sides, so that form holds the operand twice. Behind a matmul that works batch by
    batch it holds one of them.
    """
    tensor, buffers = given.get("input_tensor"), given.get("persistent_output_buffers")
    if not isinstance(tensor, Tensor) or not buffers:
        return
    first, volume = buffers[0], math.prod(tensor.shape)
    if math.prod(first.shape) in (volume, 2 * volume, math.prod(list(tensor.shape)[1:])):
        if len(buffers) > 2:
            raise MeshError(
                f"{op}: a penult intermediate is not applicable beside persistent_output_buffers[0] {list(first.shape)}"
                f": give two buffers, or those of ttnn.{_INTERMEDIATE}(...)."
            )
        return
    is_wide = _keeps_fp32(given.get("compute_kernel_config"))
    part = _slice(op, tensor, given["dim"], given.get("cluster_axis"), is_wide)
    if tuple(first.shape) != (part.devices * part.pages, part.page) or first.dtype is not DataType.UINT8:
        raise MeshError(
            "Persistent intermediate matches neither reduce-scatter intermediate layout. "
            f"{op} got persistent_output_buffers[0] {list(first.shape)} {first.dtype} for an operand "
            f"{list(tensor.shape)}: give one of the operand's shape, or make it with ttnn.{_INTERMEDIATE}(...)."
        )


# -- reduce_scatter_minimal_direct -----------------------------------------------------------------


def _staging(part: _Slice) -> tuple[int, MemoryConfig]:
    """How many pages, and where they lie."""
    count = 2 * part.devices * -(-part.tiles(of_a_channel=False) // part.tiles_of_a_page)
    size = count * part.page
    if size > _ON_EVERY_CORE:
        return count, L1_MEMORY_CONFIG if size <= _IN_L1 else DRAM_MEMORY_CONFIG
    grid = part.mesh.compute_with_storage_grid_size()
    cores = CoreRangeSet([CoreRange(CoreCoord(0, 0), CoreCoord(grid.x - 1, grid.y - 1))])
    shards = ShardSpec(cores, [count, part.page], ShardOrientation.ROW_MAJOR)
    config = MemoryConfig(TensorMemoryLayout.HEIGHT_SHARDED, BufferType.L1, shards)
    return count * grid.x * grid.y, config


def _staging_spec(part: _Slice) -> TensorSpec:
    count, config = _staging(part)
    return make_spec((count, part.page), DataType.UINT8, Layout.ROW_MAJOR, config)


def _check_direct(op: str, given: Arguments) -> None:
    """A ring, and [output, staging] if there are buffers."""
    tensor, axis, buffers = (given.get(name) for name in ("input_tensor", "cluster_axis", "persistent_buffers"))
    mesh = tensor.device() if isinstance(tensor, Tensor) else None
    if mesh is None or tensor is None:
        return  # the registry answers for operands
    if axis is None and sum(n > 1 for n in mesh.shape) > 1:
        raise MeshError(f"{op} requires an explicit cluster_axis on a 2-D mesh, {mesh.shape}: give 0 or 1.")
    if axis is None:
        axis = max(range(mesh.shape.dims()), key=lambda i: mesh.shape[i])
    if get_usable_topology(tensor, Topology.Ring, axis) is not Topology.Ring:
        raise MeshError(
            f"{op} supports Ring topology only: axis {axis} of {mesh.shape} does not wrap around under the active "
            "fabric, its ends have no link that is in use. Use ttnn.experimental.reduce_scatter_minimal_async, which "
            "also runs along a line."
        )
    if buffers is None:
        return
    if len(buffers) != 2:
        raise MeshError(f"persistent_buffers must be {{output, staging}}, got {len(buffers)}: {op}.")
    check_buffer(op, "persistent_buffers[1]", buffers[1], mesh)
    wanted = _staging_spec(_slice(op, tensor, given["dim"], given.get("cluster_axis")))
    if buffers[1].spec != wanted:
        raise MeshError(
            f"Persistent staging tensor spec {buffers[1].spec} does not match the computed spec {wanted}. Make it "
            f"with ttnn.{_STAGING}(...)."
        )


def _direct_output(given: Arguments) -> Any:
    buffers = given.get("persistent_buffers")
    return None if buffers is None else buffers[0]


@overloaded_collective(
    _DIRECT,
    "input_tensor dim | cluster_axis? num_links? memory_config? persistent_buffers? subdevice_id? sub_core_grid?",
    kind=Kind.REDUCE_SCATTER,
    output=_direct_output,
    receives="persistent_buffers",
    precision="native",
    check=_check_direct,
)
def reduce_scatter_minimal_direct(
    input_tensor: Operand, dim: int, *, cluster_axis: int | None = None
) -> CollectiveSpec:
    """reduce_scatter around a ring, each chunk straight to its owner."""
    return definition_of(reduce_scatter)(input_tensor, dim, cluster_axis=cluster_axis)


@composite(_STAGING, "input_tensor:tensor dim | cluster_axis?")
def reduce_scatter_minimal_direct_create_staging_buffer(
    input_tensor: Tensor, dim: int, cluster_axis: int | None = None
) -> Tensor:
    """Scratch for reduce_scatter_minimal_direct."""
    part = _slice(_STAGING, input_tensor, dim, cluster_axis)
    return allocate_tensor_on_device(_staging_spec(part), part.mesh)


@composite(_PERSISTENT, "input_tensor:tensor dim | cluster_axis?")
def reduce_scatter_minimal_direct_create_persistent_buffers(
    input_tensor: Tensor, dim: int, cluster_axis: int | None = None
) -> list[Tensor]:
    """[output, staging]"""
    part, spec = _slice(_PERSISTENT, input_tensor, dim, cluster_axis), input_tensor.spec
    config = DRAM_MEMORY_CONFIG if spec.memory_config.is_sharded() else spec.memory_config
    output = make_spec(part.shape, spec.dtype, spec.layout, config, spec.tile)
    return [allocate_tensor_on_device(one, part.mesh) for one in (output, _staging_spec(part))]
