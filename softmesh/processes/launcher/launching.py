"""A launch from options to exit code: settle, check, print or run."""

from __future__ import annotations

import shlex
from collections.abc import Mapping

import click

from softmesh.processes.launcher.engine import as_root_too, is_ulfm
from softmesh.processes.launcher.job import Job, bound_job, plain_job
from softmesh.processes.launcher.mpirun import Placement
from softmesh.processes.launcher.notices import say, warn
from softmesh.processes.launcher.options import Options, check_hosts_are_known, mode_of
from softmesh.processes.launcher.phase_one import (
    answer,
    equivalent_command,
    placement_of,
    question,
    with_bindings,
)
from softmesh.processes.launcher.program import check_program
from softmesh.processes.launcher.refusal import LaunchError
from softmesh.processes.launcher.reporting import reporting
from softmesh.processes.launcher.running import run
from softmesh.processes.launcher.warming import warmed
from softmesh.processes.search import launch_directory

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
    asked = question(options, environ)
    is_cached = asked.is_answered and not options.force_rediscovery
    if not is_cached and options.dry_run:
        say(f"phase 1 would run first (nothing is cached): allocate {asked}")
        say("the mpirun line is known after it: run once without --dry-run, or write bindings by hand.")
        return 0
    if not is_cached:
        answer(asked)
    say(f"phase 1: {'found in the cache' if is_cached else 'allocated'}: {asked.folder}")
    say(f"to run phase 2 alone: {equivalent_command(options, asked)}")
    bound = with_bindings(options, asked)
    placement: Placement = placement_of(asked, launch_directory(environ))
    job = bound_job(bound, environ, placement)
    return finish(job, options, environ, _HINT if is_cached else "")


def finish(job: Job, options: Options, environ: Mapping[str, str], hint: str = "") -> int:
    """Print the command, or run it."""
    if options.verbose:
        _describe(job)
    if options.dry_run:
        click.echo(shlex.join(job.command()))
        return 0
    with reporting(len(job.ranks), job.hosts) as reports:
        own = {**as_root_too(environ), **reports.environment}
        with warmed(job, own) as started:
            command = started.command(passed_on=[*reports.environment])
            outcome = run(command, job.directory, own, reports.verdict)
        reports.ended(*outcome)
    is_explained = reports.verdict() is not None
    if outcome.code != 0 and not outcome.was_stopped and not is_explained and hint:
        say(hint)
    return outcome.code


def _describe(job: Job) -> None:
    if not is_ulfm(job.mpirun):
        warn(f"mpirun-ulfm is not on PATH; {job.mpirun} is used")
    say(f"{len(job.ranks)} ranks, started in {job.directory}")
    for number, rank in enumerate(job.ranks):
        told = {
            name: rank.environment.get(name)
            for name in ("TT_MESH_ID", "TT_MESH_HOST_RANK", "TT_VISIBLE_DEVICES")
        }
        say(
            f"rank {number}: "
            + " ".join(f"{name}={value}" for name, value in told.items() if value is not None)
        )
    say(shlex.join(job.command()))
