"""A verdict as people read it: the odd rank first, where everybody is, why, and what to do."""

from __future__ import annotations

from softmesh.processes.verdict import Cause, Doing, RankState, Verdict, needs
from softmesh.processes.wait_report import WaitKind, WaitReport, ranges

_MOST_LINES = 20
_ANSWERS_WITHIN = 2.0  # seconds; one that is well takes milliseconds

_REMEDIES = {
    Cause.RAISED: "the traceback of {odd} is above; the other ranks ended because it did",
    Cause.DIED: "look for what ended {odd}: a signal, a crash in a library, memory that ran out",
    Cause.MISMATCH: "every rank of a group makes the same calls in the same order, with the same shapes, types and "
    "axes; look for a branch that depends on the rank before the line of {odd}",
    Cause.MISSING: "every rank of a group makes the same calls in the same order; look for a branch, an early "
    "return or a loop that is shorter on {odd}",
    Cause.CYCLE: "let one side of each pair receive before it sends, or use other tags",
    Cause.DEADLINE: "where {odd} may be slow, set SOFTMESH_TIMEOUT to more seconds; if not, look at the line above",
}


def explained(verdict: Verdict) -> str:
    """The whole report.

    It begins with one line that tells the story, then one line for each kind of place a rank is at.
    """
    remedy = _REMEDIES[verdict.cause].format(odd=_ranks(verdict.odd) or "the program")
    return "\n".join(["softmesh: " + _headline(verdict), *_places(verdict), f"  remedy: {remedy}"])


def _headline(verdict: Verdict) -> str:
    odd = _ranks(verdict.odd)
    one = len(verdict.odd) == 1
    if verdict.cause is Cause.RAISED:
        return (
            f"{odd} raised {verdict.states[verdict.odd[0]].error.splitlines()[0] if _error(verdict) else ''}"
        )
    if verdict.cause is Cause.DIED:
        return f"{odd} died" + (f": {_error(verdict)}" if _error(verdict) else "")
    if verdict.cause is Cause.CYCLE:
        return f"hang: {_ring(verdict)}"
    assert verdict.call is not None
    if verdict.cause is Cause.MISMATCH:
        return f"hang: {odd} {_are_or_were(verdict)} in another call than the rest, which wait in {verdict.call.what}"
    if verdict.cause is Cause.MISSING:
        return f"hang: {_missing(verdict, odd, one)}"
    late = _ranks(verdict.stuck)
    waits = "waits" if len(verdict.stuck) == 1 else "wait"
    awaited = f" for {odd}" if odd else ""
    longest = max(verdict.states[rank].waited for rank in verdict.stuck)
    return f"deadline: {late} {waits}{awaited} since {longest:.0f} s in {verdict.call.what}"


def _are_or_were(verdict: Verdict) -> str:
    one = len(verdict.odd) == 1
    if all(verdict.states[rank].doing is Doing.WAITING for rank in verdict.odd):
        return "is" if one else "are"
    return "was" if one else "were"


def _error(verdict: Verdict) -> str:
    return verdict.states[verdict.odd[0]].error


def _missing(verdict: Verdict, odd: str, one: bool) -> str:
    assert verdict.call is not None
    if verdict.call.kind is not WaitKind.COLLECTIVE:
        waiting = [rank for rank in verdict.stuck if verdict.states[rank].wait == verdict.call]
        return f"{_ranks(waiting)} waits in {verdict.call.what}, and {odd} never makes the other half"
    if not any(_waits_in(verdict.states[rank], verdict.call) for rank in verdict.odd):
        return f"{odd} {'is' if one else 'are'} missing from {verdict.call.what}"
    return f"only {odd} {'is' if one else 'are'} in {verdict.call.what}"


def _waits_in(state: RankState, call: WaitReport) -> bool:
    there = state.wait if state.doing is Doing.WAITING else None
    return there is not None and (there.group, there.kind, there.sequence, there.signature) == (
        call.group,
        call.kind,
        call.sequence,
        call.signature,
    )


def _ring(verdict: Verdict) -> str:
    ring = verdict.odd
    links = [f"rank {a} waits for rank {b}" for a, b in zip(ring, (*ring[1:], ring[0]), strict=True)]
    return ", ".join(links) + ": nobody can go on"


def _places(verdict: Verdict) -> list[str]:
    """One line for ranks that are at the same place; odd ones first, then by rank."""
    together: dict[tuple[bool, str], list[int]] = {}
    for rank in sorted(verdict.states):
        together.setdefault((rank not in verdict.odd, _place(rank, verdict)), []).append(rank)
    lines = [
        f"  {_ranks(ranks)} {place}" for (_, place), ranks in sorted(together.items(), key=lambda g: g[0][0])
    ]
    more = len(lines) - _MOST_LINES
    return lines if more <= 0 else [*lines[:_MOST_LINES], f"  ... and {more} more places"]


def _place(rank: int, verdict: Verdict) -> str:
    state = verdict.states[rank]
    last = f"; last completed: {state.last}" if state.last and rank in verdict.odd else ""
    if state.doing is Doing.WAITING and state.wait is not None:
        missing = sorted(needs(rank, verdict.states))
        awaited = f", for {_ranks(missing)}" if missing else ""
        return f"waiting{awaited} in {state.wait.what}\n      at {state.wait.site}{last}"
    if state.doing is Doing.RAISED:
        return f"raised\n      at {state.site}{last}"
    if state.doing is Doing.DIED:
        end = "ended" if rank in verdict.odd else "ended with the job"
        return f"{end}, last seen {_last_seen(state)}{last}"
    if state.doing is Doing.COMPUTING:
        return f"{_computing(state, verdict.cause)}\n      at {state.site}{last}"
    if state.doing is Doing.FINISHED:
        return f"finished its program{last}"
    return "never heard of: it has not made its distributed context"


def _computing(state: RankState, cause: Cause) -> str:
    if state.sampled:
        return f"computing, without an answer for {state.quiet:.0f} s: this call lets no other thread run"
    if state.quiet > _ANSWERS_WITHIN:
        return f"last seen computing, {state.quiet:.0f} s ago"
    return "last seen computing" if cause in (Cause.RAISED, Cause.DIED) else "computing"


def _last_seen(state: RankState) -> str:
    if state.wait is not None:
        return f"waiting in {state.wait.what}\n      at {state.wait.site}"
    return f"computing\n      at {state.site}" if state.site.line else "starting"


def _ranks(ranks: tuple[int, ...] | list[int]) -> str:
    return f"rank{'s' if len(ranks) > 1 else ''} {ranges(ranks)}" if ranks else ""
