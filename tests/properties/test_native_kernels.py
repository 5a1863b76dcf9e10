"""The kernels in C do what torch does, on one thread and on several."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from softmesh.native.c_kernels import copy_past_caches, is_compiled, kernel, native_copy, native_sum

pytestmark = pytest.mark.skipif(not is_compiled(), reason="the kernels in C were not compiled")

ODD_VALUES = [0.0, -0.0, 1e-40, -1e-40, 3e38, -3e38, float("inf"), float("-inf"), float("nan")]


@pytest.fixture(params=[1, 3], ids=["one-thread", "three-threads"], scope="module", autouse=True)
def _threads(request: pytest.FixtureRequest) -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(request.param)
    yield
    torch.set_num_threads(before)


def drawn(shape: tuple[int, ...], dtype: torch.dtype, seed: int, *, odd: bool) -> torch.Tensor:
    draw = torch.Generator().manual_seed(seed)
    values = torch.randn(shape, generator=draw) * torch.logspace(-3, 3, shape[-1])
    if odd:
        chosen = torch.randint(len(ODD_VALUES), shape, generator=draw)
        values = torch.where(torch.rand(shape, generator=draw) < 0.1, torch.tensor(ODD_VALUES)[chosen], values)
    return values.to(dtype)


def one_after_the_other(data: torch.Tensor) -> torch.Tensor:
    total = torch.zeros(data.shape[0], data.shape[2])
    for piece in data.unbind(1):
        total = total + piece.float()
    return total.to(data.dtype)


def bits(tensor: torch.Tensor) -> torch.Tensor:
    """With one kind of NaN."""
    return tensor.nan_to_num(nan=7.0, posinf=float("inf"), neginf=float("-inf")).view(torch.uint8)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@given(
    groups=st.integers(1, 3),
    pieces=st.integers(1, 41),
    elements=st.sampled_from([1, 2, 6, 33, 34, 1000, 4096, 4097, 5002, 20000]),
    seed=st.integers(0, 99),
    odd=st.booleans(),
)
@settings(max_examples=60, deadline=None)
def test_a_sum_is_that_of_piece_after_piece(
    dtype: torch.dtype, groups: int, pieces: int, elements: int, seed: int, odd: bool
) -> None:
    data = drawn((groups, pieces, elements), dtype, seed, odd=odd)
    add = native_sum(groups, pieces, elements, dtype)
    assert add is not None
    sums = torch.full((groups + 1, elements), 5.0, dtype=dtype)
    add(data, sums)
    assert torch.equal(bits(sums[:groups]), bits(one_after_the_other(data)))
    assert bool((sums[groups] == 5).all())  # and nothing was written behind them


@pytest.mark.parametrize("elements", [1000, 1001])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_stack_may_begin_at_any_element(dtype: torch.dtype, elements: int) -> None:
    data = drawn((1, 1 + 9 * elements), dtype, 1, odd=False)[0, 1:].view(1, 9, elements)
    add = native_sum(1, 9, elements, dtype)
    assert add is not None
    sums = torch.empty(elements + 1, dtype=dtype)[1:]
    add(data, sums)
    assert torch.equal(sums, one_after_the_other(data)[0])


def test_what_is_not_plain_memory_is_left_to_torch() -> None:
    rows = torch.randn(64, 64, dtype=torch.complex64)
    assert not copy_past_caches(rows.conj(), torch.empty(64 * 64, dtype=torch.complex64))
    assert not copy_past_caches(torch._neg_view(rows.real.clone()), torch.empty(64 * 64))


class _OtherForm(ctypes.Structure):
    _fields_ = [("words", ctypes.c_int32)]


def test_a_kernel_that_was_compiled_for_another_form_is_not_called() -> None:
    assert kernel("softmesh_sum", _OtherForm) is None
    assert kernel("softmesh_product", _OtherForm) is None


@pytest.mark.parametrize("dtype", [torch.float64, torch.float16, torch.int32])
def test_sums_of_other_types_are_left_to_torch(dtype: torch.dtype) -> None:
    assert native_sum(1, 8, 32, dtype) is None


def shapes() -> st.SearchStrategy[tuple[list[int], int]]:
    """Extents, and elements of a run: of many dims short ones only."""
    many = st.tuples(st.lists(st.integers(1, 5), min_size=1, max_size=5), st.sampled_from([64, 68, 128, 1024]))
    few = st.tuples(
        st.lists(st.integers(1, 3), min_size=1, max_size=2),
        st.sampled_from([1 << 15, (1 << 15) + 8, 1 << 16]),
    )
    return st.one_of(many, few)


@given(
    shape=shapes(),
    dtype=st.sampled_from([torch.float32, torch.int64, torch.bfloat16]),
    data=st.data(),
)
@settings(max_examples=150, deadline=None)
def test_a_copy_is_the_copy(shape: tuple[list[int], int], dtype: torch.dtype, data: st.DataObject) -> None:
    extents, run = shape
    whole = torch.randint(-99, 99, (*extents, run)).to(dtype)
    order = data.draw(st.permutations(range(len(extents))))
    pieces = whole.permute(*order, len(extents))
    if data.draw(st.booleans()):
        pieces = pieces.unsqueeze(0).expand(3, *pieces.shape)
    if data.draw(st.booleans()):
        pieces = pieces.narrow(0, pieces.shape[0] // 2, 1)
    if data.draw(st.booleans()):
        pieces = pieces.narrow(-1, 1, run - 4)
    run_bytes, count = pieces.shape[-1] * pieces.element_size(), pieces.numel()
    into = torch.full((count + 64,), 5).to(dtype)
    did = copy_past_caches(pieces, into[:count])
    assert did or run_bytes % 16 or run_bytes < 256
    assert torch.equal(into[:count].view(pieces.shape), pieces) if did else bool((into == 5).all())
    assert bool((into[count:] == 5).all())


@given(shape=shapes(), dtype=st.sampled_from([torch.float32, torch.bool, torch.bfloat16]), data=st.data())
@settings(max_examples=100, deadline=None)
def test_a_copy_within_the_caches_is_the_copy(
    shape: tuple[list[int], int], dtype: torch.dtype, data: st.DataObject
) -> None:
    whole = torch.randint(-99, 99, (*shape[0], shape[1])).to(dtype)
    pieces = whole.permute(*data.draw(st.permutations(range(len(shape[0])))), len(shape[0]))
    copy = native_copy(pieces)
    assert copy is not None
    into = torch.ones(pieces.numel() + 7, dtype=torch.uint8).to(dtype)
    copy(pieces, into[3:])
    assert torch.equal(into[3:-4].view(pieces.shape), pieces)
    assert bool((into[:3] == 1).all())
    assert bool((into[-4:] == 1).all())


def test_of_nothing_nothing_is_copied() -> None:
    nothing = torch.empty(2, 0, 3, 64).permute(2, 1, 0, 3)
    copy, into = native_copy(nothing), torch.full((64,), 5.0)
    assert copy is not None
    copy(nothing, into)
    assert bool((into == 5).all())


def test_scattered_elements_and_unaligned_memory_are_left_to_torch() -> None:
    square = torch.arange(256.0 * 256).view(256, 256)
    assert not copy_past_caches(square.T, torch.empty(256 * 256))
    assert not copy_past_caches(square[:, :128], torch.empty(256 * 128 + 1)[1:])
