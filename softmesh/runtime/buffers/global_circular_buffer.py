"""GlobalCircularBuffer: memory through which sender cores hand pages to receiver cores, across programs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from softmesh.arguments import checked, checked_int, described, refused
from softmesh.cores import CoreCoord, CoreRange, CoreRangeSet, corerange_to_cores
from softmesh.errors import MeshError
from softmesh.hardware.buffer_type import BufferType
from softmesh.mesh import MeshCoordinate
from softmesh.runtime.buffers.per_core import check_cores, check_l1, page_per_core

if TYPE_CHECKING:
    from softmesh.runtime.device import MeshDevice

Mapping = Sequence[tuple[CoreCoord, CoreRangeSet]]
_CONFIG_BYTES = 64  # of each core: its part, where the memory begins, and how far it has got
_WHAT = "Global circular buffer"


class GlobalCircularBuffer:
    """`size` bytes in the L1 of every core that takes part; each sender has receivers of its own."""

    __slots__ = ("_config", "_mapping", "_size", "buffer", "progress")

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
            raise refused(
                _WHAT, f"sender_receiver_core_mapping[{i}] must be of {wanted}, got {described(pair)}"
            )
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
