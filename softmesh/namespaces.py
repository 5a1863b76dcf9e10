"""TT-NN's dotted names as modules (`ttnn.transformer.x`, `ttnn.device.y`), lazily loaded names, and names left out."""

from __future__ import annotations

import importlib
import inspect
import re
import sys
from collections.abc import Iterable, Mapping
from types import ModuleType

from softmesh.config import ConfigHolder
from softmesh.dispatch.entry_point import Function
from softmesh.dispatch.operation import OPERATIONS, operations_under
from softmesh.errors import NotModelled, UnknownNameError, did_you_mean
from softmesh.unmodelled import StandIn, stand_in, ttnn_names

# Names that softmesh leaves out on purpose, and why. `softmesh coverage` shows them apart.


_PREFIX = "ttnn."

_OTHER_RELEASE = "it is a name of another release than TT-NN 0.81"
_PARAMETERS = f"{_OTHER_RELEASE}; write tensors with ttnn.dump_tensor and read them with ttnn.load_tensor"
_FORMS = "the forms of its tensors are not documented"

# dotted name below ttnn -> the reason, and what to use instead
REASONS: dict[str, str] = {
    "D2DStreamService": (
        "its two ends are kernels that stay on worker cores, and those are not modelled; join the meshes by "
        "ttnn.create_socket_pair and use ttnn.experimental.send_async and recv_async"
    ),
    "LayerAckService": (
        "it answers kernels that stay on worker cores, and those are not modelled; ttnn.D2HStreamService brings "
        "tensors to the host"
    ),
    "bmm": f"{_OTHER_RELEASE}; use ttnn.matmul",
    "deallocate_buffers": f"{_OTHER_RELEASE}; use ttnn.device.DeallocateBuffers",
    "dtype": f"{_OTHER_RELEASE}; use ttnn.DataType",
    "experimental.device": f"{_OTHER_RELEASE}; use ttnn.device",
    "experimental.deepseek_prefill.combine": f"{_FORMS}; use ttnn.all_to_all_combine",
    "experimental.deepseek_prefill.dispatch": f"{_FORMS}; use ttnn.all_to_all_dispatch",
    "experimental.deepseek_prefill.moe_padding_config": f"{_FORMS}; leave padding_config out",
    "experimental.deepseek_prefill.offset_cumsum": (
        f"{_FORMS}; count with ttnn.experimental.deepseek_prefill.masked_bincount and use ttnn.cumsum"
    ),
    **dict.fromkeys(
        (
            "disaggregation.export_to_protobuf_file",
            "disaggregation.get_or_build_kv_chunk_table",
            "disaggregation.import_from_protobuf",
            "disaggregation.import_from_protobuf_file",
        ),
        "the fields of its files are not documented; build the ttnn.disaggregation.KvChunkAddressTable in each process",
    ),
    "disaggregation.tensor_from_bf16_bytes": (
        "the order of its bytes is not documented; use ttnn.from_torch of torch.frombuffer(data, dtype=torch.bfloat16)"
    ),
    "experimental.deepseek_prefill.inbound_socket_service_sync": (
        "it waits on worker cores for a stream service, and those are not modelled; use the service's barrier() and "
        "get_backing_tensor()"
    ),
    "experimental.deepseek_prefill.outbound_socket_service_sync": (
        "it tells worker cores of a stream service, which are not modelled; use the service's notify_backing_ready()"
    ),
    "experimental.indexer_score_msa": (
        "how it pools the scores of a block is not documented; use ttnn.experimental.indexer_score_dsa, or ttnn.matmul "
        "and ttnn.max"
    ),
    "experimental.llama_rs_matmul": (
        "the order of its results is not documented; use ttnn.matmul and ttnn.experimental.llama_reduce_scatter"
    ),
    "experimental.moe_gpt": f"{_FORMS}; use ttnn.experimental.moe_compute with MoEActivationFunction.SWIGLU",
    "experimental.rgb_to_yuv": f"{_FORMS}; use ttnn.matmul with the coefficients",
    "experimental.tensor_prefetcher_matmul.prefetch_and_linear": (
        "its arguments are not documented; use ttnn.linear with global_cb"
    ),
    "experimental.topk_router_gpt": (
        "the order of its results is not documented; use ttnn.linear, ttnn.topk and ttnn.softmax"
    ),
    "experimental.yuv_bt601_coefficients": f"{_FORMS}; use ttnn.matmul with the coefficients",
    **dict.fromkeys(
        (
            "_ttnn.multi_device.experimental.generate_blitz_decode_pipeline",
            "_ttnn.multi_device.experimental.resolve_blitz_decode_pipeline_allocation",
        ),
        "how it lays stages over the hosts of a pod is not documented; name the chips of each stage yourself and join "
        "them by ttnn.create_socket_pair",
    ),
    "load_parameters": _PARAMETERS,
    "read_device_profiler": f"{_OTHER_RELEASE}; use ttnn.ReadDeviceProfiler",
    "save_parameters": _PARAMETERS,
    "to": f"{_OTHER_RELEASE}; use ttnn.to_device, ttnn.to_layout or ttnn.to_dtype",
    "transformer.gated_delta_attn_seq": f"{_FORMS}; use ttnn.transformer.chunk_gated_delta_rule",
    "ttnn": f"{_OTHER_RELEASE}; leave the second ttnn out",
}
_COMPOSE = "it is not modelled; compose it of other ops, or compute it in torch (ttnn.to_torch, ttnn.from_torch)"


