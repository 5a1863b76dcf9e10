"""The launcher's doors: no connection, however malformed, harms a job or keeps its ranks out."""

from __future__ import annotations

import json
import os
import random
import resource
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from softmesh.processes.explainer import Explainer
from softmesh.processes.launcher.job import Job
from softmesh.processes.launcher.mpirun import Rank
from softmesh.processes.launcher.warm_start import with_fork_server
from softmesh.processes.rank_reporter import split_address

LONGEST = 60.0  # seconds: for a hang, not for speed
VISITS = int(os.environ.get("SOFTMESH_FUZZ", "2000"))
SILENT = 300  # more than a door lets in
TWISTED = [
    b"",
    b"\n",
    b"\0" * 8,
    b"[" * 5000 + b"\n",
    b'{"token": ' + b"[" * 50_000 + b"\n",
    b'{"token": {"a": 1}, "rank": []}\n',
    b'{"token": 1e999, "rank": 1e999}\n',
    b'{"token": "\\ud800", "rank": 0}\n',
    b"9" * 70_000 + b"\n",
    b"x" * 200_000,
    b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
    struct.pack("<I", 0),
    struct.pack("<I", 3) + b"{}",
    struct.pack("<I", 2) + b"[]",
    struct.pack("<I", 4) + b"null",
    struct.pack("<I", 0xFFFFFFFF) + b"{}",
    struct.pack("<I", 40_000) + b"[" * 40_000,
]


def visits(seed: int, count: int, good: bytes) -> Iterator[bytes]:
    """What strangers send: the twisted ones, random bytes, and a good message with something of it changed."""
    yield from TWISTED
    chance = random.Random(seed)
    for number in range(count - len(TWISTED)):
        if number % 2:
            yield chance.randbytes(chance.choice([1, 3, 4, 5, 64, 1000]))
            continue
        changed = bytearray(good)
        for _ in range(chance.choice([1, 1, 4, 40])):
            changed[chance.randrange(len(changed))] = chance.randrange(256)
        yield bytes(changed[: chance.choice([len(good), chance.randrange(len(good))])])


def until(holds) -> None:
    deadline = time.monotonic() + LONGEST
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.01)


# The hang explainer, where ranks report.


def visit(address: str, said: bytes, keep: list[socket.socket] | None = None) -> None:
    host, port, _ = split_address(address)
    line = socket.create_connection((host, port), LONGEST)
    with suppress(OSError):  # it may have heard enough
        line.sendall(said)
    if keep is None:
        line.close()
    else:
        keep.append(line)


def rank_arrives(explainer: Explainer, rank: int = 0) -> socket.socket:
    """A rank that is heard of: it raises, which is told at the end of the job."""
    host, port, token = split_address(explainer.address)
    line = socket.create_connection((host, port), LONGEST)
    line.sendall(json.dumps({"token": token, "rank": rank}).encode() + b"\n")
    line.sendall(b'{"state": "raised", "error": "ValueError: the weights", "site": ["a.py", 7, "f"]}\n')
    return line


def test_ranks_are_heard_after_any_visits(capfd):
    with Explainer(2) as explainer:
        good = json.dumps({"token": "0" * 32, "rank": 1, "state": "raised", "error": "not theirs"}).encode() + b"\n"
        for said in visits(1, VISITS, good):
            visit(explainer.address, said)
        with rank_arrives(explainer):
            until(lambda: explainer._job.has_raised(0))
        explainer.job_ended(failed=True)
    told = capfd.readouterr().err
    assert told.lstrip("\n").startswith("softmesh: rank 0 raised ValueError: the weights")
    assert "not theirs" not in told


def test_a_rank_that_talks_nonsense_harms_nobody():
    kinds = [1e999, -1, [], {}, "x" * 3000, None, True, 10**30]
    names = ["state", "wait", "site", "last", "done", "error", "op", "members", "kind", "seconds"]
    chance = random.Random(2)
    with Explainer(2) as explainer:
        line = rank_arrives(explainer, rank=1)
        for _ in range(VISITS):
            wait = {chance.choice(names): chance.choice(kinds) for _ in range(3)}
            message = {"state": chance.choice(["waiting", "computing", "x", 1]), "wait": wait}
            line.sendall(json.dumps({**message, chance.choice(names): chance.choice(kinds)}).encode() + b"\n")
        with rank_arrives(explainer):
            until(lambda: explainer._job.has_raised(0))
        line.close()


