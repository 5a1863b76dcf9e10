"""TT-Metalium's host API for programs, as `softmesh.metal` re-exports it: CreateProgram, CreateKernel, ..."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from softmesh.arguments import checked, checked_int, refused
from softmesh.cores import CoreCoord, corerange_to_cores
from softmesh.errors import MeshError
from softmesh.kernels.program.kernel import (
    ComputeConfig,
    Cores,
    DataMovementConfig,
    Function,
    Kernel,
    KernelConfig,
    RuntimeArgsData,
    checked_cores,
    checked_function,
    checked_words,
)
from softmesh.kernels.program.l1_allocation import (
    CircularBuffer,
    CircularBufferConfig,
    check_pages,
    l1_address,
)
from softmesh.kernels.program.program import Program
from softmesh.runtime.buffers.global_buffers import GlobalCircularBuffer
from softmesh.runtime.buffers.mesh_buffer import MeshBuffer
from softmesh.tensor.tensor import Tensor

KernelHandle = int
CBHandle = int


def CreateProgram(*, strict: bool | None = None) -> Program:
    """An empty program. `strict=True` runs it in strict mode, which SOFTMESH_STRICT=1 does for all."""
    return Program(strict)


def CreateKernel(program: Program, kernel: Function, core_spec: Cores, config: KernelConfig) -> KernelHandle:
    """Run a Python function of no arguments on these cores; see docs/kernels.md for what it may call."""
    where = "CreateKernel"
    if not isinstance(config, DataMovementConfig | ComputeConfig):
        raise refused(where, "config must be a DataMovementConfig (or one for readers or writers) or a ComputeConfig")
    made = Kernel(checked_function(where, kernel), checked_cores(where, core_spec), config)
    return _program(where, program).add_kernel(made)


def CreateKernelFromString(
    program: Program, kernel_src_code: str, core_spec: Cores, config: KernelConfig
) -> KernelHandle:
    """C++ source does not run here: this says what to do instead."""
    return CreateKernel(program, kernel_src_code, core_spec, config)  # type: ignore[arg-type]


def CreateCircularBuffer(
    program: Program,
    core_spec: Cores,
    config: CircularBufferConfig,
    global_circular_buffer: GlobalCircularBuffer | None = None,
) -> CBHandle:
    """With a global circular buffer it lies in that one's memory, which kernels reach by the remote indexes."""
    where = "CreateCircularBuffer"
    cores = checked_cores(where, core_spec)
    checked(where, "config", config, CircularBufferConfig, "a CircularBufferConfig")
    config.formats()
    shared = global_circular_buffer
    if shared is not None:
        wanted = "what ttnn.create_global_circular_buffer(...) returned"
        checked(where, "global_circular_buffer", shared, GlobalCircularBuffer, wanted)
    return _program(where, program).add_circular_buffer(CircularBuffer(cores, config, shared))


def CreateSemaphore(program: Program, core_spec: Cores, initial_value: int) -> int:
    """Its id, which `get_semaphore` takes in a kernel. Each launch begins with the initial value."""
    where = "CreateSemaphore"
    (value,) = checked_words(where, "initial_value", [initial_value])
    return _program(where, program).add_semaphore(checked_cores(where, core_spec), value)


def SetRuntimeArgs(
    program: Program,
    kernel: KernelHandle,
    core_spec: Cores | Sequence[CoreCoord],
    runtime_args: Iterable[int] | Sequence[Sequence[int]],
) -> None:
    """The same words on all of these cores; or for a list of cores a list of words each."""
    where = "SetRuntimeArgs"
    made = _kernel(where, program, kernel)
    if not isinstance(core_spec, list):
        cores = corerange_to_cores(checked_cores(where, core_spec))
        made.set_args(cores, checked_words(where, "runtime_args", runtime_args))  # type: ignore[arg-type]
        return
    given = list(runtime_args)
    if len(given) != len(core_spec):
        raise MeshError(
            f"SetRuntimeArgs: {len(core_spec)} cores and {len(given)} lists of runtime args: give one for each."
        )
    for core, words in zip(core_spec, given, strict=True):
        made.set_args([CoreCoord.of(core)], checked_words(where, "runtime_args", words))  # type: ignore[arg-type]


