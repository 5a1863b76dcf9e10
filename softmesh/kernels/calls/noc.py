"""NoC transfer calls: asynchronous reads, writes and multicasts of bytes, and the barriers that wait for them.

The calls of C++ take which of the two NoCs to use; here that is accepted and changes nothing.
"""

from __future__ import annotations

from softmesh.errors import MeshError
from softmesh.hardware import Arch
from softmesh.kernels.calls.tensor_accessor import TensorAccessor
from softmesh.kernels.engine.noc_address import decode, decode_multicast, encode, encode_multicast
from softmesh.kernels.engine.scheduler import KernelThread, data_movement_kernel
from softmesh.kernels.engine.transfers import Endpoint
from softmesh.kernels.engine.worker_core import Core

_LARGEST_PACKET = {Arch.WORMHOLE_B0: 8192, Arch.BLACKHOLE: 16384}


def get_noc_addr(*place: int | TensorAccessor, noc: int | None = None) -> int:
    """`get_noc_addr(x, y, address)`, `get_noc_addr(address)` of this core, `get_noc_addr(page, accessor[, offset])`."""
    thread = data_movement_kernel("get_noc_addr")
    accessor = place[1] if len(place) > 1 else None
    numbers = [int(number) for number in place if not isinstance(number, TensorAccessor)]
    if isinstance(accessor, TensorAccessor):
        return accessor.get_noc_addr(*numbers)
    if len(numbers) == 3:
        return encode(*numbers)
    if len(numbers) != 1:
        raise MeshError(
            f"get_noc_addr() takes (x, y, address), (address) or (page, accessor), got {len(place)} arguments."
        )
    own = thread.core.chip.mesh.worker_core_from_logical_core(thread.core.place)
    return encode(own.x, own.y, numbers[0])


def get_noc_addr_from_bank_id(bank_id: int, bank_address_offset: int, noc: int | None = None) -> int:
    """An address in a DRAM bank."""
    data_movement_kernel("get_noc_addr_from_bank_id")
    return encode(bank_id, 0, bank_address_offset)


def get_noc_multicast_addr(
    noc_x_start: int, noc_y_start: int, noc_x_end: int, noc_y_end: int, addr: int, noc: int | None = None
) -> int:
    """The same address on every core of a rectangle, both corners included."""
    data_movement_kernel("get_noc_multicast_addr")
    return encode_multicast(noc_x_start, noc_y_start, noc_x_end, noc_y_end, addr)


def endpoint(thread: KernelThread, noc_addr: int) -> tuple[Endpoint, int]:
    place, address = decode(noc_addr)
    return thread.core.chip.at(place), address


def noc_async_read(src_noc_addr: int, dst_local_l1_addr: int, size: int, noc: int | None = None) -> None:
    thread = data_movement_kernel("noc_async_read")
    source, address = endpoint(thread, src_noc_addr)
    thread.transfers.read(source, address, size, int(dst_local_l1_addr))


def noc_async_write(src_local_l1_addr: int, dst_noc_addr: int, size: int, noc: int | None = None) -> None:
    thread = data_movement_kernel("noc_async_write")
    target, address = endpoint(thread, dst_noc_addr)
    thread.transfers.write(int(src_local_l1_addr), size, target, address)


def noc_async_read_page(
    id: int, addrgen: TensorAccessor, dst_local_l1_addr: int, offset: int = 0, noc: int | None = None
) -> None:
    """A page of a tensor or buffer, from `offset` on."""
    thread = data_movement_kernel("noc_async_read_page")
    source, address = addrgen.locate(thread, id)
    thread.transfers.read(source, address + offset, addrgen.page_size - offset, int(dst_local_l1_addr))


def noc_async_write_page(
    id: int,
    addrgen: TensorAccessor,
    src_local_l1_addr: int,
    size: int | None = None,
    offset: int = 0,
    noc: int | None = None,
) -> None:
    thread = data_movement_kernel("noc_async_write_page")
    target, address = addrgen.locate(thread, id)
    count = addrgen.page_size - offset if size is None else size
    thread.transfers.write(int(src_local_l1_addr), count, target, address + offset)


def noc_async_read_tile(
    id: int, addrgen: TensorAccessor, dst_local_l1_addr: int, offset: int = 0, noc: int | None = None
) -> None:
    noc_async_read_page(id, addrgen, dst_local_l1_addr, offset)


def noc_async_write_tile(id: int, addrgen: TensorAccessor, src_local_l1_addr: int, noc: int | None = None) -> None:
    noc_async_write_page(id, addrgen, src_local_l1_addr)


