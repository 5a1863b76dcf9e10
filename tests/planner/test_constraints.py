"""Constraints are kept, and those that cannot be kept together are named, no more and no fewer."""

from __future__ import annotations

import pytest
import torch

import softmesh as ttnn
from softmesh import Replicate, Shard
from softmesh.planner.constraints import (
    Constraint,
    MemoryShare,
    MeshShapeIs,
    NotReplicated,
    PiecesOf,
    Pinned,
    TileAligned,
    UsersAxis,
    WeightDtypes,
)
from softmesh.planner.layout_plan import LayoutPlan, plan


def mlp(device: ttnn.MeshDevice, width: int = 2048, rows: int = 256) -> ttnn.Tensor:
    def weight(*shape: int) -> ttnn.Tensor:
        return ttnn.from_torch(torch.zeros(shape), ttnn.bfloat16, layout=ttnn.TILE_LAYOUT, device=device)

    x, up, down = weight(1, 1, rows, width), weight(width, 4 * width), weight(4 * width, width)
    return ttnn.add(x, ttnn.matmul(ttnn.gelu(ttnn.matmul(x, up)), down))


def planned(*constraints: Constraint, system: str = "T3000", **options: object) -> LayoutPlan:
    return plan(mlp, system, constraints=constraints, **options)  # type: ignore[arg-type]


def test_a_pinned_tensor_lies_where_it_is_pinned() -> None:
    found = planned(Pinned("up", (Replicate(), Shard(0))), MeshShapeIs((2, 4)))
    assert found.mesh_shape == (2, 4)
    assert found.layout("up") == (Replicate(), Shard(0))


def test_a_negative_dim_counts_from_the_last() -> None:
    assert planned(Pinned("up", (Replicate(), Shard(-1))), MeshShapeIs((2, 4))).layout("up")[1] == Shard(1)


def test_no_device_keeps_the_whole_of_what_is_not_to_be_replicated() -> None:
    found = planned(NotReplicated("up"), NotReplicated("x"))
    assert any(isinstance(word, Shard) for word in found.layout("up"))
    assert any(isinstance(word, Shard) for word in found.layout("x"))


def test_units_stay_whole() -> None:
    found = planned(PiecesOf("up", 1, 2048), NotReplicated("up"), MeshShapeIs((1, 8)))
    pieces = found.layout("up")
    assert Shard(1) not in pieces  # 8192 columns over 8 devices would be pieces of 1024


def test_an_axis_for_users_carries_nothing() -> None:
    found = planned(UsersAxis(0), MeshShapeIs((2, 4)))
    assert not [step for move in found.cost.moves for step in move.way.steps if step.travels and step.axis == 0]
    assert found.layout("up")[0] == Replicate()
    assert found.layout("down")[0] == Replicate()


def test_splits_that_are_aligned_cut_no_tile() -> None:
    def narrow(device: ttnn.MeshDevice) -> ttnn.Tensor:
        x = ttnn.from_torch(torch.zeros(64, 8192), ttnn.bfloat16, layout=ttnn.TILE_LAYOUT, device=device)
        return ttnn.relu(x)

    pin = Pinned("x", (Replicate(), Shard(0)))
    assert plan(narrow, "T3000", constraints=[pin, MeshShapeIs((2, 4))]).layout("x")[1] == Shard(0)
    with pytest.raises(RuntimeError, match=r"cannot be kept together: x lies as .*; splits are aligned to tiles"):
        plan(narrow, "T3000", constraints=[pin, MeshShapeIs((2, 4)), TileAligned()])


def test_memory_is_kept_to_its_share() -> None:
    free = planned()
    share = free.cost.peak / free.problem.memory_bytes
    assert planned(MemoryShare(share * 1.01)).cost.peak <= free.problem.memory_bytes * share * 1.01


def test_weights_are_kept_in_a_dtype_that_is_allowed_where_it_is_faster() -> None:
    found = planned(dtypes=[WeightDtypes("up", (ttnn.bfloat8_b,))])
    assert found.home("up").dtype is ttnn.bfloat8_b
    assert found.home("down").dtype is ttnn.bfloat16
    assert found.seconds < planned().seconds


def test_the_conflict_is_named_and_nothing_else() -> None:
    with pytest.raises(RuntimeError) as refused:
        planned(NotReplicated("down"), Pinned("up", (Replicate(), Replicate())), UsersAxis(0), NotReplicated("up"))
    told = str(refused.value)
    assert "cannot be kept together: up lies as Replicate, Replicate; up is not replicated." in told
    assert "down" not in told
    assert "users" not in told


def test_a_constraint_that_no_mesh_keeps_is_named_alone() -> None:
    with pytest.raises(RuntimeError, match="This one cannot be kept: the mesh is 3x3"):
        planned(MeshShapeIs((3, 3)), NotReplicated("up"))


