"""The environment variables of each rank: inherited ones, those of its binding, and those of its own."""

from __future__ import annotations

import importlib.machinery
import os
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from softmesh.fabric.mesh_binding import PLACES, places_text
from softmesh.processes.bindings.rank_bindings import RankBinding
from softmesh.processes.launcher.mpirun import search_path
from softmesh.processes.rank_reporter import REPORTS
from softmesh.systems.system_choice import HOST, MOCK_DESCRIPTOR, MOCK_HOSTS

INHERITED = ("TT_", "ARCH_", "WH_", "TTNN_", "DEEPSEEK_", "MESH_", "RELIABILITY_MODE", "SOFTMESH_")
_COPIED = ("HOME", "USER", "PATH", "VIRTUAL_ENV", "PYTHONHOME")
_OF_BINDINGS = {
    "TT_MESH_ID",
    "TT_MESH_HOST_RANK",
    "TT_MESH_GRAPH_DESC_PATH",
    "TT_RUN_RANK",
    "TT_RUN_SUBCONTEXT_ID",
    "TT_METAL_MOCK_CLUSTER_DESC_PATH",
    "TT_METAL_CLUSTER_ID",
    "TT_VISIBLE_DEVICES",
    HOST,
    MOCK_HOSTS,
    PLACES,
}
_OF_THE_JOB = {
    "TT_RUN_ORIGINAL_CWD",
    "TT_RUN_SUBCONTEXT_SIZES",
    "TT_METAL_FACTORY_SYSTEM_DESCRIPTOR_PATH",
    REPORTS,
}
NEVER_INHERITED = frozenset(_OF_BINDINGS | _OF_THE_JOB)
CACHE = "TT_METAL_CACHE"
_OWN_TO_EACH_RANK = _OF_BINDINGS | {CACHE, "TT_METAL_LOGS_PATH", "TT_METAL_PROFILER_DIR"}
_SUBCONTEXT = "TT_RUN_SUBCONTEXT_ID"
_TTNN_NAME = Path(__file__).parent / "ttnn_name"


@dataclass(frozen=True)
class SharedEnvironment:
    """What all ranks of a job share."""

    environ: Mapping[str, str]  # of the launcher
    launch_directory: Path
    global_env: Mapping[str, str] = field(default_factory=dict)
    factory_system_descriptor: str | None = None
    system: str | None = None
    mesh_ids: tuple[int, ...] = ()  # of each rank, for sockets that speak of meshes


def rank_environment(
    binding: RankBinding, descriptor: str, shared: SharedEnvironment, mock: Path | None = None
) -> dict[str, str]:
    """Built in steps, of which later ones win; `descriptor` and `mock` become absolute paths."""
    return {
        **_inherited(shared),
        **_fixed(binding, descriptor, shared),
        **_copied(shared.environ),
        **_optional(binding, mock, shared),
        **shared.global_env,
        **binding.env_overrides,
    }


def plain_environment(rank: int, shared: SharedEnvironment) -> dict[str, str]:
    """Of a rank that is bound to no mesh."""
    common = _common(rank, shared)
    return {**_inherited(shared), **common, **_copied(shared.environ), **shared.global_env}


def _inherited(shared: SharedEnvironment) -> dict[str, str]:
    found = {
        name: value
        for name, value in shared.environ.items()
        if name.startswith(INHERITED) and name not in NEVER_INHERITED
    }
    return found if shared.system is None else {**found, "SOFTMESH_SYSTEM": shared.system}


def _fixed(binding: RankBinding, descriptor: str, shared: SharedEnvironment) -> dict[str, str]:
    return {
        "TT_MESH_ID": str(binding.mesh_id),
        "TT_MESH_GRAPH_DESC_PATH": os.path.join(shared.launch_directory, descriptor),
        **_common(binding.rank, shared),
        **({"SOFTMESH_MESH_IDS": ",".join(map(str, shared.mesh_ids))} if shared.mesh_ids else {}),
    }


def _common(rank: int, shared: SharedEnvironment) -> dict[str, str]:
    here, environ = str(shared.launch_directory), shared.environ
    return {
        "TT_METAL_HOME": environ.get("TT_METAL_HOME", here),
        "TT_METAL_RUNTIME_ROOT": environ.get("TT_METAL_RUNTIME_ROOT", here),
        "PYTHONPATH": with_ttnn(environ.get("PYTHONPATH", here), environ),
        "LD_LIBRARY_PATH": environ.get("LD_LIBRARY_PATH", os.path.join(here, "build", "lib")),
        "TT_RUN_ORIGINAL_CWD": here,
        "TT_RUN_RANK": str(rank),
        **_cache(rank, environ),
    }


def _cache(rank: int, environ: Mapping[str, str]) -> dict[str, str]:
    """Return the folder of a rank's compiled kernels, its own, which is made when first used.

    A user's own value is passed on, one for all ranks.
    """
    if environ.get(CACHE):
        return {CACHE: environ[CACHE]}
    folder = environ.get("XDG_CACHE_HOME") or (os.path.join(environ["HOME"], ".cache") if environ.get("HOME") else "")
    return {CACHE: os.path.join(folder, f"tt_metal_rank_{rank}")} if os.path.isabs(folder) else {}


