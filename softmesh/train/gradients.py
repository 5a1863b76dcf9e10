"""Gradient synchronization and clipping, between backward() and optimizer.step().

`sync_gradients` combines the gradients of shared parameters over mesh axes: on the host, or by collectives of the
fabric. `clip_grad_norm` bounds the norm of all gradients, however the parameters are split.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import torch

from softmesh.arguments import checked_number
from softmesh.autograd.leaves import gradient_tensor
from softmesh.autograd.process_gradients import apart_among, as_addends
from softmesh.callsite import user_call_site
from softmesh.dispatch.operation import OPERATIONS
from softmesh.errors import ArgumentValueError, MeshError
from softmesh.placement.distribution import Distribution
from softmesh.placement.pieces import along_the_mesh
from softmesh.placement.placements import Partial, Placement, Shard
from softmesh.runtime.grad_mode import without_gradients
from softmesh.strictness import doubt
from softmesh.tensor.gradient_sums import (
    doubt_scale,
    doubt_used_before,
    note_summed,
    summed_over,
    warn_if_partly_summed,
    warn_if_summed,
)
from softmesh.tensor.tensor import Tensor
from softmesh.train.axes import Axis, axis_label, axis_number, listed
from softmesh.train.module import Parameters, Phase, is_first_holder, named, tell_phase, tell_ranks

MODES = ("host", "fabric")


class Synced(NamedTuple):
    """What was combined: how often, and how many bytes of gradients each device had of it."""

    calls: int
    bytes: int


def sync_gradients(
    params: Parameters,
    axes: Axis | Sequence[Axis] = ("dp",),
    mode: str = "fabric",
    average: bool = True,
) -> Synced:
    """Each device's contributions to the gradients of what it shares, summed along the axes (or averaged).

    "fabric" is a collective for each parameter and axis; "host" reads the contributions back, adds them up in the
    order of the devices, and writes the sum to all of them. A gradient that the devices already agree on is left
    as it is: it is no contribution.
    """
    if mode not in MODES:
        raise ArgumentValueError(f'sync_gradients: mode must be "host" or "fabric", got {mode!r}.')
    by_name = named(params)
    numbers = {name: _numbers(name, tensor, axes) for name, tensor in by_name.items()}
    tell_ranks(f"sync_gradients({axes=}, {mode=}, {average=})", by_name)
    apart = apart_among(by_name, numbers, "sync_gradients")
    count, combined = 0, []
    combine = _by_fabric if mode == "fabric" else _by_host
    doubt_used_before("sync_gradients", {name: tensor.storage for name, tensor in by_name.items()})
    for name, tensor in by_name.items():
        known = dict(summed_over(tensor.storage))
        for axis in numbers[name]:
            warn_if_summed("sync_gradients", f"the gradient of {name}", known, axis, _devices(tensor, axis))
            if not average:
                of = f"the gradient of {name}"
                warn_if_partly_summed("sync_gradients", of, tensor.storage, axis, _devices(tensor, axis))
            data, dist = along_the_mesh(*_values(tensor))
            if isinstance(dist.placements[axis], Partial) or (name, axis) in apart:
                combine(tensor, axis, average)
                known[axis] = user_call_site()
                combined.append((name, tensor.storage, axis))
                count += tensor.logical_volume() * data.itemsize
        note_summed(tensor.storage, known)
    doubt_scale("sync_gradients", combined, average)
    tell_phase(Phase.SYNC, "sync_gradients", by_name)
    shared = [
        (tensor, axis)
        for name, tensor in by_name.items()
        for axis in numbers[name]
        if not isinstance(tensor.storage.dist.placements[axis], Shard)  # whose parts each have a gradient of their own
    ]
    if not combined and any(_devices(tensor, axis) > 1 for tensor, axis in shared):
        doubt(
            "sync_gradients: all devices agree on every gradient already, and nothing was combined: were they "
            "synchronised before, or did all devices see the same batch?",
        )
    return Synced(len(combined), count)


def _numbers(name: str, tensor: Tensor, axes: Axis | Sequence[Axis]) -> list[int]:
    """The axes by number; what cannot be combined is refused before anything is changed."""
    mesh = tensor.device()
    if mesh is None:
        raise MeshError(f"sync_gradients: {name} is not on a mesh.")
    if tensor.storage.gradient is None:
        raise MeshError(
            f"sync_gradients: {name} has no gradient: it took no part in the loss, or backward() was not called. "
            "Leave it out, or give the loss a way to it."
        )
    return [axis_number(mesh, axis) for axis in listed(axes)]


def _gradient(tensor: Tensor) -> Tensor:
    gradient = tensor.storage.gradient
    assert gradient is not None
    return gradient_tensor(tensor.storage, tensor, gradient)


def _values(tensor: Tensor) -> tuple[torch.Tensor, Distribution]:
    gradient = _gradient(tensor)
    return gradient.view_data(), gradient.view_distribution()


def _by_fabric(tensor: Tensor, axis: int, average: bool) -> None:
    addends = as_addends(_gradient(tensor), axis)
    total: Tensor = without_gradients(lambda: OPERATIONS["all_reduce"](addends, cluster_axis=axis))
    values = total.view_data()
    tensor.storage.gradient = values / _devices(tensor, axis) if average else values


def _by_host(tensor: Tensor, axis: int, average: bool) -> None:
    contributions, mesh = _gradient(tensor).view_data(), tensor.storage.device
    if mesh is not None and mesh.ranks is not None:
        contributions = mesh.ranks.gather(contributions, [axis], "sync_gradients")
    total = contributions.select(axis, 0).float().clone()
    for device in range(1, contributions.shape[axis]):
        total += contributions.select(axis, device)
    if average:
        total /= _devices(tensor, axis)
    tensor.storage.gradient = total.to(contributions.dtype).unsqueeze(axis)


def _devices(tensor: Tensor, axis: int) -> int:
    return tensor.storage.dist.devices[axis]


# The gradient norm, right however the parameters are split.

CLIP_TAKERS: list[Callable[[dict[str, Tensor], float], float]] = []  # the last one changes the gradients


def clip_grad_norm(params: Parameters, max_norm: float) -> float:
    """Scale all gradients so that their common norm is at most `max_norm`; returns what it was before.

    A split parameter counts with all its pieces, one that devices share counts once.
    """
    checked_number("clip_grad_norm", "max_norm", max_norm)
    if not max_norm > 0:
        raise ArgumentValueError(f"clip_grad_norm: max_norm must be positive, got {max_norm}.")
    by_name = {name: tensor for name, tensor in named(params).items() if tensor.storage.gradient is not None}
    tell_ranks(f"clip_grad_norm({max_norm=})", by_name)
    if not by_name:
        raise MeshError("clip_grad_norm: no parameter has a gradient: call backward() first.")
    if CLIP_TAKERS:
        return CLIP_TAKERS[-1](by_name, max_norm)
    every_axis = {name: range(tensor.storage.dist.lead) for name, tensor in by_name.items()}
    for name, axis in sorted(apart_among(by_name, every_axis, "clip_grad_norm")):
        raise _not_added_up(name, by_name[name], Partial("sum"), axis)
    doubt_used_before("clip_grad_norm", {name: tensor.storage for name, tensor in by_name.items()})
    gradients = [_whole(name, tensor) for name, tensor in by_name.items()]
    norms = torch._foreach_norm([gradient.float() for gradient in gradients])
    total = _together(by_name.values(), [float(norm) for norm in norms])
    if total > max_norm:
        factor = max_norm / total
        for tensor, gradient in zip(by_name.values(), gradients, strict=True):
            known = summed_over(tensor.storage)
            tensor.storage.gradient = gradient * factor
            note_summed(tensor.storage, known)
    tell_phase(Phase.CLIP, "clip_grad_norm", by_name)
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
        raise _not_added_up(name, tensor, words[axes[0]], axes[0])
    return gradient.view_data()


def _not_added_up(name: str, tensor: Tensor, word: Placement, axis: int) -> MeshError:
    assert tensor.storage.device is not None
    label = axis_label(tensor.storage.device, axis)
    return MeshError(
        f"clip_grad_norm: the gradient of {name} is still {word} over mesh axis {label!r}: its norm is not known "
        f"before the contributions are added up. Call sync_gradients(params, axes=[{label!r}]) first."
    )
