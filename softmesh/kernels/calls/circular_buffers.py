"""Circular buffers, as kernels see them: reserve, fill and push at one end; wait, read and pop at the other."""

from __future__ import annotations

from softmesh.errors import MeshError
from softmesh.kernels.engine.fifo import Fifo
from softmesh.kernels.engine.thread import KernelThread, here
from softmesh.kernels.formats import DataFormat, datatype_to_dataformat_converter


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
        thread.ask(f"cb_pages_reservable_at_back({int(cb_id)}, {num_pages})")
    return fifo.free >= num_pages


def cb_pages_available_at_front(cb_id: int, num_pages: int) -> bool:
    thread = here("cb_pages_available_at_front")
    fifo = fifo_of(thread, "cb_pages_available_at_front", cb_id)
    if fifo.available < num_pages:
        thread.ask(f"cb_pages_available_at_front({int(cb_id)}, {num_pages})")
    return fifo.available >= num_pages


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
    return datatype_to_dataformat_converter(
        fifo_of(here("get_dataformat"), "get_dataformat", cb_id).format.dtype
    )
