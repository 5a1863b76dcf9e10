"""The non-linearities between an expert's two products: functions of what its two first matrices made of a token."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch.nn import functional

from softmesh.errors import MeshError
from softmesh.native_enum import NativeEnum

Gating = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
_SWIGLU_SLOPE = 1.702  # GPT-OSS's
_SWIGLU_LIMIT = 7.0


class MoEActivationFunction(NativeEnum):
    """What moe_compute makes of x @ w0 and x @ w1."""

    SILU = 0
    SWIGLU = 1
    GELU = 2
    CLAMPED_SILU = 3


class RoutedExpertActivation(NativeEnum):
    """The same of the prefill ops."""

    Silu = 0
    SwiGluOai = 1
    SituGlu = 2
    ClampedSiluGlu = 3


def _silu(gate: torch.Tensor, up: torch.Tensor) -> torch.Tensor:
    return functional.silu(gate) * up


def _gelu(gate: torch.Tensor, up: torch.Tensor) -> torch.Tensor:
    return functional.gelu(gate) * up


def _clamped(limit: float) -> Gating:
    return lambda gate, up: functional.silu(gate.clamp(max=limit)) * up.clamp(-limit, limit)


def _swiglu(limit: float) -> Gating:
    def gated(gate: torch.Tensor, up: torch.Tensor) -> torch.Tensor:
        bounded = gate.clamp(max=limit)
        return bounded * torch.sigmoid(_SWIGLU_SLOPE * bounded) * (up.clamp(-limit, limit) + 1)

    return gated


def gating(op: str, kind: MoEActivationFunction | None, limit: float | None) -> Gating:
    """f(x @ w0, x @ w1); SILU without a choice. `limit` is that of the forms that cut values off."""
    if limit is not None and not limit > 0:
        raise MeshError(f"{op}: activation_limit must be positive, got {limit}.")
    if kind is None or kind is MoEActivationFunction.SILU:
        return _silu
    if kind is MoEActivationFunction.GELU:
        return _gelu
    if kind is MoEActivationFunction.SWIGLU:
        return _swiglu(_SWIGLU_LIMIT if limit is None else limit)
    if limit is None:
        raise MeshError(f"{op}: {kind} cuts values off at activation_limit: give it, 10.0 for example.")
    return _clamped(limit)
