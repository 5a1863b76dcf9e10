"""Rank binding files, which bind each rank to a mesh and an environment: their values, rules and reader.

`load` gives values or an error, as the launcher wants it; `read` gives values and everything there is to say about
the file, as the linter wants it. Neither asks whether the mesh graph descriptor agrees.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from softmesh.errors import MeshError
from softmesh.input_files.text_files import Finding, errors_of
from softmesh.input_files.yaml_files import Rows, Table, Value, is_nothing
from softmesh.processes.bindings.launch_files import FieldReader, find, launch_places, places_beside
from softmesh.terminal_text import printable, readable

VISIBLE_DEVICES = "TT_VISIBLE_DEVICES"
_MOST_SHOWN = 20


@dataclass(frozen=True)
class RankBinding:
    """One process. Without a host rank the mapping chooses one; the environment is already expanded."""

    rank: int
    mesh_id: int
    mesh_host_rank: int | None = None
    env_overrides: Mapping[str, str] = field(default_factory=dict)
    mesh_graph_desc_path: str | None = None
    subcontext_id: int | None = None
    subcontext_size: int | None = None
    lines: Mapping[str, int] = field(default_factory=dict, compare=False, repr=False)

    @property
    def visible_devices(self) -> str | None:
        return self.env_overrides.get(VISIBLE_DEVICES)

    def line_of(self, key: str = "") -> int | None:
        """Where a key such as `mesh_id` or `env_overrides.TT_VISIBLE_DEVICES` stands, else the binding."""
        return self.lines.get(key, self.lines.get(""))


@dataclass(frozen=True)
class RankBindings:
    """The processes of a job, in rank order. `descriptor` is the MGD file that was found, if it was sought."""

    file: str
    bindings: tuple[RankBinding, ...]
    mesh_graph_desc_path: str
    global_env: Mapping[str, str] = field(default_factory=dict)
    mock_cluster_rank_binding: Mapping[int, str] = field(default_factory=dict)
    descriptor: Path | None = None
    lines: Mapping[str, int] = field(default_factory=dict, compare=False, repr=False)

    def line_of(self, key: str) -> int | None:
        return self.lines.get(key)

    @property
    def size(self) -> int:
        return len(self.bindings)


class BindingsError(MeshError):
    """A file that the launcher refuses. `findings` say where and how to mend it."""

    def __init__(self, findings: Sequence[Finding]) -> None:
        self.findings = list(findings)
        shown = [_sentence(finding) for finding in self.findings[:_MOST_SHOWN]]
        more = len(self.findings) - len(shown)
        super().__init__(
            "Configuration error: Invalid configuration: "
            + "\n".join([*shown, *([f"... and {more} more"] if more else [])])
        )


def _sentence(finding: Finding) -> str:
    fix = f"\n    fix: {readable(finding.fix)}" if finding.fix else ""
    return f"{readable(finding.message)} ({printable(finding.place)}){fix}"


_FILE_KEYS = ("rank_bindings", "global_env", "mesh_graph_desc_path", "mock_cluster_rank_binding")
_NUMBERS = ("rank", "mesh_id", "mesh_host_rank", "subcontext_id", "subcontext_size")
_NEEDED = ("rank", "mesh_id")
_BINDING_KEYS = (*_NUMBERS, "env_overrides", "mesh_graph_desc_path")
_MOST_RANKS_SHOWN = 64
_MISLEADING = {  # variables that do something else than they seem to
    "TT_METAL_VISIBLE_DEVICES": "it is read and never used: TT_VISIBLE_DEVICES is the one that works",
    "TT_MESH_ID": "it takes the place of mesh_id",
    "TT_MESH_HOST_RANK": "it takes the place of mesh_host_rank",
    "TT_MESH_GRAPH_DESC_PATH": "it takes the place of mesh_graph_desc_path",
}


class Fields(NamedTuple):
    """What could be read; of use only where nothing was wrong, except for the descriptor's path."""

    bindings: list[RankBinding]
    global_env: dict[str, str]
    mesh_graph_desc_path: str | None
    mock_cluster_rank_binding: dict[int, str]
    lines: dict[str, int]


