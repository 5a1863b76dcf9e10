"""The Pearson correlation (PCC) of two tensors, by which TT-NN's tests compare results."""

from __future__ import annotations

import math

import torch

from softmesh.arguments import checked
from softmesh.errors import ArgumentValueError


def pearson_correlation_coefficient(expected: torch.Tensor, actual: torch.Tensor) -> float:
    """1.0 for tensors that agree up to scale and offset; 0.0 where only one of them is constant.

    >>> pearson_correlation_coefficient(torch.tensor([1.0, 2.0, 3.0]), torch.tensor([2.0, 4.0, 6.0]))
    1.0
    """
    where, wanted = "pearson_correlation_coefficient", "a torch.Tensor, as ttnn.to_torch makes one"
    for name, values in (("expected", expected), ("actual", actual)):
        checked(where, name, values, torch.Tensor, wanted)
    a, b = expected.detach().double().flatten(), actual.detach().double().flatten()
    if a.shape != b.shape:
        raise ArgumentValueError(
            f"pearson_correlation_coefficient: shapes differ: expected {tuple(expected.shape)}, "
            f"actual {tuple(actual.shape)}."
        )
    if torch.equal(a, b) or bool((a.isnan() & b.isnan()).all()):
        return 1.0
    if not bool(torch.isfinite(a).all() and torch.isfinite(b).all()):
        finite = a.isfinite() & b.isfinite()
        if not torch.equal(a[~finite].nan_to_num(), b[~finite].nan_to_num()):
            return 0.0
        a, b = a[finite], b[finite]
    a, b = a - a.mean(), b - b.mean()
    scale = math.sqrt(float(a.dot(a)) * float(b.dot(b)))
    if scale == 0.0:
        return 1.0 if torch.allclose(a, b) else 0.0
    return min(1.0, float(a.dot(b)) / scale)
