"""Auto allocation: from a mesh graph descriptor to rank bindings, once for each question."""

from __future__ import annotations

import hashlib
import shlex
import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from softmesh.fabric.descriptors.loader import load_mesh_graph
from softmesh.processes.bindings.machine_split import allocate
from softmesh.processes.bindings.mapping_files import load_mock_mapping, load_subcontexts
from softmesh.processes.bindings.rank_bindings import load as load_bindings
from softmesh.processes.launcher.auto_allocation import folder_for, mapping_bytes, real_cluster, request_key
from softmesh.processes.launcher.console import LaunchError
from softmesh.processes.launcher.tt_run import tt_run
from softmesh.systems.named_systems import load

FIXTURES = Path(__file__).parents[1] / "fixtures"
PAIR = str(FIXTURES / "bindings" / "two_meshes.textproto")
SHARED = str(FIXTURES / "mgd" / "t3k_two_hosts.textproto")
BOTH = str(FIXTURES / "bindings" / "both_descriptors.yaml")
SPLIT_GALAXY = str(FIXTURES / "mgd" / "split_galaxy.textproto")
T3000_MOCK = str(FIXTURES / "cluster_descriptors" / "t3k.yaml")
NEVER = "/bin/false"  # a program for launches that end before one starts


@pytest.fixture(autouse=True)
def launch_directory(monkeypatch, tmp_path) -> Path:
    monkeypatch.chdir(tmp_path)
    for name in ("TT_RUN_ORIGINAL_CWD", "TT_METAL_HOME", "SOFTMESH_SYSTEM", "SOFTMESH_DOWN"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


@pytest.fixture
def launches(monkeypatch) -> list[list[str]]:
    """The command lines that would have run."""
    from softmesh.processes.launcher import tt_run
    from softmesh.processes.launcher.job_process import Outcome

    commands: list[list[str]] = []

    def noted(words: list[str], *_: object) -> Outcome:
        commands.append(words)
        return Outcome(0, was_stopped=False)

    monkeypatch.setattr(tt_run, "run", noted)
    return commands


def invoked(*arguments: str) -> Result:
    return CliRunner().invoke(tt_run, [*arguments, NEVER])


def folder() -> Path:
    (found,) = Path("generated/ttrun").iterdir()
    return found


def test_a_descriptor_and_a_system_are_enough(launches):
    result = invoked("-m", PAIR, "--system", "T3000")
    assert result.exit_code == 0, result.output
    bindings = load_bindings(folder() / "rank_bindings.yaml")
    assert [(b.rank, b.mesh_id, b.mesh_host_rank) for b in bindings.bindings] == [(0, 0, 0), (1, 1, 0)]
    assert sorted(b.visible_devices for b in bindings.bindings) == ["0,1", "2,3"]
    assert "SOFTMESH_SYSTEM=T3000" in launches[0]
    assert "localhost:2" in launches[0]


def test_the_folder_holds_all_that_a_second_launch_needs(launches):
    invoked("-m", PAIR, "--mock-cluster-rank-binding", T3000_MOCK)
    names = {file.name for file in folder().iterdir()}
    assert names == {
        *("mgd.textproto", "hostfile", "rank_bindings.yaml", "rankfile", "phase2_mock_mapping.yaml"),
        ".phase1_cache_key",
    }
    assert (folder() / "rankfile").read_text() == "rank 0=localhost slot=0\nrank 1=localhost slot=1\n"
    assert load_mock_mapping(folder() / "phase2_mock_mapping.yaml") == dict.fromkeys((0, 1), Path(T3000_MOCK))
    assert f"TT_METAL_MOCK_CLUSTER_DESC_PATH={T3000_MOCK}" in launches[0]


def test_a_rank_is_told_of_the_descriptor_of_the_host_it_got(launches, tmp_path):
    file = tmp_path / "wide.textproto"
    file.write_text(
        'mesh_descriptors { name: "M" arch: BLACKHOLE device_topology { dims: [ 1, 4 ] } '
        "host_topology { dims: [ 1, 2 ] } channels { count: 1 policy: RELAXED } }\n"
        'top_level_instance { mesh { mesh_descriptor: "M" mesh_id: 0 } }\n'
    )
    mapping = FIXTURES / "cluster_descriptors" / "two_hosts" / "mapping.yaml"
    result = invoked("-m", str(file), "--mock-cluster-rank-binding", str(mapping))
    assert result.exit_code == 0, result.output
    found = load_mock_mapping(folder() / "phase2_mock_mapping.yaml")
    hosts = [b.env_overrides["SOFTMESH_HOST"] for b in load_bindings(folder() / "rank_bindings.yaml").bindings]
    assert [path.name for path in found.values()] == hosts
    assert sorted(hosts) == ["left.yaml", "right.yaml"]


def test_ranks_that_share_a_mesh_get_its_host_ranks_in_order(launches):
    invoked("-m", SHARED, "--hosts", "localhost", "--system", "T3000")
    bindings = load_bindings(folder() / "rank_bindings.yaml").bindings
    assert [(b.mesh_id, b.mesh_host_rank) for b in bindings] == [(0, 0), (0, 1)]


def test_several_descriptors_become_sub_contexts_that_share_no_chip(launches):
    invoked("-M", BOTH, "--hosts", "localhost", "--system", "Galaxy")
    merged = load_subcontexts(folder() / "rank_bindings_mapping.yaml")
    assert [(b.rank, b.subcontext_id, b.mesh_id) for b in merged.bindings] == [
        *[(0, 0, 0), (1, 0, 0), (2, 1, 0), (3, 1, 1)]
    ]
    devices = [device for b in merged.bindings for device in (b.visible_devices or "").split(",")]
    assert len(devices) == len(set(devices)) == 16
    assert "TT_RUN_SUBCONTEXT_SIZES=2,2" in launches[0]


def test_without_a_system_chips_are_as_many_as_asked_for(launches):
    invoked("-m", PAIR, "--hosts", "b,a")
    bindings = load_bindings(folder() / "rank_bindings.yaml").bindings
    assert [b.visible_devices for b in bindings] == [None, None]
    assert (folder() / "rankfile").read_text() == "rank 0=a slot=0\nrank 1=b slot=0\n"
    assert (folder() / "hostfile").read_text() == "a slots=1\nb slots=1\n"


def test_a_second_launch_uses_what_the_first_found(launches):
    assert "allocated: " in invoked("-m", PAIR, "--hosts", "a").stderr
    bindings = folder() / "rank_bindings.yaml"
    bindings.write_text(bindings.read_text() + "# looked at\n")
    assert "found in the cache" in invoked("-m", PAIR, "--hosts", "a").stderr
    assert bindings.read_text().endswith("# looked at\n")
    assert "allocated: " in invoked("-m", PAIR, "--hosts", "a", "--force-rediscovery").stderr
    assert not bindings.read_text().endswith("# looked at\n")


def test_a_folder_with_a_file_missing_is_no_answer(launches):
    invoked("-m", PAIR, "--hosts", "a")
    (folder() / "rankfile").unlink()
    assert "allocated: " in invoked("-m", PAIR, "--hosts", "a").stderr
    assert (folder() / "rankfile").is_file()


def test_a_dry_run_prints_the_command_only_where_it_is_known(launches):
    first = invoked("--dry-run", "-m", PAIR, "--hosts", "localhost")
    assert (first.exit_code, first.stdout) == (0, "")
    assert "generated/ttrun/" in first.stderr
    assert not Path("generated").exists()
    invoked("-m", PAIR, "--hosts", "localhost")
    second = invoked("--dry-run", "-m", PAIR, "--hosts", "localhost")
    launched = shlex.join(launches[0]).replace(" -x SOFTMESH_REPORTS", "")
    assert second.stdout == f"{launched}\n"


def test_the_command_that_repeats_phase_two_is_told(launches):
    told = invoked("-m", PAIR, "--hosts", "localhost").stderr
    line = next(line for line in told.splitlines() if "phase 2 alone" in line).partition("alone: ")[2]
    again = CliRunner().invoke(tt_run, shlex.split(line)[1:])
    assert again.exit_code == 0, again.output
    assert [word for word in launches[1] if word.startswith("TT_")] == [
        word for word in launches[0] if word.startswith("TT_")
    ]


def test_a_graph_that_does_not_fit_is_a_failure_of_phase_one():
    result = invoked("-m", SPLIT_GALAXY, "--system", "T3000")
    assert result.exit_code == 1
    assert "Error: Phase 1 (generate_rank_bindings) failed: Topology mapping failed: " in result.stderr
    assert not Path("generated").exists()


def test_an_unknown_system_is_a_failure_of_phase_one():
    result = invoked("-m", PAIR, "--system", "T3001")
    assert result.exit_code == 1
    assert "Did you mean 'T3000'?" in result.stderr


def test_a_descriptor_that_is_nowhere_is_named():
    result = invoked("-m", "no.textproto", "--hosts", "a")
    assert result.exit_code == 1
    assert "Mesh graph descriptor not found: no.textproto" in result.stderr


def test_processes_that_would_share_a_board_are_warned_about(launches, tmp_path):
    text = Path(PAIR).read_text().replace("dims: [ 2, 2 ]", "dims: [ 1, 1 ]")
    pins = [(0, 0), (1, 1)]
    for mesh, location in pins:
        text += (
            f"pinnings {{ logical_fabric_node_id {{ mesh_id: {mesh} chip_id: 0 }} "
            f"physical_asic_position {{ tray_id: 1 asic_location: {location} }} }}\n"
        )
    file = tmp_path / "single.textproto"
    file.write_text(text)
    assert "would share device 0" in invoked("-m", str(file), "--system", "T3000").stderr


def test_the_key_is_that_of_the_original():
    hosts = hashlib.sha256(b'mgd\0["a","b"]').hexdigest()
    assert request_key(b"mgd", ["b", "a"], {}) == hosts
    digest = hashlib.sha256(b"desc").digest()
    mocks = hashlib.sha256(b"mgd\0" + b"0\0" + digest + b"1\0" + digest).hexdigest()
    assert request_key(b"mgd", [], {1: b"desc", 0: b"desc"}) == mocks
    factory = hashlib.sha256(b'mgd\0["a"]\0fsd\0F').hexdigest()
    assert request_key(b"mgd", ["a"], {}, b"F") == factory
    several = hashlib.sha256(b'map\x000\0x1\0y\0["a"]').hexdigest()
    assert request_key(mapping_bytes(b"map", {1: b"y", 0: b"x"}), ["a"], {}) == several


def test_another_system_is_another_question():
    keys = {request_key(b"mgd", ["a"], {}, system=system) for system in (b"", b"T3000", b"Galaxy")}
    assert len(keys) == 3


def test_two_questions_never_share_a_folder(tmp_path):
    key, other = "ab" * 32, "ab" * 8 + "cd" * 24
    short = folder_for(key, tmp_path)
    assert short.name == key[:16]
    short.mkdir(parents=True)
    (short / ".phase1_cache_key").write_text(other)
    assert folder_for(key, tmp_path).name == key
    shutil.rmtree(short)
    assert folder_for(key, tmp_path) == short


def test_a_system_of_one_host_is_on_every_host_that_is_named():
    cluster = real_cluster(load("T3000"), ["b", "a"])
    assert cluster.machine is not None
    assert cluster.machine.hosts == ("a", "b")
    assert len(cluster.machine.asics) == 16
    groups = allocate([load_mesh_graph(FIXTURES / "mgd" / "t3k.textproto")] * 2, cluster.machine)
    assert sorted(group.host for group in groups) == ["a", "b"]
    assert [group.devices for group in groups] == [(0, 1, 2, 3)] * 2


def test_one_host_can_play_all_hosts_of_a_system():
    assert set(real_cluster(load("Closetbox"), ["localhost"]).places.values()) == {"localhost"}


def test_hosts_must_be_as_many_as_the_system_has():
    with pytest.raises(LaunchError, match="has 16 hosts, and --hosts names 2"):
        real_cluster(load("Closetbox"), ["a", "b"])
