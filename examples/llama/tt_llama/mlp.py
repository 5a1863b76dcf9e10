from __future__ import annotations

import torch
import ttnn

from tt_llama.tensor_parallel import TensorParallel


class MLP:
    """silu(x w1) * (x w3), then w2: columns of w1 and w3 shared along a row, and with them rows of w2."""

    def __init__(self, tp: TensorParallel, weights: dict[str, torch.Tensor]) -> None:
        self._tp = tp
        self._w1 = tp.from_hidden(weights["mlp.gate_proj.weight"])
        self._w3 = tp.from_hidden(weights["mlp.up_proj.weight"])
        self._w2 = tp.to_hidden(weights["mlp.down_proj.weight"])

    def __call__(self, x: ttnn.Tensor) -> ttnn.Tensor:
        tp = self._tp
        gate = tp.summed_over_hidden(ttnn.linear(x, self._w1))
        up = tp.summed_over_hidden(ttnn.linear(x, self._w3))
        gated = ttnn.mul(gate, up, input_tensor_a_activations=[ttnn.UnaryOpType.SILU])
        return tp.summed_over_width(ttnn.linear(gated, self._w2))
