"""Every order in which a mesh may run a program of queue commands, tried one by one.

The host hands commands to queues; each chip works through each queue on its own, waits for events of the other
queue where it is told to, and the host waits where it says so. Nothing else is ordered.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

Cell = tuple[str, int, int]  # a memory, the device it is on, a page of it


@dataclass(frozen=True)
class Step:
    """A line of the program. What has no queue the host does itself, at once or when `waits_for` is over."""

    queue: int | None = None
    reads: frozenset[Cell] = frozenset()
    writes: frozenset[Cell] = frozenset()
    records: int | None = None  # the number of an event
    awaits: int | None = None  # the number of an event
    finishes: int | None = None  # the number of a queue
    devices: frozenset[int] = frozenset({0})

    @property
    def cells(self) -> frozenset[Cell]:
        return self.reads | self.writes


class State(NamedTuple):
    """How far everybody is: the host in the program, each device in each queue."""

    host: int
    done: tuple[tuple[int, ...], ...]  # by device and queue


class Interleavings:
    def __init__(self, program: list[Step], queues: int, devices: int) -> None:
        self._program = program
        self._queues = [[i for i, step in enumerate(program) if step.queue == q] for q in range(queues)]
        self._start = State(0, ((0,) * queues,) * devices)
        self._recorded = {step.records: i for i, step in enumerate(program) if step.records is not None}

    # -- what may come next --------------------------------------------------------------------------

    def _moves(self, state: State) -> Iterator[tuple[int, int | None]]:
        """Lines that may run next, each with the device that would run it (None: the host)."""
        if state.host < len(self._program) and self._host_may(state):
            yield state.host, None
        for device, counts in enumerate(state.done):
            for queue, count in enumerate(counts):
                at = self._queues[queue][count] if count < len(self._queues[queue]) else None
                if at is not None and at < state.host and self._device_may(state, at, device):
                    yield at, device

    def _host_may(self, state: State) -> bool:
        step = self._program[state.host]
        if step.queue is not None:
            return True
        if step.finishes is not None:
            handed = sum(at < state.host for at in self._queues[step.finishes])
            return all(counts[step.finishes] == handed for counts in state.done)
        if step.awaits is not None:
            recorded = self._recorded[step.awaits]
            return all(self._is_over(state, recorded, device) for device in self._program[recorded].devices)
        return True

    def _device_may(self, state: State, at: int, device: int) -> bool:
        event = self._program[at].awaits
        if event is None or device not in self._program[self._recorded[event]].devices:
            return True
        return self._is_over(state, self._recorded[event], device)

    def _is_over(self, state: State, at: int, device: int) -> bool:
        queue = self._program[at].queue
        assert queue is not None
        return state.done[device][queue] > self._queues[queue].index(at)

    def _after(self, state: State, at: int, device: int | None) -> State:
        if device is None:
            return state._replace(host=state.host + 1)
        queue = self._program[at].queue
        assert queue is not None
        counts = tuple(n + (q == queue) for q, n in enumerate(state.done[device]))
        return state._replace(done=(*state.done[:device], counts, *state.done[device + 1 :]))

    # -- what comes of it ----------------------------------------------------------------------------

    def unordered(self) -> set[tuple[int, int]]:
        """Pairs of lines, the earlier one first, that conflict and may run in either order: both can be next."""
        found: set[tuple[int, int]] = set()
        known, open_ = {self._start}, [self._start]
        while open_:
            state = open_.pop()
            moves = list(self._moves(state))
            found |= {(a, b) for a, da in moves for b, db in moves if a < b and self._conflict(a, da, b, db)}
            new = {self._after(state, *move) for move in moves} - known
            known |= new
            open_ += new
        return found

    def _conflict(self, a: int, on_a: int | None, b: int, on_b: int | None) -> bool:
        one, other = self._program[a], self._program[b]
        written = (one.writes & other.cells) | (other.writes & one.cells)
        return any(self._touches(one, cell, on_a) and self._touches(other, cell, on_b) for cell in written)

    @staticmethod
    def _touches(step: Step, cell: Cell, device: int | None) -> bool:
        """A device touches its own memory, and the first one the host's; the host touches what it does itself."""
        if device is None:
            return step.queue is None
        return cell[1] == device

    def has_two_outcomes(self) -> bool:
        """Whether some command may find, where it reads or writes, what another order would not show it."""
        outcomes: set[frozenset[tuple[int, Cell, int]]] = set()
        first = (self._start, frozenset[tuple[Cell, int]](), frozenset[tuple[int, Cell, int]]())
        known, open_ = {first}, [first]
        while open_ and len(outcomes) < 2:
            state, memory, seen = open_.pop()
            moves = list(self._moves(state))
            if not moves:
                outcomes.add(seen)
            for at, device in moves:
                new = (self._after(state, at, device), *self._run(at, device, memory, seen))
                if new not in known:
                    known.add(new)
                    open_.append(new)
        return len(outcomes) > 1

    def _run(
        self,
        at: int,
        device: int | None,
        memory: frozenset[tuple[Cell, int]],
        seen: frozenset[tuple[int, Cell, int]],
    ) -> tuple[frozenset[tuple[Cell, int]], frozenset[tuple[int, Cell, int]]]:
        """Memory holds the number of the line that wrote it last; a write sees what it overwrites."""
        step = self._program[at]
        cells = {cell for cell in step.cells if self._touches(step, cell, device)}
        held = dict(memory)
        seen |= {(at, cell, held.get(cell, -1)) for cell in cells}
        held |= dict.fromkeys(cells & step.writes, at)
        return frozenset(held.items()), seen
