"""Ranks on hosts of their own: each has its host's mock descriptor, and all of them see one machine."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import softmesh as ttnn
from softmesh.errors import MeshError
from softmesh.fabric.mesh_binding import PLACES, Binding, places_text
from softmesh.fabric.system import current_system, machine_system
from softmesh.processes.launcher.rank_environment import with_peer_hosts
from softmesh.systems.system_choice import HOST, MOCK_DESCRIPTOR, MOCK_HOSTS, SYSTEM, chosen_machine

pytestmark = pytest.mark.usefixtures("idle_machine")

FILES = Path(__file__).parents[1] / "fixtures" / "cluster_descriptors" / "two_hosts"
LEFT, RIGHT = (str(FILES / name) for name in ("left.yaml", "right.yaml"))
A_MESH_ON_EACH = """
mesh_descriptors {
  name: "Pair" arch: BLACKHOLE
  device_topology { dims: [ 1, 2 ] } host_topology { dims: [ 1, 1 ] } channels { count: 1 policy: RELAXED }
}
graph_descriptors {
  name: "Both" type: "FABRIC"
  instances { mesh { mesh_descriptor: "Pair" mesh_id: 0 } }
  instances { mesh { mesh_descriptor: "Pair" mesh_id: 1 } }
  connections {
    nodes { mesh { mesh_descriptor: "Pair" mesh_id: 0 } } nodes { mesh { mesh_descriptor: "Pair" mesh_id: 1 } }
    channels { count: 1 policy: RELAXED }
  }
}
top_level_instance { graph { graph_descriptor: "Both" graph_id: 0 } }
"""


def rank(mesh_id: int, mock: str, host_rank: int | None = 0, **more: str) -> dict[str, str]:
    found = {"TT_MESH_ID": str(mesh_id), MOCK_DESCRIPTOR: mock, **more}
    return found if host_rank is None else {**found, "TT_MESH_HOST_RANK": str(host_rank)}


@pytest.fixture
def become(monkeypatch):
    """Be one of these ranks, as the launcher starts them."""

    def become(ranks: list[dict[str, str]], number: int) -> None:
        for name in (PLACES, HOST, MOCK_HOSTS, SYSTEM, *with_peer_hosts(ranks)[number]):
            monkeypatch.delenv(name, raising=False)
        for name, value in with_peer_hosts(ranks)[number].items():
            monkeypatch.setenv(name, value)

    return become


@pytest.mark.parametrize("number", [0, 1])
def test_every_rank_sees_the_hosts_of_all_and_the_links_between_them(become, number):
    become([rank(0, LEFT), rank(1, RIGHT)], number)
    machine = chosen_machine()
    assert machine is not None
    assert machine.hosts == ("left.yaml", "right.yaml")
    between = [link for link in machine.links if len({machine.asics[e.chip].host for e in (link.a, link.b)}) == 2]
    assert len(between) == 1


def test_ranks_that_share_a_host_need_no_merging(become):
    become([rank(0, LEFT), rank(1, LEFT)], 1)
    assert MOCK_HOSTS not in os.environ
    assert PLACES not in os.environ
    machine = chosen_machine()
    assert machine is not None
    assert machine.hosts == ("left.yaml",)


def test_a_rank_without_a_descriptor_of_a_mesh_graph_sees_its_own_host(become):
    become([rank(0, LEFT), rank(1, RIGHT)], 1)
    assert ttnn.get_num_devices() == 2
    unique_ids = {asic.unique_id for asic in machine_system("test").machine.asics.values()}
    assert unique_ids == {2000, 2001}


@pytest.mark.parametrize("hosts", [(LEFT, RIGHT), (RIGHT, LEFT)], ids=["in order", "the other way round"])
def test_a_mesh_lies_on_the_host_of_its_process(become, tmp_path, monkeypatch, hosts):
    descriptor = tmp_path / "both.textproto"
    descriptor.write_text(A_MESH_ON_EACH)
    become([rank(id, host) for id, host in enumerate(hosts)], 0)
    monkeypatch.setenv("TT_MESH_GRAPH_DESC_PATH", str(descriptor))
    match = machine_system("test").match
    for node, chip in match.chips.items():
        assert match.machine.asics[chip].host == Path(hosts[node.mesh]).name


def test_sub_contexts_are_jobs_of_their_own():
    ranks = [
        rank(0, LEFT, TT_RUN_SUBCONTEXT_ID="0"),
        rank(0, RIGHT, TT_RUN_SUBCONTEXT_ID="1"),
        rank(1, LEFT, TT_RUN_SUBCONTEXT_ID="1"),
    ]
    alone, *both = with_peer_hosts(ranks)
    assert MOCK_HOSTS not in alone
    assert [found[MOCK_HOSTS] for found in both] == [os.pathsep.join([RIGHT, LEFT])] * 2
    assert [found[PLACES] for found in both] == [places_text({(0, 0): "right.yaml", (1, 0): "left.yaml"})] * 2


def test_host_ranks_that_are_left_open_bind_nothing():
    found = with_peer_hosts([rank(0, LEFT, host_rank=None), rank(0, RIGHT, host_rank=None)])
    assert PLACES not in found[0]
    assert MOCK_HOSTS in found[0]


def test_hosts_of_a_system_are_told_by_name(monkeypatch):
    ranks = [{HOST: f"host-{n}", "TT_MESH_ID": str(n), "TT_MESH_HOST_RANK": "0"} for n in range(2)]
    monkeypatch.setenv(PLACES, with_peer_hosts(ranks)[0][PLACES])
    assert Binding.from_environment().places == (((0, 0), "host-0"), ((1, 0), "host-1"))


def test_a_host_that_the_system_does_not_have_is_refused(monkeypatch):
    monkeypatch.setenv(SYSTEM, "Exabox")
    monkeypatch.setenv(HOST, "galaxy-77")
    with pytest.raises(MeshError, match=r"SOFTMESH_HOST=galaxy-77: Exabox has no such host; its hosts: galaxy-"):
        current_system()


@pytest.mark.parametrize("text", ["no json", "[[0, 1]]", '{"a": 1}', "[" * 100_000, '[["x", 0, "h"]]'])
def test_places_that_the_launcher_did_not_write_are_refused(monkeypatch, text):
    monkeypatch.setenv(PLACES, text)
    with pytest.raises(MeshError, match=r"SOFTMESH_PLACES=.* is not what tt-run sets"):
        Binding.from_environment()
