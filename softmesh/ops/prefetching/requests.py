"""The tensor prefetcher of a mesh: started and stopped, and asked for tensors in between.

Everything here runs in order, so there is nothing to fetch ahead; what is kept is what was asked for, so that a
program that would wait for ever on a chip is told so.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from typing import NamedTuple
from weakref import WeakKeyDictionary, ref

from softmesh.arguments import checked, checked_int, checked_ints, described, knows_its_names, refused
from softmesh.errors import MeshError, NotModelled
from softmesh.hardware import Arch
from softmesh.hardware.memory_config import BufferType
from softmesh.mesh import MeshCoordinateRangeSet
from softmesh.ops.prefetching.circular_buffers import A_MESH_DEVICE, A_TENSOR
from softmesh.runtime.buffers.global_circular_buffer import GlobalCircularBuffer
from softmesh.runtime.commands import emit, observed
from softmesh.runtime.device import MeshDevice
from softmesh.runtime.queues.queue_id import QueueId
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


def open_mesh(where: str, mesh_device: object) -> MeshDevice:
    mesh = checked(where, "mesh_device", mesh_device, MeshDevice, A_MESH_DEVICE)
    mesh.check_open(where)
    return mesh


@knows_its_names
def is_tensor_prefetcher_supported(mesh_device: MeshDevice) -> bool:
    """Whether the chips have cores at their DRAM banks that can send by themselves: Blackhole has."""
    return open_mesh("is_tensor_prefetcher_supported", mesh_device).arch() is Arch.BLACKHOLE


@knows_its_names
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
    mesh = open_mesh(where, mesh_device)
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
    _tell(where, mesh, ())


@knows_its_names
def stop_tensor_prefetcher(mesh_device: MeshDevice) -> None:
    """Requests that were made are served first."""
    where = "stop_tensor_prefetcher"
    mesh = open_mesh(where, mesh_device)
    state = _running(where, mesh)
    state.is_running = False
    state.requests.clear()
    _tell(where, mesh, ())


def _running(where: str, mesh: MeshDevice) -> Prefetcher:
    state = prefetcher_of(mesh)
    if not state.is_running:
        raise MeshError(
            f"{where}: the prefetcher of {mesh} does not run, and nobody would answer: call "
            "ttnn.experimental.start_tensor_prefetcher(mesh_device) first."
        )
    return state


@knows_its_names
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
    mesh = open_mesh(where, mesh_device)
    state = _running(where, mesh)
    if prefetcher_pipes:
        raise NotModelled(
            f"{where}: prefetcher_pipes are not modelled: send through a global circular buffer."
        )
    buffer = checked_buffer(where, mesh, global_cb)
    _check_subset(where, mesh, device_subset)
    if capture_into_trace and not mesh.captures.recordings:
        raise MeshError(
            f"{where}: capture_into_trace=True, and no trace is being captured: ttnn.begin_trace_capture first."
        )
    asked = [_request(where, mesh, buffer, i, entry) for i, entry in enumerate(_entries(where, tensors))]
    state.requests.extend(request for request, _ in asked)
    _tell(where, mesh, [tensor for _, tensor in asked])


def _entries(where: str, tensors: object) -> list[object]:
    found = list(tensors) if isinstance(tensors, Iterable) and not isinstance(tensors, str | Tensor) else []
    if not found:
        raise refused(
            where, f"tensors must be a list of (tensor, number of blocks), got {described(tensors)}"
        )
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
        raise MeshError(
            f"{where}: {name} lies in {tensor.memory_config().buffer_type}: it is fetched from DRAM."
        )
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


@knows_its_names
def wait_for_cq_on_tensor_prefetcher(
    mesh_device: MeshDevice,
    cq_id: int | QueueId | None = None,
    *,
    device_subset: MeshCoordinateRangeSet | None = None,
) -> None:
    """Let the prefetcher wait until a queue has done what was put on it."""
    where = "wait_for_cq_on_tensor_prefetcher"
    mesh = open_mesh(where, mesh_device)
    _running(where, mesh)
    _check_subset(where, mesh, device_subset)
    mesh.mesh_command_queue(cq_id)  # refuses a queue that is not there
    _tell(where, mesh, ())


def _tell(where: str, mesh: MeshDevice, tensors: Sequence[Tensor]) -> None:
    if observed():
        emit(f"experimental.{where}", tensors, (), coords=tuple(mesh.shape.coordinates()), device=mesh)