def test_connections_that_say_nothing_keep_no_rank_out():
    silent: list[socket.socket] = []
    with Explainer(2) as explainer:
        for number in range(SILENT):
            visit(explainer.address, b"" if number % 2 else b'{"token": "half', silent)
        with rank_arrives(explainer):
            until(lambda: explainer._job.has_raised(0))
    for line in silent:
        line.close()


def test_it_listens_on_the_loopback_alone():
    with Explainer(1) as explainer:
        assert explainer.address.startswith("127.0.0.1:")


# The fork server, which makes the ranks.


@pytest.fixture
def fork_server(tmp_path: Path) -> Iterator[tuple[list[str], dict[str, str]]]:
    """The words that start a program by way of it, and their environment."""
    (tmp_path / "torch.py").touch()  # any module will do
    inherited = {name: os.environ[name] for name in ("PATH", "HOME", "LANG") if name in os.environ}
    environ = {**inherited, "PYTHONPATH": str(tmp_path)}
    rank = Rank({"PATH": os.environ["PATH"]}, (sys.executable, "-c", "pass"))
    with with_fork_server(Job("mpirun", (), (rank, rank), tmp_path), environ) as job:
        yield list(job.ranks[0].program[:5]), environ


def knock(name: str, said: bytes, streams: int = 0, keep: list[socket.socket] | None = None) -> None:
    line = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    line.connect("\0" + name)
    line.settimeout(LONGEST)
    try:
        if streams:
            socket.send_fds(line, [said or b"x"], [2] * streams)
        else:
            line.sendall(said)
    except OSError:
        pass
    if keep is None:
        line.close()
    else:
        keep.append(line)


def is_copied(words: list[str], environ: dict[str, str], folder: Path) -> bool:
    """Whether a program still runs as a copy, which has loaded (what stands for) torch."""
    ask = "import sys; print('torch' in sys.modules)"
    command = [*words, sys.executable, "-c", ask]
    done = subprocess.run(command, cwd=folder, env=environ, capture_output=True, text=True, timeout=LONGEST)
    assert done.returncode == 0, done.stderr
    return done.stdout == "True\n"


def request(argv: list[str]) -> bytes:
    said = {"argv": argv, "environ": {"A": "1"}, "folder": "/", "mask": 18, "cores": [0]}
    text = json.dumps(said).encode()
    return struct.pack("<I", len(text)) + text


def test_copies_are_made_after_any_visits(fork_server, tmp_path):
    words, environ = fork_server
    with running(words, environ, tmp_path) as rank:
        for number, said in enumerate(visits(3, VISITS, request(["-c", "pass"]))):
            knock(words[-1], said, streams=number % 5)
        assert is_copied(words, environ, tmp_path)
        assert rank.poll() is None  # the one that was there before is not harmed


def test_visitors_that_say_nothing_keep_nobody_out(fork_server, tmp_path):
    words, environ = fork_server
    silent: list[socket.socket] = []
    for number in range(SILENT):
        knock(words[-1], b"" if number % 2 else struct.pack("<I", 1000) + b"{", streams=number % 2, keep=silent)
    assert is_copied(words, environ, tmp_path)
    for line in silent:
        line.close()


def test_requests_of_the_wrong_kinds_are_refused(fork_server, tmp_path):
    words, environ = fork_server
    for field, value in [
        ("argv", []),
        ("argv", "pass"),
        ("argv", [1]),
        ("argv", ["a\0b"]),
        ("environ", [["A", "1"]]),
        ("environ", {"A": 1}),
        ("folder", None),
        ("mask", -1),
        ("mask", 1e999),
        ("cores", [10**9]),
        ("cores", {}),
    ]:
        said = {"argv": ["-c", "pass"], "environ": {"A": "1"}, "folder": "/", "mask": 18, "cores": [0], field: value}
        text = json.dumps(said).encode()
        knock(words[-1], struct.pack("<I", len(text)) + text, streams=3)
    assert is_copied(words, environ, tmp_path)


class running:
    """A rank that sleeps for the length of a block."""

    def __init__(self, words: list[str], environ: dict[str, str], folder: Path) -> None:
        sleeping = "import time; print(1, flush=True); time.sleep(100)"
        command = [*words, sys.executable, "-c", sleeping]
        self.process = subprocess.Popen(command, cwd=folder, env=environ, stdout=subprocess.PIPE)

    def __enter__(self) -> subprocess.Popen[bytes]:
        assert self.process.stdout is not None
        self.process.stdout.readline()
        return self.process

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.communicate()


def test_there_are_fewer_files_than_visitors_could_take():
    assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] > SILENT * 2, "the tests above would prove nothing"
