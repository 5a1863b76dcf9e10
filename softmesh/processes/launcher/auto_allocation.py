"""Auto allocation (`tt-run -m`, `-M`): rank bindings from mesh graph descriptors by matching, cached on disk.

The result of a request is a folder of files that a launch with rank bindings takes, so that a second launch is as
quick as one with bindings written by hand.
"""

from __future__ import annotations

import hashlib
import json
import os
import shlex
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from softmesh.errors import MeshError
from softmesh.fabric.descriptors.loader import load_job_graph
from softmesh.fabric.matching.match import MatchError
from softmesh.fabric.mesh_graph import MeshGraph
from softmesh.input_files.text_files import MOST_BYTES
from softmesh.processes.bindings import machine_split
from softmesh.processes.bindings.bindings_writer import bindings_text, mapping_text
from softmesh.processes.bindings.launch_files import find, launch_directory, launch_places
from softmesh.processes.bindings.machine_split import ChipGroup
from softmesh.processes.bindings.mapping_files import MOCKS, RANK_BINDINGS, load_descriptor_mapping
from softmesh.processes.bindings.rank_bindings import configuration_file, place_names
from softmesh.processes.launcher.console import LaunchError, warn
from softmesh.processes.launcher.mock_clusters import mocks_by_rank
from softmesh.processes.launcher.mpirun import Placement
from softmesh.processes.launcher.mpirun_arguments import LOCALHOST, hosts_of
from softmesh.processes.launcher.options import Mode, Options, check_hosts_are_known, file_of, mode_of
from softmesh.processes.launcher.rankfile import hosts_by_rank, text_of
from softmesh.systems.machine import Link, Machine, Port
from softmesh.systems.system_choice import DOWN, SYSTEM

# The machine that is allocated from: described by mock descriptors, or a system on the hosts named.


@dataclass(frozen=True)
class Cluster:
    """`machine` is None for the elastic one. `places` has the real host of each of the machine's hosts."""

    machine: Machine | None
    places: Mapping[str, str]

    @property
    def hosts(self) -> list[str]:
        return list(dict.fromkeys(self.places.values()))


def mock_cluster(machine: Machine) -> Cluster:
    """Every process runs here, whatever host it believes to be on."""
    return Cluster(machine, dict.fromkeys(machine.hosts, LOCALHOST))


def elastic_cluster(hosts: Sequence[str]) -> Cluster:
    return Cluster(None, {host: host for host in sorted(hosts)})


def real_cluster(machine: Machine, hosts: Sequence[str]) -> Cluster:
    """A system of several hosts spread over as many, or played by one; a system of one host on each."""
    names = sorted(hosts)
    if len(names) == len(machine.hosts):
        return Cluster(machine, dict(zip(machine.hosts, names, strict=True)))
    if len(names) == 1:
        return Cluster(machine, dict.fromkeys(machine.hosts, names[0]))
    if len(machine.hosts) == 1:
        return Cluster(replicated_per_host(machine, names), {name: name for name in names})
    raise LaunchError(
        f"{machine.name} has {len(machine.hosts)} hosts, and --hosts names {len(names)}: name as many, or one "
        "that plays them all."
    )


def replicated_per_host(machine: Machine, hosts: Sequence[str]) -> Machine:
    """So many copies of a machine, side by side: no link joins them."""
    step = max(machine.asics) + 1
    unique_step = max(asic.unique_id for asic in machine.asics.values()) + 1
    asics, links = {}, []
    for number, host in enumerate(hosts):
        for id, asic in machine.asics.items():
            unique_id = asic.unique_id + number * unique_step
            asics[id + number * step] = replace(asic, id=id + number * step, unique_id=unique_id, host=host)
        links += [Link(*(Port(port.chip + number * step, port.channel) for port in link)) for link in machine.links]
    return replace(
        machine,
        name=f"{len(hosts)} x {machine.name}",
        asics=asics,
        links=tuple(links),
        outside=(),
        down_chips=(),
        down_links=(),
        grid=None,
    )


# The cache: a folder for each request, named after a digest of all that the result depends on.


KEY_FILE = ".phase1_cache_key"
_NAME_LENGTH = 16
_LONGEST_KEY = 200  # characters worth reading of a key file


