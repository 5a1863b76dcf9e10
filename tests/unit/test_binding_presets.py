"""`softmesh bindings`: the usual splits of a Galaxy, and any split of any machine."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner, Result

from softmesh.fabric.descriptors.loader import check_text
from softmesh.lint.linter import lint
from softmesh.processes.bindings.bindings_command import bindings
from softmesh.processes.bindings.bindings_writer import graph_text
from softmesh.processes.bindings.galaxy_splits import FABRIC_CONFIGS, PRESETS, SLICE_CONFIGS, split_in_z
from softmesh.processes.bindings.rank_bindings import RankBindings, load
from softmesh.systems.chip import BLACKHOLE
from softmesh.systems.machine import Machine
from softmesh.systems.named_systems import load as load_system

ALL = [
    (preset.name, "Galaxy" if arch.name == "WORMHOLE_B0" else "BH-Galaxy")
    for arch in PRESETS
    for preset in PRESETS[arch]
]


@pytest.fixture(autouse=True)
def in_a_folder(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)


def invoked(*arguments: str) -> Result:
    return CliRunner().invoke(bindings, list(arguments))


def generated(*arguments: str) -> dict[str, RankBindings]:
    result = invoked(*arguments, "-o", "out")
    assert result.exit_code == 0, result.output
    files = sorted(Path("out").glob("*_rank_binding.yaml"))
    return {file.name.removesuffix("_rank_binding.yaml"): load(file) for file in files}


def devices(found: RankBindings) -> list[list[int]]:
    return [[int(device) for device in (b.visible_devices or "").split(",")] for b in found.bindings]


def refusal(*arguments: str, code: int = 1) -> str:
    result = invoked(*arguments, "-o", "out")
    assert result.exit_code == code, result.output
    assert not Path("out").exists()
    return result.stderr


@pytest.mark.parametrize("system", ["Galaxy", "BH-Galaxy", "Galaxy-Mesh"])
def test_every_preset_passes_the_linter_and_comes_up(system):
    generated("--system", system)
    files = [*Path("out").glob("*_rank_binding.yaml"), *Path("out").glob("*.textproto")]
    assert len(files) >= 8
    reports = lint(files, system, fabric="FABRIC_2D")
    assert [report.verdict for report in reports if report.is_refused] == []
    assert {finding.severity.value for report in reports for finding in report.findings} <= {"note"}


def test_ranks_have_the_trays_of_the_table():
    found = generated()
    trays = yaml.safe_load(Path("out/tray_to_pcie_device_mapping.yaml").read_text())
    assert trays["arch"] == "wormhole_b0"
    tray = trays["device_mapping"]
    assert devices(found["4x4_multi_mesh"]) == [sorted(tray[1] + tray[2]), sorted(tray[3] + tray[4])]
    assert devices(found["4x4_multi_big_mesh"]) == [tray[1], tray[2], tray[3], tray[4]]
    assert devices(found["4x2_multi_mesh"]) == [tray[1], tray[2], tray[3], tray[4]]
    assert devices(found["2x4_multi_mesh_cyclic"]) == [tray[1], tray[3], tray[4], tray[2]]
    assert devices(found["4x4_2x4_3_mesh"]) == [sorted(tray[1] + tray[2]), tray[3], tray[4]]
    assert devices(found["2x8_2x4_3_mesh"]) == [tray[1], tray[3], sorted(tray[2] + tray[4])]


def test_blackhole_galaxies_have_presets_of_their_own():
    found = generated("--system", "BH-Galaxy")
    tray = yaml.safe_load(Path("out/tray_to_pcie_device_mapping.yaml").read_text())["device_mapping"]
    assert devices(found["bh_4x4_multi_mesh"]) == [sorted(tray[1] + tray[3]), sorted(tray[2] + tray[4])]
    assert devices(found["bh_galaxy_split_4x2"]) == [tray[1], tray[3], tray[4], tray[2]]


def test_the_preset_for_the_third_dimension_asks_for_its_ports():
    generated("--system", "BH-Galaxy")
    assert "assign_z_direction: true" in Path("out/bh_4x4_z.textproto").read_text()
    assert "assign_z_direction" not in Path("out/bh_4x4_multi_mesh.textproto").read_text()


def test_a_big_mesh_has_two_ranks():
    found = generated()["4x4_multi_big_mesh"].bindings
    assert [(b.mesh_id, b.mesh_host_rank) for b in found] == [(0, 0), (0, 1), (1, 0), (1, 1)]


def test_any_machine_can_be_split():
    found = generated("--system", "T3000", "--split", "2x2,2x2")["2_of_2x2"]
    assert sorted(devices(found)) == [[0, 1], [2, 3]]
    assert not any(report.is_refused for report in lint(["out/2_of_2x2_rank_binding.yaml"], "T3000"))


def test_processes_get_whole_boards():
    found = generated("--system", "T3000", "--split", "1x2,1x2,1x2,1x2")["4_of_1x2"]
    assert sorted(devices(found)) == [[0], [1], [2], [3]]
    assert not any(report.is_refused for report in lint(["out/4_of_1x2_rank_binding.yaml"], "T3000"))


def test_meshes_of_different_shapes_and_shared_meshes_can_be_cut_out():
    found = generated("--system", "Galaxy", "--split", "4x4,2x4", "--hosts-per-mesh", "2x1,1x1")
    ranks = found["4x4_by_2x1_2x4"].bindings
    assert [(b.mesh_id, b.mesh_host_rank) for b in ranks] == [(0, 0), (0, 1), (1, 0)]
    assert len({device for own in devices(found["4x4_by_2x1_2x4"]) for device in own}) == 24


def test_on_several_hosts_each_rank_learns_its_own():
    found = generated("--system", "Exabox", "--split", "8x4,8x4")["2_of_8x4"]
    assert len({b.env_overrides["SOFTMESH_HOST"] for b in found.bindings}) == 2
    assert "# rank 0 on galaxy-" in Path("out/2_of_8x4_rank_binding.yaml").read_text()


def test_the_rank_table_is_printed_on_request():
    result = invoked("--system", "T3000", "--split", "2x2,2x2", "-o", "out", "--print-rank-table", "--print-devices")
    lines = result.stdout.splitlines()
    assert [line for line in lines if line.startswith("FABRIC_RANK:")] == [
        *["FABRIC_RANK:0;0;host-0;0,1", "FABRIC_RANK:1;0;host-0;2,3"]
    ]
    assert "FABRIC_VISIBLE_DEVICES:0,1" in lines


def test_files_that_are_there_stay_unless_forced():
    arguments = ("--system", "T3000", "--split", "2x4", "-o", "out")
    assert invoked(*arguments).exit_code == 0
    Path("out/2x4_rank_binding.yaml").write_text("mine\n")
    refused = invoked(*arguments)
    assert refused.exit_code == 1
    assert "is there already" in refused.stderr
    assert Path("out/2x4_rank_binding.yaml").read_text() == "mine\n"
    assert invoked(*arguments, "--force").exit_code == 0
    assert Path("out/2x4_rank_binding.yaml").read_text() != "mine\n"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["--system", "T3000"],
            "The presets are for a single Galaxy with 32 devices; T3000 has 8 on 1 host.",
        ),
        (["--system", "Exabox"], "Exabox has 160 on 5 hosts."),
        (["--system", "T3000", "--split", "4x4"], "could not fit in the discovered physical topology"),
        (["--system", "T3000", "--split", "1x1,1x1,1x1,1x1,1x1"], "would share device"),
        (
            ["--slice-config", "2x4x4z"],
            "2x4x4z is for 1 Blackhole Galaxy with 32 devices each; Galaxy has 32",
        ),
        (["--system", "BH-Galaxy", "--fabric-config", "4x8z"], "4x8z is for 4 Blackhole Galaxies"),
        (
            ["--system", "BH-Galaxy", "--slice-config", "2x4x4z", "--hosts", "hots-0"],
            "Did you mean 'host-0'?",
        ),
        (["--system", "BH-Galaxy", "--slice-config", "2x4x4z", "--hosts", "host-0,host-0"], "in ring order"),
    ],
)
def test_what_cannot_be_split_is_refused_before_anything_is_written(arguments, message):
    assert message in refusal(*arguments)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--system", "Gallaxy"], "Did you mean 'Galaxy'?"),
        (["--system", "T3000", "--split", "2by2"], "'2by2' is not a shape"),
        (["--system", "T3000", "--split", "0x2"], "'0x2' is not a shape"),
        (["--split", "4x4", "--hosts-per-mesh", "3x1"], "a 4x4 mesh cannot be shared by 3x1 ranks"),
        (["--split", "4x4", "--hosts-per-mesh", "2x1,2x1"], "2 grids for 1 meshes"),
        (["--hosts-per-mesh", "2x1"], "presets have their own"),
        (["--system", "elastic"], "as in --split 2x4,2x4"),
        (["--split", "4x4", "--slice-config", "2x4x4z"], "--split and --slice-config are different ways"),
        (["--hosts", "a,b"], "--hosts says where the meshes of --slice-config"),
    ],
)
def test_mistakes_in_the_command_line_end_as_those_of_every_command(arguments, message):
    assert message in refusal(*arguments, code=2)


def test_a_folder_that_cannot_be_made_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    result = invoked("--system", "T3000", "--split", "2x4", "-o", "file")
    assert result.exit_code == 1
    assert "cannot be written" in result.stderr


@pytest.mark.parametrize("system", ["BH-Galaxy-XYZ", "BH-Galaxy"])
def test_a_galaxy_is_cut_into_two_meshes_of_slices(system):
    found = generated("--system", system, "--slice-config", "2x4x4z")["2x4x4z"]
    mine, theirs = devices(found)
    assert len(mine) == len(theirs) == len(set(mine) - set(theirs)) == 16
    text = Path("out/2x4x4z.textproto").read_text()
    assert "assign_z_direction: true" in text
    assert ("dim_types: [ RING, RING ]" in text) == (system == "BH-Galaxy-XYZ")  # whose cabling closes rings of 4
    files = ["out/2x4x4z_rank_binding.yaml", "out/2x4x4z.textproto"]
    assert not any(report.is_refused for report in lint(files, system, fabric="FABRIC_2D"))
    graph = check_text(text).graph
    assert graph is not None
    assert graph_text(graph) == "".join(text.splitlines(keepends=True)[1:])


def four_galaxies() -> Machine:
    """In a ring, each of them eight rows of a torus: real ones are described by files of their users."""
    torus = load_system("torus:32x4")
    asics = {id: replace(asic, host=f"galaxy-{id // 32}") for id, asic in torus.asics.items()}
    return replace(torus, name="four", chip=BLACKHOLE, asics=asics, grid=None)


@pytest.mark.parametrize("hosts", [None, ["galaxy-2", "galaxy-3", "galaxy-0", "galaxy-1"]])
def test_meshes_of_slices_lie_within_galaxies_and_across_them(hosts):
    split = split_in_z(four_galaxies(), SLICE_CONFIGS["8x4x4z"], hosts)
    assert [(b.mesh_id, b.mesh_host_rank) for b in split.bindings] == [
        place for mesh in range(0, 8, 2) for place in ((mesh, 0), (mesh + 1, 0), (mesh + 1, 1))
    ]
    order = [group.host for group in split.groups[::3]]
    assert hosts is None or order == hosts
    for i in range(4):
        across = [group.host for group in split.groups[3 * i + 1 : 3 * i + 3]]
        assert across == [order[i], order[(i + 1) % 4]]
    assert [len(group.devices) for group in split.groups] == [16, 8, 8] * 4


def test_whole_galaxies_are_joined_in_the_third_dimension():
    split = split_in_z(four_galaxies(), FABRIC_CONFIGS["4x8z"])
    assert [len(group.devices) for group in split.groups] == [32] * 4
    assert [connection.z for connection in split.graph.connections] == [True] * 4


def test_meshes_of_the_elastic_machine_name_no_devices():
    split = ["--split", "2x4,4x4", "--hosts-per-mesh", "1x2,1x1"]
    found = generated("--system", "elastic", *split)["2x4_by_1x2_4x4"]
    assert [(b.mesh_id, b.mesh_host_rank, b.visible_devices) for b in found.bindings] == [
        *[(0, 0, None), (0, 1, None), (1, 0, None)]
    ]
    assert not any(report.is_refused for report in lint(sorted(Path("out").iterdir())))


@pytest.mark.parametrize(("name", "system"), ALL)
def test_descriptors_are_read_back_as_they_were_written(name, system):
    generated("--system", system)
    text = Path(f"out/{name}.textproto").read_text()
    graph = check_text(text).graph
    assert graph is not None
    assert graph_text(graph) == "".join(text.splitlines(keepends=True)[1:])
