"""The host's side of kernels in one place: what `softmesh.metal` offers of it."""

from softmesh.kernels.fabric.connection import append_fabric_connection_rt_args
from softmesh.kernels.formats import CBIndex, DataFormat, datatype_to_dataformat_converter
from softmesh.kernels.program.accessor_args import TensorAccessorArgs
from softmesh.kernels.program.circular_buffer import CircularBufferConfig
from softmesh.kernels.program.configs import (
    NOC_MODE,
    ComputeConfig,
    DataMovementConfig,
    KernelBuildOptLevel,
    ReaderDataMovementConfig,
    WriterDataMovementConfig,
)
from softmesh.kernels.program.create import (
    CBHandle,
    CreateCircularBuffer,
    CreateKernel,
    CreateKernelFromString,
    CreateProgram,
    CreateSemaphore,
    GetCircularBufferConfig,
    GetCommonRuntimeArgs,
    GetRuntimeArgs,
    KernelHandle,
    SetCommonRuntimeArgs,
    SetRuntimeArgs,
    UpdateCircularBufferPageSize,
    UpdateCircularBufferTotalSize,
    UpdateDynamicCircularBufferAddress,
    UpdateDynamicCircularBufferAddressAndTotalSize,
)
from softmesh.kernels.program.program import Program

__all__ = [
    "NOC_MODE",
    "CBHandle",
    "CBIndex",
    "CircularBufferConfig",
    "ComputeConfig",
    "CreateCircularBuffer",
    "CreateKernel",
    "CreateKernelFromString",
    "CreateProgram",
    "CreateSemaphore",
    "DataFormat",
    "DataMovementConfig",
    "GetCircularBufferConfig",
    "GetCommonRuntimeArgs",
    "GetRuntimeArgs",
    "KernelBuildOptLevel",
    "KernelHandle",
    "Program",
    "ReaderDataMovementConfig",
    "SetCommonRuntimeArgs",
    "SetRuntimeArgs",
    "TensorAccessorArgs",
    "UpdateCircularBufferPageSize",
    "UpdateCircularBufferTotalSize",
    "UpdateDynamicCircularBufferAddress",
    "UpdateDynamicCircularBufferAddressAndTotalSize",
    "WriterDataMovementConfig",
    "append_fabric_connection_rt_args",
    "datatype_to_dataformat_converter",
]
