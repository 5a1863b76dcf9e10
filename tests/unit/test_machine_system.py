"""Opening meshes on real machines: which chips, in which order, and what is refused."""

from __future__ import annotations

import itertools
import tempfile
from pathlib import Path

import pytest
import yaml

import softmesh as ttnn
from softmesh import FabricConfig, FabricReliabilityMode, MeshCoordinate, MeshShape
from softmesh.cluster import ClusterType

pytestmark = pytest.mark.usefixtures("idle_machine")

OVER_TWO_HOSTS = """
mesh_descriptors {
  name: "M0" arch: WORMHOLE_B0
  device_topology { dims: [ 2, 4 ] } host_topology { dims: [ 1, 2 ] }
  channels { count: 2 policy: RELAXED }
}
top_level_instance { mesh { mesh_descriptor: "M0" mesh_id: 0 } }
"""


@pytest.fixture
def t3000() -> None:
    ttnn.use_system("T3000")


def ids_of(shape: tuple[int, ...], **options: object) -> list[int]:
    mesh = ttnn.open_mesh_device(MeshShape(*shape), **options)
    ids = mesh.get_device_ids()
    mesh.close()
    return ids


T3000_IDS = [
    ((2, 4), None, [4, 0, 2, 6, 5, 1, 3, 7]),
    ((1, 8), None, [4, 0, 2, 6, 7, 3, 1, 5]),
    ((8, 1), None, [4, 0, 2, 6, 7, 3, 1, 5]),
    ((1, 4), None, [4, 0, 2, 6]),
    ((4, 1), (1, 0), [5, 4, 0, 2]),
    ((2, 2), None, [4, 0, 5, 1]),
    ((2, 2), (0, 2), [2, 6, 3, 7]),
    ((4, 2), None, [4, 5, 0, 1, 2, 3, 6, 7]),
    ((3, 2), None, [4, 5, 0, 1, 2, 3]),
    ((1, 1), None, [4]),
]


@pytest.mark.usefixtures("t3000")
@pytest.mark.parametrize(("shape", "offset", "ids"), T3000_IDS)
def test_a_t3000_gives_the_chips_that_silicon_gives(shape, offset, ids):
    assert ids_of(shape, offset=MeshCoordinate(*offset) if offset else None) == ids


@pytest.mark.usefixtures("t3000")
@pytest.mark.parametrize(
    ("shape", "offset", "said"),
    [
        (
            (1, 9),
            None,
            r"Requested mesh shape MeshShape\(\[1, 9\]\) requires 9 devices, but only 8 devices are available in the "
            r"system mesh MeshShape\(\[2, 4\]\)",
        ),
        (
            (2, 2),
            (1, 2),
            r"Requested mesh is too big and is not rotatable: MeshShape\(\[2, 2\]\) and SystemMesh "
            r"MeshShape\(\[2, 4\]\), offset MeshCoordinate\(\[1, 2\]\)",
        ),
        (
            (2, 2),
            (2, 0),
            r"The specified offset MeshCoordinate\(\[2, 0\]\) is out of bounds for the system mesh shape",
        ),
        (([8],), None, "MeshDeviceViewImpl is not 2D!"),
        ((2, 2, 2), None, r"dimensions mismatch: MeshShape\(\[2, 2, 2\]\) != MeshShape\(\[2, 4\]\)"),
        ((3, 3), None, "requires 9 devices"),
    ],
)
def test_what_does_not_fit_is_refused_in_the_words_of_ttnn(shape, offset, said):
    with pytest.raises(RuntimeError, match=said):
        ids_of(shape, offset=MeshCoordinate(*offset) if offset else None)


@pytest.mark.usefixtures("t3000")
def test_physical_ids_are_held_against_the_machine():
    assert ids_of((1, 2), physical_device_ids=[3, 5]) == [3, 5]
    with pytest.raises(RuntimeError, match="Device 8 does not exist on T3000: its devices are 0-7"):
        ids_of((1, 2), physical_device_ids=[0, 8])


