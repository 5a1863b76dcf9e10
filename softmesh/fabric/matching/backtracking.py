"""A constraint solver: backtracking search with forward checking, over domains that are bit sets.

Embedding chips into chips and meshes into groups of chips are the same problem: every variable takes one
value, neighbours take values that go together, and a value that is taken excludes others. Knows nothing of
meshes or machines.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from softmesh.fabric.matching.machine_bitsets import bits


class StepsSpent(Exception):
    """The search was cut off: neither found nor proven impossible."""


class Steps:
    """How many trials a search may take. Counted, never timed: the same input gives the same answer."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.used = 0

    def take(self, count: int = 1) -> None:
        self.used += count
        if self.used > self.limit:
            raise StepsSpent

    def share(self, limit: int) -> Steps:
        """A smaller allowance out of what is left; give it back with `join`."""
        return Steps(min(limit, self.left))

    def join(self, part: Steps) -> None:
        self.used += min(part.used, part.limit)

    @property
    def left(self) -> int:
        return max(0, self.limit - self.used)


@dataclass(frozen=True)
class Blocks:
    """Variables that must share a place: `place_of[value]` is the set of values in the same place."""

    block_of: Sequence[int]
    allowed: Sequence[int]  # for each block, the values it may use; one place alone belongs to that block
    place_of: Sequence[int]
    exclusive: bool  # two blocks never share a place


@dataclass
class Puzzle:
    """`neighbours[v]` lists (other variable, rule); `partners(rule, value)` is what the other may take then."""

    domains: Sequence[int]
    neighbours: Sequence[Sequence[tuple[int, int]]]
    partners: Callable[[int, int], int]
    excludes: Callable[[int], int]
    blocks: Blocks | None = None
    order: Callable[[Search, int, int], Iterable[int]] | None = None  # default: lowest value first
    is_hopeless: Callable[[Search], bool] | None = None
    start: int | None = None  # the first variable; default: the one with the fewest values
    cost: int = 1  # steps that one trial counts for
    in_sequence: bool = False  # take variables in their order, instead of the most constrained next


class Search:
    """One run over a puzzle: `solutions` yields complete assignments, each a list by variable."""

    def __init__(self, puzzle: Puzzle, steps: Steps) -> None:
        self.puzzle = puzzle
        self.steps = steps
        self.values: dict[int, int] = {}
        self.domains = list(puzzle.domains)
        self.available = -1
        self.frontier: frozenset[int] = frozenset()
        self.blocks = list(puzzle.blocks.allowed) if puzzle.blocks else []
        self._undo: list[tuple[int, int, frozenset[int], list[tuple[int, int]], list[int]]] = []

    def domain(self, variable: int) -> int:
        left = self.domains[variable] & self.available
        if self.puzzle.blocks:
            left &= self.blocks[self.puzzle.blocks.block_of[variable]]
        return left

    def solutions(self) -> Iterator[list[int]]:
        total = len(self.domains)
        trials: list[tuple[int, Iterator[int]]] = []
        descending = True
        while True:
            if descending:
                if len(self.values) == total:
                    yield [self.values[variable] for variable in range(total)]
                    descending = False
                    continue
                variable = self._next_variable()
                trials.append((variable, iter(self._ordered(variable))))
            elif trials:
                self._take_back()
            variable, candidates = trials[-1] if trials else (-1, iter(()))
            descending = False
            for value in candidates:
                self.steps.take(self.puzzle.cost)
                if self._assign(variable, value):
                    descending = True
                    break
                self._take_back()
            if not descending:
                if len(trials) <= 1:
                    return
                trials.pop()

    def _ordered(self, variable: int) -> Iterable[int]:
        domain = self.domain(variable)
        if self.puzzle.order:
            return self.puzzle.order(self, variable, domain)
        return bits(domain)

    def _next_variable(self) -> int:
        if self.puzzle.in_sequence:
            return len(self.values)
        if not self.values and self.puzzle.start is not None:
            return self.puzzle.start
        blocks, available, domains = self.puzzle.blocks, self.available, self.domains
        open_variables: Iterable[int] = self.frontier or (
            variable for variable in range(len(domains)) if variable not in self.values
        )
        best, fewest = -1, -1
        for variable in open_variables:
            left = domains[variable] & available
            if blocks:
                left &= self.blocks[blocks.block_of[variable]]
            count = left.bit_count()
            if fewest < 0 or count < fewest or (count == fewest and variable < best):
                best, fewest = variable, count
        return best

    def _assign(self, variable: int, value: int) -> bool:
        """Take the value and narrow the neighbours; False: one of them is left with nothing."""
        puzzle = self.puzzle
        narrowed: list[tuple[int, int]] = []
        self._undo.append((variable, self.available, self.frontier, narrowed, self.blocks))
        self.values[variable] = value
        self.available &= ~puzzle.excludes(value)
        if puzzle.blocks:
            self._settle_block(puzzle.blocks, variable, value)
        fresh = []
        for other, rule in puzzle.neighbours[variable]:
            if other in self.values:
                continue
            fresh.append(other)
            narrowed.append((other, self.domains[other]))
            self.domains[other] &= puzzle.partners(rule, value)
            if not self.domain(other):
                return False
        self.frontier = (self.frontier | frozenset(fresh)) - {variable}
        return not (puzzle.is_hopeless and puzzle.is_hopeless(self))

    def _settle_block(self, blocks: Blocks, variable: int, value: int) -> None:
        place, mine = blocks.place_of[value], blocks.block_of[variable]
        if not self.blocks[mine] & ~place:  # settled by an earlier one of the block
            return
        self.blocks = [
            allowed & place if block == mine else (allowed & ~place if blocks.exclusive else allowed)
            for block, allowed in enumerate(self.blocks)
        ]

    def _take_back(self) -> None:
        variable, self.available, self.frontier, narrowed, self.blocks = self._undo.pop()
        del self.values[variable]
        for other, domain in reversed(narrowed):
            self.domains[other] = domain
