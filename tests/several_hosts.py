"""Several hosts on this machine: network namespaces on a bridge, each with a host name of its own.

    unshare --net --mount --uts python several_hosts.py 4 mpirun --host host1,host2,host3,host4 ...

runs a command in a network of its own that has no way out: the command sees the bridge as 10.77.0.1 and the
hosts as 10.77.0.11 onwards, by name too. `MPI_ARGUMENTS` make mpirun start its daemons there by this file
instead of ssh. At the end it is told how many bytes each host received. Namespaces and mounts are seen by the
command and its children alone, and end with the last of them.
"""

from __future__ import annotations

import json
import os
import shlex
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

NAMESPACES = "SOFTMESH_TEST_NAMESPACES"  # names the folder that has two files for each host
MPI_ARGUMENTS = ["--prtemca", "plm_ssh_agent", shlex.join([sys.executable, os.path.abspath(__file__), "on"])]
_ENTRY = ["unshare", "--net", "--mount", "--uts", *([] if os.geteuid() == 0 else ["--map-root-user"])]
_KINDS = ("net", "uts")
_SUBNET = "10.77.0"
_NAMING = "import socket, sys; socket.sethostname(sys.argv[1])"


def host_names(count: int) -> list[str]:
    return [f"host{number}" for number in range(1, count + 1)]


def inside(count: int, command: Sequence[str]) -> list[str]:
    """The command, run in a network of so many hosts."""
    return [*_ENTRY, sys.executable, os.path.abspath(__file__), str(count), *command]


def main(count: int, command: Sequence[str]) -> int:
    hosts = host_names(count)
    with _network(hosts) as folder:
        code = subprocess.run(command, env={**os.environ, NAMESPACES: folder}, check=False).returncode
        for host in hosts:
            print(f"{host} received {_received(host)} bytes")
    return code


@contextmanager
def _network(hosts: Sequence[str]) -> Iterator[str]:
    with tempfile.TemporaryDirectory(prefix="hosts-", ignore_cleanup_errors=True) as folder:
        try:
            _set_up(hosts, folder)
            yield folder
        finally:
            files = [f"{folder}/{host}.{kind}" for host in hosts for kind in _KINDS]
            subprocess.run(["umount", "--lazy", "/etc/hosts", *files], stderr=subprocess.DEVNULL, check=False)


def _set_up(hosts: Sequence[str], folder: str) -> None:
    socket.sethostname("hub")
    _run("ip", "link", "set", "lo", "up")
    _run("ip", "link", "add", "bridge", "type", "bridge")
    _run("ip", "address", "add", f"{_SUBNET}.1/24", "dev", "bridge")
    _run("ip", "link", "set", "bridge", "up")
    addresses = {host: f"{_SUBNET}.{number}" for number, host in enumerate(hosts, 11)}
    for host, address in addresses.items():
        _add_host(host, address, folder)
    known = {"localhost": "127.0.0.1", "hub": f"{_SUBNET}.1", **addresses}
    Path(folder, "hosts").write_text("".join(f"{address} {name}\n" for name, address in known.items()))
    _run("mount", "--bind", f"{folder}/hosts", "/etc/hosts")


def _add_host(host: str, address: str, folder: str) -> None:
    for kind in _KINDS:
        Path(folder, f"{host}.{kind}").touch()
    _run("unshare", *_files(folder, host), sys.executable, "-c", _NAMING, host)
    _run("ip", "link", "add", host, "type", "veth", "peer", "name", "eth0", "netns", f"{folder}/{host}.net")
    _run("ip", "link", "set", host, "master", "bridge", "up")
    for command in (
        ["ip", "address", "add", f"{address}/24", "dev", "eth0"],
        ["ip", "link", "set", "eth0", "up"],
        ["ip", "link", "set", "lo", "up"],
    ):
        _run("nsenter", *_files(folder, host), "--", *command)


def _files(folder: str, host: str) -> list[str]:
    return [f"--{kind}={folder}/{host}.{kind}" for kind in _KINDS]


def _run(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=False)
    if done.returncode != 0:
        sys.exit(f"{shlex.join(command)}: {done.stderr.strip()}")
    return done.stdout


def _received(host: str) -> int:
    (link,) = json.loads(_run("ip", "-json", "-statistics", "link", "show", "dev", host))
    return int(link["stats64"]["tx"]["bytes"])  # what the bridge sent there


def run_on(host: str, words: Sequence[str]) -> None:
    """What ssh does: the words are a line for the shell of that host."""
    into = ["nsenter", *_files(os.environ[NAMESPACES], host), "--", "sh", "-c", " ".join(words)]
    os.execvp(into[0], into)


if __name__ == "__main__":
    if sys.argv[1] == "on":
        run_on(sys.argv[2], sys.argv[3:])
    sys.exit(main(int(sys.argv[1]), sys.argv[2:]))
