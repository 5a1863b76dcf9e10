"""Mapping files of tt-run: several jobs (sub-contexts) that share one MPI world, each with its bindings or
descriptor.

The ranks of sub-context 0 come first, then those of 1, and so on; every process learns its sub-context's id and the
sizes of all.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from softmesh.input_files.text_files import Finding, errors_of
from softmesh.processes.bindings.launch_files import FieldReader, find, launch_places, places_beside
from softmesh.processes.bindings.rank_bindings import (
    BindingsError,
    RankBinding,
    RankBindings,
    configuration_file,
    path_by_id,
    read,
)

RANK_BINDINGS = "subcontext_id_to_rank_bindings"
DESCRIPTORS = "subcontext_id_to_mesh_graph_descriptor"
MOCKS = "rank_to_cluster_mock_cluster_desc"
_KINDS = {
    RANK_BINDINGS: "Rank bindings",
    DESCRIPTORS: "Mesh graph descriptor",
    MOCKS: "Mock cluster descriptor",
}


@dataclass(frozen=True)
class MappingFile:
    """The files that a mapping names, by id, and the line of each."""

    file: str
    files: dict[int, Path]
    lines: dict[int, int]
    findings: tuple[Finding, ...]


def read_mapping(
    path: str | Path, key: str, *, environ: Mapping[str, str] | None = None, beside: bool = False
) -> MappingFile:
    """`key` is one of RANK_BINDINGS, DESCRIPTORS and MOCKS. Names are relative to the mapping file first."""
    reader = FieldReader(os.fspath(path), os.environ if environ is None else environ)
    files, lines = {}, {}
    for id, (name, line) in _names_and_lines(reader, key).items():
        lines[id] = line
        found = _find(reader, name, beside)
        if found is None:
            _say_missing(reader, key, id, name, line)
        else:
            files[id] = found
    return MappingFile(reader.file, files, lines, tuple(reader.findings))


def _names_and_lines(reader: FieldReader, key: str) -> dict[int, tuple[str, int]]:
    """In the order of ids."""
    root = reader.whole_file(f"with the key {key}")
    if root is None:
        return {}
    reader.known_keys("", root, [key])
    entries = reader.required("", root, key)
    if entries is None:
        return {}
    names = path_by_id(reader, key, entries)
    if not errors_of(reader.findings):
        _check_dense(reader, key, sorted(names), entries.line)
    return dict(sorted(names.items()))


def _check_dense(reader: FieldReader, key: str, ids: list[int], line: int) -> None:
    expected = list(range(len(ids)))
    if not ids:
        reader.error("empty-mapping", f"{key}: must name at least one file", line, fix="add `0: <path>`")
    elif ids != expected:
        message = f"{key} keys must be dense and monotonic starting at 0 (expected {expected}, got {ids})"
        reader.error("id-gap", message, line, fix=f"number them 0 to {len(ids) - 1}")


def _find(reader: FieldReader, name: str, beside: bool) -> Path | None:
    folder = Path(os.path.abspath(reader.file)).parent
    above = places_beside(reader.file) if beside else []
    return find(name, [folder, *launch_places(reader.environ), *above])


def _say_missing(reader: FieldReader, key: str, id: int, name: str, line: int) -> None:
    of = f" for {'rank' if key == MOCKS else 'sub-context'} {id}"
    message = f"{_KINDS[key]}{of} not found: {name}"
    reader.error("file-not-found", message, line, fix="names are relative to this file, or to $TT_METAL_HOME")


def load_subcontexts(
    path: str | Path, *, environ: Mapping[str, str] | None = None, check_descriptor: bool = True
) -> RankBindings:
    """The merged bindings, as `tt-run --rank-bindings-mapping` takes them."""
    mapped = _loaded(path, RANK_BINDINGS, environ)
    overlays = [
        read(file, environ=environ, check_descriptor=check_descriptor).usable() for file in mapped.files.values()
    ]
    _refuse(environment_conflicts(mapped, overlays))
    return merged(mapped.file, overlays)


def load_descriptor_mapping(path: str | Path, *, environ: Mapping[str, str] | None = None) -> dict[int, Path]:
    """Sub-context id to mesh graph descriptor, as `tt-run -M` takes it."""
    return _loaded(path, DESCRIPTORS, environ).files


def load_mock_mapping(path: str | Path, *, environ: Mapping[str, str] | None = None) -> dict[int, Path]:
    """Rank to cluster descriptor, as `--mock-cluster-rank-binding` takes it."""
    return _loaded(path, MOCKS, environ).files


def _loaded(path: str | Path, key: str, environ: Mapping[str, str] | None) -> MappingFile:
    environ = os.environ if environ is None else environ
    mapped = read_mapping(configuration_file(path, environ), key, environ=environ)
    _refuse(mapped.findings)
    return mapped


def _refuse(findings: Sequence[Finding]) -> None:
    if errors := errors_of(findings):
        raise BindingsError(errors)


def environment_conflicts(mapped: MappingFile, overlays: Sequence[RankBindings]) -> list[Finding]:
    """Variables that two sub-contexts want for all ranks, each with a value of its own."""
    reader = FieldReader(mapped.file, {})
    seen: dict[str, tuple[str, str]] = {}
    for overlay in overlays:
        for name, value in overlay.global_env.items():
            first, file = seen.setdefault(name, (value, overlay.file))
            if first != value:
                message = (
                    f"global_env conflict on key '{name}' between sub-contexts: "
                    f"{first!r} in {file}, {value!r} in {overlay.file}"
                )
                reader.error("global-env-conflict", message, fix="move it to env_overrides of the ranks")
    return reader.findings


def merged(file: str, overlays: Sequence[RankBindings]) -> RankBindings:
    """One world out of several: global rank = ranks of the sub-contexts before + local rank."""
    bindings: list[RankBinding] = []
    environment: dict[str, str] = {}
    for id, overlay in enumerate(overlays):
        descriptor = str(overlay.descriptor or overlay.mesh_graph_desc_path)
        offset = len(bindings)
        bindings += [
            replace(
                binding,
                rank=offset + binding.rank,
                subcontext_id=id,
                subcontext_size=overlay.size,
                mesh_graph_desc_path=descriptor,
            )
            for binding in overlay.bindings
        ]
        environment |= overlay.global_env
    sizes = ",".join(str(overlay.size) for overlay in overlays)
    return RankBindings(
        file=file,
        bindings=tuple(bindings),
        mesh_graph_desc_path=overlays[0].mesh_graph_desc_path,
        global_env={**environment, "TT_RUN_SUBCONTEXT_SIZES": sizes},
        descriptor=overlays[0].descriptor,
    )
