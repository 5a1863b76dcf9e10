"""Who meets whom when a mesh over several processes is opened."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from softmesh.errors import MeshError
from softmesh.processes.context import DistributedContext, SingleProcess
from softmesh.processes.rank_grid import MESH_IDS, join, mesh_ids
from softmesh.processes.waits import Group


class Pretended(SingleProcess):
    """Rank 0 of some that are not there; remembers whom it would have met."""

    one_host = False  # they share no memory

    def __init__(self, ranks: Sequence[int], met: list[tuple[int, ...]]) -> None:
        super().__init__()
        self.size, self.group, self.met = len(ranks), Group("pretended", tuple(ranks)), met

    def create_sub_context(self, ranks: Sequence[int]) -> DistributedContext:
        return Pretended([self.group.ranks[rank] for rank in ranks], self.met)

    def allgather_bytes(self, data: bytes, **_: object) -> list[bytes]:
        return [data] * int(self.size)  # the others run under the same variables

    def split(self, color: int, key: int, *, about: str = "") -> DistributedContext:
        self.met.append(self.group.ranks)
        return self


@pytest.fixture
def met(monkeypatch) -> list[tuple[int, ...]]:
    monkeypatch.delenv(MESH_IDS, raising=False)
    return []


def test_only_the_ranks_of_a_mesh_meet_when_it_is_opened(met, monkeypatch):
    monkeypatch.setenv(MESH_IDS, "0,1,0,2")
    grid = join(Pretended(range(4), met), mesh=0, host_rank=0, hosts=(1, 2))
    assert met == [(0, 2)]  # ranks 1 and 3 have meshes that they hold alone, and never come
    assert grid.context.group.ranks == (0, 2)


@pytest.mark.parametrize("ids", ["", "0,0"])
def test_ranks_of_which_nothing_is_said_all_meet(met, monkeypatch, ids):
    monkeypatch.setenv(MESH_IDS, ids)
    join(Pretended(range(2), met), mesh=0, host_rank=0, hosts=(2, 1))
    assert met == [(0, 1)]


def test_more_ranks_than_the_mesh_has_hosts_are_refused(met):
    with pytest.raises(MeshError, match=r"Mesh 0 lies over 2 hosts, but 3 processes are bound to it \(ranks 0, 1, 2\)"):
        join(Pretended(range(3), met), mesh=0, host_rank=0, hosts=(1, 2))


def test_a_host_rank_that_another_process_has_is_refused(met):
    with pytest.raises(MeshError, match="TT_MESH_HOST_RANK=1 of mesh 0 is claimed twice or leaves a gap"):
        join(Pretended(range(2), met), mesh=0, host_rank=1, hosts=(1, 2))


def test_mesh_ids_of_a_sub_context_are_those_of_its_ranks(met, monkeypatch):
    monkeypatch.setenv(MESH_IDS, "0,1,5,6")
    assert mesh_ids(Pretended([2, 3], met)) == [5, 6]


@pytest.mark.parametrize("text", ["0", "0,x", "-1,0"])
def test_mesh_ids_that_do_not_fit_the_job_are_refused(met, monkeypatch, text):
    monkeypatch.setenv(MESH_IDS, text)
    with pytest.raises(MeshError, match="must list one mesh id for each rank of the job"):
        mesh_ids(Pretended(range(2), met))
