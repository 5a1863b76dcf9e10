"""What the arguments of collectives are, by their names: the same name means the same in all of them."""

from __future__ import annotations

from collections.abc import Callable
from numbers import Integral
from typing import NamedTuple

from softmesh.arguments import described
from softmesh.collectives.reduce_type import ReduceType
from softmesh.collectives.semaphores import GlobalSemaphore
from softmesh.cores import CoreCoord, CoreRange, CoreRangeSet
from softmesh.hardware import SubDeviceId, Topology
from softmesh.hardware.compute import WormholeComputeKernelConfig
from softmesh.hardware.memory_config import MemoryConfig
from softmesh.mesh import MeshCoordinate
from softmesh.runtime.device import MeshDevice
from softmesh.tensor.dtype import DataType
from softmesh.tensor.tensor import Tensor


class Kind(NamedTuple):
    """`each` is the kind of the elements, where a list may be given."""

    fits: Callable[[object], bool]
    wanted: str
    each: Kind | None = None

    def misfit(self, name: str, value: object) -> str:
        """Why the value does not fit, in words."""
        if self.each is not None and isinstance(value, list | tuple):
            for i, item in enumerate(value):
                if not self.each.fits(item):
                    return self.each.misfit(f"{name}[{i}]", item)
        return f"{name} must be {self.wanted}, got {described(value)}"


def _is_int(value: object) -> bool:
    return type(value) is int or (isinstance(value, Integral) and not isinstance(value, bool))


def _is_count(value: object) -> bool:
    return isinstance(value, Integral) and not isinstance(value, bool) and int(value) >= 1


def _is_place(value: object) -> bool:
    """TT-NN's CoreCoord, or a pair that its bindings make one of."""
    return isinstance(value, CoreCoord) or (
        isinstance(value, list | tuple) and len(value) == 2 and all(map(_is_int, value))
    )


def _instance(kind: type, wanted: str) -> Kind:
    return Kind(lambda value: isinstance(value, kind), wanted)


def _list_of(each: Kind, wanted: str) -> Kind:
    return Kind(lambda value: isinstance(value, list | tuple) and all(map(each.fits, value)), wanted, each)


_INT = Kind(_is_int, "an int")
_TENSOR = _instance(Tensor, "a ttnn.Tensor")
_SEMAPHORE = _instance(GlobalSemaphore, "a semaphore of ttnn.create_global_semaphore(...)")
_SEMAPHORES = _list_of(_SEMAPHORE, f"{_SEMAPHORE.wanted}, or a list of them")

KINDS: dict[str, Kind] = {
    "int": _INT,
    "ints": _list_of(_INT, "a list of ints"),
    "count": Kind(_is_count, "an int of 1 or more"),
    "flag": _instance(int, "True or False"),
    "tensor": _TENSOR,
    "tensors": _list_of(_TENSOR, "a list of ttnn.Tensor"),
    "semaphores": _SEMAPHORES._replace(fits=lambda value: _SEMAPHORE.fits(value) or _SEMAPHORES.fits(value)),
    "mesh": _instance(MeshDevice, "a MeshDevice"),
    "coordinate": _instance(MeshCoordinate, "a MeshCoordinate such as ttnn.MeshCoordinate(0, 1)"),
    "topology": _instance(Topology, "a ttnn.Topology"),
    "reduction": _instance(ReduceType, "a ttnn.ReduceType"),
    "string": _instance(str, "a string"),
    "dtype": _instance(DataType, "a ttnn dtype such as ttnn.bfloat16"),
    "memory": _instance(MemoryConfig, "a ttnn.MemoryConfig such as ttnn.DRAM_MEMORY_CONFIG"),
    "cores": Kind(lambda value: isinstance(value, CoreRangeSet | CoreRange), "a ttnn.CoreRangeSet"),
    "place": Kind(_is_place, "a ttnn.CoreCoord"),
    "sub-device": _instance(SubDeviceId, "a ttnn.SubDeviceId of mesh_device.get_sub_device_ids()"),
    "precision": _instance(
        WormholeComputeKernelConfig, "a config of ttnn.init_device_compute_kernel_config(...)"
    ),
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
KIND_OF = {name: kind for kind, names in _NAMES.items() for name in names.split()}
# These steer hardware only: None leaves the choice to it, even where the name must be there.
HINTS = frozenset({"count", "flag", "memory", "cores", "place", "sub-device", "precision", "dtype"})
