"""`softmesh lint`, as a user types it."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from softmesh.errors import ArgumentValueError, MeshError
from softmesh.hardware import FabricConfig
from softmesh.input_files.text_files import Finding, Severity
from softmesh.lint import FileReport, lint
from softmesh.lint.command import lint as command
from softmesh.systems.cluster_descriptor import descriptor_text
from softmesh.systems.named_systems import load

FIXTURES = Path(__file__).parents[1] / "fixtures" / "bindings"
BIG, TWO, PODS = (str(FIXTURES / f"{name}.textproto") for name in ("big_mesh", "two_meshes", "pods"))

MESH = """mesh_descriptors {{
  name: "M0"
  arch: {arch}
  device_topology {{ dims: [ {dims} ] dim_types: [ {types} ] }}
  host_topology {{ dims: [ 1, 1 ] }}
  channels {{ count: {count} policy: {policy} }}
}}
top_level_instance {{ mesh {{ mesh_descriptor: "M0" mesh_id: 0 }} }}
"""


@pytest.fixture
def write(tmp_path, monkeypatch):
    """Writes a file into the directory where everything happens."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("TT_METAL_HOME", raising=False)

    def write_one(name: str, text: str) -> str:
        Path(name).write_text(text)
        return name

    return write_one


def mesh_text(
    dims: str, types: str = "LINE, LINE", count: int = 2, policy: str = "STRICT", arch: str = "WORMHOLE_B0"
) -> str:
    return MESH.format(dims=dims, types=types, count=count, policy=policy, arch=arch)


def run(*arguments: str) -> Result:
    result = CliRunner().invoke(command, list(arguments), prog_name="softmesh lint")
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result


def only(report: FileReport, rule: str) -> Finding:
    found = [finding for finding in report.findings if finding.rule == rule]
    assert len(found) == 1, report
    return found[0]


def errors(report: FileReport) -> list[tuple[str, int | None]]:
    return [(f.rule, f.line) for f in report.findings if f.severity is Severity.ERROR]


def test_a_descriptor_without_faults_is_valid_and_the_exit_code_0():
    result = run(BIG)
    assert result.output.splitlines() == [
        f"{BIG} (mesh graph descriptor): valid",
        "",
        "1 file: no problems found",
    ]
    assert result.exit_code == 0


def test_a_finding_shows_place_rule_source_line_and_fix_and_the_exit_code_is_1(write):
    file = write("m.textproto", mesh_text("2, 4").replace("[ 1, 1 ]", "[ 1, 3 ]"))
    result = run(file)
    lines = result.output.splitlines()
    assert lines[0] == "m.textproto (mesh graph descriptor): invalid"
    assert lines[1].startswith(
        "m.textproto:5: error: Device topology dimensions must be divisible by host topology dimensions (Mesh: M0)"
    )
    assert lines[1].endswith("]")
    assert lines[2] == "       5 |   host_topology { dims: [ 1, 3 ] }"
    assert lines[3].startswith("    fix: ")
    assert lines[-1] == "1 file: 1 error"
    assert "\x1b" not in result.output
    assert result.exit_code == 1


def test_what_only_the_runtime_refuses_is_told_apart(monkeypatch):
    assert lint([PODS])[0].verdict == "runs as one graph; silicon rejects"
    assert lint([PODS], runtime=False)[0].verdict == "valid"
    assert run(PODS).exit_code == 0
    monkeypatch.setenv("SOFTMESH_STRICT", "1")
    assert lint([PODS])[0].verdict == "parses; runtime rejects"
    assert run(PODS).exit_code == 1
    assert run(PODS, "--no-runtime").exit_code == 0


@pytest.mark.parametrize("config", ["FABRIC_1D", "FABRIC_1D_RING", "FABRIC_1D_NEIGHBOR_EXCHANGE"])
def test_a_1d_fabric_for_two_connected_meshes_is_an_error_at_the_connection(config):
    [report] = lint([TWO], fabric=config)
    finding = only(report, "fabric/1d-is-single-mesh")
    assert finding.message == f"1-D fabric is single-mesh: {config} carries nothing over M0 <-> M1"
    assert finding.line == 14
    assert finding.fix == "choose FABRIC_2D, or give each mesh a job of its own"
    assert report.verdict == f"valid; not for {config}"


