"""TT-NN's dotted names as modules (`ttnn.transformer.x`, `ttnn.device.y`), and names that load late."""

from __future__ import annotations

import importlib
import inspect
import re
import sys
from collections.abc import Mapping
from types import ModuleType

from softmesh.dispatch.entry_point import Function
from softmesh.dispatch.operation import OPERATIONS, operations_under
from softmesh.not_modelled import not_modelled

_DEVICE = (
    "runtime.profiling",
    "runtime.dispatch_modes",
    "runtime.memory.program_reports",
    "runtime.memory.reports",
    "dispatch.kernel_cache",
)

# Modules of TT-NN for whose names the top namespace answers; before it, modules that have names of their own.
_FLAT: dict[str, tuple[str, ...]] = {
    "core": ("whole_numbers",),
    "device": _DEVICE,
    "types": (),
    "operations": (),
    "operations.activations": ("ops.golden.activations",),
    "operations.ccl": (),
    "operations.conv2d": (),
    "operations.embedding": (),
    "operations.losses": (),
    "operations.matmul": ("ops.device_operations",),
    "operations.normalization": ("ops.layer_norm_programs",),
    "operations.pool": (),
    "operations.reduction": (),
    "operations.transformer": ("transformer",),
    "_ttnn": (),
    "_ttnn.bfp_utils": (),
    "_ttnn.core": ("tensor.native_names",),
    "_ttnn.device": _DEVICE,
    "_ttnn.events": (),
    "_ttnn.fabric": (),
    "_ttnn.global_semaphore": (),
    "_ttnn.hd_socket": (),
    "_ttnn.mesh_socket": (),
    "_ttnn.multi_device": ("runtime.distributed_context_names",),
    "_ttnn.operations": (),
    "_ttnn.operations.ccl": (),
    "_ttnn.operations.core": (),
    "_ttnn.operations.data_movement": (),
    "_ttnn.operations.experimental": ("experimental",),
    "_ttnn.operations.experimental.ccl_experimental": ("experimental",),
    "_ttnn.operations.point_to_point": (),
    "_ttnn.operations.trace": (),
    "_ttnn.reports": ("tensor.buffer_reports",),
    "_ttnn.tensor": ("tensor.native_names",),
    "_ttnn.types": (),
}

# Modules that TT-NN has directly below its top namespace.
_AT_HOME = {"cluster": "runtime.cluster", "distributed": "distributed"}

# Names that load when first asked for: a module of the package, or a function of one.
_LATE = {
    "apply_device_delay": "runtime.device_delay",
    "attach_golden_function": "ops.golden.lookup",
    "cb_descriptor_from_sharded_tensor": "kernels.descriptors.circular_buffer",
    "CBDescriptor": "kernels.descriptors.circular_buffer",
    "CBFormatDescriptor": "kernels.descriptors.circular_buffer",
    "compute_fabric_connection_rt_args": "kernels.fabric.connection",
    "compute_program_descriptor_hash": "kernels.descriptors.program",
    "ComputeConfigDescriptor": "kernels.descriptors.kernel",
    "config_serialization": "",
    "CoreType": "kernels.descriptors.program",
    "corruptible_allocation_scope": "runtime.traces.allocation_tracking",
    "create_layer_norm_reciprocals": "ops.layer_norm_programs",
    "create_layernorm_program_config": "ops.layer_norm_programs",
    "create_matmul_attributes": "ops.device_operations",
    "DataMovementConfigDescriptor": "kernels.descriptors.kernel",
    "disable_asynchronous_slow_dispatch": "runtime.dispatch_modes",
    "DispatchAlgorithm": "hardware.dispatching",
    "DistributedLayerNormStage": "ops.layer_norm_programs",
    "dot_access": "",
    "dram_prefetcher": "ops.prefetching.dram_prefetcher",
    "dump_operations": "dispatch.listing",
    "enable_asynchronous_slow_dispatch": "runtime.dispatch_modes",
    "explain": "distributed.explanation",
    "fabric_connection_rt_args": "kernels.fabric.connection",
    "fabric_connection_rt_args_size": "kernels.fabric.connection",
    "FaceGeometry": "tensor.native_names",
    "fused_rms_minimal": "collectives.norms",
    "generic_op": "kernels.generic_op",
    "get_cb_address": "kernels.descriptors.circular_buffer",
    "get_fabric_kernel_defines": "kernels.fabric.connection",
    "get_fallback_function": "ops.golden.lookup",
    "get_golden_function": "ops.golden.lookup",
    "get_latest_programs_perf_data": "runtime.profiling",
    "get_num_links": "collectives.topology",
    "get_optimal_worker_cores_for_sharded_tensor": "tensor.native_names",
    "get_usable_topology": "collectives.topology",
    "GlobalCircularBuffer": "runtime.buffers.global_circular_buffer",
    "graph": "",
    "graph_tracer_utils": "",
    "KernelDescriptor": "kernels.descriptors.kernel",
    "layernorm_default_compute_config": "ops.layer_norm_programs",
    "LayerNormDeviceOperation": "ops.layer_norm_programs",
    "LayerNormInputs": "ops.layer_norm_programs",
    "LayerNormMultiCoreProgramFactory": "ops.layer_norm_programs",
    "LayerNormParams": "ops.layer_norm_programs",
    "LayerNormShardedProgramFactory": "ops.layer_norm_programs",
    "LayerNormType": "ops.layer_norm_programs",
    "mark_corruptible": "runtime.traces.allocation_tracking",
    "matmul_select_program_factory": "ops.device_operations",
    "MatmulDeviceOperation": "ops.device_operations",
    "MatmulInputs": "ops.device_operations",
    "MatmulParams": "ops.device_operations",
    "merge_program_descriptors": "kernels.descriptors.program",
    "MeshProgramDescriptor": "kernels.descriptors.program",
    "metal": "",
    "MMSignalAggregatorMode": "hardware.dispatching",
    "model_preprocessing": "",
    "NOC_MODE": "kernels.program.configs",
    "operation_tracer": "",
    "OverlappedTensor": "tensor.native_names",
    "ProgramDescriptor": "kernels.descriptors.program",
    "query_registered_operations": "dispatch.listing",
    "ReadDeviceProfiler": "runtime.profiling",
    "ReaderConfigDescriptor": "kernels.descriptors.kernel",
    "register_post_operation_hook": "dispatch.hooks",
    "register_pre_operation_hook": "dispatch.hooks",
    "rmsnorm_default_compute_config": "ops.layer_norm_programs",
    "RoutedExpertActivation": "ops.moe.activations",
    "RuntimeArgs": "kernels.descriptors.kernel",
    "RuntimeArgsColProxy": "kernels.descriptors.kernel",
    "sanitize": "runtime.sanitizer.switch",
    "SemaphoreDescriptor": "kernels.descriptors.program",
    "setup_fabric_connection": "kernels.fabric.connection",
    "setup_routing_plane_connection": "kernels.fabric.connection",
    "SliceDeviceOperation": "ops.device_operations",
    "SliceInputs": "ops.device_operations",
    "SliceParams": "ops.device_operations",
    "SliceTileProgramFactory": "ops.device_operations",
    "start_tracy_zone": "runtime.profiling",
    "stop_tracy_zone": "runtime.profiling",
    "TensorAccessorArgs": "kernels.program.accessor_args",
    "TileDescriptor": "kernels.descriptors.circular_buffer",
    "TRACE_ALLOC_TRACKING": "runtime.traces.allocation_tracking",
    "tracer": "",
    "tracy_frame": "runtime.profiling",
    "tracy_message": "runtime.profiling",
    "train": "",
    "UnpackToDestMode": "hardware.dispatching",
    "visualize_mesh_device": "report.terminal",
    "visualize_system_mesh": "report.terminal",
    "visualize_tensor": "report.terminal",
    "WorkerMode": "hardware.dispatching",
    "WriterConfigDescriptor": "kernels.descriptors.kernel",
}