# Why there is nothing of a whole family of names, by how they begin.
_FAMILIES = {
    "disaggregation.": (
        "it reads a cache by its addresses on chips that another process holds; read it with ttnn.from_device"
    ),
}


def reason_for(name: str) -> str | None:
    """Why there is no `ttnn.x.y`; None where nobody said."""
    short = name.removeprefix(_PREFIX)
    family = next((reason for begin, reason in _FAMILIES.items() if short.startswith(begin)), None)
    return REASONS.get(short, family)


def absent(root: str, name: str, known: Iterable[str]) -> object:
    """What `ttnn.x.y` is where softmesh has none: a module, another name of something, or a stand-in.

    A name that TT-NN has not either is an AttributeError, with the name among the `known` that is near.
    """
    reason, listed = reason_for(name), ttnn_names().get(name)
    if listed is None and reason is not None:
        raise NotModelled(f"softmesh has no {name!r}: {reason}.")
    if listed is None:
        module, _, short = name.rpartition(".")
        hint = did_you_mean(short, known, cutoff=0.75)
        where = ".".join(filter(None, ("ttnn", module)))
        raise UnknownNameError(f"module {where!r} has no attribute {short!r}: it is not a name of TT-NN.{hint}")
    if listed.kind == "module":
        _add(_Published(f"{root}.{name}", f"ttnn.{name}"))
        return sys.modules[f"{root}.{name}"]
    if listed.kind == "alias":
        found: object = sys.modules[root]
        for part in listed.of.split("."):
            found = getattr(found, part)
        if isinstance(found, ModuleType):
            sys.modules[f"{root}.{name}"] = found
        return found
    return stand_in(name, reason or _COMPOSE)


_DEVICE = (
    "runtime.profiling",
    "runtime.dispatch_modes",
    "runtime.memory.memory_reports",
    "dispatch.registry",
)

