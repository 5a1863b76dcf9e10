"""TT-NN's `experimental.*` forms of all_gather: same results, more ways of calling.

Semaphores, sub-devices and tuning are accepted; a persistent output buffer is the tensor that is written.
"""

from __future__ import annotations

from typing import Any

from softmesh.collectives.across import Across, Moved
from softmesh.collectives.collective import group_along
from softmesh.collectives.core import all_gather
from softmesh.collectives.expressions import Gathering
from softmesh.collectives.fabric_needs import check_fabric
from softmesh.collectives.groups import Group
from softmesh.collectives.outputs import check_output
from softmesh.collectives.resources import check_buffer
from softmesh.collectives.semaphores import GlobalSemaphore
from softmesh.collectives.spelling import Arguments, across, composite, spelled
from softmesh.dispatch.operand import Operand
from softmesh.errors import MeshError, NotModelled
from softmesh.hardware.memory_config import MemoryConfig
from softmesh.tensor.spec import make_spec
from softmesh.tensor.tensor import Tensor

_WORKERS = "num_workers_per_link? num_buffers_per_channel?"
_GATHER_FORMS = (
    "input_tensor dim multi_device_global_semaphore | num_links? memory_config? topology? subdevice_id? "
    f"use_optimal_ccl_for_llama? barrier_semaphore? sub_core_grids? {_WORKERS}",
    "input_tensor persistent_output_buffer? dim multi_device_global_semaphore | num_links? memory_config? topology? "
    "subdevice_id? cluster_axis? use_optimal_ccl_for_llama? use_broadcast? barrier_semaphore? chunks_per_sync? "
    f"{_WORKERS} sub_core_grids?",
    "input_tensor dim cluster_axis mesh_device topology multi_device_global_semaphore | persistent_output_tensor? "
    "num_links? memory_config? subdevice_id? use_optimal_ccl_for_llama? use_broadcast? barrier_semaphore? "
    f"sub_core_grids? {_WORKERS}",
)


def _gather_output(given: Arguments) -> Any:
    buffer = given.get("persistent_output_buffer")
    return given.get("persistent_output_tensor") if buffer is None else buffer


def _check_gather_semaphores(op: str, given: Arguments) -> None:
    semaphores = given["multi_device_global_semaphore"]
    count = 1 if isinstance(semaphores, GlobalSemaphore) else len(semaphores)
    if given.get("use_optimal_ccl_for_llama"):
        if count != 1:
            raise MeshError(f"{op}: the path of use_optimal_ccl_for_llama takes 1 semaphore, got {count}.")
    elif not given.get("use_broadcast") and count != 2:
        raise MeshError(
            f"Default implementation requires 2 semaphores: {op} got {count}. Make two with "
            "ttnn.create_global_semaphore(...) and give them as a list."
        )


def _check_broadcast_gather(operand: Operand, dim: int) -> None:
    at = dim % max(operand.rank, 1)
    if any(n != 1 for n in operand.shape[:at]):
        raise MeshError(
            "Broadcast all-gather currently only supports gather dims whose preceding page-ordered dimensions are "
            f"singleton: {operand.op} gathers dim {dim} of {list(operand.shape)}. Leave out use_broadcast=True."
        )


@spelled(
    "experimental.all_gather_async", *_GATHER_FORMS, output=_gather_output, check=_check_gather_semaphores
)
def all_gather_async(
    input_tensor: Operand, dim: int, *, cluster_axis: int | None = None, use_broadcast: bool = False
) -> Across:
    """Every member gets the pieces of all, side by side along `dim`."""
    gathering = across(all_gather)(input_tensor, dim, cluster_axis=cluster_axis)
    if use_broadcast:
        _check_broadcast_gather(input_tensor, dim)
    return gathering


@spelled(
    "experimental.all_gather_async_reversed",
    *_GATHER_FORMS,
    output=_gather_output,
    check=_check_gather_semaphores,
)
def all_gather_async_reversed(
    input_tensor: Operand, dim: int, *, cluster_axis: int | None = None, use_broadcast: bool = False
) -> Across:
    """Every member gets the pieces of all along `dim`, that of the last member first."""
    forwards = across(all_gather)(input_tensor, dim, cluster_axis=cluster_axis)
    if use_broadcast:
        _check_broadcast_gather(input_tensor, dim)
    at = dim % input_tensor.rank

    def move(group: Group) -> Moved:
        moved = forwards.move(group)
        return Moved(Gathering(group, at, backwards=True), moved.dists, moved.topology)

    return Across(cluster_axis, move)


