"""Argument forms: how the arguments of one way to call an op become those of its definition.

Positions that stand for other names where a tensor is given, and arguments that are filled in from the mesh.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from softmesh.arguments import refused
from softmesh.dispatch.definition import Arguments
from softmesh.dispatch.signature import Signature
from softmesh.errors import MeshError
from softmesh.runtime.device import MeshDevice
from softmesh.tensor.implicit_operands import device_index_along
from softmesh.tensor.tensor import Tensor

Rearrange = Callable[[Signature, tuple[Any, ...], dict[str, Any]], Arguments]


def named_by_position(at: int, names: str) -> Rearrange:
    """Where the argument at position `at` is a tensor, the positional arguments have these `names`."""
    positional = names.split()

    def rearrange(signature: Signature, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Arguments:
        if len(args) <= at or not isinstance(args[at], Tensor):
            return args, kwargs
        if len(args) > len(positional):
            raise refused(signature.op, f"takes {', '.join(positional)} by position, got {len(args)}")
        named = dict(zip(positional, args, strict=False))
        twice = sorted(named.keys() & kwargs.keys())
        if twice:
            raise refused(signature.op, f"argument {twice[0]!r} is given twice")
        return (), named | kwargs

    return rearrange


def one_after_the_other(*steps: Rearrange) -> Rearrange:
    def rearrange(signature: Signature, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Arguments:
        for step in steps:
            args, kwargs = step(signature, args, kwargs)
        return args, kwargs

    return rearrange


# Ops that are told mesh axes: what they mean for a device is how many there are along them, and which one it is.


_ALONG = ("cluster_axis", "seq_shard_axes")  # arguments that name the axes along which a sequence is split


def with_mesh_axes(signature: Signature, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Arguments:
    """Gives a definition `place`, a tensor with the device's index along the axes it is told, and numbers of devices.

    `devices` counts those along these axes, `block_cyclic_devices` those along `block_cyclic_sp_axis`.
    """
    given = dict(zip(signature.names, args, strict=False)) | kwargs
    mesh = next((value.device() for value in given.values() if isinstance(value, Tensor)), None)
    if mesh is None:
        return args, kwargs
    more: dict[str, Any] = {}
    along = next((given[name] for name in _ALONG if given.get(name) is not None), None)
    if along is not None:
        axes = list(along) if isinstance(along, list | tuple) else [along]
        sub = given.get("seq_subshard_axis")
        axes += [] if sub is None else [sub]
        more["devices"] = _count(signature.op, mesh, axes)
        more["place"] = device_index_along(mesh, axes, signature.op)
    cyclic = given.get("block_cyclic_sp_axis")
    if cyclic is not None:
        more["block_cyclic_devices"] = _count(signature.op, mesh, [cyclic])
    return args, kwargs | {name: value for name, value in more.items() if name in signature.names}


# Options of an op that is told mesh axes.
ON_MESH_AXES: dict[str, Any] = {
    "rearrange": with_mesh_axes,
    "provided": ("place", "devices", "block_cyclic_devices"),
}


def _count(op: str, mesh: MeshDevice, axes: Sequence[int]) -> int:
    shape, count = tuple(mesh.shape), 1
    for axis in axes:
        if isinstance(axis, bool) or not isinstance(axis, int) or not 0 <= axis < len(shape):
            raise MeshError(
                f"{op}: cluster axis {axis} is out of range for mesh shape rank {len(shape)}: {mesh.shape}."
            )
        count *= shape[axis]
    return count
