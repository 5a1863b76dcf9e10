"""`generic_op`: runs a user's own program, given as descriptors, on input and output tensors.

Builds a Program from the descriptors, checks it, and launches it; while a trace is being captured, the launch is
recorded for the replays instead.
"""

from __future__ import annotations

from collections.abc import Sequence

from softmesh.arguments import checked_all, described, refused
from softmesh.errors import MeshError
from softmesh.kernels.engine.launch import Launch
from softmesh.kernels.program.kernel import (
    ComputeConfig,
    DataMovementConfig,
    Kernel,
    KernelConfig,
    ReaderDataMovementConfig,
    WriterDataMovementConfig,
    checked_cores,
    checked_function,
    checked_words,
)
from softmesh.kernels.program.kernel_descriptor import (
    ComputeConfigDescriptor,
    ConfigDescriptor,
    DataMovementConfigDescriptor,
    KernelDescriptor,
    ReaderConfigDescriptor,
    WriterConfigDescriptor,
)
from softmesh.kernels.program.l1_allocation import CircularBuffer, CircularBufferConfig
from softmesh.kernels.program.program import Program
from softmesh.kernels.program.program_descriptor import (
    CBDescriptor,
    MeshProgramDescriptor,
    ProgramDescriptor,
    compute_program_descriptor_hash,
)
from softmesh.kinds import Kind
from softmesh.mesh import MeshCoordinateRange
from softmesh.runtime.commands import emit, observed
from softmesh.runtime.device import MeshDevice
from softmesh.runtime.queues.workload import Touched
from softmesh.runtime.traces.trace import WRITES, recording_on, refuse_while_recording
from softmesh.strictness import doubt
from softmesh.tensor.device_pages import TensorBytes
from softmesh.tensor.tensor import Tensor

Parts = Sequence[tuple[MeshCoordinateRange, Program]]


def generic_op(io_tensors: Sequence[Tensor], program_descriptor: ProgramDescriptor | MeshProgramDescriptor) -> Tensor:
    """Run a program that reads and writes these tensors, on every device or on those of its ranges.

    The last tensor is the output; it is returned, with what the program wrote into it.
    """
    tensors = checked_all("generic_op", "io_tensors", io_tensors, (Tensor,), "tensors on a mesh")
    if len(tensors) < 2:
        raise MeshError(f"io_tensors must contain at least one input tensor and one output tensor, got {len(tensors)}.")
    mesh = _mesh(tensors)
    parts = [(place, _program(one)) for place, one in _described(program_descriptor, mesh)]
    _check_ranges([place for place, _ in parts], mesh)
    for _, program in parts:
        program.compile(mesh)
        program.validate(mesh)
    _enqueue(mesh, parts, tensors, _key(program_descriptor))
    if observed():
        coords = [coordinate for place, _ in parts for coordinate in place]
        queue = mesh.mesh_command_queue().id()
        emit("generic_op", Kind.PROGRAM, tensors[:-1], tensors[-1:], coords=coords, queue=queue)
    return tensors[-1]


def _enqueue(mesh: MeshDevice, parts: Parts, tensors: Sequence[Tensor], key: object) -> None:
    """Run it; or, while a trace is being captured, leave that to the replays."""

    def run() -> None:
        if not mesh.is_remote_only():
            touched = Launch(mesh, parts).run(mesh, [TensorBytes(tensor) for tensor in _distinct(tensors)])
            _check_written(tensors, touched)

    number = mesh.mesh_command_queue().id()
    recording = recording_on(mesh, number)
    if recording is not None and key not in mesh.program_cache:
        doing = "generic_op with a program that never ran, and whose kernels must be sent,"
        refuse_while_recording(mesh, number, WRITES, doing)
    if recording is not None:
        recording.act(run, (), [tensor.storage for tensor in tensors], name="generic_op")
        return
    mesh.note_program(key)
    mesh.note_launch(None)
    run()


def _check_written(tensors: Sequence[Tensor], touched: Touched) -> None:
    """Whether it is the last tensor that the program wrote; a program may well write to others, too."""
    written = [memory.tensor for memory in touched.writes if isinstance(memory, TensorBytes)]
    if written and not any(one.storage is tensors[-1].storage for one in written):
        doubt(
            f"generic_op returns the last of its {len(tensors)} tensors, and its program has written to none but "
            f"{'another one' if len(written) == 1 else 'others'}. Let the output be the last in io_tensors.",
        )


def _key(given: ProgramDescriptor | MeshProgramDescriptor) -> object:
    """The same for programs that differ in their runtime arguments at most."""
    if isinstance(given, ProgramDescriptor):
        return "generic_op", compute_program_descriptor_hash(given)
    hashes = [(tuple(place.start), tuple(place.end), compute_program_descriptor_hash(one)) for place, one in given]
    return "generic_op", *hashes


