"""The `tt-run` command: from options to exit code. A job is settled, checked, printed or run, and watched for hangs."""

from __future__ import annotations

import os
import shlex
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import click

from softmesh.errors import SoftmeshError
from softmesh.native.loopback import is_preloaded, with_loopback_only
from softmesh.processes.bindings.launch_files import launch_directory
from softmesh.processes.bindings.rank_bindings import BindingsError
from softmesh.processes.explainer import Explainer
from softmesh.processes.launcher.auto_allocation import (
    allocation_request,
    equivalent_command,
    placement_of,
    run_allocation,
    with_bindings,
)
from softmesh.processes.launcher.console import LaunchError, say, warn
from softmesh.processes.launcher.fork_client import WITH_ITS_SERVER
from softmesh.processes.launcher.job import Job, bound_job, check_program, check_python_program, plain_job
from softmesh.processes.launcher.job_process import Outcome, run
from softmesh.processes.launcher.job_sweeper import swept
from softmesh.processes.launcher.memory_kills import MemoryKills
from softmesh.processes.launcher.mpirun import Placement, is_scheduled, is_ulfm, mpirun_environment
from softmesh.processes.launcher.mpirun_arguments import are_all_local, check_hosts_are_found
from softmesh.processes.launcher.mpirun_doors import DoorKeeper
from softmesh.processes.launcher.options import Options, check_hosts_are_known, mode_of
from softmesh.processes.launcher.standstill import Standstill
from softmesh.processes.launcher.warm_start import with_fork_server
from softmesh.processes.rank_reporter import KEEP_OTHERS, REPORTS
from softmesh.processes.waits import timeout as waiting_timeout
from softmesh.terminal_text import echo, printable_command

HANGS = 1  # the exit code of a job that was ended because it could not go on
_MOST_HOSTS = 4
STANDS_STILL = -1  # in place of an exit code: it was told what keeps the job from its end
_SIGKILLED = 128 + signal.SIGKILL
_LOOPBACK = "127.0.0.1"


@dataclass(frozen=True)
class HangWatch:
    """With `keep_others` what goes wrong is told, and ranks that have nothing to do with it go on."""

    explainer: Explainer
    keep_others: bool = False

    @property
    def environment(self) -> dict[str, str]:
        """For mpirun, which passes it on: an address with a password does not belong on a command line."""
        return {REPORTS: self.explainer.address, **({KEEP_OTHERS: "1"} if self.keep_others else {})}

    def verdict(self, doors: DoorKeeper | None = None, standstill: Standstill | None = None) -> int | None:
        """Asked again and again; looks at the doors of mpirun, where it cannot look after them itself."""
        if doors is not None:
            doors.look()
        if standstill is not None and self.explainer.verdict is None and (told := standstill.report()):
            echo(told, err=True)
            return STANDS_STILL
        return None if self.explainer.verdict is None or self.keep_others else HANGS

    def ended(self, outcome: Outcome, warm_process: subprocess.Popen[bytes] | None, kills: MemoryKills | None) -> bool:
        """Tell what took the job down, if it was not told before; True if it is known."""
        is_explained = bool(outcome.killed_by) or outcome.code == STANDS_STILL
        if warm_process is not None and self.explainer.have_ended_with(WITH_ITS_SERVER) and not outcome.was_stopped:
            warn_of_killed_warm_process(warm_process)
            is_explained = True
        elif outcome.code != STANDS_STILL:
            self._tell_end(outcome)
        if kills is not None and not outcome.was_stopped and outcome.code == _SIGKILLED and (told := kills.evidence()):
            echo(f"  memory: {told}", err=True)
        return is_explained or self.explainer.verdict is not None

    def _tell_end(self, outcome: Outcome) -> None:
        is_a_ranks_doing = outcome.code != 0 and not outcome.was_stopped and not outcome.killed_by
        if is_a_ranks_doing and outcome.code == HANGS and self.explainer.was_ended_from_outside():
            warn_of_ended_mpirun()
            return
        may_have_lost_ranks = self.keep_others and outcome.code == 0  # mpirun then goes on without those that died
        self.explainer.job_ended(failed=is_a_ranks_doing or may_have_lost_ranks, how=_how(outcome.code))
        if outcome.killed_by and self.explainer.verdict is None:
            warn_of_killed_mpirun(outcome)
        elif is_a_ranks_doing and outcome.code == HANGS and self.explainer.has_heard_nothing():
            warn_of_an_early_end()


