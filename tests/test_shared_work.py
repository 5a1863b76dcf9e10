"""Processes of one mesh share the work of collectives and unified ops: the same bits, and nothing mixed up."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from test_big_mesh import bindings, run, told
from warm_python import warm_python, warm_tt_run

pytestmark = pytest.mark.usefixtures("mpi")

PROGRAMS = Path(__file__).parent / "fixtures" / "ranks"
PROGRAM = PROGRAMS / "shared_work.py"


def test_work_that_is_shared_gives_the_bits_of_one_process(tmp_path: Path) -> None:
    alone = told(run([*warm_python(), str(PROGRAM)], tmp_path))
    assert len(alone) == 8
    binding = str(bindings(tmp_path, (2, 2)))
    command = [*warm_tt_run(), "--rank-binding", binding, "--", sys.executable, str(PROGRAM)]
    assert told(run(command, tmp_path)) == alone


def test_calls_that_know_the_whole_mesh_give_the_results_of_one_process(tmp_path: Path) -> None:
    program = ["-m", "softmesh", str(PROGRAMS / "same_results.py")]
    alone = told(run([*warm_python(), *program], tmp_path))
    assert len(alone) > 30
    binding = str(bindings(tmp_path, (2, 2)))  # one device each along one axis, two along the other
    assert told(run([*warm_tt_run(), "--rank-binding", binding, "--", sys.executable, *program], tmp_path)) == alone
