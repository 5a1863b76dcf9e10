"""Names of hosts: the list of `--hosts`, and whether a name means this machine."""

from __future__ import annotations

import socket
from collections.abc import Iterable

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


def are_all_here(hosts: Iterable[str]) -> bool:
    here = (*_HERE, socket.gethostname())
    return all(host in here for host in hosts)
