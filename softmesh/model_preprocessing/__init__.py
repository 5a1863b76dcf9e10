"""The parameters of a torch module as ttnn tensors, laid out as ttnn's ops take them.

`ttnn.from_torch` and `ttnn.to_device` are called as the namespace has them, so `with ttnn.distribute(mapper):`
decides how every parameter is spread over the mesh. TT-NN's file cache (`model_name`, `version`) is not
kept: the model is converted anew each time, with the same result.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from typing import Any, SupportsIndex

import torch

from softmesh.distribute import public_function
from softmesh.dot_access import DotAccessDict
from softmesh.errors import ArgumentError, MeshError
from softmesh.model_preprocessing.module_args import (
    Conv2dArgs,
    ConvTranspose2dArgs,
    GroupNormArgs,
    MaxPool2dArgs,
    ModuleArgs,
    infer_ttnn_module_args,
    merge_ttnn_module_args_into_parameters,
)
from softmesh.runtime.device import MeshDevice
from softmesh.tensor.dtype import DataType, Layout
from softmesh.tensor.mappers import Mapper
from softmesh.tensor.tensor import Tensor

__all__ = [
    "Conv2dArgs",
    "ConvTranspose2dArgs",
    "GroupNormArgs",
    "MaxPool2dArgs",
    "ModuleArgs",
    "ParameterDict",
    "ParameterList",
    "convert_torch_model_to_ttnn_model",
    "default_preprocessor",
    "fold_batch_norm2d_into_conv2d",
    "from_torch",
    "infer_ttnn_module_args",
    "make_parameter_dict",
    "merge_ttnn_module_args_into_parameters",
    "move_to_device",
    "preprocess_embedding_weight",
    "preprocess_layernorm_parameter",
    "preprocess_linear_bias",
    "preprocess_linear_weight",
    "preprocess_model",
    "preprocess_model_parameters",
]

ConvertToTtnn = Callable[[torch.nn.Module, str], bool]
CustomPreprocessor = Callable[..., Mapping[str, Any] | None]


class ParameterDict(DotAccessDict):
    """Parameters and submodules by name: `parameters["dense"]["weight"]` is `parameters.dense.weight`."""

    def _no_such(self, name: str) -> str:
        return f"there is no parameter or submodule {name!r}; there are: {', '.join(self) or 'none'}"

    def __repr__(self) -> str:
        return _describe(self)


class ParameterList(list[Any]):
    """The submodules of a ModuleList or Sequential by index; "0", their name in torch, finds them too."""

    def __getitem__(self, index: SupportsIndex | slice | str) -> Any:
        return super().__getitem__(int(index) if isinstance(index, str) else index)

    def __contains__(self, index: object) -> bool:
        """Whether there is such an index, as for the names of a ParameterDict."""
        return isinstance(index, int | str) and str(index).isdecimal() and int(index) < len(self)

    def __repr__(self) -> str:
        return _describe(self)


def _describe(parameters: ParameterDict | ParameterList) -> str:
    lines = [f"  {path}: {text}" for path, text in _entries(parameters, "")]
    return "\n".join([f"{type(parameters).__name__}(", *lines, ")"])


def _entries(value: Any, path: str) -> Iterator[tuple[str, str]]:
    if isinstance(value, ParameterDict):
        for name, inner in value.items():
            yield from _entries(inner, f"{path}.{name}" if path else name)
    elif isinstance(value, ParameterList):
        for index, inner in enumerate(value):
            yield from _entries(inner, f"{path}[{index}]")
    elif isinstance(value, Tensor):
        yield path, f"ttnn.Tensor {value.shape} {value.dtype} {value.layout}"
    elif isinstance(value, torch.Tensor):
        yield path, f"torch.Tensor {tuple(value.shape)} {value.dtype}"
    else:
        yield path, repr(value)


def make_parameter_dict(dictionary: Mapping[str, Any]) -> ParameterDict:
    """A nested dict with its entries as attributes, all the way down."""
    return ParameterDict({name: _dotted(value) for name, value in dictionary.items()})


def _dotted(value: Any) -> Any:
    if isinstance(value, Mapping):
        return make_parameter_dict(value)
    if type(value) in (list, tuple):
        return ParameterList([_dotted(item) for item in value])
    return value


def preprocess_linear_weight(
    weight: torch.Tensor,
    *,
    dtype: DataType,
    layout: Layout = Layout.TILE,
    weights_mesh_mapper: Mapper | None = None,
) -> Tensor:
    """Torch keeps (out, in); ttnn.linear takes (in, out)."""
    return _from_torch(weight.T.contiguous(), dtype, layout, weights_mesh_mapper)


def preprocess_linear_bias(
    bias: torch.Tensor,
    *,
    dtype: DataType,
    layout: Layout = Layout.TILE,
    weights_mesh_mapper: Mapper | None = None,
) -> Tensor:
    return _from_torch(bias.reshape(1, -1), dtype, layout, weights_mesh_mapper)


def preprocess_layernorm_parameter(parameter: torch.Tensor, *, dtype: DataType, layout: Layout = Layout.TILE) -> Tensor:
    return _from_torch(parameter.reshape(1, -1), dtype, layout)


def preprocess_embedding_weight(weight: torch.Tensor, *, dtype: DataType) -> Tensor:
    return _from_torch(weight, dtype, Layout.ROW_MAJOR)


def _from_torch(
    value: torch.Tensor, dtype: DataType | None, layout: Layout, mesh_mapper: Mapper | None = None
) -> Tensor:
    # None is not passed on: it would win over an enclosing `distribute`.
    chosen = {} if mesh_mapper is None else {"mesh_mapper": mesh_mapper}
    made: Tensor = public_function("from_torch")(value.detach(), dtype, layout=layout, **chosen)
    return made


def default_preprocessor(model: torch.nn.Module, name: str, ttnn_module_args: object) -> ParameterDict:
    """Parameters of the kinds of module ttnn has an op for, in bfloat16; empty for all others."""
    convert: dict[str, Callable[..., Tensor]] = {}
    if isinstance(model, torch.nn.Linear):
        convert = {"weight": preprocess_linear_weight, "bias": preprocess_linear_bias}
    elif isinstance(model, torch.nn.LayerNorm | torch.nn.GroupNorm):
        convert = {"weight": preprocess_layernorm_parameter, "bias": preprocess_layernorm_parameter}
    elif isinstance(model, torch.nn.Embedding):
        convert = {"weight": preprocess_embedding_weight}
    return ParameterDict(
        {
            parameter_name: convert[parameter_name](parameter, dtype=DataType.BFLOAT16)
            for parameter_name, parameter in model.named_parameters(recurse=False)
            if parameter_name in convert
        }
    )


def convert_torch_model_to_ttnn_model(
    model: torch.nn.Module,
    *,
    convert_to_ttnn: ConvertToTtnn | None = None,
    custom_preprocessor: CustomPreprocessor | None = None,
    name: str = "",
    ttnn_module_args: object = None,
) -> ParameterDict | ParameterList:
    """The parameters of a module and of those inside it, on the host.

    For each module the first of these that has an answer gives it: `custom_preprocessor`, the default
    for its kind, its own parameters as they are plus the modules inside it.
    """
    convert: ConvertToTtnn = convert_to_ttnn or (lambda model, name: True)
    custom = _ask(custom_preprocessor, model, name, ttnn_module_args, convert)
    if custom:
        return make_parameter_dict(custom)
    converted = convert(model, name)
    parameters = default_preprocessor(model, name, ttnn_module_args) if converted else ParameterDict()
    for own_name, parameter in model.named_parameters(recurse=False):
        if own_name not in parameters:
            parameters[own_name] = _from_torch(parameter, None, Layout.ROW_MAJOR) if converted else parameter
    children = {
        child_name: convert_torch_model_to_ttnn_model(
            child,
            convert_to_ttnn=convert,
            custom_preprocessor=custom_preprocessor,
            name=f"{name}.{child_name}" if name else child_name,
            ttnn_module_args=ttnn_module_args,
        )
        for child_name, child in model.named_children()
    }
    if children and not parameters and list(children) == [str(index) for index in range(len(children))]:
        return ParameterList(children.values())
    return ParameterDict(parameters | {child_name: inside for child_name, inside in children.items() if inside})


def _ask(
    custom: CustomPreprocessor | None, model: torch.nn.Module, name: str, args: object, convert: ConvertToTtnn
) -> Mapping[str, Any] | None:
    """Call a custom preprocessor with those of the further arguments that it names."""
    if custom is None:
        return None
    known = inspect.signature(custom).parameters
    further = {"ttnn_module_args": args, "convert_to_ttnn": convert}
    found = custom(model, name, **{key: value for key, value in further.items() if key in known})
    if found is not None and not isinstance(found, Mapping):
        raise ArgumentError(
            f"custom_preprocessor must return a dict of parameters (empty to leave a module to the defaults), "
            f"got {type(found).__name__} for {name or 'the model'!r}."
        )
    return found


def move_to_device(object: Any, device: MeshDevice) -> Any:
    """Every ttnn tensor of a nest of parameters on a device, in a nest of the same form."""
    if isinstance(object, ParameterDict):
        return ParameterDict({name: move_to_device(value, device) for name, value in object.items()})
    if isinstance(object, ParameterList):
        return ParameterList([move_to_device(value, device) for value in object])
    return public_function("to_device")(object, device) if isinstance(object, Tensor) else object


def preprocess_model_parameters(
    *,
    model_name: str | None = None,
    version: str | None = None,
    initialize_model: Callable[[], torch.nn.Module] | None = None,
    convert_to_ttnn: ConvertToTtnn | None = None,
    custom_preprocessor: CustomPreprocessor | None = None,
    device: MeshDevice | None = None,
    prefix: str = "",
) -> Any:
    """The parameters of a torch model as ttnn tensors, by the names the model gives them.

    >>> parameters = preprocess_model_parameters(initialize_model=lambda: torch.nn.Sequential(torch.nn.Linear(64, 32)))
    >>> parameters[0].weight.shape
    Shape([64, 32])

    `convert_to_ttnn(module, name)` says of each module whether its parameters become ttnn tensors or stay
    torch ones. `custom_preprocessor(module, name)` may return a dict for a module, which then stands for it
    and all that is inside it.
    """
    model = None if initialize_model is None else initialize_model()
    if not isinstance(model, torch.nn.Module):
        raise ArgumentError(
            f"preprocess_model_parameters: initialize_model must be a function that returns a torch.nn.Module, "
            f"such as `lambda: model`; got {initialize_model!r}"
            + ("." if initialize_model is None else f", which returned {type(model).__name__}.")
        )
    parameters = convert_torch_model_to_ttnn_model(
        model, convert_to_ttnn=convert_to_ttnn, custom_preprocessor=custom_preprocessor, name=prefix
    )
    return parameters if device is None else move_to_device(parameters, device)


def preprocess_model(
    *,
    model_name: str | None = None,
    version: str | None = None,
    initialize_model: Callable[[], torch.nn.Module] | None = None,
    convert_to_ttnn: ConvertToTtnn | None = None,
    custom_preprocessor: CustomPreprocessor | None = None,
    device: MeshDevice | None = None,
    prefix: str = "",
    run_model: Callable[[torch.nn.Module], Any] | None = None,
    reader_patterns_cache: dict[Any, Any] | None = None,
) -> Any:
    """`preprocess_model_parameters`, and among the parameters what `run_model(model)` tells of their modules.

    `reader_patterns_cache` is where TT-NN keeps what convolutions share; there is nothing to keep here.
    """
    model = None if initialize_model is None else initialize_model()
    parameters = preprocess_model_parameters(
        model_name=model_name,
        version=version,
        initialize_model=initialize_model if model is None else lambda: model,
        convert_to_ttnn=convert_to_ttnn,
        custom_preprocessor=custom_preprocessor,
        device=device,
        prefix=prefix,
    )
    if run_model is not None and model is not None:
        args = infer_ttnn_module_args(model=model, run_model=run_model, device=device)
        merge_ttnn_module_args_into_parameters(parameters, args)
    return parameters


from_torch = preprocess_model


def fold_batch_norm2d_into_conv2d(conv: torch.nn.Conv2d, bn: torch.nn.BatchNorm2d) -> tuple[torch.Tensor, torch.Tensor]:
    """Weight, and bias as (1, 1, 1, out), of the one convolution that does both."""
    if bn.running_mean is None or bn.running_var is None:
        raise MeshError(
            "BatchNorm2d must have track_running_stats=True to be folded into Conv2d: without running "
            "statistics it depends on the batch."
        )
    scale = torch.rsqrt(bn.running_var + bn.eps) * (1.0 if bn.weight is None else bn.weight)
    offset = -bn.running_mean if conv.bias is None else conv.bias - bn.running_mean
    bias = offset * scale + (0.0 if bn.bias is None else bn.bias)
    return conv.weight * scale.reshape(-1, 1, 1, 1), bias.reshape(1, 1, 1, -1)
