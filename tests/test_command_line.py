"""The commands of `softmesh` as a newcomer meets them: help, mistakes in one sentence, doctor, a new project."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import click
import pytest
from click.testing import CliRunner, Result

from softmesh.cli import commands
from softmesh.processes.launcher.tt_run import tt_run
from softmesh.project_template import written_files

_NAMES = commands.list_commands(click.Context(commands))


def invoked(*words: str) -> Result:
    return CliRunner().invoke(commands, list(words), prog_name="softmesh")


@pytest.mark.parametrize("name", _NAMES)
@pytest.mark.parametrize("flag", ["-h", "--help"])
def test_every_command_explains_itself(name, flag):
    result = invoked(name, flag)
    assert result.exit_code == 0, result.output
    assert result.output.startswith(f"Usage: softmesh {name}")
    assert "Show this message and exit." in result.output


@pytest.mark.parametrize("name", _NAMES)
def test_a_command_of_its_own_knows_both_flags(name):
    command = commands.get_command(click.Context(commands), name)
    if name not in commands.commands:
        assert CliRunner().invoke(command, ["-h"]).exit_code == 0


def test_tt_run_takes_h_before_a_program_and_leaves_that_of_the_program():
    assert CliRunner().invoke(tt_run, ["-h"]).output.startswith("Usage: tt-run")
    answer = CliRunner().invoke(tt_run, ["--rank-binding", "nosuch.yaml", "--dry-run", "python", "model.py", "-h"])
    assert answer.exit_code == 1
    assert "Usage" not in answer.output


@pytest.mark.parametrize("name", _NAMES)
def test_every_command_shows_an_example_under_that_heading(name):
    assert re.search(rf"Examples?:\n(.*\n)*? +softmesh {name}", invoked(name, "--help").output)


@pytest.mark.parametrize("name", _NAMES)
def test_options_are_told_in_words_of_the_command_and_not_of_its_parser(name):
    command = commands.get_command(click.Context(commands), name)
    shown = [option.make_metavar(click.Context(command)) for option in command.params if not option.is_eager]
    unclear = {"INTEGER", "FLOAT", "TEXT", "INTEGER RANGE", "FLOAT RANGE", "WHOLE NUMBER", "NUMBER"}
    assert [metavar for metavar in shown if metavar in unclear] == []


def test_the_list_of_commands_loads_none_of_them():
    program = "import sys; from softmesh.cli import commands; commands(['-h'], standalone_mode=False)"
    program += "; assert not {'softmesh.doctor', 'softmesh.report.show', 'softmesh.lint.command'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, timeout=120)


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["shw"], "There is no command 'shw'. Did you mean 'show'?"),
        (["zzz"], "There is no command 'zzz'. `softmesh --help` lists the commands."),
        (["model.py"], "There is no command 'model.py'. To run the file: softmesh run model.py"),
        (["run", "nosuch.py"], "There is no file nosuch.py."),
        (["run", "-m", "nosuch"], "There is no module nosuch: neither in this folder nor installed."),
        (["run", "-m", "nosuch.deeper"], "There is no module nosuch: neither in this folder nor installed."),
        (["run", "folder"], "folder is a folder without a __main__.py. Name the Python file to run."),
        (
            ["new", "2fast"],
            "'2fast' cannot name a Python module: begin with a letter, go on with letters, digits and _.",
        ),
        (["run", "tests/generate_rank_bindings.py"], "Here this is a command: softmesh bindings."),
        (["run", "-n", "x", "model.py"], "'x' is not a valid whole number."),
        (["run", "--system", "T300", "model.py"], "Error: --system: No system is called 'T300'. Did you mean 'T3000'?"),
        (["run", "--system", "N300", "--down", "chip:9", "model.py"], "Error: --down chip:9: N300 has no chip 9"),
        (["estimate", "folder"], "folder is a folder without a __main__.py. Name the Python file to run."),
        (["fit", "--system", "T300", "model.py"], "--system: No system is called 'T300'."),
        (["diff", "folder"], "folder is a folder without a __main__.py. Name the Python file to run."),
        (["estimate", "-m", "nosuch"], "There is no module nosuch: neither in this folder nor installed."),
        (["ping", "--system", "T300"], "No system is called 'T300'."),
        (["completion", "tcsh"], "Invalid value for 'bash|zsh|fish': 'tcsh' is not one of 'bash', 'zsh', 'fish'."),
        (["new", "class"], "'class' cannot name a Python module"),
        (["new", "folder"], "folder exists and is not empty: choose another name, or an empty folder."),
        (["new", "model.py"], "'model.py' cannot name a Python module"),
    ],
)
def test_a_mistake_is_one_sentence(words, sentence, tmp_path, monkeypatch):
    for name in ("SOFTMESH_SYSTEM", "SOFTMESH_DOWN"):  # put back after the test, whatever a command sets
        monkeypatch.setenv(name, "")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "model.py").write_text("")
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "notes.txt").write_text("")
    result = invoked(*words)
    assert result.exit_code == 2
    assert sentence in result.output
    assert "Traceback" not in result.output


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_shell_learns_to_complete(shell):
    assert "_SOFTMESH_COMPLETE" in invoked("completion", shell).output


def test_options_of_commands_that_load_late_are_completed(monkeypatch):
    words = {"COMP_WORDS": "softmesh show --sy", "COMP_CWORD": "2", "_SOFTMESH_COMPLETE": "bash_complete"}
    program = "from softmesh.cli import main; main()"
    found = subprocess.run(
        [sys.executable, "-c", program], env={**os.environ, **words}, capture_output=True, text=True, timeout=120
    )
    assert "--system" in found.stdout


def test_the_doctor_names_what_is_missing_and_how_to_get_it(monkeypatch):
    monkeypatch.delenv("SOFTMESH_DEVICE", raising=False)
    found = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name in ("mpi4py", "jax") else found(name))
    result = invoked("doctor")
    assert result.exit_code == 0, result.output
    told = " ".join(result.output.split())
    assert "absent mpi4py not installed pip install 'softmesh[mpi]'" in told
    assert "pip install 'softmesh[bench]'" in told


def test_the_doctor_fails_where_what_was_asked_for_cannot_work(monkeypatch):
    monkeypatch.setenv("SOFTMESH_SYSTEM", "T300\x1b[31m")
    result = invoked("doctor")
    assert result.exit_code == 1
    assert "broken" in result.output
    assert "\x1b[31m" not in result.output


def test_a_new_project_runs_and_passes_its_own_test(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert invoked("new", "tiny").exit_code == 0
    folder = tmp_path / "tiny"
    assert (folder / ".github" / "workflows" / "mesh.yml").exists()
    environ = {**os.environ, "SOFTMESH_STRICT": "1", "SOFTMESH_SYSTEM": "T3000"}
    environ["PYTHONPATH"] = str(Path(__file__).parents[1])
    for words in (["softmesh", "run", "tiny.py"], ["pytest", "-q"]):
        done = subprocess.run(
            [sys.executable, "-m", *words], cwd=folder, env=environ, capture_output=True, text=True, timeout=300
        )
        assert done.returncode == 0, done.stdout + done.stderr


def test_nothing_of_the_template_is_left_open():
    for path, text in written_files("tiny"):
        assert "NAME" not in str(path)
        assert "@NAME@" not in text
        assert "@VERSION@" not in text


@pytest.mark.parametrize("value", ["nan", "inf"])
def test_a_number_that_is_none_is_refused(value):
    result = invoked("numerics", "model.py", "--try", value)
    assert result.exit_code == 2
    assert "Invalid value for '--try'" in result.output
