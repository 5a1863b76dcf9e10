"""A replay computes what the ops compute, whatever they are and whoever still holds their results."""

from __future__ import annotations

import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import mesh_of

import softmesh as ttnn

LAWS = settings(max_examples=40, deadline=None)
SHAPE = (64, 64)
UNARY = [
    ttnn.relu,
    ttnn.neg,
    ttnn.exp,
    ttnn.sqrt,
    ttnn.silu,
    ttnn.identity,
    lambda x: ttnn.multiply(x, 0.5),
    lambda x: ttnn.subtract(1.0, x),
    lambda x: ttnn.transpose(x, 0, 1),
    lambda x: ttnn.reshape(ttnn.reshape(x, (1, *x.shape)), tuple(x.shape)),
    lambda x: ttnn.sum(x, dim=-1, keepdim=True),
    lambda x: ttnn.typecast(x, ttnn.bfloat16),
]
BINARY = [ttnn.add, ttnn.subtract, ttnn.multiply, ttnn.matmul, ttnn.maximum]


@st.composite
def programs(draw: st.DrawFn) -> tuple[list[tuple[int, int, int]], set[int]]:
    """Steps (which op, and of which values), and the values that are still held when the capture ends."""
    count = draw(st.integers(1, 10))
    steps = []
    for made in range(2, count + 2):  # values 0 and 1 are inputs
        one, other = draw(st.integers(0, made - 1)), draw(st.integers(0, made - 1))
        steps.append((draw(st.integers(0, len(UNARY) + len(BINARY) - 1)), one, other))
    return steps, draw(st.sets(st.integers(2, count + 1), min_size=1))


def run(steps: list[tuple[int, int, int]], held: set[int], inputs: list[ttnn.Tensor]) -> list[ttnn.Tensor]:
    values: list[ttnn.Tensor | None] = list(inputs)
    last = {at: step for step, (_, *of) in enumerate(steps) for at in of}
    for number, (op, one, other) in enumerate(steps):
        a, b = values[one], values[other]
        assert a is not None
        assert b is not None
        if op < len(UNARY):
            values.append(UNARY[op](a))
        else:
            values.append(_binary(BINARY[op - len(UNARY)], a, b))
        for at in {one, other}:
            if last[at] == number and at not in held and at > 1:
                values[at] = None
    return [values[at] for at in sorted(held)]


def _binary(op, a, b):
    """Where the shapes do not fit, the first with itself."""
    fits = tuple(a.shape) == tuple(b.shape) == SHAPE
    return op(a, b) if fits else ttnn.add(a, a)


def put(mesh: ttnn.MeshDevice, seed: int) -> ttnn.Tensor:
    values = torch.rand(SHAPE[0] * 2, SHAPE[1], generator=torch.Generator().manual_seed(seed))
    options = {"dtype": ttnn.float32, "layout": ttnn.TILE_LAYOUT}
    return ttnn.from_torch(values, device=mesh, mesh_mapper=ttnn.ShardTensorToMesh(mesh, 0), **options)


def pieces(tensors: list[ttnn.Tensor]) -> list[torch.Tensor]:
    return [tensor.pieces().clone() for tensor in tensors]


@LAWS
@given(programs())
def test_a_replay_is_the_ops_on_what_the_inputs_hold_by_then(program):
    steps, held = program
    mesh = mesh_of((1, 2))
    inputs = [put(mesh, 1), put(mesh, 2)]
    run(steps, held, inputs)
    trace = ttnn.begin_trace_capture(mesh)
    results = run(steps, held, inputs)
    ttnn.end_trace_capture(mesh, trace)
    for seed in (3, 4):
        for at, tensor in enumerate(inputs):
            ttnn.copy_host_to_device_tensor(ttnn.from_device(put(mesh, seed + 10 * at)), tensor)
        given, earlier = pieces(inputs), [tensor.pieces() for tensor in results]
        as_they_were = [values.clone() for values in earlier]
        expected = pieces(run(steps, held, inputs))
        ttnn.execute_trace(mesh, trace)
        for got, wanted in zip(pieces(results), expected, strict=True):
            assert torch.equal(got.nan_to_num(7), wanted.nan_to_num(7))
        for got, wanted in zip(
            [*pieces(inputs), *earlier], [*given, *as_they_were], strict=True
        ):  # neither inputs nor what somebody took from the last replay
            assert torch.equal(got.nan_to_num(7), wanted.nan_to_num(7))
    ttnn.release_trace(mesh, trace)
