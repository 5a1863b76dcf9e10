"""Pinnings: numbers, lists, ranges and regular expressions, and what is wrong with them."""

from __future__ import annotations

import re

import pytest
from descriptors import FIXTURES, TOP_MESH, errors, line_of, mesh, messages, rules

from softmesh.fabric.descriptors.loader import check_text, load_mesh_graph
from softmesh.fabric.descriptors.pinnings import Pattern, PatternError, RegexError, digit_matcher
from softmesh.fabric.mesh_graph import Node, Pinning


def pinned(nodes: str, positions: str = "physical_asic_position { tray_id: 1 }") -> str:
    return f"{mesh()}{TOP_MESH}pinnings {{\n  {nodes}\n  {positions}\n}}\n"


def pinnings(text: str) -> tuple[Pinning, ...]:
    graph = check_text(text).graph
    assert graph is not None
    return graph.pinnings


@pytest.mark.parametrize(
    ("pattern", "numbers"),
    [
        ("0,2,4-6", [0, 2, 4, 5, 6]),
        (" 3 , 1 - 1".replace(" - ", "-"), [1, 3]),
        ("[13]", [1, 3]),
        ("1|10", [1, 10]),
        ("[0-9]", list(range(10))),
        (".*", list(range(12))),
        (r"\d\d", [10, 11]),
        ("1?0", [0, 10]),
        ("0-99999999999", list(range(12))),
        ("77", []),
        ("a", []),
    ],
)
def test_patterns_select_whole_numbers(pattern, numbers):
    assert Pattern(pattern).among(range(12)) == numbers


@pytest.mark.parametrize(
    ("pattern", "complaint"),
    [
        ("", " is empty"),
        ("  ", " is empty"),
        ("1,,2", " has malformed token ''"),
        ("1 2", " has malformed token '1 2'"),
        ("1-2-3", " has malformed range token '1-2-3'"),
        ("-2", " has malformed range token '-2'"),
        ("1,6-4", " has inverted range '1,6-4' in token '6-4'"),
        ("[1", " has invalid regex '[1': unterminated character set at position 0"),
        ("(?=1)1", " has invalid regex '(?=1)1': '(?=1)1' is not among what patterns of numbers may use"),
        ("1" * 65, " is longer than 64 characters"),
    ],
)
def test_bad_patterns_say_what_is_bad(pattern, complaint):
    with pytest.raises(PatternError, match=f"^{re.escape(complaint)}$"):
        Pattern(pattern)


@pytest.mark.parametrize(
    "pattern",
    [
        "(.|.|.|.|.|.|.|.|.|.|.|.|.|.|.|.|.|.|.|.)*x",
        "(.?){60}x",
        "(((.*)*)*)*x",
        ".?" * 30 + "x",
        "(|||)" * 12,
    ],
)
def test_patterns_that_explode_elsewhere_are_ordinary_here(pattern):
    assert Pattern(pattern).among(range(300)) == []


@pytest.mark.parametrize("pattern", ["((((((1))))))", "1++", r"(1)\1", r"\b1", "(?P<x>1)", "{"])
def test_what_cannot_be_followed_in_step_is_refused(pattern):
    with pytest.raises(RegexError):
        digit_matcher(pattern)


def test_fields_left_out_count_as_zero():
    text = pinned("logical_fabric_node_id { chip_id: 3 }", "physical_asic_position { asic_location: 5 }")
    assert pinnings(text) == (Pinning((Node(0, 3),), ((0, 5),), line_of(text, "pinnings")),)


def test_an_entry_is_split_by_mesh_and_its_groups_share_the_positions():
    found = load_mesh_graph(FIXTURES / "pinned_pipeline.textproto").pinnings
    assert [[str(node) for node in pinning.nodes] for pinning in found] == [
        ["M0D0", "M0D3", "M0D12", "M0D15"],
        ["M2D0", "M2D3", "M2D12", "M2D15"],
        ["M0D5"],
        ["M1D5"],
        ["M2D5"],
        ["M3D5"],
    ]
    assert {pinning.positions for pinning in found[:2]} == {((1, 2), (2, 2), (3, 2), (4, 2))}


def test_nodes_and_positions_named_twice_count_once():
    nodes = 'logical_fabric_node_id { chip_id_regex: "0-1" } logical_fabric_node_id { chip_id_regex: "1" }'
    positions = "physical_asic_position { tray_id: 1 } " * 2
    (found,) = pinnings(pinned(nodes, positions))
    assert (found.nodes, found.positions) == ((Node(0, 0), Node(0, 1)), ((1, 0),))


@pytest.mark.parametrize("nodes", ["mesh_id: 3", "chip_id: 8", 'chip_id_regex: "9[0-9]"', 'mesh_id_regex: "1-4"'])
def test_a_pinning_that_selects_nothing_is_a_warning_on_its_line(nodes):
    text = pinned(f"logical_fabric_node_id {{ {nodes} }}")
    (finding,) = check_text(text).findings
    assert (finding.rule, finding.severity.value) == ("mgd/pinning-selects-nothing", "warning")
    assert finding.line == line_of(text, "logical_fabric_node_id")
    assert pinnings(text) == ()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (pinned(""), "Pinning entry has no logical_fabric_node_id"),
        (pinned("logical_fabric_node_id { }", ""), "Pinning entry has no physical_asic_position"),
        (
            pinned('logical_fabric_node_id { chip_id: 0 } logical_fabric_node_id { chip_id_regex: "1" }'),
            "Pinning entry mixes regex and non-regex logical_fabric_node_id fields; use separate entries",
        ),
        (
            pinned('logical_fabric_node_id { chip_id: 0 chip_id_regex: "1" }'),
            "logical_fabric_node_id sets both chip_id_regex and chip_id; use one or the other",
        ),
        (
            pinned("logical_fabric_node_id { }", 'physical_asic_position { tray_id_regex: "4-1" }'),
            "physical_asic_position.tray_id_regex has inverted range '4-1' in token '4-1'",
        ),
        (
            pinned('logical_fabric_node_id { mesh_id_regex: "" }'),
            "logical_fabric_node_id.mesh_id_regex is empty",
        ),
    ],
)
def test_bad_entries_are_told_in_the_runtimes_words(text, message):
    assert messages(text) == [message]


def test_a_bad_pattern_is_reported_on_its_line():
    text = pinned('logical_fabric_node_id {\n mesh_id: 0\n chip_id_regex: "[" }')
    (finding,) = errors(check_text(text))
    assert finding.line == line_of(text, "chip_id_regex")


def test_pinnings_of_everything_to_everywhere_have_an_end():
    everywhere = 'physical_asic_position { tray_id_regex: ".*" asic_location_regex: ".*" } ' * 40
    assert rules(pinned('logical_fabric_node_id { chip_id_regex: ".*" }', everywhere)) == ["mgd/pinning-too-many"]
