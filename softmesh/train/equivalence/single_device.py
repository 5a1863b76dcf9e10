"""The reference of an equivalence check: the same model and batch on one device, with the parameters of the mesh."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch

from softmesh.autograd.leaves import requires_grad_
from softmesh.errors import MeshError
from softmesh.mesh import MeshShape
from softmesh.runtime.device import MeshDevice
from softmesh.tensor.tensor import Tensor
from softmesh.train.axes import on_mesh
from softmesh.train.equivalence.values import Value, whole
from softmesh.train.layers import Initial
from softmesh.train.module import Module

Build = Callable[[MeshDevice], Module]


@contextmanager
def one_device(mesh: MeshDevice) -> Iterator[MeshDevice]:
    """The first device of the mesh as a mesh with as many axes, of the same names."""
    first = mesh.create_submesh(MeshShape([1] * mesh.shape.dims()))
    mesh.quiesce_devices()
    try:
        yield first
    finally:
        mesh.quiesce_devices()
        first.close()


def single_device_model(model: Module, device: MeshDevice, build: Build | None) -> Module:
    """The model made once more on one device, holding the values of the mesh."""
    made = _Rebuilder(device).module(model) if build is None else build(device)
    if not isinstance(made, Module):
        raise MeshError(f"check: reference(mesh) must return a Module, got {type(made).__name__}.")
    own, theirs = dict(made.named_parameters()), dict(model.named_parameters())
    if list(own) != list(theirs):
        odd = sorted(set(own) ^ set(theirs)) or list(own)
        raise MeshError(
            f"check: the model on one device has other parameters than the one on the mesh: {odd[0]!r} is not in both. "
            "Give reference=build, a function that makes the model on the mesh it is given."
        )
    for name, tensor in own.items():
        _copy(name, theirs[name], tensor)
    return made.train(model.is_training)


def _copy(name: str, source: Tensor, target: Tensor) -> None:
    values = whole(name, Value.of(source))
    storage = target.storage
    assert storage.data is not None
    data = values.reshape(1, *values.shape) if storage.dist.lead == 1 else values[(None,) * storage.dist.lead]
    if data.shape != storage.data.shape:
        raise MeshError(
            f"check: {name} is {list(values.shape)} on the mesh and {list(target.shape)} on one device. "
            "Give reference=build, a function that makes the same model on the mesh it is given."
        )
    storage.data = data.to(storage.data.dtype).clone()
    requires_grad_(target)


def single_device_batch(batch: Sequence[Any], device: MeshDevice) -> list[Any]:
    """Each tensor of the batch as a whole, on one device."""
    return [_Rebuilder(device).value(f"batch[{i}]", item) for i, item in enumerate(batch)]


class _Rebuilder:
    """Makes again, on another mesh, what modules were made with."""

    def __init__(self, device: MeshDevice) -> None:
        self._device = device
        self._made: dict[int, Module] = {}

    def module(self, module: Module) -> Module:
        if id(module) not in self._made:
            args, kwargs = module.made_with
            name = type(module).__name__
            again = type(module)(
                *(self.value(f"{name} argument {i}", item) for i, item in enumerate(args)),
                **{key: self.value(f"{name} {key}", item) for key, item in kwargs.items()},
            )
            self._made[id(module)] = again
        return self._made[id(module)]

    def value(self, what: str, item: Any) -> Any:
        if isinstance(item, MeshDevice):
            return self._device
        if isinstance(item, Module):
            return self.module(item)
        if isinstance(item, Initial):
            return Initial(dtype=item.dtype)  # the model's own has drawn already
        if isinstance(item, Tensor):
            return self._tensor(what, item)
        if isinstance(item, list):
            return [self.value(what, one) for one in item]
        if type(item) is tuple:
            return tuple(self.value(what, one) for one in item)
        if isinstance(item, dict):
            return {key: self.value(f"{what}[{key!r}]", one) for key, one in item.items()}
        return item

    def _tensor(self, what: str, tensor: Tensor) -> Tensor:
        if tensor.device() is None:
            return tensor
        with torch.no_grad():
            made = on_mesh(whole(what, Value.of(tensor)), self._device, dtype=tensor.dtype, layout=tensor.layout)
        return requires_grad_(made) if tensor.requires_grad else made
