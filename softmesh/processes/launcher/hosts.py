"""Names of hosts: the list of `--hosts`, and whether a name means this machine."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterable, Sequence
from pathlib import Path

from softmesh.bounded_file import FileError, read_text
from softmesh.processes.launcher import mpi_arguments
from softmesh.processes.launcher.refusal import LaunchError

LOCALHOST = "localhost"
_HERE = (LOCALHOST, "127.0.0.1", "::1")


def hosts_of(text: str) -> list[str]:
    """In the order given; blanks around names and empty entries do not count.

    >>> hosts_of(" b, a,,")
    ['b', 'a']
    """
    hosts = [segment.strip() for segment in text.split(",")]
    hosts = [host for host in hosts if host]
    if not hosts:
        raise LaunchError(
            "No valid hostnames in --hosts after removing empty entries: "
            "list them with commas, as in --hosts a,b, or give --hosts localhost."
        )
    for place, host in enumerate(hosts):
        _check(host)
        if host in hosts[:place]:
            raise LaunchError(f"Duplicate hostname in --hosts: '{host}'")
    return hosts


def _check(host: str) -> None:
    if len(host.split()) > 1:
        raise LaunchError(
            "Invalid hostname in --hosts (spaces not allowed inside a host; use commas between hosts): "
            f"'{host}'"
        )
    if host.startswith("-"):
        raise LaunchError(
            f"Invalid hostname in --hosts: '{host}' looks like a CLI flag; was the value of --hosts left out?"
        )
    if ":" in host:
        raise LaunchError(
            f"Invalid hostname in --hosts: '{host}': the allocation counts the ranks of each host, so leave out the :"
        )


def hosts_asked_for(arguments: Sequence[str], directory: Path) -> list[str]:
    """Those that arguments of mpirun name, with --host or in a host file."""
    named = [entry.partition(":")[0] for entry in mpi_arguments.hosts_named(arguments)]
    files = [os.path.join(directory, file) for file in mpi_arguments.host_files(arguments)]
    return list(dict.fromkeys([*named, *(host for file in files for host in _hosts_in(file))]))


def _hosts_in(file: str) -> list[str]:
    """`host slots=2`, one to a line; mpirun itself refuses a file that it cannot read."""
    try:
        lines = read_text(file, kind="host file").splitlines()
    except FileError:
        return []
    words = [line.partition("#")[0].split() for line in lines]
    return [entry[0].rpartition("@")[2].partition(":")[0] for entry in words if entry]


def are_all_here(hosts: Iterable[str]) -> bool:
    here = (*_HERE, socket.gethostname())
    return all(host in here for host in hosts)
