"""The commands of `softmesh` as a newcomer meets them: help, mistakes in one sentence, doctor, a new project."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
from pathlib import Path

import click
import pytest
from click.testing import CliRunner, Result
from rich.table import Table
from warm_python import warm_python

import softmesh as ttnn
from softmesh import errors
from softmesh.cli import commands
from softmesh.processes.launcher.tt_run import tt_run
from softmesh.project_template import written_files
from softmesh.terminal_text import CONTROL_CHARACTER, console

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
    subprocess.run([*warm_python(), "-c", program], check=True, capture_output=True, timeout=120)


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
        [*warm_python(), "-c", program], env={**os.environ, **words}, capture_output=True, text=True, timeout=120
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
    for words in (["softmesh", "run", "tiny.py"], ["pytest", "-q"]):
        done = subprocess.run(
            [*warm_python(), "-m", *words], cwd=folder, env=environ, capture_output=True, text=True, timeout=300
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


# What names of files and words of the command line could have a terminal do: set its title, clear it, write backwards.
COMMANDING = "x\x1b]0;T\x07\r\x9b2J\u202e"
_PROGRAM = f"{COMMANDING}.py"
_ON_SYSTEMS = ("run", "estimate", "fit", "plan", "bindings", "ping")
_SAYINGS = [
    *([command, name] for command in _NAMES for name in (COMMANDING, f"--{COMMANDING}", _PROGRAM)),
    *(
        [command, "--system", COMMANDING, _PROGRAM]
        for command in ("run", "estimate", "fit", "plan", "bindings", "ping")
    ),
    *(
        ["estimate", _PROGRAM, option, name]
        for option, name in (("-o", f"{COMMANDING}.html"), ("--against", COMMANDING))
    ),
    ["diff", _PROGRAM, "--against", "one-device", "-o", f"no/{COMMANDING}.html"],
    ["diff", _PROGRAM, "--against", "one-device"],
    ["diff", COMMANDING, COMMANDING],
    ["estimate", f"bad{_PROGRAM}"],
    ["run", f"bad{_PROGRAM}"],
    ["run", "-m", COMMANDING],
    ["run", "-n", "2", COMMANDING],
    ["run", "--down", COMMANDING, "--system", "T3000", _PROGRAM],
    ["plan", f"{_PROGRAM}:forward"],
    ["plan", f"{_PROGRAM}:{COMMANDING}"],
    ["show", "T3000", "-o", f"{COMMANDING}.svg"],
    ["show", "T3000", "-o", f"no/{COMMANDING}.txt"],
    ["calibrate", "-o", COMMANDING, _PROGRAM],
    ["bench", "ops", f"--{COMMANDING}"],
    [COMMANDING],
    [f"--{COMMANDING}"],
]


@pytest.mark.filterwarnings("ignore:in a file of this name")
def test_no_name_reaches_the_terminal_as_a_command_to_it(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path(_PROGRAM).write_text(_TWO_DEVICES)
    Path(f"bad{_PROGRAM}").write_text("import ttnn\nttnn.nonsense()\n")
    loud = {}
    for words in _SAYINGS:
        answer = invoked(*words)
        assert answer.exception is None or isinstance(answer.exception, SystemExit), (words, answer.exception)
        if found := CONTROL_CHARACTER.findall(answer.output):
            loud[tuple(words)] = found
    assert loud == {}


_TWO_DEVICES = """
import warnings

import torch
import ttnn


def forward(x):
    return ttnn.gelu(x)


mesh = ttnn.open_mesh_device(ttnn.MeshShape(1, 2))
x = ttnn.from_torch(torch.ones(32, 32), ttnn.bfloat16, layout=ttnn.TILE_LAYOUT, device=mesh)
warnings.warn("in a file of this name")
print(ttnn.to_torch(ttnn.get_device_tensors(forward(x))[0]).shape)
"""


@pytest.mark.parametrize(
    "words",
    [
        ["--rank-binding", COMMANDING, "python", "x.py"],
        ["--rank-bindings-mapping", COMMANDING, "python", "x.py"],
        ["-m", COMMANDING, "--hosts", "localhost", "python", "x.py"],
        ["-m", "x", "--hosts", f"a,{COMMANDING},{COMMANDING}", "python", "x.py"],
        ["-m", "x", "--hosts", "localhost", COMMANDING],
        ["-m", "x", "--hosts", "localhost", "--rankfile-syntax", COMMANDING, "python"],
        ["-m", "x", "--hosts", "localhost", "--mpi-args", f"'{COMMANDING}", "python"],
    ],
)
def test_tt_run_says_no_name_as_a_command_to_the_terminal(tmp_path, monkeypatch, words):
    monkeypatch.chdir(tmp_path)
    answer = CliRunner().invoke(tt_run, words)
    assert answer.exit_code != 0
    assert CONTROL_CHARACTER.findall(answer.output) == []


@pytest.mark.parametrize("kind", [ttnn.MeshError, errors.UnknownNameError, ttnn.SoftmeshWarning])
def test_errors_and_warnings_are_printable_whatever_name_they_quote(kind):
    assert str(kind(f"There is no {COMMANDING}.")) == r"There is no x\x1b]0;T\x07\r\x9b2J\u202e."


def test_a_table_shows_a_name_with_its_control_characters_written_out(capsys):
    table = Table("name")
    table.add_row(f"{COMMANDING}.py")
    console(width=80).print(table)
    assert r"x\x1b]0;T" in capsys.readouterr().out
