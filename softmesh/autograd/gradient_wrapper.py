"""A tensor subclass for gradients whose leading (mesh) dims have other extents than the value they belong to.

What devices agree on is stored once, and gradients follow other laws of agreement than values do: a weight
that all devices share gets a gradient from each of them, and devices with different pieces may get the same
gradient. torch's engine wants a gradient of the value's own shape, and would add up what is larger. A
`PerDeviceGradient` shows the engine the value's shape and holds its own values inside.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.utils._pytree import tree_flatten, tree_map, tree_unflatten

_COPIES = (torch.ops.aten.detach.default, torch.ops.aten.alias.default, torch.ops.aten.clone.default)
_ADDITIONS = (torch.ops.aten.add.Tensor, torch.ops.aten.add_.Tensor)
Devices = dict[int, int]  # how many there are along each mesh dim in which gradients differ and values do not


class PerDeviceGradient(torch.Tensor):
    """`held` is (number of devices that differ, *shape), with extent 1 where it agrees and the value does not."""

    held: torch.Tensor
    devices: Devices

    @staticmethod
    def __new__(cls, held: torch.Tensor, shape: Sequence[int], devices: Devices) -> PerDeviceGradient:
        carried: PerDeviceGradient = torch.Tensor._make_wrapper_subclass(
            cls, tuple(shape), dtype=held.dtype, device=held.device
        )
        carried.held, carried.devices = held, devices
        return carried

    def __repr__(self, *, tensor_contents: Any = None) -> str:  # type: ignore[override]
        return f"PerDeviceGradient({list(self.shape)}, of devices {self.devices})"

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]
        cls, func: Callable[..., Any], types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        if func in _COPIES:
            return PerDeviceGradient(args[0].held, args[0].shape, args[0].devices)
        if func in _ADDITIONS:
            return _sum(args[0], args[1])
        return _for_each_device(func, args, kwargs or {})


def wrap_gradient(values: torch.Tensor, shape: Sequence[int]) -> torch.Tensor:
    """A gradient for a value of this shape; as it is where the shape fits."""
    shape = tuple(shape)
    if values.shape == shape:
        return values
    devices = {dim: n for dim, (n, own) in enumerate(zip(values.shape, shape, strict=True)) if n > own}
    others = [dim for dim in range(values.dim()) if dim not in devices]
    narrow = [1 if dim in devices else n for dim, n in enumerate(values.shape)]
    held = values.permute(*devices, *others).reshape(math.prod(devices.values()), *narrow)
    return PerDeviceGradient(held, shape, devices)


def unwrap_gradient(gradient: torch.Tensor) -> torch.Tensor:
    """The gradient with leading dims of its own: as large as devices differ."""
    if not isinstance(gradient, PerDeviceGradient):
        return gradient
    held, devices = gradient.held, gradient.devices
    spread = held.reshape(*devices.values(), *held.shape[1:])
    for i, dim in enumerate(devices):
        spread = spread.transpose(i, len(devices) + dim)
    return spread.reshape([devices.get(dim, n) for dim, n in enumerate(held.shape[1:])])


def plain(gradient: torch.Tensor) -> torch.Tensor:
    """A gradient that devices agree on, under the value's own shape and without copies; others as they are."""
    if isinstance(gradient, PerDeviceGradient) and not gradient.devices:
        return gradient.held[0].expand(gradient.shape)
    return gradient


def _sum(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    devices = _all_devices([a, b])
    return PerDeviceGradient(_stack(a, devices) + _stack(b, devices), a.shape, devices)


def _for_each_device(func: Callable[..., Any], args: Any, kwargs: dict[str, Any]) -> Any:
    """What torch does to a value's gradient, done to the gradient of each device that has its own.

    Devices come one after the other: in a program whose gradients are combined where they should be, what
    devices compute alike also gets one gradient, and does not come here.
    """
    if func is torch.ops.aten.view.default:  # what is shown is contiguous, what is held need not be
        func = torch.ops.aten.reshape.default
    flat, spec = tree_flatten((args, kwargs))
    devices = _all_devices(flat)
    stacks = [_whole(value, devices) if isinstance(value, PerDeviceGradient) else None for value in flat]
    made = []
    for device in range(math.prod(devices.values())):
        own = [plain if stack is None else stack[device] for stack, plain in zip(stacks, flat, strict=True)]
        own_args, own_kwargs = tree_unflatten(own, spec)
        made.append(func(*own_args, **own_kwargs))
    return tree_map(lambda *each: _joined(each, devices), *made) if devices else made[0]


def _all_devices(values: Sequence[Any]) -> Devices:
    found: Devices = {}
    for value in values:
        if isinstance(value, PerDeviceGradient):
            found |= value.devices
    return dict(sorted(found.items()))


def _stack(value: torch.Tensor, devices: Devices) -> torch.Tensor:
    """One gradient for each of these devices, in front."""
    if not isinstance(value, PerDeviceGradient):
        return value.unsqueeze(0)
    if value.devices == devices:
        return value.held
    own = [value.devices.get(dim, 1) for dim in devices]
    local = value.held.shape[1:]
    spread = value.held.reshape(*own, *local).expand(*devices.values(), *local)
    return spread.reshape(math.prod(devices.values()), *local)


def _whole(value: PerDeviceGradient, devices: Devices) -> torch.Tensor:
    """As `_stack`, each of the shape that is shown."""
    stack = _stack(value, devices)
    return stack.expand(stack.shape[0], *value.shape)


def _joined(each: Sequence[Any], devices: Devices) -> Any:
    if not isinstance(each[0], torch.Tensor):
        return each[0]
    return PerDeviceGradient(torch.stack(list(each)), each[0].shape, devices)
