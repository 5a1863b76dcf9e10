"""The tensor prefetcher of a mesh (start, stop, queue requests) and dram_prefetcher.

Everything here runs in order, so there is nothing to fetch ahead. Requests are recorded, so that a program which
would wait for ever on a chip gets an error.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from typing import NamedTuple
from weakref import WeakKeyDictionary, ref

from softmesh.arguments import checked, checked_int, checked_ints, described, refused, reject_unknown_keywords
from softmesh.errors import MeshError, NotModelled
from softmesh.hardware import Arch
from softmesh.hardware.memory_config import DRAM_MEMORY_CONFIG, BufferType
from softmesh.kinds import Kind
from softmesh.mesh import MeshCoordinateRangeSet
from softmesh.ops.prefetcher.prefetch_buffers import A_TENSOR
from softmesh.runtime.buffers.global_buffers import GlobalCircularBuffer
from softmesh.runtime.commands import emit, observed
from softmesh.runtime.device import MeshDevice, checked_open
from softmesh.runtime.queues.queue_id import QueueId
from softmesh.tensor.device_allocation import allocate_tensor_on_device
from softmesh.tensor.dtype import TILE_SIZE
from softmesh.tensor.tensor import Tensor

_REMEMBERED = 1024  # requests; programs ask for the same ones again at every step
_A_BUFFER = "a buffer of ttnn.experimental.create_global_circular_buffer_for_tensor_prefetcher(...)"


class Request(NamedTuple):
    """One tensor, to be sent in `blocks` blocks; the rotation says with which of them each receiver starts."""

    buffer: GlobalCircularBuffer
    tensor: ref[Tensor]
    blocks: int
    rotation: tuple[int, ...] = ()


class Prefetcher:
    def __init__(self) -> None:
        self.is_running = False
        self.requests: deque[Request] = deque(maxlen=_REMEMBERED)

    def sent(self, buffer: GlobalCircularBuffer) -> list[Request]:
        return [request for request in self.requests if request.buffer is buffer]


_PREFETCHERS: WeakKeyDictionary[MeshDevice, Prefetcher] = WeakKeyDictionary()


def prefetcher_of(mesh: MeshDevice) -> Prefetcher:
    return _PREFETCHERS.setdefault(mesh, Prefetcher())


@reject_unknown_keywords
def is_tensor_prefetcher_supported(mesh_device: MeshDevice) -> bool:
    """Whether the chips have cores at their DRAM banks that can send by themselves: Blackhole has."""
    return checked_open("is_tensor_prefetcher_supported", "mesh_device", mesh_device).arch() is Arch.BLACKHOLE


@reject_unknown_keywords
def start_tensor_prefetcher(
    mesh_device: MeshDevice,
    *,
    free_sender_mpfe_weight: int | None = None,
    noc1_sender_mpfe_weight: int | None = None,
    ordinary_mpfe_weight: int | None = None,
    dynamic_mpfe_weighting: bool | None = None,
) -> None:
    """From now on the DRAM banks send what queue_tensor_prefetcher_request asks for; the weights share bandwidth."""
    where = "start_tensor_prefetcher"
    mesh = checked_open(where, "mesh_device", mesh_device)
    if not is_tensor_prefetcher_supported(mesh):
        raise MeshError(
            f"{where}: {mesh.arch()} has no cores that send from DRAM by themselves: use ttnn.dram_prefetcher, or "
            "ask ttnn.experimental.is_tensor_prefetcher_supported(mesh_device) first."
        )
    weights = (free_sender_mpfe_weight, noc1_sender_mpfe_weight, ordinary_mpfe_weight)
    for weight in weights:
        if weight is not None and checked_int(where, "a weight", weight) < 0:
            raise MeshError(f"{where}: a weight of bandwidth is 0 or more, got {weight}.")
    state = prefetcher_of(mesh)
    if state.is_running:
        raise MeshError(f"{where}: the prefetcher of {mesh} runs already: stop_tensor_prefetcher first.")
    state.is_running = True
    _report_command(where, mesh, ())


@reject_unknown_keywords
def stop_tensor_prefetcher(mesh_device: MeshDevice) -> None:
    """Requests that were made are served first."""
    where = "stop_tensor_prefetcher"
    mesh = checked_open(where, "mesh_device", mesh_device)
    state = _running(where, mesh)
    state.is_running = False
    state.requests.clear()
    _report_command(where, mesh, ())


def _running(where: str, mesh: MeshDevice) -> Prefetcher:
    state = prefetcher_of(mesh)
    if not state.is_running:
        raise MeshError(
            f"{where}: the prefetcher of {mesh} does not run, and nobody would answer: call "
            "ttnn.experimental.start_tensor_prefetcher(mesh_device) first."
        )
    return state


@reject_unknown_keywords
def queue_tensor_prefetcher_request(
    mesh_device: MeshDevice,
    tensors: Sequence[tuple[Tensor, int] | tuple[Tensor, int, Sequence[int]]],
    global_cb: GlobalCircularBuffer | None = None,
    *,
    prefetcher_pipes: Sequence[object] = (),
    device_subset: MeshCoordinateRangeSet | None = None,
    capture_into_trace: bool = False,
) -> None:
    """Ask for (tensor, number of blocks) or (tensor, number of blocks, rotation), one after the other."""
    where = "queue_tensor_prefetcher_request"
    mesh = checked_open(where, "mesh_device", mesh_device)
    state = _running(where, mesh)
    if prefetcher_pipes:
        raise NotModelled(f"{where}: prefetcher_pipes are not modelled: send through a global circular buffer.")
    buffer = checked_buffer(where, mesh, global_cb)
    _check_subset(where, mesh, device_subset)
    if capture_into_trace and not mesh.captures.recordings:
        raise MeshError(
            f"{where}: capture_into_trace=True, and no trace is being captured: ttnn.begin_trace_capture first."
        )
    asked = [_request(where, mesh, buffer, i, entry) for i, entry in enumerate(_entries(where, tensors))]
    state.requests.extend(request for request, _ in asked)
    _report_command(where, mesh, [tensor for _, tensor in asked])


def _entries(where: str, tensors: object) -> list[object]:
    found = list(tensors) if isinstance(tensors, Iterable) and not isinstance(tensors, str | Tensor) else []
    if not found:
        raise refused(where, f"tensors must be a list of (tensor, number of blocks), got {described(tensors)}")
    return found


def _request(
    where: str, mesh: MeshDevice, buffer: GlobalCircularBuffer, i: int, entry: object
) -> tuple[Request, Tensor]:
    if not isinstance(entry, tuple | list) or len(entry) not in (2, 3):
        raise refused(
            where,
            f"tensors[{i}] must be (tensor, number of blocks) or with a rotation, got {described(entry)}",
        )
    tensor = checked_weight(where, mesh, f"tensors[{i}]", entry[0])
    blocks = checked_int(where, f"the blocks of tensors[{i}]", entry[1])
    if blocks < 1:
        raise MeshError(f"{where}: tensors[{i}] is sent in {blocks} blocks: give 1 or more.")
    rotation = checked_ints(where, f"the rotation of tensors[{i}]", entry[2]) if len(entry) == 3 else []
    if any(not 0 <= first < blocks for first in rotation):
        raise MeshError(f"{where}: the rotation {rotation} of tensors[{i}] leaves its {blocks} blocks.")
    return Request(buffer, ref(tensor), blocks, tuple(rotation)), tensor


def checked_weight(where: str, mesh: MeshDevice, name: str, given: object) -> Tensor:
    """A tensor on the mesh, in DRAM."""
    tensor = checked(where, name, given, Tensor, A_TENSOR)
    tensor.check_allocated(where)
    if tensor.device() is not mesh:
        raise MeshError(f"{where}: {name} lies on {tensor.device() or 'the host'}, the prefetcher on {mesh}.")
    if tensor.memory_config().buffer_type is not BufferType.DRAM:
        raise MeshError(f"{where}: {name} lies in {tensor.memory_config().buffer_type}: it is fetched from DRAM.")
    return tensor


def checked_buffer(where: str, mesh: MeshDevice, buffer: object) -> GlobalCircularBuffer:
    found = checked(where, "global_cb", buffer, GlobalCircularBuffer, _A_BUFFER)
    if found.device() is not mesh:
        raise MeshError(f"{where}: global_cb was made for {found.device()}, and not for {mesh}.")
    return found


def _check_subset(where: str, mesh: MeshDevice, subset: object) -> None:
    if subset is None:
        return
    ranges = checked(where, "device_subset", subset, MeshCoordinateRangeSet, "a ttnn.MeshCoordinateRangeSet")
    known = set(mesh.shape.coordinates())
    outside = [coord for coord in ranges.coords() if coord not in known]
    if outside:
        raise MeshError(f"{where}: device_subset names {outside[0]}, which {mesh.shape} does not have.")


@reject_unknown_keywords
def wait_for_cq_on_tensor_prefetcher(
    mesh_device: MeshDevice,
    cq_id: int | QueueId | None = None,
    *,
    device_subset: MeshCoordinateRangeSet | None = None,
) -> None:
    """Let the prefetcher wait until a queue has done what was put on it."""
    where = "wait_for_cq_on_tensor_prefetcher"
    mesh = checked_open(where, "mesh_device", mesh_device)
    _running(where, mesh)
    _check_subset(where, mesh, device_subset)
    mesh.mesh_command_queue(cq_id)  # refuses a queue that is not there
    _report_command(where, mesh, ())


def _report_command(where: str, mesh: MeshDevice, tensors: Sequence[Tensor]) -> None:
    if observed():
        emit(f"experimental.{where}", Kind.MOVEMENT, tensors, (), coords=tuple(mesh.shape.coordinates()), device=mesh)


# -- dram_prefetcher, which runs on worker cores; and the kernels that TT-NN's own tests of it use ----


@reject_unknown_keywords
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
        raise NotModelled(f"{where}: prefetcher_pipes are not modelled: send through a global circular buffer.")
    if not isinstance(tensors, list | tuple) or not tensors:
        raise refused(where, "tensors must be a list of weights, and behind them the tensor of their addresses")
    layers = checked_int(where, "num_layers", num_layers)
    if layers < 1:
        raise MeshError(f"{where}: num_layers must be 1 or more, got {layers}.")
    first = checked(where, "tensors[0]", tensors[0], Tensor, A_TENSOR)
    mesh = checked_open(where, "mesh_device", first.device())
    buffer = checked_buffer(where, mesh, global_cb)
    weights, last = list(tensors[:-1]) or [first], tensors[-1]
    for i, weight in enumerate(weights):
        checked_weight(where, mesh, f"tensors[{i}]", weight)
    if checked(where, "the last of tensors", last, Tensor, A_TENSOR).device() is not mesh:
        raise MeshError(f"{where}: the tensor of addresses lies on {last.device() or 'the host'}, not on {mesh}.")
    state = prefetcher_of(mesh)
    _forget(state, buffer)
    state.requests.extend(Request(buffer, ref(weight), layers) for weight in weights)
    made = allocate_tensor_on_device((TILE_SIZE, TILE_SIZE), first.dtype, first.layout, mesh, DRAM_MEMORY_CONFIG)
    if observed():
        emit(where, Kind.MOVEMENT, weights, [made], coords=tuple(mesh.shape.coordinates()), device=mesh)
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


@reject_unknown_keywords
def dram_prefetcher_consumer(
    mesh_device: MeshDevice, num_iters: int, page_size_bytes: int, *, global_cb: GlobalCircularBuffer
) -> None:
    """Take `num_iters` pages out of the buffer; an error where nothing was sent into it."""
    where = "test_dram_prefetcher_consumer"
    mesh = checked_open(where, "mesh_device", mesh_device)
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


@reject_unknown_keywords
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
    mesh = checked_open(where, "mesh_device", mesh_device)
    buffer = checked_buffer(where, mesh, global_cb)
    source = checked_weight(where, mesh, "source_tensor", source_tensor)
    layers = checked_int(where, "num_layers", num_layers)
    checked_int(where, "print_stride", print_stride)
    checked_ints(where, "rotation", rotation)
    if layers < 1:
        raise MeshError(f"{where}: num_layers must be 1 or more, got {layers}.")
    held = [request.tensor() for request in _sent(where, mesh, buffer)]
    if not any(one is not None and one.storage is source.storage for one in held):
        raise MeshError(f"{where}: source_tensor {list(source.shape)} is none of those that were sent into global_cb.")
    _forget(prefetcher_of(mesh), buffer)
