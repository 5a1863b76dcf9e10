"""Kernels: addresses of tensors that were freed"""

from catalogue import Told, mistake, right, unknowable
from kernel_launches import BYTES, line, tiles

import softmesh as ttnn
from softmesh import metal
from softmesh.kernels import (
    InterleavedAddrGen,
    cb_pop_front,
    cb_push_back,
    cb_reserve_back,
    cb_wait_front,
    get_arg_val,
    get_common_arg_val,
    get_compile_time_arg_val,
    get_read_ptr,
    get_write_ptr,
    noc_async_read_barrier,
    noc_async_read_tile,
    noc_async_write_barrier,
    noc_async_write_tile,
)

ANOTHER = "The kernel reads or overwrites whatever tensor lies there by now."
ANEW = "SetRuntimeArgs with the new address before each launch, or keep the tensor."


def copier(*, source=None, target=None, compile_args=()):
    """A program that copies four tiles between two addresses, and its two kernels; 0 by default are runtime args."""

    def reader():
        address = source() if source else get_arg_val(0)
        for page in range(4):
            cb_reserve_back(0, 1)
            noc_async_read_tile(page, InterleavedAddrGen(address, BYTES), get_write_ptr(0))
            noc_async_read_barrier()
            cb_push_back(0, 1)

    def writer():
        address = target() if target else get_arg_val(0)
        for page in range(4):
            cb_wait_front(0, 1)
            noc_async_write_tile(page, InterleavedAddrGen(address, BYTES), get_read_ptr(0))
            noc_async_write_barrier()
            cb_pop_front(0, 1)

    program = metal.CreateProgram()
    config = metal.CircularBufferConfig(2 * BYTES, {0: ttnn.bfloat16}).set_page_size(0, BYTES)
    metal.CreateCircularBuffer(program, line(1), config)
    reads = metal.ReaderDataMovementConfig(compile_args=compile_args)
    handles = [
        metal.CreateKernel(program, reader, line(1), reads),
        metal.CreateKernel(program, writer, line(1), metal.WriterDataMovementConfig()),
    ]
    return program, handles


def give(program, handle, tensor):
    metal.SetRuntimeArgs(program, handle, ttnn.CoreCoord(0, 0), [tensor.buffer_address()])


def workload_of(mesh, program):
    workload = metal.MeshWorkload()
    workload.add_program(ttnn.MeshCoordinateRange(mesh.shape), program)
    return workload


def launch(mesh, workload):
    metal.EnqueueMeshWorkload(mesh.mesh_command_queue(), workload, blocking=True)


def replaced(mesh, tensor, value=2.0):
    """Another tensor, at the address of this one."""
    address = tensor.buffer_address()
    ttnn.deallocate(tensor)
    made = tiles(mesh, value)
    assert made.buffer_address() == address
    return made


@mistake(Told.STRICT, "which it was given before", "what lay there then was freed", symptom=ANOTHER, mend=ANEW)
def a_program_is_launched_again_after_its_input_was_freed(mesh):
    source, target = tiles(mesh), tiles(mesh, 0.0)
    program, (reader, writer) = copier()
    give(program, reader, source)
    give(program, writer, target)
    workload = workload_of(mesh, program)
    launch(mesh, workload)
    keep = replaced(mesh, source)
    launch(mesh, workload)
    assert keep.is_allocated()


@mistake(Told.STRICT, "Kernel writer", "which it was given before", symptom=ANOTHER, mend=ANEW)
def a_program_writes_where_its_output_was(mesh):
    source, target = tiles(mesh), tiles(mesh, 0.0)
    program, (reader, writer) = copier()
    give(program, reader, source)
    give(program, writer, target)
    keep = replaced(mesh, target)
    launch(mesh, workload_of(mesh, program))
    assert keep.is_allocated()


@mistake(Told.STRICT, "which it was given before", symptom=ANOTHER, mend="Make the program anew.")
def an_address_is_compiled_into_a_kernel(mesh):
    source, target = tiles(mesh), tiles(mesh, 0.0)
    args = [source.buffer_address()]
    program, (_, writer) = copier(source=lambda: get_compile_time_arg_val(0), compile_args=args)
    give(program, writer, target)
    keep = replaced(mesh, source)
    launch(mesh, workload_of(mesh, program))
    assert keep.is_allocated()


@mistake(Told.STRICT, "which it was given before", symptom=ANOTHER, mend=ANEW)
def a_common_argument_names_a_freed_tensor(mesh):
    source, target = tiles(mesh), tiles(mesh, 0.0)
    program, (reader, writer) = copier(source=lambda: get_common_arg_val(0))
    metal.SetCommonRuntimeArgs(program, reader, [source.buffer_address()])
    give(program, writer, target)
    keep = replaced(mesh, source)
    launch(mesh, workload_of(mesh, program))
    assert keep.is_allocated()


@unknowable(
    "A kernel may make addresses of any numbers, and of what it finds in memory: those that it was given do not tell "
    "which tensor it means.",
    symptom=ANOTHER,
    mend="Give the kernel whole addresses, and the new ones before each launch.",
)
def a_kernel_counts_its_address_from_another_number(mesh):
    source, target = tiles(mesh), tiles(mesh, 0.0)
    program, (reader, writer) = copier(source=lambda: 32 * get_arg_val(0))
    metal.SetRuntimeArgs(program, reader, ttnn.CoreCoord(0, 0), [source.buffer_address() // 32])
    give(program, writer, target)
    keep = replaced(mesh, source)
    launch(mesh, workload_of(mesh, program))
    assert keep.is_allocated()


@right
def a_kernel_is_given_the_new_address(mesh):
    source, target = tiles(mesh), tiles(mesh, 0.0)
    program, (reader, writer) = copier()
    workload = None
    for value in (1.0, 2.0):
        give(program, reader, source)
        give(program, writer, target)
        workload = workload or workload_of(mesh, program)
        launch(mesh, workload)
        source = replaced(mesh, source, value)


@right
def a_word_of_the_arguments_is_set_to_the_new_address(mesh):
    source, target = tiles(mesh), tiles(mesh, 0.0)
    program, (reader, writer) = copier()
    give(program, reader, source)
    give(program, writer, target)
    source = replaced(mesh, source)
    metal.GetRuntimeArgs(program, reader, ttnn.CoreCoord(0, 0))[0] = source.buffer_address()
    launch(mesh, workload_of(mesh, program))


@right
def a_kernel_asks_a_tensor_for_its_address(mesh):
    held = {"source": tiles(mesh), "target": tiles(mesh, 0.0)}
    program, _ = copier(source=lambda: held["source"].buffer_address(), target=lambda: held["target"].buffer_address())
    workload = workload_of(mesh, program)
    for value in (1.0, 2.0):
        launch(mesh, workload)
        held["source"] = replaced(mesh, held["source"], value)
