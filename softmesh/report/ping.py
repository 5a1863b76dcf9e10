"""`softmesh ping`: every Ethernet link of a machine, and which of them a fabric can use."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from typing import NamedTuple

import click

from softmesh.errors import SoftmeshError
from softmesh.option_types import WholeNumber
from softmesh.report.job_machine import machine_of_job
from softmesh.systems.machine import Link, Machine
from softmesh.systems.named_systems import load
from softmesh.systems.system_choice import SYSTEM, chosen_machine
from softmesh.terminal_text import echo

_FAILED, _MISUSED = 1, 2


class Answer(NamedTuple):
    """Whether packets come over one link, and if not, why."""

    link: Link
    is_up: bool
    why: str = ""

    def __str__(self) -> str:
        near, far = self.link
        place = f"chip {near.chip} channel {near.channel} <-> chip {far.chip} channel {far.channel}"
        return f"{place}: {'ok' if self.is_up else f'no answer ({self.why})'}"


def answers(whole: Machine, working: Machine) -> Iterator[Answer]:
    """Of every link that the machine was built with, in its order."""
    there = set(working.links)
    for link in whole.links:
        lost = [port.chip for port in link if port.chip not in working.asics]
        if lost:
            yield Answer(link, False, f"chip {lost[0]} is down")
        elif link not in there:
            yield Answer(link, False, "the link is down")
        else:
            yield Answer(link, True)


_EXAMPLES = ("--system T3000", "--system Galaxy --down link:3-7", "--job 4711")


@click.command(
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="\n  softmesh ping ".join(["\b\nExamples:", *_EXAMPLES]),
)
@click.option("--system", metavar="S", help="The machine; by default the one that SOFTMESH_SYSTEM names.")
@click.option("--down", metavar="WHAT", multiple=True, help="What is broken: chip:5, link:3-7, link:3/8.")
@click.option("--job", metavar="PID", type=WholeNumber(min=1), help="A running job: its tt-run, or one of its ranks.")
@click.option("--json", "as_json", is_flag=True, help="Print the answers as JSON.")
@click.option("-v", "--verbose", is_flag=True, help="Print every link, not only those that do not answer.")
def ping(system: str | None, down: tuple[str, ...], job: int | None, as_json: bool, verbose: bool) -> None:
    """Test every Ethernet link of a machine, or of the chips of a running job: which of them its fabric can use.

    What --down or SOFTMESH_DOWN breaks does not answer. Exit code 0: every link answers; 1: one does not; 2: wrong
    usage.
    """
    try:
        found = list(_pinged(system, down) if job is None else _pinged_in_job(job, system, down))
    except SoftmeshError as error:
        echo(f"Error: {error}", err=True)
        sys.exit(_MISUSED)
    silent = [answer for answer in found if not answer.is_up]
    if as_json:
        echo(json.dumps([{"link": list(map(list, one.link)), "up": one.is_up, "why": one.why} for one in found]))
    else:
        for answer in found if verbose else silent:
            echo(str(answer))
        echo(f"{len(found) - len(silent)} of {len(found)} links answer")
    sys.exit(_FAILED if silent else 0)


def _pinged_in_job(job: int, system: str | None, down: tuple[str, ...]) -> Iterator[Answer]:
    from softmesh.systems.machine_restriction import with_down

    if system is not None:
        raise SoftmeshError("--job names a machine already: leave --system out.")
    machine, chips = machine_of_job(job)
    for answer in answers(machine.restored(), with_down(machine, down)):
        if all(port.chip in chips or port.chip not in machine.asics for port in answer.link):
            yield answer


def _pinged(system: str | None, down: tuple[str, ...]) -> Iterator[Answer]:
    from softmesh.systems.machine_restriction import with_down

    machine = chosen_machine(whole=True) if system is None else load(system)
    if machine is None:
        raise SoftmeshError(
            f"the elastic machine has no links of its own. Choose a machine: --system T3000, or {SYSTEM}=T3000."
        )
    return answers(machine.restored(), with_down(machine, down))