def with_ttnn(path: str, environ: Mapping[str, str]) -> str:
    """A PYTHONPATH with a last entry that makes `import ttnn` mean softmesh, unless there is a real ttnn."""
    takes_the_name = environ.get("SOFTMESH_ALIAS") == "force" or not _has_ttnn(path)
    is_missing = str(_TTNN_NAME) not in path.split(os.pathsep)
    return os.pathsep.join([*filter(None, [path]), str(_TTNN_NAME)]) if takes_the_name and is_missing else path


def ttnn_entries_of(python_path: str) -> list[str]:
    """Of a PYTHONPATH, what `with_ttnn` has added."""
    return [place for place in python_path.split(os.pathsep) if place == str(_TTNN_NAME)]


def _has_ttnn(python_path: str) -> bool:
    """A bare folder does not count: the root of a tt-metal checkout has one of that name."""
    places = [*python_path.split(os.pathsep), *sys.path]
    found = importlib.machinery.PathFinder.find_spec("ttnn", [place for place in places if place])
    return found is not None and found.origin is not None and not found.origin.startswith(str(_TTNN_NAME))


def _copied(environ: Mapping[str, str]) -> dict[str, str]:
    found = {name: environ[name] for name in _COPIED if name in environ}
    return {**found, "PATH": search_path(environ)}


def _optional(binding: RankBinding, mock: Path | None, shared: SharedEnvironment) -> dict[str, str]:
    found = {
        "TT_MESH_HOST_RANK": binding.mesh_host_rank,
        "TT_RUN_SUBCONTEXT_ID": binding.subcontext_id,
        "TT_METAL_MOCK_CLUSTER_DESC_PATH": None if mock is None else os.path.abspath(mock),
        "TT_METAL_FACTORY_SYSTEM_DESCRIPTOR_PATH": shared.factory_system_descriptor,
    }
    return {name: str(value) for name, value in found.items() if value is not None}


def with_peer_hosts(ranks: Sequence[Mapping[str, str]]) -> list[dict[str, str]]:
    """Every rank also learns where the others of its sub-context are: their mock hosts make one machine."""
    jobs: dict[str, list[Mapping[str, str]]] = {}
    for rank in ranks:
        jobs.setdefault(rank.get(_SUBCONTEXT, ""), []).append(rank)
    told = {job: {**_mock_hosts(fellows), **_places(fellows)} for job, fellows in jobs.items()}
    return [{**rank, **told[rank.get(_SUBCONTEXT, "")]} for rank in ranks]


def _mock_hosts(ranks: Sequence[Mapping[str, str]]) -> dict[str, str]:
    files = list(dict.fromkeys(rank[MOCK_DESCRIPTOR] for rank in ranks if rank.get(MOCK_DESCRIPTOR)))
    return {MOCK_HOSTS: os.pathsep.join(files)} if len(files) > 1 else {}


def _places(ranks: Sequence[Mapping[str, str]]) -> dict[str, str]:
    """The host of each part of a mesh; without a host rank the match chooses the part."""
    hosts = {}
    for rank in ranks:
        host = rank.get(HOST) or os.path.basename(rank.get(MOCK_DESCRIPTOR, ""))
        numbers = [rank.get(name, "") for name in ("TT_MESH_ID", "TT_MESH_HOST_RANK")]
        if host and all(number.isdecimal() for number in numbers):
            hosts[int(numbers[0]), int(numbers[1])] = host
    return {PLACES: places_text(hosts)} if len(set(hosts.values())) > 1 else {}


def inconsistent_variables(ranks: Sequence[Mapping[str, str]]) -> Iterator[str]:
    """A sentence for each variable that differs between ranks although nothing about it is a rank's own."""
    for name in sorted({name for rank in ranks for name in rank} - _OWN_TO_EACH_RANK):
        values = [rank.get(name) for rank in ranks]
        if len(set(values)) > 1 and not all(_tells_its_rank(value, rank) for rank, value in enumerate(values)):
            yield _difference(name, values)


def _tells_its_rank(value: str | None, rank: int) -> bool:
    return value is not None and str(rank) in re.findall(r"\d+", value)


def leaking_variables(environ: Mapping[str, str], ranks: Sequence[Mapping[str, str]]) -> Iterator[str]:
    """A sentence for each variable of this shell that mpirun hands to ranks on this host and to no others."""
    for name in sorted(NEVER_INHERITED & environ.keys() - {REPORTS}):
        without = [rank for rank, own in enumerate(ranks) if name not in own]
        if without:
            yield (
                f"{name}={environ[name]} is set in this shell: rank {without[0]} inherits it if it runs on this host, "
                "and does not if it runs on another. Unset it, or set it in env_overrides."
            )


def _difference(name: str, values: Sequence[str | None]) -> str:
    first = values[0]
    rank = next(rank for rank, value in enumerate(values) if value != first)
    one, other = ("unset" if value is None else repr(value) for value in (first, values[rank]))
    return (
        f"{name} differs between ranks: {one} for rank 0, {other} for rank {rank}. Ranks that should work in "
        "lockstep may diverge; what holds for all belongs into global_env."
    )
