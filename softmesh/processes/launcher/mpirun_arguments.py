"""Parser of the arguments that users pass to mpirun: what they already settle, and which hosts they name."""

from __future__ import annotations

import os
import shlex
import shutil
import socket
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from softmesh.input_files.text_files import FileError, read_text
from softmesh.processes.launcher.console import LaunchError

_MCA = ("--mca", "-mca", "--gmca", "-gmca", "--omca", "--prtemca", "--pmixmca")
_HOST = ("--host", "-host", "-H")
_HOST_FILES = ("--hostfile", "-hostfile", "--machinefile", "-machinefile", "--default-hostfile")
_BINDING = ("--bind-to", "-bind-to", "--bind-to-core", "-bind-to-core", "--bind-to-none", "--bind-to-socket")
_COUNTS = ("-np", "--np", "-n", "--n", "-c")
_VALUED = (
    *_MCA,
    *_HOST,
    *_HOST_FILES,
    *_COUNTS,
    "--bind-to",
    "-bind-to",
    "--map-by",
    "-map-by",
    "--rankfile",
    "-rf",
    "-x",
)
OVERSUBSCRIBE = "--oversubscribe"


def split(text: str | None) -> list[str]:
    """The value of --mpi-args, split as a shell would."""
    try:
        return shlex.split(text or "")
    except ValueError as error:
        raise LaunchError(f"--mpi-args cannot be split into arguments ({error}): {text}") from None


def check(arguments: Sequence[str], rank_count: int) -> None:
    """Refuse what would take the ranks apart; the rest is for mpirun to judge."""
    for argument in arguments:
        if argument == ":":
            raise LaunchError(
                "--mpi-args: a `:` begins another program; tt-run writes those itself, one for each rank."
            )
        if argument.partition("=")[0] in _COUNTS:
            ranks = "1 rank" if rank_count == 1 else f"{rank_count} ranks"
            raise LaunchError(
                f"--mpi-args: {argument} counts processes, and the job has {ranks} whatever it says: leave it out, and "
                "bind as many ranks as you need."
            )
    if arguments and (last := arguments[-1]) in _VALUED:
        raise LaunchError(f"--mpi-args: {last} at the end has no value.")
    if len(arguments) > 1 and arguments[-2] in _MCA:
        raise LaunchError(f"--mpi-args: {arguments[-2]} {arguments[-1]} at the end has no value.")


def values_of(arguments: Sequence[str], *options: str) -> list[str]:
    """What follows an option, in the spellings `--host a` and `--host=a`."""
    found = []
    for place, argument in enumerate(arguments):
        name, has_value, value = argument.partition("=")
        if argument in options and place + 1 < len(arguments):
            found.append(arguments[place + 1])
        elif has_value and name in options:
            found.append(value)
    return found


def has_option(arguments: Sequence[str], *options: str) -> bool:
    return any(argument.partition("=")[0] in options for argument in arguments)


def sets_mca(arguments: Sequence[str], parameter: str) -> bool:
    return any(
        argument in _MCA and parameter in arguments[place + 1 : place + 2] for place, argument in enumerate(arguments)
    )


def binds(arguments: Sequence[str]) -> bool:
    return has_option(arguments, *_BINDING) or sets_mca(arguments, "hwloc_base_binding_policy")


def names_hosts(arguments: Sequence[str]) -> bool:
    return has_option(arguments, *_HOST, *_HOST_FILES) or sets_mca(arguments, "orte_default_hostfile")


def hosts_named(arguments: Sequence[str]) -> list[str]:
    """The entries of --host, `a:2` with their counts."""
    lists = values_of(arguments, *_HOST)
    return [entry.strip() for entries in lists for entry in entries.split(",") if entry.strip()]


def host_files(arguments: Sequence[str]) -> list[str]:
    return values_of(arguments, *_HOST_FILES)


def repeats_a_bare_host(arguments: Sequence[str]) -> bool:
    bare = Counter(entry for entry in hosts_named(arguments) if ":" not in entry)
    return any(times > 1 for times in bare.values())


