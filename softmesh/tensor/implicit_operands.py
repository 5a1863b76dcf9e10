"""Implicit operands: tensors an op reads without being given them (a device's index on its mesh, its random state).

They have values on each device and no memory there. The mesh keeps them, so that a trace finds them again.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Hashable, Sequence
from typing import cast

import torch

from softmesh.errors import MeshError
from softmesh.hardware.memory_config import DRAM_MEMORY_CONFIG
from softmesh.mesh import MeshCoordinate, MeshShape
from softmesh.placement.distribution import distribution, mesh_coordinates
from softmesh.placement.placements import REPLICATE, Placement, Shard
from softmesh.runtime.device import MeshDevice
from softmesh.tensor.dtype import DataType, Layout
from softmesh.tensor.spec import make_spec
from softmesh.tensor.storage import Storage
from softmesh.tensor.tensor import Tensor

# (*extents, *local): full along the axes that are split, 1 along the others; and the word for each axis
Made = tuple[torch.Tensor, tuple[Placement, ...]]


def implicit_operand(device: MeshDevice, key: Hashable, dtype: DataType, make: Callable[[], Made]) -> Tensor:
    """The tensor of this mesh that is known by `key`, made when first asked for."""
    shape = tuple(device.shape)
    found = device.implicit_operands.get((key, shape))
    if found is None:
        found = device.implicit_operands[key, shape] = _made(device, dtype, *make())
    return cast(Tensor, found)


def _made(device: MeshDevice, dtype: DataType, values: torch.Tensor, words: tuple[Placement, ...]) -> Tensor:
    mesh = tuple(device.shape)
    dist = distribution(mesh, mesh, words)
    if device.block is not None:
        values, dist = device.block.own_part(values, dist)
    storage = Storage(values.to(device.torch_device), dist, device)
    storage.spec = make_spec(tuple(values.shape[len(mesh) :]), dtype, Layout.ROW_MAJOR, DRAM_MEMORY_CONFIG)
    return Tensor.make(storage, storage.spec)


def device_index_along(device: MeshDevice, axes: Sequence[int], op: str) -> Tensor:
    """[1]: the index of each device along mesh axes, the last of which counts fastest."""
    mesh = tuple(device.shape)
    outside = [axis for axis in axes if not 0 <= axis < len(mesh)]
    if outside:
        raise MeshError(
            f"{op}: cluster axis {outside[0]} is out of range for mesh shape rank {len(mesh)}: {device.shape}."
        )

    def make() -> Made:
        extents = [mesh[axis] for axis in axes]
        counted = torch.arange(math.prod(extents), dtype=torch.int32).reshape(extents)
        order = sorted(range(len(axes)), key=lambda i: axes[i])
        full = [n if axis in axes else 1 for axis, n in enumerate(mesh)]
        words = [Shard(0) if axis in axes else REPLICATE for axis in range(len(mesh))]
        return counted.permute(order).reshape(*full, 1), tuple(words)

    return implicit_operand(device, ("place along", tuple(axes)), DataType.INT32, make)


def chosen_devices(device: MeshDevice, coords: Collection[MeshCoordinate], op: str) -> Tensor | None:
    """[1]: 1 on these devices, 0 on the others; None where they are all of the mesh."""
    mesh = tuple(device.shape)
    every = mesh_coordinates(mesh)
    chosen = frozenset(coords)
    outside = sorted(chosen.difference(every), key=str)
    if outside:
        raise MeshError(f"{op}: mesh_coords names {outside[0]}, which is not on the mesh {MeshShape(mesh)}.")
    if len(chosen) == len(every):
        return None

    def make() -> Made:
        flags = torch.tensor([coord in chosen for coord in every], dtype=torch.int32).reshape(*mesh, 1)
        words: list[Placement] = []
        for axis in range(len(mesh)):
            first = flags.narrow(axis, 0, 1)
            is_same = bool((flags == first).all())
            flags = first if is_same else flags
            words.append(REPLICATE if is_same else Shard(0))
        return flags, tuple(words)

    return implicit_operand(device, ("chosen", chosen), DataType.INT32, make)