# Modules of TT-NN for whose names the top namespace answers; before it, modules that have names of their own.
FLAT: dict[str, tuple[str, ...]] = {
    "core": ("hardware.shape",),
    "device": _DEVICE,
    "disaggregation": ("ops.kv_cache.chunk_address_table",),
    "types": (),
    "operations": (),
    "operations.activations": ("ops.golden.golden_elementwise",),
    "operations.ccl": (),
    "operations.conv2d": (),
    "operations.embedding": (),
    "operations.losses": (),
    "operations.matmul": ("ops.device_operations",),
    "operations.normalization": ("ops.device_operations",),
    "operations.pool": ("ops.golden.golden_pool",),
    "operations.reduction": (),
    "operations.transformer": ("transformer",),
    "_ttnn": ("runtime.queues.operation_ids",),
    "_ttnn.bfp_utils": (),
    "_ttnn.core": ("tensor.native_names", "light_metal.binary_format"),
    "_ttnn.device": _DEVICE,
    "_ttnn.events": (),
    "_ttnn.fabric": (),
    "_ttnn.global_semaphore": ("collectives.semaphores",),
    "_ttnn.hd_socket": (),
    "_ttnn.mesh_socket": (),
    "_ttnn.multi_device": ("runtime.distributed_context_names",),
    "_ttnn.operations": (),
    "_ttnn.operations.ccl": (),
    "_ttnn.operations.core": (),
    "_ttnn.operations.data_movement": ("ops.data_movement.layout_conversion",),
    "_ttnn.operations.experimental": ("experimental", "kernels.program.fusion_semaphores"),
    "_ttnn.operations.experimental.ccl_experimental": ("experimental",),
    "_ttnn.operations.point_to_point": ("collectives.packet_buffers",),
    "_ttnn.operations.trace": ("runtime.traces.allocation_tracking",),
    "_ttnn.reports": ("tensor.buffer_reports",),
    "_ttnn.tensor": ("tensor.native_names", "tensor.overlapped_tensors"),
    "_ttnn.types": (),
    "tools": (),
    "tools.trace_allocation_tracker": ("runtime.traces.allocation_tracking",),
    "torch_tracer": ("tracer",),
    "trace_allocation_config": ("runtime.traces.allocation_tracking",),
    "unsafe_allocation_tracker": ("runtime.traces.allocation_tracking",),
}

# Modules that TT-NN has directly below its top namespace.
SUBMODULES = {"cluster": "runtime.cluster", "distributed": "distributed"}

