"""Stacks of matrices multiply as torch's do, whichever way is taken."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from strategies import LAWS

from softmesh.ops.matmul import batched_gemm

_EXTENTS = st.sampled_from([1, 2, 5, 40, 0])


@st.composite
def factors(draw: st.DrawFn) -> tuple[torch.Tensor, torch.Tensor]:
    lead = draw(st.lists(st.sampled_from([1, 2, 3, 0]), min_size=1, max_size=4))
    of_a, of_b = ([n if draw(st.booleans()) else 1 for n in lead] for _ in range(2))
    m, k, n = (draw(_EXTENTS) for _ in range(3))
    values = torch.Generator().manual_seed(draw(st.integers(0, 99)))
    a = torch.randn(*of_a, m, k, generator=values)
    is_turned = draw(st.booleans())
    b = torch.randn(*of_b, *((n, k) if is_turned else (k, n)), generator=values)
    return a, b.mT if is_turned else b


@pytest.fixture(params=[0, 1 << 40], ids=["in groups", "in one call"])
def copied_at_most(request, monkeypatch):
    monkeypatch.setattr(batched_gemm, "_MANY_COPIES", request.param)


@pytest.mark.usefixtures("copied_at_most")
@LAWS
@given(factors())
def test_products_are_those_of_torch(operands):
    a, b = operands
    expected = torch.matmul(a, b)
    torch.testing.assert_close(batched_gemm.product(a, b), expected, atol=1e-4, rtol=1e-4)
    direct = batched_gemm.plain_product(a, b)
    if direct is not None:
        torch.testing.assert_close(direct(a, b), expected, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize(("of_a", "of_b"), [((4, 1), (4, 8)), ((1, 8), (4, 8)), ((1, 1), (1, 8))])
def test_a_shared_matrix_is_multiplied_without_copies_and_with_the_same_bits(of_a, of_b, monkeypatch):
    a, b = torch.randn(*of_a, 64, 32), torch.randn(*of_b, 32, 160)
    together = batched_gemm.product(a, b)
    monkeypatch.setattr(batched_gemm, "_MANY_COPIES", 0)
    in_groups = batched_gemm.product(a, b)
    assert torch.equal(in_groups, together)
    assert in_groups.is_contiguous()
