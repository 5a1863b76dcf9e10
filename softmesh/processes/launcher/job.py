"""A job: every rank with its environment and program (also under a debugger or profiler), settled and checked."""

from __future__ import annotations

import importlib.util
import os
import re
import shlex
import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from softmesh.fabric.descriptors.loader import load_job_graph
from softmesh.processes.bindings.launch_files import find, launch_directory, launch_places
from softmesh.processes.bindings.mapping_files import load_subcontexts
from softmesh.processes.bindings.mesh_graph_check import mesh_graph_findings
from softmesh.processes.bindings.rank_bindings import BindingsError, RankBinding, RankBindings, load
from softmesh.processes.launcher import mpirun_arguments
from softmesh.processes.launcher.console import LaunchError, warn
from softmesh.processes.launcher.machine_check import check_fit, check_machines
from softmesh.processes.launcher.mock_clusters import mocks_of
from softmesh.processes.launcher.mpirun import (
    Placement,
    Rank,
    Transport,
    command,
    find_mpirun,
    general_arguments,
    is_scheduled,
    rankfile_syntax,
    recovery,
    search_path,
)
from softmesh.processes.launcher.mpirun_arguments import are_all_local, hosts_in_arguments, names_hosts
from softmesh.processes.launcher.options import Mode, Options, file_of, mode_of
from softmesh.processes.launcher.rank_environment import (
    SharedEnvironment,
    inconsistent_variables,
    leaking_variables,
    plain_environment,
    rank_environment,
    with_peer_hosts,
)
from softmesh.processes.launcher.rankfile import extract_rankfile

FIRST_GDB_PORT = 20000
FIRST_TRACY_PORT = 8087
_PYTHON = re.compile(r"python[0-9.]*")


def check_program(program: Sequence[str], environ: Mapping[str, str], skip_search: bool = False) -> None:
    if not program:
        raise LaunchError("No program specified. Please provide a program to run.")
    name = program[0]
    if skip_search or shutil.which(name, path=search_path(environ)) is not None:
        return
    advice = ""
    if os.path.isfile(name):
        advice = f". It is a file, but not one that can be executed: `python {name}`, perhaps?"
    elif name.startswith("-"):
        advice = ". It looks like an option, and tt-run has none of that name; `tt-run --help` lists them."
    elif os.sep in name:
        advice = ". On other hosts only? Then give --skip-executable-check."
    raise LaunchError(f"Program not found: {name}{advice}")


def check_python_program(program: Sequence[str], environ: Mapping[str, str]) -> None:
    """What would be a traceback on every rank is one sentence before there are ranks."""
    interpreter = shutil.which(program[0], path=search_path(environ))
    if interpreter is None or not Path(interpreter).name.startswith("python"):
        return
    first = program[1] if len(program) > 1 else "-"
    folder = launch_directory(environ)
    if not first.startswith("-") and not os.path.exists(os.path.join(folder, first)):
        raise LaunchError(
            f"Program not found: there is no file {first} in {folder}. On other hosts only? Then give "
            "--skip-executable-check."
        )
    is_own = os.path.realpath(interpreter) == os.path.realpath(sys.executable)
    if is_own and importlib.util.find_spec("mpi4py") is None:
        raise LaunchError(
            "Ranks speak over MPI, and mpi4py is not installed. `pip install 'softmesh[mpi]'` brings it and mpirun."
        )


def check_gdbserver(environ: Mapping[str, str]) -> None:
    if shutil.which("gdbserver", path=search_path(environ)) is None:
        raise LaunchError(
            "--debug-gdbserver: Program not found: gdbserver. Install it, or give --skip-executable-check where only "
            "the hosts of the ranks have it."
        )


def under_gdbserver(program: Sequence[str], rank: int) -> list[str]:
    """The program goes in as arguments, so nothing of it is ever read by the shell."""
    port = FIRST_GDB_PORT + rank
    script = f'echo "Rank {rank} on $(hostname) listening on :{port}"; exec gdbserver :{port} "$@"'
    return ["bash", "-c", script, "gdbserver", *program]


@dataclass(frozen=True)
class Tracy:
    """How every rank is profiled: rank r on a port and in a folder of its own."""

    port: int
    folder: str
    flags: tuple[str, ...] = ()

    def folder_of(self, rank: int) -> str:
        return os.path.join(self.folder, f"rank{rank}")

    def wrap(self, program: Sequence[str], rank: int) -> list[str]:
        is_python = bool(_PYTHON.fullmatch(os.path.basename(program[0])))
        python, rest = (program[0], program[1:]) if is_python else (sys.executable, program)
        options = ["--port", str(self.port + rank), "-o", self.folder_of(rank), *self.flags]
        return [python, "-m", "tracy", *options, *rest]


def tracy_of(text: str, environ: Mapping[str, str], launch_directory: Path) -> Tracy:
    """From the value of --tracy: a port and a folder to start from, and flags that tracy itself reads."""
    home = environ.get("TT_METAL_HOME", str(launch_directory))
    port, folder = str(FIRST_TRACY_PORT), os.path.join(home, "generated", "profiler", "ttrun")
    flags = []
    try:
        words = iter(shlex.split(text))
    except ValueError as error:
        raise LaunchError(f"--tracy cannot be split into arguments ({error}): {text}") from None
    for word in words:
        name, _, value = word.partition("=")
        if name in ("-t", "--port"):
            port = value or next(words, "")
        elif name in ("-o", "--output-folder"):
            folder = os.path.join(launch_directory, value or next(words, ""))
        else:
            flags.append(word)
    if not (port.isascii() and port.isdigit() and 0 < int(port[:6]) < 1 << 16):
        raise LaunchError(f"--tracy: {port!r} is no port; give a number such as --port {FIRST_TRACY_PORT}.")
    return Tracy(int(port), folder, tuple(flags))