def test_the_configurations_that_work_are_named_by_the_wraps_of_the_meshes(write):
    text = Path(TWO).read_text().replace("dims: [ 2, 2 ]", "dims: [ 4, 4 ] dim_types: [ LINE, RING ]")
    [report] = lint([write("m.textproto", text)], fabric="fabric_1d")
    fix = only(report, "fabric/1d-is-single-mesh").fix
    assert fix.startswith("choose FABRIC_2D or FABRIC_2D_TORUS_X,")


def test_a_torus_fabric_on_a_mesh_without_wraps_is_an_error_at_the_mesh(write):
    [report] = lint([write("m.textproto", mesh_text("8, 4"))], fabric=FabricConfig.FABRIC_2D_TORUS_XY)
    finding = only(report, "fabric/more-than-declared")
    assert "FabricConfig FABRIC_2D_TORUS_XY requests topology TORUS_XY which requires more" in finding.message
    assert finding.line is not None
    assert finding.severity is Severity.ERROR


@pytest.mark.parametrize(
    ("dims", "types", "why"),
    [("2, 4", "LINE, LINE", "no axis is declared RING"), ("2, 2", "RING, RING", "of one or two chips")],
)
def test_a_ring_fabric_without_a_wrap_is_a_warning(write, dims, types, why):
    [report] = lint([write("m.textproto", mesh_text(dims, types))], fabric="FABRIC_1D_RING")
    finding = only(report, "fabric/ring-without-wrap")
    assert finding.severity is Severity.WARNING
    assert why in finding.message
    assert not report.is_refused


def test_a_torus_over_a_short_axis_is_a_warning(write):
    [report] = lint([write("m.textproto", mesh_text("2, 4", "RING, RING"))], fabric="FABRIC_2D_TORUS_XY")
    assert "2 chips along its rows (N-S) cannot wrap" in only(report, "fabric/short-ring").message


@pytest.mark.parametrize(
    ("dims", "config", "limit"),
    [("32, 16", "FABRIC_1D", "256 chips"), ("1, 64", "FABRIC_2D", "32"), ("1, 66", "FABRIC_1D", "63 hops")],
)
def test_what_has_no_room_on_silicon_is_an_error(write, dims, config, limit):
    [report] = lint([write("m.textproto", mesh_text(dims))], fabric=config)
    assert report.is_refused
    assert any(limit in f.message for f in report.findings if f.rule == "fabric/limits")


def test_without_a_fabric_nothing_is_said_of_it_and_without_a_system_nothing_of_hardware(write):
    [report] = lint([write("m.textproto", mesh_text("1, 64"))])
    assert report.verdict == "valid"
    assert not report.findings


def test_a_descriptor_that_fits_comes_up_free_of_deadlock():
    assert lint([TWO], system="T3000")[0].verdict == "valid; fits T3000"
    assert lint([TWO], system="T3000", fabric="DISABLED")[0].verdict == "valid; fits T3000"
    [report] = lint([TWO], system="T3000", fabric="FABRIC_2D")
    assert report.verdict == "valid; comes up as FABRIC_2D on T3000"
    assert only(report, "fabric/deadlock").message.startswith("free of routing deadlock: ")


def test_a_descriptor_that_asks_for_more_than_the_machine_has_does_not_fit(write):
    for name, text in {
        "chips": mesh_text("4, 4"),
        "links": mesh_text("2, 4", count=4),
        "wraps": mesh_text("2, 4", "LINE, RING"),
    }.items():
        [report] = lint([write(f"{name}.textproto", text)], system="T3000")
        assert report.verdict == "valid; does not fit T3000"
        [error] = [f for f in report.findings if f.severity is Severity.ERROR]
        assert error.rule.startswith("match/")
        assert "Graph specified in MGD could not fit in the discovered physical topology." in error.message


def test_fewer_links_than_a_relaxed_mesh_wants_are_a_warning_and_keep_a_strict_fabric_down(write):
    file = write("m.textproto", mesh_text("2, 4", count=4, policy="RELAXED"))
    [report] = lint([file], system="T3000")
    assert only(report, "match/fewer-links").severity is Severity.WARNING
    assert not report.is_refused
    [report] = lint([file], system="T3000", fabric="FABRIC_2D")
    error = only(report, "fabric/bring-up")
    assert "Expected 4 eth links" in error.message
    assert error.fix.endswith("RELAXED_INIT): it comes up with 2 routing planes")


