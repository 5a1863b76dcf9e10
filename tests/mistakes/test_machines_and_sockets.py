"""Machines, meshes and sockets that are not as the program thinks: said when they are opened, with what to write."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

import softmesh as ttnn
from softmesh import metal
from softmesh.cli import commands as softmesh
from softmesh.errors import MeshError

FIXTURES = Path(__file__).parents[1] / "fixtures"


def test_a_socket_takes_its_memory_and_gives_it_back():
    ttnn.set_fabric_config(ttnn.FabricConfig.FABRIC_2D)
    a, b = (ttnn.open_mesh_device(ttnn.MeshShape(1, 1)) for _ in range(2))
    core = ttnn.MeshCoreCoord(ttnn.MeshCoordinate(0, 0), ttnn.CoreCoord(0, 0))
    memory = ttnn.SocketMemoryConfig(ttnn.BufferType.L1, 1 << 16)
    config = ttnn.SocketConfig([ttnn.SocketConnection(core, core)], memory)

    def taken(mesh: ttnn.MeshDevice) -> int:
        return mesh.allocator().get_statistics(ttnn.BufferType.L1).total_allocated_bytes

    sockets = ttnn.create_socket_pair(a, b, config)
    assert (taken(a), taken(b)) == (0, 1 << 16)
    del sockets
    assert taken(b) == 0
    for mesh in (a, b):
        ttnn.close_mesh_device(mesh)
    ttnn.set_fabric_config(ttnn.FabricConfig.DISABLED)


APART = """
mesh_descriptors {
  name: "M0" arch: WORMHOLE_B0 device_topology { dims: [ 1, 2 ] } host_topology { dims: [ 1, 1 ] }
  channels { count: 2 policy: RELAXED }
}
graph_descriptors {
  name: "G0" type: "FABRIC"
  instances { mesh { mesh_descriptor: "M0" mesh_id: 0 } }
  instances { mesh { mesh_descriptor: "M0" mesh_id: 1 } }
  CONNECTIONS
}
top_level_instance { graph { graph_descriptor: "G0" graph_id: 0 } }
"""
BINDINGS = """
rank_bindings:
  - {rank: 0, mesh_id: 0, mesh_host_rank: 0}
  - {rank: 1, mesh_id: 1, mesh_host_rank: 0}
mesh_graph_desc_path: apart.textproto
"""


@pytest.fixture
def bound(tmp_path, monkeypatch):
    """Lints bindings of two meshes, joined as the text says."""

    def lint(connections: str) -> tuple[int, str]:
        monkeypatch.chdir(tmp_path)
        Path("apart.textproto").write_text(APART.replace("CONNECTIONS", connections))
        Path("bindings.yaml").write_text(BINDINGS)
        done = CliRunner().invoke(softmesh, ["lint", "bindings.yaml"])
        return done.exit_code, done.output

    return lint


def test_lint_tells_of_meshes_that_cannot_talk_and_what_to_write(bound):
    _, said = bound("")
    assert "mesh 0 and mesh 1 cannot talk: the descriptor has no connections between them" in said
    written = "connections {" + said.partition("connections {")[2].partition("channels { count: 2 }")[0]
    code, said = bound(written + "channels { count: 2 } }")
    assert (code, "cannot talk" in said) == (0, False), said


RANK = "import os, time; os.write(1, b'up\\n'); time.sleep(60)"  # one write: the ranks share the pipe
JOB = f"""
import os, subprocess, sys
for rank, chips in enumerate(("0,1", "2,3")):
    seen = {{**os.environ, "OMPI_COMM_WORLD_RANK": str(rank), "TT_VISIBLE_DEVICES": chips}}
    last = subprocess.Popen([sys.executable, "-c", {RANK!r}], env=seen)
last.wait()
"""


def test_ping_looks_at_the_links_of_a_running_job():
    """A launcher and its ranks, each with some chips of a machine on which a link is down."""
    told = {**os.environ, "SOFTMESH_SYSTEM": "T3000", "SOFTMESH_DOWN": "link:0-2"}
    job = subprocess.Popen([sys.executable, "-c", JOB], env=told, stdout=subprocess.PIPE, start_new_session=True)
    try:
        assert job.stdout is not None
        assert [job.stdout.readline() for _ in range(2)] == [b"up\n"] * 2
        done = CliRunner().invoke(softmesh, ["ping", "--job", str(job.pid), "--json"])
    finally:
        os.killpg(job.pid, signal.SIGKILL)
        job.communicate()
    found = json.loads(done.output)
    silent = [[end[0] for end in one["link"]] for one in found if not one["up"]]
    assert (done.exit_code, silent) == (1, [[0, 2], [0, 2]])
    refused = CliRunner().invoke(softmesh, ["ping", "--job", str(job.pid)])
    assert (refused.exit_code, "cannot be looked at" in refused.output) == (2, True)


def test_ping_names_the_links_that_do_not_answer():
    well = CliRunner().invoke(softmesh, ["ping", "--system", "T3000"])
    assert (well.exit_code, well.output) == (0, "20 of 20 links answer\n")
    broken = CliRunner().invoke(softmesh, ["ping", "--system", "T3000", "--down", "link:0-2", "--json"])
    silent = [one["link"] for one in json.loads(broken.output) if not one["up"]]
    assert (broken.exit_code, [[end[0] for end in link] for link in silent]) == (1, [[0, 2], [0, 2]])
    assert "Choose a machine" in CliRunner().invoke(softmesh, ["ping"]).output


def test_buffers_of_both_apis_lie_on_a_mesh_that_ttnn_opened():
    with ttnn.create_mesh_device(ttnn.MeshShape(1, 2)) as mesh:
        whole = metal.create_mesh_buffer(mesh, "replicated", (64, 64))
        halves = metal.create_mesh_buffer(mesh, "sharded", (64, 64), (64, 32), mem="l1")
        assert (whole.device_local_size(), halves.device_local_size()) == (64 * 64 * 2, 64 * 32 * 2)
        queue = mesh.mesh_command_queue()
        values = bytes(range(256)) * 32
        metal.EnqueueWriteMeshBuffer(queue, whole, values, True)
        assert bytes(metal.ReadShard(queue, None, whole, ttnn.MeshCoordinate(0, 1)).tolist()) == values
        with pytest.raises(TypeError, match="two dims"):
            metal.create_mesh_buffer(mesh, "sharded", (4, 64, 64), (64, 32))


def test_cards_can_be_named_first_by_number_or_by_path():
    for cards, shape in (([0, 1], (1, 2)), (["/dev/tenstorrent/1", "/dev/tenstorrent/0"], ttnn.MeshShape(1, 2))):
        with metal.open_mesh_device(cards, shape) as mesh:
            assert tuple(mesh.shape) == (1, 2)
    with metal.open_mesh_device((1, 2), [0, 1]) as mesh:
        assert tuple(mesh.shape) == (1, 2)
    with pytest.raises(MeshError, match="names no card"):
        metal.open_mesh_device(["first"], (1, 1))


def test_cards_that_are_as_many_as_no_shape_are_counted():
    with pytest.raises(MeshError, match="3"):
        metal.open_mesh_device([0, 1, 2], (1, 2))
    with pytest.raises(TypeError, match=r"softmesh\.metal\.open_mesh_device\(paths_or_ids, shape\)"):
        ttnn.open_mesh_device(["/dev/tenstorrent/0", "/dev/tenstorrent/1"], (1, 2))
