"""Gradients of what several processes share, each of which has one device of it: are they the same, or addends?

Within a process the extents of a gradient tell. With one device along an axis they do not, and the processes compare
their gradients by a checksum. All of them ask alike: in a backward pass that is about to communicate, when gradients
are synchronised, and before an optimizer's step.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence

import torch

from softmesh.placement.distribution import Distribution
from softmesh.placement.placements import REPLICATE, Partial
from softmesh.processes.context import byte_view
from softmesh.runtime.device import MeshDevice
from softmesh.tensor.storage import Storage
from softmesh.tensor.tensor import Tensor


def cannot_tell(dist: Distribution, axis: int) -> bool:
    """Whether other processes may hold other values along this axis, though the word says that all hold the same."""
    return dist.devices[axis] > dist.grid[axis] == 1 and dist.placements[axis] is REPLICATE


def are_apart(mesh: MeshDevice, axis: int, gradients: Sequence[torch.Tensor], op: str) -> list[bool]:
    """Of each of them: whether processes along the axis hold different ones."""
    assert mesh.ranks is not None
    lead = len(mesh.ranks.hosts)
    own = torch.tensor([zlib.crc32(byte_view(one.detach().contiguous().cpu())) for one in gradients])
    found = mesh.ranks.gather(own.reshape(*(1,) * lead, -1), range(lead), op)
    differs: list[bool] = (found != found.narrow(axis, 0, 1)).flatten(0, lead - 1).any(0).tolist()
    return differs


def apart_among(params: Mapping[str, Tensor], axes: Mapping[str, Sequence[int]], op: str) -> set[tuple[str, int]]:
    """Of parameters by name, and axes: where each process has a gradient of its own of what all of them share."""
    asked: dict[tuple[MeshDevice, int], list[tuple[str, torch.Tensor]]] = {}
    for name, tensor in params.items():
        mesh, gradient = tensor.storage.device, tensor.storage.gradient
        if mesh is None or mesh.ranks is None or gradient is None:
            continue
        for axis in axes[name]:
            if cannot_tell(tensor.storage.dist, axis):
                asked.setdefault((mesh, axis), []).append((name, gradient))
    found: set[tuple[str, int]] = set()
    for (mesh, axis), pairs in asked.items():
        apart = are_apart(mesh, axis, [gradient for _, gradient in pairs], op)
        found |= {(name, axis) for (name, _), is_apart in zip(pairs, apart, strict=True) if is_apart}
    return found


def as_addends(gradient: Tensor, axis: int) -> Tensor:
    """The same values, of which each device along the axis holds an addend."""
    dist = gradient.storage.dist
    words = tuple(Partial("sum") if at == axis else word for at, word in enumerate(dist.placements))
    values = gradient.storage.data
    return Tensor.make(Storage(values, dist.with_placements(words), gradient.storage.device), gradient.spec)


def told_apart(gradient: Tensor, op: str) -> Tensor:
    """A gradient that comes to `op`, with the words that the processes have found by comparing."""
    mesh, values = gradient.storage.device, gradient.storage.data
    if mesh is None or mesh.ranks is None or values is None:
        return gradient
    for axis in range(gradient.storage.dist.lead):
        if cannot_tell(gradient.storage.dist, axis) and are_apart(mesh, axis, [values], op)[0]:
            gradient = as_addends(gradient, axis)
    return gradient
