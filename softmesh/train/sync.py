"""Gradients of shared parameters combined over mesh axes: on the host, or by collectives of the fabric."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch

from softmesh.autograd.leaves import gradient_tensor
from softmesh.dispatch.operation import OPERATIONS
from softmesh.errors import ArgumentValueError, MeshError
from softmesh.placement.distribution import Distribution
from softmesh.placement.pieces import along_the_mesh
from softmesh.placement.words import Partial
from softmesh.tensor.tensor import Tensor
from softmesh.train.axes import Axis, axis_number, listed
from softmesh.train.module import Parameters, named

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
    calls = count = 0
    combine = _by_fabric if mode == "fabric" else _by_host
    for name, tensor in by_name.items():
        for axis in numbers[name]:
            data, dist = along_the_mesh(*_values(tensor))
            if isinstance(dist.placements[axis], Partial):
                combine(tensor, axis, average)
                calls += 1
                count += tensor.logical_volume() * data.itemsize
    return Synced(calls, count)


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
    with torch.no_grad():
        total = OPERATIONS["all_reduce"](_gradient(tensor), cluster_axis=axis)
    values = total.view_data()
    tensor.storage.gradient = values / _devices(tensor, axis) if average else values


def _by_host(tensor: Tensor, axis: int, average: bool) -> None:
    contributions = _gradient(tensor).view_data()
    total = contributions.select(axis, 0).float().clone()
    for device in range(1, contributions.shape[axis]):
        total += contributions.select(axis, device)
    if average:
        total /= _devices(tensor, axis)
    tensor.storage.gradient = total.to(contributions.dtype).unsqueeze(axis)


def _devices(tensor: Tensor, axis: int) -> int:
    return tensor.storage.dist.grid[axis]
