"""Whatever text is handed in: findings or a sound graph, never another exception, never a hang."""

from __future__ import annotations

import re
from pathlib import Path

from google.protobuf.descriptor_pb2 import FieldDescriptorProto
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from softmesh.fabric.descriptors.loader import CheckedDescriptor, check_text
from softmesh.fabric.descriptors.pinnings import RegexError, digit_matcher
from softmesh.fabric.descriptors.schema import FILE
from softmesh.fabric.mesh_graph import MeshGraph
from softmesh.input_files.text_files import Severity

FIXTURES = sorted((Path(__file__).parent.parent / "fixtures" / "mgd").glob("*.textproto"))
TEXTS = [path.read_text() for path in FIXTURES]
SCHEMA = {message.name: message for message in FILE.message_type}
TOKENS = sorted({token for text in TEXTS for token in re.findall(r'"[^"]*"|\w+|[^\s\w]', text)})
FUZZ = settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])

# -- what must hold of every answer ------------------------------------------------------------------


def check_is_sound(text: str) -> None:
    for_runtime, for_reading = check_text(text, runtime=True), check_text(text, runtime=False)
    for checked in (for_runtime, for_reading):
        findings_are_complete(checked, text.count("\n") + 1)
        if checked.graph is not None:
            graph_is_sound(checked.graph)
    assert for_runtime.graph is None or for_reading.graph is not None


def findings_are_complete(checked: CheckedDescriptor, lines: int) -> None:
    has_errors = any(finding.severity is Severity.ERROR for finding in checked.findings)
    assert has_errors == (checked.graph is None) == bool(checked.headline)
    for finding in checked.findings:
        assert finding.rule.startswith("mgd/")
        assert finding.message
        assert finding.fix
        assert finding.line is None or 1 <= finding.line <= lines
        assert str(finding)


def graph_is_sound(graph: MeshGraph) -> None:
    assert [mesh.id for mesh in graph.meshes] == list(range(len(graph.meshes)))
    nodes = set(graph.nodes)
    for connection in graph.connections:
        assert connection.count > 0
        assert not set(connection.a.meshes) & set(connection.b.meshes)
        for side in (connection.a, connection.b):
            assert all((mesh, side.chip or 0) in nodes for mesh in side.meshes)
    for pinning in graph.pinnings:
        assert pinning.nodes
        assert nodes.issuperset(pinning.nodes)
        assert len({node.mesh for node in pinning.nodes}) == 1
    for mesh in graph.meshes:
        assert {mesh.host_rank(chip) for chip in range(mesh.size)} == set(range(mesh.host_count))


# -- texts -------------------------------------------------------------------------------------------


@st.composite
def mutated_fixtures(draw: st.DrawFn) -> str:
    """One of our descriptors with a few tokens removed, repeated, exchanged or put in."""
    tokens = re.findall(r'"[^"]*"|\w+|[^\s\w]|\n', draw(st.sampled_from(TEXTS)))
    numbers = st.sampled_from(["0", "-1", "1", "3", "7", "64", "2147483647", "99999999999", '"["', '".*"'])
    for _ in range(draw(st.integers(1, 5))):
        at = draw(st.integers(0, len(tokens) - 1))
        until = at + draw(st.integers(0, 12))
        piece = draw(
            st.sampled_from([[], tokens[at:until] * 2]) | st.lists(numbers | st.sampled_from(TOKENS), max_size=2)
        )
        tokens[at:until] = piece
        tokens = tokens or ["{"]
    return " ".join(tokens)


@st.composite
def bodies(draw: st.DrawFn, kind: str = "MeshGraphDescriptor", depth: int = 0) -> str:
    """Fields of the right form with small numbers and few names, so that much of it fits together."""
    fields = list(SCHEMA[kind].field)
    if kind == "NodeRef":
        fields = [draw(st.sampled_from(fields))]
    parts = []
    for field in fields:
        is_list = field.label == FieldDescriptorProto.LABEL_REPEATED
        for _ in range(draw(st.integers(0, 3) if is_list else st.sampled_from([1, 1, 1, 0]))):
            parts.append(f"{field.name}: {draw(values(field, depth))}")
    return "\n".join(parts)


