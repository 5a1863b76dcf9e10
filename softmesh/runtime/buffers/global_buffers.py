"""GlobalSemaphore and GlobalCircularBuffer: L1 memory at one address on some cores of every chip, across programs.

Both are a mesh buffer with one page in the L1 of each of these cores.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from weakref import ref

import torch

from softmesh import epoch
from softmesh.arguments import KEPT_WEAKLY, checked, checked_int, described, refused, reject_unknown_keywords
from softmesh.cores import CoreCoord, CoreRange, CoreRangeSet, corerange_to_cores
from softmesh.errors import MeshError
from softmesh.hardware.enums import BufferType
from softmesh.hardware.memory_config import ShardOrientation, ShardSpec, TensorMemoryLayout
from softmesh.mesh import MeshCoordinate
from softmesh.runtime.buffers.buffer_config import (
    BufferShardingArgs,
    DeviceLocalBufferConfig,
    ReplicatedBufferConfig,
    Shape2D,
    ShardSpecBuffer,
)
from softmesh.runtime.buffers.mesh_buffer import MeshBuffer
from softmesh.runtime.device import MeshDevice, checked_open
from softmesh.runtime.memory.allocations import Span

A_RANGE_SET = "a ttnn.CoreRangeSet such as ttnn.CoreRangeSet([ttnn.CoreRange((0, 0), (7, 7))])"


def page_per_core(mesh: MeshDevice, cores: CoreRangeSet, page_size: int, buffer_type: BufferType) -> MeshBuffer:
    count = cores.num_cores()
    shards = ShardSpecBuffer(ShardSpec(cores, [1, 1], ShardOrientation.ROW_MAJOR), Shape2D(1, 1), Shape2D(count, 1))
    local = DeviceLocalBufferConfig(
        page_size, buffer_type, BufferShardingArgs(shards, TensorMemoryLayout.HEIGHT_SHARDED)
    )
    return MeshBuffer.create(ReplicatedBufferConfig(count * page_size), local, mesh)


def check_l1(what: str, buffer_type: BufferType) -> BufferType:
    kind = checked(what, "buffer_type", buffer_type, BufferType, "a ttnn.BufferType")
    if kind not in (BufferType.L1, BufferType.L1_SMALL):
        raise MeshError(f"{what} can only be created for L1 buffer types: {kind} is none. Take ttnn.BufferType.L1.")
    return kind


def check_cores(what: str, name: str, cores: CoreRangeSet) -> CoreRangeSet:
    found = checked(what, name, cores, CoreRangeSet, A_RANGE_SET)
    if found.empty():
        raise MeshError(f"{what}: {name} names no core.")
    return found


_WORD = 4  # bytes
_MAX_VALUE = 2**32 - 1


class GlobalSemaphore:
    """`value` is what the host set last; what kernels made of it is in `buffer`."""

    __slots__ = ("__weakref__", "_span", "buffer", "cores", "value")

    def __init__(
        self,
        device: MeshDevice,
        cores: CoreRangeSet,
        initial_value: int,
        buffer_type: BufferType = BufferType.L1,
    ) -> None:
        where = "Global semaphore"
        self.cores = check_cores(where, "cores", cores)
        value = _checked_count("initial_value", initial_value)
        self.buffer = page_per_core(device, cores, _WORD, check_l1(where, buffer_type))
        self._span: Span | None = None
        memory = "" if buffer_type is BufferType.L1 else f", {buffer_type.name}"
        device.tell_ranks(f"create_global_semaphore({self.cores}, {value}{memory})", (self.address(),))
        self._set(value)

    def device(self) -> MeshDevice:
        return self.buffer.device()

    def address(self) -> int:
        return self.buffer.address()

    def span(self) -> Span | None:
        """Where it lies, as traces note that count on it; None once its memory was given back."""
        span = self._span
        if span is None or span.pool is None:
            memory = self.buffer.memory
            pool = self.device().memory.pools[memory.buffer_type]
            self._span = span = Span(pool, memory.address, *pool.extent(memory.address), memory.layout, ref(self))
        else:
            pool = span.pool
        return span if 0 != pool.extent(span.start)[1] == span.number else None

    def reset_semaphore_value(self, reset_value: int) -> None:
        self._set(_checked_count("reset_value", reset_value))
        self.device().tell_ranks(f"reset_global_semaphore_value({self.value})", (self.address(),))

    def _set(self, value: int) -> None:
        self.value = value
        if self.value:
            epoch.invalidate()  # calls that were checked with another value of it
        words = torch.full((self.cores.num_cores(),), self.value, dtype=torch.int64).to(torch.uint32)
        self.device().mesh_command_queue().enqueue_write_mesh_buffer(self.buffer, words)

    def __repr__(self) -> str:
        return f"global_semaphore(address={self.address()}, value={self.value})"


def _checked_count(name: str, value: object) -> int:
    count = checked_int("GlobalSemaphore", name, value)
    if not 0 <= count <= _MAX_VALUE:
        raise refused("GlobalSemaphore", f"{name} must be 0 to {_MAX_VALUE}, got {count}")
    return count


Mapping = Sequence[tuple[CoreCoord, CoreRangeSet]]
_CONFIG_BYTES = 64  # of each core: its part, where the memory begins, and how far it has got
_WHAT = "Global circular buffer"


class GlobalCircularBuffer:
    """`size` bytes in the L1 of every core that takes part; each sender has receivers of its own."""

    __slots__ = ("__weakref__", "_config", "_mapping", "_size", "buffer", "progress")

    def __init__(
        self,
        device: MeshDevice,
        sender_receiver_core_mapping: Mapping,
        size: int,
        buffer_type: BufferType = BufferType.L1,
    ) -> None:
        self._mapping = _checked_mapping(sender_receiver_core_mapping)
        self._size = checked_int(_WHAT, "size", size)
        if self._size <= 0:
            raise refused(_WHAT, f"size counts bytes and must be positive, got {self._size}")
        kind = check_l1(_WHAT, buffer_type)
        # How far a sender, and then each of its receivers, has got on a device: kept between programs.
        self.progress: dict[tuple[MeshCoordinate, CoreCoord], tuple[int, ...]] = {}
        self.buffer = page_per_core(device, self.all_cores(), self._size, kind)
        self._config = page_per_core(device, self.all_cores(), _CONFIG_BYTES, kind)
        groups = "; ".join(f"{sender} to {receivers}" for sender, receivers in self._mapping)
        device.tell_ranks(f"create_global_circular_buffer({groups}, {self._size})", (self.buffer_address(),))

    def device(self) -> MeshDevice:
        return self.buffer.device()

    def size(self) -> int:
        return self._size

    def buffer_address(self) -> int:
        return self.buffer.address()

    def config_address(self) -> int:
        return self._config.address()

    def sender_receiver_core_mapping(self) -> list[tuple[CoreCoord, CoreRangeSet]]:
        return list(self._mapping)

    def sender_cores(self) -> CoreRangeSet:
        return CoreRangeSet([CoreRange(sender, sender) for sender, _ in self._mapping])

    def receiver_cores(self) -> CoreRangeSet:
        return CoreRangeSet([box for _, receivers in self._mapping for box in receivers.ranges()])

    def all_cores(self) -> CoreRangeSet:
        return CoreRangeSet([*self.sender_cores().ranges(), *self.receiver_cores().ranges()])

    def __repr__(self) -> str:
        return f"global_circular_buffer(address={self.buffer_address()}, size={self._size})"


def _checked_mapping(mapping: object) -> tuple[tuple[CoreCoord, CoreRangeSet], ...]:
    wanted = "a list of (sender CoreCoord, receiver CoreRangeSet)"
    if not isinstance(mapping, Iterable):
        raise refused(_WHAT, f"sender_receiver_core_mapping must be {wanted}, got {described(mapping)}")
    pairs = []
    for i, pair in enumerate(mapping):
        if not isinstance(pair, tuple | list) or len(pair) != 2:
            raise refused(_WHAT, f"sender_receiver_core_mapping[{i}] must be of {wanted}, got {described(pair)}")
        sender = checked(_WHAT, f"sender {i}", pair[0], CoreCoord, "a ttnn.CoreCoord")
        pairs.append((sender, check_cores(_WHAT, f"receivers {i}", pair[1])))
    if not pairs:
        raise MeshError(f"{_WHAT}: sender_receiver_core_mapping names no sender. Give {wanted}.")
    _check_one_part_each(pairs)
    return tuple(pairs)


def _check_one_part_each(pairs: list[tuple[CoreCoord, CoreRangeSet]]) -> None:
    parts = [core for sender, receivers in pairs for core in (sender, *corerange_to_cores(receivers))]
    twice = next((core for core in parts if parts.count(core) > 1), None)
    if twice is not None:
        raise MeshError(
            f"{_WHAT}: core {twice} has two parts in sender_receiver_core_mapping: a core is the sender of one group, "
            "or a receiver of one sender."
        )


@reject_unknown_keywords
def create_global_circular_buffer(
    mesh_device: MeshDevice,
    sender_receiver_core_mapping: Sequence[tuple[CoreCoord, CoreRangeSet]],
    size: int,
    buffer_type: BufferType = BufferType.L1,
) -> GlobalCircularBuffer:
    where = "create_global_circular_buffer"
    device = checked_open(where, "mesh_device", mesh_device)
    return GlobalCircularBuffer(device, sender_receiver_core_mapping, size, buffer_type)


KEPT_WEAKLY.update((GlobalSemaphore, GlobalCircularBuffer))
