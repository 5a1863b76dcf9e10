"""A job: every rank with its environment and program, settled and checked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from softmesh.fabric.descriptors.reading import load_mesh_graph
from softmesh.processes.agreement import disagreements
from softmesh.processes.binding import BindingsError, RankBinding, RankBindings
from softmesh.processes.launcher import mpi_arguments
from softmesh.processes.launcher.engine import find_mpirun, rankfile_syntax
from softmesh.processes.launcher.environment import (
    Surroundings,
    leaking_variables,
    odd_variables,
    plain_environment,
    rank_environment,
    with_fellows,
)
from softmesh.processes.launcher.fit import check_fit
from softmesh.processes.launcher.hosts import hosts_asked_for
from softmesh.processes.launcher.mocks import mocks_of
from softmesh.processes.launcher.mpirun import Placement, Rank, Transport, command, general_arguments
from softmesh.processes.launcher.notices import warn
from softmesh.processes.launcher.options import Mode, Options, file_of, mode_of
from softmesh.processes.launcher.program import Tracy, check_gdbserver, tracy_of, under_gdbserver
from softmesh.processes.launcher.rankfile import taken_from
from softmesh.processes.launcher.refusal import LaunchError
from softmesh.processes.launcher.visible import check_machines
from softmesh.processes.rank_bindings import load
from softmesh.processes.search import find, launch_directory, launch_places
from softmesh.processes.subcontexts import load_subcontexts


@dataclass(frozen=True)
class Job:
    mpirun: str
    general: tuple[str, ...]
    ranks: tuple[Rank, ...]
    directory: Path

    @property
    def hosts(self) -> list[str]:
        """Those that mpirun is told of by name."""
        return hosts_asked_for(self.general, self.directory)

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
        _surroundings(options, environ, bindings.global_env),
        mesh_ids=tuple(binding.mesh_id for binding in by_rank),
    )
    mocks = mocks_of(bindings, options.mock_cluster_rank_binding, environ)
    environments = [
        rank_environment(binding, _descriptor(binding, bindings), shared, mocks.get(binding.rank))
        for binding in bindings.bindings
    ]
    check_machines(environments)
    for oddity in (*odd_variables(environments), *leaking_variables(environ, environments)):
        warn(oddity)
    together = with_fellows(environments)
    if not options.skip_mgd_check:
        check_fit(together)
    return _job(options, environ, together, placement)


def plain_job(count: int, options: Options, environ: Mapping[str, str]) -> Job:
    """So many ranks that are bound to no mesh, as under a bare `mpirun -n`."""
    shared = _surroundings(options, environ, {})
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
        found = disagreements(ranks, load_mesh_graph(descriptor), line)
        if found:
            raise BindingsError([replace(finding, file=bindings.file) for finding in found])


def _surroundings(
    options: Options, environ: Mapping[str, str], global_env: Mapping[str, str]
) -> Surroundings:
    return Surroundings(
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
    user = mpi_arguments.split(options.mpi_args)
    mpi_arguments.check(user, len(environments))
    placement = placement or Placement(here)
    if placement.rankfile is not None or taken_from(user).path is not None:
        placement = replace(placement, syntax=rankfile_syntax(options.rankfile_syntax, mpirun))
    if options.tcp_interface is not None and not options.tcp_interface.strip():
        raise LaunchError("--tcp-interface: name an interface, such as eth0; `ip link` lists them.")
    transport = Transport(options.bare, options.tcp_interface)
    if options.debug_gdbserver and not (options.skip_executable_check or options.dry_run):
        check_gdbserver(environ)
    tracy = None if options.tracy is None else tracy_of(options.tracy, environ, here)
    ranks = [_rank(options, number, env, tracy) for number, env in enumerate(environments)]
    general = general_arguments(user, len(ranks), placement, transport)
    return Job(mpirun, tuple(general), tuple(ranks), here)


def _rank(options: Options, number: int, environment: dict[str, str], tracy: Tracy | None) -> Rank:
    program = list(options.program)
    if tracy is not None:
        environment = {**environment, "TT_METAL_PROFILER_DIR": tracy.folder_of(number)}
        program = tracy.around(program, number)
    if options.debug_gdbserver:
        program = under_gdbserver(program, number)
    return Rank(environment, tuple(program))
