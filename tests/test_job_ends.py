"""However a job ends, what ended it is told as what it was, nothing is left of it, and nobody else could reach it."""

from __future__ import annotations

import os
import re
import shutil
import signal
import socket
import struct
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest
from marked_jobs import PROGRAMS, TT_RUN, Ended, line_of_ranks, line_with, run_job
from warm_python import warm_tt_run

from softmesh.native import loopback

pytestmark = pytest.mark.usefixtures("mpi")

FAR = "300"  # seconds: longer than a job may take here
RANKS_END_WITHIN = 30.0  # half a second where the machine is idle; by themselves they would sleep for FAR
LONGEST = 100.0
_STRANGERS_OF_A_KIND = 80
_SAID_BY_STRANGERS = (
    b"",
    b"\0",
    b"[" * 100_000,
    struct.pack("<I", 0xFFFFFFFF) + b"x" * 1000,
    b"GET / HTTP/1.1\r\nHost:",
)
_LISTENS = "0A"  # the state of a socket, as /proc/net tells it
_LOOPBACKS = ("0100007F", "00000000000000000000000001000000")


def ending(tmp_path, how: str, meanwhile=None, **environ: str) -> Ended:
    """A job that something comes upon, or that stays, has a warm process of its own: that is part of what is ended."""
    tt_run = TT_RUN if meanwhile or "SOFTMESH_TIMEOUT" in environ else warm_tt_run()
    command = [*tt_run, "--rank-binding", str(line_of_ranks(2, tmp_path)), "--", sys.executable]
    return run_job(
        [*command, str(PROGRAMS / "ending.py"), how], tmp_path, meanwhile, **{"SOFTMESH_TIMEOUT": FAR, **environ}
    )


@pytest.mark.parametrize(
    ("how", "told", "comment"),
    [("sys.exit(3)", "sys.exit(3)", "leaves"), ("SystemExit", "sys.exit('no weights')", "leaves with words")],
)
def test_a_rank_that_leaves_by_itself_is_told_so_with_its_line(tmp_path, how, told, comment):
    job = ending(tmp_path, how)
    assert f"softmesh: rank 1 left with {told}; rank 0 waits in barrier number 2 of world" in job.output, job.output
    doing, line = job.place("rank 1")
    assert (doing, line) == (f"left with {told}", line_with(comment, "ending.py"))
    assert (job.code != 0, job.left) == (True, {})


def test_a_rank_that_ends_at_once_is_told_with_its_own_exit_code(tmp_path):
    job = ending(tmp_path, "os._exit(0)")
    assert "softmesh: rank 1 died: exit code 0 without the end of its program, as by os._exit" in job.output, job.output
    assert (job.code != 0, job.left) == (True, {})


def test_an_error_that_cannot_be_printed_is_told_with_its_line(tmp_path):
    job = ending(tmp_path, "an error that nobody sees")
    assert "softmesh: rank 1 raised Unsayable: <its text cannot be had>" in job.output, job.output
    assert job.place("rank 1")[1] == line_with("nowhere to print", "ending.py")
    assert (job.code != 0, job.left) == (True, {})


@pytest.mark.parametrize(
    ("how", "told"),
    [("raises", "raised ValueError: the weights are not there"), ("dies", "died: killed by signal 11 (SIGSEGV)")],
)
def test_a_rank_that_shares_nothing_with_one_that_failed_is_kept_where_it_is_asked_for(tmp_path, how, told):
    command = [*warm_tt_run(), "--keep-others", "--rank-binding", str(line_of_ranks(2, tmp_path)), "--", sys.executable]
    job = run_job([*command, str(PROGRAMS / "independent.py"), how], tmp_path, SOFTMESH_TIMEOUT=FAR)
    assert f"softmesh: rank 0 {told}" in job.output, job.output
    assert "golden mappings" not in job.output, job.output
    assert ((tmp_path / "done").exists(), job.code != 0, job.left) == (True, True, {})


class WhileAsleep:
    """Waits for all ranks to sleep, then does something to the job and notes when."""

    def __init__(self, folder: Path, act) -> None:
        self._folder, self._act = folder, act
        self.pids: list[int] = []
        self.at = 0.0

    def __call__(self, launcher: int) -> None:
        end = time.monotonic() + LONGEST
        while not all((self._folder / f"asleep{rank}").exists() for rank in range(2)) and time.monotonic() < end:
            time.sleep(0.02)
        self.pids = [int((self._folder / f"asleep{rank}").read_text()) for rank in range(2)]
        self.at = time.monotonic()
        self._act(launcher)


def children_of(parent: int, name: str) -> list[int]:
    found = []
    for entry in Path("/proc").glob("[0-9]*/stat"):
        try:
            text = entry.read_text(errors="replace")
        except OSError:
            continue
        if f"({name})" in text and int(text.rpartition(")")[2].split()[1]) == parent:
            found.append(int(entry.parent.name))
    return found


def runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.mark.parametrize(
    ("how", "command"), [("a child that forgets all", "sleep 300"), ("a fork", "ending.py a fork")]
)
def test_a_process_that_a_rank_left_behind_is_named_and_ended(tmp_path, how, command):
    job = ending(tmp_path, how, SOFTMESH_TIMEOUT="3")
    told = r"softmesh: all ranks have ended their programs, and mpirun \(process \d+\) has not within 3 s"
    assert re.search(told, job.output), job.output
    owner = "rank 1" if how == "a fork" else "a rank"  # its environment tells nothing
    found = re.search(rf"^  {owner} left process \d+ behind, which is ended now: (.*)", job.output, re.MULTILINE)
    assert found is not None, job.output
    assert found[1].endswith(command) or how == "a fork", job.output  # a fork of the warm process has its command line
    assert "golden mappings" not in job.output, job.output
    assert (job.code, job.left) == (1, {})


def test_a_process_that_ends_in_time_holds_nobody_up(tmp_path):
    program = tmp_path / "program.py"
    program.write_text("import subprocess, ttnn\nttnn.init_distributed_context()\nsubprocess.Popen(['sleep', '1'])\n")
    command = [*warm_tt_run(), "--rank-binding", str(line_of_ranks(2, tmp_path)), "--", sys.executable, str(program)]
    job = run_job(command, tmp_path, SOFTMESH_TIMEOUT=FAR)
    assert (job.code, job.left, "softmesh:" in job.output) == (0, {}, False), job.output


@pytest.mark.parametrize(
    ("left", "cause"),
    [("threading.Thread(target=time.sleep, args=(3,), name='keeper').start()", "threads that are no daemons: 'keeper'"),
     ("atexit.register(time.sleep, 3)", "a function given to atexit")],
)  # fmt: skip
def test_what_keeps_a_rank_whose_program_is_over_is_named_and_left_alone(tmp_path, left, cause):
    program = tmp_path / "program.py"
    program.write_text(f"import atexit, threading, time, ttnn\nttnn.init_distributed_context()\n{left}\n")
    command = [sys.executable, "-m", "softmesh", "run", "-n", "1", str(program)]
    job = run_job(command, tmp_path, SOFTMESH_TIMEOUT="1", SOFTMESH_WARM_START="0")
    told = f"softmesh: rank 0 came to the end of its program 1 s ago, and Python waits for {cause}"
    assert told in job.output, job.output
    assert (job.code, job.left) == (0, {})


def test_a_rank_that_closed_what_it_had_not_opened_ends_the_job_and_is_told(tmp_path):
    job = ending(tmp_path, "closed descriptors")
    told = "softmesh: rank 1 raised MeshError: this process has closed descriptors that it had not opened"
    assert told in job.output, job.output
    assert (job.code != 0, job.left) == (True, {})


@pytest.mark.parametrize("name", ["prterun", "python"])
def test_a_stopped_process_of_the_launcher_is_named_and_the_job_ended(tmp_path, name):
    """mpirun, and the process that ranks are copies of."""

    def stop(launcher: int) -> None:
        os.kill(stopped_of(launcher, name), signal.SIGSTOP)

    job = ending(tmp_path, "sleep", WhileAsleep(tmp_path, stop), SOFTMESH_TIMEOUT="3")
    called = "mpirun" if name == "prterun" else "the warm process, of which ranks are copies,"
    assert re.search(rf"softmesh: {called} is stopped since 3 s \(process \d+\)", job.output), job.output
    assert (job.code, job.left) == (1, {})


def stopped_of(launcher: int, name: str) -> int:
    """mpirun, or the fork server by its command line."""
    children = children_of(launcher, name)
    return next(
        pid for pid in children if name == "prterun" or "fork_server" in Path(f"/proc/{pid}/cmdline").read_text()
    )


def test_a_warm_process_that_is_killed_is_told_and_no_rank_is_blamed(tmp_path):
    asleep = WhileAsleep(tmp_path, lambda launcher: os.kill(stopped_of(launcher, "python"), signal.SIGKILL))
    job = ending(tmp_path, "sleep", asleep)
    told = r"softmesh: the warm process \(fork_server.py, process \d+\), of which the ranks are copies, was killed by"
    assert re.search(told, job.output), job.output
    assert not re.search(r"rank \d died|golden mappings", job.output), job.output
    assert (job.code != 0, job.left) == (True, {})