@pytest.mark.usefixtures("t3000")
def test_a_chip_belongs_to_one_open_mesh():
    mesh = ttnn.open_mesh_device(MeshShape(1, 4))
    with pytest.raises(RuntimeError, match="Cannot re-initialize device 0, must first call close"):
        ttnn.open_mesh_device(MeshShape(2, 4))
    other = ttnn.open_mesh_device(MeshShape(2, 1), physical_device_ids=[5, 1])
    assert not set(mesh.get_device_ids()) & set(other.get_device_ids())


@pytest.mark.usefixtures("t3000")
def test_the_machine_answers_for_itself():
    assert ttnn.get_num_devices() == 8
    assert ttnn.get_device_ids() == list(range(8))
    assert ttnn.get_pcie_device_ids() == [0, 1, 2, 3]
    assert ttnn.GetPCIeDeviceID(5) == 1
    assert ttnn.cluster.get_cluster_type() is ClusterType.T3K
    descriptor = ttnn._ttnn.multi_device.SystemMeshDescriptor()
    assert descriptor.shape() == MeshShape(2, 4)
    assert descriptor.get_device_id(MeshCoordinate(1, 1)) == 1
    assert ttnn.get_arch_name() == "wormhole_b0"


@pytest.mark.usefixtures("t3000")
def test_fabric_nodes_count_along_the_system_mesh():
    mesh = ttnn.open_mesh_device(MeshShape(1, 8))
    nodes = [mesh.get_fabric_node_id(at).chip_id for at in mesh.shape.coordinates()]
    assert nodes == [0, 1, 2, 3, 7, 6, 5, 4]
    assert mesh.get_system_mesh_id() == 0


@pytest.mark.usefixtures("t3000")
def test_reshaping_follows_the_chips():
    mesh = ttnn.open_mesh_device(MeshShape(2, 4))
    mesh.reshape(MeshShape(1, 8))
    assert mesh.get_device_ids() == [4, 0, 2, 6, 7, 3, 1, 5]
    mesh.reshape(MeshShape(2, 4))
    assert mesh.get_device_ids() == [4, 0, 2, 6, 5, 1, 3, 7]
    mesh.reshape(MeshShape(4, 2))
    assert mesh.get_device_ids() == [4, 5, 0, 1, 2, 3, 6, 7]
    row = mesh.create_submesh(MeshShape(4, 1))
    ids = row.get_device_ids()
    row.reshape(MeshShape(1, 4))
    assert row.get_device_ids() == ids
    with pytest.raises(RuntimeError, match="it is not possible to form a physically connected mesh grid"):
        row.reshape(MeshShape(2, 2))
    with pytest.raises(RuntimeError, match="New shape must have the same number of devices"):
        mesh.reshape(MeshShape(2, 2))


@pytest.mark.parametrize(
    ("system", "shape", "kind"),
    [
        ("N150", (1, 1), ClusterType.N150),
        ("N300", (2, 1), ClusterType.N300),
        ("Galaxy", (8, 4), ClusterType.GALAXY),
        ("P150x8", (2, 4), ClusterType.P150_X8),
        ("P300", (1, 2), ClusterType.P300),
        ("BH-Galaxy", (8, 4), ClusterType.BLACKHOLE_GALAXY),
        ("mesh:3x5", (3, 5), None),
        ("torus:6x6", (6, 6), None),
        ("line:7", (1, 7), None),
        ("Closetbox", (2, 4), ClusterType.T3K),
        ("Exabox", (8, 4), ClusterType.GALAXY),
    ],
)
def test_each_machine_opens_its_own_mesh(system, shape, kind):
    ttnn.use_system(system)
    mesh = ttnn.open_mesh_device()
    assert tuple(mesh.shape) == shape
    if kind is not None:
        assert ttnn.cluster.get_cluster_type() is kind
    neighbours = ttnn.fabric.machine().neighbours
    for axis in (0, 1):
        for line in mesh.lines_along(axis):
            assert all(b in neighbours[a] for a, b in itertools.pairwise(line))


