"""The memory of a launch: whatever is written and read, bytes are those of a plain array, and what was read stays."""

from __future__ import annotations

import torch
from hypothesis import given
from hypothesis import strategies as st

from softmesh.kernels.engine.held_bytes import HeldBytes, extents_of, join

_SIZE, _DEVICES = 24, 3
_stretches = st.tuples(st.integers(0, _SIZE - 1), st.integers(1, _SIZE)).map(
    lambda pair: (pair[0], min(pair[1], _SIZE - pair[0]))
)
_acts = st.lists(
    st.tuples(st.sampled_from(["read", "write alike", "write own"]), _stretches), min_size=1, max_size=30
)


@given(_acts)
def test_bytes_are_those_of_an_array_and_what_was_read_stays(acts):
    beneath = torch.arange(_DEVICES * _SIZE, dtype=torch.uint8).reshape(_DEVICES, _SIZE)
    before = beneath.clone()
    held = HeldBytes(lambda start, size: beneath[:, start : start + size])
    array, written = beneath.clone(), torch.zeros(_SIZE, dtype=torch.bool)
    seen = []
    for step, (act, (start, size)) in enumerate(acts):
        if act == "read":
            found = held.read(start, size)
            seen.append((found, array[:, start : start + size].clone()))
        else:
            devices = 1 if act == "write alike" else _DEVICES
            values = torch.full((devices, size), 100 + step, dtype=torch.uint8)
            values += 30 * torch.arange(devices, dtype=torch.uint8).unsqueeze(-1)
            held.write(start, values)
            array[:, start : start + size] = values
            written[start : start + size] = True
        whole = join([held.read(0, _SIZE)], torch.empty(_DEVICES, _SIZE, dtype=torch.uint8))
        assert torch.equal(whole, array)
    assert all(torch.equal(found.expand(_DEVICES, -1), expected) for found, expected in seen)
    assert torch.equal(beneath, before)


@given(_acts)
def test_what_was_written_is_taken_in_runs_that_do_not_touch(acts):
    held = HeldBytes(lambda start, size: torch.zeros(1, size, dtype=torch.uint8))
    array, written = torch.zeros(_DEVICES, _SIZE, dtype=torch.uint8), [False] * _SIZE
    for step, (act, (start, size)) in enumerate(acts):
        if act != "read":
            devices = 1 if act == "write alike" else _DEVICES
            values = torch.full((devices, size), 1 + step, dtype=torch.uint8)
            held.write(start, values)
            array[:, start : start + size] = values
            written[start : start + size] = [True] * size
    covered, last = [False] * _SIZE, -1
    for start, pieces in held.taken():
        values = join(pieces)
        size = values.shape[-1]
        assert start > last
        assert values.shape[:-1] == extents_of(pieces)
        assert torch.equal(values.expand(_DEVICES, -1), array[:, start : start + size])
        covered[start : start + size] = [True] * size
        last = start + size
    assert covered == written
    assert held.taken() == []