def noc_async_read_shard(
    shard_id: int, accessor: TensorAccessor, dst_local_l1_addr: int, noc: int | None = None
) -> None:
    """A whole shard of a sharded tensor."""
    thread = data_movement_kernel("noc_async_read_shard")
    source, address, size = accessor.locate_shard(thread, shard_id)
    thread.transfers.read(source, address, size, int(dst_local_l1_addr))


def noc_async_write_shard(
    shard_id: int, accessor: TensorAccessor, src_local_l1_addr: int, noc: int | None = None
) -> None:
    thread = data_movement_kernel("noc_async_write_shard")
    target, address, size = accessor.locate_shard(thread, shard_id)
    thread.transfers.write(int(src_local_l1_addr), size, target, address)


def noc_inline_dw_write(addr: int, val: int, be: int = 0xF, noc: int | None = None) -> None:
    """One word, without a copy of it in L1."""
    thread = data_movement_kernel("noc_inline_dw_write")
    if be != 0xF:
        raise MeshError(f"noc_inline_dw_write: be={be:#x} writes part of a word; only whole words (0xF) are modelled.")
    target, address = endpoint(thread, addr)
    store_word(thread, target, address, val)


def store_word(thread: KernelThread, target: Endpoint, address: int, word: int) -> None:
    """A word at a place on the NoC, behind the writes that went there before."""
    if not isinstance(target, Core):
        raise MeshError(f"A single word goes to the L1 of a core, not to {target}.")
    thread.transfers.before_word(target)
    target.store(address, word)


def multicast_targets(
    thread: KernelThread, call: str, noc_addr: int, num_dests: int, *, with_self: bool
) -> tuple[list[Core], int]:
    """The cores of a multicast and the address there; the count must be theirs, or the chip waits for ever."""
    rectangle, address = decode_multicast(noc_addr)
    found = [thread.core.chip.at(place) for place in rectangle.places()]
    cores = [core for core in found if isinstance(core, Core) and (with_self or core is not thread.core)]
    if len(cores) != num_dests or not cores:
        own = "itself included" if with_self else "itself left out"
        raise MeshError(
            f"{call}: num_dests is {num_dests}, and the rectangle {rectangle.low} to {rectangle.high} has "
            f"{len(cores)} other cores to write to, the sender {own}. The two must be equal, and at least 1."
        )
    return cores, address


def noc_async_write_multicast(
    src_local_l1_addr: int,
    dst_noc_addr_multicast: int,
    size: int,
    num_dests: int,
    linked: bool = False,
    noc: int | None = None,
) -> None:
    """To every core of a rectangle but this one, which does not count."""
    _write_multicast("noc_async_write_multicast", src_local_l1_addr, dst_noc_addr_multicast, size, num_dests, False)


def noc_async_write_multicast_loopback_src(
    src_local_l1_addr: int,
    dst_noc_addr_multicast: int,
    size: int,
    num_dests: int,
    linked: bool = False,
    noc: int | None = None,
) -> None:
    """To every core of a rectangle; this one, where it lies in it, counts too."""
    call = "noc_async_write_multicast_loopback_src"
    _write_multicast(call, src_local_l1_addr, dst_noc_addr_multicast, size, num_dests, True)


def _write_multicast(call: str, start: int, noc_addr: int, size: int, num_dests: int, with_self: bool) -> None:
    thread = data_movement_kernel(call)
    cores, address = multicast_targets(thread, call, noc_addr, num_dests, with_self=with_self)
    for core in cores:
        thread.transfers.write(int(start), size, core, address)


def noc_async_read_one_packet(src_noc_addr: int, dst_local_l1_addr: int, size: int, noc: int | None = None) -> None:
    check_packet("noc_async_read_one_packet", size)
    noc_async_read(src_noc_addr, dst_local_l1_addr, size)


def noc_async_write_one_packet(src_local_l1_addr: int, dst_noc_addr: int, size: int, noc: int | None = None) -> None:
    check_packet("noc_async_write_one_packet", size)
    noc_async_write(src_local_l1_addr, dst_noc_addr, size)


def check_packet(call: str, size: int) -> None:
    largest = _LARGEST_PACKET[data_movement_kernel(call).core.chip.mesh.arch()]
    if size > largest:
        raise MeshError(f"{call}: a packet carries at most {largest} bytes on this chip, got {size}.")