def test_the_environment_chooses_the_machine(monkeypatch):
    monkeypatch.setenv("SOFTMESH_SYSTEM", "N300")
    assert ttnn.get_num_devices() == 2
    monkeypatch.setenv("SOFTMESH_SYSTEM", "galaxy")
    assert ttnn.get_num_devices() == 32
    monkeypatch.delenv("SOFTMESH_SYSTEM")
    assert ttnn.get_num_devices() == 8


def test_an_unknown_machine_is_answered_with_the_nearest_name(monkeypatch):
    monkeypatch.setenv("SOFTMESH_SYSTEM", "T300")
    with pytest.raises(RuntimeError, match="Did you mean"):
        ttnn.open_mesh_device(MeshShape(1, 1))


def test_visible_devices_restrict_the_machine(monkeypatch):
    ttnn.use_system(None)
    monkeypatch.setenv("SOFTMESH_SYSTEM", "T3000")
    monkeypatch.setenv("TT_VISIBLE_DEVICES", "0,1")
    assert ttnn.get_num_devices() == 4, "the remote chips of both boards come along"
    mesh = ttnn.open_mesh_device()
    assert sorted(mesh.shape) == [2, 2]


def test_a_descriptor_chooses_the_mesh(monkeypatch, tmp_path):
    path = tmp_path / "two.textproto"
    path.write_text(
        """
        mesh_descriptors {
          name: "M0" arch: WORMHOLE_B0
          device_topology { dims: [ 2, 2 ] } host_topology { dims: [ 1, 1 ] }
          channels { count: 2 policy: STRICT }
        }
        graph_descriptors {
          name: "G0" type: "FABRIC"
          instances { mesh { mesh_descriptor: "M0" mesh_id: 0 } }
          instances { mesh { mesh_descriptor: "M0" mesh_id: 1 } }
          connections {
            nodes { mesh { mesh_descriptor: "M0" mesh_id: 0 } }
            nodes { mesh { mesh_descriptor: "M0" mesh_id: 1 } }
            channels { count: 2 }
          }
        }
        top_level_instance { graph { graph_descriptor: "G0" graph_id: 0 } }
        """
    )
    ttnn.use_system("T3000")
    monkeypatch.setenv("TT_MESH_GRAPH_DESC_PATH", str(path))
    assert ttnn.get_all_fabric_mesh_ids() == [ttnn.MeshId(0), ttnn.MeshId(1)]
    assert ttnn.get_physical_mesh_shapes() == {0: [2, 2], 1: [2, 2]}
    mesh = ttnn.open_mesh_device()
    assert tuple(mesh.shape) == (2, 2)
    mesh.close()
    monkeypatch.setenv("TT_MESH_ID", "1")
    assert ttnn.get_physical_mesh_shapes() == {1: [2, 2]}
    other = ttnn.open_mesh_device()
    assert other.get_system_mesh_id() == 1
    assert not set(mesh.get_device_ids()) & set(other.get_device_ids())
    other.close()
    monkeypatch.setenv("TT_MESH_ID", "2")
    with pytest.raises(RuntimeError, match="Invalid TT_MESH_ID: Local mesh binding mesh_id 2 not found"):
        ttnn.open_mesh_device()
    monkeypatch.setenv("TT_MESH_ID", "1")
    monkeypatch.setenv("TT_MESH_HOST_RANK", "1")
    with pytest.raises(RuntimeError, match="Invalid TT_MESH_HOST_RANK: Local mesh binding host_rank 1 not found"):
        ttnn.open_mesh_device()
    monkeypatch.setenv("TT_MESH_ID", "one")
    with pytest.raises(RuntimeError, match="TT_MESH_ID='one' is not a number"):
        ttnn.open_mesh_device()


def test_a_descriptor_over_several_hosts_wants_a_binding(monkeypatch, tmp_path):
    path = tmp_path / "big.textproto"
    path.write_text(OVER_TWO_HOSTS)
    ttnn.use_system("T3000")
    monkeypatch.setenv("TT_MESH_GRAPH_DESC_PATH", str(path))
    with pytest.raises(RuntimeError, match="Mesh 0 has 2 host ranks, expected 1"):
        ttnn.open_mesh_device()
    ttnn.use_system("Exabox")
    with pytest.raises(RuntimeError, match="Not specifying both TT_MESH_ID and TT_MESH_HOST_RANK is only supported"):
        ttnn.open_mesh_device()


