"""Unified ops mean what torch means by the whole values, however operands lie and wherever the result is asked for.

Shapes are drawn too, most of them such that nothing divides evenly. Each case is read back piece by piece.
"""

from __future__ import annotations

import itertools
import os
import random
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from op_calls import CALLS
from strategies import LAWS, Like, draw_values
from unified_operands import Words, every_layout, mesh_of, some_layout, spread, value_of, words_of

import softmesh as ttnn
from softmesh import distributed
from softmesh.dispatch.operation import OPERATIONS, Operation
from softmesh.distributed.generic_ops import describe, shape_of
from softmesh.distributed.unified_op import Unified

MESHES = [(1, 8), (2, 2, 2), (2, 4), (3, 5)]
ROUNDS = int(os.environ.get("SOFTMESH_UNIFIED_ROUNDS", "4"))  # of each law on each mesh; more for a long look


class Case:
    """Operands drawn and placed, one after the other, from one seed."""

    def __init__(self, shape: tuple[int, ...], seed: int) -> None:
        self.draw = random.Random(f"{shape} {seed}")
        self.mesh = mesh_of(*shape)
        torch.manual_seed(seed)

    def extent(self) -> int:
        return self.draw.choice([8, 15, 16, self.draw.randint(1, 24)])

    def shape(self, rank: int) -> tuple[int, ...]:
        return tuple(self.extent() for _ in range(rank))

    def placed(self, values: torch.Tensor, *, contributions: bool = True) -> ttnn.Tensor:
        words = some_layout(self.draw, values.shape, self.mesh, contributions=contributions)
        return spread(values, self.mesh, words)

    def request(self, whole: torch.Tensor) -> Words | None:
        """Any placement the result can have, or none."""
        if self.draw.random() < 0.3:
            return None
        return some_layout(self.draw, whole.shape, self.mesh)


def agree(result: ttnn.Tensor, whole: torch.Tensor, request: Words | None, told: object) -> None:
    got = value_of(result)
    assert request is None or words_of(result) == request, told
    assert got.shape == whole.shape, told
    torch.testing.assert_close(got, whole, atol=2e-4, rtol=2e-4, msg=lambda text: f"{told}: {text}")


@pytest.mark.parametrize("shape", MESHES)
def test_products_of_any_placements_are_those_of_torch_in_any_placement(shape):
    with ttnn.lenient():
        for seed in range(3 * ROUNDS):
            case = Case(shape, seed)
            a, b = _factors(case)
            turned_a, turned_b = case.draw.random() < 0.3, case.draw.random() < 0.3
            placed_a = case.placed(a.mT if turned_a else a)
            placed_b = case.placed(b.mT if turned_b else b)
            request = case.request(a @ b)
            result = distributed.matmul(
                placed_a, placed_b, transpose_a=turned_a, transpose_b=turned_b, output_topology=request
            )
            agree(result, a @ b, request, (seed, placed_a.view_distribution(), placed_b.view_distribution()))


# Of the pairs of placements, each with every output; SOFTMESH_EVERY_PLACEMENT=1 takes all 275,024 (ten minutes).
EVERY_NTH_PAIR = {(1, 8): 1, (2, 4): 17, (3, 5): 17, (2, 2, 2): 797}


@pytest.mark.parametrize("shape", EVERY_NTH_PAIR)
def test_every_pair_of_placements_multiplies_into_every_other(shape):
    step = 1 if os.environ.get("SOFTMESH_EVERY_PLACEMENT") == "1" else EVERY_NTH_PAIR[shape]
    mesh, draw = mesh_of(*shape), random.Random(0)
    layouts = every_layout(2, mesh)
    pairs = list(itertools.product(layouts, layouts))
    for of_a, of_b in pairs[::step]:
        m, k, n = (draw.randint(8, 25) for _ in range(3))
        a, b = torch.randn(m, k), torch.randn(k, n)
        x, w = spread(a, mesh, of_a), spread(b, mesh, of_b)
        for request in (None, *layouts):
            with ttnn.lenient():
                result = distributed.matmul(x, w, output_topology=request)
            agree(result, a @ b, request, (of_a, of_b, request))


