"""TT-NN's dotted names as modules (`ttnn.transformer.x`, `ttnn.device.y`), and names that load late."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Mapping
from types import ModuleType

from softmesh.errors import NotModelled, did_you_mean
from softmesh.ops.registry import OPERATIONS, operations_under

# Modules of TT-NN whose names all stand in its top namespace too: the top namespace answers for them.
_FLAT = (
    "core",
    "device",
    "types",
    "_ttnn",
    "_ttnn.fabric",
    "_ttnn.multi_device",
    "_ttnn.core",
    "_ttnn.device",
    "_ttnn.events",
    "_ttnn.global_semaphore",
    "_ttnn.types",
)

# Modules that TT-NN has directly below its top namespace.
_AT_HOME = {"cluster": "runtime.cluster", "distributed": "distributed"}

# Names that load when first asked for: a module of the package, or a function of one.
_LATE = {
    "cb_descriptor_from_sharded_tensor": "kernels.descriptors.circular_buffer",
    "CBDescriptor": "kernels.descriptors.circular_buffer",
    "CBFormatDescriptor": "kernels.descriptors.circular_buffer",
    "compute_program_descriptor_hash": "kernels.descriptors.program",
    "ComputeConfigDescriptor": "kernels.descriptors.kernel",
    "CoreType": "kernels.descriptors.program",
    "DataMovementConfigDescriptor": "kernels.descriptors.kernel",
    "fabric_connection_rt_args": "kernels.fabric.connection",
    "fabric_connection_rt_args_size": "kernels.fabric.connection",
    "generic_op": "kernels.generic_op",
    "get_cb_address": "kernels.descriptors.circular_buffer",
    "get_fabric_kernel_defines": "kernels.fabric.connection",
    "get_num_links": "collectives.topology",
    "get_usable_topology": "collectives.topology",
    "KernelDescriptor": "kernels.descriptors.kernel",
    "merge_program_descriptors": "kernels.descriptors.program",
    "MeshProgramDescriptor": "kernels.descriptors.program",
    "metal": "",
    "model_preprocessing": "",
    "NOC_MODE": "kernels.program.configs",
    "ProgramDescriptor": "kernels.descriptors.program",
    "ReaderConfigDescriptor": "kernels.descriptors.kernel",
    "RuntimeArgs": "kernels.descriptors.kernel",
    "RuntimeArgsColProxy": "kernels.descriptors.kernel",
    "SemaphoreDescriptor": "kernels.descriptors.program",
    "setup_fabric_connection": "kernels.fabric.connection",
    "setup_routing_plane_connection": "kernels.fabric.connection",
    "TensorAccessorArgs": "kernels.program.accessor_args",
    "TileDescriptor": "kernels.descriptors.circular_buffer",
    "visualize_mesh_device": "report.terminal",
    "visualize_system_mesh": "report.terminal",
    "visualize_tensor": "report.terminal",
    "WriterConfigDescriptor": "kernels.descriptors.kernel",
}


class _FlatModule(ModuleType):
    """The top namespace under another name."""

    def __getattr__(self, name: str) -> object:
        if name.startswith("__"):
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        return getattr(sys.modules[self.__name__.partition(".")[0]], name)


def publish(root: str, composites: Mapping[str, object]) -> None:
    """Make a module below the package `root` for each dotted prefix of the registry and each flat name.

    `composites` are functions of several ops, by dotted name.
    """
    prefixes = {name.rpartition(".")[0] for name in (*OPERATIONS, *composites) if "." in name}
    prefixes |= {prefix.rpartition(".")[0] for prefix in prefixes if "." in prefix}
    for prefix in sorted(prefixes):
        module = ModuleType(f"{root}.{prefix}", f"The operations of ttnn.{prefix}.")
        module.__dict__.update(operations_under(f"{prefix}."))
        module.__dict__.update(
            {
                name.removeprefix(f"{prefix}."): function
                for name, function in composites.items()
                if name.rpartition(".")[0] == prefix
            }
        )
        _add(module)
    for name in _FLAT:
        _add(_FlatModule(f"{root}.{name}"))
    for name, home in _AT_HOME.items():
        module = _module(root, home)
        sys.modules[f"{root}.{name}"] = module
        setattr(sys.modules[root], name, module)


def _add(module: ModuleType) -> None:
    module.__path__ = []
    sys.modules[module.__name__] = module
    parent, _, short = module.__name__.rpartition(".")
    setattr(sys.modules[parent], short, module)


def load_late(root: str, name: str) -> object:
    """The attribute `name` of the package, loaded now; NotModelled where there is none."""
    if name in _LATE:
        home = _LATE[name]
        found = getattr(_module(root, home), name) if home else _module(root, name)
        setattr(sys.modules[root], name, found)
        return found
    if name.startswith("__"):
        raise AttributeError(f"module {root!r} has no attribute {name!r}")
    known = [*_LATE, *(known for known in vars(sys.modules[root]) if not known.startswith("_"))]
    raise NotModelled(
        f"softmesh has no {name!r}: it is not modelled, or not a name of TT-NN.{did_you_mean(name, known, cutoff=0.8)}"
    )


def _module(root: str, name: str) -> ModuleType:
    return importlib.import_module(f"{root}.{name}")