def allows_oversubscribing(arguments: Sequence[str]) -> bool:
    spelled = has_option(arguments, OVERSUBSCRIBE, "-oversubscribe")
    qualified = values_of(arguments, "--map-by", "-map-by")
    return spelled or any("oversubscribe" in value.lower() for value in qualified)


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
            f"Invalid hostname in --hosts (spaces not allowed inside a host; use commas between hosts): '{host}'"
        )
    if host.startswith("-"):
        raise LaunchError(
            f"Invalid hostname in --hosts: '{host}' looks like a CLI flag; was the value of --hosts left out?"
        )
    if ":" in host:
        raise LaunchError(
            f"Invalid hostname in --hosts: '{host}': the allocation counts the ranks of each host, so leave out the :"
        )


def hosts_in_arguments(arguments: Sequence[str], directory: Path) -> list[str]:
    """Those that arguments of mpirun name, with --host or in a host file."""
    named = [entry.partition(":")[0] for entry in hosts_named(arguments)]
    files = [os.path.join(directory, file) for file in host_files(arguments)]
    return list(dict.fromkeys([*named, *(host for file in files for host in _hosts_in(file))]))


def _hosts_in(file: str) -> list[str]:
    """`host slots=2`, one to a line; mpirun itself refuses a file that it cannot read."""
    try:
        lines = read_text(file, kind="host file").splitlines()
    except FileError:
        return []
    words = [line.partition("#")[0].split() for line in lines]
    return [entry[0].rpartition("@")[2].partition(":")[0] for entry in words if entry]


def are_all_local(hosts: Iterable[str]) -> bool:
    here = (*_HERE, socket.gethostname())
    return all(host in here for host in hosts)


_AGENT = ("plm_ssh_agent", "plm_rsh_agent", "plm")
_SECONDS_FOR_SSH = 10.0
_SECONDS_FOR_NAMES = 20.0  # for all hosts together: a name server that is down answers none of them


def check_hosts_are_found(hosts: Iterable[str], arguments: Sequence[str], environ: Mapping[str, str]) -> None:
    """Raise a LaunchError that names a host of which nobody knows an address: mpirun would look for it much longer.

    A name may also be one of the user's ssh configuration. With an agent in place of ssh, names mean what that says.
    Names that nobody answers for in time are left to mpirun.
    """
    deadline = time.monotonic() + _SECONDS_FOR_NAMES
    if any(sets_mca(arguments, name) or any(key.endswith(name) for key in environ) for name in _AGENT):
        return
    for host in hosts:
        if (
            host.startswith("+") or are_all_local([host]) or _has_address(host, deadline)
        ):  # +n0: the first one of the list
            continue
        name = _name_for_ssh(host)
        if name is not None and name != host.lower() and (not name or _has_address(name, deadline)):
            continue
        raise LaunchError(
            f"The host {host!r} cannot be found: no address is known for it. Look at its spelling where hosts are "
            "named (--hosts, a rankfile or host file, --mpi-args), and at /etc/hosts or the name server."
        )


def _has_address(host: str, deadline: float) -> bool:
    """True too where nobody has answered at the deadline; a look-up has none of its own."""
    found: list[bool] = []
    search = threading.Thread(target=lambda: found.append(_finds(host)), name="softmesh look-up", daemon=True)
    search.start()
    search.join(max(0.0, deadline - time.monotonic()))
    return not found or found[0]


def _finds(host: str) -> bool:
    try:
        return bool(socket.getaddrinfo(host, None))
    except (OSError, UnicodeError):
        return False


def _name_for_ssh(host: str) -> str | None:
    """The name that ssh would look up; empty where it asks another program, None where there is no ssh."""
    if host.startswith("-") or shutil.which("ssh") is None:
        return None
    try:
        told = subprocess.run(
            ["ssh", "-G", "--", host], capture_output=True, text=True, timeout=_SECONDS_FOR_SSH, check=True
        ).stdout
    except (OSError, subprocess.SubprocessError):
        return None
    settings = dict(line.split(" ", 1) for line in told.splitlines() if " " in line)
    return "" if {"proxycommand", "proxyjump"} & settings.keys() else settings.get("hostname")
