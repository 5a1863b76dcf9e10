"""The byte stream between the host and one core within one process, and tensors encoded as its bytes.

A shard is sent as its pages, each padded to its alignment. `ByteStream` also counts how full the FIFO would be.
"""

from __future__ import annotations

from collections.abc import Generator

import torch
from torch.nn.functional import pad

from softmesh.errors import MeshError
from softmesh.runtime.device import MeshDevice
from softmesh.sockets.transfer_queue import watch_fifo
from softmesh.tensor.page_bytes import from_pages, to_pages
from softmesh.tensor.spec import TensorSpec


def byte_count(spec: TensorSpec) -> int:
    return spec.num_pages() * spec.aligned_page_size()


def to_bytes(values: torch.Tensor, spec: TensorSpec) -> torch.Tensor:
    """Of one piece, whose values are in the storage's type."""
    pages = to_pages(values.detach().cpu(), spec)
    return pad(pages, (0, spec.aligned_page_size() - spec.page_size())).reshape(-1)


def from_bytes(data: torch.Tensor, spec: TensorSpec) -> torch.Tensor:
    """The values of a piece, in the storage's type; the inverse of `to_bytes`."""
    pages = data.reshape(spec.num_pages(), spec.aligned_page_size())
    return from_pages(pages[:, : spec.page_size()], spec)


class ByteStream:
    """`senders` are the devices that would wait while more is in it than fits: none where the host writes."""

    def __init__(self, mesh: MeshDevice, fifo_size: int, senders: frozenset[int]) -> None:
        self.size = fifo_size
        self.senders = senders
        self.page_size = 0
        self.demand = 0  # bytes that receives under way still want
        self._data = torch.empty(0, dtype=torch.uint8)
        self._kept = 0  # bytes that were read, and whose place is not free yet
        watch_fifo(self, mesh)

    @property
    def buffered(self) -> int:
        return self._data.numel()

    @property
    def is_untouched(self) -> bool:
        return not (self.buffered or self._kept or self.demand)

    def put(self, data: torch.Tensor) -> Generator[None, None, None]:
        """However much it is: `blocked` tells where a chip would wait."""
        self._data = torch.cat((self._data, data))
        yield from ()

    def take(self, count: int, *, frees: bool = True) -> Generator[None, None, torch.Tensor]:
        self.demand += count
        try:
            while self.buffered < count:
                yield
        finally:
            self.demand -= count
        taken, self._data = self._data[:count], self._data[count:].clone()
        self._kept = 0 if frees else self._kept + count
        return taken

    def has_room(self, count: int) -> bool:
        """Whether the host can put in so many bytes without waiting for what nobody has asked for."""
        return self.buffered + self._kept + count - self.demand <= self.size

    def blocked(self) -> MeshError | None:
        if self.buffered + self._kept <= self.size or not self.senders:
            return None
        return MeshError(
            f"send_async_d2h never ends: {self.buffered} bytes were sent and not read, and the FIFO holds {self.size}. "
            "A chip would wait for ever. Read them with D2HSocket.read_tensor(...), or make fifo_size larger."
        )
