"""Object API of kernels: `Noc`, `CircularBuffer`, `Semaphore`, as TT-Metalium's newer kernels write the same calls."""

from __future__ import annotations

from typing import NamedTuple

from softmesh.errors import MeshError
from softmesh.kernels.calls import circular_buffers, noc, semaphores
from softmesh.kernels.calls.tensor_accessor import TensorAccessor
from softmesh.kernels.engine.noc_address import encode, encode_multicast
from softmesh.kernels.engine.scheduler import here


class CircularBuffer:
    """One index of this core's circular buffers. As a place for transfers it is the window a kernel holds of it."""

    def __init__(self, cb_id: int) -> None:
        self.cb_id = int(cb_id)

    def __repr__(self) -> str:
        return f"CircularBuffer({self.cb_id})"

    def reserve_back(self, num_pages: int) -> None:
        circular_buffers.cb_reserve_back(self.cb_id, num_pages)

    def push_back(self, num_pages: int) -> None:
        circular_buffers.cb_push_back(self.cb_id, num_pages)

    def wait_front(self, num_pages: int) -> None:
        circular_buffers.cb_wait_front(self.cb_id, num_pages)

    def pop_front(self, num_pages: int) -> None:
        circular_buffers.cb_pop_front(self.cb_id, num_pages)

    def pages_reservable_at_back(self, num_pages: int) -> bool:
        return circular_buffers.cb_pages_reservable_at_back(self.cb_id, num_pages)

    def pages_available_at_front(self, num_pages: int) -> bool:
        return circular_buffers.cb_pages_available_at_front(self.cb_id, num_pages)

    def get_write_ptr(self) -> int:
        return circular_buffers.get_write_ptr(self.cb_id)

    def get_read_ptr(self) -> int:
        return circular_buffers.get_read_ptr(self.cb_id)

    def get_tile_size(self) -> int:
        return circular_buffers.get_tile_size(self.cb_id)


class UnicastEndpoint(NamedTuple):
    """A byte in the L1 of one core, by its place on the NoC."""

    noc_x: int
    noc_y: int
    addr: int


class MulticastEndpoint(NamedTuple):
    """The same address on every core of a rectangle."""

    noc_x_start: int
    noc_y_start: int
    noc_x_end: int
    noc_y_end: int
    addr: int


Remote = TensorAccessor | UnicastEndpoint | int  # an int is a NoC address
Local = CircularBuffer | int  # an int is an L1 address


class Noc:
    """Transfers and barriers. Which of the two NoCs it stands for changes nothing here."""

    def __init__(self, noc_id: int = 0) -> None:
        self.noc_id = noc_id

    def __repr__(self) -> str:
        return f"Noc({self.noc_id})"

    def async_read(
        self,
        src: Remote,
        dst: Local,
        size: int,
        *,
        page_id: int = 0,
        src_offset: int = 0,
        dst_offset: int = 0,
    ) -> None:
        """From a page of a tensor, another core or a NoC address into L1: the window at a circular buffer's back."""
        to = dst.get_write_ptr() if isinstance(dst, CircularBuffer) else int(dst)
        noc.noc_async_read(_address(src, page_id, src_offset), to + dst_offset, size)

    def async_write(
        self,
        src: Local,
        dst: Remote,
        size: int,
        *,
        page_id: int = 0,
        src_offset: int = 0,
        dst_offset: int = 0,
    ) -> None:
        """From L1, or the window at a circular buffer's front."""
        start = src.get_read_ptr() if isinstance(src, CircularBuffer) else int(src)
        noc.noc_async_write(start + src_offset, _address(dst, page_id, dst_offset), size)

    def async_write_multicast(
        self, src: Local, dst: MulticastEndpoint, size: int, num_dests: int, *, include_self: bool = False
    ) -> None:
        start = src.get_write_ptr() if isinstance(src, CircularBuffer) else int(src)
        call = noc.noc_async_write_multicast_loopback_src if include_self else noc.noc_async_write_multicast
        call(start, encode_multicast(*dst), size, num_dests)

    def inline_dw_write(self, dst: Remote, value: int) -> None:
        noc.noc_inline_dw_write(_address(dst, 0, 0), value)

    def async_read_barrier(self) -> None:
        noc.noc_async_read_barrier()

    def async_write_barrier(self) -> None:
        noc.noc_async_write_barrier()

    def async_writes_flushed(self) -> None:
        noc.noc_async_writes_flushed()

    def async_atomic_barrier(self) -> None:
        noc.noc_async_atomic_barrier()

    def async_full_barrier(self) -> None:
        noc.noc_async_full_barrier()


def _address(place: Remote, page_id: int, offset: int) -> int:
    if isinstance(place, TensorAccessor):
        return place.get_noc_addr(page_id, offset)
    if isinstance(place, UnicastEndpoint):
        return encode(place.noc_x, place.noc_y, place.addr + offset)
    return int(place) + offset


class Semaphore:
    """A semaphore of the program, by its id."""

    def __init__(self, semaphore_id: int) -> None:
        self.id = semaphore_id

    def __repr__(self) -> str:
        return f"Semaphore({self.id})"

    @property
    def address(self) -> int:
        return semaphores.get_semaphore(self.id)

    def up(self, *place_and_value: Noc | int) -> None:
        """`up(value)` here; `up(noc, x, y, value)` on another core."""
        if len(place_and_value) == 4:
            _, x, y, value = place_and_value
            semaphores.noc_semaphore_inc(encode(int(x), int(y), self.address), int(value))  # type: ignore[arg-type]
            return
        if len(place_and_value) != 1:
            raise MeshError("Semaphore.up() takes (value), or (noc, x, y, value) for another core.")
        core = here("Semaphore.up").core
        core.store(self.address, core.word(self.address) + int(place_and_value[0]), adds=True)  # type: ignore[arg-type]

    def down(self, value: int) -> None:
        """Wait until it is `value` or more, and take that much off."""
        self.wait_min(value)
        core = here("Semaphore.down").core
        core.store(self.address, core.word(self.address) - value, adds=True)

    def wait(self, value: int) -> None:
        semaphores.noc_semaphore_wait(self.address, value)

    def wait_min(self, value: int) -> None:
        semaphores.noc_semaphore_wait_min(self.address, value)

    def set(self, value: int) -> None:
        semaphores.noc_semaphore_set(self.address, value)

    def set_multicast(self, noc: Noc, x0: int, y0: int, x1: int, y1: int, num_dests: int) -> None:
        """Copy it to every other core of a rectangle."""
        semaphores.noc_semaphore_set_multicast(self.address, encode_multicast(x0, y0, x1, y1, self.address), num_dests)
