"""The examples of the low-level runtime run to their end and show what they promise."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

from softmesh.alias import aliased

EXAMPLES = Path(__file__).parent.parent / "examples"
EXAMPLE = EXAMPLES / "metal_five_functions.py"
PRINTED = {
    "metal_dispatch.py": "ran on 8 devices, 4 cores each",
    "metal_buffer_round_trip.py": "32 MiB round trip, 4 MiB on each device",
    "metal_elementwise_add.py": "8192 of 8192 values are right",
    "metal_trace_and_events.py": "2 + 3 = 5 everywhere, 7 * 5 = 35 on the top row, 7 - 5 = 2 below",
}


@pytest.mark.parametrize("name", sorted(PRINTED))
def test_a_distributed_programming_example_checks_itself(name, capsys):
    with aliased():
        runpy.run_path(str(EXAMPLES / name), run_name="__main__")
    assert PRINTED[name] in capsys.readouterr().out


def test_four_cards_fit_a_line_and_survive_one_that_hangs(capsys):
    names = runpy.run_path(str(EXAMPLE), run_name="__main__")
    printed = capsys.readouterr().out
    assert len(names["fitted"]) == 4
    assert "the same bits on every kind of card and in both modes: True" in printed
    assert "card (0, 2), serial SM-0002, index 2: TimeoutError: program 'gradient' did not finish" in printed
    assert printed.endswith("all checks passed\n")
