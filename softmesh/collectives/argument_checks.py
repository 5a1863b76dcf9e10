"""Argument checks of collectives: the type of each argument by its name, resources on the right mesh, output tensors.

The same name means the same in all collectives; `KIND_OF` and `KINDS` are that table.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from numbers import Integral
from typing import Any

from softmesh.arguments import Kind, instance_of, is_whole_number
from softmesh.collectives.semaphores import GlobalSemaphore
from softmesh.cores import CoreCoord, CoreRange, CoreRangeSet
from softmesh.errors import MeshError
from softmesh.hardware import SubDeviceId, Topology
from softmesh.hardware.enums import NativeEnum
from softmesh.hardware.memory_config import MemoryConfig
from softmesh.hardware.program_configs import WormholeComputeKernelConfig
from softmesh.mesh import MeshCoordinate
from softmesh.runtime.device import MeshDevice
from softmesh.strictness import warn_or_raise
from softmesh.tensor.dtype import DataType
from softmesh.tensor.spec import TensorSpec, make_spec
from softmesh.tensor.tensor import Tensor


class ReduceType(NativeEnum):
    """How contributions combine. Collectives add them."""

    Sum = 0
    Mean = 1
    Max = 2
    Min = 3
    Std = 4
    Var = 5
    Prod = 6


def _is_count(value: object) -> bool:
    return isinstance(value, Integral) and not isinstance(value, bool) and int(value) >= 1


def _is_place(value: object) -> bool:
    """TT-NN's CoreCoord, or a pair that its bindings make one of."""
    return isinstance(value, CoreCoord) or (
        isinstance(value, list | tuple) and len(value) == 2 and all(map(is_whole_number, value))
    )


def _list_of(each: Kind, wanted: str) -> Kind:
    return Kind(lambda value: isinstance(value, list | tuple) and all(map(each.fits, value)), wanted, each)


_INT = Kind(is_whole_number, "an int")
_TENSOR = instance_of(Tensor, "a ttnn.Tensor")
_SEMAPHORE = instance_of(GlobalSemaphore, "a semaphore of ttnn.create_global_semaphore(...)")
_SEMAPHORES = _list_of(_SEMAPHORE, f"{_SEMAPHORE.wanted}, or a list of them")

