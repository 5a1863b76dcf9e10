"""Programs in files of their own: what they compute decides, not the order in which they make and read it."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from file_pairs import HEAD, PARTLY, SAME, WRONG

from softmesh.cli import commands

pytestmark = [
    pytest.mark.usefixtures("idle_machine"),
    pytest.mark.filterwarnings("ignore::softmesh.errors.SoftmeshWarning"),
]


def diff(folder: Path, ours: str, theirs: str, *options: str) -> Result:
    for name, text in (("ours.py", ours), ("theirs.py", theirs)):
        (folder / name).write_text(HEAD + text, encoding="utf-8")
    files = str(folder / "ours.py"), "--against", str(folder / "theirs.py")
    return CliRunner().invoke(commands, ["diff", "--system", "T3000", *files, *options])


@pytest.mark.parametrize("name", SAME)
def test_another_form_of_a_right_program_raises_no_alarm(name: str, tmp_path: Path) -> None:
    result = diff(tmp_path, *SAME[name])
    assert result.exit_code == 0, result.output


@pytest.mark.parametrize("name", PARTLY)
def test_what_only_the_program_computes_and_reads_is_not_compared(name: str, tmp_path: Path) -> None:
    ours, theirs, count = PARTLY[name]
    result = diff(tmp_path, ours, theirs)
    assert result.exit_code == 3, result.output
    assert f"Not compared: {count} of" in result.stdout
    assert diff(tmp_path, ours, theirs, "--allow-uncompared", str(count)).exit_code == 0
    assert diff(tmp_path, ours, theirs, "--allow-uncompared", str(count - 1)).exit_code == 3


@pytest.mark.parametrize("name", WRONG)
def test_a_mistake_is_named_whatever_the_order_of_calls(name: str, tmp_path: Path) -> None:
    ours, theirs, ops = WRONG[name]
    result = diff(tmp_path, ours, theirs)
    assert result.exit_code == 1, result.output
    first = next(line for line in result.stdout.splitlines() if line.startswith("First divergence"))
    assert first.split()[2] in ops, result.stdout
