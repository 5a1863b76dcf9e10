"""Programs that name their mesh axes run on every mesh that has them."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from unified_operands import SUM, mesh_of, value_of, words_of

import softmesh as ttnn
from softmesh import Partial, Replicate, Shard, distributed

R = Replicate()
TILE = ttnn.TILE_LAYOUT


@pytest.fixture(autouse=True)
def _lenient():
    with ttnn.lenient():
        yield


def put(values: torch.Tensor, mesh: ttnn.MeshDevice, *words: ttnn.Placement) -> ttnn.Tensor:
    mapper = distributed.mesh_mapper(mesh, words)
    return ttnn.from_torch(values, dtype=ttnn.float32, layout=TILE, device=mesh, mesh_mapper=mapper)


@pytest.fixture
def mesh():
    named = mesh_of(2, 4)
    named.axis_names = ("dp", "tp")
    yield named
    del named.axis_names


@pytest.mark.parametrize("shape", [(1, 1), (2, 4), (8, 4), (16, 16)])
def test_one_script_gives_the_same_result_on_every_mesh(shape):
    torch.manual_seed(0)
    a, up, down = torch.randn(64, 128), torch.randn(128, 256), torch.randn(256, 128)
    with ttnn.create_mesh_device(ttnn.MeshShape(shape)) as mesh:
        mesh.axis_names = ("dp", "tp")
        x = put(a, mesh, Shard(0, axis="dp"))
        hidden = distributed.linear(x, put(up, mesh, Shard(-1, axis="tp")), activation="gelu")
        y = distributed.matmul(hidden, put(down, mesh, Shard(0, axis="tp")), output_topology=[Shard(0, axis="dp")])
        assert words_of(y) == ((R if shape[0] == 1 else Shard(0)), R)
        torch.testing.assert_close(value_of(y), F.gelu(a @ up) @ down, atol=1e-3, rtol=1e-4)


def test_axes_that_no_placement_names_are_replicated(mesh):
    x = put(torch.randn(64, 64), mesh, Shard(1, axis="tp"))
    assert words_of(x) == (R, Shard(1))
    assert words_of(distributed.redistribute(x, [Shard(0, axis="dp")])) == (Shard(0), R)
    assert words_of(distributed.redistribute(x, [Partial(axis="tp")])) == (R, SUM)
    assert words_of(distributed.redistribute(x, [])) == (R, R)


def test_the_order_in_which_axes_are_named_does_not_matter(mesh):
    x = put(torch.randn(64, 64), mesh, Shard(0, axis="tp"), Shard(1, axis="dp"))
    assert words_of(x) == (Shard(1), Shard(0))


def test_one_dim_may_be_split_along_all_axes(mesh):
    x = put(torch.randn(64, 64), mesh, Shard(0, axis="dp"), Shard(0, axis="tp"))
    assert words_of(x) == (Shard(0), Shard(0))


def test_a_submesh_has_the_names_of_its_parent():
    with ttnn.create_mesh_device(ttnn.MeshShape(4, 4)) as parent:
        parent.axis_names = ("dp", "tp")
        part = parent.create_submesh(ttnn.MeshShape(2, 4))
        x = put(torch.randn(64, 64), part, Shard(1, axis="tp"))
        assert words_of(x) == (R, Shard(1))


@pytest.mark.parametrize(
    "names", [("dp",), ("dp", "dp"), ("dp", "tp", "pp"), "dp", ("dp", ""), ("dp", 1), []], ids=repr
)
def test_names_that_do_not_fit_the_mesh_are_refused_with_some_that_do(mesh, names):
    mesh.axis_names = names
    with pytest.raises(ValueError, match=r"one name for each of the 2 axes of MeshShape\(\[2, 4\]\)") as told:
        put(torch.randn(64, 64), mesh, Shard(1, axis="tp"))
    assert "('dp', 'tp')" in str(told.value)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            [Shard(0, axis="pt")],
            r"Shard\(0, axis='pt'\): the axes of .* are 'dp', 'tp'\. Did you mean 'tp'\?",
        ),
        ([Shard(0, axis="tp"), Shard(1, axis="tp")], r"contradict each other"),
        ([Shard(0, axis="tp"), R], r"either every placement names its axis, or none does"),
        ([R], r"1 placements for the 2 axes .* Such as \[Shard\(-1, axis='tp'\)\]"),
        ([R, Shard(7)], r"Shard\(7\) of a tensor with 2 dims: take -2 to 1"),
        ([R, Partial("max")], r"a result can be left as Partial\(sum\), not as Partial\(max\)"),
    ],
)
def test_a_request_that_cannot_be_is_refused_with_the_nearest_that_can(mesh, words, said):
    x = put(torch.randn(64, 64), mesh)
    with pytest.raises(ValueError, match=said):
        distributed.redistribute(x, words)


@pytest.mark.parametrize("words", [[R, ttnn.Local()], "tp", 3, [R, "Shard"]], ids=repr)
def test_what_is_no_placement_is_refused(mesh, words):
    x = put(torch.randn(64, 64), mesh)
    with pytest.raises(TypeError, match=r"distributed\.redistribute: placements"):
        distributed.redistribute(x, words)


def test_a_named_axis_of_a_mesh_without_names_says_how_to_name_them():
    x = put(torch.randn(64, 64), mesh_of(2, 4))
    with pytest.raises(ValueError, match=r"have no names: set mesh\.axis_names = \('dp', 'tp'\)"):
        distributed.redistribute(x, [Shard(0, axis="tp")])


def test_a_mapper_refuses_what_cannot_be_put_on_a_mesh(mesh):
    with pytest.raises(TypeError, match=r"as Replicate\(\) or Shard\(dim\), not as Partial"):
        distributed.mesh_mapper(mesh, [Partial(axis="tp")])
    with pytest.raises(TypeError, match="must be a MeshDevice"):
        distributed.mesh_mapper((2, 4), [])
    with pytest.raises(ttnn.MeshError, match=r"along one axis or along all"):
        distributed.mesh_mapper(mesh_of(2, 2, 2), [Shard(0), Shard(0), R])


def test_a_word_that_names_its_axis_shows_it():
    assert repr(Shard(-1, axis="tp")) == "Shard(-1, axis='tp')"
    assert repr(Partial(axis="dp")) == "Partial(sum, axis='dp')"
    assert Shard(-1, axis="tp") is Shard(-1, axis="tp")
    assert Shard(-1, axis="tp") is not Shard(-1)
