"""Mock cluster descriptors: the file that describes the host each rank believes to be on."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from softmesh.input_files.text_files import errors_of
from softmesh.input_files.yaml_files import Table, Text, Value, read_table
from softmesh.processes.bindings.launch_files import find, launch_places, places_beside
from softmesh.processes.bindings.mapping_files import MOCKS, read_mapping
from softmesh.processes.bindings.rank_bindings import BindingsError, RankBindings, configuration_file
from softmesh.processes.launcher.console import LaunchError

_REPOSITORY = "tt_metal/third_party/tt-cluster-descriptors/"


def mocks_by_rank(path: str, environ: Mapping[str, str]) -> dict[int, Path]:
    """What a mapping says; any other file is the descriptor of rank 0 itself."""
    file = configuration_file(path, environ)
    document = read_table(file)
    if MOCKS not in document:
        return {0: file}
    mapped = read_mapping(file, MOCKS, environ=environ, beside=True)
    in_repository = {
        rank: found
        for rank in mapped.lines.keys() - mapped.files.keys()
        if (found := _in_repository(document[MOCKS], rank, file)) is not None
    }
    wrong = [finding for finding in errors_of(mapped.findings) if finding.rule != "bindings/file-not-found"]
    files = {**mapped.files, **in_repository}
    if wrong or len(files) < len(mapped.lines):
        raise BindingsError(errors_of(mapped.findings))
    return dict(sorted(files.items()))


def _in_repository(ranks: Value, rank: int, mapping: Path) -> Path | None:
    """TT-Metal's own mappings name files of its repository of descriptors, which may be anywhere here."""
    name = ranks.get(str(rank)) if isinstance(ranks, Table) else None
    if not isinstance(name, Text) or not name.startswith(_REPOSITORY):
        return None
    return find(name.removeprefix(_REPOSITORY), places_beside(mapping))


def mocks_of(bindings: RankBindings, option: str | None, environ: Mapping[str, str]) -> dict[int, Path]:
    """One for each rank, by the option or by the file of the bindings; none where nobody asks for mocks."""
    if option is not None:
        found = mocks_by_rank(option, environ)
    else:
        found = {rank: _found(rank, name, environ) for rank, name in bindings.mock_cluster_rank_binding.items()}
    if found:
        _check_ranks(found, bindings)
    return found


def _found(rank: int, name: str, environ: Mapping[str, str]) -> Path:
    found = find(name, launch_places(environ))
    if found is None:
        raise LaunchError(f"Mock cluster descriptor for rank {rank} not found: {name}")
    return found


def _check_ranks(found: Mapping[int, Path], bindings: RankBindings) -> None:
    wanted = {binding.rank for binding in bindings.bindings}
    missing = sorted(wanted - set(found))
    if missing:
        raise LaunchError(
            f"Mock cluster descriptor for rank {missing[0]} not found: the mock cluster mapping names ranks "
            f"{sorted(found)}, the bindings have {sorted(wanted)}. Add `{missing[0]}: <descriptor>` to {MOCKS}."
        )
    is_merged = any(binding.subcontext_id is not None for binding in bindings.bindings)
    if is_merged and set(found) != wanted:
        raise LaunchError(
            f"The mock cluster mapping names ranks {sorted(found)}, the merged sub-contexts have "
            f"{sorted(wanted)}: the two must be equal."
        )
