"""Semaphore calls: set, increment and wait for words in the L1 of this core or of others.

A semaphore is known by its L1 address, which is the same on all cores that have it.
"""

from __future__ import annotations

from collections.abc import Callable

from softmesh.errors import MeshError
from softmesh.kernels.calls.noc import endpoint, multicast_targets, store_word
from softmesh.kernels.engine.scheduler import KernelThread, Wait, data_movement_kernel, here
from softmesh.kernels.engine.worker_core import Core
from softmesh.kernels.program.kernel import Processor

VALID = 1
INVALID = 0


def get_semaphore(semaphore_id: int) -> int:
    """The L1 address of a semaphore that the program created on this core."""
    core = here("get_semaphore").core
    if semaphore_id not in core.semaphores:
        known = ", ".join(map(str, sorted(core.semaphores))) or "none"
        raise MeshError(
            f"get_semaphore({semaphore_id}): {core} has no semaphore {semaphore_id}; its ids: {known}. "
            "CreateSemaphore(program, cores, initial_value) gives the id, on those cores."
        )
    return core.semaphores[semaphore_id]


def noc_semaphore_wait(sem_addr: int, val: int) -> None:
    """Until the semaphore is `val`."""
    thread = _wait("noc_semaphore_wait", int(sem_addr), val, lambda value: value == val)
    thread.core.signals.waited(thread, int(sem_addr), val)


def noc_semaphore_wait_min(sem_addr: int, val: int) -> None:
    """Until the semaphore is `val` or more."""
    _wait("noc_semaphore_wait_min", int(sem_addr), val, lambda value: value >= val)


def _wait(call: str, address: int, wanted: int, is_met: Callable[[int], bool]) -> KernelThread:
    thread = here(call)
    core = thread.core
    if not is_met(core.word(address)):
        wait = Wait(f"{call}({core.name_of(address)}, {wanted})", lambda: f"it is {core.word(address)}")
        thread.wait_for(lambda: is_met(core.word(address)), core.waiting_for(address), wait)
    core.learn_from_wait(thread, address, is_met)
    core.chip.launch_state.waits.note(f"{call}({core.name_of(address)}, {wanted})", core, address, is_met)
    return thread


def noc_semaphore_set(sem_addr: int, val: int) -> None:
    """The semaphore of this core."""
    thread = here("noc_semaphore_set")
    if thread.kernel.processor is not Processor.TRISC:
        thread.transfers.before_set(int(sem_addr), val)
    thread.core.store(int(sem_addr), val)


def noc_semaphore_inc(addr: int, incr: int, noc_id: int | None = None) -> None:
    """Raise a semaphore anywhere on the chip; it wraps at 32 bits."""
    thread = data_movement_kernel("noc_semaphore_inc")
    target, address = endpoint(thread, addr)
    _raise(thread, _worker("noc_semaphore_inc", target), address, incr)


def noc_semaphore_set_remote(src_local_l1_addr: int, dst_noc_addr: int, noc: int | None = None) -> None:
    """Copy the semaphore of this core to another core."""
    thread = data_movement_kernel("noc_semaphore_set_remote")
    target, address = endpoint(thread, dst_noc_addr)
    word = thread.core.load(int(src_local_l1_addr))
    thread.transfers.copies_word(int(src_local_l1_addr), word)
    store_word(thread, target, address, word)


def noc_semaphore_set_multicast(
    src_local_l1_addr: int,
    dst_noc_addr_multicast: int,
    num_dests: int,
    linked: bool = False,
    noc: int | None = None,
) -> None:
    """Copy the semaphore of this core to every other core of a rectangle."""
    call = "noc_semaphore_set_multicast"
    _set_multicast(call, src_local_l1_addr, dst_noc_addr_multicast, num_dests, with_self=False)


def noc_semaphore_set_multicast_loopback_src(
    src_local_l1_addr: int,
    dst_noc_addr_multicast: int,
    num_dests: int,
    linked: bool = False,
    noc: int | None = None,
) -> None:
    call = "noc_semaphore_set_multicast_loopback_src"
    _set_multicast(call, src_local_l1_addr, dst_noc_addr_multicast, num_dests, with_self=True)


def _set_multicast(call: str, source: int, noc_addr: int, num_dests: int, *, with_self: bool) -> None:
    thread = data_movement_kernel(call)
    cores, address = multicast_targets(thread, call, noc_addr, num_dests, with_self=with_self)
    word = thread.core.load(int(source))
    thread.transfers.copies_word(int(source), word)
    for core in cores:
        store_word(thread, core, address, word)


def noc_semaphore_inc_multicast(dst_noc_addr_multicast: int, incr: int, num_dests: int, noc: int | None = None) -> None:
    """Raise the semaphore of every other core of a rectangle."""
    call = "noc_semaphore_inc_multicast"
    thread = data_movement_kernel(call)
    cores, address = multicast_targets(thread, call, dst_noc_addr_multicast, num_dests, with_self=False)
    for core in cores:
        _raise(thread, core, address, incr)


def _raise(thread: KernelThread, target: Core, address: int, by: int) -> None:
    thread.transfers.before_increment(target)
    target.store(address, target.word(address) + by & 0xFFFFFFFF, adds=True)


def _worker(call: str, target: object) -> Core:
    if not isinstance(target, Core):
        raise MeshError(f"{call}: semaphores are in the L1 of cores; the address is in {target}.")
    return target
