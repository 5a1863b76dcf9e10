"""Transfers that repeat: one call sets what stays the same, the next ones give the rest; and transaction ids.

On the chip this saves instructions. Here it is the same transfer, written the same way.
"""

from __future__ import annotations

from softmesh.errors import MeshError
from softmesh.kernels.calls.noc import check_packet, noc_async_read, noc_async_write
from softmesh.kernels.engine.noc_address import decode, encode
from softmesh.kernels.engine.thread import KernelThread, mover

_MOST_TRIDS = 15


def noc_async_read_set_state(src_noc_addr: int, noc: int | None = None) -> None:
    """The core that the next reads come from."""
    mover("noc_async_read_set_state").read_state = src_noc_addr, None


def noc_async_read_with_state(
    src_local_l1_addr: int, dst_local_l1_addr: int, size: int, noc: int | None = None
) -> None:
    thread = mover("noc_async_read_with_state")
    source, _ = _state(thread, "noc_async_read_with_state", thread.read_state, "noc_async_read_set_state")
    noc_async_read(_at(source, src_local_l1_addr), dst_local_l1_addr, size)


def noc_async_read_one_packet_set_state(src_noc_addr: int, size: int, noc: int | None = None) -> None:
    """The core that the next reads come from, and how long they are."""
    check_packet("noc_async_read_one_packet_set_state", size)
    mover("noc_async_read_one_packet_set_state").read_state = src_noc_addr, size


def noc_async_read_one_packet_with_state(
    src_local_l1_addr: int, dst_local_l1_addr: int, noc: int | None = None
) -> None:
    call = "noc_async_read_one_packet_with_state"
    thread = mover(call)
    source, size = _state(thread, call, thread.read_state, "noc_async_read_one_packet_set_state")
    noc_async_read(_at(source, src_local_l1_addr), dst_local_l1_addr, _sized(call, size))


def noc_async_write_one_packet_set_state(dst_noc_addr: int, size: int, noc: int | None = None) -> None:
    """The core that the next writes go to, and how long they are."""
    check_packet("noc_async_write_one_packet_set_state", size)
    mover("noc_async_write_one_packet_set_state").write_state = dst_noc_addr, size


def noc_async_write_one_packet_with_state(
    src_local_l1_addr: int, dst_local_l1_addr: int, noc: int | None = None
) -> None:
    call = "noc_async_write_one_packet_with_state"
    thread = mover(call)
    target, size = _state(thread, call, thread.write_state, "noc_async_write_one_packet_set_state")
    noc_async_write(src_local_l1_addr, _at(target, dst_local_l1_addr), _sized(call, size))


def noc_async_read_set_trid(trid: int, noc: int | None = None) -> None:
    """Tag the next reads, so that a barrier can wait for them alone."""
    mover("noc_async_read_set_trid").transfers.trid = _checked("noc_async_read_set_trid", trid)


def noc_async_read_barrier_with_trid(trid: int, noc: int | None = None) -> None:
    call = "noc_async_read_barrier_with_trid"
    mover(call).transfers.read_barrier(_checked(call, trid))


def noc_async_write_one_packet_with_trid(
    src_local_l1_addr: int, dst_noc_addr: int, size: int, trid: int, noc: int | None = None
) -> None:
    call = "noc_async_write_one_packet_with_trid"
    check_packet(call, size)
    transfers = mover(call).transfers
    before, transfers.trid = transfers.trid, _checked(call, trid)
    noc_async_write(src_local_l1_addr, dst_noc_addr, size)
    transfers.trid = before


def noc_async_write_barrier_with_trid(trid: int, noc: int | None = None) -> None:
    call = "noc_async_write_barrier_with_trid"
    mover(call).transfers.write_barrier(_checked(call, trid))


def _state(
    thread: KernelThread, call: str, state: tuple[int, int | None] | None, setter: str
) -> tuple[int, int | None]:
    if state is None:
        raise MeshError(f"{call}() repeats a transfer that was not set up: call {setter}(...) first.")
    return state


def _sized(call: str, size: int | None) -> int:
    if size is None:
        raise MeshError(
            f"{call}(): no size was set; call {call.replace('_with_state', '_set_state')}(address, size) first."
        )
    return size


def _at(noc_address: int, address: int) -> int:
    place, _ = decode(noc_address)
    return encode(place.x, place.y, address)


def _checked(call: str, trid: int) -> int:
    if not 0 <= trid <= _MOST_TRIDS:
        raise MeshError(f"{call}: transaction ids are 0 to {_MOST_TRIDS}, got {trid}.")
    return trid
