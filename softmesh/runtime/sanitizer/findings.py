"""What the sanitizer found, in words: both lines, why they are a fault, what to do."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

from softmesh.callsite import CallSite, RawSite, resolved
from softmesh.errors import SanitizerError, SanitizerWarning
from softmesh.lenience import warn_or_raise
from softmesh.runtime.sanitizer.clock import Places, Step
from softmesh.runtime.sanitizer.history import Touch

if TYPE_CHECKING:
    from softmesh.runtime.memory.records import Allocation


class FindingKind(Enum):
    RACE = "race"
    REUSED_MEMORY = "reused memory"
    UNFINISHED_READ = "unfinished read"
    OVERWRITTEN_BY_REPLAY = "overwritten by replay"
    USE_AFTER_DEALLOCATE = "use after deallocate"


@dataclass(frozen=True)
class Finding:
    """`sites` are the lines it is about, the one that came first first."""

    kind: FindingKind
    message: str
    sites: tuple[CallSite, ...]

    def __str__(self) -> str:
        return self.message


class Report:
    """Tells of each pair of lines once: a warning, under SOFTMESH_STRICT=1 an error."""

    def __init__(self) -> None:
        self.listeners: list[list[Finding]] = []
        self._told: set[tuple[object, ...]] = set()

    def tell(self, kind: FindingKind, sites: Sequence[RawSite], words: Callable[[], str]) -> None:
        key = (kind, *sites)
        if key in self._told:
            return
        self._told.add(key)
        finding = Finding(kind, words(), tuple(map(resolved, sites)))
        for listener in self.listeners:
            listener.append(finding)
        warn_or_raise(finding.message, SanitizerWarning, SanitizerError)


def race(first: Touch, second: Touch, place: str, freed: RawSite | None) -> tuple[FindingKind, str]:
    """Two touches that nothing orders. `freed`: the line that gave the memory back in between, where it is known."""
    is_reused = first.allocation != second.allocation
    kind = FindingKind.REUSED_MEMORY if is_reused else FindingKind.RACE
    lines = [
        f"{kind.value}: {_headline(first, second)}: {described(second.what)}, {place}{_on(first, second)}.",
        f"  {first.step.agent.name} {_verb(first)} {'the memory' if is_reused else 'it'}: {_call(first.step)}",
    ]
    if is_reused:
        where = "its last reference was dropped" if freed is None else f"deallocated at {resolved(freed)}"
        lines.append(
            f"  the host freed it as {described(first.what)} ({where}), and it was given to another tensor"
        )
    lines.append(f"  {second.step.agent.name} {_verb(second)} {'the memory' if is_reused else 'it'}: {_call(second.step)}")
    lines.append(_missing_event(first.step, second.step))
    return kind, "\n".join(lines)


def _headline(first: Touch, second: Touch) -> str:
    one, other = first.step.agent.name, second.step.agent.name
    if first.is_write and second.is_write:
        return f"{other} writes what {one} may still be writing"
    return f"{other} {_verb(second)} what {one} may still be {'writing' if first.is_write else 'reading'}"


def _verb(touch: Touch) -> str:
    return "writes" if touch.is_write else "reads"


def _call(step: Step) -> str:
    return f"{step.name} ({resolved(step.site)})"


def _on(first: Touch, second: Touch) -> str:
    places = first.where.shared_places(second.where)
    return "" if places is None else f", on {_devices(places)}"


def _devices(places: Places) -> str:
    listed = sorted(tuple(place) for place in places)
    more = f" and {len(listed) - 4} more" if len(listed) > 4 else ""
    return f"device{'s' * (len(listed) > 1)} {', '.join(map(str, listed[:4]))}{more}"


def _missing_event(first: Step, second: Step) -> str:
    here, there = resolved(first.site), resolved(second.site)
    queue, other = first.agent.queue, second.agent.queue
    if queue == other:
        return (
            f"Nothing orders sub-devices of one queue. Between {here} and {there} call "
            f"ttnn.wait_for_event({other}, ttnn.record_event(mesh_device, {queue}))."
        )
    return (
        f"Nothing orders the two. Record an event on queue {queue} after {here} (event = "
        f"ttnn.record_event(mesh_device, {queue})), and let queue {other} wait for it before {there} "
        f"(ttnn.wait_for_event({other}, event))."
    )


def unfinished_read(fill: Touch, use: str, site: RawSite) -> str:
    queue = fill.step.agent.queue
    return (
        f"the host uses what {fill.step.agent.name} may still be writing: {described(fill.what)} on the host.\n"
        f"  {fill.step.agent.name} writes it: {_call(fill.step)}, which does not block\n"
        f"  the host uses it: {use} ({resolved(site)})\n"
        f"Before {resolved(site)} wait for the read: ttnn.synchronize_device(mesh_device, {queue}), or "
        f"ttnn.event_synchronize(ttnn.record_event(mesh_device, {queue})); or let it block (blocking=True)."
    )


def overwritten(allocation: Allocation, captured: CallSite, replay: RawSite) -> str:
    return (
        f"a replay overwrites a tensor that was allocated after the capture: {allocation.label}, at "
        f"{allocation.address} in {allocation.buffer_type.name}.\n"
        f"  the capture that began at {captured} used this memory for a result that was freed again\n"
        f"  it was allocated at {allocation.site}\n"
        f"  execute_trace ({resolved(replay)}) writes the result there again\n"
        "Allocate it before ttnn.begin_trace_capture, or deallocate it before the replay; where its values may be "
        "lost, say so: ttnn.mark_corruptible(tensor)."
    )


def stale_view(what: str, name: str, site: RawSite) -> str:
    return (
        f"{name} ({resolved(site)}) uses {what} through a view, after the memory was deallocated: what is there now "
        "belongs to nobody, or to another tensor. Keep the buffer that owns it for as long as views look at it."
    )


def described(what: object) -> str:
    """A tensor by its spec, a buffer by its pages."""
    dtype = getattr(what, "dtype", None)
    if dtype is not None:
        return f"tensor {what.shape} {dtype.name} {what.layout.name}"  # type: ignore[attr-defined]
    return f"mesh buffer of {what.num_pages} pages of {what.page_size} B"  # type: ignore[attr-defined]