def values(field: FieldDescriptorProto, depth: int) -> st.SearchStrategy[str]:
    if field.type_name in SCHEMA:
        inner = bodies(field.type_name, depth + 1) if depth < 6 else st.just("")
        return inner.map(lambda body: f"{{ {body} }}")
    if field.type_name:
        return st.integers(0, 2).map(str)  # an enum, by number
    if field.type == FieldDescriptorProto.TYPE_BOOL:
        return st.sampled_from(["true", "false"])
    if field.type == FieldDescriptorProto.TYPE_STRING:
        patterns = ["", "0", "0-3", "[0-9]*", "1|2", "3-1", "("]
        words = patterns if field.name.endswith("regex") else ["A", "B", "FABRIC", ""]
        return st.sampled_from(words).map(lambda word: f'"{word}"')
    return st.sampled_from(["0", "1", "2", "4", "2147483647"])


@st.composite
def plausible_graphs(draw: st.DrawFn) -> str:
    """Meshes in a graph with random ids, connections, layout and pinnings: population is reached, mostly."""
    dims = st.lists(st.integers(1, 4), min_size=2, max_size=2)
    shape, hosts = draw(dims), draw(st.just([1, 1]) | dims)
    ids = draw(st.lists(st.integers(0, 4), min_size=1, max_size=4))
    ends = st.integers(0, 4).map(lambda id: f'mesh {{ mesh_descriptor: "A" mesh_id: {id} }}')
    chips = st.tuples(st.integers(0, 4), st.integers(0, 6)).map(
        lambda end: f'mesh {{ mesh_descriptor: "A" mesh_id: {end[0]} device_id: {end[1]} }}'
    )
    connections = draw(st.lists(st.lists(ends | chips, min_size=2, max_size=3), max_size=3))
    layout = draw(st.sampled_from(["", "RING", "ALL_TO_ALL"]))
    pinning = draw(bodies("AsicPinning"))
    return "\n".join(
        [
            f'mesh_descriptors {{ name: "A" arch: BLACKHOLE device_topology {{ dims: {shape} }}',
            f"  host_topology {{ dims: {hosts} }} channels {{ count: 2 }} }}",
            'graph_descriptors { name: "G" type: "FABRIC"',
            *(f'  instances {{ mesh {{ mesh_descriptor: "A" mesh_id: {id} }} }}' for id in ids),
            *(
                f"  connections {{ {' '.join(f'nodes {{ {end} }}' for end in nodes)} channels {{ count: 1 }} }}"
                for nodes in connections
            ),
            f"  graph_topology {{ layout_type: {layout} channels {{ count: 2 }} }}" if layout else "",
            '} top_level_instance { graph { graph_descriptor: "G" } }',
            draw(st.sampled_from(["", f"pinnings {{ {pinning} }}"])),
        ]
    )


# -- laws --------------------------------------------------------------------------------------------


@FUZZ
@given(st.text())
def test_any_text_gets_an_answer(text):
    check_is_sound(text)


@FUZZ
@given(st.lists(st.sampled_from([*TOKENS, "{", "}", "[", "]", "<", ">", ":", "'", '"', "\\"]), max_size=60))
def test_any_sequence_of_tokens_gets_an_answer(tokens):
    check_is_sound(" ".join(tokens))


@FUZZ
@given(mutated_fixtures())
def test_damaged_descriptors_get_an_answer(text):
    check_is_sound(text)


@FUZZ
@given(bodies())
def test_well_formed_nonsense_gets_an_answer(text):
    check_is_sound(text)


@FUZZ
@given(plausible_graphs())
def test_nearly_right_graphs_get_an_answer(text):
    check_is_sound(text)


@FUZZ
@given(
    st.lists(st.sampled_from([*"01259.|()*+?", "{2}", "{1,}", "{,2}", "[12]", "[^0]", r"\d", "(?:"]), max_size=8).map(
        "".join
    )
)
def test_regular_expressions_of_digits_mean_what_pythons_do(pattern):
    try:
        matches = digit_matcher(pattern)
    except RegexError:
        return
    for number in (*range(30), 100, 112, 255):
        assert matches(str(number)) == (re.fullmatch(pattern, str(number)) is not None)
