"""The verdict on a job that hangs: the deadlock or missing rank that the states of all ranks prove, and its text.

No sockets, no clock. A rank that computes may still arrive anywhere; one that waits moves on only when all that it
needs can. The ranks that no order of arrivals can release are stuck for good, and that is known at once. The `odd`
ranks are the suspects: those to look at first.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from html import escape
from operator import attrgetter

from softmesh.processes.wait_report import Site, WaitKind, WaitReport, ranges


class Doing(Enum):
    SILENT = "silent"  # not heard of, or no longer
    COMPUTING = "computing"
    WAITING = "waiting"
    FINISHED = "finished"
    RAISED = "raised"
    DIED = "died"


@dataclass(frozen=True)
class RankState:
    """What is known of one rank. `wait` is kept when a rank dies: it tells where it was."""

    doing: Doing = Doing.SILENT
    wait: WaitReport | None = None
    waited: float = 0.0
    site: Site = field(default_factory=Site)
    last: str = ""
    error: str = ""
    order: float = 0.0  # when it raised or died: the first one took the others along
    done: WaitReport | None = None  # the call that `last` tells of
    quiet: float = 0.0  # seconds since it answered
    sampled: bool = False  # it does not answer; `site` was found by other means
    stopped: bool = False  # its process is, by a signal or a debugger
    messages: Mapping[str, int] = field(default_factory=dict)  # it sent or took, by channel

    @property
    def waits_in(self) -> WaitReport | None:
        return self.wait if self.doing is Doing.WAITING else None


class Cause(Enum):
    RAISED = "raised"
    DIED = "died"
    LEFT = "left"
    MISMATCH = "mismatch"
    MISSING = "missing"
    SHORT = "short"
    CYCLE = "cycle"
    DEADLINE = "deadline"


@dataclass(frozen=True)
class Verdict:
    """`odd` are the ranks to look at first, `stuck` those that can never go on, `call` the one they are in."""

    cause: Cause
    odd: tuple[int, ...]
    stuck: tuple[int, ...]
    states: Mapping[int, RankState] = field(repr=False)
    call: WaitReport | None = None

    def _repr_html_(self) -> str:
        """As a notebook shows it: the report, to the letter."""
        return f"<pre>{escape(explained(self))}</pre>"


_MATCHING_KINDS = {
    (WaitKind.SEND, WaitKind.RECEIVE),
    (WaitKind.RECEIVE, WaitKind.SEND),
    (WaitKind.EXCHANGE, WaitKind.EXCHANGE),
}


def verdict(states: Mapping[int, RankState], timeout: float) -> Verdict | None:
    """The most telling explanation, or None while everything may still turn out well."""
    stuck = stuck_ranks(states)
    for doing, cause in ((Doing.RAISED, Cause.RAISED), (Doing.DIED, Cause.DIED)):
        if ended := [rank for rank, state in states.items() if state.doing is doing]:
            first = min(ended, key=lambda rank: states[rank].order)
            return Verdict(cause, (first,), tuple(sorted(stuck)), states)
    if stuck:
        return (
            _mismatch(states, stuck) or _short(states, stuck) or _finished(states, stuck) or _deadlocked(states, stuck)
        )
    return _deadline(states, timeout)


def stuck_ranks(states: Mapping[int, RankState]) -> set[int]:
    """Those that wait and stay so, whatever the computing ranks do next."""
    waits = _waits(states)
    mismatched = _mismatched(states)
    live = {rank for rank, state in states.items() if state.doing in (Doing.COMPUTING, Doing.SILENT)}
    waiting = set(waits)
    while released := {rank for rank in waiting - live - mismatched if needs(rank, states).issubset(live)}:
        live |= released
    return waiting - live


def needs(rank: int, states: Mapping[int, RankState]) -> set[int]:
    """The ranks of the job that have to come before this one can go on."""
    wait = states[rank].wait
    assert wait is not None
    if wait.kind is WaitKind.COLLECTIVE:
        others = {other for other in wait.members if other != rank and other in states}
        return {other for other in others if not _joined(wait, states[other])}
    if wait.peer is None or wait.peer not in states or _meets(rank, wait, states[wait.peer]):
        return set()
    return {wait.peer}


def _joined(wait: WaitReport, other: RankState) -> bool:
    """In the same collective, or past it: some collectives let a rank go before the last one is served."""
    return _is_at_or_past(other.waits_in, wait) or (wait.sequence is not None and _is_at_or_past(other.done, wait))


def _is_at_or_past(there: WaitReport | None, wait: WaitReport) -> bool:
    if there is None or there.kind is not WaitKind.COLLECTIVE or there.group != wait.group:
        return False
    return there.sequence is None or wait.sequence is None or there.sequence >= wait.sequence


def _meets(rank: int, wait: WaitReport, other: RankState) -> bool:
    there = other.waits_in
    return (
        there is not None
        and (wait.kind, there.kind) in _MATCHING_KINDS
        and (there.peer, there.group, there.tag) == (rank, wait.group, wait.tag)
    )


def _waits(states: Mapping[int, RankState]) -> dict[int, WaitReport]:
    return {rank: wait for rank, state in states.items() if (wait := state.waits_in) is not None}


def _meetings(states: Mapping[int, RankState]) -> Iterable[dict[int, WaitReport]]:
    """The calls of ranks that are in the same collective, by name of the group and number of the call.

    A rank that left it already counts: one that expects more than comes may see nothing wrong.
    """
    together: dict[tuple[str, int | None], dict[int, WaitReport]] = {}
    for rank, wait in sorted(_waits(states).items()):
        if wait.kind is WaitKind.COLLECTIVE:
            together.setdefault((wait.group, wait.sequence), {})[rank] = wait
    for rank, state in sorted(states.items()):
        done = state.done
        if done is not None and done.kind is WaitKind.COLLECTIVE and done.sequence is not None:
            together.get((done.group, done.sequence), {}).setdefault(rank, done)
    return together.values()


def _mismatched(states: Mapping[int, RankState]) -> set[int]:
    return {
        rank for calls in _meetings(states) if len({call.signature for call in calls.values()}) > 1 for rank in calls
    }


def _mismatch(states: Mapping[int, RankState], stuck: set[int]) -> Verdict | None:
    for calls in _meetings(states):
        signatures = Counter(calls[rank].signature for rank in sorted(calls))
        if len(signatures) > 1:
            # the first of equals: the signature of the lowest rank counts as the usual one
            usual = max(signatures, key=lambda signature: signatures[signature])
            odd = tuple(rank for rank in sorted(calls) if calls[rank].signature != usual)
            call = next(calls[rank] for rank in sorted(calls) if calls[rank].signature == usual)
            return Verdict(Cause.MISMATCH, odd, tuple(sorted(stuck)), states, call)
    return None


def _short(states: Mapping[int, RankState], stuck: set[int]) -> Verdict | None:
    """A sender that has gone on to something else, and sent fewer messages than are asked for.

    Where it waits for a message itself, nobody can tell which of the two should have come first.
    """
    for rank in sorted(stuck):
        call = states[rank].wait
        if call is None or call.kind is not WaitKind.RECEIVE or call.sequence is None or call.peer is None:
            continue
        sender = states.get(call.peer, RankState())
        has_gone_on = sender.waits_in is None or sender.waits_in.kind is WaitKind.COLLECTIVE
        if has_gone_on and not sender.error and sender.messages.get(call.channel, call.sequence) < call.sequence:
            return Verdict(Cause.SHORT, (call.peer,), tuple(sorted(stuck)), states, call)
    return None


def _finished(states: Mapping[int, RankState], stuck: set[int]) -> Verdict | None:
    for rank in sorted(stuck):
        gone = [other for other in sorted(needs(rank, states)) if states[other].doing is Doing.FINISHED]
        if gone:
            call = states[rank].wait
            early = left_early({other: states[other] for other in gone})
            if early is not None:
                return Verdict(Cause.LEFT, early.odd, tuple(sorted(stuck)), states, call)
            odd = _fewer(rank, states, set(gone))
            return Verdict(Cause.MISSING, tuple(sorted(odd)), tuple(sorted(stuck)), states, call)
    return None


def _fewer(rank: int, states: Mapping[int, RankState], missing: set[int]) -> set[int]:
    """Of the ranks that are in a collective and those that it misses: where few are, most went another way."""
    wait = states[rank].wait
    present = _together(rank, states) if wait is not None and wait.kind is WaitKind.COLLECTIVE else {rank} | missing
    return present if len(present) < len(missing) else missing


def left_early(states: Mapping[int, RankState]) -> Verdict | None:
    """Of ranks that ended their program with an exit code of their own, the first."""
    left = [rank for rank, state in states.items() if state.doing is Doing.FINISHED and state.error]
    if not left:
        return None
    return Verdict(Cause.LEFT, (min(left, key=lambda rank: states[rank].order),), (), states)


def _deadlocked(states: Mapping[int, RankState], stuck: set[int]) -> Verdict:
    """Everyone who is awaited waits as well: in messages that cross, or in different collectives."""
    cycle = _cycle(states, stuck)
    waits = {rank: wait for rank, wait in _waits(states).items() if rank in cycle}
    collectives = [rank for rank in cycle if waits[rank].kind is WaitKind.COLLECTIVE]
    if not collectives:
        return Verdict(Cause.CYCLE, cycle, tuple(sorted(stuck)), states)
    first = max(sorted(collectives), key=lambda rank: len(_together(rank, states)))
    odd = _fewer(first, states, needs(first, states))
    return Verdict(Cause.MISSING, tuple(sorted(odd)), tuple(sorted(stuck)), states, waits[first])


def _together(rank: int, states: Mapping[int, RankState]) -> set[int]:
    wait = states[rank].wait
    assert wait is not None
    others = {other for other in wait.members if other != rank and other in states}
    return {rank, *(other for other in others if _joined(wait, states[other]))}


def _cycle(states: Mapping[int, RankState], stuck: set[int]) -> tuple[int, ...]:
    """Each rank of it waits for the next, the last for the first.

    A stuck rank that needs no other stuck one does not exist here, so following the needs comes back.
    """
    path: list[int] = []
    rank = min(stuck)
    while rank not in path:
        path.append(rank)
        rank = min(needs(rank, states) & stuck)
    return tuple(path[path.index(rank) :])


def _deadline(states: Mapping[int, RankState], timeout: float) -> Verdict | None:
    late = [rank for rank, wait in _waits(states).items() if states[rank].waited >= timeout + wait.patience]
    if not late:
        return None
    first = max(late, key=lambda rank: states[rank].waited)
    return Verdict(
        Cause.DEADLINE,
        tuple(sorted(_awaited(first, states))),
        tuple(sorted(late)),
        states,
        states[first].wait,
    )


def _awaited(rank: int, states: Mapping[int, RankState]) -> set[int]:
    """The ranks at the end of the chain of needs: those that do not wait themselves."""
    seen, open_ends = {rank}, [rank]
    roots: set[int] = set()
    while open_ends:
        at = open_ends.pop()
        if states[at].doing is not Doing.WAITING:
            roots.add(at)
            continue
        new = needs(at, states) - seen
        seen |= new
        open_ends += new
    return roots


# The verdict as people read it: the suspect rank first, where everybody is, why, and what to do.


_MOST_LINES = 20
ANSWERS_WITHIN = 2.0  # seconds; one that is well takes milliseconds

_REMEDIES = {
    Cause.RAISED: "the traceback of {odd} is above; ranks that wait for it end because it did",
    Cause.DIED: "look for what ended {odd}: a signal, a crash in a library, memory that ran out",
    Cause.LEFT: "{odd} ended its program itself, at the line above: look for what made it leave",
    Cause.MISMATCH: "every rank of a group makes the same calls in the same order, with the same shapes, types and "
    "axes; look for a branch that depends on the rank before the line of {odd}",
    Cause.MISSING: "every rank of a group makes the same calls in the same order; look for a branch, an early "
    "return or a loop that is shorter on {odd}",
    Cause.SHORT: "send on {odd} once for each message that is received; look for a loop that is shorter there, or "
    "for a receive too many at the line above",
    Cause.CYCLE: "let one side of each pair receive before it sends, or use other tags",
    Cause.DEADLINE: "where {odd} may be slow, set SOFTMESH_TIMEOUT to more seconds; if not, look at the line above",
}


# What ranks found out together (processes.lockstep): on the machine they would have waited for ever.
_DIFFERENCE = "LockstepError: "


def explained(verdict: Verdict) -> str:
    """The whole report.

    It begins with one line that tells the story, then one line for each kind of place a rank is at.
    """
    if verdict.cause is Cause.RAISED and _error(verdict).startswith(_DIFFERENCE):
        return f"softmesh: hang: {_error(verdict).removeprefix(_DIFFERENCE)}"
    remedy = _REMEDIES[verdict.cause].format(odd=_ranks(verdict.odd) or "the program")
    return "\n".join(["softmesh: " + _headline(verdict), *_places(verdict), f"  remedy: {remedy}"])


def _headline(verdict: Verdict) -> str:
    odd = _ranks(verdict.odd)
    one = len(verdict.odd) == 1
    if verdict.cause is Cause.RAISED:
        return f"{odd} raised {verdict.states[verdict.odd[0]].error.splitlines()[0] if _error(verdict) else ''}"
    if verdict.cause is Cause.DIED:
        return f"{odd} died" + (f": {_error(verdict)}" if _error(verdict) else "")
    if verdict.cause is Cause.LEFT:
        waits = "waits" if len(verdict.stuck) == 1 else "wait"
        waiting = f"; {_ranks(verdict.stuck)} {waits} in {verdict.call.what}" if verdict.call is not None else ""
        return f"{odd} left with {_error(verdict)}{waiting}"
    if verdict.cause is Cause.CYCLE:
        return f"hang: {_ring(verdict)}"
    assert verdict.call is not None
    if verdict.cause is Cause.MISMATCH:
        return f"hang: {odd} {_are_or_were(verdict)} in another call than the rest, which wait in {verdict.call.what}"
    if verdict.cause is Cause.SHORT:
        return f"hang: {_counted(verdict, verdict.call)}"
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


def _counted(verdict: Verdict, call: WaitReport) -> str:
    (sender,) = verdict.odd
    state = verdict.states[sender]
    receiver = next(rank for rank in verdict.stuck if verdict.states[rank].wait == call)
    went_on = "has finished its program" if state.waits_in is None else f"waits in {state.waits_in.what}"
    assert call.sequence is not None
    sent, taken = state.messages[call.channel], call.sequence - 1
    messages = "1 message" if sent == 1 else f"{sent} messages"
    return (
        f"rank {sender} sent {messages} to rank {receiver} and {went_on}; rank {receiver} took {taken} and waits for "
        f"one more in {call.what}"
    )


def _waits_in(state: RankState, call: WaitReport) -> bool:
    there, same = state.waits_in, attrgetter("group", "kind", "sequence", "signature")
    return there is not None and same(there) == same(call)


def _ring(verdict: Verdict) -> str:
    ring = verdict.odd
    links = [f"rank {a} waits for rank {b}" for a, b in zip(ring, (*ring[1:], ring[0]), strict=True)]
    return ", ".join(links) + ": nobody can go on"


def _places(verdict: Verdict) -> list[str]:
    """One line for ranks that are at the same place; odd ones first, then by rank."""
    together: dict[tuple[bool, str], list[int]] = {}
    for rank in sorted(verdict.states):
        together.setdefault((rank not in verdict.odd, _place(rank, verdict)), []).append(rank)
    lines = [f"  {_ranks(ranks)} {place}" for (_, place), ranks in sorted(together.items(), key=lambda g: g[0][0])]
    more = len(lines) - _MOST_LINES
    return lines if more <= 0 else [*lines[:_MOST_LINES], f"  ... and {more} more places"]


def _place(rank: int, verdict: Verdict) -> str:
    state = verdict.states[rank]
    last = f"; last completed: {state.last}" if state.last and rank in verdict.odd else ""
    if state.doing is Doing.WAITING and state.wait is not None:
        missing = sorted(needs(rank, verdict.states))
        awaited = f", for {_ranks(missing)}" if missing else ""
        return f"waiting{awaited} in {state.wait.what}\n      at {state.wait.place}{last}"
    if state.doing is Doing.RAISED:
        return f"raised\n      at {state.site}{last}"
    if state.doing is Doing.DIED:
        end = "ended" if rank in verdict.odd else "ended with the job"
        return f"{end}, last seen {_last_seen(state)}{last}"
    if state.doing is Doing.COMPUTING:
        return f"{_computing(state, verdict.cause)}\n      at {state.site}{last}"
    if state.doing is Doing.FINISHED and state.error:
        return f"left with {state.error}\n      at {state.site}{last}"
    if state.doing is Doing.FINISHED:
        return f"finished its program{last}"
    return "never heard of: it has not made its distributed context"


def _computing(state: RankState, cause: Cause) -> str:
    if state.stopped:
        return "stopped by a signal (SIGSTOP) or a debugger; kill -CONT lets it go on"
    if state.sampled:
        return f"computing, without an answer for {state.quiet:.0f} s: this call lets no other thread run"
    if state.quiet > ANSWERS_WITHIN:
        return f"last seen computing, {state.quiet:.0f} s ago"
    return "last seen computing" if cause in (Cause.RAISED, Cause.DIED, Cause.LEFT) else "computing"


def _last_seen(state: RankState) -> str:
    if state.wait is not None:
        return f"waiting in {state.wait.what}\n      at {state.wait.place}"
    return f"computing\n      at {state.site}" if state.site.line else "starting"


def _ranks(ranks: tuple[int, ...] | list[int]) -> str:
    return f"rank{'s' if len(ranks) > 1 else ''} {ranges(ranks)}" if ranks else ""
