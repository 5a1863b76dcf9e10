"""Circular buffer calls: reserve, fill and push at one end; wait, read and pop at the other; local and global ones."""

from __future__ import annotations

from collections.abc import Sequence

from softmesh.errors import MeshError
from softmesh.kernels.data_formats import DataFormat, datatype_to_dataformat_converter
from softmesh.kernels.engine.fifo import Fifo, RemoteEnd, checked_page_size
from softmesh.kernels.engine.scheduler import KernelThread, data_movement_kernel, here


def fifo_of(thread: KernelThread, call: str, cb_id: int) -> Fifo:
    """The circular buffer of this core under an index."""
    fifo = thread.core.fifos.get(cb_id)
    if fifo is None:
        known = ", ".join(map(str, sorted(thread.core.fifos))) or "none"
        raise MeshError(
            f"{call}: core {thread.core.place} has no circular buffer {int(cb_id)}; its indexes: {known}. "
            "CreateCircularBuffer puts one on a range of cores."
        )
    return fifo


def cb_reserve_back(cb_id: int, num_pages: int) -> None:
    """Wait until so many pages at the back are free."""
    thread = here("cb_reserve_back")
    fifo_of(thread, "cb_reserve_back", cb_id).reserve(thread, num_pages)


def cb_push_back(cb_id: int, num_pages: int) -> None:
    """Publish pages to the consumer."""
    thread = here("cb_push_back")
    fifo_of(thread, "cb_push_back", cb_id).push(thread, num_pages)


def cb_wait_front(cb_id: int, num_pages: int) -> None:
    """Wait until so many pages are there in all, those already waited for included."""
    thread = here("cb_wait_front")
    fifo_of(thread, "cb_wait_front", cb_id).wait(thread, num_pages)


def cb_pop_front(cb_id: int, num_pages: int) -> None:
    """Give pages back to the producer."""
    thread = here("cb_pop_front")
    fifo_of(thread, "cb_pop_front", cb_id).pop(thread, num_pages)


def cb_pages_reservable_at_back(cb_id: int, num_pages: int) -> bool:
    thread = here("cb_pages_reservable_at_back")
    fifo = fifo_of(thread, "cb_pages_reservable_at_back", cb_id)
    if fifo.free < num_pages:
        thread.poll(f"cb_pages_reservable_at_back({int(cb_id)}, {num_pages})")
    if fifo.free < num_pages:
        return False
    fifo.learn_of_room(thread, num_pages)
    fifo.reserved = max(fifo.reserved, num_pages)
    return True


def cb_pages_available_at_front(cb_id: int, num_pages: int) -> bool:
    thread = here("cb_pages_available_at_front")
    fifo = fifo_of(thread, "cb_pages_available_at_front", cb_id)
    if fifo.available < num_pages:
        thread.poll(f"cb_pages_available_at_front({int(cb_id)}, {num_pages})")
    if fifo.available < num_pages:
        return False
    fifo.learn_of_pages(thread, num_pages)
    fifo.waited = max(fifo.waited, num_pages)
    return True


def get_write_ptr(cb_id: int) -> int:
    """The L1 address of the first page of the window at the back."""
    return fifo_of(here("get_write_ptr"), "get_write_ptr", cb_id).write_pointer


def get_read_ptr(cb_id: int) -> int:
    """The L1 address of the first page of the window at the front."""
    return fifo_of(here("get_read_ptr"), "get_read_ptr", cb_id).read_pointer


def get_tile_size(cb_id: int) -> int:
    """Bytes of one tile in the format of this circular buffer."""
    format = fifo_of(here("get_tile_size"), "get_tile_size", cb_id).format
    return format.tile.get_tile_size(format.dtype)


def get_dataformat(cb_id: int) -> DataFormat:
    return datatype_to_dataformat_converter(fifo_of(here("get_dataformat"), "get_dataformat", cb_id).format.dtype)


# Global circular buffers: a sender core writes pages into the L1 of its receivers, in one program or across several.


def remote_cb_reserve_back(cb_id: int, num_pages: int) -> None:
    """Wait until all receivers have room for so many pages."""
    thread = data_movement_kernel("remote_cb_reserve_back")
    _sender(thread, "remote_cb_reserve_back", cb_id).wait(thread, "remote_cb_reserve_back", num_pages)


def remote_cb_push_back_and_write_pages(
    cb_id: int,
    local_cb_addr: int,
    num_pages: int,
    num_rows: int,
    coalesced_num_pages_per_row: int,
    coalesced_page_size: int,
    noc: int | None = None,
) -> None:
    """Write pages into the L1 of each receiver and publish them.

    The block at `local_cb_addr` has `num_rows` rows. Each row has a part for the first receiver, then one for the
    next; a part is `coalesced_num_pages_per_row` packets of `coalesced_page_size` bytes. A receiver gets its parts
    one after the other: `num_pages` pages.
    """
    call = "remote_cb_push_back_and_write_pages"
    thread = data_movement_kernel(call)
    end = _sender(thread, call, cb_id)
    end.check(f"{call}({int(cb_id)}, num_pages={num_pages})", num_pages)
    part = coalesced_num_pages_per_row * coalesced_page_size
    if num_rows * part != num_pages * end.page_size:
        raise MeshError(
            f"{call}({int(cb_id)}): {num_rows} rows of {coalesced_num_pages_per_row} x {coalesced_page_size} bytes "
            f"are {num_rows * part} bytes for each receiver, and {num_pages} pages of {end.page_size} bytes are "
            f"{num_pages * end.page_size}."
        )
    if not end.has_room(num_pages):
        raise MeshError(
            f"{call}({int(cb_id)}, num_pages={num_pages}) overwrites pages that a receiver has not read: "
            f"{end.state()}. Call remote_cb_reserve_back({int(cb_id)}, {num_pages}) first, which waits for room."
        )
    receivers = end.fifo.parts[1:]
    for i, receiver in enumerate(receivers):
        target = thread.core.chip.core(receiver)
        for row in range(num_rows):
            source = int(local_cb_addr) + (row * len(receivers) + i) * part
            target.write(end.pointer + row * part, thread.core.read(source, part))
    end.advance(num_pages)


