"""TT-NN's `experimental.*` forms of reduce_scatter and all_reduce: same results, more ways of calling."""

from __future__ import annotations

from typing import Any

from softmesh.collectives.across import Across, Moved
from softmesh.collectives.collective import group_along
from softmesh.collectives.core import all_reduce, reduce_scatter
from softmesh.collectives.fabric_needs import check_axis
from softmesh.collectives.groups import Group
from softmesh.collectives.reduce_type import ReduceType
from softmesh.collectives.spelling import Arguments, across, composite, spelled
from softmesh.collectives.topology import get_usable_topology
from softmesh.dispatch.operand import Operand
from softmesh.errors import MeshError
from softmesh.hardware import Topology
from softmesh.hardware.memory_config import DRAM_MEMORY_CONFIG
from softmesh.tensor.dtype import DataType, Layout
from softmesh.tensor.tensor import Tensor
from softmesh.tensor.transfer import allocate_tensor_on_device

_WORKERS = "num_workers_per_link? num_buffers_per_channel?"


def _scatter_output(given: Arguments) -> Any:
    """Persistent buffers are [intermediate, output]."""
    buffers = given.get("persistent_output_buffers")
    if buffers is None:
        buffers = given.get("persistent_buffers")
    if buffers is not None and len(buffers) < 2:
        raise MeshError(
            f"reduce_scatter: persistent buffers are [intermediate, output], got {len(buffers)} tensors."
        )
    return None if buffers is None else buffers[1]


@spelled(
    "experimental.reduce_scatter_minimal_async",
    "input_tensor persistent_output_buffers? dim multi_device_global_semaphore | barrier_semaphore? num_links? "
    "memory_config? intermediate_memory_config? topology? subdevice_id? cluster_axis? chunks_per_sync? "
    f"{_WORKERS} compute_kernel_config?",
    output=_scatter_output,
    precision="native",
)
def reduce_scatter_minimal_async(
    input_tensor: Operand, dim: int, *, cluster_axis: int | None = None
) -> Across:
    """Member g gets chunk g, along `dim`, of the sum over the group."""
    return across(reduce_scatter)(input_tensor, dim, cluster_axis=cluster_axis)


@spelled(
    "experimental.strided_reduce_scatter_async",
    "input_tensor persistent_output_buffers? dim multi_device_global_semaphore | mm_block_ht:int mm_block_wt:int "
    "barrier_semaphore? num_links? memory_config? intermediate_memory_config? topology? subdevice_id? cluster_axis? "
    f"{_WORKERS} mm_cores_y? mm_N_full_block_wt? chunk_width_in_mm_blocks?",
    output=_scatter_output,
    precision="native",
)
def strided_reduce_scatter_async(
    input_tensor: Operand, dim: int, *, cluster_axis: int | None = None
) -> Across:
    """reduce_scatter, in the order in which a matmul before it makes the blocks."""
    return across(reduce_scatter)(input_tensor, dim, cluster_axis=cluster_axis)


def _check_wraps(op: str, given: Arguments) -> None:
    tensor, axis = given["input_tensor"], given.get("cluster_axis")
    mesh = tensor.device() if isinstance(tensor, Tensor) else None
    if mesh is None:
        return  # the registry answers for operands
    if axis is None and sum(n > 1 for n in mesh.shape) > 1:
        raise MeshError(f"{op}: cluster_axis is mandatory on a 2-D mesh, {mesh.shape}: give 0 or 1.")
    if axis is None:
        axis = max(range(mesh.shape.dims()), key=lambda i: mesh.shape[i])
    if get_usable_topology(tensor, Topology.Ring, axis) is not Topology.Ring:
        raise MeshError(
            f"{op}: axis {axis} of {mesh.shape} does not wrap around under the active fabric: its ends have no link "
            "that is in use. Use ttnn.experimental.reduce_scatter_minimal_async, which also runs along a line."
        )


@spelled(
    "experimental.reduce_scatter_minimal_direct",
    "input_tensor dim | cluster_axis? num_links? memory_config? persistent_buffers? subdevice_id? sub_core_grid?",
    output=_scatter_output,
    precision="native",
    check=_check_wraps,
)
def reduce_scatter_minimal_direct(
    input_tensor: Operand, dim: int, *, cluster_axis: int | None = None
) -> Across:
    """reduce_scatter around a ring, each chunk straight to its owner."""
    return across(reduce_scatter)(input_tensor, dim, cluster_axis=cluster_axis)