def warn_of_killed_mpirun(outcome: Outcome) -> None:
    echo(
        f"softmesh: mpirun was {_how(outcome.code)}: its ranks ended with it, and none of them is to blame\n"
        "  remedy: look for what killed it: memory that ran out (dmesg tells), a scheduler's limit, somebody's kill",
        err=True,
    )


def warn_of_killed_warm_process(process: subprocess.Popen[bytes]) -> None:
    is_killed = process.returncode is not None and process.returncode < 0
    how = f"was {_how(128 - process.returncode)}" if is_killed else "has ended"
    echo(
        f"softmesh: the warm process (fork_server.py, process {process.pid}), of which the ranks are copies, {how}:\n"
        "  they ended with it, and none of them is to blame\n"
        "  remedy: look for what ended it: memory that ran out (dmesg tells), a scheduler's limit, somebody's kill;\n"
        "  with SOFTMESH_WARM_START=0 each rank is a process of its own",
        err=True,
    )


def warn_of_ended_mpirun() -> None:
    echo(
        "softmesh: mpirun ended its ranks, as it does when it gets SIGTERM, SIGINT or SIGHUP, or where MPI_Abort is\n"
        "called, which it tells above: none of them died by itself\n"
        "  remedy: look for what told it to end: a scheduler's limit, somebody's kill, a closed terminal",
        err=True,
    )


def warn_of_an_early_end() -> None:
    echo(
        "\nsoftmesh: mpirun ended with exit code 1 before any rank had reported\n"
        "  either it could not start a program, or a program failed that early, and this is told above; or, where\n"
        "  nothing is, mpirun was told to end (SIGTERM, SIGINT, SIGHUP) while its ranks still started\n"
        "  remedy: mend what is told above, or look for what told it to end: a scheduler's limit, somebody's kill",
        err=True,
    )


def _how(code: int) -> str:
    """`exit code 3`, or which signal it was."""
    if code == HANGS:
        return "exit code 1, or the end of its process before that of its program, as by os._exit or a signal to mpirun"
    try:
        return f"killed by signal {code - 128} ({signal.Signals(code - 128).name})"
    except ValueError:
        return f"exit code {code}"


@contextmanager
def watch_for_hangs(ranks: int, hosts: Sequence[str], keep_others: bool = False) -> Iterator[HangWatch]:
    with Explainer(ranks, host=_address_towards(hosts)) as explainer:
        yield HangWatch(explainer, keep_others)


def _address_towards(hosts: Sequence[str]) -> str:
    """Under which this machine is seen from the first of the hosts that is another; else the loopback."""
    for host in hosts:
        if are_all_local([host]):
            continue
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            try:
                probe.connect((host, 9))  # chooses a route; sends nothing
                return str(probe.getsockname()[0])
            except OSError:
                continue
    if not are_all_local(hosts):
        warn(f"no address is known for {', '.join(hosts)}: ranks there cannot report, and meet their own deadlines.")
    return _LOOPBACK


_HINT = (
    "the job failed. If the machine or its cabling has changed, bindings and golden mappings made before no longer "
    "fit: allocate anew with -m/-M and --force-rediscovery."
)


def launch(options: Options, environ: Mapping[str, str]) -> int:
    """The exit code of `tt-run` with these options."""
    is_legacy = mode_of(options).is_legacy
    if not is_legacy:
        check_hosts_are_known(options)
    check_program(options.program, environ, options.skip_executable_check)
    if is_legacy:
        _warn_of_ignored(options)
        return finish(bound_job(options, environ), options, environ, _HINT)
    return _launch_allocated(options, environ)


def launch_plain(count: int, options: Options, environ: Mapping[str, str]) -> int:
    """So many ranks that are bound to no mesh."""
    if count < 1:
        raise LaunchError(f"-n {count}: a job has at least one rank.")
    check_program(options.program, environ, options.skip_executable_check)
    return finish(plain_job(count, options, environ), options, environ)