def test_a_link_that_is_down_keeps_a_strict_fabric_down(write):
    file = write("m.textproto", mesh_text("2, 4", policy="RELAXED"))
    assert run(file, "--system", "T3000", "--fabric", "FABRIC_2D").exit_code == 0
    one = load("T3000").links[0]
    down = f"link:{one.a.chip}/{one.a.channel}"
    result = run(file, "--system", "T3000", "--fabric", "FABRIC_2D", "--down", down)
    assert result.exit_code == 1
    assert "[fabric/bring-up]" in result.output


def test_a_descriptor_for_another_architecture_is_pointed_out(write):
    [report] = lint([write("m.textproto", mesh_text("2, 4", arch="BLACKHOLE"))], system="T3000")
    finding = only(report, "match/architecture")
    assert "BLACKHOLE" in finding.message
    assert "WORMHOLE_B0" in finding.message


def test_connections_between_meshes_and_between_chips_do_not_mix(write):
    text = Path(TWO).read_text()
    start = text.index("  connections {")
    end = text.index("}\ntop_level_instance")
    block = text[start:end]
    between_chips = block.replace("mesh_id: 0 }", "mesh_id: 0 device_id: 1 }").replace(
        "mesh_id: 1 }", "mesh_id: 1 device_id: 0 }"
    )
    file = write("m.textproto", text[:end] + between_chips + text[end:])
    [report] = lint([file])
    assert report.verdict == "parses; runtime rejects"
    finding = only(report, "mgd/mixed-connections")
    assert finding.severity is Severity.ERROR
    assert "must specify either RelaxedGraph or Graph connections, not both." in finding.message


def test_bindings_that_agree_with_their_descriptor_are_valid(monkeypatch):
    monkeypatch.chdir(FIXTURES)
    reports = lint(["big_mesh.yaml", "two_meshes.yaml", "both.yaml", "both_descriptors.yaml"])
    assert [report.verdict for report in reports] == [
        "valid",
        "valid; host ranks left unset",
        "valid",
        "valid",
    ]
    note = only(reports[1], "bindings/host-rank-unset")
    assert note.message == "host ranks left unset (rank 0, 1): the solver assigns them"


def test_a_descriptor_the_runtime_refuses_is_an_error_of_its_bindings(monkeypatch):
    monkeypatch.chdir(FIXTURES)
    assert not errors(lint(["pods.yaml"])[0])  # a job runs it as one graph
    monkeypatch.setenv("SOFTMESH_STRICT", "1")
    [report] = lint(["pods.yaml"])
    assert errors(report) == [("bindings/descriptor", 6)]
    assert "There can only be one FABRIC level graph" in only(report, "bindings/descriptor").message
    assert only(report, "bindings/host-rank-unset").severity is Severity.NOTE


@pytest.mark.parametrize(
    ("entries", "descriptor", "rule", "line", "message"),
    [
        (
            ["{rank: 0, mesh_id: 0, mesh_host_rank: 0}", "{rank: 1, mesh_id: 2}"],
            BIG,
            "bindings/unknown-mesh",
            3,
            "Invalid TT_MESH_ID: Local mesh binding mesh_id 2 not found in mesh graph descriptor",
        ),
        (
            ["{rank: 0, mesh_id: 0}", "{rank: 1, mesh_id: 0, mesh_host_rank: 2}"],
            BIG,
            "bindings/unknown-host-rank",
            3,
            "Invalid TT_MESH_HOST_RANK: Local mesh binding host_rank 2 not found in mesh graph descriptor",
        ),
        (
            ["{rank: 0, mesh_id: 0, mesh_host_rank: 1}", "{rank: 1, mesh_id: 0, mesh_host_rank: 1}"],
            BIG,
            "bindings/claimed-twice",
            3,
            "rank 1 claims host rank 1 of mesh 0, which rank 0 has already",
        ),
        (
            ["{rank: 0, mesh_id: 0, mesh_host_rank: 1}"],
            BIG,
            "bindings/unclaimed",
            1,
            "mesh 0 has 2 host ranks (host_topology 1x2), 1 of them claimed, missing 0",
        ),
        (["{rank: 0, mesh_id: 0}"], TWO, "bindings/unclaimed", 1, "mesh 1 of the descriptor has no rank"),
        (
            ["{rank: 0, mesh_id: 0}", "{rank: 1, mesh_id: 1}", "{rank: 2, mesh_id: 1}"],
            TWO,
            "bindings/too-many-ranks",
            4,
            "2 ranks are bound to mesh 1, whose host_topology 1x1 has room for 1",
        ),
    ],
)
def test_bindings_that_disagree_with_their_descriptor(write, entries, descriptor, rule, line, message):
    text = "rank_bindings:\n" + "".join(f"- {entry}\n" for entry in entries)
    [report] = lint([write("b.yaml", f"{text}mesh_graph_desc_path: {descriptor}\n")])
    finding = only(report, rule)
    assert message in finding.message
    assert (finding.line, finding.severity) == (line, Severity.ERROR)
    assert finding.fix
    assert report.verdict == "disagrees with its mesh graph descriptor"


