"""Ranks of one mesh agree on the variables that decide what a program does."""

from __future__ import annotations

import pytest

import softmesh as ttnn
from softmesh import agreed_variables
from softmesh.agreed_variables import agreed_values, difference
from softmesh.errors import MeshError
from softmesh.processes import rank_grid

NAMES = ["SOFTMESH_SYSTEM", "SOFTMESH_DOWN", "SOFTMESH_STRICT", "SOFTMESH_LOCKSTEP", "SOFTMESH_MEMORY"]
NAMES += ["TT_MESH_GRAPH_DESC_PATH", "TTNN_CONFIG_OVERRIDES", "TT_METAL_ENABLE_FABRIC_MESH_PASS_THROUGH"]


@pytest.fixture(autouse=True)
def nothing_set(monkeypatch):
    ttnn.close_mesh_device(ttnn.open_mesh_device(ttnn.MeshShape(1, 1)))  # what reads variables is loaded
    for name in agreed_variables.AGREED:
        monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize("name", NAMES)
def test_a_variable_of_one_rank_alone_is_named_with_both_values(monkeypatch, name):
    without = agreed_values()
    monkeypatch.setenv(name, "T3000")
    told = difference([0, 3], [without, agreed_values()])
    assert told == f"{name} is unset on rank 0, 'T3000' on rank 3"
    assert difference([0, 3], [agreed_values()] * 2) is None


@pytest.mark.parametrize(
    ("name", "value"), [("SOFTMESH_STRICT", "0"), ("SOFTMESH_MEMORY", "enforce"), ("SOFTMESH_SYSTEM", " ")]
)
def test_a_value_that_says_what_holds_anyway_is_no_difference(monkeypatch, name, value):
    without = agreed_values()
    monkeypatch.setenv(name, value)
    assert difference([0, 1], [without, agreed_values()]) is None


@pytest.mark.parametrize(
    ("name", "value", "same", "other"),
    [("SOFTMESH_STRICT", "1", "true", "0"), ("TT_METAL_ENABLE_FABRIC_MESH_PASS_THROUGH", "1", "on", ""),
     ("TTNN_CONFIG_OVERRIDES", '{"report_name": "r0"}', '{"report_name": "r1"}', '{"enable_logging": true}'),
     ("TTNN_CONFIG_OVERRIDES", '{"report_name": "r0"}', "", "{"),
     ("TTNN_CONFIG_OVERRIDES", '{"enable_logging": true, "report_name": "r0"}', '{"enable_logging":true}', "[]")],
)  # fmt: skip
def test_values_that_do_the_same_are_no_difference(monkeypatch, name, value, same, other):
    found = []
    for one in (value, same, other):
        monkeypatch.setenv(name, one)
        found.append(agreed_values())
    assert difference([0, 1], found[:2]) is None
    assert f"{name} is" in str(difference([0, 1], found[1:])) or (not same and not other)


def test_files_are_compared_by_their_contents(monkeypatch, tmp_path):
    found = []
    for name, text in (("a.yaml", "one"), ("b.yaml", "one"), ("c.yaml", "other")):
        (tmp_path / name).write_text(text)
        monkeypatch.setenv("SOFTMESH_SYSTEM", str(tmp_path / name))
        found.append(agreed_values())
    assert difference([0, 1], found[:2]) is None
    assert "SOFTMESH_SYSTEM is" in str(difference([0, 1, 2], found))


def test_variables_that_may_differ_are_not_compared(monkeypatch):
    without = agreed_values()
    for name in ("SOFTMESH_TIMEOUT", "SOFTMESH_DEVICE", "SOFTMESH_HOST", "TT_VISIBLE_DEVICES", "TT_MESH_HOST_RANK"):
        monkeypatch.setenv(name, "1")
    assert difference([0, 1], [without, agreed_values()]) is None


def test_a_mesh_is_not_opened_by_ranks_that_differ(monkeypatch):
    class Context:
        class group:
            ranks = (0, 1)

        @staticmethod
        def allgather_bytes(own, *, op):
            return [own, own.replace(b'["", ""]', b'["Galaxy", "Galaxy"]', 1)]

    with pytest.raises(MeshError, match=r"different environments: .* is unset on rank 0, 'Galaxy' on rank 1"):
        rank_grid._check_environment(Context)