@pytest.mark.parametrize("shape", MESHES)
def test_products_of_bfloat16_are_those_of_torch_to_a_few_units_in_the_last_place(shape):
    """Contributions are rounded too, so a unit is one of the largest sum of absolute values that they may have."""
    with ttnn.lenient():
        for seed in range(3 * ROUNDS):
            case = Case(shape, seed)
            m, k, n = (case.draw.randint(16, 48) for _ in range(3))
            a, b = torch.randn(m, k).bfloat16().float(), torch.randn(k, n).bfloat16().float()
            words = [some_layout(case.draw, v.shape, case.mesh, contributions=False) for v in (a, b)]
            x, y = (spread(v, case.mesh, w, ttnn.bfloat16) for v, w in zip((a, b), words, strict=True))
            request = case.request(a @ b)
            result = distributed.matmul(x, y, output_topology=request)
            got, whole, told = value_of(result).float(), a @ b, (seed, words, request)
            assert result.dtype is ttnn.bfloat16
            assert torch.corrcoef(torch.stack([got.flatten(), whole.flatten()]))[0, 1] > 0.9999, told
            units = (got - whole).abs() / (a.abs() @ b.abs() * 2**-8)
            assert units.max() <= 2, (told, units.max())


def _factors(case: Case) -> tuple[torch.Tensor, torch.Tensor]:
    """Matrices, batches of them, and one of each; an extent of 1 is broadcast."""
    m, k, n, batch, other = case.shape(5)
    of_a, of_b = case.draw.choice(
        [((), ()), ((batch,), ()), ((), (batch,)), ((batch,), (batch,)), ((batch, 1), (1, other))]
    )
    return torch.randn(*of_a, m, k), torch.randn(*of_b, k, n)


@pytest.mark.parametrize("shape", MESHES)
def test_a_bias_and_an_activation_come_once_however_the_product_is_split(shape):
    with ttnn.lenient():
        for seed in range(ROUNDS):
            case = Case(shape, seed)
            m, k, n = case.shape(3)
            a, b, bias = torch.randn(m, k), torch.randn(k, n), torch.randn(case.draw.choice([(n,), (1, n)]))
            whole = F.gelu(a @ b + bias)
            request = case.request(whole)
            result = distributed.linear(
                case.placed(a),
                case.placed(b),
                bias=case.placed(bias),
                activation="gelu",
                output_topology=request,
            )
            agree(result, whole, request, seed)


BINARY: dict[str, Callable[[torch.Tensor, torch.Tensor], torch.Tensor]] = {
    "add": torch.add,
    "subtract": torch.sub,
    "multiply": torch.mul,
    "maximum": torch.maximum,
}
UNARY: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {"neg": torch.neg, "gelu": F.gelu, "relu": F.relu}


@pytest.mark.parametrize("shape", MESHES)
def test_element_wise_ops_bring_their_operands_to_lie_alike(shape):
    with ttnn.lenient():
        for seed in range(ROUNDS):
            case = Case(shape, seed)
            rows, columns = case.shape(2)
            a = torch.randn(rows, columns)
            b = torch.randn(case.draw.choice([(rows, columns), (columns,), (rows, 1), (1, columns)]))
            name, one = case.draw.choice(sorted(BINARY)), case.draw.choice(sorted(UNARY))
            x, y = case.placed(a), case.placed(b)
            whole, alone = BINARY[name](a, b), UNARY[one](a)
            for result, expected in (
                (lambda r, n=name, p=(x, y): getattr(distributed, n)(*p, output_topology=r), whole),
                (lambda r, n=one, p=x: getattr(distributed, n)(p, output_topology=r), alone),
            ):
                request = case.request(expected)
                agree(result(request), expected, request, (seed, name, one, x.view_distribution()))


REDUCTIONS = {"max": torch.amax, "mean": torch.mean, "min": torch.amin, "sum": torch.sum}


