"""What is asked of a GPU, on a machine that need not have one."""

from __future__ import annotations

import torch

from softmesh.ops.full_float32 import full_float32


def test_a_gpu_is_told_to_keep_all_bits_of_float32_and_only_meanwhile():
    before = torch.backends.cudnn.allow_tf32
    with full_float32(torch.device("cuda")):
        assert not torch.backends.cudnn.allow_tf32
        assert torch.backends.cudnn.deterministic
    assert torch.backends.cudnn.allow_tf32 == before


def test_a_cpu_is_told_nothing():
    before = torch.backends.cudnn.allow_tf32
    with full_float32(torch.device("cpu")):
        assert torch.backends.cudnn.allow_tf32 == before
