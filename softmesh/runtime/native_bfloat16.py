"""Detects native bfloat16 products on this machine: with fp32 accumulation, one rounding, and faster than fp32.

Every GPU that torch runs on does. Of processors those with AVX-512 BF16 or AMX do (oneDNN uses them), and ARM's with
BF16; torch tells which, or, where it is too old for that, one product of each type is timed, once in a process.
"""

from __future__ import annotations

import time
from functools import cache

import torch

_UNITS = {
    "amx_bf16": "AMX",
    "avx512_bf16": "AVX-512 BF16",
    "avx10_2": "AVX10.2",
    "sve_bf16": "SVE BF16",
    "bf16": "BF16",
}
_SIDE = 256  # of the matrices that are timed
_ROUNDS = 5
_FASTER = 1.3  # times as fast as fp32: below, the difference may be the machine's mood


@cache
def bfloat16_unit() -> str | None:
    """The processor's unit for bfloat16 products by its name; None where fp32 is what it multiplies."""
    capabilities = getattr(torch.cpu, "get_capabilities", None)
    if capabilities is None:
        return "bfloat16, by a measurement" if _is_measured_faster() else None
    there = capabilities()
    found = [name for key, name in _UNITS.items() if there.get(key)]
    return found[0] if found and torch.backends.mkldnn.is_available() else None


def _is_measured_faster() -> bool:
    fp32 = torch.ones(_SIDE, _SIDE)
    bfloat16 = fp32.bfloat16()
    return _seconds(fp32) > _FASTER * _seconds(bfloat16)


def _seconds(matrix: torch.Tensor) -> float:
    """The shortest of some products, after one that does not count."""
    found = []
    for _ in range(1 + _ROUNDS):
        start = time.perf_counter()
        torch.mm(matrix, matrix)
        found.append(time.perf_counter() - start)
    return min(found[1:])