@pytest.mark.parametrize("shape", MESHES)
def test_reductions_combine_over_split_dims(shape):
    with ttnn.lenient():
        for seed in range(ROUNDS):
            case = Case(shape, seed)
            a = torch.randn(case.shape(3))
            dim, keep = case.draw.choice([0, 1, 2, (0, 2), (1, 2)]), case.draw.random() < 0.5
            name = case.draw.choice(sorted(REDUCTIONS))
            whole = REDUCTIONS[name](a, dim, keepdim=keep)
            request = case.request(whole)
            result = getattr(distributed, name)(case.placed(a), dim, keep, output_topology=request)
            agree(result, whole, request, (seed, name, dim))


@pytest.mark.parametrize("shape", MESHES)
def test_softmax_and_norms_over_split_dims_are_those_of_whole_rows(shape):
    with ttnn.lenient():
        for seed in range(ROUNDS):
            case = Case(shape, seed)
            a = torch.randn(case.shape(case.draw.choice([2, 3]))) * 3
            width, dim = a.shape[-1], case.draw.randrange(a.dim())
            weight, bias, residual = torch.randn(width), torch.randn(width), torch.randn(a.shape)
            x, w, b, r = map(case.placed, (a, weight, bias, residual))
            request = case.request(a)
            result = distributed.softmax(x, dim=dim, output_topology=request)
            agree(result, a.softmax(dim), request, (seed, "softmax", dim))
            result = distributed.rms_norm(x, weight=w, epsilon=1e-5, output_topology=request)
            agree(result, F.rms_norm(a, (width,), weight, 1e-5), request, (seed, "rms_norm"))
            result = distributed.layer_norm(
                x, weight=w, bias=b, residual_input_tensor=r, epsilon=1e-5, output_topology=request
            )
            agree(
                result,
                F.layer_norm(a + residual, (width,), weight, bias, 1e-5),
                request,
                (seed, "layer_norm"),
            )