KINDS: dict[str, Kind] = {
    "int": _INT,
    "ints": _list_of(_INT, "a list of ints"),
    "count": Kind(_is_count, "an int of 1 or more"),
    "flag": instance_of(int, "True or False"),
    "tensor": _TENSOR,
    "tensors": _list_of(_TENSOR, "a list of ttnn.Tensor"),
    "semaphores": _SEMAPHORES._replace(fits=lambda value: _SEMAPHORE.fits(value) or _SEMAPHORES.fits(value)),
    "mesh": instance_of(MeshDevice, "a MeshDevice"),
    "coordinate": instance_of(MeshCoordinate, "a MeshCoordinate such as ttnn.MeshCoordinate(0, 1)"),
    "topology": instance_of(Topology, "a ttnn.Topology"),
    "reduction": instance_of(ReduceType, "a ttnn.ReduceType"),
    "string": instance_of(str, "a string"),
    "dtype": instance_of(DataType, "a ttnn dtype such as ttnn.bfloat16"),
    "memory": instance_of(MemoryConfig, "a ttnn.MemoryConfig such as ttnn.DRAM_MEMORY_CONFIG"),
    "cores": Kind(lambda value: isinstance(value, CoreRangeSet | CoreRange), "a ttnn.CoreRangeSet"),
    "place": Kind(_is_place, "a ttnn.CoreCoord"),
    "sub-device": instance_of(SubDeviceId, "a ttnn.SubDeviceId of mesh_device.get_sub_device_ids()"),
    "precision": instance_of(WormholeComputeKernelConfig, "a config of ttnn.init_device_compute_kernel_config(...)"),
    "any": Kind(lambda value: True, ""),
}
_NAMES = {
    "int": "dim in_dim out_dim cluster_axis num_devices num_links output_dim_offset output_dim_shape reduction_size",
    "count": "chunks_per_sync num_workers_per_link num_buffers_per_channel num_preferred_links mm_cores_y mm_block_ht "
    "mm_block_wt mm_N_full_block_wt chunk_width_in_mm_blocks mm_window_blocks",
    "flag": "use_l1_small_for_semaphores use_optimal_ccl_for_llama use_noc1_only use_broadcast fp32_dest_acc "
    "force_transpose using_persistent_buffers read_local_slice_from_input use_column_major_ccl",
    "coordinate": "sender_coord receiver_coord root_coord",
    "tensor": "persistent_output_buffer persistent_output_tensor buffer_tensor output_tensor intermediate_tensor "
    "persistent_intermediate_buffer optional_output_tensor intermediate_packet_buffer output_tensor_l output_tensor_s "
    "output_tensor_m optional_output_mapping_tensor optional_output_reduced_tensor optional_rs_output_tensor "
    "persistent_output_buffer_k persistent_output_buffer_v persistent_output_buffer_kv "
    "persistent_output_buffer_joint_k persistent_output_buffer_joint_v persistent_weight_buffer "
    "halo_buffer mm_progress_counters mm_credit_counters",
    "tensors": "output_tensors persistent_output_buffers persistent_buffers",
    "semaphores": "multi_device_global_semaphore barrier_semaphore barrier_semaphores rs_global_semaphores "
    "ag_global_semaphores neighbor_semaphore final_semaphore cross_device_semaphore ready_semaphore "
    "data_valid_semaphore optional_cross_device_semaphore fsdp_multi_device_global_semaphore "
    "h_neighbor_semaphore w_neighbor_semaphore "
    "global_semaphore ag_multi_device_global_semaphore",
    "memory": "memory_config output_memory_config intermediate_memory_config intermediate_memory_config_rs "
    "memory_config_rs memory_config_mm memory_config_ag rs_output_mem_config rs_intermediate_mem_config "
    "ag_memory_config mm_memory_config qkv_memory_config final_memory_config",
    "cores": "sub_core_grids sub_core_grid mux_core_range_set worker_core_range_set",
    "place": "all_gather_core_grid_offset reduce_scatter_core_grid_offset strided_all_gather_core_grid_offset "
    "ccl_core_grid_offset",
    "sub-device": "subdevice_id sub_device_id ag_sub_device_id",
    "precision": "compute_kernel_config",
    "mesh": "mesh_device",
    "topology": "topology fsdp_topology",
    "reduction": "math_op",
    "string": "padding_mode",
    "dtype": "dtype",
}
_CORES, _SUB_DEVICES = ("sub_core_grids", "sub_core_grid"), _NAMES["sub-device"].split()
KIND_OF = {name: kind for kind, names in _NAMES.items() for name in names.split()}
# These steer hardware only: None leaves the choice to it, even where the name must be there.
HINTS = frozenset({"count", "flag", "memory", "cores", "place", "sub-device", "precision", "dtype"})


# Buffers, semaphores and sub-devices that are given beside the operands must be there, on their mesh. None of it
# changes a result here; on chips a semaphore of another mesh is waited for in vain.


def check_resources(op: str, given: Mapping[str, Any], mesh: MeshDevice) -> None:
    semaphores: dict[str, GlobalSemaphore] = {}
    for name, value in given.items():
        kind = KIND_OF.get(name, "")
        check = _CHECKS.get(kind)
        if check is not None and value is not None:
            check(op, name, value, mesh)
            if kind == "semaphores":
                semaphores |= dict(_labelled(name, value))
    if semaphores:
        _check_shared(op, semaphores)
        _check_cover(op, semaphores, given, mesh)


def check_buffer(op: str, name: str, buffer: Tensor, mesh: MeshDevice) -> None:
    buffer.check_allocated(f"{op} ({name})")
    if buffer.device() is not mesh:
        raise MeshError(
            f"{op}: {name} {list(buffer.shape)} lies on {desc(buffer.device())}, and the operands on {desc(mesh)}: "
            "allocate it there, with device=mesh_device."
        )


