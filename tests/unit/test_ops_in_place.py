"""Ops with a `_` write into their first operand; on one device and on a mesh."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from operands import R, S, put

import softmesh as ttnn
from softmesh.ops.elementwise.in_place import IN_PLACE

LOCAL = ttnn.Local()
REFERENCES: dict[str, Any] = {
    "subtract": torch.sub,
    "multiply": torch.mul,
    "divide": torch.div,
    "rsub": lambda a, b: b - a,
    "squared_difference": lambda a, b: (a - b) ** 2,
    "ldexp": lambda a, b: a * 2**b,
    "bias_gelu": lambda a, b: F.gelu(a + b),
}


@pytest.fixture(scope="module")
def several() -> Iterator[ttnn.MeshDevice]:
    with ttnn.create_mesh_device(ttnn.MeshShape(2, 2)) as mesh:
        yield mesh


def numbers(*shape: int) -> torch.Tensor:
    return torch.rand(*shape, generator=torch.Generator().manual_seed(len(shape))) * 2 + 0.25


def expected_of(name: str, a: torch.Tensor, b: Any) -> torch.Tensor:
    other = b if isinstance(b, torch.Tensor) else torch.tensor(b)
    found: torch.Tensor = (REFERENCES.get(name) or getattr(torch, name))(a, other)
    return found.float()


@pytest.mark.parametrize("words", [(R, R), (S(0), R), (S(0), S(1)), (S(1), S(1))], ids=str)
@pytest.mark.parametrize("name", sorted(IN_PLACE))
def test_the_result_is_written_into_the_first_operand(name: str, words: Any, several: ttnn.MeshDevice) -> None:
    x, y = numbers(4, 8), numbers(1, 8)
    other = tuple(word if word is S(1) else R for word in words)
    a, b = put(x, several, words), put(y, several, other)  # type: ignore[arg-type]
    address, copy = a.buffer_address(), ttnn.assign(a)
    result = getattr(ttnn, f"{name}_")(a, b)
    assert result is a
    assert ttnn.placements(a) == words
    assert a.buffer_address() == address
    torch.testing.assert_close(ttnn.compose(a), expected_of(name, x, y), rtol=1e-4, atol=1e-5)
    assert torch.equal(ttnn.compose(copy), x), "a copy made before keeps its values"


@pytest.mark.parametrize("name", sorted(IN_PLACE))
def test_a_number_may_stand_second_and_the_dtype_stays(name: str, several: ttnn.MeshDevice) -> None:
    x = numbers(4, 8).bfloat16()
    a = put(x, several, dtype=ttnn.bfloat16)
    getattr(ttnn, f"{name}_")(a, 0.75)
    assert a.dtype is ttnn.bfloat16
    expected = expected_of(name, x.double(), torch.tensor(0.75).double()).bfloat16()
    torch.testing.assert_close(ttnn.compose(a), expected, rtol=2**-7, atol=1e-6)


@pytest.mark.parametrize("dtype", [ttnn.bfloat16, ttnn.bfloat8_b, ttnn.float32])
@pytest.mark.parametrize("name", sorted(IN_PLACE))
def test_the_bits_are_those_of_the_op_without_a_dash(name: str, dtype: Any, several: ttnn.MeshDevice) -> None:
    other = dtype if name in ("bias_gelu", "ldexp", "logaddexp", "logaddexp2") else ttnn.bfloat16
    a, b = put(numbers(4, 32), several, dtype=dtype), put(numbers(1, 32), several, dtype=other)
    plain = getattr(ttnn, name)(a, b)
    getattr(ttnn, f"{name}_")(a, b)
    assert torch.equal(ttnn.compose(a), ttnn.compose(plain))


def test_what_is_written_on_split_values_is_shared_no_longer(several: ttnn.MeshDevice) -> None:
    x, y = numbers(4, 8), numbers(8, 8)
    a, b = put(x, several), put(y, several, (S(0), R))
    ttnn.add_(a, b)
    assert ttnn.placements(a) == (S(0), R)
    torch.testing.assert_close(ttnn.compose(a), torch.cat([x, x]) + y)


def test_splits_that_do_not_line_up_leave_pieces_of_nothing_whole(several: ttnn.MeshDevice) -> None:
    a = put(numbers(4, 8), several, (S(0), R))
    b = put(numbers(2, 16), several, (S(1), R))
    ttnn.multiply_(a, b)
    assert ttnn.placements(a) == (LOCAL, R)


def test_integers_stay_integers(several: ttnn.MeshDevice) -> None:
    a = put(torch.tensor([[5, -7]], dtype=torch.int32), several, dtype=ttnn.int32)
    ttnn.add_(a, 2)
    ttnn.mul_(a, a)
    assert ttnn.compose(a).tolist() == [[49, 25]]
    ttnn.sub_(a, 49)
    assert ttnn.compose(ttnn.logical_not_(a)).tolist() == [[1, 0]]


def test_block_floats_round_after_the_op(several: ttnn.MeshDevice) -> None:
    x = numbers(32, 32)
    a = put(x, several, dtype=ttnn.bfloat8_b)
    plain = ttnn.add(a, 0.3)
    ttnn.add_(a, 0.3)
    assert torch.equal(ttnn.compose(a), ttnn.compose(plain))


@pytest.mark.parametrize("words", [(R, R), (S(0), S(1))], ids=str)
def test_logical_not_writes_too(words: Any, several: ttnn.MeshDevice) -> None:
    x = torch.tensor([[0.0, 2.0], [-1.0, 0.0]])
    a = put(x, several, words)
    assert ttnn.logical_not_(a) is a
    assert ttnn.compose(a).tolist() == [[1.0, 0.0], [0.0, 1.0]]


def test_activations_come_before_and_after(several: ttnn.MeshDevice) -> None:
    x, y = numbers(2, 4) - 1, numbers(2, 4)
    a = put(x, several)
    ttnn.add_(a, put(y, several), activations=["relu"], input_tensor_b_activations=["neg"])
    torch.testing.assert_close(ttnn.compose(a), (x - y).relu())


def test_a_result_larger_than_the_target_is_refused(several: ttnn.MeshDevice) -> None:
    with pytest.raises(ttnn.MeshError, match=r"use ttnn\.add, which makes a new tensor"):
        ttnn.add_(put(numbers(1, 8), several), put(numbers(4, 8), several))


def test_a_wrong_name_brings_the_right_one(several: ttnn.MeshDevice) -> None:
    a = put(numbers(2, 2), several)
    with pytest.raises(TypeError, match="input_b"):
        ttnn.eq_(a, inputb=a)


def test_a_loop_of_updates_is_replayed_by_a_trace(several: ttnn.MeshDevice) -> None:
    a = put(torch.zeros(2, 2), several)
    ttnn.add_(a, 1.0)
    trace = ttnn.begin_trace_capture(several, cq_id=0)
    ttnn.add_(a, 1.0)
    ttnn.end_trace_capture(several, trace, cq_id=0)
    for _ in range(3):
        ttnn.execute_trace(several, trace, cq_id=0, blocking=True)
    ttnn.release_trace(several, trace)
    assert float(ttnn.compose(a)[0, 0]) == 4.0
