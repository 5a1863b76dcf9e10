"""Findings of a launch, told at its end; and the words for two kernels that touch the same bytes in no order."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from softmesh.callsite import CallSite, user_call_site
from softmesh.errors import MeshError
from softmesh.kernels.engine.memory_order import PACKET
from softmesh.strictness import warn_or_raise

if TYPE_CHECKING:
    from softmesh.kernels.engine.memory_order import Access
    from softmesh.kernels.engine.simulated_chip import SimulatedChip

Deed = tuple["Access", str]  # "reads" or "writes"


class Findings:
    """What went well here, and would not on every run of a chip: once for what is the same on many cores."""

    def __init__(self) -> None:
        self._found: dict[tuple[object, ...], tuple[str, CallSite, bool]] = {}

    def has(self, key: tuple[object, ...]) -> bool:
        return key in self._found

    def add(self, key: tuple[object, ...], message: str, *, is_strict: bool, at: CallSite | None = None) -> None:
        """At the line of the kernel that runs, unless another is given."""
        if key not in self._found:
            self._found[key] = message, at or user_call_site(), is_strict

    def possible_causes(self) -> list[str]:
        """Lines for the report of a program that did not come to its end."""
        lines = [f"  {message} [{site}]" for message, site, _ in self._found.values()]
        return ["This may be the cause:", *lines] if lines else []

    def tell(self) -> None:
        for message, site, is_strict in self._found.values():
            if is_strict:
                raise MeshError(f"{message} [{site}]")
            warn_or_raise(message, at=site)

    def drop_references(self) -> None:
        self._found.clear()


class Place(Protocol):
    """Where bytes lie: a core or a bank."""

    chip: SimulatedChip

    def what_is_at(self, address: int) -> tuple[str, bool]:
        """In words; and whether it is a page of a circular buffer."""
        ...


def tell_conflict(place: Place, start: int, old: Deed, new: Deed) -> None:
    (before, did), (access, does) = old, new
    key = before.thread.kernel, access.thread.kernel, did, does, before.transfer
    findings = place.chip.launch_state.findings
    if findings.has(key):
        return
    what, is_page = place.what_is_at(start)
    if before.transfer and access.clock.known.get(before.number, 0) >= before.step:
        message = _during_a_transfer(before, did, access, f"{does} {what}")
    else:
        mend = _PAGES if is_page and before.thread.core is access.thread.core else _SEMAPHORE
        message = (
            f"{before.thread.name} {did}, and {access.thread.name} {does} {what}, and neither has waited for the "
            f"other: on a chip either may come first. {mend}"
        )
    findings.add(key, message, is_strict=place.chip.is_strict)


_PAGES = (
    "Write pages between cb_reserve_back and cb_push_back, and read them between cb_wait_front and cb_pop_front, no "
    "more of them than was asked for."
)
_SEMAPHORE = (
    "Give each core pages of its own, or let one wait for a semaphore that the other sets behind its "
    "noc_async_write_barrier()."
)
_BARRIERS = {
    ("noc_async_read", "writes"): "noc_async_read_barrier()",
    ("noc_async_read", "reads"): "noc_async_read_barrier()",
    ("noc_async_write", "writes"): "noc_async_write_barrier()",
    ("noc_async_write", "reads"): "noc_async_writes_flushed() or noc_async_write_barrier()",
}


def _during_a_transfer(before: Access, did: str, access: Access, does: str) -> str:
    if before.transfer == PACKET:
        return (
            f"{access.thread.name} {does} while a packet of {before.thread.name} may still be under way there: what it "
            "has waited for came another way, and packets keep their order on one link only. Send the signal over the "
            "link of the data and behind it, or in one packet with it."
        )
    barrier = _BARRIERS[before.transfer, did]
    if before.number == access.number:
        return (
            f"{access.thread.name} {does} while a {before.transfer} of its own may still be under way there: call "
            f"{barrier} before."
        )
    return (
        f"{access.thread.name} {does} while a {before.transfer} of {before.thread.name} may still be under way there: "
        f"what it has waited for came before the barrier. Call {barrier} before cb_push_back, cb_pop_front or the "
        "semaphore that others wait for."
    )
