"""The hang explainer beside a running job: where ranks report to, and whether it asks for the end."""

from __future__ import annotations

import signal
import socket
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from softmesh.processes.explainer import Explainer
from softmesh.processes.launcher.hosts import are_all_here
from softmesh.processes.launcher.notices import warn

REPORTS = "SOFTMESH_REPORTS"
HANGS = 1  # the exit code of a job that was ended because it could not go on
_LOOPBACK = "127.0.0.1"


@dataclass(frozen=True)
class Reporting:
    explainer: Explainer

    @property
    def environment(self) -> dict[str, str]:
        """For mpirun, which passes it on: an address with a password does not belong on a command line."""
        return {REPORTS: self.explainer.address}

    def verdict(self) -> int | None:
        return None if self.explainer.verdict is None else HANGS

    def ended(self, code: int, was_stopped: bool) -> None:
        """What took the job down is told now, if it was not told before."""
        self.explainer.job_ended(failed=code != 0 and not was_stopped, how=_how(code))


def _how(code: int) -> str:
    """`exit code 3`, or which signal it was."""
    try:
        return f"killed by signal {code - 128} ({signal.Signals(code - 128).name})"
    except ValueError:
        return f"exit code {code}"


@contextmanager
def reporting(ranks: int, hosts: Sequence[str]) -> Iterator[Reporting]:
    with Explainer(ranks, host=_address_towards(hosts)) as explainer:
        yield Reporting(explainer)


def _address_towards(hosts: Sequence[str]) -> str:
    """Under which this machine is seen from the first of the hosts that is another; else the loopback."""
    for host in hosts:
        if are_all_here([host]):
            continue
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            try:
                probe.connect((host, 9))  # chooses a route; sends nothing
                return str(probe.getsockname()[0])
            except OSError:
                continue
    if not are_all_here(hosts):
        warn(
            f"no address is known for {', '.join(hosts)}: ranks there cannot report, and meet their own deadlines."
        )
    return _LOOPBACK
