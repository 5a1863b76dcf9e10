"""Rank binding files: what they mean, and what is said about those that mean nothing."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from softmesh.input_files.text_files import Finding, Severity, errors_of
from softmesh.processes.bindings.mapping_files import (
    MOCKS,
    load_descriptor_mapping,
    load_mock_mapping,
    load_subcontexts,
    read_mapping,
)
from softmesh.processes.bindings.rank_bindings import BindingsError, RankBindings, load, read

FIXTURES = Path(__file__).parents[1] / "fixtures" / "bindings"
AT_HOME = {"TT_METAL_HOME": str(FIXTURES)}
DESCRIPTOR = "mesh_graph_desc_path: big_mesh.textproto\n"


def loaded(tmp_path: Path, text: str, environ: dict[str, str] | None = None) -> RankBindings:
    file = tmp_path / "bindings.yaml"
    file.write_text(text)
    return load(file, environ=AT_HOME if environ is None else environ)


def refusal(tmp_path: Path, text: str) -> BindingsError:
    with pytest.raises(BindingsError) as caught:
        loaded(tmp_path, text)
    assert str(caught.value).startswith("Configuration error: Invalid configuration: ")
    assert all(finding.rule.startswith("bindings/") for finding in caught.value.findings)
    return caught.value


def findings_of(tmp_path: Path, text: str) -> list[Finding]:
    file = tmp_path / "bindings.yaml"
    file.write_text(text)
    return list(read(file, environ=AT_HOME).findings)


def test_each_rank_gets_its_mesh_its_host_rank_and_its_environment():
    bindings = load(FIXTURES / "big_mesh.yaml", environ={**AT_HOME, "SCRATCH": "/scratch"})
    assert [(b.rank, b.mesh_id, b.mesh_host_rank) for b in bindings.bindings] == [(0, 0, 0), (1, 0, 1)]
    assert bindings.bindings[0].env_overrides == {"TT_VISIBLE_DEVICES": "0,1", "CACHE": "/scratch/rank0"}
    assert bindings.bindings[1].visible_devices == "2,3"
    assert bindings.global_env == {"TT_LOGGER_LEVEL": "Info"}
    assert bindings.mesh_graph_desc_path == "big_mesh.textproto"
    assert bindings.descriptor == FIXTURES / "big_mesh.textproto"
    assert bindings.size == 2


def test_a_host_rank_may_be_left_to_the_solver(tmp_path):
    text = "rank_bindings: [{rank: 0, mesh_id: 0}, {rank: 1, mesh_id: 0, mesh_host_rank: null}]\n"
    assert [b.mesh_host_rank for b in loaded(tmp_path, text + DESCRIPTOR).bindings] == [None, None]


def test_numbers_in_quotes_count_as_numbers(tmp_path):
    text = 'rank_bindings: [{rank: "0", mesh_id: " 3 ", mesh_host_rank: 1.0}]\n'
    binding = loaded(tmp_path, text + DESCRIPTOR).bindings[0]
    assert (binding.rank, binding.mesh_id, binding.mesh_host_rank) == (0, 3, 1)


def test_a_variable_that_is_not_set_stays_as_written_and_is_noted(tmp_path):
    text = 'rank_bindings: [{rank: 0, mesh_id: 0, env_overrides: {A: "$HERE/${GONE}"}}]\n' + DESCRIPTOR
    environ = {**AT_HOME, "HERE": "h"}
    assert loaded(tmp_path, text, environ).bindings[0].env_overrides == {"A": "h/${GONE}"}
    notes = read(tmp_path / "bindings.yaml", environ=environ).findings
    assert [(note.rule, note.severity, note.line) for note in notes] == [("bindings/unset-variable", Severity.NOTE, 1)]


def test_unknown_keys_are_ignored_and_noted_and_a_slip_is_a_warning(tmp_path):
    text = "rank_bindings: [{rank: 0, mesh_id: 0, colour: red}]\nmesh_graph_desc: x\n" + DESCRIPTOR
    found = findings_of(tmp_path, text)
    assert [(finding.severity, finding.line) for finding in found] == [
        (Severity.WARNING, 2),
        (Severity.NOTE, 1),
    ]
    assert "Did you mean 'mesh_graph_desc_path'?" in found[0].message


def test_a_key_written_twice_is_a_warning(tmp_path):
    found = findings_of(tmp_path, "rank_bindings:\n- rank: 0\n  mesh_id: 0\n  mesh_id: 1\n" + DESCRIPTOR)
    assert [(finding.rule, finding.line) for finding in found] == [("bindings/repeated-key", 4)]


@pytest.mark.parametrize("name", ["TT_METAL_VISIBLE_DEVICES", "TT_MESH_ID", "TT_MESH_HOST_RANK"])
def test_variables_that_mislead_are_a_warning(tmp_path, name):
    text = f'rank_bindings: [{{rank: 0, mesh_id: 0}}]\n{DESCRIPTOR}global_env:\n  {name}: "0"\n'
    assert [(f.rule, f.severity, f.line) for f in findings_of(tmp_path, text)] == [
        ("bindings/misleading-variable", Severity.WARNING, 4)
    ]


def test_of_merged_keys_the_own_one_counts_and_then_the_first(tmp_path):
    text = (
        "rank_bindings:\n- &a {rank: 0, mesh_id: 2}\n- &b {mesh_id: 3, mesh_host_rank: 4, <<: *a, rank: 1}\n"
        "- {<<: [*b, *a], rank: 2}\n"
    )
    found = [(b.rank, b.mesh_id, b.mesh_host_rank) for b in loaded(tmp_path, text + DESCRIPTOR).bindings]
    assert found == [(0, 2, None), (1, 3, 4), (2, 3, 4)]


def test_merge_keys_and_aliases_are_followed(tmp_path):
    text = "rank_bindings:\n- &first {rank: 0, mesh_id: 2}\n- {<<: *first, rank: 1}\n" + DESCRIPTOR
    assert [(b.rank, b.mesh_id) for b in loaded(tmp_path, text).bindings] == [(0, 2), (1, 2)]


@pytest.mark.parametrize(
    ("text", "message", "line"),
    [
        ("[{rank: 0, mesh_id: 0}, {rank: 0, mesh_id: 1}]", "Duplicate ranks found in bindings", 1),
        (
            "[{rank: 0, mesh_id: 0},\n {rank: 2, mesh_id: 1}]",
            "Ranks must be contiguous from 0. Got: [0, 2]",
            2,
        ),
        ("[{rank: 1, mesh_id: 0}]", "Ranks must be contiguous from 0. Got: [1]", 1),
        ("[]", "List should have at least 1 item after validation, not 0", 1),
        ("7", "rank_bindings: Input should be a valid list", 1),
        ("[7]", "rank_bindings.0: Input should be a valid dictionary or instance of RankBinding", 1),
        ("\n- rank: 0", "rank_bindings.0.mesh_id: Field required", 2),
        ("\n- mesh_id: 0", "rank_bindings.0.rank: Field required", 2),
        (
            "\n- rank: 0\n  mesh_id: -1",
            "rank_bindings.0.mesh_id: Input should be greater than or equal to 0",
            3,
        ),
        (
            "\n- rank: zero\n  mesh_id: 0",
            "rank_bindings.0.rank: Input should be a valid integer, unable to parse string as an integer",
            2,
        ),
        (
            "\n- rank: 0\n  mesh_id: 0.5",
            "rank_bindings.0.mesh_id: Input should be a valid integer, got a number with a fractional part",
            3,
        ),
        ("\n- {rank: 0, mesh_id: .inf}", "rank_bindings.0.mesh_id: Input should be a finite number", 2),
        ("\n- {rank: 0, mesh_id: [0]}", "rank_bindings.0.mesh_id: Input should be a valid integer", 2),
        (
            "\n- rank: 0\n  mesh_id: 0\n  env_overrides:\n    TT_VISIBLE_DEVICES: 0",
            "rank_bindings.0.env_overrides.TT_VISIBLE_DEVICES: Input should be a valid string",
            5,
        ),
        (
            "\n- {rank: 0, mesh_id: 0, env_overrides: }",
            "rank_bindings.0.env_overrides: Input should be a valid dictionary",
            2,
        ),
        (
            '\n- {rank: 0, mesh_id: 0, env_overrides: {1: "x"}}',
            "rank_bindings.0.env_overrides.1.[key]: Input should be a valid string",
            2,
        ),
        (
            '\n- {rank: 0, mesh_id: 0, env_overrides: {"A=B": "x"}}',
            "rank_bindings.0.env_overrides.A=B: a variable has a name, and no = in it",
            2,
        ),
    ],
)
def test_what_is_wrong_with_a_binding_is_said_with_its_path_and_line(tmp_path, text, message, line):
    error = refusal(tmp_path, f"rank_bindings: {text}\n{DESCRIPTOR}")
    assert message in error.findings[0].message
    assert message in str(error)
    assert error.findings[0].line == line


def test_a_number_where_a_string_belongs_is_shown_in_quotes(tmp_path):
    error = refusal(tmp_path, "rank_bindings: [{rank: 0, mesh_id: 0}]\nglobal_env: {LEVEL: 3}\n" + DESCRIPTOR)
    assert error.findings[0].fix == 'put it in quotes: "3"'


def test_everything_wrong_is_said_at_once(tmp_path):
    error = refusal(tmp_path, "rank_bindings:\n- rank: x\n- mesh_id: -3\nglobal_env: [1]\n")
    assert {finding.rule for finding in error.findings} == {
        "bindings/not-an-integer",
        "bindings/missing-key",
        "bindings/negative",
        "bindings/not-a-map",
    }
    assert len(error.findings) == 6


def test_the_descriptor_must_be_named_and_must_be_there(tmp_path):
    one_rank = "rank_bindings: [{rank: 0, mesh_id: 0}]\n"
    assert "mesh_graph_desc_path: Field required" in str(refusal(tmp_path, one_rank))
    missing = refusal(tmp_path, one_rank + "mesh_graph_desc_path: gone.textproto\n")
    assert "Mesh graph descriptor not found: gone.textproto" in str(missing)
    assert f"Searched in: [{FIXTURES}, {os.getcwd()}]" in str(missing)
    assert "Tip: Use an absolute path" in str(missing)
    assert missing.findings[0].line == 2


def test_the_descriptor_need_not_be_there_when_nobody_checks(tmp_path):
    file = tmp_path / "bindings.yaml"
    file.write_text("rank_bindings: [{rank: 0, mesh_id: 0}]\nmesh_graph_desc_path: gone.textproto\n")
    assert load(file, environ={}, check_descriptor=False).descriptor is None


def test_paths_are_sought_at_home_then_where_the_launch_was_then_here(tmp_path, monkeypatch):
    places = [tmp_path / name for name in ("home", "launch", "here")]
    for place in places:
        place.mkdir()
        (place / "m.textproto").write_text("")
    text = "rank_bindings: [{rank: 0, mesh_id: 0}]\nmesh_graph_desc_path: m.textproto\n"
    monkeypatch.chdir(tmp_path / "here")
    environ = {"TT_METAL_HOME": str(places[0]), "TT_RUN_ORIGINAL_CWD": str(places[1])}
    for place in places:
        assert loaded(tmp_path, text, environ).descriptor == place / "m.textproto"
        (place / "m.textproto").unlink()


def test_beside_looks_above_the_file_and_says_where_to_start_from(tmp_path):
    folder = tmp_path / "configurations" / "pair"
    folder.mkdir(parents=True)
    (folder / "mgd.textproto").write_text("")
    file = folder / "ranks.yaml"
    path = "configurations/pair/mgd.textproto"
    file.write_text(f"rank_bindings: [{{rank: 0, mesh_id: 0}}]\nmesh_graph_desc_path: {path}\n")
    assert read(file, environ={}).bindings is None
    result = read(file, environ={}, beside=True)
    assert result.bindings is not None
    assert result.bindings.descriptor == folder / "mgd.textproto"
    assert [finding.rule for finding in result.findings] == ["bindings/descriptor-beside"]
    assert str(tmp_path) in result.findings[0].fix


def test_ranks_out_of_order_are_sorted_and_warned_about(tmp_path):
    text = "rank_bindings:\n- {rank: 1, mesh_id: 1}\n- {rank: 0, mesh_id: 0}\n" + DESCRIPTOR
    assert [b.rank for b in loaded(tmp_path, text).bindings] == [0, 1]
    assert [(f.rule, f.severity, f.line) for f in findings_of(tmp_path, text)] == [
        ("bindings/rank-order", Severity.WARNING, 2)
    ]


@pytest.mark.parametrize("text", ["", "# nothing\n", "- 1\n", "just words\n", "~\n"])
def test_a_file_that_is_no_map_is_refused_in_the_launchers_words(tmp_path, text):
    assert "Input should be a valid dictionary or instance of TTRunConfig" in str(refusal(tmp_path, text))


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("rank_bindings: [\n", "bindings/syntax"),
        ("a: 'open\n", "bindings/syntax"),
        ("a: !!python/object:os.system x\n", "bindings/syntax"),
        ("a: !!int x\n", "bindings/syntax"),
        ("? [1, 2]\n: 3\n", "bindings/syntax"),
        ("<<: 3\n", "bindings/syntax"),
        ("a: *nobody\n", "bindings/syntax"),
        ("a: 1\n---\nb: 2\n", "bindings/syntax"),
        ("a: \x07\n", "bindings/syntax"),
        ("a: &x 1\nb: &x 2\n", "bindings/syntax"),
        ("a: 1" + ":1" * 1_000_000, "bindings/syntax"),
        ("a: {0x" + "f" * 5000 + ": 1}", "bindings/syntax"),
        ("a0: &a0 [x]\n" + "".join(f"a{i}: &a{i} [*a{i - 1}]\n" for i in range(1, 40)), "bindings/too-large"),
        ("a: 2001-99-99\n", "bindings/syntax"),
        ("a: " + "[" * 40 + "]" * 40, "bindings/too-large"),
        ("a: " + "[" * 100_000, "bindings/too-large"),
        ("a: &a [*a]\n", "bindings/too-large"),
        ("a: &a {<<: *a}\n", "bindings/too-large"),
        (
            "a0: &a0 [x]\n" + "".join(f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]\n" for i in range(1, 9)),
            "bindings/too-large",
        ),
        ("a: [" + "1," * 250_000 + "]", "bindings/too-large"),
        ("#" * (5 * 2**20), "bindings/too-large"),
    ],
)
def test_bad_yaml_is_refused_before_it_costs_anything(tmp_path, text, rule):
    assert [finding.rule for finding in refusal(tmp_path, text).findings] == [rule]


def test_files_that_cannot_be_read_are_refused(tmp_path):
    (tmp_path / "bytes.yaml").write_bytes(b"rank_bindings:\n\xff\xfe")
    for path in (tmp_path, tmp_path / "bytes.yaml", tmp_path / "none.yaml", tmp_path / ("x" * 300), "a\0b"):
        with pytest.raises(BindingsError, match="Configuration error"):
            load(path, environ={})
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    assert "not a plain file" in read(pipe).findings[0].message


def test_a_missing_file_says_where_it_was_sought():
    with pytest.raises(BindingsError, match=r"Configuration file not found: gone\.yaml") as caught:
        load("gone.yaml", environ=AT_HOME)
    assert "Searched in: [" in str(caught.value)


def test_sub_contexts_are_merged_in_the_order_of_their_ids():
    merged = load_subcontexts(FIXTURES / "both.yaml", environ=AT_HOME)
    assert [(b.rank, b.mesh_id, b.subcontext_id, b.subcontext_size) for b in merged.bindings] == [
        (0, 0, 0, 2),
        (1, 0, 0, 2),
        (2, 0, 1, 2),
        (3, 1, 1, 2),
    ]
    assert [Path(b.mesh_graph_desc_path or "").name for b in merged.bindings] == [
        *["big_mesh.textproto"] * 2,
        *["two_meshes.textproto"] * 2,
    ]
    assert merged.global_env == {"TT_LOGGER_LEVEL": "Info", "TT_RUN_SUBCONTEXT_SIZES": "2,2"}


def test_sub_contexts_must_agree_on_the_environment_of_all_ranks(tmp_path):
    for i in (0, 1):
        (tmp_path / f"{i}.yaml").write_text(
            f'rank_bindings: [{{rank: 0, mesh_id: 0}}]\nglobal_env: {{K: "{i}"}}\n{DESCRIPTOR}'
        )
    (tmp_path / "map.yaml").write_text("subcontext_id_to_rank_bindings: {0: 0.yaml, 1: 1.yaml}\n")
    with pytest.raises(BindingsError, match="global_env conflict on key 'K' between sub-contexts"):
        load_subcontexts(tmp_path / "map.yaml", environ=AT_HOME)


def test_sub_context_ids_are_dense(tmp_path):
    for name in ("a", "b"):
        (tmp_path / f"{name}.yaml").write_text("rank_bindings: [{rank: 0, mesh_id: 0}]\n" + DESCRIPTOR)
    (tmp_path / "map.yaml").write_text("subcontext_id_to_rank_bindings: {0: a.yaml, 2: b.yaml}\n")
    message = r"keys must be dense and monotonic starting at 0 \(expected \[0, 1\], got \[0, 2\]\)"
    with pytest.raises(BindingsError, match=message):
        load_subcontexts(tmp_path / "map.yaml", environ=AT_HOME)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{}", "must name at least one file"),
        ("{a: x.yaml}", "unable to parse string as an integer"),
        ("{-1: x.yaml}", "greater than or equal to 0"),
        ("{0: 7}", "Input should be a valid string"),
        ("{0: gone.yaml}", "Rank bindings for sub-context 0 not found: gone.yaml"),
        ("{0: map.yaml}", "rank_bindings: Field required"),
    ],
)
def test_what_is_wrong_with_a_mapping_is_said(tmp_path, text, message):
    (tmp_path / "map.yaml").write_text(f"subcontext_id_to_rank_bindings: {text}\n")
    with pytest.raises(BindingsError) as caught:
        load_subcontexts(tmp_path / "map.yaml", environ=AT_HOME)
    assert message in str(caught.value)


def test_descriptor_mappings_name_a_file_for_each_sub_context():
    files = load_descriptor_mapping(FIXTURES / "both_descriptors.yaml", environ={})
    assert {id: file.name for id, file in files.items()} == {
        0: "big_mesh.textproto",
        1: "two_meshes.textproto",
    }


def test_a_mock_mapping_names_a_descriptor_for_each_rank(tmp_path):
    (tmp_path / "box.yaml").write_text("arch: {}\n")
    (tmp_path / "map.yaml").write_text(f"{MOCKS}: {{0: box.yaml, 1: gone.yaml}}\n")
    with pytest.raises(BindingsError, match=r"Mock cluster descriptor for rank 1 not found: gone\.yaml"):
        load_mock_mapping(tmp_path / "map.yaml", environ={})
    (tmp_path / "map.yaml").write_text(f"{MOCKS}: {{0: box.yaml, 1: box.yaml}}\n")
    assert load_mock_mapping(tmp_path / "map.yaml", environ={}) == dict.fromkeys((0, 1), tmp_path / "box.yaml")


def test_errors_of_a_mapping_carry_the_line_of_the_entry(tmp_path):
    (tmp_path / "map.yaml").write_text(f"{MOCKS}:\n  0: gone.yaml\n  1: lost.yaml\n")
    found = errors_of(read_mapping(tmp_path / "map.yaml", MOCKS, environ={}).findings)
    assert [finding.line for finding in found] == [2, 3]
