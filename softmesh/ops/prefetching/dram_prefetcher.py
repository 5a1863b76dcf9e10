"""dram_prefetcher, which runs on worker cores; and the kernels that TT-NN's own tests of prefetchers use."""

from __future__ import annotations

from collections.abc import Sequence
from weakref import ref

from softmesh.arguments import checked, checked_int, checked_ints, knows_its_names, refused
from softmesh.errors import MeshError, NotModelled
from softmesh.ops.creation import zeros
from softmesh.ops.prefetching.circular_buffers import A_TENSOR
from softmesh.ops.prefetching.requests import (
    Prefetcher,
    Request,
    checked_buffer,
    checked_weight,
    open_mesh,
    prefetcher_of,
)
from softmesh.runtime.buffers.global_circular_buffer import GlobalCircularBuffer
from softmesh.runtime.commands import emit, observed
from softmesh.runtime.device import MeshDevice
from softmesh.tensor.dtype import DataType, Layout
from softmesh.tensor.tensor import Tensor


@knows_its_names
def dram_prefetcher(
    tensors: Sequence[Tensor],
    num_layers: int,
    global_cb: GlobalCircularBuffer | None = None,
    *,
    enable_performance_mode: bool = False,
    prefetcher_pipes: Sequence[object] = (),
) -> Tensor:
    """Bring the weights of `num_layers` layers into `global_cb`, for the matmuls that are given it.

    The last of `tensors` holds the addresses of all of them. What comes back is a tensor to deallocate when the
    prefetcher is done; its contents mean nothing.
    """
    where = "dram_prefetcher"
    if prefetcher_pipes:
        raise NotModelled(
            f"{where}: prefetcher_pipes are not modelled: send through a global circular buffer."
        )
    if not isinstance(tensors, list | tuple) or not tensors:
        raise refused(
            where, "tensors must be a list of weights, and behind them the tensor of their addresses"
        )
    layers = checked_int(where, "num_layers", num_layers)
    if layers < 1:
        raise MeshError(f"{where}: num_layers must be 1 or more, got {layers}.")
    first = checked(where, "tensors[0]", tensors[0], Tensor, A_TENSOR)
    mesh = open_mesh(where, first.device())
    buffer = checked_buffer(where, mesh, global_cb)
    weights, last = list(tensors[:-1]) or [first], tensors[-1]
    for i, weight in enumerate(weights):
        checked_weight(where, mesh, f"tensors[{i}]", weight)
    if checked(where, "the last of tensors", last, Tensor, A_TENSOR).device() is not mesh:
        raise MeshError(
            f"{where}: the tensor of addresses lies on {last.device() or 'the host'}, not on {mesh}."
        )
    state = prefetcher_of(mesh)
    _forget(state, buffer)
    state.requests.extend(Request(buffer, ref(weight), layers) for weight in weights)
    made = zeros((32, 32), DataType.BFLOAT16, Layout.TILE, mesh)
    if observed():
        emit(where, weights, [made], coords=tuple(mesh.shape.coordinates()), device=mesh)
    return made


def _forget(state: Prefetcher, buffer: GlobalCircularBuffer) -> None:
    kept = [request for request in state.requests if request.buffer is not buffer]
    state.requests.clear()
    state.requests.extend(kept)


def _sent(where: str, mesh: MeshDevice, buffer: GlobalCircularBuffer) -> list[Request]:
    found = prefetcher_of(mesh).sent(buffer)
    if not found:
        raise MeshError(
            f"{where}: nobody sends into {buffer}, and on a chip this waits for ever: queue a request first, or run "
            "ttnn.dram_prefetcher with this global_cb."
        )
    return found


@knows_its_names
def dram_prefetcher_consumer(
    mesh_device: MeshDevice, num_iters: int, page_size_bytes: int, *, global_cb: GlobalCircularBuffer
) -> None:
    """Take `num_iters` pages out of the buffer; an error where nothing was sent into it."""
    where = "test_dram_prefetcher_consumer"
    mesh = open_mesh(where, mesh_device)
    buffer = checked_buffer(where, mesh, global_cb)
    pages, size = (
        checked_int(where, "num_iters", num_iters),
        checked_int(where, "page_size_bytes", page_size_bytes),
    )
    if pages < 1 or not 1 <= size <= buffer.size():
        raise MeshError(
            f"{where}: {pages} pages of {size} bytes: take 1 or more, of at most {buffer.size()} bytes each."
        )
    _sent(where, mesh, buffer)
    _forget(prefetcher_of(mesh), buffer)


@knows_its_names
def dram_prefetcher_validator(
    mesh_device: MeshDevice,
    source_tensor: Tensor,
    num_layers: int,
    print_stride: int,
    *,
    global_cb: GlobalCircularBuffer,
    streaming: bool = False,
    rotation: Sequence[int] = (),
) -> None:
    """Compare what arrives in the buffer with the tensor; an error where that tensor was not sent into it."""
    where = "test_dram_prefetcher_validator"
    mesh = open_mesh(where, mesh_device)
    buffer = checked_buffer(where, mesh, global_cb)
    source = checked_weight(where, mesh, "source_tensor", source_tensor)
    layers = checked_int(where, "num_layers", num_layers)
    checked_int(where, "print_stride", print_stride)
    checked_ints(where, "rotation", rotation)
    if layers < 1:
        raise MeshError(f"{where}: num_layers must be 1 or more, got {layers}.")
    held = [request.tensor() for request in _sent(where, mesh, buffer)]
    if not any(one is not None and one.storage is source.storage for one in held):
        raise MeshError(
            f"{where}: source_tensor {list(source.shape)} is none of those that were sent into global_cb."
        )
    _forget(prefetcher_of(mesh), buffer)