def _warn_of_ignored(options: Options) -> None:
    if options.hosts is not None:
        warn("--hosts is ignored with rank bindings: place ranks with --mpi-args, for example a rankfile.")
    if options.force_rediscovery:
        warn("--force-rediscovery is ignored with rank bindings: there is nothing to discover.")


def _launch_allocated(options: Options, environ: Mapping[str, str]) -> int:
    request = allocation_request(options, environ)
    is_cached = request.is_cached and not options.force_rediscovery
    if not is_cached and options.dry_run:
        say(f"phase 1 would run first (nothing is cached): allocate {request}")
        say("the mpirun line is known after it: run once without --dry-run, or write bindings by hand.")
        return 0
    if not is_cached:
        run_allocation(request)
    say(f"phase 1: {'found in the cache' if is_cached else 'allocated'}: {request.folder}")
    say(f"to run phase 2 alone: {equivalent_command(options, request)}")
    bound = with_bindings(options, request)
    placement: Placement = placement_of(request, launch_directory(environ))
    job = bound_job(bound, environ, placement)
    return finish(job, options, environ, _HINT if is_cached else "")


def finish(job: Job, options: Options, environ: Mapping[str, str], hint: str = "") -> int:
    """Print the command, or run it."""
    if options.verbose:
        _describe(job)
    if options.dry_run:
        echo(shlex.join(job.command()))
        return 0
    if not options.skip_executable_check:
        check_python_program(options.program, environ)
    if not is_scheduled(environ):  # the daemons of a scheduler know its nodes by themselves
        check_hosts_are_found(job.hosts, job.general, environ)
    with watch_for_hangs(len(job.ranks), job.hosts, options.keep_others) as reports:
        own = {**mpirun_environment(environ), **reports.environment}
        is_local = job.stays_here(environ)
        of_mpirun = with_loopback_only(own) if is_local else own
        warm: list[subprocess.Popen[bytes]] = []
        kills = MemoryKills() if is_local else None
        with swept(own) as sweeper, with_fork_server(job, own, warm.append) as started:
            for process in warm:
                sweeper.watch(process.pid)
            command = started.command(passed_on=[*reports.environment])
            doors = DoorKeeper(sweeper.sessions) if is_local and not is_preloaded(of_mpirun) else None
            standstill = Standstill(reports.explainer, sweeper.sessions, waiting_timeout(own), is_local)
            outcome = run(command, job.directory, of_mpirun, partial(reports.verdict, doors, standstill), sweeper)
            for process in warm:
                process.poll()  # how it ended, before it is ended
        is_explained = reports.ended(outcome, warm[0] if warm else None, kills)
    if outcome.code != 0 and not outcome.was_stopped and not is_explained:
        far = [host for host in job.hosts if not are_all_local([host])]
        if far and reports.explainer.has_heard_nothing():
            say(f"no rank has reported; those on other hosts could not be started, perhaps: {_reached(far)}")
        elif hint:
            say(hint)
    return HANGS if is_explained and outcome.code in (0, STANDS_STILL) else outcome.code


def _reached(hosts: Sequence[str]) -> str:
    """Return the command that shows if a host can be reached as mpirun would reach it."""
    tried = ", ".join(f"ssh {host} true" for host in hosts[:_MOST_HOSTS])
    return f"try {tried}, and look whether {sys.executable} and this folder are there too; mpirun names a host above"


def _describe(job: Job) -> None:
    if not is_ulfm(job.mpirun):
        warn(f"mpirun-ulfm is not on PATH; {job.mpirun} is used")
    say(f"{len(job.ranks)} ranks, started in {job.directory}")
    for number, rank in enumerate(job.ranks):
        told = {name: rank.environment.get(name) for name in ("TT_MESH_ID", "TT_MESH_HOST_RANK", "TT_VISIBLE_DEVICES")}
        say(f"rank {number}: " + " ".join(f"{name}={value}" for name, value in told.items() if value is not None))
    say(shlex.join(job.command()))


_SETTINGS = {"ignore_unknown_options": True, "help_option_names": ["--help"]}