# Names that load when first asked for: a module of the package, or a function of one.
LAZY = {
    "apply_device_delay": "runtime.dispatch_modes",
    "assert_same": "diff.comparing",
    "attach_golden_function": "ops.golden.golden_functions",
    "cb_descriptor_from_sharded_tensor": "kernels.program.program_descriptor",
    "CBDescriptor": "kernels.program.program_descriptor",
    "CBFormatDescriptor": "kernels.program.program_descriptor",
    "compare": "diff.comparing",
    "compute_fabric_connection_rt_args": "kernels.program.packed_args",
    "compute_program_descriptor_hash": "kernels.program.program_descriptor",
    "ComputeConfigDescriptor": "kernels.program.kernel_descriptor",
    "config_serialization": "",
    "CoreType": "kernels.program.program_descriptor",
    "corruptible_allocation_scope": "runtime.traces.allocation_tracking",
    "create_layer_norm_reciprocals": "ops.device_operations",
    "create_layernorm_program_config": "ops.device_operations",
    "create_matmul_attributes": "ops.device_operations",
    "database": "",
    "DataMovementConfigDescriptor": "kernels.program.kernel_descriptor",
    "diff": "",
    "disable_asynchronous_slow_dispatch": "runtime.dispatch_modes",
    "DispatchAlgorithm": "hardware.enums",
    "DistributedLayerNormStage": "ops.device_operations",
    "dot_access": "",
    "dram_prefetcher": "ops.prefetcher.tensor_prefetcher",
    "dump_operations": "dispatch.registry",
    "enable_asynchronous_slow_dispatch": "runtime.dispatch_modes",
    "estimate": "report.estimates.notebook_estimate",
    "explain": "distributed.explanation",
    "fabric_connection_rt_args": "kernels.program.packed_args",
    "fabric_connection_rt_args_size": "kernels.program.packed_args",
    "FaceGeometry": "tensor.native_names",
    "fused_rms_minimal": "collectives.fused_norms",
    "generic_op": "kernels.generic_op",
    "get_cb_address": "kernels.program.program_descriptor",
    "get_fabric_kernel_defines": "kernels.program.packed_args",
    "get_fallback_function": "ops.golden.golden_functions",
    "get_golden_function": "ops.golden.golden_functions",
    "get_latest_programs_perf_data": "runtime.profiling",
    "get_num_links": "collectives.fabric_topology",
    "get_optimal_worker_cores_for_sharded_tensor": "tensor.native_names",
    "get_usable_topology": "collectives.fabric_topology",
    "GlobalCircularBuffer": "runtime.buffers.global_buffers",
    "graph": "",
    "graph_report": "",
    "graph_tracer_utils": "",
    "KernelDescriptor": "kernels.program.kernel_descriptor",
    "light_metal_begin_capture": "light_metal.call_recording",
    "light_metal_end_capture": "light_metal.call_recording",
    "LightMetalReplay": "light_metal.call_recording",
    "layernorm_default_compute_config": "ops.device_operations",
    "LayerNormDeviceOperation": "ops.device_operations",
    "LayerNormInputs": "ops.device_operations",
    "LayerNormMultiCoreProgramFactory": "ops.device_operations",
    "LayerNormParams": "ops.device_operations",
    "LayerNormShardedProgramFactory": "ops.device_operations",
    "LayerNormType": "ops.device_operations",
    "LossReductionMode": "hardware.enums",
    "mark_corruptible": "runtime.traces.allocation_tracking",
    "mark_step": "cost.program_cost",
    "matmul_select_program_factory": "ops.device_operations",
    "MatmulDeviceOperation": "ops.device_operations",
    "MatmulInputs": "ops.device_operations",
    "MatmulParams": "ops.device_operations",
    "merge_program_descriptors": "kernels.program.program_descriptor",
    "MeshProgramDescriptor": "kernels.program.program_descriptor",
    "metal": "",
    "MMSignalAggregatorMode": "hardware.enums",
    "model_preprocessing": "",
    "NOC_MODE": "kernels.program.kernel",
    "operation_tracer": "",
    "OverlappedTensor": "tensor.overlapped_tensors",
    "plan": "report.plans.shown_plans",
    "ProgramDescriptor": "kernels.program.program_descriptor",
    "query_registered_operations": "dispatch.registry",
    "ReadDeviceProfiler": "runtime.profiling",
    "ReaderConfigDescriptor": "kernels.program.kernel_descriptor",
    "register_post_operation_hook": "dispatch.hooks",
    "register_pre_operation_hook": "dispatch.hooks",
    "RGBRange": "hardware.enums",
    "rmsnorm_default_compute_config": "ops.device_operations",
    "RoutedExpertActivation": "ops.moe.routed_experts",
    "RuntimeArgs": "kernels.program.kernel_descriptor",
    "RuntimeArgsColProxy": "kernels.program.kernel_descriptor",
    "sanitize": "runtime.sanitizer.race_detector",
    "SemaphoreDescriptor": "kernels.program.program_descriptor",
    "setup_fabric_connection": "kernels.program.packed_args",
    "setup_routing_plane_connection": "kernels.program.packed_args",
    "SliceDeviceOperation": "ops.device_operations",
    "SliceInputs": "ops.device_operations",
    "SliceParams": "ops.device_operations",
    "SliceTileProgramFactory": "ops.device_operations",
    "start_tracy_zone": "runtime.profiling",
    "stop_tracy_zone": "runtime.profiling",
    "TensorAccessorArgs": "kernels.program.packed_args",
    "TileDescriptor": "kernels.program.program_descriptor",
    "TRACE_ALLOC_TRACKING": "runtime.traces.allocation_tracking",
    "tracer": "",
    "tracy_frame": "runtime.profiling",
    "tracy_message": "runtime.profiling",
    "train": "",
    "UnpackToDestMode": "hardware.enums",
    "visualize_mesh_device": "report.terminal",
    "visualize_system_mesh": "report.terminal",
    "visualize_tensor": "report.terminal",
    "WorkerMode": "hardware.enums",
    "WriterConfigDescriptor": "kernels.program.kernel_descriptor",
    "YUVColorSpace": "hardware.enums",
    "YUVFormat": "hardware.enums",
    "YUVRange": "hardware.enums",
}


