"""Chooses who multiplies float32 matrices on this CPU: MKL, which torch.matmul calls, or oneDNN.

MKL keeps its AVX-512 kernels for Intel's processors; on others oneDNN's are up to three times as fast. torch calls
oneDNN for such products by one operator alone, `mkldnn::_linear_pointwise`, which has no gradient of its own and
returns new memory. It copies the matrix of weights into an order of its own, so few rows or few numbers are no gain.

The choice follows from the processor and the shapes, never from a measurement: processes on one kind of processor make
the same for the same shapes.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

import torch

_FEWEST_ROWS = 4
_FEWEST_STEPS = 1 << 24  # multiplications of one product: below, the call and the copy of the weights cost as much


@cache
def onednn_is_faster() -> bool:
    """True if this is a processor with AVX-512 that MKL does not run at full speed."""
    capabilities: dict[str, object] = getattr(torch.cpu, "get_capabilities", dict)()
    has_both = torch.backends.mkl.is_available() and torch.backends.mkldnn.is_available()
    has_operator = hasattr(torch.ops.mkldnn, "_linear_pointwise")
    return has_both and has_operator and bool(capabilities.get("avx512_f")) and _vendor() not in ("", "GenuineIntel")


def _vendor() -> str:
    facts = Path("/proc/cpuinfo")
    lines = facts.read_text().splitlines() if facts.exists() else []
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("vendor_id")), "")


def multiplies_by_onednn(a: torch.Tensor, rows: int, b: torch.Tensor) -> bool:
    """True if oneDNN is the faster one for `rows` rows of `a` by each matrix of `b`."""
    if rows < _FEWEST_ROWS or rows * b.shape[-2] * b.shape[-1] < _FEWEST_STEPS:
        return False
    is_one = b.numel() == b.shape[-2] * b.shape[-1]
    if not is_one and a.stride(-1) != 1:
        return False  # oneDNN would copy each matrix of a transposed view
    return a.dtype is b.dtype is torch.float32 and a.is_cpu and b.is_cpu and onednn_is_faster()


def onednn_product(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Multiply a (..., M, K) by one matrix b (K, N)."""
    made: torch.Tensor = torch.ops.mkldnn._linear_pointwise(a, b.mT, None, "none", [], "")
    return made