@click.command("tt-run", cls=printable_command(click.Command), context_settings=_SETTINGS)
@click.option("--rank-binding", metavar="FILE", help="Which rank works on which mesh (YAML).")
@click.option(
    "--rank-bindings-mapping",
    metavar="FILE",
    help="A YAML file that names several of these files, one for each sub-context.",
)
@click.option(
    "-m", "--mesh-graph-descriptor", metavar="FILE", help="Choose ranks and chips for this mesh graph (.textproto)."
)
@click.option(
    "-M",
    "--mesh-graph-descriptor-mapping",
    metavar="FILE",
    help="A YAML file that names a mesh graph for each sub-context.",
)
@click.option("--hosts", metavar="A,B", help="The hosts that ranks may run on, with -m and -M.")
@click.option("--system", metavar="S", help="The machine that is simulated: T3000, Galaxy, torus:4x4, ...")
@click.option("--dry-run", is_flag=True, help="Print the mpirun line and run nothing.")
@click.option("-v", "--verbose", is_flag=True, help="Print what the launcher does, step by step.")
@click.option("--mpi-args", metavar="TEXT", help="More arguments for mpirun, in one pair of quotes.")
@click.option("--debug-gdbserver", is_flag=True, help="Run rank r under gdbserver, port 20000 + r.")
@click.option(
    "--mock-cluster-rank-binding", metavar="FILE", help="A YAML file that names a cluster descriptor for each rank."
)
@click.option(
    "--factory-system-descriptor", metavar="FILE", help="A description of the factory system, passed on to the ranks."
)
@click.option("--skip-executable-check", is_flag=True, help="Do not check that the program exists on this host.")
@click.option("--skip-mgd-check", is_flag=True, help="Do not read or check the mesh graph on this host.")
@click.option(
    "--keep-others", is_flag=True, help="A rank that fails does not end those that share no mesh or socket with it."
)
@click.option("--bare", is_flag=True, help="Give mpirun none of the usual arguments about transport.")
@click.option("--tcp-interface", metavar="NAME", help="The network interface between hosts.")
@click.option(
    "--rankfile-syntax",
    type=click.Choice(["auto", "rankfile", "map-by", "mca"]),
    default="auto",
    help="The way in which mpirun gets the rankfile.",
)
@click.option(
    "--force-rediscovery", is_flag=True, help="Choose ranks and chips again, not from the cache; with -m and -M."
)
@click.option("--tracy", metavar="TEXT", help="Profile every rank with these tracy options.")
@click.argument("program", nargs=-1, type=click.UNPROCESSED)
def tt_run(**given: Any) -> None:
    """Run PROGRAM as several ranks, each bound to a mesh.

    Options are recognised anywhere on the line; put -- before a program that has some of the same names. The
    exit code is the job's own; 1: the job cannot be launched; 130: Ctrl-C.

    \b
    Examples:
      tt-run --rank-binding bindings.yaml python model.py
      tt-run -m mesh.textproto --hosts localhost -- python -m package.module
      tt-run --rank-binding bindings.yaml --dry-run python model.py
    """
    if given["program"][:1] == ("-h",):  # behind the program's name it is the program's
        echo(click.get_current_context().get_help())
        return
    sys.exit(_exit_code(lambda: launch(Options(**given), dict(os.environ))))


def run_ranks(
    count: int,
    program: Sequence[str],
    system: str | None = None,
    mpi_args: str | None = None,
    dry_run: bool = False,
) -> int:
    """So many ranks of a program, bound to no mesh (`softmesh run -n`); the exit code of the job."""
    options = Options(tuple(program), system=system, mpi_args=mpi_args, dry_run=dry_run)
    return _exit_code(lambda: launch_plain(count, options, dict(os.environ)))


def _exit_code(launching: Callable[[], int]) -> int:
    """What cannot be launched is said on stderr, and is exit code 1."""
    try:
        return launching()
    except BindingsError as error:
        echo(f"{error}\nHint: `softmesh lint` checks such a file, and all it names, line by line.", err=True)
    except SoftmeshError as error:
        text = str(error)
        echo(text if text.startswith("Error") else f"Error: {text}", err=True)
    return 1