class _Published(ModuleType):
    """A module of TT-NN: its own names, then those of its homes, then those of the top namespace if it is flat."""

    _homes: tuple[str, ...] = ()
    _is_flat = False

    def __getattr__(self, name: str) -> object:
        if name.startswith("__"):
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        root, _, own = self.__name__.partition(".")
        listed = ttnn_names().get(f"{own}.{name}")
        if listed is not None and listed.kind == "module":
            return absent(root, f"{own}.{name}", ())
        places = [_module(root, home) for home in self._homes]
        if self._is_flat:
            places.append(sys.modules[root])
        for place in places:
            is_own = isinstance(place, _WithStandIns)  # of whose stand-ins nothing is wanted
            found = vars(place).get(name) if is_own else getattr(place, name, None)
            if found is not None and not isinstance(found, StandIn):
                return found
        return absent(root, f"{own}.{name}", [known for known in vars(self) if not known.startswith("_")])


class _WithStandIns(ModuleType):
    """A module of softmesh that TT-NN has too: its own names, then stand-ins for those of TT-NN that it lacks."""

    _below_ttnn: str

    def __getattr__(self, name: str) -> object:
        if name.startswith("_"):
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        known = [known for known in vars(self) if not known.startswith("_")]
        return absent(self.__name__.partition(".")[0], f"{self._below_ttnn}.{name}", known)


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
    for name, homes in FLAT.items():
        flat = sys.modules.get(f"{root}.{name}") or _Published(f"{root}.{name}")
        vars(flat).update(_homes=homes, _is_flat=True)
        _add(flat)
    for name in [name for name, home in LAZY.items() if not home and f"{root}.{name}" in sys.modules]:
        with_stand_ins(sys.modules[f"{root}.{name}"])
    for name, home in SUBMODULES.items():
        found = _module(root, home)
        _let_stand_in(found, name)
        sys.modules[f"{root}.{name}"] = found
        setattr(sys.modules[root], name, found)


def _add(module: ModuleType) -> None:
    module.__path__ = []
    sys.modules[module.__name__] = module
    parent, _, short = module.__name__.rpartition(".")
    setattr(sys.modules[parent], short, module)


def load_lazily(root: str, name: str) -> object:
    """The attribute `name` of the package, loaded now."""
    if name in LAZY:
        home = LAZY[name]
        found = behind_the_door(name, getattr(_module(root, home), name)) if home else _module(root, name)
        setattr(sys.modules[root], name, found)
        return found
    if name.startswith("__"):
        raise AttributeError(f"module {root!r} has no attribute {name!r}")
    known = [*LAZY, *(known for known in vars(sys.modules[root]) if not known.startswith("_"))]
    return absent(root, name, known)


def absent_module(root: str, name: str) -> ModuleType | None:
    """A module of TT-NN of which softmesh has nothing but its names."""
    listed = ttnn_names().get(name)
    if listed is None or listed.kind not in ("module", "alias"):
        return None
    parent = name.rpartition(".")[0]
    if parent and f"{root}.{parent}" not in sys.modules and absent_module(root, parent) is None:
        return None
    found = sys.modules.get(f"{root}.{name}") or absent(root, name, ())
    return found if isinstance(found, ModuleType) else None


def _module(root: str, name: str) -> ModuleType:
    return with_stand_ins(importlib.import_module(f"{root}.{name}"))


def with_stand_ins(module: ModuleType) -> ModuleType:
    """The module; if TT-NN has one of this name, it answers for the names that it lacks, too."""
    name = module.__name__.partition(".")[2]
    if LAZY.get(name) == "":
        _let_stand_in(module, name)
    return module


class Package(ConfigHolder):
    """The top namespace. The import system sets modules on it, when something first imports them."""

    def __setattr__(self, name: str, value: object) -> None:
        if isinstance(value, ModuleType):
            with_stand_ins(value)
        super().__setattr__(name, value)


def _let_stand_in(module: ModuleType, name: str) -> None:
    """Unless it answers for names that it lacks by itself."""
    own = type(module)
    if not hasattr(own, "__getattr__") and "__getattr__" not in vars(module):
        vars(module)["_below_ttnn"] = name
        module.__class__ = _WithStandIns if own is ModuleType else type(own.__name__, (own, _WithStandIns), {})
