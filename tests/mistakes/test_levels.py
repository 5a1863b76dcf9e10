"""A descriptor in levels, meshes in PODs in a CLUSTER: lint, flatten, tt-run and the program say the same of it."""

from __future__ import annotations

import re
import shlex
import warnings
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

import softmesh as ttnn
from softmesh import fabric
from softmesh.cli import commands as softmesh
from softmesh.errors import MeshError
from softmesh.fabric.descriptors.loader import load_job_graph, load_mesh_graph
from softmesh.fabric.matching.find_match import match
from softmesh.fabric.matching.match import connection_links
from softmesh.processes.launcher.tt_run import tt_run
from softmesh.systems.named_systems import load

CLOSETBOX = Path(__file__).parents[1] / "fixtures" / "mgd" / "closetbox.textproto"
BINDING = "  - {{rank: {0}, mesh_id: {0}, mesh_host_rank: 0}}\n"


@pytest.fixture
def levels(tmp_path, monkeypatch) -> str:
    """The name of the descriptor, in a folder of its own that is the current one."""
    monkeypatch.chdir(tmp_path)
    Path("closetbox.textproto").write_text(CLOSETBOX.read_text())
    return "closetbox.textproto"


def run(*arguments: str) -> Result:
    return CliRunner().invoke(softmesh, list(arguments))


def flattened(levels: str) -> str:
    assert run("flatten", levels, "-o", "flat.textproto").exit_code == 0
    return "flat.textproto"


def bindings(descriptor: str) -> str:
    ranks = "".join(BINDING.format(rank) for rank in range(16))
    Path("ranks.yaml").write_text(f"rank_bindings:\n{ranks}mesh_graph_desc_path: {descriptor}\n")
    return "ranks.yaml"


@pytest.mark.parametrize("strict", ["0", "1"])
def test_each_remark_on_a_level_names_the_whole_command_and_the_command_works(levels, strict, monkeypatch):
    """What a job runs with a warning is no error of lint either; both refuse it in strict mode."""
    monkeypatch.setenv("SOFTMESH_STRICT", strict)
    told = run("lint", levels, "--system", "Closetbox")
    commands = re.findall(r"fix: softmesh (flatten \S+ -o (\S+))", told.output)
    assert told.output.count("fix:") == len(commands) == 3
    assert told.exit_code == int(strict)
    verdict = "parses; runtime rejects" if told.exit_code else "runs as one graph; silicon rejects"
    assert f"{verdict}; fits Closetbox" in told.output
    for command, flat in commands:
        assert run(*shlex.split(command)).exit_code == 0
        accepted = run("lint", flat, "--system", "Closetbox", "--fabric", "FABRIC_2D")
        assert (accepted.exit_code, "comes up as FABRIC_2D on Closetbox" in accepted.output) == (0, True)


def test_the_flat_graph_has_only_connections_that_the_machine_has(levels):
    found = match(load_mesh_graph(flattened(levels)), load("Closetbox"))
    assert len(found.graph.connections) == 4 * 6 + 6  # inside of each pod, and one for every two pods
    assert all(connection_links(found, one) == one.count for one in found.graph.connections)


def test_levels_and_their_flat_graph_are_one_job(levels):
    def told(descriptor: str) -> tuple[object, ...]:
        graph = load_job_graph(descriptor)
        return [mesh.shape for mesh in graph.meshes], [(one.a, one.b, one.count) for one in graph.connections]

    assert told(levels) == told(flattened(levels))


def test_flattening_keeps_pinnings_and_the_third_dimension(levels):
    text = (
        Path(levels)
        .read_text()
        .replace("ALL_TO_ALL channels { count: 2 }", "RING channels { count: 1 } assign_z_direction: true")
    )
    pinning = "pinnings { logical_fabric_node_id { mesh_id: 3 chip_id: 1 } physical_asic_position { tray_id: 1 } }"
    Path(levels).write_text(f"{text}\n{pinning}\n")
    flat, described = load_mesh_graph(flattened(levels)), load_mesh_graph(levels, runtime=False)
    assert all(one.z for one in flat.connections)
    assert [(one.nodes, one.positions) for one in flat.pinnings] == [
        (one.nodes, one.positions) for one in described.pinnings
    ]


@pytest.mark.parametrize("form", ["levels", "flat"])
def test_tt_run_takes_either_form(levels, form):
    file = bindings(levels if form == "levels" else flattened(levels))
    launched = CliRunner().invoke(tt_run, ["--dry-run", "--system", "Closetbox", "--rank-binding", file, "true"])
    assert launched.exit_code == 0, launched.output
    assert launched.output.count("-np 1") == 16


@pytest.mark.usefixtures("idle_machine")
def test_a_rank_runs_the_levels_as_typed_and_the_first_one_says_what_silicon_takes(levels, monkeypatch):
    monkeypatch.setenv("TT_MESH_GRAPH_DESC_PATH", levels)
    monkeypatch.setenv("TT_MESH_HOST_RANK", "0")
    ttnn.use_system("Closetbox")
    ttnn.set_fabric_config(ttnn.FabricConfig.FABRIC_2D)
    try:
        for rank in range(0, 16, 5):
            monkeypatch.setenv("TT_MESH_ID", str(rank))
            with warnings.catch_warnings(record=True) as said:
                warnings.simplefilter("always")
                with ttnn.create_mesh_device(ttnn.MeshShape(2, 4)) as mesh:
                    assert mesh.get_num_devices() == 8
                    assert fabric.network().deadlock().is_free
            assert ["softmesh flatten" in str(one.message) for one in said] == ([True] if rank == 0 else [])
    finally:
        ttnn.set_fabric_config(ttnn.FabricConfig.DISABLED)


@pytest.mark.usefixtures("idle_machine")
def test_in_strict_mode_levels_are_refused_as_on_silicon(levels, monkeypatch):
    monkeypatch.setenv("TT_MESH_GRAPH_DESC_PATH", levels)
    monkeypatch.setenv("TT_MESH_ID", "0")
    monkeypatch.setenv("SOFTMESH_STRICT", "1")
    ttnn.use_system("Closetbox")
    with pytest.raises(MeshError, match=r"(?s)There can only be one FABRIC level graph.*softmesh flatten"):
        ttnn.open_mesh_device(ttnn.MeshShape(2, 4))
    launched = CliRunner().invoke(tt_run, ["--dry-run", "--rank-binding", bindings(levels), "true"])
    assert (launched.exit_code, "There can only be one FABRIC level graph" in launched.output) == (1, True)


def test_connections_that_no_machine_has_lead_to_the_split_that_works(levels):
    flat = Path(flattened(levels))
    ends = " ".join(f'nodes {{ mesh {{ mesh_descriptor: "LoudBox" mesh_id: {mesh} }} }}' for mesh in (0, 5))
    more = f"connections {{ {ends} channels {{ count: 2 }} }}"
    flat.write_text(flat.read_text().replace("}\ntop_level_instance", f"{more}\n}}\ntop_level_instance"))
    refused = run("lint", str(flat), "--system", "Closetbox")
    launched = CliRunner().invoke(
        tt_run, ["--dry-run", "--system", "Closetbox", "--rank-binding", bindings(str(flat)), "true"]
    )
    for said in (refused, launched):
        command = re.search(r"softmesh (bindings --system Closetbox --split \S+ -o split)", said.output)
        assert said.exit_code != 0
        assert command is not None, said.output
    assert run(*shlex.split(command[1])).exit_code == 0
    written = [str(path) for path in Path("split").iterdir()]
    assert run("lint", "--system", "Closetbox", "--fabric", "FABRIC_2D", *written).exit_code == 0
