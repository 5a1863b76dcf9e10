"""The machine of a running job, read from the environment of its processes, without asking them.

A job is known by the process id of its launcher, or of one of its ranks. What a program chose itself, with
`use_system`, stands in no environment and is not known here.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from softmesh.errors import MeshError
from softmesh.systems.machine import Machine
from softmesh.systems.system_choice import DOWN, HOST, MOCK_DESCRIPTOR, MOCK_HOSTS, SYSTEM, VISIBLE, chosen_machine

_PROCESSES = Path("/proc")
_RANK = "OMPI_COMM_WORLD_RANK"
_DECIDING = (SYSTEM, DOWN, MOCK_DESCRIPTOR, MOCK_HOSTS, HOST, VISIBLE)
_LONGEST = 1 << 20  # bytes of an environment


class JobMachine(NamedTuple):
    whole: Machine
    chips: frozenset[int]  # that its ranks see


def machine_of_job(pid: int) -> JobMachine:
    """Of all ranks among a process and its descendants; of the process itself where there is none."""
    environments = [_environment(one) for one in (pid, *_descendants(pid))]
    ranks = [found for found in environments if _RANK in found] or environments[:1]
    whole: Machine | None = None
    chips: set[int] = set()
    for environment in ranks:
        with _as_if_in(environment):
            whole, own = chosen_machine(whole=True), chosen_machine()
        if whole is None or own is None:
            raise MeshError(
                f"process {pid} runs on the elastic machine, which has no links of its own: start the job with "
                f"--system T3000, or with {SYSTEM}=T3000."
            )
        chips |= set(own.asics)
    assert whole is not None
    return JobMachine(whole, frozenset(chips))


def _environment(pid: int) -> dict[str, str]:
    try:
        with (_PROCESSES / str(pid) / "environ").open("rb") as file:
            text = file.read(_LONGEST)
    except OSError as error:
        raise MeshError(
            f"process {pid} cannot be looked at ({error.strerror}): give the process id of a job of yours that runs on "
            "this host, that of tt-run or of one of its ranks."
        ) from None
    pairs = (entry.decode(errors="replace").partition("=") for entry in text.split(b"\0") if entry)
    return {name: value for name, _, value in pairs}


def _descendants(pid: int) -> list[int]:
    children: dict[int, list[int]] = {}
    for folder in _PROCESSES.iterdir():
        if folder.name.isdigit():
            try:
                fields = (folder / "stat").read_text().rpartition(")")[2].split()
            except OSError:  # it has just ended
                continue
            children.setdefault(int(fields[1]), []).append(int(folder.name))
    found, next_ones = [], [pid]
    while next_ones:
        next_ones = [child for one in next_ones for child in children.get(one, ())]
        found += next_ones
    return found


@contextmanager
def _as_if_in(environment: Mapping[str, str]) -> Iterator[None]:
    """With the variables that decide about the machine as they are there."""
    before = {name: os.environ.pop(name, None) for name in _DECIDING}
    os.environ.update({name: environment[name] for name in _DECIDING if name in environment})
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name, None)
            if value is not None:
                os.environ[name] = value