def check_fields(reader: FieldReader) -> Fields | None:
    fix = "the file needs the keys rank_bindings and mesh_graph_desc_path"
    root = reader.whole_file("or instance of TTRunConfig", fix)
    if root is None:
        return None
    reader.known_keys("", root, _FILE_KEYS)
    return Fields(
        _bindings(reader, root),
        _environment(reader, "global_env", root.get("global_env")),
        _descriptor_path(reader, root),
        _mocks(reader, root.get("mock_cluster_rank_binding")),
        _key_lines(root),
    )


def _descriptor_path(reader: FieldReader, root: Table) -> str | None:
    value = reader.required("", root, "mesh_graph_desc_path")
    return reader.string("mesh_graph_desc_path", value) if value is not None else None


def _mocks(reader: FieldReader, value: Value | None) -> dict[int, str]:
    """Rank to cluster descriptor; null, as a missing key, means none."""
    if value is None or is_nothing(value):
        return {}
    return {id: path for id, (path, _) in path_by_id(reader, "mock_cluster_rank_binding", value).items()}


def path_by_id(reader: FieldReader, where: str, value: Value) -> dict[int, tuple[str, int]]:
    """A map of ids to paths, as every mapping file has one; with the line of each."""
    found: dict[int, tuple[str, int]] = {}
    for key, written in (reader.table(where, value) or Table()).entries():
        number = reader.natural(f"{where}.{str(key)[:60]}.[key]", key)
        path = reader.string(f"{where}.{str(key)[:60]}", written)
        if number is not None and path is not None:
            found[number] = path, key.line
    return found


def _bindings(reader: FieldReader, root: Table) -> list[RankBinding]:
    entries = reader.required("", root, "rank_bindings")
    if entries is None:
        return []
    if not isinstance(entries, Rows):
        reader.error("not-a-list", "rank_bindings: Input should be a valid list", entries.line)
        return []
    if not entries:
        message = "rank_bindings: List should have at least 1 item after validation, not 0"
        reader.error("no-ranks", message, entries.line, fix="add `- {rank: 0, mesh_id: 0}`")
    read = [_binding(reader, f"rank_bindings.{i}", entry) for i, entry in enumerate(entries)]
    bindings = [binding for binding in read if binding is not None]
    if bindings and len(bindings) == len(read):
        _check_ranks(reader, bindings)
    return bindings


def _binding(reader: FieldReader, where: str, value: Value) -> RankBinding | None:
    entries = reader.table(where, value, "RankBinding")
    if entries is None:
        return None
    reader.known_keys(where, entries, _BINDING_KEYS)
    numbers = {key: _number(reader, where, entries, key) for key in _NUMBERS}
    env = entries.get("env_overrides")
    overrides = _environment(reader, f"{where}.env_overrides", env)
    own_path = _own_descriptor(reader, where, entries.get("mesh_graph_desc_path"))
    rank, mesh_id = numbers["rank"], numbers["mesh_id"]
    if rank is None or mesh_id is None:
        return None
    return RankBinding(
        rank=rank,
        mesh_id=mesh_id,
        mesh_host_rank=numbers["mesh_host_rank"],
        env_overrides=overrides,
        mesh_graph_desc_path=own_path,
        subcontext_id=numbers["subcontext_id"],
        subcontext_size=numbers["subcontext_size"],
        lines=_lines(entries, env),
    )


def _environment(reader: FieldReader, where: str, value: Value | None) -> dict[str, str]:
    table = reader.table(where, value) if value is not None else None
    if table is None:
        return {}
    for name, _ in table.entries():
        if name in _MISLEADING:
            reader.warning("misleading-variable", f"{where}.{name}: {_MISLEADING[name]}", name.line)
    return reader.environment(where, table)


