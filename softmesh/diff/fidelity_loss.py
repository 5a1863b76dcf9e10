"""The loss of a product at each math fidelity: the matrix engine multiplies parts of mantissas, in one to four phases.

LoFi takes the upper 5 bits of the first operand's significand and the upper 7 of the second's; HiFi2 adds the lower
bits of the first, HiFi3 the lower bits of the second, HiFi4 their product.
"""

from __future__ import annotations

from dataclasses import replace

import torch

from softmesh.diff.entries import Entry, Recording
from softmesh.diff.golden_values import Read, golden_of, wholes
from softmesh.hardware import MathFidelity

PRODUCTS = ("matmul", "linear")
_PHASES = {MathFidelity.LoFi: 1, MathFidelity.HiFi2: 2, MathFidelity.HiFi3: 3}
_UPPER = (5, 7)  # bits of a significand that the first phase takes, of each operand


def fidelity_losses(run: Recording, entry: Entry) -> dict[MathFidelity, float]:
    """The relative error of a product's exact sum at each fidelity; nothing where the op is no such product."""
    read = wholes(run, entry) if entry.name in PRODUCTS else None
    if read is None or read.devices or len(read.tensors) < 2:
        return {}
    inputs = read.tensors
    a, b, rest = inputs[0], inputs[1], [torch.zeros_like(one) for one in inputs[2:]]  # a bias is added, not multiplied
    upper = [_upper(one, bits) for one, bits in zip((a, b), _UPPER, strict=True)]
    lower = [one - high for one, high in zip((a, b), upper, strict=True)]
    pairs = (upper, (lower[0], upper[1]), (upper[0], lower[1]), lower)
    phases = [_product(entry, [*pair, *rest]) for pair in pairs]
    done = [one for one in phases if one is not None]
    if len(done) < len(pairs):
        return {}
    exact = torch.stack(done).sum(0)
    size = float(exact.norm())
    left = {name: torch.stack(done[at:]).sum(0) for name, at in _PHASES.items() if at < len(done)}
    left[MathFidelity.HiFi4] = torch.zeros_like(exact)
    return {name: float(one.norm()) / size for name, one in left.items()} if size > 0 else {}


def _product(entry: Entry, inputs: list[torch.Tensor]) -> torch.Tensor | None:
    """Without what is applied to the sum afterwards."""
    call = entry.call
    if call is not None and call[1].get("activation") is not None:
        call = call[0], {**call[1], "activation": None}
    made = golden_of(replace(entry, call=call), Read(inputs))
    return None if made is None else made[0]


def _upper(values: torch.Tensor, bits: int) -> torch.Tensor:
    """The upper bits of each significand; what is below them is cut off."""
    significand, exponent = torch.frexp(values.float())
    return torch.ldexp(torch.trunc(significand * 2.0**bits), exponent - bits)