def _mesh(tensors: Sequence[Tensor]) -> MeshDevice:
    for tensor in tensors:
        tensor.check_readable("generic_op")
    meshes = {id(mesh): mesh for tensor in tensors if (mesh := tensor.storage.device) is not None}
    if len(meshes) != 1 or any(tensor.storage.device is None for tensor in tensors):
        raise MeshError("generic_op: all tensors must be on one mesh; ttnn.to_device(tensor, mesh) brings one there.")
    return next(iter(meshes.values()))


def _distinct(tensors: Sequence[Tensor]) -> list[Tensor]:
    """One for each place in memory: an op in place names its tensor twice."""
    return list({tensor.buffer_address(): tensor for tensor in tensors}.values())


def _described(
    given: ProgramDescriptor | MeshProgramDescriptor, mesh: MeshDevice
) -> list[tuple[MeshCoordinateRange, ProgramDescriptor]]:
    if isinstance(given, ProgramDescriptor):
        return [(MeshCoordinateRange(mesh.shape), given)]
    if isinstance(given, MeshProgramDescriptor):
        return list(given)
    wanted = "a ttnn.ProgramDescriptor or a ttnn.MeshProgramDescriptor"
    raise refused("generic_op", f"program_descriptor must be {wanted}, got {described(given)}")


def _check_ranges(places: Sequence[MeshCoordinateRange], mesh: MeshDevice) -> None:
    whole = MeshCoordinateRange(mesh.shape)
    for i, place in enumerate(places):
        if place.dims() != whole.dims() or not whole.contains(place):
            raise MeshError(f"generic_op: the range {place} lies outside the mesh, which is {mesh.shape}.")
        for other in places[:i]:
            if place.intersection(other) is not None:
                raise MeshError(f"generic_op: the ranges {place} and {other} overlap: each device runs one program.")


def _program(given: ProgramDescriptor) -> Program:
    program = Program()
    program.runs_per_device = given.uses_fabric
    for kernel in given.kernels:
        program.add_kernel(_kernel(kernel))
    for buffer in given.cbs:
        program.add_circular_buffer(_circular_buffer(buffer))
    for semaphore in given.semaphores:
        (value,) = checked_words("SemaphoreDescriptor", "initial_value", [semaphore.initial_value])
        program.add_semaphore(semaphore.core_ranges, value, semaphore.id)
    return program


def _kernel(given: KernelDescriptor) -> Kernel:
    where = "KernelDescriptor"
    made = Kernel(checked_function(where, given.kernel_source), checked_cores(where, given.core_ranges), _config(given))
    for core, words in given.runtime_args:
        if words or made.cores.contains(core):
            made.set_args([core], checked_words(where, "runtime_args", words))
    made.set_common_args(checked_words(where, "common_runtime_args", given.common_runtime_args))
    return made


def _config(given: KernelDescriptor) -> KernelConfig:
    arguments = (given.compile_time_args, dict(given.named_compile_time_args), dict(given.defines))
    config: ConfigDescriptor | None = given.config
    if isinstance(config, ReaderConfigDescriptor):
        return ReaderDataMovementConfig(*arguments)
    if isinstance(config, WriterConfigDescriptor):
        return WriterDataMovementConfig(*arguments)
    if isinstance(config, DataMovementConfigDescriptor):
        return DataMovementConfig(*arguments, processor=config.processor, noc=config.noc, noc_mode=config.noc_mode)
    if isinstance(config, ComputeConfigDescriptor):
        return ComputeConfig(
            *arguments,
            math_fidelity=config.math_fidelity,
            fp32_dest_acc_en=config.fp32_dest_acc_en,
            dst_full_sync_en=config.dst_full_sync_en,
        )
    wanted = "a Reader-, Writer-, DataMovement- or ComputeConfigDescriptor"
    raise refused("KernelDescriptor", f"config must be {wanted}, got {described(config)}")


def _circular_buffer(given: CBDescriptor) -> CircularBuffer:
    config = CircularBufferConfig(given.total_size)
    for format in given.format_descriptors:
        config.set_data_format(format.buffer_index, format.data_format)
        config.set_page_size(format.buffer_index, format.page_size)
        config.set_tile_dims(format.buffer_index, format.tile_shape())
    for format in given.remote_format_descriptors:
        remote = config.remote_index(format.buffer_index)
        remote.set_data_format(format.data_format).set_page_size(format.page_size)
    if given.tensor is not None:
        config.set_globally_allocated_address(given.tensor, given.address_offset)
    config.formats()
    cores = checked_cores("CBDescriptor", given.core_ranges)
    return CircularBuffer(cores, config, given.global_circular_buffer)