@pytest.mark.parametrize("config", [FabricConfig.FABRIC_1D, FabricConfig.FABRIC_2D])
def test_strict_init_names_the_missing_link_and_relaxed_goes_on(config):
    ttnn.use_system("Galaxy", down=["link:0/12"])
    broken = str(ttnn.fabric.machine().down_links[0])
    ttnn.set_fabric_config(config)
    with (
        pytest.warns(ttnn.SoftmeshWarning),
        pytest.raises(RuntimeError, match="Expected 4 eth links") as refusal,
    ):
        ttnn.open_mesh_device(MeshShape(8, 4))
    assert broken in str(refusal.value)
    ttnn.set_fabric_config(FabricConfig.DISABLED)
    ttnn.set_fabric_config(config, FabricReliabilityMode.RELAXED_INIT)
    with pytest.warns(ttnn.SoftmeshWarning):
        mesh = ttnn.open_mesh_device(MeshShape(8, 4))
    assert mesh.get_num_devices() == 32
    assert ttnn.get_num_links(mesh) == 3


def test_a_broken_link_is_no_matter_without_a_fabric():
    ttnn.use_system("T3000", down=["link:0/8"])
    with pytest.warns(ttnn.SoftmeshWarning, match="Relaxed mode") as said:
        mesh = ttnn.open_mesh_device(MeshShape(2, 4))
    assert mesh.get_num_devices() == 8
    assert said[0].filename == __file__, "at the line that opened the mesh"


def test_a_chip_that_is_down_is_not_offered():
    ttnn.use_system("T3000", down=["chip:7"])
    assert ttnn.get_num_devices() == 7
    assert ttnn.get_device_ids() == list(range(7))
    with pytest.raises(RuntimeError, match="Device 7 is down on T3000"):
        ids_of((1, 1), physical_device_ids=[7])


