"""Code generation for replay: compiles a trace to one Python function, the torch calls one after the other.

    def replay(m0):
        v1 = m0.data
        v1 = c0(v1, k0)
        v1 = c1(v1)
        ...

Replaying costs what these calls cost. A value whose last reader has run gives its name, and so its
memory, to a later one; where that reader can write over it (see steps), it does.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any

from softmesh.runtime.traces.steps import Act, Compute, Constant, Read, Source, Step, View

SOURCE_NAME = "<trace>"
_ABOVE = 3  # the number of the first line of the function's body


class ReplayCode:
    """`memories` are the slots whose memories the function takes, in this order.

    `steps_of` has for the numbers of the source's lines the step that a line belongs to.
    """

    def __init__(self, steps: Sequence[Step], kept: Collection[int], external: Collection[int]) -> None:
        """`kept` slots keep their value to the end; `external` ones were there before."""
        self._kept = frozenset(kept)
        self._external = frozenset(external)
        self.memories: list[int] = []
        self._last_use = _last_uses(steps)
        self._own = _own_values(steps)
        self._known: dict[str, object] = {}
        self._value: dict[int, str] = {}  # slot -> the variable that holds it now
        self._free: list[str] = []
        self._variables = 0
        self._lines: list[str] = []
        self.steps_of: dict[int, int] = {}
        for at, step in enumerate(steps):
            if isinstance(step, Compute):
                self._compute(at, step)
            else:
                self._act(at, step)
            for line in range(len(self.steps_of), len(self._lines)):
                self.steps_of[line + _ABOVE] = at
        self._lines.append(f"return ({''.join(self._current(slot) + ', ' for slot in sorted(self._kept))})")

    def function(self) -> Callable[..., tuple[Any, ...]]:
        """Runs the steps; returns the values of the kept slots, in the order of their numbers."""
        known, taken = ", ".join(self._known), ", ".join(f"m{slot}" for slot in self.memories)
        body = "\n".join(f"        {line}" for line in self._lines)
        source = f"def make({known}):\n    def replay({taken}):\n{body}\n    return replay\n"
        scope: dict[str, Any] = {}
        exec(compile(source, SOURCE_NAME, "exec"), scope)  # made of numbered names only: no text of the user's
        replay: Callable[..., tuple[Any, ...]] = scope["make"](*self._known.values())
        return replay

    # -- steps -----------------------------------------------------------------------------------

    def _compute(self, at: int, step: Compute) -> None:
        call = f"{self._name('c', self._call(at, step))}({self._arguments(step.reads)})"
        self._forget(at, step.reads)
        if not step.is_several:
            self._bind(at, step.writes[0], self._finished(call, step.finishes[0]))
            return
        everything = self._variable()
        self._lines.append(f"{everything} = {call}")
        for i, (slot, finish) in enumerate(zip(step.writes, step.finishes, strict=True)):
            self._bind(at, slot, self._finished(f"{everything}[{i}]", finish))
        self._release(everything)

    def _call(self, at: int, step: Compute) -> Callable[..., Any]:
        """The cheapest form of the call: in place, where nobody reads the first operand after it."""
        forms, first = step.forms, step.reads[0] if step.reads else None
        if forms is None or not isinstance(first, Read):
            return step.call
        is_over = self._last_use[first.slot] == at and first.slot not in self._kept
        return forms.in_place if step.fits_first and first.slot in self._own and is_over else forms.out_of_place

    def _act(self, at: int, step: Act) -> None:
        seen = [slot for slot in self._value if slot in self._kept] if step.by_address else step.changes
        for slot in seen:
            self._publish(slot)
        self._lines.append(f"{self._name('a', step.call)}({self._arguments(step.reads)})")
        self._forget(at, step.reads)
        if step.by_address:
            self._reload()
        for slot in seen:
            self._bind(at, slot, f"{self._memory(slot)}.data")

    def _reload(self) -> None:
        """Values of memories that were there before are looked up again when next read."""
        for slot in [slot for slot in self._value if slot in self._external]:
            self._release(self._value.pop(slot))

    # -- values ----------------------------------------------------------------------------------

    def _arguments(self, reads: Sequence[Source]) -> str:
        return ", ".join(self._argument(source) for source in reads)

    def _argument(self, source: Source) -> str:
        if isinstance(source, Constant):
            return self._name("k", source.value)
        if isinstance(source, View):
            self._publish(source.slot)
            return f"{self._name('l', source.look)}()"
        value = self._current(source.slot)
        return value if source.prepare is None else f"{self._name('p', source.prepare)}({value})"

    def _finished(self, value: str, finish: Callable[..., Any] | None) -> str:
        return value if finish is None else f"{self._name('f', finish)}({value})"

    def _current(self, slot: int) -> str:
        if slot not in self._value:
            self._value[slot] = self._variable()
            self._lines.append(f"{self._value[slot]} = {self._memory(slot)}.data")
        return self._value[slot]

    def _publish(self, slot: int) -> None:
        """Let the memory have the value, for a call that looks there."""
        if slot in self._value:
            self._lines.append(f"{self._memory(slot)}.data = {self._value[slot]}")

    def _bind(self, at: int, slot: int, value: str) -> None:
        if slot not in self._value:
            self._value[slot] = self._variable()
        self._lines.append(f"{self._value[slot]} = {value}")
        if self._last_use.get(slot, -1) <= at and slot not in self._kept:
            self._release(self._value.pop(slot))

    def _forget(self, at: int, reads: Sequence[Source]) -> None:
        for source in reads:
            if isinstance(source, Constant) or source.slot in self._kept or self._last_use[source.slot] > at:
                continue
            variable = self._value.pop(source.slot, None)
            if variable is not None:
                self._release(variable)

    # -- names -----------------------------------------------------------------------------------

    def _memory(self, slot: int) -> str:
        if slot not in self.memories:
            self.memories.append(slot)
        return f"m{slot}"

    def _name(self, kind: str, value: object) -> str:
        name = f"{kind}{len(self._known)}"
        self._known[name] = value
        return name

    def _variable(self) -> str:
        if self._free:
            return self._free.pop()
        self._variables += 1
        return f"v{self._variables}"

    def _release(self, variable: str) -> None:
        self._free.append(variable)


def _last_uses(steps: Sequence[Step]) -> dict[int, int]:
    last: dict[int, int] = {}
    for at, step in enumerate(steps):
        for source in step.reads:
            if isinstance(source, Read | View):
                last[source.slot] = at
        if isinstance(step, Act):
            last.update(dict.fromkeys(step.changes, at))
    return last


def _own_values(steps: Sequence[Step]) -> set[int]:
    """Slots whose memory is no other value's: made, and read, by calls that give new memory only."""
    made: set[int] = set()
    shared: set[int] = set()
    for step in steps:
        if isinstance(step, Compute) and step.forms is not None:
            made.update(step.writes)
            continue
        shared.update(source.slot for source in step.reads if not isinstance(source, Constant))
        shared.update(step.writes if isinstance(step, Compute) else step.changes)
    return made - shared
