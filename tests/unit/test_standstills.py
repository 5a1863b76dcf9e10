"""What keeps a job from its end, or ended it, as files and name servers tell: memory that ran out, hosts unknown."""

from __future__ import annotations

import os
import socket
import subprocess
import threading
import time
from itertools import count
from types import SimpleNamespace

import pytest
from click.testing import CliRunner

from softmesh.processes.hang_verdict import Doing, RankState, explained
from softmesh.processes.job_state import JobState
from softmesh.processes.launcher import mpirun_arguments, standstill
from softmesh.processes.launcher.console import LaunchError
from softmesh.processes.launcher.memory_kills import MemoryKills
from softmesh.processes.launcher.mpirun_arguments import check_hosts_are_found
from softmesh.processes.launcher.standstill import Standstill
from softmesh.processes.launcher.tt_run import tt_run


def counted(root, machine: int | None, group: int | None, version: int = 2) -> None:
    """Files of a kernel with control groups, in which so many processes were killed for memory."""
    own = "0::/job\n" if version == 2 else "5:cpu:/job\n7:hugetlb,memory:/job\n"
    events = "sys/fs/cgroup/job/memory.events" if version == 2 else "sys/fs/cgroup/memory/job/memory.oom_control"
    files = {"proc/self/cgroup": own}
    if machine is not None:
        files["proc/vmstat"] = f"pgfault 9\noom_kill {machine}\n"
    if group is not None:
        files[events] = f"oom 7\noom_kill {group}\noom_group_kill 0\n"
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)


@pytest.mark.parametrize(
    ("before", "after", "told"),
    [
        ((3, 0), (4, 1), "the kernel killed 1 process of this control group"),
        ((3, None), (5, None), "the kernel killed 2 processes of this machine"),
        ((3, 2), (4, 2), "the kernel killed 1 process of this machine"),
        ((3, 2), (3, 2), "the kernel killed no process for memory"),
        ((None, 2), (None, 2), ""),
        ((None, None), (None, None), ""),
    ],
)
@pytest.mark.parametrize("version", [1, 2])
def test_whether_memory_ran_out_is_told_as_far_as_the_kernel_counts_it(tmp_path, before, after, told, version):
    counted(tmp_path, *before, version)
    kills = MemoryKills(tmp_path)
    counted(tmp_path, *after, version)
    evidence = kills.evidence()
    assert evidence.startswith(told)
    assert bool(evidence) == bool(told)


@pytest.fixture
def no_names(monkeypatch):
    """A machine that knows its own name alone, and the addresses of one other."""

    def getaddrinfo(host, port):
        if host not in ("known", "10.0.0.7"):
            raise socket.gaierror("Name or service not known")
        return [host]

    monkeypatch.setattr(mpirun_arguments.socket, "getaddrinfo", getaddrinfo)


@pytest.mark.usefixtures("no_names")
def test_a_host_that_nobody_knows_is_named_before_anything_is_launched(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "model.py").write_text("")
    (tmp_path / "ranks.yaml").write_text("rank_bindings:\n  - {rank: 0, mesh_id: 0}\nmesh_graph_desc_path: x\n")
    words = [
        "--rank-binding",
        "ranks.yaml",
        "--skip-mgd-check",
        "--mpi-args",
        "--host known,ol1ver",
        "python",
        "model.py",
    ]
    answer = CliRunner().invoke(tt_run, words)
    assert answer.exit_code == 1
    assert "The host 'ol1ver' cannot be found: no address is known for it." in answer.output
    assert "cabling" not in answer.output


def test_hosts_that_no_name_server_answers_for_are_left_to_mpirun(monkeypatch):
    over = threading.Event()
    monkeypatch.setattr(mpirun_arguments.socket, "getaddrinfo", lambda host, port: over.wait(60))
    monkeypatch.setattr(mpirun_arguments, "_SECONDS_FOR_NAMES", 0.1)
    began = time.monotonic()
    mpirun_arguments.check_hosts_are_found([f"host{number}" for number in range(50)], [], {})
    over.set()
    assert time.monotonic() - began < 30.0  # fifty look-ups, one after the other, would take fifty minutes