def SetCommonRuntimeArgs(program: Program, kernel: KernelHandle, runtime_args: Iterable[int]) -> None:
    """Words that all cores of the kernel share."""
    where = "SetCommonRuntimeArgs"
    _kernel(where, program, kernel).set_common_args(checked_words(where, "runtime_args", runtime_args))


def GetRuntimeArgs(program: Program, kernel: KernelHandle, core: CoreCoord) -> RuntimeArgsData:
    """The words of one core; changing them changes what the next launch sees."""
    made = _kernel("GetRuntimeArgs", program, kernel)
    place = CoreCoord.of(core)
    if place not in made.args:
        raise MeshError(
            f"GetRuntimeArgs: kernel {made.name} has no runtime args on core {place}; SetRuntimeArgs gives some."
        )
    return made.args[place]


def GetCommonRuntimeArgs(program: Program, kernel: KernelHandle) -> RuntimeArgsData:
    return _kernel("GetCommonRuntimeArgs", program, kernel).common_args


def GetCircularBufferConfig(program: Program, cb_handle: CBHandle) -> CircularBufferConfig:
    return _circular_buffer("GetCircularBufferConfig", program, cb_handle).config


def UpdateCircularBufferTotalSize(program: Program, cb_handle: CBHandle, total_size: int) -> None:
    """Between two launches."""
    _circular_buffer("UpdateCircularBufferTotalSize", program, cb_handle).config.set_total_size(total_size)


def UpdateCircularBufferPageSize(program: Program, cb_handle: CBHandle, buffer_index: int, page_size: int) -> None:
    """Between two launches."""
    config = _circular_buffer("UpdateCircularBufferPageSize", program, cb_handle).config
    config.set_page_size(buffer_index, page_size)


def UpdateDynamicCircularBufferAddress(
    program: Program, cb_handle: CBHandle, buffer: MeshBuffer | Tensor, address_offset: int = 0
) -> None:
    """Let it use the memory of another buffer from the next launch on."""
    where = "UpdateDynamicCircularBufferAddress"
    config = _circular_buffer(where, program, cb_handle).config
    if config.address is None:
        raise MeshError(f"{where}: circular buffer {cb_handle} has memory of its own, not that of a buffer.")
    config.address, config.address_offset = l1_address(where, buffer), address_offset


def UpdateDynamicCircularBufferAddressAndTotalSize(
    program: Program, cb_handle: CBHandle, buffer: MeshBuffer | Tensor, total_size: int
) -> None:
    config = GetCircularBufferConfig(program, cb_handle)
    for page_size in config.page_sizes.values():
        check_pages(total_size, page_size)
    UpdateDynamicCircularBufferAddress(program, cb_handle, buffer)
    config.set_total_size(total_size)


def _program(where: str, program: object) -> Program:
    return checked(where, "program", program, Program, "a program of CreateProgram()")


def _kernel(where: str, program: object, handle: object) -> Kernel:
    kernels = _program(where, program).kernels
    number = checked_int(where, "kernel", handle)
    if not 0 <= number < len(kernels):
        raise MeshError(f"{where}: this program has {len(kernels)} kernels, and none with handle {number}.")
    return kernels[number]


def _circular_buffer(where: str, program: object, handle: object) -> CircularBuffer:
    buffers = _program(where, program).circular_buffers
    number = checked_int(where, "cb_handle", handle)
    if not 0 <= number < len(buffers):
        raise MeshError(f"{where}: this program has {len(buffers)} circular buffers, and none with handle {number}.")
    return buffers[number]
