"""Rank bindings: which process (rank) works for which mesh, and in which environment.

`load` gives values or an error, as the launcher wants it; `read` gives values and everything there is to
say about the file, as the linter wants it. Neither asks whether the mesh graph descriptor agrees.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from softmesh.fabric.finding import Finding, errors_of
from softmesh.processes.binding import BindingsError, RankBinding, RankBindings
from softmesh.processes.bindings_check import Fields, check_fields
from softmesh.processes.field_reader import FieldReader
from softmesh.processes.search import find, launch_places, places_beside

__all__ = ["BindingsError", "BindingsRead", "RankBinding", "RankBindings", "load", "read"]


@dataclass(frozen=True)
class BindingsRead:
    """What a file holds (None where it cannot be used) and what there is to say about it."""

    bindings: RankBindings | None
    findings: tuple[Finding, ...]


def load(
    path: str | Path, *, environ: Mapping[str, str] | None = None, check_descriptor: bool = True
) -> RankBindings:
    """The bindings of a file, as `tt-run --rank-binding` takes them; BindingsError says what is wrong."""
    environ = os.environ if environ is None else environ
    found = configuration_file(path, environ)
    result = read(found, environ=environ, check_descriptor=check_descriptor)
    if result.bindings is None:
        raise BindingsError(errors_of(result.findings))
    return result.bindings


def configuration_file(path: str | Path, environ: Mapping[str, str]) -> Path:
    """Where the launcher finds a file that it was given."""
    name, places = os.fspath(path), launch_places(environ)
    found = find(name, places)
    if found is None:
        reader = FieldReader(name, environ)
        what = " (that is a directory)" if os.path.isdir(name) else ""
        message = f"Configuration file not found: {name}{what}\nSearched in: {_names(places)}"
        reader.error("not-found", message)
        raise BindingsError(reader.findings)
    return found


def read(
    path: str | Path,
    *,
    environ: Mapping[str, str] | None = None,
    check_descriptor: bool = True,
    beside: bool = False,
) -> BindingsRead:
    """Everything a file says, and everything to say about it.

    With `beside` a descriptor that the launcher would not find from here is also looked for next to the
    file and in the directories above it.
    """
    reader = FieldReader(os.fspath(path), os.environ if environ is None else environ)
    fields = check_fields(reader)
    if fields is None:
        return BindingsRead(None, tuple(reader.findings))
    descriptor = None
    if check_descriptor and fields.mesh_graph_desc_path is not None:
        descriptor = find_descriptor(
            reader, fields.mesh_graph_desc_path, fields.lines.get("mesh_graph_desc_path"), beside
        )
    usable = not errors_of(reader.findings)
    return BindingsRead(_values(reader.file, fields, descriptor) if usable else None, tuple(reader.findings))


def _values(file: str, fields: Fields, descriptor: Path | None) -> RankBindings:
    return RankBindings(
        file=file,
        bindings=tuple(sorted(fields.bindings, key=lambda binding: binding.rank)),
        mesh_graph_desc_path=fields.mesh_graph_desc_path or "",
        global_env=fields.global_env,
        mock_cluster_rank_binding=fields.mock_cluster_rank_binding,
        descriptor=descriptor,
        lines=fields.lines,
    )


def find_descriptor(reader: FieldReader, path: str, line: int | None, beside: bool) -> Path | None:
    """The file that a binding names, or a finding that it is not there."""
    places = launch_places(reader.environ)
    found = find(path, places)
    if found is None and beside:
        found = find(path, places_beside(reader.file))
        if found is not None:
            _say_from_where(reader, path, found, line)
        places += [place for place in places_beside(reader.file) if place not in places]
    if found is None:
        message = (
            f"Mesh graph descriptor not found: {path}\nSearched in: {_names(places)}\n"
            "Tip: Use an absolute path or ensure the file exists relative to the launch directory."
        )
        reader.error("descriptor-not-found", message, line, fix="set TT_METAL_HOME, or mend the path")
    return found


def _say_from_where(reader: FieldReader, path: str, found: Path, line: int | None) -> None:
    root = str(found).removesuffix(path).rstrip(os.sep) or os.sep
    reader.note(
        "descriptor-beside",
        f"mesh_graph_desc_path: {path} is found beside this file, not from the current directory",
        line,
        fix=f"start tt-run in {root}, or set TT_METAL_HOME to it",
    )


def _names(places: list[Path]) -> str:
    return "[" + ", ".join(map(str, places)) + "]"