@pytest.mark.usefixtures("no_names")
@pytest.mark.parametrize(
    ("hosts", "arguments", "environ", "ssh"),
    [
        (["known", "localhost"], [], {}, "hostname known\n"),
        (["alias"], [], {}, "hostname 10.0.0.7\n"),
        (["behind"], [], {}, "hostname behind\nproxyjump gate\n"),
        (["pod-3"], ["--prtemca", "plm_ssh_agent", "enter"], {}, ""),
        (["pod-3"], [], {"OMPI_MCA_plm_rsh_agent": "enter"}, ""),
    ],
)
def test_a_host_that_ssh_or_another_agent_knows_is_no_mistake(monkeypatch, hosts, arguments, environ, ssh):
    done = subprocess.CompletedProcess([], 0, ssh)
    monkeypatch.setattr(mpirun_arguments.subprocess, "run", lambda *_, **__: done)
    monkeypatch.setattr(mpirun_arguments.shutil, "which", lambda name: name)
    check_hosts_are_found(hosts, arguments, environ)


@pytest.mark.usefixtures("no_names")
@pytest.mark.parametrize("ssh", [None, "ssh"])
def test_a_misspelt_host_is_refused_with_and_without_ssh(monkeypatch, ssh):
    done = subprocess.CompletedProcess([], 0, "hostname ol1ver\n")
    monkeypatch.setattr(mpirun_arguments.subprocess, "run", lambda *_, **__: done)
    monkeypatch.setattr(mpirun_arguments.shutil, "which", lambda _: ssh)
    with pytest.raises(LaunchError, match="The host 'ol1ver' cannot be found"):
        check_hosts_are_found(["ol1ver"], [], {})


def test_a_rank_that_is_stopped_is_told_so_when_others_wait_for_it():
    job = JobState(2, timeout=5.0)
    wait = {"op": "barrier", "kind": "collective", "group": "world", "members": "0-1", "peer": None, "tag": 0}
    job.update(0, {"state": "waiting", "wait": {**wait, "seconds": 6.0, "sequence": 1}}, 10.0)
    job.update(1, {"state": "computing"}, 10.0)
    job.stopped(1, True)
    assert job.states[1].doing is Doing.COMPUTING
    found = job.decide(20.0)
    assert found is not None
    assert "rank 1 stopped by a signal (SIGSTOP) or a debugger" in explained(found)


class Finished:
    """What ranks that have ended reported: rank 0 of this process, which runs on."""

    address = "127.0.0.1:9#a-token-that-nobody-has"

    @staticmethod
    def ranks() -> dict[int, tuple[RankState, int]]:
        return {0: (RankState(Doing.FINISHED), os.getpid())}


def test_a_process_that_computes_after_its_rank_has_ended_is_given_longer(monkeypatch):
    clock, ticks = count(10), count()
    monkeypatch.setattr(standstill, "time", SimpleNamespace(monotonic=lambda: float(next(clock))))
    busy = standstill._Process("S", 1, 1, 0)
    monkeypatch.setattr(standstill, "_process", lambda process: busy._replace(ticks=next(ticks)))
    watch = Standstill(Finished, [os.getpid()], 3.0, is_local=False)
    looks = next(number for number in range(100) if watch.report() is not None)
    assert looks == 30
    monkeypatch.setattr(standstill, "_process", lambda process: busy)
    watch = Standstill(Finished, [os.getpid()], 3.0, is_local=False)
    told = next(told for told in (watch.report() for _ in range(100)) if told is not None)
    assert "has not within 3 s, in which nothing of the job was at work" in told
    assert f"rank 0 has ended its program, and its process {os.getpid()} runs on" in told