def _own_descriptor(reader: FieldReader, where: str, value: Value | None) -> str | None:
    if value is None or is_nothing(value):
        return None
    return reader.string(f"{where}.mesh_graph_desc_path", value)


def _number(reader: FieldReader, where: str, entries: Table, key: str) -> int | None:
    value = reader.required(where, entries, key) if key in _NEEDED else entries.get(key)
    if value is None or (key not in _NEEDED and is_nothing(value)):
        return None
    return reader.natural(f"{where}.{key}", value)


def _lines(entries: Table, env: Value | None) -> dict[str, int]:
    variables = _key_lines(env) if isinstance(env, Table) else {}
    of_variables = {f"env_overrides.{name}": line for name, line in variables.items()}
    return {"": entries.line, **_key_lines(entries), **of_variables}


def _key_lines(table: Table) -> dict[str, int]:
    return {str(key): key.line for key, _ in table.entries()}


def _check_ranks(reader: FieldReader, bindings: list[RankBinding]) -> None:
    ranks = [binding.rank for binding in bindings]
    last_of = {binding.rank: binding for binding in bindings}
    repeated = sorted(rank for rank, times in Counter(ranks).items() if times > 1)
    if repeated:
        message = f"Duplicate ranks found in bindings: {_shown(repeated)}"
        fix = f"give each process a rank of its own, 0 to {len(ranks) - 1}"
        reader.error("duplicate-rank", message, last_of[repeated[0]].line_of("rank"), fix)
    elif sorted(ranks) != list(range(len(ranks))):
        message = f"Ranks must be contiguous from 0. Got: {_shown(sorted(ranks))}"
        wrong = next(rank for i, rank in enumerate(sorted(ranks)) if rank != i)
        fix = f"number the ranks 0 to {len(ranks) - 1}"
        reader.error("rank-gap", message, last_of[wrong].line_of("rank"), fix)
    elif ranks != sorted(ranks):
        wrong = next(rank for i, rank in enumerate(ranks) if rank != i)
        message = f"Ranks are not listed in order ({_shown(ranks)}): tt-run then writes a malformed mpirun line"
        fix = "list the bindings in rank order, rank 0 first"
        reader.warning("rank-order", message, last_of[wrong].line_of("rank"), fix)


def _shown(ranks: list[int]) -> str:
    return str(ranks) if len(ranks) <= _MOST_RANKS_SHOWN else f"{str(ranks[:_MOST_RANKS_SHOWN])[:-1]}, ...]"


__all__ = ["BindingsError", "BindingsRead", "RankBinding", "RankBindings", "load", "read"]


@dataclass(frozen=True)
class BindingsRead:
    """What a file holds (None where it cannot be used) and what there is to say about it."""

    bindings: RankBindings | None
    findings: tuple[Finding, ...]

    def usable(self) -> RankBindings:
        if self.bindings is None:
            raise BindingsError(errors_of(self.findings))
        return self.bindings


def load(path: str | Path, *, environ: Mapping[str, str] | None = None, check_descriptor: bool = True) -> RankBindings:
    """The bindings of a file, as `tt-run --rank-binding` takes them; BindingsError says what is wrong."""
    environ = os.environ if environ is None else environ
    found = configuration_file(path, environ)
    return read(found, environ=environ, check_descriptor=check_descriptor).usable()


def configuration_file(path: str | Path, environ: Mapping[str, str]) -> Path:
    """Where the launcher finds a file that it was given."""
    name, places = os.fspath(path), launch_places(environ)
    found = find(name, places)
    if found is None:
        reader = FieldReader(name, environ)
        what = " (that is a directory)" if os.path.isdir(name) else ""
        message = f"Configuration file not found: {name}{what}\nSearched in: {place_names(places)}"
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
            f"Mesh graph descriptor not found: {path}\nSearched in: {place_names(places)}\n"
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


def place_names(places: list[Path]) -> str:
    return "[" + ", ".join(map(str, places)) + "]"
