"""Values that only steer hardware: ops take them, check their names, and compute the same without.

Also the facts about chips and fabric that later modules read: architectures, topologies, dispatch.
"""

from softmesh.hardware.activation import GeluVariant, SigmoidMode, UnaryOpType, UnaryWithParam
from softmesh.hardware.attention import IndexerScoreProgramConfig, PagedCacheGeometryOverride, SparseKVFormat
from softmesh.hardware.broadcast import BcastOpDim, BcastOpMath
from softmesh.hardware.cluster import ClusterType as ClusterType
from softmesh.hardware.compute import (
    BlackholeComputeKernelConfig,
    DeviceComputeKernelConfig,
    MathFidelity,
    ThrottleLevel,
    WormholeComputeKernelConfig,
    init_device_compute_kernel_config,
)
from softmesh.hardware.convolution import (
    Conv1dConfig,
    Conv2dConfig,
    Conv2dDRAMSliceHeight,
    Conv2dDRAMSliceWidth,
    Conv2dL1Full,
    Conv2dL1FullSliceConfig,
    Conv2dSliceConfig,
    Conv3dConfig,
    Op2DDRAMSliceHeight,
    Op2DDRAMSliceWidth,
    Op2DL1Full,
    Op2DL1FullSliceConfig,
    Op2DSliceConfig,
    PaddingMode,
)
from softmesh.hardware.data_movement import (
    NOC,
    Arch,
    DataMovementProcessor,
    DumpTensorMode,
    TileReshapeMapMode,
)
from softmesh.hardware.dispatch import DispatchCoreAxis, DispatchCoreConfig, DispatchCoreType, SubDeviceId
from softmesh.hardware.fabric import (
    FabricConfig,
    FabricManagerMode,
    FabricReliabilityMode,
    FabricRouterConfig,
    FabricTensixConfig,
    FabricType,
    FabricUDMMode,
    Topology,
)
from softmesh.hardware.fabric import RoutingDirection as RoutingDirection
from softmesh.hardware.matmul import (
    MatmulMultiCoreReuseMultiCast1DProgramConfig,
    MatmulMultiCoreReuseMultiCastBatchedDRAMShardedProgramConfig,
    MatmulMultiCoreReuseMultiCastDRAMShardedProgramConfig,
    MatmulMultiCoreReuseMultiCastProgramConfig,
    MatmulMultiCoreReuseProgramConfig,
    MatmulProgramConfig,
    MinimalMatmulConfig,
)
from softmesh.hardware.normalization import (
    LayerNormDefaultProgramConfig,
    LayerNormProgramConfig,
    LayerNormShardedMultiCoreProgramConfig,
    SDPAProgramConfig,
    SoftmaxDefaultProgramConfig,
    SoftmaxProgramConfig,
    SoftmaxShardedMultiCoreProgramConfig,
)
from softmesh.native_enum import NativeEnum

__all__ = [
    "FabricUDMMode",
    "FabricType",
    "FabricRouterConfig",
    "FabricManagerMode",
    "Arch",
    "BcastOpDim",
    "BcastOpMath",
    "BlackholeComputeKernelConfig",
    "Conv1dConfig",
    "Conv2dConfig",
    "Conv2dDRAMSliceHeight",
    "Conv2dDRAMSliceWidth",
    "Conv2dL1Full",
    "Conv2dL1FullSliceConfig",
    "Conv2dSliceConfig",
    "Conv3dConfig",
    "DataMovementProcessor",
    "DeviceComputeKernelConfig",
    "DispatchCoreAxis",
    "DispatchCoreConfig",
    "DispatchCoreType",
    "DumpTensorMode",
    "FabricConfig",
    "FabricReliabilityMode",
    "FabricTensixConfig",
    "GeluVariant",
    "IndexerScoreProgramConfig",
    "LayerNormDefaultProgramConfig",
    "LayerNormProgramConfig",
    "LayerNormShardedMultiCoreProgramConfig",
    "MathFidelity",
    "MatmulMultiCoreReuseMultiCast1DProgramConfig",
    "MatmulMultiCoreReuseMultiCastBatchedDRAMShardedProgramConfig",
    "MatmulMultiCoreReuseMultiCastDRAMShardedProgramConfig",
    "MatmulMultiCoreReuseMultiCastProgramConfig",
    "MatmulMultiCoreReuseProgramConfig",
    "MatmulProgramConfig",
    "MinimalMatmulConfig",
    "NOC",
    "NativeEnum",
    "Op2DDRAMSliceHeight",
    "Op2DDRAMSliceWidth",
    "Op2DL1Full",
    "Op2DL1FullSliceConfig",
    "Op2DSliceConfig",
    "PaddingMode",
    "PagedCacheGeometryOverride",
    "SDPAProgramConfig",
    "SigmoidMode",
    "SoftmaxDefaultProgramConfig",
    "SoftmaxProgramConfig",
    "SoftmaxShardedMultiCoreProgramConfig",
    "SparseKVFormat",
    "SubDeviceId",
    "ThrottleLevel",
    "TileReshapeMapMode",
    "Topology",
    "UnaryOpType",
    "UnaryWithParam",
    "WormholeComputeKernelConfig",
    "init_device_compute_kernel_config",
]