def seeing(*devices: str) -> str:
    """Bindings of the two-mesh descriptor, each rank with its visible devices."""
    ranks = "".join(
        f'- {{rank: {i}, mesh_id: {i}, mesh_host_rank: 0, env_overrides: {{TT_VISIBLE_DEVICES: "{listed}"}}}}\n'
        for i, listed in enumerate(devices)
    )
    return f"rank_bindings:\n{ranks}mesh_graph_desc_path: {TWO}\n"


def test_ranks_of_one_host_may_not_share_chips(write):
    file = write("b.yaml", seeing("0,1", "1,2"))
    assert not lint([file])[0].is_refused
    [report] = lint([file], system="T3000")
    finding = only(report, "bindings/shared-devices")
    assert finding.line == 3
    assert finding.message.startswith("rank 1 lists chip 1, 5 in TT_VISIBLE_DEVICES, as rank 0 does")


def test_ranks_that_share_a_host_should_list_their_chips(write):
    text = f"rank_bindings: [{{rank: 0, mesh_id: 0}}, {{rank: 1, mesh_id: 1}}]\nmesh_graph_desc_path: {TWO}\n"
    finding = only(lint([write("b.yaml", text)], system="T3000")[0], "bindings/all-visible")
    assert finding.severity is Severity.WARNING
    assert finding.message.startswith("2 ranks on the one host of T3000, and rank 0 sees every chip")


def test_visible_devices_for_all_ranks_count_for_each(write):
    text = f"rank_bindings: [{{rank: 0, mesh_id: 0}}, {{rank: 1, mesh_id: 1}}]\nmesh_graph_desc_path: {TWO}\n"
    [report] = lint([write("b.yaml", text + 'global_env: {TT_VISIBLE_DEVICES: "0,1"}\n')], system="T3000")
    assert only(report, "bindings/shared-devices").severity is Severity.ERROR


def test_ranks_of_several_hosts_may_list_the_same_numbers(write):
    assert not any(
        finding.rule == "bindings/shared-devices"
        for finding in lint([write("b.yaml", seeing("0,1", "0,1"))], system="Closetbox")[0].findings
    )


def test_a_rank_must_see_enough_chips_for_its_block(write):
    few = write("b.yaml", seeing("0", "2,3"))
    finding = only(lint([few])[0], "bindings/too-few-devices")
    assert "sees at most 2 chips, on boards of two, too few for its 2x2 block of mesh 0" in finding.message
    finding = only(lint([few], system="T3000")[0], "bindings/too-few-devices")
    assert "sees 2 chips of T3000, too few for its 2x2 block of mesh 0, which has 4" in finding.message


@pytest.mark.parametrize(("listed", "system"), [("0,nine", None), ("0,99", "T3000")])
def test_visible_devices_that_are_none_are_an_error(write, listed, system):
    [report] = lint([write("b.yaml", seeing(listed, "2,3"))], system=system)
    assert only(report, "bindings/visible-devices").line == 2


def test_a_mapping_tells_which_of_its_files_is_refused(write):
    write("bad.yaml", "rank_bindings: []\nmesh_graph_desc_path: gone.textproto\n")
    file = write("map.yaml", f"subcontext_id_to_rank_bindings:\n  0: {FIXTURES / 'big_mesh.yaml'}\n  1: bad.yaml\n")
    [report] = lint([file])
    assert errors(report) == [("bindings/sub-context", 3)]
    assert "List should have at least 1 item" in report.findings[0].message
    assert report.findings[0].fix == "softmesh lint bad.yaml"


def test_sub_contexts_on_one_host_may_not_share_chips():
    [report] = lint([FIXTURES / "both.yaml"], system="T3000")
    assert errors(report) == [("bindings/shared-devices", 3)] * 2


