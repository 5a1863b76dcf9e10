"""The findings of the sanitizer and their messages: both lines of the program, why they race, and the remedy."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

from softmesh.callsite import CallSite, RawSite, resolved
from softmesh.errors import SanitizerError, SanitizerWarning
from softmesh.runtime.sanitizer.access_history import Touch
from softmesh.runtime.sanitizer.vector_clocks import Places, Step
from softmesh.strictness import warn_or_raise

if TYPE_CHECKING:
    from softmesh.runtime.buffers.mesh_memory import MeshMemory
    from softmesh.runtime.buffers.paged_memory import PagedMemory
    from softmesh.runtime.memory.allocations import Allocation


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
    """Tells of the same lines once: a warning, under SOFTMESH_STRICT=1 an error."""

    def __init__(self) -> None:
        self.listeners: list[list[Finding]] = []
        self._reported: set[tuple[object, ...]] = set()

    def tell(self, kind: FindingKind, sites: Sequence[CallSite | RawSite], words: Callable[[], str]) -> None:
        key = (kind, *sites)
        if key in self._reported:
            return
        self._reported.add(key)
        finding = Finding(kind, f"{kind.value}: {words()}", tuple(map(_site, sites)))
        for listener in self.listeners:
            listener.append(finding)
        warn_or_raise(finding.message, SanitizerWarning, SanitizerError)


def _site(site: CallSite | RawSite) -> CallSite:
    return site if isinstance(site, CallSite) else resolved(site)


def kind_of(first: Touch, second: Touch) -> FindingKind:
    is_same = first.span.number == second.span.number
    return FindingKind.RACE if is_same else FindingKind.REUSED_MEMORY


def race(first: Touch, second: Touch) -> str:
    """Two touches that nothing orders."""
    is_reused = kind_of(first, second) is FindingKind.REUSED_MEMORY
    it = "this memory" if is_reused else "it"
    lines = [
        f"{_headline(first, second)}: {described(second.span.what)}, {second.span.place}{_on(first, second)}.",
        f"  {first.step.agent.name} {_verb(first)} {it}: {_call(first.step)}",
        f"  {second.step.agent.name} {_verb(second)} {it}: {_call(second.step)}",
        _missing_event(first.step, second.step),
    ]
    if is_reused:
        lines.insert(2, f"  the host freed it meanwhile, as {described(first.span.what)}{_freed(first)}")
    return "\n".join(lines)


def _freed(touch: Touch) -> str:
    owner = touch.span.owner()
    if owner is None:
        return ": its last reference was dropped"
    return "" if owner.freed is None else f": deallocated at {resolved(owner.freed)}"


def _headline(first: Touch, second: Touch) -> str:
    one, other = first.step.agent.name, second.step.agent.name
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


def unfinished_read(fill: Touch, use: str, site: CallSite) -> str:
    queue = fill.step.agent.queue
    return (
        f"the host uses what {fill.step.agent.name} may still be writing: {described(fill.span.what)} on the host.\n"
        f"  {fill.step.agent.name} writes it: {_call(fill.step)}, which does not block\n"
        f"  the host uses it: {use} ({site})\n"
        f"Before {site} wait for the read: ttnn.synchronize_device(mesh_device, {queue}), or "
        f"ttnn.event_synchronize(ttnn.record_event(mesh_device, {queue})); or let it block (blocking=True)."
    )


def overwritten(allocation: Allocation, captured: CallSite, replay: CallSite) -> str:
    return (
        f"a replay overwrites {allocation.label}, at {allocation.address} in {allocation.buffer_type.name}.\n"
        f"  the capture that began at {captured} put a result there, which was freed again\n"
        f"  the memory was then given to it: allocated at {allocation.site}\n"
        f"  execute_trace ({replay}) writes the captured result again\n"
        "Allocate it before ttnn.begin_trace_capture, or deallocate it before the replay; where its values may be "
        "lost, say so: ttnn.mark_corruptible(tensor)."
    )


def stale_view(view: PagedMemory, owner: MeshMemory, name: str, site: CallSite) -> str:
    at = "its owner is gone" if owner.freed is None else f"it was deallocated at {resolved(owner.freed)}"
    return (
        f"{name} ({site}) uses {described(view)} at {view.address} in {view.buffer_type.name} through a view, and "
        f"{at}: what is there now belongs to nobody, or to another tensor. Keep the buffer that owns the memory for "
        "as long as views look at it."
    )


def described(what: object) -> str:
    """A tensor by its spec, a buffer by its pages."""
    dtype = getattr(what, "dtype", None)
    if dtype is not None:
        return f"tensor {what.shape} {dtype.name} {what.layout.name}"  # type: ignore[attr-defined]
    return f"mesh buffer of {what.num_pages} pages of {what.page_size} B"  # type: ignore[attr-defined]