@spelled(
    "experimental.strided_all_gather_async",
    "input_tensor persistent_output_buffer? dim multi_device_global_semaphore | num_links? memory_config? topology? "
    f"cluster_axis? {_WORKERS} mm_cores_y? mm_block_ht? mm_block_wt?",
    output="persistent_output_buffer",
)
def strided_all_gather_async(input_tensor: Operand, dim: int, *, cluster_axis: int | None = None) -> Across:
    """all_gather, in the order in which a matmul behind it wants the pieces."""
    return across(all_gather)(input_tensor, dim, cluster_axis=cluster_axis)


@composite(
    "experimental.ring_attention_all_gather_async",
    "input_tensor:tensors persistent_output_buffer:tensors dim | multi_device_global_semaphore num_links? cluster_axis "
    "mesh_device memory_config? topology subdevice_id?",
)
def ring_attention_all_gather_async(
    input_tensor: list[Tensor],
    persistent_output_buffer: list[Tensor],
    dim: int,
    cluster_axis: int,
    **tuning: Any,
) -> list[Tensor]:
    """Several tensors gathered together, each into its buffer."""
    if len(input_tensor) != len(persistent_output_buffer):
        raise MeshError(
            f"ring_attention_all_gather_async: {len(input_tensor)} tensors and {len(persistent_output_buffer)} "
            "persistent output buffers: give one buffer for each tensor."
        )
    route = {name: tuning.get(name) for name in ("topology", "num_links")}
    for i, (tensor, buffer) in enumerate(zip(input_tensor, persistent_output_buffer, strict=True)):
        _check_pair(i, tensor, buffer, dim, cluster_axis, tuning.get("memory_config"))
    return [
        all_gather(tensor, dim, cluster_axis=cluster_axis, output_tensor=buffer, **route)
        for tensor, buffer in zip(input_tensor, persistent_output_buffer, strict=True)
    ]


def _check_pair(
    i: int, tensor: Tensor, buffer: Tensor, dim: int, axis: int, config: MemoryConfig | None
) -> None:
    """What is gathered fits its buffer: asked of all pairs before the first buffer is written."""
    op, mesh = "experimental.ring_attention_all_gather_async", buffer.device()
    assert mesh is not None  # as the form has checked
    check_buffer(op, f"input_tensor[{i}]", tensor, mesh)
    gathering = across(all_gather)(Operand(op, f"input_tensor[{i}]", tensor.spec), dim, cluster_axis=axis)
    check_fabric(op, mesh, gathering)
    group = group_along(op, tensor, axis)
    gathering.move(group)
    spec, shape = tensor.spec, list(tensor.shape)
    shape[dim] *= group.size
    wanted = make_spec(tuple(shape), spec.dtype, spec.layout, config or spec.memory_config, spec.tile)
    check_output(op, f"persistent_output_buffer[{i}]", buffer.spec, wanted, spec, config)


_SELECTION: dict[str, int | None] = {  # with what stands for all of it
    "input_batch_index": None,
    "gathered_dim_size": None,
    "input_batch_index_tensor": None,
    "batch_slot_num_layers": 1,
    "batch_slot_layer_idx": 0,
    "gathered_prefix_tensor": None,
    "gathered_slab_global": 0,
}


def _check_whole(op: str, given: Arguments) -> None:
    for name, whole in _SELECTION.items():
        value = given.get(name)
        if value is not None and (whole is None or value != whole):
            raise NotModelled(
                f"ttnn.{op} with {name} is not modelled: slice the operand and the output first."
            )


@spelled(
    "experimental.high_bw_all_gather",
    "input_tensor dim output_tensor | cluster_axis? subdevice_id? sub_core_grids? num_links? input_batch_index? "
    "gathered_dim_size? input_batch_index_tensor? batch_slot_num_layers? batch_slot_layer_idx? gathered_prefix_tensor? "
    "gathered_slab_global? ready_semaphore? data_valid_semaphore?",
    controls="",
    output="output_tensor",
    check=_check_whole,
)
def high_bw_all_gather(input_tensor: Operand, dim: int, *, cluster_axis: int | None = None) -> Across:
    """all_gather into a tensor that is there."""
    return across(all_gather)(input_tensor, dim, cluster_axis=cluster_axis)