def request_key(
    descriptor: bytes,
    hosts: Sequence[str],
    mocks: Mapping[int, bytes],
    factory_descriptor: bytes | None = None,
    system: bytes = b"",
) -> str:
    """SHA-256 over the descriptor, the hosts or mock descriptors, and what else the answer depends on."""
    digest = hashlib.sha256(descriptor + b"\0")
    if mocks:
        for rank in sorted(mocks):
            digest.update(str(rank).encode() + b"\0" + hashlib.sha256(mocks[rank]).digest())
    else:
        digest.update(json.dumps(sorted(hosts), separators=(",", ":")).encode())
    if factory_descriptor is not None:
        digest.update(b"\0fsd\0" + factory_descriptor)
    if system:
        digest.update(b"\0system\0" + system)
    return digest.hexdigest()


def mapping_bytes(mapping: bytes, descriptors: Mapping[int, bytes]) -> bytes:
    """What stands for the descriptor where a mapping names several; the key adds the last zero byte."""
    parts = [mapping + b"\0"]
    parts += [str(id).encode() + b"\0" + descriptors[id] for id in sorted(descriptors)]
    return b"".join(parts)


def folder_for(key: str, launch_directory: Path) -> Path:
    """By the first digits of the key, unless another question has that folder."""
    root = launch_directory / "generated" / "ttrun"
    short = root / key[:_NAME_LENGTH]
    return short if key_in(short) in (None, key) else root / key


def key_in(folder: Path) -> str | None:
    try:
        with (folder / KEY_FILE).open(errors="replace") as file:
            return file.read(_LONGEST_KEY).strip()
    except OSError:
        return None


def is_cached(folder: Path, key: str, outputs: Iterable[str]) -> bool:
    return key_in(folder) == key and all((folder / name).is_file() for name in outputs)