def test_a_launcher_that_is_killed_takes_its_ranks_along(tmp_path):
    seconds: list[float] = []

    def kill(launcher: int) -> None:
        os.kill(launcher, signal.SIGKILL)
        while any(runs(pid) for pid in asleep.pids) and time.monotonic() < asleep.at + LONGEST:
            time.sleep(0.01)
        seconds.append(time.monotonic() - asleep.at)

    asleep = WhileAsleep(tmp_path, kill)
    job = ending(tmp_path, "sleep", asleep)
    assert (job.code, job.left) == (-signal.SIGKILL, {})
    assert seconds[0] < RANKS_END_WITHIN


def test_an_mpirun_that_is_killed_is_told_and_no_rank_is_blamed(tmp_path):
    asleep = WhileAsleep(tmp_path, lambda launcher: os.kill(children_of(launcher, "prterun")[0], signal.SIGKILL))
    job = ending(tmp_path, "sleep", asleep)
    assert "softmesh: mpirun was killed by signal 9 (SIGKILL): its ranks ended with it" in job.output, job.output
    assert not re.search(r"rank \d died|golden mappings", job.output), job.output
    assert (job.code, job.left) == (128 + signal.SIGKILL, {})


def test_an_mpirun_that_is_ended_before_any_rank_reported_is_told(tmp_path):
    def end(launcher: int) -> None:
        deadline = time.monotonic() + LONGEST
        while not (found := children_of(launcher, "prterun")) and time.monotonic() < deadline:
            time.sleep(0.01)
        os.kill(found[0], signal.SIGTERM)

    job = ending(tmp_path, "sleep", end)
    assert "softmesh: mpirun " in job.output, job.output
    assert not re.search(r"rank \d died", job.output), job.output
    assert (job.code != 0, job.left) == (True, {})


def listeners(pids: set[int]) -> set[str]:
    """The addresses at which processes listen."""
    sockets = {}
    for family in ("tcp", "tcp6"):
        for line in Path(f"/proc/net/{family}").read_text().splitlines()[1:]:
            words = line.split()
            if words[3] == _LISTENS:
                sockets[f"socket:[{words[9]}]"] = words[1]
    found = set()
    for pid in pids:
        for entry in Path(f"/proc/{pid}/fd").glob("*"):
            try:
                found.add(sockets.get(os.readlink(entry), ""))
            except OSError:
                continue
    return found - {""}


@pytest.mark.skipif(loopback.library() is None, reason="the library that keeps mpirun on the loopback was not compiled")
def test_a_job_of_one_host_listens_on_the_loopback_alone_and_to_its_own_processes(tmp_path):
    seen: set[str] = set()
    strangers: list[socket.socket] = []

    def visit(launcher: int) -> None:
        seen.update(listeners({launcher, *children_of(launcher, "prterun"), *asleep.pids}))
        for address, _, port in (where.partition(":") for where in seen):
            there = "127.0.0.1" if len(address) == 8 else "::1"
            for said in _SAID_BY_STRANGERS * _STRANGERS_OF_A_KIND:
                strangers.append(socket.create_connection((there, int(port, 16)), LONGEST))
                with suppress(OSError):  # it may have hung up already
                    strangers[-1].sendall(said)
        (tmp_path / "woken").touch()

    asleep = WhileAsleep(tmp_path, visit)
    job = ending(tmp_path, "sleep", asleep)
    assert job.code == 0, job.output
    assert seen, "nobody listens at all: this looks in the wrong place"
    assert {where.partition(":")[0] for where in seen} <= set(_LOOPBACKS)
    for line in strangers:
        line.close()


def test_a_launcher_without_its_compiled_libraries_keeps_strangers_from_mpirun_too(tmp_path):
    here = Path(__file__).parents[1]
    shutil.copytree(here / "softmesh", tmp_path / "pure" / "softmesh", ignore=shutil.ignore_patterns("*.so", "*.pyc"))
    launcher = shutil.copy(here / "softmesh_launcher.py", tmp_path / "pure")
    strangers: list[socket.socket] = []
    answered: set[str] = set()

    def visit(launcher: int) -> None:
        doors = listeners({*children_of(launcher, "prterun")})
        for address, _, port in (where.partition(":") for where in doors):
            for said in _SAID_BY_STRANGERS * 10:
                try:
                    strangers.append(socket.create_connection(("127.0.0.1", int(port, 16)), 0.2))
                except OSError:
                    break
                answered.add(address)
                with suppress(OSError):
                    strangers[-1].sendall(said)
        (tmp_path / "woken").touch()

    asleep = WhileAsleep(tmp_path, visit)
    command = [sys.executable, launcher, "--rank-binding", str(line_of_ranks(2, tmp_path)), "--", sys.executable]
    job = run_job([*command, str(PROGRAMS / "ending.py"), "sleep"], tmp_path, asleep, SOFTMESH_TIMEOUT=FAR)
    assert (job.code, job.left) == (0, {}), job.output
    assert strangers, "no door was found: this looks in the wrong place"
    assert answered <= set(_LOOPBACKS)
    for line in strangers:
        line.close()
