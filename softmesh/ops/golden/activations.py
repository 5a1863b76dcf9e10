"""Golden functions of activations, as fused ops name them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from softmesh.ops.golden.element_wise import activated


def get_golden_function_for_activation(activation: Any) -> Callable[[torch.Tensor], torch.Tensor]:
    """The torch function of an activation: a name, a UnaryOpType or a UnaryWithParam; None does nothing."""
    if activation is None:
        return lambda x: x
    activated(torch.zeros(1), activation)  # an unknown one is refused here, not when it is used
    return lambda x: activated(x, activation)
