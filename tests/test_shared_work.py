"""Processes of one mesh share the work of collectives and unified ops: the same bits, and nothing mixed up."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from test_big_mesh import TT_RUN, bindings, run, told

pytestmark = pytest.mark.usefixtures("mpi")

PROGRAM = Path(__file__).parent / "fixtures" / "ranks" / "shared_work.py"


def test_work_that_is_shared_gives_the_bits_of_one_process(tmp_path: Path) -> None:
    alone = told(run([sys.executable, str(PROGRAM)], tmp_path))
    assert len(alone) == 8
    binding = str(bindings(tmp_path, (2, 2)))
    command = [*TT_RUN, "--rank-binding", binding, "--", sys.executable, str(PROGRAM)]
    assert told(run(command, tmp_path)) == alone
