"""The mpirun command line: general arguments, then one segment for each rank."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from softmesh.bounded_file import FileError
from softmesh.processes.launcher import mpi_arguments, rankfile
from softmesh.processes.launcher.engine import core_count
from softmesh.processes.launcher.hosts import are_all_here, hosts_asked_for
from softmesh.processes.launcher.notices import warn

_TRANSPORTS = "self,tcp"
_TRANSPORTS_HERE = "self,sm,tcp"  # ranks of one machine meet in its memory
_NOT_BETWEEN_HOSTS = "docker0,lo"


@dataclass(frozen=True)
class Transport:
    """The default transport arguments: none of them with `bare`."""

    bare: bool = False
    tcp_interface: str | None = None


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


def command(
    mpirun: str, general: Sequence[str], ranks: Sequence[Rank], passed_on: Sequence[str] = ()
) -> list[str]:
    words = [mpirun, *general]
    for number, rank in enumerate(ranks):
        settings = [*(f"{name}={value}" for name, value in rank.environment.items()), *passed_on]
        exported = [word for setting in settings for word in ("-x", setting)]
        words += [*([":"] if number else []), "-np", "1", *exported, *rank.program]
    return words


def general_arguments(
    user: Sequence[str], rank_count: int, placement: Placement, transport: Transport
) -> list[str]:
    """What stands before the ranks; whatever the user settled is left as it is."""
    found = rankfile.taken_from(user)
    path = found.path or placement.rankfile
    placed = _hosts_placed(path, placement.launch_directory) if path is not None else {}
    if path is not None:
        rankfile.check_ranks(path, placed, rank_count)
    named = list(placement.hosts)
    if path is not None and not named and not mpi_arguments.names_hosts(found.rest):
        named = list(dict.fromkeys(placed.values()))
    given = mpi_arguments.names_hosts(found.rest)
    hosts = ["--host", ",".join(named)] if named and not given else []
    file = rankfile.spelled(path, placement.syntax, placement.launch_directory) if path is not None else []
    all_hosts = [*placed.values(), *named, *hosts_asked_for(found.rest, placement.launch_directory)]
    is_local = are_all_here(host.partition(":")[0] for host in all_hosts) and (bool(all_hosts) or not given)
    over = _oversubscription(found.rest, placed, rank_count, is_local)
    return [
        *([] if path is not None or mpi_arguments.binds(found.rest) else ["--bind-to", "none"]),
        "--tag-output",
        *_yielding(found.rest, over),
        *over,
        *hosts,
        *file,
        *_transport(transport, found.rest, is_local),
        *found.rest,
    ]


def _hosts_placed(path: str, launch_directory: Path) -> dict[int, str]:
    try:
        return rankfile.hosts_by_rank(os.path.join(launch_directory, path))
    except FileError as error:
        warn(f"the rankfile is passed on unread: {error}")
        return {}


def _oversubscription(
    user: Sequence[str], placed: Mapping[int, str], rank_count: int, is_local: bool
) -> list[str]:
    if mpi_arguments.allows_oversubscribing(user):
        return []
    crowded = any(times > 1 for times in Counter(placed.values()).values())
    beyond_cores = is_local and rank_count > core_count()
    needed = crowded or beyond_cores or mpi_arguments.repeats_a_bare_host(user)
    return [mpi_arguments.OVERSUBSCRIBE] if needed else []


def _yielding(user: Sequence[str], over: Sequence[str]) -> list[str]:
    """Ranks that share a core must not spin while they wait."""
    shares_cores = bool(over) or mpi_arguments.allows_oversubscribing(user)
    settled = mpi_arguments.sets_mca(user, "mpi_yield_when_idle")
    return ["--mca", "mpi_yield_when_idle", "1"] if shares_cores and not settled else []


def _transport(transport: Transport, user: Sequence[str], is_local: bool) -> list[str]:
    if transport.bare:
        return []
    interface = ("btl_tcp_if_exclude", _NOT_BETWEEN_HOSTS)
    if transport.tcp_interface is not None:
        interface = ("btl_tcp_if_include", transport.tcp_interface)
    defaults = [("btl", _TRANSPORTS_HERE if is_local else _TRANSPORTS), interface]
    # Open MPI takes one of the two interface lists, never both.
    interfaces = any(mpi_arguments.sets_mca(user, f"btl_tcp_if_{which}") for which in ("include", "exclude"))
    return [
        word
        for name, value in defaults
        if not mpi_arguments.sets_mca(user, name) and not (name == interface[0] and interfaces)
        for word in ("--mca", name, value)
    ]