def noc_async_read_barrier(noc: int | None = None) -> None:
    """Wait until everything that was read is there."""
    data_movement_kernel("noc_async_read_barrier").transfers.read_barrier()


def noc_async_write_barrier(noc: int | None = None) -> None:
    """Wait until everything that was written has arrived."""
    data_movement_kernel("noc_async_write_barrier").transfers.write_barrier()


def noc_async_writes_flushed(noc: int | None = None) -> None:
    """Wait until everything that was written has left this core, so that its source may change."""
    data_movement_kernel("noc_async_writes_flushed").transfers.flush()


def noc_async_atomic_barrier(noc: int | None = None) -> None:
    """Wait until semaphores that were raised elsewhere are raised."""
    data_movement_kernel("noc_async_atomic_barrier").transfers.atomic_barrier()


def noc_async_full_barrier(noc: int | None = None) -> None:
    noc_async_read_barrier()
    noc_async_write_barrier()
    noc_async_atomic_barrier()


# Stateful transfers: one call sets what stays the same, the next ones give the rest; and transaction ids. On the chip
# this saves instructions. Here it is the same transfer, written the same way.


_MOST_TRIDS = 15


def noc_async_read_set_state(src_noc_addr: int, noc: int | None = None) -> None:
    """The core that the next reads come from."""
    data_movement_kernel("noc_async_read_set_state").read_state = src_noc_addr, None


def noc_async_read_with_state(
    src_local_l1_addr: int, dst_local_l1_addr: int, size: int, noc: int | None = None
) -> None:
    thread = data_movement_kernel("noc_async_read_with_state")
    source, _ = _state(thread, "noc_async_read_with_state", thread.read_state, "noc_async_read_set_state")
    noc_async_read(_at(source, src_local_l1_addr), dst_local_l1_addr, size)


def noc_async_read_one_packet_set_state(src_noc_addr: int, size: int, noc: int | None = None) -> None:
    """The core that the next reads come from, and how long they are."""
    check_packet("noc_async_read_one_packet_set_state", size)
    data_movement_kernel("noc_async_read_one_packet_set_state").read_state = src_noc_addr, size


def noc_async_read_one_packet_with_state(
    src_local_l1_addr: int, dst_local_l1_addr: int, noc: int | None = None
) -> None:
    call = "noc_async_read_one_packet_with_state"
    thread = data_movement_kernel(call)
    source, size = _state(thread, call, thread.read_state, "noc_async_read_one_packet_set_state")
    noc_async_read(_at(source, src_local_l1_addr), dst_local_l1_addr, _sized(call, size))


def noc_async_write_one_packet_set_state(dst_noc_addr: int, size: int, noc: int | None = None) -> None:
    """The core that the next writes go to, and how long they are."""
    check_packet("noc_async_write_one_packet_set_state", size)
    data_movement_kernel("noc_async_write_one_packet_set_state").write_state = dst_noc_addr, size


def noc_async_write_one_packet_with_state(
    src_local_l1_addr: int, dst_local_l1_addr: int, noc: int | None = None
) -> None:
    call = "noc_async_write_one_packet_with_state"
    thread = data_movement_kernel(call)
    target, size = _state(thread, call, thread.write_state, "noc_async_write_one_packet_set_state")
    noc_async_write(src_local_l1_addr, _at(target, dst_local_l1_addr), _sized(call, size))


def noc_async_read_set_trid(trid: int, noc: int | None = None) -> None:
    """Tag the next reads, so that a barrier can wait for them alone."""
    data_movement_kernel("noc_async_read_set_trid").transfers.trid = _checked("noc_async_read_set_trid", trid)


def noc_async_read_barrier_with_trid(trid: int, noc: int | None = None) -> None:
    call = "noc_async_read_barrier_with_trid"
    data_movement_kernel(call).transfers.read_barrier(_checked(call, trid))


def noc_async_write_one_packet_with_trid(
    src_local_l1_addr: int, dst_noc_addr: int, size: int, trid: int, noc: int | None = None
) -> None:
    call = "noc_async_write_one_packet_with_trid"
    check_packet(call, size)
    transfers = data_movement_kernel(call).transfers
    before, transfers.trid = transfers.trid, _checked(call, trid)
    noc_async_write(src_local_l1_addr, dst_noc_addr, size)
    transfers.trid = before


def noc_async_write_barrier_with_trid(trid: int, noc: int | None = None) -> None:
    call = "noc_async_write_barrier_with_trid"
    data_movement_kernel(call).transfers.write_barrier(_checked(call, trid))


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