def test_a_descriptor_mapping_tells_which_descriptor_is_refused(write, monkeypatch):
    monkeypatch.setenv("SOFTMESH_STRICT", "1")
    file = write("map.yaml", f"subcontext_id_to_mesh_graph_descriptor:\n  0: {BIG}\n  1: {PODS}\n")
    assert errors(lint([file])[0]) == [("bindings/sub-context", 3)]


def test_cluster_descriptors_are_loaded(write):
    good = write("t3k.yaml", descriptor_text(load("T3000")))
    bad = write("bad.yaml", "arch: {0: wormhole_b0}\nethernet_connections: [[{chip: 0, chan: 99}]]\n")
    reports = lint([good, bad])
    assert [(report.kind, report.is_refused) for report in reports] == [
        ("cluster descriptor", False),
        ("cluster descriptor", True),
    ]
    assert only(reports[0], "cluster/summary").message.startswith("T3K: 8 chips on 1 host, 20 links between 10 pairs")


@pytest.mark.parametrize(
    ("name", "text", "rule"),
    [
        ("a.txt", "hello\n", "lint/unknown-kind"),
        ("a.yaml", "", "bindings/not-a-map"),
        ("a.yaml", "rank_bindings: [\n", "bindings/syntax"),
        ("old.yaml", "ChipSpec: {arch: wormhole_b0}\nMesh: []\n", "mgd/suffix"),
        ("a.textproto", "mesh_descriptors {\n", "mgd/syntax"),
        ("a.textproto", "", "mgd/no-mesh"),
    ],
)
def test_what_is_no_such_file_is_a_finding(write, name, text, rule):
    [report] = lint([write(name, text)])
    assert report.is_refused
    assert rule in {finding.rule for finding in report.findings}


def test_files_that_cannot_be_decoded_are_a_finding(write):
    Path("b.textproto").write_bytes(b"mesh_descriptors {\n\xff}")
    assert lint(["b.textproto"])[0].is_refused


def test_json_is_one_document_and_nothing_else(write):
    file = write("b.yaml", "rank_bindings: []\nmesh_graph_desc_path: gone\n")
    result = run(file, BIG, "--json")
    document: dict[str, Any] = json.loads(result.stdout)
    assert result.exit_code == 1
    assert [(one["file"], one["kind"], one["verdict"]) for one in document["files"]] == [
        ("b.yaml", "rank bindings", "invalid"),
        (BIG, "mesh graph descriptor", "valid"),
    ]
    assert document["files"][0]["findings"][0] == {
        "rule": "bindings/no-ranks",
        "severity": "error",
        "message": "rank_bindings: List should have at least 1 item after validation, not 0",
        "fix": "add `- {rank: 0, mesh_id: 0}`",
        "file": "b.yaml",
        "line": 1,
    }
    assert document["summary"] == {"files": 2, "errors": 2, "warnings": 0, "notes": 0}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "Missing argument"),
        (["gone.textproto"], "gone.textproto does not exist"),
        ([os.fspath(FIXTURES)], "is not a file"),
        ([BIG, "--system", "T300"], "Did you mean 'T3000'?"),
        ([BIG, "--fabric", "FABRIC_2"], "Did you mean 'FABRIC_2D'?"),
        ([BIG, "--down", "chip:1"], "say which (--system T3000)"),
        ([BIG, "--system", "T3000", "--down", "chip"], "names nothing that can be down"),
        ([BIG, "--colour"], "No such option"),
    ],
)
def test_wrong_usage_exits_with_2_and_prints_nothing_to_stdout(arguments, message):
    result = run(*arguments)
    assert result.exit_code == 2
    assert message in result.stderr
    assert result.stdout == ""


def test_the_core_raises_where_it_is_called_wrongly():
    with pytest.raises(ArgumentValueError, match="There is no fabric config"):
        lint([BIG], fabric="2D")
    with pytest.raises(MeshError, match="No system is called"):
        lint([BIG], system="nowhere")


def test_names_and_lines_of_files_are_shown_without_what_a_terminal_would_obey(tmp_path):
    file = tmp_path / "mesh\x1b[31m.textproto"
    file.write_text("mesh_descriptors {\n  nam\x1b[2J: 3\n}\n")
    found = CliRunner().invoke(command, [str(file)]).output
    assert "\x1b" not in found
    assert "\\x1b[31m" in found
