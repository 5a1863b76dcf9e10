"""Auto allocation (`-m`, `-M`): from mesh graph descriptors to rank bindings, by matching, once for each question.

The answer is a folder of files that a launch with rank bindings takes, so that a second launch is as quick
as one with bindings written by hand.
"""

from __future__ import annotations

import os
import shlex
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from softmesh.bounded_file import MOST_BYTES
from softmesh.errors import MeshError
from softmesh.fabric.descriptors.reading import load_mesh_graph
from softmesh.fabric.match import MatchError
from softmesh.fabric.mesh_graph import MeshGraph
from softmesh.processes import allocation
from softmesh.processes.allocation import Group
from softmesh.processes.bindings_text import bindings_text, mapping_text
from softmesh.processes.launcher.cluster import Cluster, elastic_cluster, mock_cluster, real_cluster
from softmesh.processes.launcher.hosts import LOCALHOST, hosts_of
from softmesh.processes.launcher.mocks import mock_file, mocks_by_rank
from softmesh.processes.launcher.mpirun import Placement
from softmesh.processes.launcher.notices import warn
from softmesh.processes.launcher.options import Mode, Options, check_hosts_are_known, file_of, mode_of
from softmesh.processes.launcher.phase_cache import (
    folder_for,
    is_answered,
    mapping_bytes,
    question_key,
    write_answer,
)
from softmesh.processes.launcher.rankfile import hosts_by_rank, text_of
from softmesh.processes.launcher.refusal import LaunchError
from softmesh.processes.search import find, launch_directory, launch_places
from softmesh.processes.subcontexts import MOCKS, RANK_BINDINGS, load_descriptor_mapping
from softmesh.systems.choice import DOWN, SYSTEM

_BINDINGS, _MAPPING = "rank_bindings.yaml", "rank_bindings_mapping.yaml"
_RANKFILE, _HOSTFILE, _MOCK_MAPPING = "rankfile", "hostfile", "phase2_mock_mapping.yaml"


@dataclass(frozen=True)
class Question:
    """What is to be allocated, where, and the folder that has or will have the answer."""

    descriptors: Mapping[int, Path]
    mapping: Path | None  # with -M
    hosts: tuple[str, ...]
    mock: Path | None
    mocks: Mapping[int, Path]
    system: str
    down: tuple[str, ...]
    key: str
    folder: Path

    @property
    def outputs(self) -> list[str]:
        bindings = [_BINDINGS]
        if self.mapping is not None:
            bindings = [_MAPPING, *(_of_subcontext(id) for id in self.descriptors)]
        return [*bindings, _RANKFILE, _HOSTFILE, *([_MOCK_MAPPING] if self.mocks else [])]

    @property
    def is_answered(self) -> bool:
        return is_answered(self.folder, self.key, self.outputs)

    def __str__(self) -> str:
        asked = ", ".join(map(str, self.descriptors.values()))
        where = self.system or ("mock descriptors" if self.mocks else "the elastic machine")
        return f"{asked} onto {where}, hosts {','.join(self.hosts)}, into {self.folder}"


def question(options: Options, environ: Mapping[str, str]) -> Question:
    """Everything that can be wrong about it is said here, before anything is computed."""
    check_hosts_are_known(options)
    named = hosts_of(options.hosts) if options.hosts is not None else [LOCALHOST]
    mapping, descriptors = _descriptors(options, environ)
    mock = options.mock_cluster_rank_binding
    mocks = mocks_by_rank(mock, environ) if mock is not None else {}
    system = "" if mocks else options.system or environ.get(SYSTEM, "")
    down = tuple(spec.strip() for spec in environ.get(DOWN, "").split(",") if spec.strip())
    contents = {id: _bytes(path) for id, path in descriptors.items()}
    factory = options.factory_system_descriptor
    key = question_key(
        contents[0] if mapping is None else mapping_bytes(_bytes(mapping), contents),
        named,
        {rank: _bytes(path) for rank, path in mocks.items()},
        None if factory is None else _bytes(Path(factory)),
        _system_bytes(system, down),
    )
    folder = folder_for(key, launch_directory(environ))
    mock_path = mock_file(mock, environ) if mock is not None else None
    return Question(descriptors, mapping, tuple(sorted(named)), mock_path, mocks, system, down, key, folder)


def _descriptors(options: Options, environ: Mapping[str, str]) -> tuple[Path | None, dict[int, Path]]:
    """The mapping file, if there is one, and the descriptor of each job."""
    name = file_of(options)
    places = launch_places(environ)
    found = find(name, places)
    if found is None:
        searched = "[" + ", ".join(map(str, places)) + "]"
        raise LaunchError(
            f"Mesh graph descriptor{'' if mode_of(options) is Mode.DESCRIPTOR else ' mapping'} not found: {name}\n"
            f"Searched in: {searched}\n"
            "Tip: Use an absolute path or ensure the file exists relative to the launch directory."
        )
    if mode_of(options) is Mode.DESCRIPTOR:
        return None, {0: found.absolute()}
    jobs = load_descriptor_mapping(found, environ=environ)
    return found, {id: path.absolute() for id, path in jobs.items()}


