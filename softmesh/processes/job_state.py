"""The state of every rank of a job, known from their reports, and when it is certain that the job hangs.

Time is handed in. A suspected hang is confirmed when every stuck rank reports again that it still polls for the same
thing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from softmesh.processes.hang_verdict import Cause, Doing, RankState, Verdict, left_early, stuck_ranks, verdict
from softmesh.processes.wait_report import Site, site_from_data, text, wait_from_data

# A hang is believed when every stuck rank said twice that it still looks, in vain, for the same thing.
_CONFIRMED_AFTER = 0.2

# A rank that raised ends the job itself: what it printed comes first, and is complete.
_LAST_WORDS = 2.0

KILLED = "killed by signal "
_BY_MPIRUN = (f"{KILLED}15 (SIGTERM)", f"{KILLED}9 (SIGKILL)")

# Last words: an answer that was on its way when they were said changes nothing.
_ENDED = (Doing.FINISHED, Doing.RAISED, Doing.DIED)


@dataclass(frozen=True)
class _Suspicion:
    cause: Cause
    odd: tuple[int, ...]
    serials: Mapping[int, int]
    polls: Mapping[int, int]
    since: float


class JobState:
    def __init__(self, ranks: int, timeout: float) -> None:
        self.states: dict[int, RankState] = {rank: RankState() for rank in range(ranks)}
        self._timeout = timeout
        self._began: dict[int, float] = {}
        self._last_message: dict[int, float] = {}
        self._suspicion: _Suspicion | None = None
        self.exits: dict[int, str] = {}

    def update(self, rank: int, message: Mapping[str, Any], now: float) -> None:
        """A message of a rank; one that makes no sense changes nothing."""
        if rank not in self.states or self.states[rank].doing in _ENDED:
            return
        try:
            self.states[rank] = self._read(rank, message, now)
        except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError, RecursionError):
            return
        self._last_message[rank] = now

    def _read(self, rank: int, message: Mapping[str, Any], now: float) -> RankState:
        messages = {str(channel): int(count) for channel, count in message.get("messages", {}).items()}
        return replace(self._state_in(rank, message, now), messages=messages or self.states[rank].messages)

    def _state_in(self, rank: int, message: Mapping[str, Any], now: float) -> RankState:
        old = self.states[rank]
        doing = Doing(message["state"])
        last = text(message.get("last", old.last))
        done = wait_from_data(message["done"]) if message.get("done") else old.done
        if doing is Doing.WAITING:
            wait = wait_from_data(message["wait"])
            self._began[rank] = now - wait.seconds
            return RankState(doing, wait, wait.seconds, wait.site, last, done=done)
        site = site_from_data(message.get("site", ()))
        if doing is Doing.RAISED:
            error = text(message.get("error", ""))
            return RankState(doing, old.wait, 0.0, site, last, error, now, done)
        if doing is Doing.FINISHED:
            return RankState(doing, None, 0.0, site, last, text(message.get("exit", "")), now, done)
        return RankState(doing, None, 0.0, site, last, order=now, done=done)

    def has_raised(self, rank: int) -> bool:
        return rank in self.states and self.states[rank].doing is Doing.RAISED

    def sampled(self, rank: int, site: Site) -> None:
        """Where a rank is that does not answer."""
        state = self.states.get(rank)
        if state is not None and state.doing is Doing.COMPUTING:
            self.states[rank] = replace(state, site=site, sampled=True)

    def stopped(self, rank: int, is_stopped: bool) -> None:
        """True if the process of a rank is stopped, from who can see it."""
        state = self.states.get(rank)
        if state is not None and state.doing is Doing.COMPUTING and state.stopped != is_stopped:
            self.states[rank] = replace(state, stopped=is_stopped)

    def connection_closed(self, rank: int, now: float) -> None:
        """The connection ended. Whether the rank did too is known when the job ends."""
        state = self.states.get(rank)
        if state is not None and state.doing not in _ENDED:
            self.states[rank] = replace(state, doing=Doing.SILENT, order=now)

    def process_exited(self, rank: int, how: str) -> None:
        """How the process of a rank ended, from who saw it; told where the rank had no last words."""
        self.exits[rank] = how

    def process_died(self, rank: int, how: str, now: float) -> None:
        state = self.states.get(rank)
        if state is not None and state.doing not in (Doing.RAISED, Doing.DIED):
            order = state.order if state.doing is Doing.SILENT and state.order else now
            self.states[rank] = replace(state, doing=Doing.DIED, error=how, order=order)

    def decide(self, now: float) -> Verdict | None:
        """The verdict, once it is certain."""
        found = verdict(self._states_at(now), self._timeout)
        if found is None:
            self._suspicion = None
            return None
        if found.cause is Cause.RAISED:
            return found if now - found.states[found.odd[0]].order >= _LAST_WORDS else None
        if found.cause in (Cause.DIED, Cause.DEADLINE) or self._confirmed(found, now):
            return found
        return None

    def decide_at_end(self, now: float, how: str = "") -> Verdict | None:
        """The job failed and is over: ranks that went without a word died, and the first one matters.

        `how` it ended, as its exit code tells.
        """
        absent = [rank for rank, state in self.states.items() if state == RankState()]
        for rank, state in list(self.states.items()):
            if state.doing is Doing.SILENT and rank not in absent:
                self.process_died(rank, self.exits.get(rank, how), now)
        found = verdict(self._states_at(now), self._timeout)
        if how.startswith(KILLED) and (found is None or found.cause is not Cause.RAISED):
            found = self._killed(absent, how, now) or found
            if found is not None and found.cause is Cause.DIED:
                return found
        if found is None or found.cause not in (Cause.RAISED, Cause.DIED):
            return left_early(self.states)
        return (found.cause is Cause.DIED and self._never_joined(absent)) or found

    def _killed(self, absent: list[int], how: str, now: float) -> Verdict | None:
        """Whom the signal that the job tells of ended first: mpirun kills the others by one of its own."""
        as_code = f"exit code {128 + int(how.removeprefix(KILLED).split()[0])} "  # as Python ends by Ctrl-C
        first = next((rank for rank, told in self.exits.items() if told == how or told.startswith(as_code)), None)
        if first is None and (missing := self._never_joined([rank for rank in absent if rank not in self.exits])):
            first = missing.odd[0]
        if first is None or self.states[first].doing in (Doing.RAISED, Doing.FINISHED):
            return None
        self.process_died(first, how, now)
        return Verdict(Cause.DIED, (first,), tuple(sorted(stuck_ranks(self.states))), self._states_at(now))

    @property
    def was_ended_from_outside(self) -> bool:
        """Whether every rank that was seen to end was killed as mpirun kills, and none had said that it ends."""
        are_killed = all(how in _BY_MPIRUN for how in self.exits.values())
        has_own_end = any(state.doing is Doing.RAISED or state.error for state in self.states.values())
        return bool(self.exits) and are_killed and not has_own_end

    @property
    def has_heard_nothing(self) -> bool:
        return not self.exits and all(state == RankState() for state in self.states.values())

    def _never_joined(self, absent: list[int]) -> Verdict | None:
        """A rank that ended before it joined takes the job down too; those that waited for it tell."""
        waits = {rank: state.wait for rank, state in self.states.items() if state.wait is not None}
        for wait in waits.values():
            if odd := tuple(rank for rank in absent if rank in wait.members):
                return Verdict(Cause.MISSING, odd, tuple(waits), dict(self.states), wait)
        return None

    @property
    def suspicious(self) -> bool:
        return self._suspicion is not None

    def _states_at(self, now: float) -> dict[int, RankState]:
        return {rank: self._state_at(rank, state, now) for rank, state in self.states.items()}

    def _state_at(self, rank: int, state: RankState, now: float) -> RankState:
        if state.doing is Doing.WAITING:
            return replace(state, waited=now - self._began[rank])
        if state.doing is Doing.COMPUTING:
            return replace(state, quiet=now - self._last_message[rank])
        return state

    def _confirmed(self, found: Verdict, now: float) -> bool:
        waits = {rank: state.wait for rank in found.stuck if (state := self.states[rank]).wait is not None}
        serials = {rank: wait.serial for rank, wait in waits.items() if wait is not None}
        polls = {rank: wait.polls for rank, wait in waits.items() if wait is not None}
        before = self._suspicion
        if before is None or (before.cause, before.odd, before.serials) != (found.cause, found.odd, serials):
            self._suspicion = _Suspicion(found.cause, found.odd, serials, polls, now)
            return False
        looked = all(polls[rank] > before.polls[rank] or not serials[rank] for rank in polls)
        return looked and now - before.since >= _CONFIRMED_AFTER