def _check_buffers(op: str, name: str, value: Any, mesh: MeshDevice) -> None:
    for label, buffer in _labelled(name, value):
        check_buffer(op, label, buffer, mesh)


def _check_semaphores(op: str, name: str, value: Any, mesh: MeshDevice) -> None:
    found = list(_labelled(name, value))
    for label, semaphore in found:
        _check_semaphore(op, label, semaphore, mesh)
    if not found:
        raise MeshError(
            f"{op}: {name} is an empty list: give at least one semaphore of ttnn.create_global_semaphore(...)."
        )


def _check_semaphore(op: str, name: str, semaphore: GlobalSemaphore, mesh: MeshDevice) -> None:
    own, covered = semaphore.device(), mesh
    while covered is not own:
        parent = covered.get_parent_mesh()
        if parent is None:
            raise MeshError(
                f"{op}: {name} is a semaphore of {desc(own)}, and the operands lie on {desc(mesh)}: make it with "
                "ttnn.create_global_semaphore(mesh_device, ...) of their mesh."
            )
        covered = parent  # whose chips include those of its part
    if semaphore.value:
        warn_or_raise(
            f"{op}: {name} stands at {semaphore.value} as the call begins: the op counts from 0, and would take what "
            "has not come yet for what has. Call ttnn.reset_global_semaphore_value(semaphore, 0) first.",
        )


def check_aliases(op: str, operand: object, received: Mapping[str, Any]) -> None:
    """Warn if other devices write into the operand while this one still reads it."""
    for name, value in received.items():
        if isinstance(operand, Tensor):
            for label, buffer in _labelled(name, value):
                if isinstance(buffer, Tensor) and buffer.storage is operand.storage:
                    warn_or_raise(
                        f"{op}: {label} is the input tensor too: other chips write into it while this one still sends "
                        "what it holds. Give it memory of its own (ttnn.allocate_tensor_on_device).",
                    )


def _check_shared(op: str, semaphores: Mapping[str, GlobalSemaphore]) -> None:
    """Each semaphore of a call counts something else."""
    found: dict[int, str] = {}
    for label, semaphore in semaphores.items():
        before = found.setdefault(id(semaphore), label)
        if before != label:
            warn_or_raise(
                f"{op}: {before} and {label} are the same semaphore, which would count for both: make each with a "
                "ttnn.create_global_semaphore(...) of its own.",
            )


_BOTH_WAYS = ("all_gather", "reduce_scatter", "all_reduce")  # cores of their own for each of two directions


def _check_cover(
    op: str, semaphores: Mapping[str, GlobalSemaphore], given: Mapping[str, Any], mesh: MeshDevice
) -> None:
    """A semaphore is a word in the L1 of its cores: on others, the op counts in memory that is something else's."""
    links, workers = given.get("num_links"), given.get("num_workers_per_link")
    count = max(links, default=1) if isinstance(links, list | tuple) else links or 1
    needed = count * (workers or 1) * (2 if any(kind in op for kind in _BOTH_WAYS) else 1)
    pool = _cores_of_call(given, mesh)
    for label, semaphore in semaphores.items():
        shared = _cores_in_both(semaphore.cores, pool)
        if shared < needed:
            warn_or_raise(
                f"{op}: {label} lies on the cores {semaphore.cores}, {shared} of which are among those that the op may "
                f"run on, {pool}; it takes {needed} at least, and would count in memory that belongs to others. Make "
                "the semaphore on all of them: ttnn.create_global_semaphore(mesh_device, cores, 0).",
            )
            return  # one tells of all that were made like it


def _cores_of_call(given: Mapping[str, Any], mesh: MeshDevice) -> CoreRangeSet:
    """The worker cores that a call may take: those it names, those of its sub-device, or of the first."""
    named = next((given[name] for name in _CORES if given.get(name) is not None), None)
    if named is not None:
        return CoreRangeSet([named]) if isinstance(named, CoreRange) else named
    sub_device = next((given[name] for name in _SUB_DEVICES if given.get(name) is not None), None)
    return mesh.sub_devices.cores(sub_device if sub_device is not None else mesh.sub_devices.ids()[0])