def remote_cb_wait_front(cb_id: int, num_pages: int) -> None:
    """Wait until the sender has written so many pages."""
    thread = here("remote_cb_wait_front")
    _receiver(thread, "remote_cb_wait_front", cb_id).wait(thread, "remote_cb_wait_front", num_pages)


def remote_cb_pop_front(cb_id: int, num_pages: int, noc: int | None = None) -> None:
    """Give pages back to the sender."""
    call = "remote_cb_pop_front"
    end = _receiver(here(call), call, cb_id)
    end.check(f"{call}({int(cb_id)}, {num_pages})", num_pages)
    if not end.has_pages(num_pages):
        raise MeshError(
            f"{call}({int(cb_id)}, {num_pages}) takes pages that are not there: {end.state()}. Call "
            f"remote_cb_wait_front({int(cb_id)}, {num_pages}) first, which waits for them."
        )
    end.advance(num_pages)


def resize_remote_sender_cb_interface(cb_id: int, page_size: int, noc: int | None = None) -> None:
    """From here on the sender writes pages of this size; receivers change theirs at the same place of the stream."""
    call = "resize_remote_sender_cb_interface"
    _sender(here(call), call, cb_id).page_size = checked_page_size(call, page_size)


def resize_remote_receiver_cb_interface(cb_id: int, page_size: int, noc: int | None = None) -> None:
    call = "resize_remote_receiver_cb_interface"
    _receiver(here(call), call, cb_id).page_size = checked_page_size(call, page_size)


class RemoteInterface:
    """Where a core stands in a global circular buffer."""

    def __init__(self, end: RemoteEnd) -> None:
        self._end = end

    @property
    def fifo_start_addr(self) -> int:
        return self._end.fifo.address

    @property
    def fifo_page_size(self) -> int:
        return self._end.page_size


class RemoteSenderInterface(RemoteInterface):
    @property
    def fifo_wr_ptr(self) -> int:
        return self._end.pointer

    @property
    def num_receivers(self) -> int:
        return len(self._end.fifo.parts) - 1


class RemoteReceiverInterface(RemoteInterface):
    @property
    def fifo_rd_ptr(self) -> int:
        return self._end.pointer


def get_remote_sender_cb_interface(cb_id: int) -> RemoteSenderInterface:
    call = "get_remote_sender_cb_interface"
    return RemoteSenderInterface(_sender(here(call), call, cb_id))


def get_remote_receiver_cb_interface(cb_id: int) -> RemoteReceiverInterface:
    call = "get_remote_receiver_cb_interface"
    return RemoteReceiverInterface(_receiver(here(call), call, cb_id))


def align_local_cbs_to_remote_cb(remote_cb_index: int, local_cb_indices: Sequence[int]) -> None:
    """Let local circular buffers in the same memory begin where the next page of the global one lies."""
    call = "align_local_cbs_to_remote_cb"
    thread = here(call)
    end = _end(thread, call, remote_cb_index)
    for index in local_cb_indices:
        fifo = fifo_of(thread, call, index)
        page, rest = divmod(end.pointer - fifo.address, fifo.page_size)
        if fifo.available or rest or not 0 <= page < fifo.capacity:
            raise MeshError(
                f"{call}: circular buffer {fifo.index} cannot begin at {end.pointer}: it has {fifo.capacity} pages of "
                f"{fifo.page_size} bytes from {fifo.address} on, of which {fifo.available} are full. Let it share "
                "the memory and the page size, and pop what it holds first."
            )
        fifo.begin_at(page)


def _sender(thread: KernelThread, call: str, cb_id: int) -> RemoteEnd:
    end = _end(thread, call, cb_id)
    if not end.is_sender:
        raise MeshError(
            f"{call}: core {thread.core.place} receives from core {end.fifo.parts[0]} in global circular buffer "
            f"{int(cb_id)}. Receivers call remote_cb_wait_front and remote_cb_pop_front."
        )
    return end


def _receiver(thread: KernelThread, call: str, cb_id: int) -> RemoteEnd:
    end = _end(thread, call, cb_id)
    if end.is_sender:
        raise MeshError(
            f"{call}: core {thread.core.place} is the sender of global circular buffer {int(cb_id)}. Senders call "
            "remote_cb_reserve_back and remote_cb_push_back_and_write_pages."
        )
    return end


def _end(thread: KernelThread, call: str, cb_id: int) -> RemoteEnd:
    end = thread.core.remote_ends.get(cb_id)
    if end is None:
        known = ", ".join(map(str, sorted(thread.core.remote_ends))) or "none"
        raise MeshError(
            f"{call}: core {thread.core.place} has no global circular buffer {int(cb_id)}; its remote indexes: "
            f"{known}. CreateCircularBuffer(program, cores, config, global_circular_buffer) gives one, with "
            "config.remote_index(index)."
        )
    return end
