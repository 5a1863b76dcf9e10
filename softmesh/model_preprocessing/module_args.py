"""`ttnn_module_args`: how the modules of a torch model are called (image sizes and the like), inferred from one run."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import torch

from softmesh.dot_access import DotAccessDict
from softmesh.errors import ArgumentError, MeshError
from softmesh.hardware import MathFidelity
from softmesh.tensor.dtype import DataType


class ModuleArgs(DotAccessDict):
    """Arguments by name, as attributes too. Inside a Sequential or a ModuleList, `args[0]` is `args["0"]`."""

    def _no_such(self, name: str) -> str:
        return f"there is no {name!r} among {', '.join(map(str, self)) or 'no arguments'}"

    def __missing__(self, key: Any) -> Any:
        if isinstance(key, int) and str(key) in self:
            return self[str(key)]
        raise KeyError(key)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({dict(self)!r})"


class Conv2dArgs(ModuleArgs):
    """What `ttnn.conv2d` needs beside its tensors, and how a port computes it unless it says otherwise."""


class ConvTranspose2dArgs(ModuleArgs):
    """What `ttnn.conv_transpose2d` needs beside its tensors."""


class MaxPool2dArgs(ModuleArgs):
    """What `ttnn.max_pool2d` needs beside its tensor."""


class GroupNormArgs(ModuleArgs):
    """What `ttnn.group_norm` needs beside its tensors."""


def _image(x: torch.Tensor) -> dict[str, int]:
    batch, _, height, width = x.shape
    return {"batch_size": batch, "input_height": height, "input_width": width}


def _pair(value: Any) -> tuple[Any, Any]:
    return (value, value) if isinstance(value, int) else tuple(value)


def _convolution(module: Any, x: torch.Tensor) -> dict[str, Any]:
    same = (
        "in_channels",
        "out_channels",
        "kernel_size",
        "stride",
        "padding",
        "dilation",
        "groups",
        "padding_mode",
    )
    return {name: getattr(module, name) for name in same} | _image(x)


def _chosen_by_the_port() -> dict[str, Any]:
    """As TT-NN sets it out; ports change what they want otherwise."""
    return {
        "math_fidelity": MathFidelity.HiFi4,
        "dtype": DataType.BFLOAT16,
        "weights_dtype": DataType.BFLOAT16,
        "use_1d_systolic_array": True,
        "enable_auto_formatting": False,
        "conv_blocking_and_parallelization_config_override": {},
    }


def _images_by_weights(module: Any, x: torch.Tensor) -> dict[str, Any]:
    return _convolution(module, x) | _chosen_by_the_port()


def _transposed(module: Any, x: torch.Tensor) -> dict[str, Any]:
    return _convolution(module, x) | {"output_padding": module.output_padding}


def _pooling(module: Any, x: torch.Tensor) -> dict[str, Any]:
    sizes = ("kernel_size", "stride", "padding", "dilation")
    known = {name: _pair(getattr(module, name)) for name in sizes} | _image(x)
    return known | {"channels": x.shape[1], "dtype": DataType.BFLOAT16}


def _group_norm(module: Any, x: torch.Tensor) -> dict[str, Any]:
    known = {"num_groups": module.num_groups, "num_channels": module.num_channels, "eps": module.eps}
    return known | {"affine": module.affine, "dtype": DataType.BFLOAT16} | _image(x)


_KINDS: dict[type[torch.nn.Module], tuple[type[ModuleArgs], Callable[[Any, torch.Tensor], dict[str, Any]]]] = {
    torch.nn.Conv2d: (Conv2dArgs, _images_by_weights),
    torch.nn.ConvTranspose2d: (ConvTranspose2dArgs, _transposed),
    torch.nn.MaxPool2d: (MaxPool2dArgs, _pooling),
    torch.nn.GroupNorm: (GroupNormArgs, _group_norm),
}


def infer_ttnn_module_args(
    *, model: torch.nn.Module, run_model: Callable[[torch.nn.Module], Any], device: object
) -> ModuleArgs:
    """Run the model once and note how each convolution, pooling and group norm in it is called.

    >>> model = torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3), torch.nn.MaxPool2d(2))
    >>> args = infer_ttnn_module_args(model=model, run_model=lambda m: m(torch.rand(1, 3, 10, 10)), device=None)
    >>> args[1].input_height
    8
    """
    if not isinstance(model, torch.nn.Module) or not callable(run_model):
        raise ArgumentError(
            "infer_ttnn_module_args(): incompatible function arguments: model is a torch.nn.Module and run_model a "
            "function that calls it, such as `lambda model: model(input)`."
        )
    found: dict[str, ModuleArgs] = {}

    def note(name: str, module: torch.nn.Module, args: tuple[Any, ...]) -> None:
        kind, read = _KINDS[type(module)]
        if args and isinstance(args[0], torch.Tensor) and args[0].dim() == 4:
            found[name] = kind(read(module, args[0]) | {"device": device})

    noted = [(name, module) for name, module in model.named_modules() if type(module) in _KINDS]
    hooks = [module.register_forward_pre_hook(partial(note, name)) for name, module in noted]
    try:
        run_model(model)
    finally:
        for hook in hooks:
            hook.remove()
    return _nested(found)


def _nested(found: Mapping[str, ModuleArgs]) -> ModuleArgs:
    """By the names of modules: `layer1.conv` is `["layer1"]["conv"]`."""
    if set(found) == {""}:  # the model is one of the kinds itself
        return found[""]
    root = ModuleArgs()
    for path, args in found.items():
        *parents, last = path.split(".")
        inside = root
        for parent in parents:
            inside = inside.setdefault(parent, ModuleArgs())
        inside[last] = args
    return root


def merge_ttnn_module_args_into_parameters(
    parameters: Any, ttnn_module_args: Mapping[Any, Any], path: Sequence[str] = ()
) -> None:
    """Put the arguments of each module among its parameters: `parameters.conv.stride` beside `.weight`."""
    for name, value in ttnn_module_args.items():
        where = (*path, str(name))
        if name not in parameters:
            parameters[name] = value
        elif isinstance(value, Mapping):
            merge_ttnn_module_args_into_parameters(parameters[name], value, where)
        else:
            raise MeshError(f"Conflict at {'.'.join(where)}: a parameter of the model has the name of an argument.")