def test_axes_that_a_constraint_tells_apart_are_both_looked_at() -> None:
    """Two chips of four, as 2x1 and as 1x2: only one of them has an axis 0 to be split along."""
    along = Pinned("layers.*", (Shard(0), Replicate()))
    split = [along, NotReplicated("layers.*")]
    found = plan(layers, "T3000", {"count": 4}, goal="prefill", stages=4, constraints=split)
    assert found.mesh_shape == (2, 1)


def layers(device: ttnn.MeshDevice, count: int) -> ttnn.Tensor:
    def weight(*shape: int) -> ttnn.Tensor:
        return ttnn.from_torch(torch.zeros(shape), ttnn.bfloat16, layout=ttnn.TILE_LAYOUT, device=device)

    model = {"layers": [weight(512, 512) for _ in range(count)]}
    x = weight(1, 1, 64, 512)
    for w in model["layers"]:
        x = ttnn.relu(ttnn.matmul(x, w))
    return x


def test_a_mesh_that_is_too_small_alone_may_do_in_stages() -> None:
    """The shape rules out larger meshes, and the memory one stage."""
    whole = [MeshShapeIs((1, 1)), MemoryShare(2.5e-4)]
    found = plan(layers, "T3000", {"count": 8}, constraints=whole)
    assert found.mesh_shape == (1, 1)
    assert len(found.stages) > 1


def test_memory_takes_part_in_conflicts() -> None:
    with pytest.raises(RuntimeError, match=r"tensors take at most 0% of each device's memory"):
        planned(MemoryShare(1e-5), NotReplicated("up"))


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"constraints": [NotReplicated("upp")]}, "no weight, input or cache is called 'upp'. The program has x, up"),
        ({"goal": "speed"}, "goal is one of decode, prefill, training, got 'speed'"),
        ({"time_limit": 0}, "time_limit is a number of seconds above 0"),
        ({"taken": ["2 by 4"]}, "written as 2x4 or 2x4@0,4"),
        ({"taken": "2x2@0,0"}, "taken is a list, such as .*, got '2x2@0,0'"),
        ({"down": "link:0-1"}, "down is a list, such as .*, got 'link:0-1'"),
        ({"constraints": TileAligned()}, r"constraints is a list, such as .*, got TileAligned\(\)"),
        ({"constraints": ["up"]}, "constraints is a list such as .*, got 'up' in it"),
        ({"dtypes": [NotReplicated("up")]}, r"dtypes is a list such as .*, got NotReplicated\(names='up'\) in it"),
    ],
)
def test_bad_input_is_refused(options: dict[str, object], told: str) -> None:
    with pytest.raises((RuntimeError, ValueError, TypeError), match=told):
        plan(mlp, "T3000", **options)  # type: ignore[arg-type]


def test_what_is_no_function_is_refused() -> None:
    with pytest.raises(TypeError, match="plans a function or a torch module, got 3"):
        plan(3, "T3000")  # type: ignore[arg-type]


def test_a_single_input_is_a_list_of_one() -> None:
    with pytest.raises(TypeError, match=r"inputs are a list, or a dict .*, got a Tensor: write \[x\]"):
        plan(torch.nn.ReLU(), "N150", torch.zeros(32, 32))  # type: ignore[arg-type]
    found = plan(torch.nn.ReLU(), "N150", [torch.zeros(32, 32)])
    with pytest.raises(TypeError, match="inputs are a list"):
        found.values(torch.nn.ReLU(), torch.zeros(32, 32))  # type: ignore[arg-type]


def test_a_mesh_shape_may_be_one_of_ttnns() -> None:
    assert MeshShapeIs(ttnn.MeshShape(2, 4)) == MeshShapeIs((2, 4))  # type: ignore[arg-type]
    assert planned(MeshShapeIs([2, 4])).mesh_shape == (2, 4)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"a shape such as \(2, 4\), got '2x4'"):
        MeshShapeIs("2x4")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="the number of an axis of the mesh, got '0'"):
        UsersAxis("0")  # type: ignore[arg-type]


def test_one_dtype_may_be_given_alone_and_a_text_is_none() -> None:
    assert WeightDtypes("up", ttnn.bfloat8_b) == WeightDtypes("up", (ttnn.bfloat8_b,))  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"dtypes such as ttnn\.bfloat8_b, got 'bfloat8_b'"):
        WeightDtypes("up", ("bfloat8_b",))  # type: ignore[arg-type]


def test_a_share_is_a_part_of_one() -> None:
    with pytest.raises((RuntimeError, ValueError, TypeError), match="between 0 and 1"):
        MemoryShare(1.5)
    with pytest.raises((RuntimeError, ValueError, TypeError), match="Replicate\\(\\) or Shard"):
        Pinned("x", ("R",))  # type: ignore[arg-type]
