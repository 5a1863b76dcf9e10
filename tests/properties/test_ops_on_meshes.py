"""Every op on a mesh is the same op on each device's piece, to the bit."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from op_calls import (
    APPROXIMATE,
    CALLS,
    PRODUCTS,
    TESTED_ELSEWHERE,
    Call,
    calls,
    names_with_calls,
    operation_names,
)
from strategies import (
    LAWS,
    MESHES,
    Like,
    by_coordinate,
    contributions_by_matmul,
    leading_extents_are_true,
    mesh_of,
    odd_ones,
    on_one_device,
    one_device,
    placed,
    quietly,
    same_bits,
    seeds,
    words_together,
)

import softmesh as ttnn
from softmesh.dispatch.operation import OPERATIONS
from softmesh.ops.elementwise.binary import BINARY
from softmesh.ops.elementwise.unary import UNARY

pytestmark = pytest.mark.filterwarnings("ignore:.*degrees of freedom is <= 0")  # of one element
DTYPES = [ttnn.float32, ttnn.bfloat16, ttnn.bfloat8_b]


def _a_matmul_makes(like: Like) -> bool:
    return len(like.shape) == 2 and like.values == "real" and like.layout is ttnn.TILE_LAYOUT


@st.composite
def operands(draw: st.DrawFn, call: Call, mesh: ttnn.MeshDevice) -> list[ttnn.Tensor]:
    joints = [*call.splits.values(), *([call.summed] if call.summed else [])]
    words = draw(words_together(call.operands, joints, len(list(mesh.shape))))
    tensors = []
    for like, own in zip(call.operands, words, strict=True):
        kind = draw(st.integers(0, 7))
        seed = draw(seeds)
        if kind == 0:
            tensors.append(draw(odd_ones(mesh, like, seed)))
        elif kind == 1 and _a_matmul_makes(like):
            tensors.append(contributions_by_matmul(mesh, like, seed))
        else:
            tensors.append(placed(mesh, like, own, seed))
    return tensors


def as_list(results: object) -> list[ttnn.Tensor]:
    return list(results) if isinstance(results, list | tuple) else [results]  # type: ignore[list-item]


def shared_coordinates(tensors: Sequence[ttnn.Tensor]) -> set[ttnn.MeshCoordinate]:
    return set.intersection(*(set(by_coordinate(tensor)) for tensor in tensors))


TOLERANCE = {ttnn.float32: 1e-5, ttnn.bfloat16: 2**-7, ttnn.bfloat8_b: 2**-5}


def alike(name: str, piece: torch.Tensor, expected: ttnn.Tensor) -> bool:
    alone = expected.pieces()[0].cpu()
    if name in PRODUCTS:  # a sum of nothing but zeros has the sign of whichever zero came first
        return torch.equal(piece, alone)
    if name not in APPROXIMATE or not alone.is_floating_point():
        return same_bits(piece, alone)
    finite = alone[alone.isfinite()].abs()
    tolerance = TOLERANCE[expected.dtype]
    scale = max(1.0, float(finite.max())) if finite.numel() else 1.0
    return torch.allclose(piece, alone, rtol=tolerance, atol=tolerance * scale, equal_nan=True)


@pytest.mark.parametrize("name", names_with_calls())
@settings(LAWS, max_examples=8)
@given(data=st.data())
def test_an_op_on_a_mesh_is_the_op_on_each_device(name: str, data: st.DataObject) -> None:
    op = OPERATIONS[name]
    mesh = mesh_of(data.draw(st.sampled_from(MESHES)))
    call = data.draw(calls(name, DTYPES))
    tensors = data.draw(operands(call, mesh))
    shared = shared_coordinates(tensors)
    if not shared:
        with pytest.raises(ttnn.MeshError, match="share no device"):
            call.run(op, tensors, call.shape)
        return
    with quietly():
        returned = call.run(op, tensors, call.shape)
        assert str(op.result_type()).startswith(type(returned).__name__)
        results = as_list(returned)
        for result in results:
            assert leading_extents_are_true(result)
            assert set(by_coordinate(result)) == shared
        pieces = [by_coordinate(tensor) for tensor in tensors]
        for coordinate in shared:
            alone = [on_one_device(held[coordinate], t) for held, t in zip(pieces, tensors, strict=True)]
            expected = as_list(call.run(op, alone, call.shape))
            assert len(expected) == len(results)
            for result, one in zip(results, expected, strict=True):
                assert result.spec == one.spec
                assert alike(name, by_coordinate(result)[coordinate], one)
        for _ in range(3):  # as a call that is known, and as one that is repeated
            for result, one in zip(as_list(call.run(op, tensors, call.shape)), results, strict=True):
                assert (result.spec, ttnn.placements(result)) == (one.spec, ttnn.placements(one))
                assert same_bits(result.pieces(), one.pieces())


FLOAT_OPS = {name: 1 for name in UNARY if name != "bitwise_not"} | {
    name: 2 for name, entry in BINARY.items() if not entry.integer
}


@pytest.mark.parametrize("name", sorted(FLOAT_OPS))
def test_a_bfloat16_result_is_the_float32_result_rounded_once(name: str) -> None:
    """Up to values that lie halfway between two bfloat16 to all of float32's precision."""
    values = torch.linspace(-3, 3, 2001).to(torch.bfloat16)
    operands = [values, values.flip(0) * 0.7][: FLOAT_OPS[name]]
    narrow, wide = (
        OPERATIONS[name](*(ttnn.from_torch(x, dtype, layout=ttnn.TILE_LAYOUT, device=one_device()) for x in operands))
        for dtype in (ttnn.bfloat16, ttnn.float32)
    )
    once = ttnn.to_torch(wide).to(torch.bfloat16)
    found = ttnn.to_torch(narrow)
    differs = (found != once) & ~(found.isnan() & once.isnan())
    assert int(differs.sum()) <= len(values) // 100


def test_every_op_has_a_generated_call() -> None:
    missing = [name for name in operation_names() if name not in CALLS and name not in TESTED_ELSEWHERE]
    assert not missing, f"give these ops an entry in tests/properties/op_calls.py: {missing}"


def test_the_table_names_only_ops_that_exist() -> None:
    assert not [name for name in [*CALLS, *TESTED_ELSEWHERE] if name not in OPERATIONS]