class _Published(ModuleType):
    """A module of TT-NN: its own names, then those of its homes, then those of the top namespace if it is flat."""

    _homes: tuple[str, ...] = ()
    _is_flat = False

    def __getattr__(self, name: str) -> object:
        if name.startswith("__"):
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        root, _, own = self.__name__.partition(".")
        for home in self._homes:
            found = getattr(_module(root, home), name, None)
            if found is not None:
                return found
        if self._is_flat:
            return getattr(sys.modules[root], name)
        raise not_modelled(f"{own}.{name}", [known for known in vars(self) if not known.startswith("_")])


_WORKING = ("tensor", "ops", "collectives", "kernels")  # packages whose functions make, move and free tensors
_TENSOR = re.compile(r"\bTensor\b")


def behind_the_door(name: str, found: object) -> object:
    """A function that makes, moves or frees tensors as an entry point, so that whoever looks on sees its calls.

    Queries, and what has nothing to do with tensors, stay functions.
    """
    if not inspect.isfunction(found) or found.__module__.split(".")[1:2] not in [[one] for one in _WORKING]:
        return found
    result = str(found.__annotations__.get("return"))
    takes = any(_TENSOR.search(str(kind)) for kind in found.__annotations__.values())
    makes = result in ("None", "Any") or _TENSOR.search(result)
    return Function(found, name) if takes and makes else found


def publish(root: str, composites: Mapping[str, object]) -> None:
    """Make a module below the package `root` for each dotted prefix of the registry and each flat name.

    `composites` are functions of several ops, by dotted name.
    """
    prefixes = {name.rpartition(".")[0] for name in (*OPERATIONS, *composites) if "." in name}
    prefixes |= {prefix.rpartition(".")[0] for prefix in prefixes if "." in prefix}
    for prefix in sorted(prefixes):
        module = _Published(f"{root}.{prefix}", f"The operations of ttnn.{prefix}.")
        module.__dict__.update(operations_under(f"{prefix}."))
        module.__dict__.update(
            {
                name.removeprefix(f"{prefix}."): behind_the_door(name, function)
                for name, function in composites.items()
                if name.rpartition(".")[0] == prefix
            }
        )
        _add(module)
    for name, homes in _FLAT.items():
        flat = sys.modules.get(f"{root}.{name}") or _Published(f"{root}.{name}")
        vars(flat).update(_homes=homes, _is_flat=True)
        _add(flat)
    for name, home in _AT_HOME.items():
        found = _module(root, home)
        sys.modules[f"{root}.{name}"] = found
        setattr(sys.modules[root], name, found)


def _add(module: ModuleType) -> None:
    module.__path__ = []
    sys.modules[module.__name__] = module
    parent, _, short = module.__name__.rpartition(".")
    setattr(sys.modules[parent], short, module)


def load_late(root: str, name: str) -> object:
    """The attribute `name` of the package, loaded now; NotModelled where there is none."""
    if name in _LATE:
        home = _LATE[name]
        found = behind_the_door(name, getattr(_module(root, home), name)) if home else _module(root, name)
        setattr(sys.modules[root], name, found)
        return found
    if name.startswith("__"):
        raise AttributeError(f"module {root!r} has no attribute {name!r}")
    raise not_modelled(
        name, [*_LATE, *(known for known in vars(sys.modules[root]) if not known.startswith("_"))]
    )


def _module(root: str, name: str) -> ModuleType:
    return importlib.import_module(f"{root}.{name}")
