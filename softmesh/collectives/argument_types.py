"""The types of the kinds of arguments that collectives take, for type stubs and help texts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from softmesh.collectives.argument_checks import HINTS, KIND_OF, ReduceType
from softmesh.collectives.semaphores import GlobalSemaphore
from softmesh.cores import CoreCoord, CoreRange, CoreRangeSet
from softmesh.dispatch.call_form import COMMON_TYPES, Types
from softmesh.hardware import SubDeviceId, Topology, WormholeComputeKernelConfig
from softmesh.hardware.memory_config import MemoryConfig
from softmesh.mesh import MeshCoordinate
from softmesh.runtime.device import MeshDevice
from softmesh.tensor.dtype import DataType
from softmesh.tensor.tensor import Tensor

_ONE: dict[str, Any] = {
    "int": int,
    "ints": Sequence[int],
    "count": int,
    "flag": bool,
    "tensor": Tensor,
    "tensors": Sequence[Tensor],
    "semaphores": GlobalSemaphore | Sequence[GlobalSemaphore],
    "mesh": MeshDevice,
    "coordinate": MeshCoordinate,
    "topology": Topology,
    "reduction": ReduceType,
    "string": str,
    "dtype": DataType,
    "memory": MemoryConfig,
    "cores": CoreRangeSet | CoreRange,
    "place": CoreCoord | Sequence[int],
    "sub-device": SubDeviceId,
    "precision": WormholeComputeKernelConfig,
    "any": object,
}
# By the word for a kind, as in `dim:ints`. What only steers hardware may be None.
KIND_TYPES: Types = {kind: one | None if kind in HINTS else one for kind, one in _ONE.items()}
TYPES_BY_NAME: Types = {**COMMON_TYPES, **{name: KIND_TYPES[kind] for name, kind in KIND_OF.items()}}
