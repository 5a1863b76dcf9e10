"""Words as signals: what a kernel knows that has waited for one; and which signals a chip may lose.

Who waits until a word is so much knows of those that brought it there, and not of those that came later. A kernel that
sets a semaphore overwrites what others have added to it without its knowledge. One that waits for exactly a value may
find it changed already, unless whoever changes it knows that the value was seen.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from softmesh.callsite import RawSite, raw_call_site, resolved
from softmesh.kernels.engine.memory_order import join

if TYPE_CHECKING:
    from softmesh.kernels.engine.memory_order import Access, Clock, Known
    from softmesh.kernels.engine.scheduler import KernelThread
    from softmesh.kernels.engine.worker_core import Core


class _Seen(NamedTuple):
    value: int
    access: Access
    site: RawSite


class _Change(NamedTuple):
    word: int | None  # None where it came as bytes
    known: Known  # to those who wait for it


_MOST_CHANGES = 64  # of a word that are remembered; who waits for an earlier one counts as having waited for these


class _Word:
    __slots__ = ("adds", "changes", "seen", "setter", "value")

    def __init__(self) -> None:
        self.changes: deque[_Change] = deque(maxlen=_MOST_CHANGES)  # since it was set, or lowered
        self.setter: Access | None = None
        self.value = 0  # that it was set to
        self.adds: dict[int, Access] = {}  # since it was set, by the number of the thread
        self.seen: _Seen | None = None  # by a wait for exactly this value


class Signals:
    """Of the words of one core."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._words: dict[int, _Word] = {}

    def waited(self, thread: KernelThread, address: int, value: int) -> None:
        self._word(address).seen = _Seen(value, thread.clock.now(), raw_call_site())

    def note(self, address: int, word: int | None, known: Known, *, adds: bool = False) -> None:
        """A word has changed."""
        changes = self._word(address).changes
        if adds and changes:
            join(known, changes[-1].known)
        if not adds or (changes and (changes[-1].word or 0) > (word or 0)):
            changes.clear()
        changes.append(_Change(word, known))

    def learn(self, clock: Clock, address: int, is_met: Callable[[int], bool]) -> bool:
        """From the change that has met a wait, with whatever came before it; False where none is known."""
        word = self._words.get(address)
        if word is None or not word.changes:
            return False
        found = word.changes[-1]
        for change in reversed(word.changes):
            if change.word is not None and not is_met(change.word):
                break
            found = change
        clock.learn(found.known)
        return True

    def learn_all(self, clock: Clock, address: int) -> None:
        """Up to the last change."""
        word = self._words.get(address)
        if word is not None and word.changes:
            clock.learn(word.changes[-1].known)

    def check(self, access: Access, address: int, to: int, *, adds: bool) -> None:
        """A kernel is about to change a word."""
        word, thread, clock = self._word(address), access.thread, access.clock
        if word.setter is None and not word.adds and self._core.lacks_semaphore(address):
            self._tell_misplaced(thread, address)
        seen = word.seen
        if seen is not None and seen.value != to:
            if not seen.access.is_known_to(clock):
                self._tell_passed_over(thread, address, seen, to)
            word.seen = None
        if adds:
            if word.setter is not None and not word.setter.is_known_to(clock):
                self._tell_lost(word.setter.thread, thread, address)
            word.adds[access.number] = access
        else:
            others = list(word.adds.values())
            if word.setter is not None and word.value != to:
                others.append(word.setter)
            for other in others:
                if not other.is_known_to(clock):
                    self._tell_lost(thread, other.thread, address)
            word.adds.clear()
            word.setter, word.value = access, to

    def drop_references(self) -> None:
        vars(self).clear()

    def _word(self, address: int) -> _Word:
        word = self._words.get(address)
        if word is None:
            word = self._words[address] = _Word()
        return word

    def _tell_misplaced(self, thread: KernelThread, address: int) -> None:
        self._tell(
            (thread.kernel, "misplaced"),
            f"{thread.name} signals to address {address} of {self._core}, which has no semaphore there: its ids are "
            f"{', '.join(map(str, sorted(self._core.semaphores)))}. Let the cores of CreateSemaphore contain all that "
            "are signalled to.",
        )

    def _tell_passed_over(self, thread: KernelThread, address: int, seen: _Seen, to: int) -> None:
        waiter = seen.access.thread
        name = self._core.name_of(address)
        self._tell(
            (waiter.kernel, thread.kernel, "passed over"),
            f"{waiter.name} waits until {name} is {seen.value} [{resolved(seen.site)}], and {thread.name} makes it "
            f"{to} without knowing that this was seen: on a chip it may be {to} at once, and the wait never ends. Wait "
            f"with noc_semaphore_wait_min({name}, {seen.value}), or let the one answer before the other goes on.",
        )

    def _tell_lost(self, setter: KernelThread, other: KernelThread, address: int) -> None:
        name = self._core.name_of(address)
        self._tell(
            (setter.kernel, other.kernel, "lost"),
            f"{setter.name} sets {name} of {self._core}, {other.name} sets or raises it, and neither has waited for "
            "the other: on a chip the signal may be overwritten, and whoever waits for it hangs. Set it before the "
            "others are told to go on, or never: noc_semaphore_wait_min waits for a count that only goes up.",
        )

    def _tell(self, key: tuple[object, ...], message: str) -> None:
        chip = self._core.chip
        chip.launch_state.findings.add(key, message, is_strict=chip.is_strict)
