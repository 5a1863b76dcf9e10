"""The loss of a product at each math fidelity: the matrix engine multiplies parts of mantissas, in one to four phases.

LoFi takes the upper 5 bits of the first operand's significand and the upper 7 of the second's; HiFi2 adds the lower
bits of the first, HiFi3 the lower bits of the second, HiFi4 their product.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch

from softmesh.diff.entries import Entry, Recording
from softmesh.diff.golden_values import Read, golden_of, wholes
from softmesh.dispatch.operation import factors_of
from softmesh.hardware import MathFidelity

_PHASES = {MathFidelity.LoFi: 1, MathFidelity.HiFi2: 2, MathFidelity.HiFi3: 3}
_ACTIVATIONS = ("activation", "fused_activation")
_UPPER = (5, 7)  # bits of a significand that the first phase takes, of each operand


def fidelity_losses(run: Recording, entry: Entry) -> dict[MathFidelity, float]:
    """The relative error of a product's exact sum at each fidelity; nothing where the op is no such product."""
    factors = factors_of(entry.name)
    read = wholes(run, entry) if factors else None
    if read is None or read.devices or len(read.tensors) < 2:
        return {}
    inputs = read.tensors
    upper = [_upper(one, bits) for one, bits in zip((inputs[at] for at in factors), _UPPER, strict=True)]
    lower = [inputs[at] - high for at, high in zip(factors, upper, strict=True)]
    pairs = (upper, (lower[0], upper[1]), (upper[0], lower[1]), lower)
    rest = [torch.zeros_like(one) for one in inputs]  # a bias is added, not multiplied
    phases = [_product(entry, _with(rest, factors, pair)) for pair in pairs]
    done = [one for one in phases if one is not None]
    if len(done) < len(pairs):
        return {}
    exact = torch.stack(done).sum(0)
    size = float(exact.norm())
    left = {name: torch.stack(done[at:]).sum(0) for name, at in _PHASES.items() if at < len(done)}
    left[MathFidelity.HiFi4] = torch.zeros_like(exact)
    return {name: float(one.norm()) / size for name, one in left.items()} if size > 0 else {}


def _with(inputs: Sequence[torch.Tensor], factors: Sequence[int], pair: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    chosen = dict(zip(factors, pair, strict=True))
    return [chosen.get(at, one) for at, one in enumerate(inputs)]


def _product(entry: Entry, inputs: list[torch.Tensor]) -> torch.Tensor | None:
    """Without what is applied to the sum afterwards."""
    call = entry.call
    if call is not None:
        call = call[0], {name: value for name, value in call[1].items() if name not in _ACTIVATIONS}
    made = golden_of(replace(entry, call=call), Read(inputs))
    return None if made is None else made[0]


def _upper(values: torch.Tensor, bits: int) -> torch.Tensor:
    """The upper bits of each significand; what is below them is cut off."""
    significand, exponent = torch.frexp(values.float())
    return torch.ldexp(torch.trunc(significand * 2.0**bits), exponent - bits)
