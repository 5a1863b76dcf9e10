"""What is asked of a GPU, on a machine that need not have one."""

from __future__ import annotations

import pytest
import torch

from softmesh.runtime.float32_precision import full_float32


def told() -> tuple[str, bool]:
    return torch.backends.cudnn.conv.fp32_precision, torch.backends.cudnn.deterministic


@pytest.mark.parametrize("chosen", ["tf32", "ieee", None])
def test_a_gpu_is_told_to_keep_all_bits_of_float32_and_only_meanwhile(chosen, monkeypatch):
    if chosen is not None:
        monkeypatch.setattr(torch.backends, "fp32_precision", chosen)
    before = told()
    with full_float32(torch.device("cuda")):
        assert told() == ("ieee", True)
    assert told() == before


def test_a_cpu_is_told_nothing():
    before = told()
    with full_float32(torch.device("cpu")):
        assert told() == before
