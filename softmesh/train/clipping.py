"""The norm of all gradients of a model, right however its parameters are split."""

from __future__ import annotations

import math
import struct
from collections.abc import Iterable, Sequence

import torch

from softmesh.autograd.leaves import gradient_tensor
from softmesh.errors import ArgumentValueError, MeshError
from softmesh.placement.words import Partial
from softmesh.tensor.tensor import Tensor
from softmesh.train.axes import axis_label
from softmesh.train.holders import is_first_holder
from softmesh.train.module import Parameters, named


def clip_grad_norm(params: Parameters, max_norm: float) -> float:
    """Scale all gradients so that their common norm is at most `max_norm`; returns what it was before.

    A split parameter counts with all its pieces, one that devices share counts once.
    """
    if not max_norm > 0:
        raise ArgumentValueError(f"clip_grad_norm: max_norm must be positive, got {max_norm}.")
    by_name = {name: tensor for name, tensor in named(params).items() if tensor.storage.gradient is not None}
    gradients = [_whole(name, tensor) for name, tensor in by_name.items()]
    if not gradients:
        raise MeshError("clip_grad_norm: no parameter has a gradient: call backward() first.")
    norms = torch._foreach_norm([gradient.float() for gradient in gradients])
    total = _together(by_name.values(), [float(norm) for norm in norms])
    if total > max_norm:
        factor = max_norm / total
        for tensor, gradient in zip(by_name.values(), gradients, strict=True):
            tensor.storage.gradient = gradient * factor
    return total


def _together(tensors: Iterable[Tensor], norms: Sequence[float]) -> float:
    """The norm of all. Where several processes hold the mesh, what they share counts in the first of them."""
    pairs = list(zip(tensors, norms, strict=True))
    total = math.hypot(*(norm for tensor, norm in pairs if is_first_holder(tensor)))
    device = pairs[0][0].device()
    if device is None or device.ranks is None:
        return total
    parts = device.ranks.context.allgather_bytes(struct.pack("d", total), op="clip_grad_norm")
    return math.hypot(*(struct.unpack("d", part)[0] for part in parts))


def _whole(name: str, tensor: Tensor) -> torch.Tensor:
    """The gradient as it is stored: each piece of a split parameter, and once what devices share."""
    raw = tensor.storage.gradient
    assert raw is not None
    gradient = gradient_tensor(tensor.storage, tensor, raw)
    words = gradient.view_distribution().placements
    axes = [axis for axis, word in enumerate(words) if isinstance(word, Partial)]
    if axes:
        assert tensor.storage.device is not None
        label = axis_label(tensor.storage.device, axes[0])
        raise MeshError(
            f"clip_grad_norm: the gradient of {name} is still {words[axes[0]]} over mesh axis {label!r}: its norm is "
            f"not known before the contributions are added up. Call sync_gradients(params, axes=[{label!r}]) first."
        )
    return gradient.view_data()
