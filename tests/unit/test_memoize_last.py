"""An answer that is remembered for as long as the question stays the same."""

from __future__ import annotations

import pytest
import torch

from softmesh.ops.attention.page_tables import MemoizeLast


@pytest.fixture
def asked():
    return []


@pytest.fixture
def total(asked):
    def compute(numbers: torch.Tensor, times: int) -> int:
        asked.append(times)
        return int(numbers.sum()) * times

    return MemoizeLast(compute)


def test_the_same_question_is_computed_once(total, asked):
    numbers = torch.tensor([1, 2])
    assert [total((numbers,), 3), total((numbers.clone(),), 3)] == [9, 9]
    assert asked == [3]


def test_a_tensor_that_was_written_to_is_another_question(total):
    numbers = torch.tensor([1, 2])
    assert total((numbers,), 1) == 3
    numbers.numpy()[0] = 5  # behind torch's back
    assert total((numbers,), 1) == 7


@pytest.mark.parametrize(
    "numbers", [torch.tensor([1, 2, 0]), torch.tensor([1, 2], dtype=torch.int32), torch.tensor([[1, 2]])]
)
def test_another_form_or_value_is_another_question(total, asked, numbers):
    total((torch.tensor([1, 2]),), 1)
    assert (total((numbers,), 1), total((numbers,), 2)) == (3, 6)
    assert asked == [1, 1, 2]