@pytest.mark.parametrize("shape", MESHES)
def test_rearranged_values_take_their_placement_along_or_leave_it(shape):
    with ttnn.lenient():
        for seed in range(ROUNDS):
            case = Case(shape, seed)
            a = torch.randn(case.shape(3))
            x, y = case.placed(a), case.placed(a + 1)
            first, middle, last = a.shape
            new = case.draw.choice([(first * middle, last), (first, middle * last), (-1,), (1, *a.shape)])
            order = case.draw.sample(range(3), 3)
            dim = case.draw.randrange(3)
            cut = [0, middle // 2, 0], list(a.shape)
            for expected, call in (
                (a.reshape(new), lambda r, x=x, s=new: distributed.reshape(x, s, output_topology=r)),
                (a.permute(order), lambda r, x=x, o=order: distributed.permute(x, o, output_topology=r)),
                (
                    a.transpose(0, dim),
                    lambda r, x=x, d=dim: distributed.transpose(x, 0, d, output_topology=r),
                ),
                (
                    torch.cat([a, a + 1], dim),
                    lambda r, p=(x, y), d=dim: distributed.concat([*p], d, output_topology=r),
                ),
                (a[:, middle // 2 :], lambda r, x=x, c=cut: distributed.slice(x, *c, output_topology=r)),
            ):
                request = case.request(expected)
                agree(call(request), expected, request, (seed, x.view_distribution(), expected.shape))


@pytest.mark.parametrize("shape", MESHES)
def test_redistribution_leads_from_any_placement_to_any_other(shape):
    with ttnn.lenient():
        for seed in range(2 * ROUNDS):
            case = Case(shape, seed)
            a = torch.randn(case.shape(case.draw.choice([1, 2, 3])))
            x = case.placed(a)
            goal = some_layout(case.draw, a.shape, case.mesh)
            agree(distributed.redistribute(x, goal), a, goal, (seed, x.view_distribution()))


@pytest.mark.parametrize("shape", MESHES)
def test_tables_may_be_split_by_rows_or_columns_and_indices_by_any_dim(shape):
    with ttnn.lenient():
        for seed in range(ROUNDS):
            case = Case(shape, seed)
            rows, width = case.shape(2)
            table, ids = torch.randn(rows, width), torch.randint(0, rows, case.shape(2))
            words = some_layout(case.draw, ids.shape, case.mesh, contributions=False)
            indices = spread(ids, case.mesh, words, ttnn.uint32, ttnn.ROW_MAJOR_LAYOUT)
            whole = F.embedding(ids, table)
            request = case.request(whole)
            result = distributed.embedding(indices, case.placed(table), output_topology=request)
            agree(result, whole, request, (seed, words))


@pytest.mark.parametrize("shape", MESHES)
def test_attention_may_be_split_by_batch_heads_and_sequence(shape):
    with ttnn.lenient():
        for seed in range(ROUNDS):
            case = Case(shape, seed)
            kv_heads = case.draw.choice([1, 2, 4])
            heads, width, batch = 4 * kv_heads, 8, case.draw.choice([1, 2, 5, 8])
            rows = case.draw.choice([8, 15, 24, 30])
            q = torch.randn(batch, heads, rows, width)
            k, v = torch.randn(2, batch, kv_heads, rows, width)
            alike = some_layout(case.draw, k.shape, case.mesh, contributions=False)
            placed = [spread(t, case.mesh, alike) if case.draw.random() < 0.6 else case.placed(t) for t in (q, k, v)]
            causal = case.draw.random() < 0.5
            mask = None if causal else torch.randn(case.draw.choice([1, batch]), 1, rows, rows)
            whole = F.scaled_dot_product_attention(q, k, v, mask, is_causal=causal, enable_gqa=True)
            request = case.request(whole)
            result = distributed.scaled_dot_product_attention(
                *placed,
                attn_mask=None if mask is None else case.placed(mask),
                is_causal=causal,
                output_topology=request,
            )
            agree(result, whole, request, (seed, [t.view_distribution() for t in placed]))


class Spied:
    """A plain op that remembers how it was called."""

    def __init__(self, op: Operation) -> None:
        self.op, self.name = op, op.name
        self.calls: list[tuple[tuple[Any, ...], dict[str, Any]]] = []

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        self.calls.append((args, kwargs))
        return self.op(*args, **kwargs)


def swapped(value: Any, instead: dict[int, ttnn.Tensor]) -> Any:
    if isinstance(value, list | tuple):
        return type(value)(swapped(item, instead) for item in value)
    return instead.get(id(value), value)


def listed(results: Any) -> list[ttnn.Tensor]:
    return list(results) if isinstance(results, list | tuple) else [results]


@settings(LAWS, max_examples=40)
@given(st.data(), st.sampled_from(sorted(CALLS)), st.integers(0, 10**6))
def test_every_op_means_on_placed_values_what_it_means_on_whole_ones(data, name, seed):
    mesh, draw, op = mesh_of(2, 2), random.Random(seed), OPERATIONS[name]
    call = CALLS[name](data.draw, ttnn.float32)
    values = [draw_values(like.shape, like.values, seed + i) for i, like in enumerate(call.operands)]
    whole = [
        ttnn.from_torch(v, like.dtype, layout=like.layout, device=mesh)
        for v, like in zip(values, call.operands, strict=True)
    ]
    spied = Spied(op)
    call.run(spied, whole, call.shape)
    assume(len(spied.calls) == 1)  # a few look at their operands, and call another op instead
    (args, kwargs), unified = spied.calls[0], Unified(name, describe, shape_of)
    with ttnn.lenient():
        placed = {
            id(tensor): distributed.redistribute(tensor, _words_for(draw, like, mesh))
            for tensor, like in zip(whole, call.operands, strict=True)
        }
        results = unified(*swapped(args, placed), **swapped(kwargs, placed))
    for result, expected in zip(listed(results), listed(op(*args, **kwargs)), strict=True):
        got, wanted = value_of(result).float(), value_of(expected).float()
        torch.testing.assert_close(got, wanted, atol=3e-2, rtol=3e-2, equal_nan=True)


def _words_for(draw: random.Random, like: Like, mesh: ttnn.MeshDevice) -> Words:
    """Indices and bits are not sums of anything."""
    return some_layout(draw, like.shape, mesh, contributions=like.values in ("real", "unit", "whole"))
