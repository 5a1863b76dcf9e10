"""Gradients of mesh tensors: leaves, the backward pass, functions of one's own, recomputation, and what is refused."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import pytest
import torch
from operands import R, S, put, random

import softmesh as ttnn
from softmesh.autograd.function import Function, recomputed
from softmesh.autograd.leaves import backward_all
from softmesh.train import checkpoints

SUM = ttnn.Partial("sum")


@pytest.fixture(scope="module")
def grid() -> Iterator[ttnn.MeshDevice]:
    """One mesh of 2x4 for all that leave it as it is."""
    with ttnn.create_mesh_device(ttnn.MeshShape(2, 4)) as opened:
        yield opened


def held(tensor: ttnn.Tensor | None) -> torch.Tensor:
    """What each device holds, one after the other."""
    assert tensor is not None
    return tensor.pieces().float()


def squares(x: ttnn.Tensor) -> ttnn.Tensor:
    """A loss on each device whose gradient is 2 x."""
    return ttnn.sum(ttnn.square(x))


# -- leaves ----------------------------------------------------------------------------------------


def test_a_leaf_has_no_gradient_until_a_backward_pass_brings_one(grid):
    x = put(random(4, 8), grid)
    assert not x.requires_grad
    assert x.requires_grad_() is x
    assert x.requires_grad
    assert x.grad is None
    squares(x).backward()
    assert torch.equal(held(x.grad)[3], 2 * random(4, 8))


@pytest.mark.parametrize(
    ("own", "other", "expected"),
    [
        ((R, R), (R, R), (R, R)),
        ((R, R), (S(0), R), (SUM, R)),
        ((R, R), (S(0), S(1)), (SUM, SUM)),
        ((S(0), R), (S(0), S(1)), (S(0), SUM)),
        ((S(0), S(1)), (S(0), S(1)), (S(0), S(1))),
        ((S(0), S(1)), (R, R), (S(0), S(1))),
    ],
)
def test_devices_that_share_a_value_hold_contributions_to_its_gradient(grid, own, other, expected):
    """Split like the value; Replicate where devices agree; a partial sum where each got its own."""
    x, y = (
        put(random(4 * (2 if rows is S(0) else 1), 8 * (4 if columns is S(1) else 1)), grid, (rows, columns))
        for rows, columns in (own, other)
    )
    x.requires_grad_()
    ttnn.sum(ttnn.multiply(x, y)).backward()
    assert ttnn.placements(x.grad) == expected
    assert torch.equal(held(x.grad), held(y))


def test_nothing_is_reduced_behind_the_users_back(grid):
    """A replicated weight in a data-parallel product: eight gradients until a collective adds them up."""
    w = put(random(4, 4), grid).requires_grad_()
    x = put(random(16, 4), grid, (S(0), S(0)))
    ttnn.sum(ttnn.matmul(x, w)).backward()
    each = random(16, 4).reshape(8, 2, 4).sum(1).unsqueeze(-1).expand(8, 4, 4)
    assert ttnn.placements(w.grad) == (SUM, SUM)
    torch.testing.assert_close(held(w.grad), each)
    with ttnn.lenient():
        total = ttnn.all_reduce(ttnn.all_reduce(w.grad, cluster_axis=0), cluster_axis=1)
    torch.testing.assert_close(held(total)[0], each.sum(0))


def test_gradients_of_micro_batches_add_up_whatever_their_words(grid):
    """First a gradient that all devices agree on, then one of their own; and the other way round."""
    own = put(random(8, 8), grid, (S(0), R))
    for first_is_shared in (True, False):
        x = put(random(4, 8), grid).requires_grad_()
        losses: list[Callable[[], ttnn.Tensor]] = [
            lambda: squares(x),  # noqa: B023
            lambda: ttnn.sum(ttnn.multiply(x, own)),  # noqa: B023
        ]
        for loss in losses if first_is_shared else reversed(losses):
            loss().backward()
        assert ttnn.placements(x.grad) == (SUM, R)
        torch.testing.assert_close(held(x.grad), 2 * held(x) + held(own))


def test_shared_and_own_gradients_add_up_within_one_pass_in_either_order(grid):
    own = put(random(8, 8), grid, (S(0), R))
    for swapped in (False, True):
        x = put(random(4, 8), grid).requires_grad_()
        terms = [ttnn.square(x), ttnn.multiply(x, own)]
        ttnn.sum(ttnn.add(*(reversed(terms) if swapped else terms))).backward()
        torch.testing.assert_close(held(x.grad), 2 * held(x) + held(own))


def test_a_tensor_used_twice_gets_both_gradients(grid):
    x = put(random(4, 8), grid, (S(0), R)).requires_grad_()
    ttnn.sum(ttnn.multiply(x, x)).backward()
    torch.testing.assert_close(held(x.grad), 2 * held(x))
    x.grad = None
    ttnn.sum(ttnn.add(x, ttnn.relu(x))).backward()
    torch.testing.assert_close(held(x.grad), 1 + (held(x) > 0).float())


def test_a_gradient_can_be_set_and_taken_away(grid):
    x = put(random(4, 8), grid).requires_grad_()
    given = put(random(8, 8), grid, (S(0), R))
    x.grad = given
    assert torch.equal(held(x.grad), held(given))
    squares(x).backward()
    torch.testing.assert_close(held(x.grad), held(given) + 2 * held(x))
    x.grad = None
    assert x.grad is None


def test_what_is_no_gradient_of_the_tensor_is_refused(grid):
    x = put(random(4, 8), grid).requires_grad_()
    for wrong in (3.0, random(4, 8), ttnn.from_torch(random(4, 8))):
        with pytest.raises(ttnn.MeshError, match="grad: must be a tensor on the same mesh, or None"):
            x.grad = wrong
    with pytest.raises(ttnn.MeshError, match=r"grad: has shape .*\[8, 4\]"):
        x.grad = put(random(8, 4), grid)
    gone = put(random(4, 8), grid)
    ttnn.deallocate(gone)
    with pytest.raises(RuntimeError, match="deallocated"):
        x.grad = gone


def test_only_floats_that_were_not_computed_can_be_leaves(grid):
    with pytest.raises(ttnn.MeshError, match="only floating-point tensors have gradients"):
        put(torch.ones(4, 4), grid, dtype=ttnn.int32).requires_grad_()
    x = put(random(4, 8), grid).requires_grad_()
    y = ttnn.relu(x)
    assert y.requires_grad_() is y  # it has one already
    with pytest.raises(ttnn.MeshError, match="computed from others that require gradients: detach"):
        y.requires_grad_(False)
    with pytest.raises(ttnn.MeshError, match="a shard shares the tensor it was taken from"):
        ttnn.get_device_tensors(put(random(4, 8), grid))[0].requires_grad_()


def test_a_leaf_can_stop_asking_for_gradients(grid):
    x = put(random(4, 8), grid).requires_grad_()
    x.requires_grad_(False)
    assert not squares(x).requires_grad


def test_parameters_of_bfloat16_get_gradients_of_bfloat16(grid):
    x = put(random(4, 8), grid, dtype=ttnn.bfloat16).requires_grad_()
    w = put(random(8, 8), grid, dtype=ttnn.bfloat16).requires_grad_()
    squares(ttnn.matmul(x, w)).backward()
    assert x.grad.dtype is w.grad.dtype is ttnn.bfloat16
    wide = [one.detach().pieces()[0].double().requires_grad_() for one in (x, w)]
    (wide[0] @ wide[1]).square().sum().backward()
    for found, exact in zip((x.grad, w.grad), wide, strict=True):
        torch.testing.assert_close(held(found)[0].double(), exact.grad, rtol=0.02, atol=0.1)


# -- backward --------------------------------------------------------------------------------------


def test_backward_needs_a_single_value_or_a_gradient(grid):
    x = put(random(4, 8), grid).requires_grad_()
    y = ttnn.square(x)
    with pytest.raises(ttnn.MeshError, match=r"gradient is implied for a single value only.*ttnn.mean"):
        y.backward()
    with pytest.raises(ttnn.MeshError, match="backward: the gradient has shape"):
        y.backward(put(random(4, 4), grid))
    y.backward(put(random(8, 8), grid, (S(0), R)))
    torch.testing.assert_close(held(x.grad), 2 * held(x) * held(put(random(8, 8), grid, (S(0), R))))


def test_backward_of_what_came_from_no_parameter_says_so(grid):
    x = put(random(4, 8), grid)
    with pytest.raises(ttnn.MeshError, match=r"nothing that .* was computed from requires a gradient"):
        squares(x).backward()
    x.requires_grad_()
    with ttnn.train.no_grad():
        y = squares(x)
    with pytest.raises(ttnn.MeshError, match=r"leave no_grad\(\)"):
        y.backward()


@pytest.mark.parametrize("words", [(R, R), (S(0), S(1))])
def test_a_second_pass_over_a_graph_needs_retain_graph_in_the_first(grid, words):
    x, y = (put(random(8, 32), grid, words).requires_grad_(), put(random(8, 32), grid, (S(0), S(1))))
    for retain in (True, False):
        x.grad = None
        loss = ttnn.sum(ttnn.exp(ttnn.multiply(x, y) if words == (S(0), S(1)) else ttnn.square(x)))
        loss.backward(retain_graph=retain)
        once = held(x.grad)
        if retain:
            loss.backward()
            torch.testing.assert_close(held(x.grad), 2 * once)
        else:
            with pytest.raises(RuntimeError, match="backward through the graph a second time"):
                loss.backward()


def test_several_losses_go_back_in_one_pass(grid):
    x = put(random(4, 8), grid).requires_grad_()
    backward_all([squares(x), ttnn.relu(x)], [None, put(random(8, 8), grid, (S(0), R))])
    own = held(put(random(8, 8), grid, (S(0), R)))
    torch.testing.assert_close(held(x.grad), 2 * held(x) + own * (held(x) > 0))


def test_detached_values_are_the_same_and_send_nothing_back(grid):
    x = put(random(4, 8), grid).requires_grad_()
    y = ttnn.square(x)
    cut = y.detach()
    assert not cut.requires_grad
    assert torch.equal(held(cut), held(y))
    ttnn.sum(ttnn.multiply(x, cut)).backward()
    torch.testing.assert_close(held(x.grad), held(cut))


def test_a_closed_mesh_has_no_backward_pass():
    with ttnn.create_mesh_device(ttnn.MeshShape(1, 2)) as mesh:
        x = put(random(4, 8), mesh).requires_grad_()
        loss = squares(x)
    with pytest.raises(RuntimeError, match="closed"):
        loss.backward()
    with pytest.raises(RuntimeError, match="closed"):
        squares(x)


# -- other grids and some of the devices -----------------------------------------------------------


def over(mesh: ttnn.MeshDevice, shape: list[int], words: list[Any], offset: Any = None) -> Any:
    config = ttnn.MeshMapperConfig(words, ttnn.MeshShape(shape), mesh_offset_override=offset)
    return ttnn.create_mesh_mapper(mesh, config)


def test_an_operand_over_eight_in_a_row_and_one_over_two_by_four_each_get_their_own(grid):
    values = random(16, 8)
    row = ttnn.from_torch(
        values, layout=ttnn.TILE_LAYOUT, device=grid, mesh_mapper=over(grid, [8], [ttnn.PlacementShard(0)])
    ).requires_grad_()
    square = put(random(4, 8), grid, (S(0), R)).requires_grad_()
    ttnn.sum(ttnn.multiply(row, square)).backward()
    torch.testing.assert_close(held(row.grad), held(square))
    torch.testing.assert_close(held(square.grad), held(row))
    assert ttnn.placements(square.grad) == (S(0), SUM)


def test_devices_that_take_no_part_get_no_gradient(grid):
    some = ttnn.from_torch(
        random(6, 8),
        layout=ttnn.TILE_LAYOUT,
        device=grid,
        mesh_mapper=over(grid, [3], [ttnn.PlacementShard(0)]),
    ).requires_grad_()
    everywhere = put(random(2, 8), grid).requires_grad_()
    ttnn.sum(ttnn.multiply(some, everywhere)).backward()
    torch.testing.assert_close(held(some.grad), held(everywhere)[:3])
    torch.testing.assert_close(held(everywhere.grad)[:3], held(some))
    assert not held(everywhere.grad)[3:].any()


def test_operands_that_name_the_devices_in_another_order_get_their_own(grid):
    shards = ttnn.get_device_tensors(put(random(2, 8), grid))
    turned = ttnn.combine_device_tensors(tensors=shards[::-1]).detach().requires_grad_()
    y = put(random(2, 8) / 2, grid).requires_grad_()
    product = ttnn.multiply(turned, y)
    assert ttnn.placements(product) == (R,)
    squares(product).backward()
    torch.testing.assert_close(held(y.grad)[5], 2 * held(y)[5] * held(turned)[2] ** 2)
    torch.testing.assert_close(held(turned.grad)[5], 2 * held(turned)[5] * held(y)[2] ** 2)


# -- functions of one's own ------------------------------------------------------------------------


class Tripled(Function):
    """The gradient of something else, so that it shows who was asked."""

    @staticmethod
    def forward(ctx: Any, x: ttnn.Tensor, factor: float) -> Any:
        ctx.save_for_backward(x)
        ctx.factor = factor
        return ttnn.multiply(x, factor)

    @staticmethod
    def backward(ctx: Any, gradient: ttnn.Tensor) -> Any:
        (x,) = ctx.saved_tensors
        return ttnn.multiply(ttnn.multiply(gradient, x), 3.0), None


def test_a_function_says_itself_how_its_gradient_comes_back(grid):
    x = put(random(4, 8), grid).requires_grad_()
    y = Tripled.apply(x, 2.0)
    assert torch.equal(held(y), 2 * held(x))
    weights = put(random(8, 8), grid, (S(0), R))
    ttnn.sum(ttnn.multiply(y, weights)).backward()
    torch.testing.assert_close(held(x.grad), 3 * held(x) * held(weights))


def test_a_function_without_a_backward_is_differentiated_through_its_ops(grid):
    class Plain(Function):
        @staticmethod
        def forward(ctx: Any, x: ttnn.Tensor) -> Any:
            return ttnn.square(x)

    x = put(random(4, 8), grid).requires_grad_()
    ttnn.sum(Plain.apply(x)).backward()
    torch.testing.assert_close(held(x.grad), 2 * held(x))


def test_a_function_of_two_tensors_gives_two_results_and_takes_two_gradients(grid):
    class Both(Function):
        @staticmethod
        def forward(ctx: Any, x: ttnn.Tensor, y: ttnn.Tensor) -> Any:
            return ttnn.add(x, y), ttnn.subtract(x, y)

        @staticmethod
        def backward(ctx: Any, of_sum: ttnn.Tensor, of_difference: ttnn.Tensor) -> Any:
            return ttnn.add(of_sum, of_difference), ttnn.subtract(of_sum, of_difference)

    x, y = (put(random(4, 8), grid).requires_grad_() for _ in range(2))
    total, difference = Both.apply(x, y)
    ttnn.sum(ttnn.add(ttnn.multiply(total, 2.0), difference)).backward()
    assert (held(x.grad) == 3).all()
    assert (held(y.grad) == 1).all()


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (lambda g: (g, None, None), r"Odd.backward returned 3 gradients for the 2 arguments of forward"),
        (lambda g: g, "returned 1 gradients for the 2 arguments"),
        (
            lambda g: (ttnn.transpose(g, 0, 1), None),
            r"Odd.backward returned .*\[8, 4\].* of shape .*\[4, 8\]",
        ),
        (lambda g: (1.0, None), "Odd.backward returned float as the gradient of a tensor"),
    ],
)
def test_a_function_that_returns_wrong_gradients_is_told_so(grid, answer, message):
    class Odd(Function):
        @staticmethod
        def forward(ctx: Any, x: ttnn.Tensor, factor: float) -> Any:
            return ttnn.multiply(x, factor)

        @staticmethod
        def backward(ctx: Any, gradient: ttnn.Tensor) -> Any:
            return answer(gradient)

    x = put(random(4, 8), grid).requires_grad_()
    loss = ttnn.sum(Odd.apply(x, 2.0))
    with pytest.raises(ttnn.MeshError, match=message):
        loss.backward()


def test_a_function_called_without_gradients_just_runs(grid):
    x = put(random(4, 8), grid)
    assert not Tripled.apply(x, 2.0).requires_grad
    x.requires_grad_()
    with ttnn.train.no_grad():
        assert not Tripled.apply(x, 2.0).requires_grad


# -- computing once more ---------------------------------------------------------------------------


def block(x: ttnn.Tensor, w: ttnn.Tensor) -> ttnn.Tensor:
    return ttnn.matmul(ttnn.gelu(ttnn.matmul(x, w)), w)


def gradients_of(mesh: ttnn.MeshDevice, run: Callable[..., ttnn.Tensor]) -> list[torch.Tensor]:
    x = put(random(16, 4), mesh, (S(0), R)).requires_grad_()
    w = put(random(4, 4), mesh).requires_grad_()
    squares(run(x, w)).backward()
    return [held(x.grad), held(w.grad)]


def test_recomputed_gradients_are_those_that_were_kept(grid):
    kept = gradients_of(grid, block)
    assert all(map(torch.equal, kept, gradients_of(grid, lambda x, w: recomputed(block, x, w))))
    by_closure = gradients_of(grid, lambda x, w: recomputed(lambda y: block(y, w), x))
    assert all(map(torch.equal, kept, by_closure))


def test_parameters_of_a_closure_get_gradients_where_no_argument_needs_one(grid):
    x, w = put(random(16, 4), grid, (S(0), R)), put(random(4, 4), grid).requires_grad_()
    squares(recomputed(lambda y: block(y, w), x)).backward()
    torch.testing.assert_close(held(w.grad), gradients_of(grid, block)[1])


def test_recomputing_frees_what_lies_between_and_computes_it_twice(grid):
    calls: list[weakref.ref[Any]] = []

    def watched(x: ttnn.Tensor) -> ttnn.Tensor:
        between = ttnn.exp(x)
        calls.append(weakref.ref(between.storage))
        return ttnn.square(between)

    x = put(random(4, 8), grid).requires_grad_()
    loss = ttnn.sum(recomputed(watched, x))
    gc.collect()
    assert [call() for call in calls] == [None]
    loss.backward()
    assert len(calls) == 2
    torch.testing.assert_close(held(x.grad), 2 * (2 * held(x)).exp())


def test_recomputing_draws_what_was_drawn(grid):
    def dropped(x: ttnn.Tensor) -> ttnn.Tensor:
        mask = ttnn.from_torch((torch.rand(4, 8) < 0.5).float(), layout=ttnn.TILE_LAYOUT, device=grid)
        return ttnn.multiply(x, mask)

    x = put(torch.ones(4, 8), grid).requires_grad_()
    y = recomputed(dropped, x)
    torch.rand(3)
    ttnn.sum(y).backward()
    assert torch.equal(held(x.grad), held(y))
    assert 0 < held(y)[0].sum() < 32


def test_recomputing_gives_the_results_in_the_form_of_the_function(grid):
    x = put(random(4, 8), grid).requires_grad_()
    one, pair = recomputed(lambda y: [ttnn.square(y)], x), recomputed(lambda y: (y, ttnn.relu(y)), x)
    assert isinstance(one, list)
    assert isinstance(pair, tuple)
    with ttnn.train.no_grad():
        assert not recomputed(ttnn.square, x).requires_grad
    ttnn.sum(ttnn.add(one[0], pair[1])).backward()
    torch.testing.assert_close(held(x.grad), 2 * held(x) + (held(x) > 0))


# -- refused ---------------------------------------------------------------------------------------


def test_writing_in_place_is_refused_while_a_gradient_is_asked_for(grid):
    x, y = put(random(4, 8), grid).requires_grad_(), put(random(4, 8), grid)
    for call in (
        lambda: ttnn.add_(x, y),
        lambda: ttnn.multiply_(y, x),
        lambda: ttnn.add(x, y, output_tensor=y),
        lambda: ttnn.relu(x, output_tensor=y),
    ):
        with pytest.raises(ttnn.MeshError, match=r"requires a gradient, and writing in place would lose"):
            call()
    assert torch.equal(held(y)[0], random(4, 8))
    with ttnn.train.no_grad():
        ttnn.add_(y, x)
    torch.testing.assert_close(held(y)[0], 2 * random(4, 8))


def test_recording_a_trace_is_refused_while_a_gradient_is_asked_for():
    with ttnn.create_mesh_device(ttnn.MeshShape(1, 2), trace_region_size=1 << 20) as mesh:
        x = put(random(4, 8), mesh)
        ttnn.square(x)
        x.requires_grad_()
        ttnn.square(x)
        trace = ttnn.begin_trace_capture(mesh, cq_id=0)
        with pytest.raises(ttnn.MeshError, match="recording a trace would lose the way back"):
            ttnn.square(x)
        with ttnn.train.no_grad():
            ttnn.square(x)
        ttnn.end_trace_capture(mesh, trace, cq_id=0)


# -- a collective that needs a ring ----------------------------------------------------------------


def test_what_is_scattered_around_a_ring_comes_back_as_from_reduce_scatter(idle_machine):
    ttnn.set_fabric_config(ttnn.FabricConfig.FABRIC_1D_RING)
    with ttnn.create_mesh_device(ttnn.MeshShape(1, 8)) as line:
        found = []
        for op in (ttnn.reduce_scatter, ttnn.experimental.reduce_scatter_minimal_direct):
            x = put(random(8, 1, 32, 256), line, (R, S(0))).requires_grad_()
            squares(op(x, dim=3, cluster_axis=1)).backward()
            found.append(held(x.grad))
        torch.testing.assert_close(*found)


def test_gradients_are_on_again_wherever_ctrl_c_ends_a_call(idle_machine, monkeypatch, tmp_path):
    """Torch's own `with no_grad()` leaves them off for good where Ctrl-C comes as it ends."""

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    with ttnn.create_mesh_device(ttnn.MeshShape(1, 4)) as mesh:
        model = ttnn.train.Linear(mesh, 32, 32, ttnn.train.Initial(0))
        optimizer, x = ttnn.train.AdamW(model), put(random(4, 32), mesh)
        squares(model(x)).backward()
        checkpoints.save(tmp_path, model, optimizer=optimizer, step=1)
        ttnn.relu(x)
        trace = ttnn.begin_trace_capture(mesh, cq_id=0)
        ttnn.relu(x)
        ttnn.end_trace_capture(mesh, trace, cq_id=0)
        calls: dict[str, Callable[[], object]] = {
            "forward and backward": lambda: squares(model(x)).backward(),
            "sum of gradients": lambda: ttnn.train.sync_gradients(model, 1),
            "step": optimizer.step,
            "replay": lambda: ttnn.execute_trace(mesh, trace, cq_id=0),
            "load": lambda: checkpoints.load(tmp_path, model, optimizer=optimizer),
        }
        monkeypatch.setattr(torch.no_grad, "__exit__", interrupted)
        left_off = set()
        for name, call in calls.items():
            with suppress(KeyboardInterrupt):
                call()
            if not torch.is_grad_enabled():
                left_off.add(name)
                torch.set_grad_enabled(True)
        assert left_off == set()
