"""Bad input to unified ops: both sides are named, and the nearest thing that works; nothing has moved by then."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from unified_operands import SUM, commands_of, spread

import softmesh as ttnn
from softmesh import Replicate, Shard, distributed

R = Replicate()
TILE = ttnn.TILE_LAYOUT


@pytest.fixture
def mesh(idle_machine):
    ttnn.set_fabric_config(ttnn.FabricConfig.FABRIC_1D)
    with ttnn.create_mesh_device(ttnn.MeshShape(2, 4)) as opened:
        yield opened


def refused(call: Callable[[], Any], kind: type[Exception], *said: str) -> None:
    with commands_of() as names, pytest.raises(kind) as told:
        call()
    assert isinstance(told.value, ttnn.SoftmeshError)
    for part in said:
        assert part in str(told.value)
    assert names == []


def test_more_devices_than_elements_need_lenient_mode(mesh):
    x, w = spread(torch.randn(3, 64), mesh, (R, R)), spread(torch.randn(64, 64), mesh, (R, R))
    for words, nearest in (
        ([R, Shard(0)], "(Replicate, Replicate) would work"),
        ([Shard(0), Shard(0)], "(Shard(0), Replicate) would work"),
    ):
        refused(
            lambda words=words: distributed.matmul(x, w, output_topology=words),
            RuntimeError,
            "splits dim 0 of [3, 64]",
            "and it has 3 elements",
            nearest,
            "softmesh.lenient()",
        )
    with ttnn.lenient():
        y = distributed.matmul(x, w, output_topology=[R, Shard(0)])
    assert y.view_distribution().placements == (R, Shard(0, 3))


def test_operands_on_different_meshes_are_named_both(mesh):
    with ttnn.create_mesh_device(ttnn.MeshShape(2, 4)) as other:
        x, w = spread(torch.randn(32, 32), mesh, (R, R)), spread(torch.randn(32, 32), other, (R, R))
        refused(
            lambda: distributed.matmul(x, w),
            RuntimeError,
            f"mesh id {mesh.id()}",
            f"mesh id {other.id()}",
            "ttnn.to_device",
        )


def test_an_operand_on_the_host_is_refused(mesh):
    x = spread(torch.randn(32, 32), mesh, (R, R))
    host = ttnn.from_torch(torch.randn(32, 32), layout=TILE)
    refused(lambda: distributed.matmul(x, host), RuntimeError, "the host", "ttnn.to_device")
    refused(lambda: distributed.matmul(host, host), RuntimeError, "the host")


def test_shapes_that_do_not_multiply_are_told_whole(mesh):
    x, w = spread(torch.randn(32, 64), mesh, (R, Shard(1))), spread(torch.randn(32, 64), mesh, (Shard(0), R))
    refused(
        lambda: distributed.matmul(x, w),
        RuntimeError,
        "The width of the first tensor must be equal to the height of the second tensor",
        "input_tensor_a [32, 64] (Replicate, Shard(1))",
        "input_tensor_b [32, 64] (Shard(0), Replicate)",
    )


def test_what_the_plain_op_refuses_is_refused_before_anything_moves(mesh):
    rows = spread(torch.randn(32, 64), mesh, (R, Shard(0)), layout=ttnn.ROW_MAJOR_LAYOUT)
    w = spread(torch.randn(64, 64), mesh, (R, Shard(0)))
    refused(lambda: distributed.matmul(rows, w), RuntimeError, "must be tilized")
    x = spread(torch.randn(32, 64), mesh, (R, Shard(0)))
    refused(lambda: distributed.matmul(x, w, transpose_c=True), TypeError, "transpose_c", "transpose_a")
    refused(lambda: distributed.matmul(x, w, activation="gelo"), TypeError, "gelo", "gelu")
    refused(lambda: distributed.softmax(x, dim=5), RuntimeError, "dim=5")
    refused(lambda: distributed.matmul(x, w, dtype="bf16"), TypeError, "dtype")


def test_pieces_that_stand_for_no_value_are_refused(mesh):
    x = spread(torch.randn(32, 64), mesh, (R, Shard(1)))
    own = ttnn.softmax(x, dim=-1)  # along a split dim each device has made something of its own
    refused(lambda: distributed.matmul(own, x, transpose_b=True), RuntimeError, "stands for no one value", "Local")
    shard = ttnn.get_device_tensors(x)[0]
    refused(lambda: distributed.gelu(shard), RuntimeError, "stands for no one value")


def test_deallocated_tensors_and_closed_meshes_are_told(mesh):
    x, w = spread(torch.randn(32, 32), mesh, (R, Shard(1))), spread(torch.randn(32, 32), mesh, (R, R))
    ttnn.deallocate(w)
    refused(lambda: distributed.matmul(x, w), RuntimeError, "deallocated")
    with ttnn.create_mesh_device(ttnn.MeshShape(1, 2)) as other:
        y = spread(torch.randn(32, 32), other, (R, R))
    with pytest.raises(ttnn.MeshError):
        distributed.gelu(y)


def test_a_call_without_tensors_says_what_it_got(mesh):
    refused(lambda: distributed.matmul(3, 4), TypeError, "needs a ttnn.Tensor, got int, int")
    refused(lambda: distributed.matmul(), TypeError, "needs a ttnn.Tensor, got nothing")


def test_a_result_tensor_of_the_callers_own_is_refused(mesh):
    x = spread(torch.randn(32, 32), mesh, (R, R))
    refused(
        lambda: distributed.add(x, x, output_tensor=x),
        TypeError,
        "leave output_tensor out",
        "output_topology",
    )


def test_collectives_and_ops_in_place_have_no_unified_form(mesh):
    with pytest.raises(ttnn.NotModelled, match=r"no 'all_gather'.*redistribute"):
        distributed.all_gather
    x = spread(torch.randn(32, 32), mesh, (R, R))
    refused(lambda: distributed.add_(x, x), NotImplementedError, "changes its operand in place", "ttnn.add_")


def test_a_name_that_is_nowhere_is_refused_with_the_nearest():
    with pytest.raises(AttributeError, match=r"Did you mean 'matmul'"):
        distributed.matmull


def test_a_bias_for_contributions_is_not_added_by_every_device(mesh):
    a, b, bias = torch.randn(32, 64), torch.randn(64, 32), torch.randn(1, 32)
    x, w, c = (spread(t, mesh, words) for t, words in ((a, (R, Shard(1))), (b, (R, Shard(0))), (bias, (R, R))))
    y = distributed.linear(x, w, bias=c, output_topology=[R, SUM])
    total = sum(piece for piece in y.pieces()[:4])
    torch.testing.assert_close(total, a @ b + bias, atol=1e-4, rtol=1e-4)


def test_an_unknown_argument_is_answered_with_the_names_of_unified_ops_too(mesh):
    x = spread(torch.randn(8, 8), mesh, (R, R))
    with pytest.raises(TypeError, match=r"distributed\.matmul\(\): .* no argument 'output_topolgy'") as told:
        distributed.matmul(x, x, output_topolgy=[R, R])
    assert "Did you mean 'output_topology'?" in str(told.value)
    assert "implicit" in str(told.value)


def test_a_redistribution_takes_a_tensor_and_placements_by_position_or_by_name(mesh):
    x = spread(torch.randn(8, 8), mesh, (R, R))
    for moved in (
        distributed.redistribute(x, [R, R]),
        distributed.redistribute(input_tensor=x, placements=[R, R]),
    ):
        assert torch.equal(ttnn.compose(moved), ttnn.compose(x))
    assert "redistribute on" in str(distributed.explain(distributed.redistribute, x, placements=[R, R]))
    for args, named in (((x,), {}), ((), {}), ((x, [R, R], 1), {}), ((x,), {"placement": [R, R]})):
        with pytest.raises(TypeError, match="it takes input_tensor and placements, got"):
            distributed.redistribute(*args, **named)
