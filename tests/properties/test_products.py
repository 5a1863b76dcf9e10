"""Stacks of matrices multiply as torch's do, whichever way is taken."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from strategies import LAWS

from softmesh.ops.matmul import batched_gemm
from softmesh.runtime import float32_products

_EXTENTS = st.sampled_from([1, 2, 5, 40, 0])


@st.composite
def factors(draw: st.DrawFn, lead_dims: tuple[int, ...] = (1, 2, 3, 0)) -> tuple[torch.Tensor, torch.Tensor]:
    lead = draw(st.lists(st.sampled_from(lead_dims), min_size=1, max_size=4))
    of_a, of_b = ([n if draw(st.booleans()) else 1 for n in lead] for _ in range(2))
    m, k, n = (draw(_EXTENTS) for _ in range(3))
    values = torch.Generator().manual_seed(draw(st.integers(0, 99)))
    a = torch.randn(*of_a, m, k, generator=values)
    is_turned = draw(st.booleans())
    b = torch.randn(*of_b, *((n, k) if is_turned else (k, n)), generator=values)
    return a, b.mT if is_turned else b


@pytest.fixture(params=["in groups", "in one call", "by oneDNN"])
def way(request, monkeypatch):
    """Whatever this CPU is, and however small the products are."""
    monkeypatch.setattr(batched_gemm, "_MANY_COPIES", 0 if request.param == "in groups" else 1 << 40)
    is_onednns = request.param == "by oneDNN"
    if is_onednns and not hasattr(torch.ops.mkldnn, "_linear_pointwise"):
        pytest.skip("this build of torch has no oneDNN")
    monkeypatch.setattr(float32_products, "onednn_is_faster", lambda: is_onednns)
    monkeypatch.setattr(float32_products, "_FEWEST_STEPS", 1)
    monkeypatch.setattr(float32_products, "_FEWEST_ROWS", 1)


@pytest.mark.usefixtures("way")
@LAWS
@given(factors())
def test_products_are_those_of_torch(operands):
    a, b = operands
    expected = torch.matmul(a, b)
    torch.testing.assert_close(batched_gemm.product(a, b), expected, atol=1e-4, rtol=1e-4)
    direct = batched_gemm.plain_product(a, b)
    if direct is not None:
        torch.testing.assert_close(direct(a, b), expected, atol=1e-4, rtol=1e-4)


@pytest.mark.usefixtures("way")
@LAWS
@given(factors(lead_dims=(1, 2, 3)))
def test_gradients_of_products_are_those_of_torch(operands):
    given, known = ([value.detach().clone().requires_grad_() for value in operands] for _ in range(2))
    made, expected = batched_gemm.product(*given), torch.matmul(*known)
    weights = torch.randn(expected.shape)
    (made * weights).sum().backward()
    (expected * weights).sum().backward()
    for one, other in zip(given, known, strict=True):
        torch.testing.assert_close(one.grad, other.grad, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("rows", [1, 3, 4, 512])
def test_few_rows_and_small_products_are_left_to_torch(rows, monkeypatch):
    """oneDNN copies the weights first: for one row it takes twice the time."""
    monkeypatch.setattr(float32_products, "onednn_is_faster", lambda: True)
    small, large = torch.zeros(64, 64), torch.zeros(4096, 4096)
    assert not float32_products.multiplies_by_onednn(small, rows, small)
    assert float32_products.multiplies_by_onednn(large, rows, large) == (rows >= 4)
    assert not float32_products.multiplies_by_onednn(large.double(), rows, large.double())


@pytest.mark.parametrize(("of_a", "of_b"), [((4, 1), (4, 8)), ((1, 8), (4, 8)), ((1, 1), (1, 8))])
def test_a_shared_matrix_is_multiplied_without_copies_and_with_the_same_bits(of_a, of_b, monkeypatch):
    a, b = torch.randn(*of_a, 64, 32), torch.randn(*of_b, 32, 160)
    together = batched_gemm.product(a, b)
    monkeypatch.setattr(batched_gemm, "_MANY_COPIES", 0)
    in_groups = batched_gemm.product(a, b)
    assert torch.equal(in_groups, together)
    assert in_groups.is_contiguous()