def write_result(folder: Path, key: str, files: Mapping[str, str]) -> None:
    """The key comes last: a folder with a key is complete."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / KEY_FILE).unlink(missing_ok=True)
    for name, text in {**files, KEY_FILE: key + "\n"}.items():
        unfinished = folder / f"{name}.part"
        unfinished.write_text(text)
        unfinished.replace(folder / name)


_BINDINGS, _MAPPING = "rank_bindings.yaml", "rank_bindings_mapping.yaml"
_RANKFILE, _HOSTFILE, _MOCK_MAPPING = "rankfile", "hostfile", "phase2_mock_mapping.yaml"


@dataclass(frozen=True)
class AllocationRequest:
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
    def is_cached(self) -> bool:
        return is_cached(self.folder, self.key, self.outputs)

    def __str__(self) -> str:
        request = ", ".join(map(str, self.descriptors.values()))
        where = self.system or ("mock descriptors" if self.mocks else "the elastic machine")
        return f"{request} onto {where}, hosts {','.join(self.hosts)}, into {self.folder}"


def allocation_request(options: Options, environ: Mapping[str, str]) -> AllocationRequest:
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
    key = request_key(
        contents[0] if mapping is None else mapping_bytes(_bytes(mapping), contents),
        named,
        {rank: _bytes(path) for rank, path in mocks.items()},
        None if factory is None else _bytes(Path(factory)),
        _system_bytes(system, down),
    )
    folder = folder_for(key, launch_directory(environ))
    mock_path = configuration_file(mock, environ) if mock is not None else None
    return AllocationRequest(descriptors, mapping, tuple(sorted(named)), mock_path, mocks, system, down, key, folder)


def _descriptors(options: Options, environ: Mapping[str, str]) -> tuple[Path | None, dict[int, Path]]:
    """The mapping file, if there is one, and the descriptor of each job."""
    name = file_of(options)
    places = launch_places(environ)
    found = find(name, places)
    if found is None:
        raise LaunchError(
            f"Mesh graph descriptor{'' if mode_of(options) is Mode.DESCRIPTOR else ' mapping'} not found: {name}\n"
            f"Searched in: {place_names(places)}\n"
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


def run_allocation(request: AllocationRequest) -> None:
    """Match, and write the folder."""
    try:
        graphs = [load_job_graph(path) for path in request.descriptors.values()]
        groups, places = _allocated(graphs, _cluster(request))
        if shared := machine_split.shared_device_problem(groups):
            warn(f"{shared}. Pin the meshes to boards, or ask for larger ones.")
        write_result(request.folder, request.key, _files(request, groups, places))
    except MatchError as error:
        raise LaunchError(f"Phase 1 (generate_rank_bindings) failed: Topology mapping failed: {error}") from None
    except (MeshError, OSError) as error:
        raise LaunchError(f"Phase 1 (generate_rank_bindings) failed: {error}") from None


def _cluster(request: AllocationRequest) -> Cluster:
    from softmesh.systems.machine_restriction import with_down
    from softmesh.systems.named_systems import load
    from softmesh.systems.system_choice import ELASTIC

    if request.mock is not None:
        from softmesh.systems.cluster_descriptor import load_cluster

        return mock_cluster(load_cluster(request.mock))
    if request.system.strip().lower() in ("", ELASTIC):
        return elastic_cluster(request.hosts)
    machine = load(request.system)
    return real_cluster(with_down(machine, request.down) if request.down else machine, request.hosts)


def _allocated(graphs: Sequence[MeshGraph], cluster: Cluster) -> tuple[list[ChipGroup], Mapping[str, str]]:
    if cluster.machine is not None:
        return machine_split.allocate(graphs, cluster.machine), cluster.places
    places = [
        (job, mesh.id, host_rank)
        for job, graph in enumerate(graphs)
        for mesh in graph.meshes
        for host_rank in range(mesh.host_count)
    ]
    hosts = cluster.hosts
    return [ChipGroup(*place, host=hosts[i % len(hosts)]) for i, place in enumerate(places)], cluster.places


def _files(request: AllocationRequest, groups: Sequence[ChipGroup], places: Mapping[str, str]) -> dict[str, str]:
    files = _binding_files(request, groups)
    files[_RANKFILE] = text_of([places[group.host] for group in groups])
    files[_HOSTFILE] = "".join(f"{host} slots=1\n" for host in dict.fromkeys(places.values()))
    if request.mocks:
        by_host = {path.name: str(path.absolute()) for path in request.mocks.values()}
        paths = {rank: by_host[group.host] for rank, group in enumerate(groups)}
        files[_MOCK_MAPPING] = mapping_text(MOCKS, paths)
    source = request.mapping or request.descriptors[0]
    files["mgd.textproto" if request.mapping is None else "mgd.yaml"] = source.read_text()
    return files


def _binding_files(request: AllocationRequest, groups: Sequence[ChipGroup]) -> dict[str, str]:
    texts = {}
    for job, descriptor in request.descriptors.items():
        own = [group for group in groups if group.job == job]
        bindings = [group.binding(rank) for rank, group in enumerate(own)]
        texts[job] = bindings_text(bindings, str(descriptor))
    if request.mapping is None:
        return {_BINDINGS: texts[0]}
    return {
        **{_of_subcontext(job): text for job, text in texts.items()},
        _MAPPING: mapping_text(RANK_BINDINGS, {job: _of_subcontext(job) for job in texts}),
    }


def _of_subcontext(job: int) -> str:
    return f"rank_bindings_subctx_{job}.yaml"


def with_bindings(options: Options, request: AllocationRequest) -> Options:
    """The same launch with the bindings that were found."""
    is_single = request.mapping is None
    return replace(
        options,
        mesh_graph_descriptor=None,
        mesh_graph_descriptor_mapping=None,
        hosts=None,
        force_rediscovery=False,
        rank_binding=str(request.folder / _BINDINGS) if is_single else None,
        rank_bindings_mapping=None if is_single else str(request.folder / _MAPPING),
        mock_cluster_rank_binding=str(request.folder / _MOCK_MAPPING) if request.mocks else None,
    )


def placement_of(request: AllocationRequest, launch_folder: Path) -> Placement:
    """Where phase 1 put the ranks. mpirun is told of the hosts only where they are real ones."""
    rankfile = request.folder / _RANKFILE
    counts = Counter(hosts_by_rank(rankfile).values())
    hosts = () if request.mocks else tuple(f"{host}:{count}" for host, count in counts.items())
    return Placement(launch_folder, hosts=hosts, rankfile=str(rankfile))


def equivalent_command(options: Options, request: AllocationRequest) -> str:
    """How to run phase 2 alone."""
    given = with_bindings(options, request)
    words = ["tt-run"]
    for option, value in (
        ("--rank-binding", given.rank_binding),
        ("--rank-bindings-mapping", given.rank_bindings_mapping),
        ("--mock-cluster-rank-binding", given.mock_cluster_rank_binding),
        ("--system", given.system),
        ("--mpi-args", shlex.join(["--rankfile", str(request.folder / _RANKFILE)])),
    ):
        words += [option, value] if value is not None else []
    return shlex.join([*words, "--", *options.program])