@lru_cache(maxsize=256)
def _cores_in_both(one: CoreRangeSet, other: CoreRangeSet) -> int:
    return one.num_cores() - one.subtract(other).num_cores()


def _check_sub_device(op: str, name: str, value: SubDeviceId, mesh: MeshDevice) -> None:
    known = mesh.sub_devices.ids()
    if value not in known:
        raise MeshError(
            f"SubDevice index {value.id} out of bounds {len(known)}: {op} got {name}={value}, and the loaded manager "
            f"of {mesh} has {known}. Load one that has it with mesh_device.load_sub_device_manager(...)."
        )


def desc(mesh: MeshDevice | None) -> str:
    return "the host" if mesh is None else f"{mesh} of id {mesh.id()}"


def _labelled(name: str, value: Any) -> Iterable[tuple[str, Any]]:
    if isinstance(value, list | tuple):
        return [(f"{name}[{i}]", item) for i, item in enumerate(value)]
    return [(name, value)]


_CHECKS = {
    "tensor": _check_buffers,
    "tensors": _check_buffers,
    "semaphores": _check_semaphores,
    "sub-device": _check_sub_device,
}


# Tensors given for the results: which argument each of them is, and whether it fits.


def output_names(op: str, given: Mapping[str, Any], targets: Sequence[Tensor], named: str | None) -> list[str]:
    """The arguments that hold the targets, as the caller wrote them: `output_tensors[1]`; one for each."""
    several = len(targets) > 1
    if named is not None:
        names = [f"{named}[{i}]" if several else named for i in range(len(targets))]
    else:
        names = [_name_of(target, given) for target in targets]
    for i, target in enumerate(targets):
        first = next(at for at, one in enumerate(targets) if one is target)
        if first != i:
            raise MeshError(
                f"{op}: results {first} and {i} would be written into the same tensor, {names[i]} {list(target.shape)}"
                ": give each result a tensor of its own."
            )
    return names


def _name_of(target: Tensor, given: Mapping[str, Any]) -> str:
    found = ["the output tensor"]
    for name, value in given.items():
        if name == "out":
            continue  # what the registry calls it
        if value is target:
            found.append(name)
        elif isinstance(value, list | tuple):
            found += [f"{name}[{i}]" for i, item in enumerate(value) if item is target]
    return found[-1]  # outputs come after operands


def check_output(
    op: str, name: str, own: TensorSpec, computed: TensorSpec, first: TensorSpec, config: MemoryConfig | None
) -> None:
    """An output must be what the collective makes, as TT-NN's own checks put it.

    `first` is the spec of the first operand, `config` the memory_config that was given. Where none was, only
    reduce_scatter asks for the operand's; a shard spec does not fit the result.
    """
    is_whole = "reduce_scatter" in op
    wanted = computed
    if config is None and (not is_whole or first.memory_config.is_sharded()):
        wanted = make_spec(tuple(computed.shape), computed.dtype, computed.layout, own.memory_config, computed.tile)
    hint = f"{op} writes into {name}, which must be allocated for its result."
    if "minimal_direct" in op and own != wanted:
        raise MeshError(f"Persistent output tensor spec {own} does not match the computed spec {wanted}. {hint}")
    if is_whole and own != wanted:
        raise MeshError(f"Output tensor spec {own} does not match computed output spec {wanted}. {hint}")
    if tuple(own.shape) != tuple(wanted.shape):
        raise MeshError(f"Output tensor shape must be {wanted.shape}, got {own.shape}. {hint}")
    for what in ("dtype", "layout"):
        mine, other = getattr(own, what), getattr(wanted, what)
        if mine is not other:
            same = f"same as input tensor {what} {other}" if other is getattr(first, what) else f"{other}"
            raise MeshError(f"Output tensor {what} {mine} should be {same}. {hint}")
    if own.memory_config != wanted.memory_config:
        raise MeshError(
            f"Output tensor memory config {own.memory_config} should be same as memory_config "
            f"{wanted.memory_config}. {hint} Leave memory_config out, or give the tensor's own."
        )
