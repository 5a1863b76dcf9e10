"""TT-NN's `experimental.*` forms of all_gather, reduce_scatter and all_reduce (async): same results, more call forms.

Semaphores, sub-devices and tuning are accepted; a persistent output buffer is the tensor that is written.
"""

from __future__ import annotations

from typing import Any

from softmesh.collectives.argument_checks import ReduceType
from softmesh.collectives.collective_spec import CollectiveSpec, GroupComputation
from softmesh.collectives.device_groups import Group
from softmesh.collectives.overload_signatures import (
    Arguments,
    definition_of,
    overloaded_collective,
)
from softmesh.collectives.scatter_buffers import check_intermediate
from softmesh.collectives.semaphores import GlobalSemaphore
from softmesh.collectives.torch_expressions import AllGather
from softmesh.collectives.ttnn_collectives import all_gather, all_reduce, reduce_scatter
from softmesh.dispatch.operand import Operand
from softmesh.dispatch.operation import Operation
from softmesh.errors import MeshError, NotModelled
from softmesh.kinds import Kind

WORKERS = "num_workers_per_link? num_buffers_per_channel?"
_GATHER_FORMS = (
    "input_tensor dim multi_device_global_semaphore | num_links? memory_config? topology? subdevice_id? "
    f"use_optimal_ccl_for_llama? barrier_semaphore? sub_core_grids? {WORKERS}",
    "input_tensor persistent_output_buffer? dim multi_device_global_semaphore | num_links? memory_config? topology? "
    "subdevice_id? cluster_axis? use_optimal_ccl_for_llama? use_broadcast? barrier_semaphore? chunks_per_sync? "
    f"{WORKERS} sub_core_grids?",
    "input_tensor dim cluster_axis mesh_device topology multi_device_global_semaphore | persistent_output_tensor? "
    "num_links? memory_config? subdevice_id? use_optimal_ccl_for_llama? use_broadcast? barrier_semaphore? "
    f"sub_core_grids? {WORKERS}",
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


def _form_of(own: Operation, doc: str, name: str, form: str, **options: Any) -> Operation:
    """Another name and way of calling a collective along one dim."""

    def define(input_tensor: Operand, dim: int, *, cluster_axis: int | None = None) -> CollectiveSpec:
        return definition_of(own)(input_tensor, dim, cluster_axis=cluster_axis)

    define.__doc__ = doc
    return overloaded_collective(name, form, kind=own.definition.kind, **options)(define)


@overloaded_collective(
    "experimental.all_gather_async",
    *_GATHER_FORMS,
    kind=Kind.ALL_GATHER,
    output=_gather_output,
    receives="persistent_output_buffer persistent_output_tensor",
    check=_check_gather_semaphores,
)
def all_gather_async(
    input_tensor: Operand, dim: int, *, cluster_axis: int | None = None, use_broadcast: bool = False
) -> CollectiveSpec:
    """Every member gets the pieces of all, side by side along `dim`.

    >>> ready = [ttnn.create_global_semaphore(mesh, cores, 0) for _ in range(2)]
    >>> x = split(8, 128, dim=1)
    >>> y = ttnn.experimental.all_gather_async(x, dim=1, multi_device_global_semaphore=ready)
    >>> y.shape, ttnn.placements(y)
    (Shape([8, 128]), (Replicate, Replicate))
    """
    gathering = definition_of(all_gather)(input_tensor, dim, cluster_axis=cluster_axis)
    if use_broadcast:
        _check_broadcast_gather(input_tensor, dim)
    return gathering


@overloaded_collective(
    "experimental.all_gather_async_reversed",
    *_GATHER_FORMS,
    kind=Kind.ALL_GATHER,
    output=_gather_output,
    receives="persistent_output_buffer persistent_output_tensor",
    check=_check_gather_semaphores,
)
def all_gather_async_reversed(
    input_tensor: Operand, dim: int, *, cluster_axis: int | None = None, use_broadcast: bool = False
) -> CollectiveSpec:
    """Every member gets the pieces of all along `dim`, that of the last member first."""
    forwards = definition_of(all_gather)(input_tensor, dim, cluster_axis=cluster_axis)
    if use_broadcast:
        _check_broadcast_gather(input_tensor, dim)
    at = dim % input_tensor.rank

    def move(group: Group) -> GroupComputation:
        moved = forwards.move(group)
        return GroupComputation(AllGather(group, at, backwards=True), moved.dists, moved.topology)

    return CollectiveSpec(cluster_axis, move, joins=at)


strided_all_gather_async = _form_of(
    all_gather,
    "all_gather, in the order in which a matmul behind it wants the pieces.",
    "experimental.strided_all_gather_async",
    "input_tensor persistent_output_buffer? dim multi_device_global_semaphore | num_links? memory_config? topology? "
    f"cluster_axis? {WORKERS} mm_cores_y? mm_block_ht? mm_block_wt?",
    output="persistent_output_buffer",
    receives="persistent_output_buffer",
)


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
            raise NotModelled(f"ttnn.{op} with {name} is not modelled: slice the operand and the output first.")


high_bw_all_gather = _form_of(
    all_gather,
    "all_gather into a tensor that is there.",
    "experimental.high_bw_all_gather",
    "input_tensor dim output_tensor | cluster_axis? subdevice_id? sub_core_grids? num_links? input_batch_index? "
    "gathered_dim_size? input_batch_index_tensor? batch_slot_num_layers? batch_slot_layer_idx? gathered_prefix_tensor? "
    "gathered_slab_global? ready_semaphore? data_valid_semaphore?",
    controls="",
    output="output_tensor",
    check=_check_whole,
)


# reduce_scatter and all_reduce.


def _scatter_output(given: Arguments) -> Any:
    """Persistent buffers are [intermediate, output, penultimate], or the first of them."""
    buffers = list(given.get("persistent_output_buffers") or [])
    if len(buffers) > 3:
        raise MeshError(
            f"reduce_scatter: persistent buffers are [intermediate, output, penultimate], got {len(buffers)} tensors."
        )
    return buffers[1] if len(buffers) > 1 else None


def _check_scatter_semaphores(op: str, given: Arguments) -> None:
    semaphores = given["multi_device_global_semaphore"]
    count = 1 if isinstance(semaphores, GlobalSemaphore) else len(semaphores)
    if count != 3:
        raise MeshError(
            f"Expected 3 semaphores but got {count}: {op} takes three of ttnn.create_global_semaphore(...), as a list."
        )


def _check_minimal_scatter(op: str, given: Arguments) -> None:
    _check_scatter_semaphores(op, given)
    check_intermediate(op, given)


reduce_scatter_minimal_async = _form_of(
    reduce_scatter,
    """Member g gets chunk g, along `dim`, of the sum over the group.

    >>> ready = [ttnn.create_global_semaphore(mesh, cores, 0) for _ in range(3)]
    >>> x = ttnn.matmul(split(32, 64, dim=1), split(64, 128, dim=0))
    >>> y = ttnn.experimental.reduce_scatter_minimal_async(x, dim=1, multi_device_global_semaphore=ready)
    >>> y.shape, ttnn.placements(y)
    (Shape([32, 32]), (Replicate, Shard(1)))
    """,
    "experimental.reduce_scatter_minimal_async",
    "input_tensor persistent_output_buffers? dim multi_device_global_semaphore | barrier_semaphore? num_links? "
    "memory_config? intermediate_memory_config? topology? subdevice_id? cluster_axis? chunks_per_sync? "
    f"{WORKERS} compute_kernel_config?",
    output=_scatter_output,
    receives="persistent_output_buffers",
    precision="native",
    check=_check_minimal_scatter,
)


strided_reduce_scatter_async = _form_of(
    reduce_scatter,
    "reduce_scatter, in the order in which a matmul before it makes the blocks.",
    "experimental.strided_reduce_scatter_async",
    "input_tensor persistent_output_buffers? dim multi_device_global_semaphore | mm_block_ht:int mm_block_wt:int "
    "barrier_semaphore? num_links? memory_config? intermediate_memory_config? topology? subdevice_id? cluster_axis? "
    f"{WORKERS} mm_cores_y? mm_N_full_block_wt? chunk_width_in_mm_blocks?",
    output=_scatter_output,
    receives="persistent_output_buffers",
    precision="native",
)


def _check_sum(op: str, given: Arguments) -> None:
    kind = given.get("math_op", ReduceType.Sum)
    if kind is not ReduceType.Sum:
        raise MeshError(
            f"{op}: math_op must be ReduceType.Sum, got {kind}: the chips add. For others gather the pieces with "
            "ttnn.all_gather and reduce the result."
        )


_REDUCE_SEMAPHORES = "barrier_semaphores{0} rs_global_semaphores{0} ag_global_semaphores{0}"


@overloaded_collective(
    "experimental.all_reduce_async",
    f"input_tensor num_devices {_REDUCE_SEMAPHORES.format('')} math_op | memory_config? topology? num_links? "
    "subdevice_id?",
    f"input_tensor cluster_axis? mesh_device {_REDUCE_SEMAPHORES.format('?')} math_op | memory_config? topology? "
    "num_links? subdevice_id?",
    "input_tensor buffer_tensor cluster_axis mesh_device multi_device_global_semaphore | dtype? memory_config? "
    "topology? num_links? subdevice_id? use_noc1_only? use_optimal_ccl_for_llama? fp32_dest_acc?",
    kind=Kind.ALL_REDUCE,
    controls="memory_config dtype",
    scratch="buffer_tensor",
    precision="native",
    check=_check_sum,
)
def all_reduce_async(
    input_tensor: Operand, *, cluster_axis: int | None = None, num_devices: int | None = None
) -> CollectiveSpec:
    """Every member gets the sum over the group."""
    whole = definition_of(all_reduce)(input_tensor, cluster_axis=cluster_axis)
    if num_devices is None:
        return whole

    def move(group: Group) -> GroupComputation:
        if group.size != num_devices:
            raise MeshError(
                f"all_reduce_async: num_devices={num_devices}, and the tensor lies on {group.size} devices."
            )
        return whole.move(group)

    return CollectiveSpec(None, move)
