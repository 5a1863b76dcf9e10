"""Loads a mesh graph descriptor (MGD 2.0): from a file to a graph of meshes, or to findings that say why not.

The stages are parsing, validation, population (templates become instances), advisory checks, and flattening into
the `MeshGraph` that matching and routing work on.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from google.protobuf import text_format
from google.protobuf.message import Message

from softmesh.errors import MeshError, did_you_mean
from softmesh.fabric.descriptors.advisory_checks import UNKNOWN_FIELD, advice, unknown_fields
from softmesh.fabric.descriptors.instances import Instance, Kind, Population, rings_of
from softmesh.fabric.descriptors.pinnings import Expansion, PinningError
from softmesh.fabric.descriptors.population import PopulationError, populate
from softmesh.fabric.descriptors.schema import MeshGraphDescriptor, enum_values
from softmesh.fabric.descriptors.source_positions import DEEPEST, Place, TooDeep, places
from softmesh.fabric.descriptors.validation import FILE, FLAT_FILE, is_about_levels, validate
from softmesh.fabric.mesh_graph import Connection, GraphLevel, LogicalMesh, MeshGraph, Side
from softmesh.hardware import Arch
from softmesh.input_files.text_files import Finding, Severity, errors_of
from softmesh.strictness import is_strict, warn
from softmesh.terminal_text import CONTROL_CHARACTER, readable

# From the tree of instances to the flat graph of meshes that matching and routing work on.


_ARCHITECTURES = {1: Arch.WORMHOLE_B0, 2: Arch.BLACKHOLE}
_STRICT_POLICY = 1  # Policy


def flattened(population: Population, source: str) -> MeshGraph:
    """The graph without its pinnings, which speak of meshes by the ids given here."""
    grids = population.root.grids()
    ids = mesh_ids(grids)
    meshes = sorted((_mesh(grid, ids[grid]) for grid in grids), key=lambda mesh: mesh.id)
    arch = _ARCHITECTURES[grids[0].template.arch]
    return MeshGraph(source, arch, tuple(meshes), _connections(population, ids), levels=_levels(population.root, ids))


def _levels(node: Instance, ids: dict[Instance, int]) -> tuple[GraphLevel, ...]:
    if node.kind is not Kind.GRAPH:
        return ()
    meshes = tuple(sorted(ids[grid] for grid in node.grids()))
    inner = [level for child in node.children.values() for level in _levels(child, ids)]
    return (GraphLevel(node.name, node.type, node.local_id, meshes), *inner)


def mesh_ids(grids: list[Instance]) -> dict[Instance, int]:
    """The ids written in the file where they are 0..N-1; else a count, depth first.

    Nested graphs repeat their local ids: the 16 meshes of four PODs are all called 0 to 3.
    """
    written = [grid.local_id for grid in grids]
    if sorted(written) == list(range(len(grids))):
        return dict(zip(grids, written, strict=True))
    return {grid: i for i, grid in enumerate(grids)}


def _mesh(grid: Instance, id: int) -> LogicalMesh:
    template = grid.template
    rows, columns = template.device_topology.dims
    wraps_y, wraps_x = rings_of(template)
    is_switch = grid.kind is Kind.SWITCH
    hosts = (1, 1) if is_switch else tuple(template.host_topology.dims)
    return LogicalMesh(
        id=id,
        name=grid.name,
        shape=(rows, columns),
        rings=(wraps_y, wraps_x),
        hosts=(hosts[0], hosts[1]),
        channels=template.channels.count,
        strict=template.channels.policy == _STRICT_POLICY,
        is_switch=is_switch,
        line=grid.place.line,
    )


def _connections(population: Population, ids: dict[Instance, int]) -> tuple[Connection, ...]:
    """Between meshes the last request of a pair counts; between chips all of them do."""
    found: dict[object, Connection] = {}
    for request in population.requests:
        for i, one in enumerate(request.nodes):
            for other in request.nodes[i + 1 :]:
                a, b = _side(one, ids), _side(other, ids)
                connection = Connection(a, b, request.count, request.strict, request.z, request.place.line)
                pair = frozenset((a, b))
                found[len(found) if connection.is_between_chips else pair] = connection
    return _of_one_policy(population, tuple(found.values()))


def _of_one_policy(population: Population, connections: tuple[Connection, ...]) -> tuple[Connection, ...]:
    """In a fabric the first request decides for all; levels above keep what each of them says."""
    if population.root.type != "FABRIC" or not connections:
        return connections
    strict = population.requests[0].strict
    return tuple(replace(connection, strict=strict) for connection in connections)


def _side(node: Instance, ids: dict[Instance, int]) -> Side:
    if node.is_chip and node.parent is not None:
        return Side((ids[node.parent],), node.local_id)
    return Side(tuple(sorted(ids[grid] for grid in node.grids())))


SUFFIX = ".textproto"
LARGEST = 2**20  # bytes; a thousand meshes in a ring take a fifth of it
LONGEST_LINE = 2**15  # characters; the time of the protobuf library grows with the square
_STRICT, _RELAXED = 1, 2  # Policy
_LINE = 1  # TorusTopology.Type
_PARSE = "Failed to parse MeshGraphDescriptor textproto"
_VALIDATE = "Failed to validate MeshGraphDescriptor textproto: "
_SMALLER = "leave out what is not instantiated; a layout stands for many connections"
_REPORT = "=== MeshGraphDescriptor Validation Report ==="


@dataclass(frozen=True)
class CheckedDescriptor:
    """What a descriptor holds and what there is to say about it. `graph` is None where it cannot be used.

    `headline` are the runtime's own words for the refusal; `instances` is there as soon as they could be made.
    """

    graph: MeshGraph | None
    findings: list[Finding] = field(default_factory=list)
    instances: Population | None = None
    headline: str = ""


class DescriptorError(MeshError):
    """A descriptor that cannot be used. `findings` has all there is to say, warnings included."""

    def __init__(self, headline: str, findings: Sequence[Finding]) -> None:
        self.findings = list(findings)
        told = [*errors_of(findings), *(finding for finding in findings if finding.rule == UNKNOWN_FIELD)]
        super().__init__("\n".join([readable(headline), *map(str, told)]))


class _Refused(Exception):
    """The text is of no use from here on."""

    def __init__(self, headline: str, findings: Iterable[Finding], instances: Population | None = None) -> None:
        self.headline = headline
        self.findings = list(findings)
        self.instances = instances


def load_mesh_graph(path: str | os.PathLike[str], runtime: bool = True) -> MeshGraph:
    """The graph of a descriptor file. `runtime=False` also takes what only describes: PODs in clusters, say."""
    return _graph_of(check(path, runtime))


def load_job_graph(path: str | os.PathLike[str], warns: bool = False) -> MeshGraph:
    """Load the graph that processes work on: levels, which silicon's runtime refuses, become one graph.

    `warns` is set for one process of a job: the first one speaks for all. In strict mode levels are refused.
    """
    checked = check(path)
    if is_strict() or not is_about_levels(errors_of(checked.findings)):
        return _graph_of(checked)
    graph = load_mesh_graph(path, runtime=False).without_levels()
    if warns:
        first = errors_of(checked.findings)[0]
        warn(f"{path}:{first.line}: {first.message}. Before it runs on silicon: {first.fix}.")
    return graph


def _graph_of(checked: CheckedDescriptor) -> MeshGraph:
    if checked.graph is None:
        raise DescriptorError(checked.headline, checked.findings)
    return checked.graph


def check(path: str | os.PathLike[str], runtime: bool = True) -> CheckedDescriptor:
    """Everything there is to say about a descriptor file."""
    try:
        return check_text(_read(Path(path)), runtime, source=str(path))
    except _Refused as refused:
        return CheckedDescriptor(None, _in_file(refused.findings, str(path)), headline=refused.headline)


def check_text(text: str, runtime: bool = True, source: str = "<text>") -> CheckedDescriptor:
    try:
        checked = _checked(text, runtime, source)
    except _Refused as refused:
        checked = CheckedDescriptor(None, refused.findings, refused.instances, refused.headline)
    return replace(checked, findings=_in_file(checked.findings, source))


def _in_file(findings: Iterable[Finding], file: str) -> list[Finding]:
    stem = file.removesuffix(SUFFIX)
    return [
        replace(finding, file=file, fix=finding.fix.replace(FLAT_FILE, f"{stem}_fabric{SUFFIX}").replace(FILE, file))
        for finding in findings
    ]


def _checked(text: str, runtime: bool, source: str) -> CheckedDescriptor:
    message, where = _parsed(text)
    _fill_in_defaults(message)
    _check_texts(message, where)
    misspelt = unknown_fields(message, where)  # what is missed may be there under another name
    if found := validate(message, where, runtime):
        raise _Refused(_report(found), [*found, *misspelt])
    try:
        population = populate(message, where)
    except PopulationError as wrong:
        raise _Refused(str(wrong), [wrong.finding, *misspelt]) from None
    notes = list(advice(message, where, population, runtime))
    if found := errors_of(notes):
        raise _Refused(found[0].message, notes, population)
    graph = flattened(population, source)
    try:
        pinned = Expansion(message.pinnings, where, graph.meshes)
    except PinningError as wrong:
        raise _Refused(str(wrong), [wrong.finding], population) from None
    return CheckedDescriptor(replace(graph, pinnings=pinned.pinnings), [*notes, *pinned.findings], population)


def _check_texts(message: Any, where: Place) -> None:
    """No name may carry what a terminal would obey."""
    for kind, value in message.ListFields():
        values = [value] if isinstance(value, Message | str | int | float) else value
        for index, one in enumerate(values):
            place = where.of(kind.name, index)
            if kind.message_type is not None:
                _check_texts(one, place)
            elif isinstance(one, str) and CONTROL_CHARACTER.search(one):
                raise _unreadable("control-character", f"{kind.name} {one[:60]!r} has a control character", place.line)


def _report(findings: Iterable[Finding]) -> str:
    return "\n".join([_VALIDATE, _REPORT, "Errors:", *(f"  - {finding.message}" for finding in findings)])


def _parsed(text: str) -> tuple[Any, Place]:
    _check_size(text)
    try:
        where = places(text)
        return text_format.Parse(text, MeshGraphDescriptor(), allow_unknown_field=True), where
    except TooDeep as deep:
        raise _unreadable("too-deep", f"{DEEPEST} nested brackets are the most", deep.line) from None
    except text_format.ParseError as wrong:
        raise _unreadable("syntax", _shortened(str(wrong)), wrong.GetLine()) from None
    except ValueError as wrong:  # a number that no field has room for
        raise _unreadable("syntax", _shortened(str(wrong)), None) from None


def _check_size(text: str) -> None:
    if len(text) > LARGEST:
        raise _no_file("too-large", f"The text has more than {LARGEST} characters", _SMALLER)
    for number, line in enumerate(text.split("\n"), 1):
        if len(line) > LONGEST_LINE:
            raise _unreadable("long-line", f"line {number} has more than {LONGEST_LINE} characters", number)


def _unreadable(rule: str, reason: str, line: int | None) -> _Refused:
    finding = Finding(f"mgd/{rule}", Severity.ERROR, f"{_PARSE}: {reason}", _syntax_fix(reason), line=line)
    return _Refused(_PARSE, [finding])


def _syntax_fix(reason: str) -> str:
    wrong = re.search(r'Enum type "([\w.]+)" has no value named (\w+)', reason)
    if wrong:
        values = [value for value in enum_values(wrong[1]) if not value.startswith("INVALID")]
        return f"the values are {', '.join(values)}.{did_you_mean(wrong[2], values)}"
    return "the fields and their types are in softmesh/fabric/descriptors/mesh_graph.proto; braces must pair"


def _shortened(reason: str) -> str:
    """The parser quotes the line it stumbled over, which may be the whole file."""
    return reason if len(reason) <= 400 else f"{reason[:150]} ... {reason[-200:]}"


def _fill_in_defaults(message: Any) -> None:
    for mesh in message.mesh_descriptors:
        _default_policy(mesh, _RELAXED)
        _pad_dim_types(mesh.device_topology)
    for switch in message.switch_descriptors:
        _default_policy(switch, _STRICT)
        _pad_dim_types(switch.device_topology)
    for graph in message.graph_descriptors:
        for owner in (*graph.connections, graph.graph_topology):
            _default_policy(owner, _STRICT)


def _default_policy(owner: Any, policy: int) -> None:
    if owner.HasField("channels") and not owner.channels.HasField("policy"):
        owner.channels.policy = policy


def _pad_dim_types(topology: Any) -> None:
    missing = len(topology.dims) - len(topology.dim_types)
    topology.dim_types.extend([_LINE] * missing)


def _read(path: Path) -> str:
    if path.suffix != SUFFIX:
        raise _no_file(
            "suffix",
            f"Mesh graph descriptor file {path} must end in {SUFFIX}; the older YAML format (MGD 1.0) is no "
            "longer accepted",
            f"write the descriptor as protobuf text and name it {path.stem}{SUFFIX}",
        )
    if not os.path.isfile(path):
        what = "it is not a file" if os.path.exists(path) else "there is no such file"
        raise _no_file("unreadable", f"Cannot read {path}: {what}", "check the path")
    try:
        with path.open("rb") as file:
            data = file.read(LARGEST + 1)
    except OSError as cause:
        raise _no_file("unreadable", f"Cannot read {path}: {cause.strerror}", "check its permissions") from None
    if len(data) > LARGEST:
        raise _no_file("too-large", f"{path} is larger than {LARGEST} bytes", _SMALLER)
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as cause:
        reason = f"byte {cause.start} is not UTF-8"
        raise _unreadable("not-utf-8", reason, data.count(b"\n", 0, cause.start) + 1) from None


def _no_file(rule: str, message: str, fix: str) -> _Refused:
    return _Refused(message, [Finding(f"mgd/{rule}", Severity.ERROR, message, fix)])