def _scratch(op: str, tensor: Tensor, dim: int, cluster_axis: int | None) -> Tensor:
    """Opaque bytes, as many as the tensor has; for a reduce_scatter that can be."""
    mesh = tensor.device()
    if mesh is None:
        raise MeshError(
            "Input tensor must to be on device! Move it with ttnn.to_device(tensor, mesh_device)."
        )
    tensor.check_allocated(op)
    operand = Operand(op, "input_tensor", tensor.spec)
    scattering = across(reduce_scatter)(operand, dim, cluster_axis=cluster_axis)
    check_axis(op, mesh, cluster_axis)
    scattering.move(group_along(op, tensor, cluster_axis))
    size = (1, tensor.spec.bytes())
    return allocate_tensor_on_device(size, DataType.UINT8, Layout.ROW_MAJOR, mesh, DRAM_MEMORY_CONFIG)


_INTERMEDIATE = "experimental.reduce_scatter_minimal_async_create_intermediate_buffer"
_STAGING = "experimental.reduce_scatter_minimal_direct_create_staging_buffer"
_PERSISTENT = "experimental.reduce_scatter_minimal_direct_create_persistent_buffers"


@composite(
    _INTERMEDIATE,
    "input_tensor:tensor dim | topology? cluster_axis? compute_kernel_config?",
)
def reduce_scatter_minimal_async_create_intermediate_buffer(
    input_tensor: Tensor, dim: int, cluster_axis: int | None = None, **tuning: Any
) -> list[Tensor]:
    """Scratch for reduce_scatter_minimal_async."""
    return [_scratch(_INTERMEDIATE, input_tensor, dim, cluster_axis)]


@composite(
    _STAGING,
    "input_tensor:tensor dim | cluster_axis?",
)
def reduce_scatter_minimal_direct_create_staging_buffer(
    input_tensor: Tensor, dim: int, cluster_axis: int | None = None
) -> Tensor:
    """Scratch for reduce_scatter_minimal_direct."""
    return _scratch(_STAGING, input_tensor, dim, cluster_axis)


@composite(
    _PERSISTENT,
    "input_tensor:tensor dim | cluster_axis?",
)
def reduce_scatter_minimal_direct_create_persistent_buffers(
    input_tensor: Tensor, dim: int, cluster_axis: int | None = None
) -> list[Tensor]:
    """[scratch, output]"""
    scratch = _scratch(_PERSISTENT, input_tensor, dim, cluster_axis)
    return [scratch, reduce_scatter(input_tensor, dim, cluster_axis=cluster_axis)]


def _check_sum(op: str, given: Arguments) -> None:
    kind = given.get("math_op", ReduceType.Sum)
    if kind is not ReduceType.Sum:
        raise MeshError(
            f"{op}: math_op must be ReduceType.Sum, got {kind}: the chips add. For others gather the pieces with "
            "ttnn.all_gather and reduce the result."
        )


_REDUCE_SEMAPHORES = "barrier_semaphores{0} rs_global_semaphores{0} ag_global_semaphores{0}"


@spelled(
    "experimental.all_reduce_async",
    f"input_tensor num_devices {_REDUCE_SEMAPHORES.format('')} math_op | memory_config? topology? num_links? "
    "subdevice_id?",
    f"input_tensor cluster_axis? mesh_device {_REDUCE_SEMAPHORES.format('?')} math_op | memory_config? topology? "
    "num_links? subdevice_id?",
    "input_tensor buffer_tensor cluster_axis mesh_device multi_device_global_semaphore | dtype? memory_config? "
    "topology? num_links? subdevice_id? use_noc1_only? use_optimal_ccl_for_llama? fp32_dest_acc?",
    controls="memory_config dtype",
    precision="native",
    check=_check_sum,
)
def all_reduce_async(
    input_tensor: Operand, *, cluster_axis: int | None = None, num_devices: int | None = None
) -> Across:
    """Every member gets the sum over the group."""
    whole = across(all_reduce)(input_tensor, cluster_axis=cluster_axis)
    if num_devices is None:
        return whole

    def move(group: Group) -> Moved:
        if group.size != num_devices:
            raise MeshError(
                f"all_reduce_async: num_devices={num_devices}, and the tensor lies on {group.size} devices."
            )
        return whole.move(group)

    return Across(None, move)