def _bytes(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(MOST_BYTES + 1)
    except OSError as error:
        raise LaunchError(f"{path} cannot be read: {error.strerror}") from None


def _system_bytes(system: str, down: Sequence[str]) -> bytes:
    """A system that is a file counts by its contents too."""
    content = _bytes(Path(system)) if os.path.isfile(system) else b""
    return "\0".join([system, *down]).encode() + content if system else b""


def answer(asked: Question) -> None:
    """Match, and write the folder."""
    try:
        graphs = [load_mesh_graph(path) for path in asked.descriptors.values()]
        groups, places = _allocated(graphs, _cluster(asked))
        if shared := allocation.sharing(groups):
            warn(f"{shared}. Pin the meshes to boards, or ask for larger ones.")
        write_answer(asked.folder, asked.key, _files(asked, groups, places))
    except MatchError as error:
        raise LaunchError(
            f"Phase 1 (generate_rank_bindings) failed: Topology mapping failed: {error}"
        ) from None
    except (MeshError, OSError) as error:
        raise LaunchError(f"Phase 1 (generate_rank_bindings) failed: {error}") from None


def _cluster(asked: Question) -> Cluster:
    from softmesh.systems.breakage import with_down
    from softmesh.systems.catalogue import load
    from softmesh.systems.choice import ELASTIC

    if asked.mock is not None:
        from softmesh.systems.cluster_descriptor import load_cluster

        return mock_cluster(load_cluster(asked.mock))
    if asked.system.strip().lower() in ("", ELASTIC):
        return elastic_cluster(asked.hosts)
    machine = load(asked.system)
    return real_cluster(with_down(machine, asked.down) if asked.down else machine, asked.hosts)


def _allocated(graphs: Sequence[MeshGraph], cluster: Cluster) -> tuple[list[Group], Mapping[str, str]]:
    if cluster.machine is not None:
        return allocation.allocate(graphs, cluster.machine), cluster.places
    places = [
        (job, mesh.id, host_rank)
        for job, graph in enumerate(graphs)
        for mesh in graph.meshes
        for host_rank in range(mesh.host_count)
    ]
    hosts = cluster.hosts
    return [Group(*place, host=hosts[i % len(hosts)]) for i, place in enumerate(places)], cluster.places


def _files(asked: Question, groups: Sequence[Group], places: Mapping[str, str]) -> dict[str, str]:
    files = _binding_files(asked, groups)
    files[_RANKFILE] = text_of([places[group.host] for group in groups])
    files[_HOSTFILE] = "".join(f"{host} slots=1\n" for host in dict.fromkeys(places.values()))
    if asked.mocks:
        by_host = {path.name: str(path.absolute()) for path in asked.mocks.values()}
        paths = {rank: by_host[group.host] for rank, group in enumerate(groups)}
        files[_MOCK_MAPPING] = mapping_text(MOCKS, paths)
    source = asked.mapping or asked.descriptors[0]
    files["mgd.textproto" if asked.mapping is None else "mgd.yaml"] = source.read_text()
    return files


def _binding_files(asked: Question, groups: Sequence[Group]) -> dict[str, str]:
    texts = {}
    for job, descriptor in asked.descriptors.items():
        own = [group for group in groups if group.job == job]
        bindings = [group.binding(rank) for rank, group in enumerate(own)]
        texts[job] = bindings_text(bindings, str(descriptor))
    if asked.mapping is None:
        return {_BINDINGS: texts[0]}
    return {
        **{_of_subcontext(job): text for job, text in texts.items()},
        _MAPPING: mapping_text(RANK_BINDINGS, {job: _of_subcontext(job) for job in texts}),
    }


def _of_subcontext(job: int) -> str:
    return f"rank_bindings_subctx_{job}.yaml"


def with_bindings(options: Options, asked: Question) -> Options:
    """The same launch with the bindings that were found."""
    is_single = asked.mapping is None
    return replace(
        options,
        mesh_graph_descriptor=None,
        mesh_graph_descriptor_mapping=None,
        hosts=None,
        force_rediscovery=False,
        rank_binding=str(asked.folder / _BINDINGS) if is_single else None,
        rank_bindings_mapping=None if is_single else str(asked.folder / _MAPPING),
        mock_cluster_rank_binding=str(asked.folder / _MOCK_MAPPING) if asked.mocks else None,
    )


def placement_of(asked: Question, launch_folder: Path) -> Placement:
    """Where phase 1 put the ranks. mpirun is told of the hosts only where they are real ones."""
    rankfile = asked.folder / _RANKFILE
    counts = Counter(hosts_by_rank(rankfile).values())
    hosts = () if asked.mocks else tuple(f"{host}:{count}" for host, count in counts.items())
    return Placement(launch_folder, hosts=hosts, rankfile=str(rankfile))


def equivalent_command(options: Options, asked: Question) -> str:
    """How to run phase 2 alone."""
    given = with_bindings(options, asked)
    words = ["tt-run"]
    for option, value in (
        ("--rank-binding", given.rank_binding),
        ("--rank-bindings-mapping", given.rank_bindings_mapping),
        ("--mock-cluster-rank-binding", given.mock_cluster_rank_binding),
        ("--system", given.system),
        ("--mpi-args", shlex.join(["--rankfile", str(asked.folder / _RANKFILE)])),
    ):
        words += [option, value] if value is not None else []
    return shlex.join([*words, "--", *options.program])
