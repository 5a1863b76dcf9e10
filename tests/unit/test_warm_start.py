"""Ranks that are copies of a process which has loaded torch: whoever looks sees what `python program` would show."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from softmesh.processes.launcher.console import LaunchError
from softmesh.processes.launcher.job import Job
from softmesh.processes.launcher.mpirun import Rank
from softmesh.processes.launcher.warm_start import can_warm_start, is_plain_python, with_fork_server
from softmesh_launcher import starts_ranks

LONGEST = 60  # seconds: for a hang, not for speed
LOOKING = """
import __main__, os, sys
print(sys.argv, __name__, globals().get("__file__"), sys.path[0], os.getcwd(), os.umask(0), __main__.LOOKED)
print(sorted(name for name in globals()), sys.stdin.read(), os.environ["WORD"])
print("told", file=sys.stderr)
"""
PROGRAMS = {
    "ends well": "print('done')",
    "has an exit code": "raise SystemExit(7)",
    "ends with words": "raise SystemExit('not today')",
    "raises": "def call():\n    raise ValueError('the weights')\ncall()",
    "is killed": "import os; os.kill(os.getpid(), 9)",
    "ends itself": "import os, signal; os.kill(os.getpid(), signal.SIGTERM)",
    "does not compile": "x = = 1",
    "says more at its end": "import atexit; atexit.register(print, 'at exit')",
    "looks around": "LOOKED = True\n" + LOOKING,
    "starts a process": (
        "import multiprocessing as m\n"
        "def work(): print('child', __name__, flush=True)\n"
        "if __name__ == '__main__':\n"
        "    p = m.get_context('spawn').Process(target=work); p.start(); p.join(); print(p.exitcode)"
    ),
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("warm")
    (made / "torch.py").touch()  # any module will do
    (made / "package.py").write_text("LOOKED = 1\n" + LOOKING)
    return made


@pytest.fixture(scope="module")
def environ(folder: Path) -> dict[str, str]:
    inherited = {name: os.environ[name] for name in ("PATH", "HOME", "LANG") if name in os.environ}
    return {**inherited, "PYTHONPATH": str(folder), "WORD": "hello", "TT_MESH_ID": "0"}


def job_of(folder: Path, program: list[str], environ: dict[str, str] | None = None) -> Job:
    own = [{"TT_MESH_ID": str(rank), **(environ or {})} for rank in range(2)]
    ranks = [Rank({"PATH": os.environ["PATH"], **one}, (sys.executable, *program)) for one in own]
    return Job("mpirun", (), tuple(ranks), folder)


Start = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture(scope="module")
def stand_in(folder: Path, environ: dict[str, str]) -> Iterator[Start]:
    """Starts `python arguments` by way of a warm process, as mpirun would start a rank."""
    with with_fork_server(job_of(folder, ["-c", "pass"]), environ) as job:
        words = list(job.ranks[0].program[:5])

        def start(*arguments: str, **more: str) -> subprocess.Popen[str]:
            return started([*words, sys.executable, *arguments], folder, {**environ, **more})

        yield start


def started(command: list[str], folder: Path, environ: dict[str, str]) -> subprocess.Popen[str]:
    streams = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    return subprocess.Popen(command, cwd=folder, env=environ, text=True, **streams)  # type: ignore[call-overload]


def seen(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    out, err = process.communicate("words", timeout=LONGEST)
    return process.returncode, out, err


@pytest.mark.parametrize("what", sorted(PROGRAMS))
def test_a_program_shows_what_it_shows_when_python_runs_it(what, stand_in, folder, environ):
    (folder / "sub").mkdir(exist_ok=True)
    (folder / "sub" / "a program.py").write_text(PROGRAMS[what])
    words = ["sub/a program.py", "one", "-m"]
    assert seen(stand_in(*words)) == seen(started([sys.executable, *words], folder, environ))


@pytest.mark.parametrize("words", [("-m", "package", "-x"), ("-c", "LOOKED = 1" + LOOKING, "-x")])
def test_modules_and_texts_run_as_python_runs_them(words, stand_in, folder, environ):
    assert seen(stand_in(*words)) == seen(started([sys.executable, *words], folder, environ))


def test_every_copy_draws_other_random_numbers(stand_in):
    draw = "import random; print(random.random())"
    assert seen(stand_in("-c", draw))[1] != seen(stand_in("-c", draw))[1]


def test_a_copy_has_loaded_torch_already_and_another_environment_loads_it_anew(stand_in):
    ask = "import sys; print('torch' in sys.modules)"
    assert seen(stand_in("-c", ask, TT_MESH_ID="7"))[1] == "True\n"
    assert seen(stand_in("-c", ask, PYTHONHASHSEED="0"))[1] == "False\n"
    assert seen(stand_in("-c", ask, OMP_NUM_THREADS="1"))[1] == "False\n"


def test_without_a_warm_process_a_stand_in_becomes_the_program(folder, environ):
    with with_fork_server(job_of(folder, ["-c", "pass"]), environ) as job:
        words = list(job.ranks[0].program[:5])
    assert seen(started([*words, sys.executable, "-c", "print(1)"], folder, environ)) == (0, "1\n", "")


SLEEPING = "import os, time; print(os.getpid(), flush=True); time.sleep(100)"


def is_gone(process: int) -> bool:
    end = time.monotonic() + LONGEST
    while time.monotonic() < end:
        try:
            if Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] == "Z":
                return True
        except OSError:
            return True
        time.sleep(0.01)
    return False


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_copy_ends_with_its_stand_in(number, stand_in):
    process = stand_in("-c", SLEEPING)
    copy = int(process.stdout.readline())
    assert copy != process.pid
    process.send_signal(number)
    assert seen(process)[0] == -number
    assert is_gone(copy)


def test_a_signal_reaches_the_program(stand_in):
    note = "import signal; signal.signal(signal.SIGUSR1, lambda *_: exit(3))\n"
    process = stand_in("-c", note + SLEEPING)
    process.stdout.readline()
    process.send_signal(signal.SIGUSR1)
    assert seen(process)[0] == 3


def test_nothing_is_left_when_the_launcher_ends(folder, environ):
    with with_fork_server(job_of(folder, ["-c", "pass"]), environ) as job:
        words = list(job.ranks[0].program[:5])
        process = started([*words, sys.executable, "-c", SLEEPING], folder, environ)
        copy = int(process.stdout.readline())
    assert seen(process)[0] == -signal.SIGKILL
    assert is_gone(copy)


@pytest.mark.parametrize(
    ("program", "is_plain"),
    [
        ([sys.executable, __file__], True),
        ([sys.executable, "-m", "package"], True),
        ([sys.executable, "-c", "pass"], True),
        ([sys.executable, "-u", __file__], False),
        ([sys.executable, "-m"], False),
        ([sys.executable, "no such file"], False),
        ([sys.executable], False),
        (["bash", "-c", "true"], False),
        ([], False),
    ],
)
def test_only_plain_programs_of_this_python_are_copied(program, is_plain):
    assert is_plain_python(program, os.environ["PATH"]) is is_plain


def test_ranks_are_copies_unless_something_speaks_against_it(folder, environ):
    job = job_of(folder, ["-c", "pass"])
    assert can_warm_start(job, environ)
    assert not can_warm_start(job, {**environ, "SOFTMESH_WARM_START": "0"})
    assert not can_warm_start(job, {**environ, "SOFTMESH_LOCKSTEP": "1"})
    assert not can_warm_start(job, {**environ, "SLURM_JOB_ID": "1"})
    assert not can_warm_start(Job("mpirun", (), job.ranks[:1], folder), environ)
    for general in (("--host", "elsewhere"), ("--hostfile", "unreadable")):
        assert not can_warm_start(Job("mpirun", general, job.ranks, folder), environ)
    with pytest.raises(LaunchError, match="SOFTMESH_WARM_START='no': set it to 0"):
        can_warm_start(job, {**environ, "SOFTMESH_WARM_START": "no"})


def test_the_launcher_loads_no_tensors():
    launcher = Path(__file__).parents[2] / "softmesh_launcher.py"
    ask = (
        "import runpy, sys\nsys.argv = ['tt-run', '--help']\n"
        f"try: runpy.run_path({str(launcher)!r}, run_name='__main__')\n"
        "except SystemExit: sys.exit(' '.join({'torch', 'numpy'} & set(sys.modules)) or 0)"
    )
    done = subprocess.run([sys.executable, "-c", ask], capture_output=True, text=True, timeout=LONGEST, check=False)
    assert (done.returncode, done.stderr.strip()) == (0, ""), done
    assert "--rank-binding" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "starts"),
    [
        (["run", "-n", "4", "train.py"], True),
        (["run", "-n4", "train.py"], True),
        (["run", "--system", "T3000", "--down=chip:5", "-m", "-n", "2", "train"], True),
        (["run", "train.py", "-n", "4"], False),
        (["run", "--system", "-n", "train.py"], False),
        (["bench", "-n", "4"], False),
        ([], False),
    ],
)
def test_softmesh_run_with_ranks_is_known_before_anything_is_loaded(arguments, starts):
    assert starts_ranks(arguments) is starts


def test_softmesh_run_with_ranks_loads_no_tensors():
    ask = (
        "import sys, softmesh_launcher\nsys.argv = ['softmesh', 'run', '-n', '2', 'no such file']\n"
        "try: softmesh_launcher.softmesh()\n"
        "except SystemExit: sys.exit(' '.join({'torch', 'numpy'} & set(sys.modules)) or 0)"
    )
    done = subprocess.run([sys.executable, "-c", ask], capture_output=True, text=True, timeout=LONGEST, check=False)
    assert (done.returncode, done.stderr.strip()) == (0, "Error: There is no file no such file."), done
