"""A call enters few Python functions: the first of an op, which is planned, and those after it, which are compiled."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
from warm_python import warm_python

SCRIPT = Path(__file__).parents[1] / "fixtures" / "frames_of_calls.py"


@pytest.fixture(scope="module")
def shown() -> str:
    """What the script prints in a process of its own: a queue that a test pushes costs all later calls a frame."""
    done = subprocess.run([*warm_python(), str(SCRIPT)], capture_output=True, text=True, check=True, timeout=120)
    return done.stdout


@pytest.mark.parametrize("name", ["first add", "warm add", "warm all_reduce"])
def test_a_call_enters_few_functions(name: str, shown: str) -> None:
    [(count, bound)] = re.findall(rf"^{name}: (\d+) frames, at most (\d+)$", shown, re.MULTILINE)
    assert int(count) <= int(bound), shown
