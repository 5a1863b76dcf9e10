"""Who touched which bytes: stretches that are cut and joined, and what counts as having waited."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from softmesh.kernels.engine.conflicts import Findings
from softmesh.kernels.engine.memory_order import Access, Clock
from softmesh.kernels.engine.signals import Signals
from softmesh.kernels.engine.touched_bytes import TouchedBytes


class Place:
    """A bank of its own chip."""

    def __init__(self):
        findings = Findings()
        self.chip = SimpleNamespace(launch_state=SimpleNamespace(findings=findings), is_strict=False)
        self.touched = TouchedBytes(self)
        self.told = findings._found

    def what_is_at(self, address):
        return f"byte {address}", False


def kernel(number):
    thread = SimpleNamespace(name=f"kernel {number}", kernel=number, core=number)
    thread.clock = Clock(thread, number)
    return thread


touches = st.lists(
    st.tuples(st.integers(0, 2), st.sampled_from(["read", "write"]), st.integers(0, 24), st.integers(1, 12)),
    max_size=12,
)


@given(touches)
def test_two_touches_are_told_where_one_writes_and_they_overlap(steps):
    """As if every byte were looked at by itself."""
    place, kernels = Place(), [kernel(number) for number in range(3)]
    writers: dict[int, int] = {}
    readers: dict[int, set[int]] = {}
    expected = False
    for number, does, start, size in steps:
        getattr(place.touched, does)(kernels[number].clock.now(), start, size)
        for byte in range(start, start + size):
            expected |= writers.get(byte, number) != number
            if does == "write":
                expected |= bool(readers.pop(byte, set()) - {number})
                writers[byte] = number
            else:
                readers.setdefault(byte, set()).add(number)
    assert bool(place.told) is expected


def test_who_has_waited_is_in_order():
    place, one, other = Place(), kernel(0), kernel(1)
    place.touched.write(one.clock.now(), 0, 64)
    other.clock.learn(one.clock.published())
    place.touched.read(other.clock.now(), 16, 8)
    assert not place.told
    place.touched.write(one.clock.now(), 20, 1)
    assert place.told


@pytest.mark.parametrize(("ended", "is_told"), [(True, False), (False, True)])
def test_a_transfer_lasts_until_its_barrier(ended, is_told):
    place, one, other = Place(), kernel(0), kernel(1)
    transfer = Access(one.clock, "noc_async_write")
    place.touched.write(transfer, 0, 64)
    if ended:
        transfer.end()
    other.clock.learn(one.clock.published())
    place.touched.read(other.clock.now(), 0, 64)
    assert bool(place.told) is is_told


def test_a_barrier_behind_the_signal_is_too_late():
    place, one, other = Place(), kernel(0), kernel(1)
    transfer = Access(one.clock, "noc_async_write")
    place.touched.write(transfer, 0, 64)
    other.clock.learn(one.clock.published())
    transfer.end()
    place.touched.read(other.clock.now(), 0, 64)
    ((message, _, _),) = place.told.values()
    assert "kernel 1 reads byte 0 while a noc_async_write of kernel 0 may still be under way" in message


def test_a_wait_teaches_of_the_signals_that_it_needs():
    signals, kernels, waiting = Signals(SimpleNamespace()), [kernel(number) for number in range(3)], kernel(3)
    for count, one in enumerate(kernels, 1):
        signals.note(0, count, one.clock.published(), adds=True)
    signals.learn(waiting.clock, 0, lambda value: value >= 2)
    assert waiting.clock.known == {0: 1, 1: 1, 3: 1}
    signals.learn(waiting.clock, 0, lambda value: value == 3)
    assert waiting.clock.known == {0: 1, 1: 1, 2: 1, 3: 1}


def test_a_count_that_was_lowered_begins_anew():
    signals, one, waiting = Signals(SimpleNamespace()), kernel(0), kernel(1)
    for word in (1, 2, 1):
        signals.note(0, word, one.clock.published(), adds=True)
    signals.learn(waiting.clock, 0, lambda value: value >= 1)
    assert waiting.clock.known[0] == 3