def test_the_cluster_descriptor_is_written_down(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    ttnn.use_system("N300")
    found = yaml.safe_load(Path(ttnn.cluster.serialize_cluster_descriptor()).read_text())
    assert set(found["arch"].values()) == {"wormhole_b0"}
    assert len(found["ethernet_connections"]) == 2


def test_unique_ids_come_from_the_machine():
    ttnn.use_system("T3000")
    mesh = ttnn.open_mesh_device(MeshShape(2, 4))
    ids = [ttnn.cluster.get_chip_unique_id_from_fabric_node_id(mesh, 0, chip) for chip in range(8)]
    assert len(set(ids)) == 8
    with pytest.raises(RuntimeError, match="M0D8"):
        ttnn.cluster.get_chip_unique_id_from_fabric_node_id(mesh, 0, 8)


def test_the_machine_that_was_chosen_last_answers_whatever_was_freed_before():
    for _ in range(3):
        ttnn.use_system("Closetbox", down=["chip:0"])
        assert ttnn.get_num_devices() == 7
        ttnn.use_system("T3000")
        ttnn.use_system("Exabox", down=["chip:0"])
        assert ttnn.get_num_devices() == 31


@pytest.mark.parametrize(
    ("variable", "value", "said"),
    [
        ("TT_MESH_ID", "5", "Invalid TT_MESH_ID: Local mesh binding mesh_id 5 not found"),
        ("TT_MESH_HOST_RANK", "3", "Invalid TT_MESH_HOST_RANK: Local mesh binding host_rank 3 not found"),
        ("TT_MESH_ID", "9" * 5000, "is not a number"),
    ],
)
def test_a_binding_is_held_against_the_machines_own_mesh_too(monkeypatch, variable, value, said):
    ttnn.use_system("T3000")
    monkeypatch.setenv(variable, value)
    with pytest.raises(RuntimeError, match=said):
        ttnn.open_mesh_device()


@pytest.mark.parametrize(("system", "down"), [("N150", ["chip:0"]), ("mesh:1x2", ["chip:0", "chip:1"])])
def test_a_machine_without_any_chip_is_refused(system, down):
    with pytest.raises(RuntimeError, match="leave at least one chip up"):
        ttnn.use_system(system, down=down)


def test_what_is_down_leaves_the_largest_mesh_that_is_connected():
    ttnn.use_system("T3000", down=["link:4-5"])
    mesh = ttnn.open_mesh_device(MeshShape(1, 4))
    assert mesh.get_num_devices() == 4
    mesh.close()
    ttnn.use_system("mesh:4x4", down=["chip:5"])
    with pytest.warns(ttnn.SoftmeshWarning, match="chips"):
        assert ttnn.open_mesh_device().get_num_devices() < 16


def test_the_machine_stays_while_a_mesh_is_open_on_it():
    ttnn.use_system("T3000")
    mesh = ttnn.open_mesh_device(MeshShape(1, 2))
    with pytest.raises(RuntimeError, match=r"MeshDevice\(1x2 grid, 2 devices\) is open on T3000"):
        ttnn.use_system("N150")
    mesh.close()
    ttnn.use_system("N150")


def test_odd_by_odd_meshes_are_told_from_what_silicon_takes():
    ttnn.use_system("mesh:3x5")
    ttnn.set_fabric_config(FabricConfig.FABRIC_2D)
    with pytest.warns(ttnn.SoftmeshWarning, match="two odd extents"):
        ttnn.open_mesh_device()


@pytest.mark.parametrize("config", [FabricConfig.FABRIC_2D, FabricConfig.FABRIC_1D])
def test_links_for_collectives_are_the_planes_of_the_fabric(config):
    ttnn.use_system("Galaxy", down=["link:0/8"])
    ttnn.set_fabric_config(config, FabricReliabilityMode.RELAXED_INIT)
    with pytest.warns(ttnn.SoftmeshWarning):
        mesh = ttnn.open_mesh_device(MeshShape(8, 4))
    planes = ttnn.fabric.network().planes[0]
    assert [ttnn.get_num_links(mesh, axis) for axis in (0, 1)] == list(planes)
    assert 3 in planes


def test_chips_that_are_no_neighbours_have_no_more_links_than_one():
    ttnn.use_system("T3000")
    mesh = ttnn.open_mesh_device(MeshShape(1, 2), physical_device_ids=[0, 7])
    assert ttnn.get_num_links(mesh, 1) == 1


def test_a_mesh_over_several_hosts_waits_for_several_processes(monkeypatch, tmp_path):
    path = tmp_path / "big.textproto"
    path.write_text(OVER_TWO_HOSTS)
    ttnn.use_system("T3000")
    monkeypatch.setenv("TT_MESH_GRAPH_DESC_PATH", str(path))
    monkeypatch.setenv("TT_MESH_ID", "0")
    with pytest.raises(RuntimeError, match="lies over 2 hosts, and this process is alone"):
        ttnn.open_mesh_device()
    descriptor = ttnn._ttnn.multi_device.SystemMeshDescriptor()
    assert descriptor.local_shape() == MeshShape(2, 2)
    assert not descriptor.all_local()
    assert [descriptor.is_local(MeshCoordinate(0, column)) for column in range(4)] == [
        True,
        True,
        False,
        False,
    ]
    monkeypatch.setenv("TT_MESH_HOST_RANK", "1")
    assert descriptor.is_local(MeshCoordinate(1, 3))


@pytest.mark.parametrize("config", ["FABRIC_1D_RING", "FABRIC_1D_NEIGHBOR_EXCHANGE"])
def test_one_dimensional_fabrics_of_a_galaxy_may_go_around_its_edges(idle_machine, config):
    ttnn.use_system("Galaxy")
    ttnn.set_fabric_config(ttnn.FabricConfig[config])
    with ttnn.open_mesh_device(ttnn.MeshShape(8, 4)):
        mesh = ttnn.MeshId(0)
        first, below, last = (ttnn.FabricNodeId(mesh, chip) for chip in (0, 4, 28))
        north, south = 2, 3
        assert ttnn.get_eth_forwarding_direction(first, below) == south
        assert ttnn.get_eth_forwarding_direction(first, last) == north
