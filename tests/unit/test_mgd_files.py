"""Files that are no descriptors: missing, of another format, broken, huge. Each is a finding with a remedy."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from descriptors import mesh, two_meshes
from warm_python import warm_python

from softmesh.errors import MeshError
from softmesh.fabric.descriptors.loader import LARGEST, DescriptorError, check, check_text, load_mesh_graph


def written(folder: Path, content: bytes, name: str = "x.textproto") -> Path:
    path = folder / name
    path.write_bytes(content)
    return path


def refusal(path: Path) -> DescriptorError:
    with pytest.raises(DescriptorError) as refused:
        load_mesh_graph(path)
    (finding,) = refused.value.findings
    assert finding.file == str(path)
    assert finding.fix
    return refused.value


def test_a_missing_file_is_named(tmp_path):
    assert f"Cannot read {tmp_path / 'no.textproto'}: there is no such file" in str(refusal(tmp_path / "no.textproto"))


def test_a_folder_and_a_pipe_are_not_files(tmp_path):
    folder, pipe = tmp_path / "folder.textproto", tmp_path / "pipe.textproto"
    folder.mkdir()
    os.mkfifo(pipe)
    for path in (folder, pipe):
        assert "it is not a file" in str(refusal(path))


def test_the_older_yaml_format_is_told_by_its_name(tmp_path):
    path = written(tmp_path, b"ChipSpec: {}", "t3k.yaml")
    assert "the older YAML format (MGD 1.0) is no longer accepted" in str(refusal(path))


def test_text_that_is_not_utf8_is_refused_with_its_line(tmp_path):
    path = written(tmp_path, b'# fine\nmesh_descriptors { name: "\xff" }')
    assert refusal(path).findings[0].line == 2


def test_huge_files_are_not_read_to_the_end(tmp_path):
    assert refusal(written(tmp_path, b"#" * (LARGEST + 1))).findings[0].rule == "mgd/too-large"


@pytest.mark.parametrize(
    ("text", "line", "reason"),
    [
        ("mesh_descriptors {\n  name: 'M0'\n", 2, 'Expected "}"'),
        ("mesh_descriptors {\n  arch: WORMHOLE\n}", 2, "has no value named WORMHOLE"),
        ("mesh_descriptors {\n  channels { count: many } }", 2, "many"),
        ("mesh_descriptors { channels { count: 99999999999 } }", 1, "out of range"),
        ("pinnings { logical_fabric_node_id { mesh_id: -1 } }", 1, "out of range"),
        ("a" * 20_000, 1, ""),
        ('mesh_descriptors { name: "', 1, ""),
        ("}", 1, ""),
        ("\x00", 1, ""),
    ],
)
def test_syntax_errors_are_told_with_line_and_reason(text, line, reason):
    checked = check_text(text)
    (finding,) = checked.findings
    assert finding.message.startswith("Failed to parse MeshGraphDescriptor textproto: ")
    assert reason in finding.message
    assert len(finding.message) < 1000
    assert (finding.rule, finding.line) == ("mgd/syntax", line)


def test_an_unknown_enum_value_is_answered_with_the_known_ones():
    (finding,) = check_text("mesh_descriptors { arch: WORMHOLE }").findings
    assert finding.fix == "the values are WORMHOLE_B0, BLACKHOLE. Did you mean 'WORMHOLE_B0'?"


@pytest.mark.parametrize(
    ("text", "rule"), [("\n" * (LARGEST + 1), "mgd/too-large"), ("\n" + "a: 1 " * 10_000, "mgd/long-line")]
)
def test_texts_that_would_take_for_ever_are_refused(text, rule):
    assert [finding.rule for finding in check_text(text).findings] == [rule]


def test_deep_nesting_is_told_and_not_followed():
    (finding,) = check_text("unknown {\n" * 100_000).findings
    assert (finding.rule, finding.line) == ("mgd/too-deep", 65)


def test_an_empty_file_lacks_everything(tmp_path):
    with pytest.raises(MeshError, match="There must be at least one mesh descriptor or switch descriptor"):
        load_mesh_graph(written(tmp_path, b""))


def test_windows_line_ends_and_a_large_file_are_no_trouble(tmp_path):
    comment = "# a long story\r\n" * 20_000
    path = written(tmp_path, (comment + two_meshes().replace("\n", "\r\n")).encode())
    checked = check(path)
    assert checked.graph is not None
    assert checked.graph.meshes[0].line > 20_000


def test_notes_come_with_a_graph_and_errors_without(tmp_path):
    path = written(tmp_path, (two_meshes() + mesh("Spare")).encode())
    checked = check(path)
    assert checked.graph is not None
    assert [(finding.severity.value, finding.file) for finding in checked.findings] == [("note", str(path))]


def test_protobuf_loads_only_when_a_descriptor_is_read():
    script = "import softmesh, sys; print('google.protobuf' in sys.modules)"
    assert subprocess.run([*warm_python(), "-c", script], capture_output=True, text=True).stdout == "False\n"
