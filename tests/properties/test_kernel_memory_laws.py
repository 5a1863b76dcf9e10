"""The memory of a launch: whatever is written and read, bytes are those of a plain array, and what was read stays."""

from __future__ import annotations

import torch
from hypothesis import given
from hypothesis import strategies as st

from softmesh.kernels.engine.byte_overlay import ByteOverlay, extents_of, join

_SIZE, _DEVICES = 24, 3
_stretches = st.tuples(st.integers(0, _SIZE - 1), st.integers(1, _SIZE)).map(
    lambda pair: (pair[0], min(pair[1], _SIZE - pair[0]))
)
_acts = st.lists(st.tuples(st.sampled_from(["read", "write alike", "write own"]), _stretches), min_size=1, max_size=30)


@given(_acts, st.booleans())
def test_bytes_are_those_of_an_array_and_what_was_read_stays(acts, absorbs):
    beneath = torch.arange(_DEVICES * _SIZE, dtype=torch.uint8).reshape(_DEVICES, _SIZE)
    before = beneath.clone()
    held = ByteOverlay(lambda start, size: beneath[:, start : start + size], absorbs=absorbs)
    array = beneath.clone()
    seen = []
    for step, (act, (start, size)) in enumerate(acts):
        if act == "read":
            found = held.read(start, size)
            seen.append((found, array[:, start : start + size].clone()))
        else:
            values = _values(act, step, size)
            held.write(start, values)
            array[:, start : start + size] = values
    seen.append((held.read(0, _SIZE), array))
    assert all(torch.equal(found.expand(_DEVICES, -1), expected) for found, expected in seen)
    assert torch.equal(beneath, before)
    assert held.extents(_SIZE) == held.read(0, _SIZE).shape[:-1]


@given(_acts, _acts)
def test_a_copy_and_what_it_was_made_of_go_their_own_ways(before, after):
    held = ByteOverlay(lambda start, size: torch.zeros(1, size, dtype=torch.uint8))
    for step, (act, (start, size)) in enumerate(before):
        held.write(start, _values(act, step, size))
    copy = held.copy()
    whole = held.read(0, _SIZE).clone()
    for step, (act, (start, size)) in enumerate(after):
        copy.write(start, _values(act, 50 + step, size))
    assert torch.equal(held.read(0, _SIZE), whole)


@given(_acts)
def test_runs_are_what_was_written_and_do_not_touch(acts):
    held = ByteOverlay(lambda start, size: torch.zeros(1, size, dtype=torch.uint8))
    array, written = torch.zeros(_DEVICES, _SIZE, dtype=torch.uint8), [False] * _SIZE
    for step, (act, (start, size)) in enumerate(acts):
        if act != "read":
            values = _values(act, step, size)
            held.write(start, values)
            array[:, start : start + size] = values
            written[start : start + size] = [True] * size
    covered, last = [False] * _SIZE, -1
    for start, pieces in held.runs():
        values = join(pieces)
        size = values.shape[-1]
        assert start > last
        assert values.shape[:-1] == extents_of(pieces)
        assert torch.equal(values.expand(_DEVICES, -1), array[:, start : start + size])
        room = torch.zeros(_DEVICES, size, dtype=torch.uint8)
        assert torch.equal(join(pieces, room), array[:, start : start + size])
        covered[start : start + size] = [True] * size
        last = start + size
    assert covered == written


def _values(act: str, step: int, size: int) -> torch.Tensor:
    devices = torch.arange(1 if act == "write alike" else _DEVICES, dtype=torch.uint8)
    return (100 + step + 30 * devices).unsqueeze(-1).expand(-1, size)
