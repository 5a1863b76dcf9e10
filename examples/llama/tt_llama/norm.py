from __future__ import annotations

import torch
import ttnn

from tt_llama.model_args import TILE, ModelArgs
from tt_llama.tensor_parallel import TensorParallel

_BLOCKS = 2  # the dim of a norm's weight [1, 1, hidden / 32, 32] that is split


class RMSNorm:
    """Of the residual stream; where devices share its hidden dim, of statistics gathered from all of them."""

    def __init__(self, tp: TensorParallel, args: ModelArgs, weight: torch.Tensor) -> None:
        self._tp = tp
        self._epsilon = args.rms_norm_eps
        self._weight = tp.like_residual(weight.reshape(1, 1, -1, TILE), _BLOCKS)

    def __call__(self, x: ttnn.Tensor) -> ttnn.Tensor:
        tp = self._tp
        if not tp.residual_axes:
            return ttnn.rms_norm(x, epsilon=self._epsilon, weight=self._weight)
        stats = ttnn.rms_norm_pre_all_gather(x, dtype=tp.dtype)
        for axis in tp.residual_axes:
            stats = ttnn.all_gather(stats, dim=3, cluster_axis=axis)
        normed = ttnn.rms_norm_post_all_gather(x, stats, epsilon=self._epsilon, weight=self._weight)
        return tp.gathered(normed) if tp.splits_residual else normed