@dataclass(frozen=True)
class Job:
    mpirun: str
    general: tuple[str, ...]
    ranks: tuple[Rank, ...]
    directory: Path

    @property
    def hosts(self) -> list[str]:
        """Those that mpirun is told of by name."""
        return hosts_in_arguments(self.general, self.directory)

    def stays_here(self, environ: Mapping[str, str]) -> bool:
        """Whether all its ranks are certain to run on this host."""
        is_known = bool(self.hosts) or not names_hosts(self.general)
        return is_known and are_all_local(self.hosts) and not is_scheduled(environ)

    def command(self, passed_on: Sequence[str] = ()) -> list[str]:
        """The arguments that launch it; variables that are passed on have the value they have for mpirun."""
        return command(self.mpirun, self.general, self.ranks, passed_on)


def bound_job(options: Options, environ: Mapping[str, str], placement: Placement | None = None) -> Job:
    """The job of a rank binding file, or of a mapping of several."""
    bindings = _bindings(options, environ)
    if not options.skip_mgd_check:
        check_agreement(bindings)
    by_rank = sorted(bindings.bindings, key=lambda binding: binding.rank)
    shared = replace(
        _shared_environment(options, environ, bindings.global_env),
        mesh_ids=tuple(binding.mesh_id for binding in by_rank),
    )
    mocks = mocks_of(bindings, options.mock_cluster_rank_binding, environ)
    environments = [
        rank_environment(binding, _descriptor(binding, bindings), shared, mocks.get(binding.rank))
        for binding in bindings.bindings
    ]
    check_machines(environments)
    for oddity in (*inconsistent_variables(environments), *leaking_variables(environ, environments)):
        warn(oddity)
    together = with_peer_hosts(environments)
    if not options.skip_mgd_check:
        check_fit(together)
    return _job(options, environ, together, placement)


def plain_job(count: int, options: Options, environ: Mapping[str, str]) -> Job:
    """So many ranks that are bound to no mesh, as under a bare `mpirun -n`."""
    shared = _shared_environment(options, environ, {})
    environments = [plain_environment(rank, shared) for rank in range(count)]
    check_machines(environments[:1])
    return _job(options, environ, environments, None)


def _bindings(options: Options, environ: Mapping[str, str]) -> RankBindings:
    read = load_subcontexts if mode_of(options) is Mode.BINDINGS_MAPPING else load
    return read(file_of(options), environ=environ, check_descriptor=not options.skip_mgd_check)


def _descriptor(binding: RankBinding, bindings: RankBindings) -> str:
    return binding.mesh_graph_desc_path or str(bindings.descriptor or bindings.mesh_graph_desc_path)


def check_agreement(bindings: RankBindings) -> None:
    """Each sub-context against its own descriptor."""
    jobs: dict[tuple[int | None, str], list[RankBinding]] = {}
    for binding in bindings.bindings:
        key = binding.subcontext_id, _descriptor(binding, bindings)
        jobs.setdefault(key, []).append(binding)
    line = bindings.line_of("rank_bindings")
    for (_, descriptor), ranks in jobs.items():
        found = mesh_graph_findings(ranks, load_job_graph(descriptor), line)
        if found:
            raise BindingsError([replace(finding, file=bindings.file) for finding in found])


def _shared_environment(
    options: Options, environ: Mapping[str, str], global_env: Mapping[str, str]
) -> SharedEnvironment:
    return SharedEnvironment(
        environ=environ,
        launch_directory=launch_directory(environ),
        global_env=global_env,
        factory_system_descriptor=_factory_descriptor(options.factory_system_descriptor, environ),
        system=options.system,
    )


def _factory_descriptor(path: str | None, environ: Mapping[str, str]) -> str | None:
    if path is None:
        return None
    found = find(path, launch_places(environ))
    if found is None:
        raise LaunchError(f"Factory system descriptor not found: {path}")
    return str(found.absolute())


def _job(
    options: Options,
    environ: Mapping[str, str],
    environments: list[dict[str, str]],
    placement: Placement | None,
) -> Job:
    here = launch_directory(environ)
    mpirun = find_mpirun(environ)
    user = mpirun_arguments.split(options.mpi_args)
    mpirun_arguments.check(user, len(environments))
    placement = placement or Placement(here)
    if placement.rankfile is not None or extract_rankfile(user).path is not None:
        placement = replace(placement, syntax=rankfile_syntax(options.rankfile_syntax, mpirun))
    if options.tcp_interface is not None and not options.tcp_interface.strip():
        raise LaunchError("--tcp-interface: name an interface, such as eth0; `ip link` lists them.")
    transport = Transport(options.bare, options.tcp_interface, is_scheduled(environ))
    if options.debug_gdbserver and not (options.skip_executable_check or options.dry_run):
        check_gdbserver(environ)
    tracy = None if options.tracy is None else tracy_of(options.tracy, environ, here)
    ranks = [_rank(options, number, env, tracy) for number, env in enumerate(environments)]
    general = general_arguments(user, len(ranks), placement, transport)
    kept = recovery(mpirun) if options.keep_others else ()
    return Job(mpirun, (*general, *kept), tuple(ranks), here)


def _rank(options: Options, number: int, environment: dict[str, str], tracy: Tracy | None) -> Rank:
    program = list(options.program)
    if tracy is not None:
        environment = {**environment, "TT_METAL_PROFILER_DIR": tracy.folder_of(number)}
        program = tracy.wrap(program, number)
    if options.debug_gdbserver:
        program = under_gdbserver(program, number)
    return Rank(environment, tuple(program))
