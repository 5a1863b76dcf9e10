"""conv2d, conv_transpose2d and conv1d: convolutions over images and rows, channels last."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, cast

import torch
import torch.nn.functional as F

from softmesh.arguments import checked_function
from softmesh.dispatch.cost_rules import matmul_cost
from softmesh.dispatch.operand import Operand
from softmesh.dispatch.operation import Operation, operation
from softmesh.dispatch.plan import Local, Plan
from softmesh.dispatch.signature import BoundCall
from softmesh.errors import ArgumentError, MeshError
from softmesh.hardware import Conv2dConfig, Conv2dDRAMSliceHeight, Conv2dSliceConfig, PaddingMode
from softmesh.hardware.memory_config import DRAM_MEMORY_CONFIG, BufferType
from softmesh.kinds import Kind
from softmesh.ops.conv.conv_weights import (
    as_forward,
    four_dims,
    from_matrix,
    handed_back,
    on_mesh,
    prepare_forward,
    prepare_transposed,
    to_transposed,
)
from softmesh.ops.conv.mesh_convolution import (
    Geometry,
    check_operands,
    convolution_rule,
    convolve,
    geometry_of,
    rounded_bias,
    rounded_weight,
)
from softmesh.ops.data_movement.image_layout import flattened, ints, pair
from softmesh.ops.data_movement.image_memory import Extents, Sharding, asked_memory, memory_in_l1, stays_in_l1
from softmesh.ops.data_movement.reshaping import reshape
from softmesh.ops.elementwise.activations import activation_function
from softmesh.ops.golden import golden_images_and_caches as golden
from softmesh.ops.golden.golden_functions import with_reference
from softmesh.placement import rules
from softmesh.placement.placements import placed
from softmesh.runtime.device import MeshDevice
from softmesh.tensor.tensor import Tensor


def _check_kernel(geometry: Geometry) -> None:
    if min(geometry.out_size) < 1:
        raise MeshError(
            f"conv2d: a kernel of {list(geometry.kernel)} (dilation {list(geometry.dilation)}) does not fit into "
            f"{geometry.height}x{geometry.width} images padded by {list(geometry.padding)}."
        )


def _padded(images: torch.Tensor, geometry: Geometry, mode: PaddingMode) -> tuple[torch.Tensor, tuple[int, int]]:
    """The images, and what padding is left to torch, which knows zeros alike on opposite sides."""
    top, bottom, left, right = geometry.padding
    if mode is PaddingMode.Zeros and top == bottom and left == right:
        return images, (top, left)
    kind = "replicate" if mode is PaddingMode.Replicate else "constant"
    return F.pad(images, (left, right, top, bottom), mode=kind), (0, 0)


def _program(call: BoundCall, plan: Plan) -> tuple[Any, ...]:
    """Return what one program serves: a chip prepares weights first, so those of either form take the same one."""
    images, weight, *bias = call.tensors
    config = call.named.get("conv_config") or Conv2dConfig()
    others = [call.values[at] for at in call.signature.key_at]
    return images.spec, config.weights_dtype or weight.dtype, len(bias), repr(others)


@operation(
    "conv2d",
    kind=Kind.CONVOLUTION,
    rule=convolution_rule,
    controls="dtype memory_config",
    tuning="compute_config",
    program_key=_program,
)
@with_reference(golden.conv2d)
def _conv2d(
    *,
    input_tensor: Operand,
    weight_tensor: Operand,
    bias_tensor: Operand | None = None,
    in_channels: int,
    out_channels: int,
    batch_size: int,
    input_height: int,
    input_width: int,
    kernel_size: Sequence[int],
    stride: Sequence[int] = (1, 1),
    padding: Sequence[int] = (0, 0),
    dilation: Sequence[int] = (1, 1),
    groups: int = 1,
    conv_config: Conv2dConfig | None = None,
    slice_config: Conv2dSliceConfig | None = None,
) -> Local:
    extents = (in_channels, out_channels, batch_size, input_height, input_width)
    geometry = geometry_of(*extents, kernel_size, stride, padding, dilation, groups)
    groups = geometry.groups
    shape = geometry.weight_shape
    flat = check_operands("conv2d", geometry, input_tensor, weight_tensor, bias_tensor, shape)
    _check_kernel(geometry)
    config = Conv2dConfig() if conv_config is None else conv_config
    is_raw = weight_tensor.shape == shape

    def run(images: torch.Tensor, weight: torch.Tensor, several: int) -> torch.Tensor:
        padded, left_over = _padded(images, geometry, config.padding_mode)
        return F.conv2d(padded, weight, None, geometry.stride, left_over, geometry.dilation, several)

    def product(images: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        raw = weight if is_raw else from_matrix(weight, shape)
        return convolve(images, rounded_weight(raw, config.weights_dtype), groups, run)

    rule = partial(convolution_rule, flat, groups, weight_dims=(0, 1) if is_raw else (3, 2))
    local = _local("conv2d", geometry, config, bias_tensor is not None, product, rule)
    return _placed(local, input_tensor, config, geometry, geometry.out_size, slice_config)


def _local(
    op: str,
    geometry: Geometry,
    config: Conv2dConfig,
    has_bias: bool,
    product: Callable[[torch.Tensor, torch.Tensor], torch.Tensor],
    rule: Callable[[bool], rules.Rule],
) -> Local:
    """A product of images [N, H, W, C] and weights, with what is done before it and after it."""
    activation = None if config.activation is None else activation_function(config.activation, op)

    def compute(images: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
        apart = images.reshape(*images.shape[:-4], *geometry[:3], images.shape[-1])[..., : geometry.in_channels]
        result = flattened(product(apart, weight))
        result = result if bias is None else result + rounded_bias(bias, config.weights_dtype)
        return result if activation is None else activation(result)

    return Local(
        compute,
        rule(not has_bias and activation is None),
        layouts=(config.output_layout,),
        memory_config=DRAM_MEMORY_CONFIG,
        cost=matmul_cost(geometry.products),
        is_seamless=geometry.is_seamless,
    )


def _placed(
    local: Local,
    images: Operand,
    config: Conv2dConfig,
    geometry: Geometry,
    size: tuple[int, int],
    slice_config: Conv2dSliceConfig | None,
) -> Local:
    """In L1 where the images are, in shards; else in DRAM."""
    held = images.spec.memory_config
    if not stays_in_l1(held, slice_config):
        return local
    extents = Extents(geometry.images * size[0] * size[1], geometry.out_channels)
    sharding = Sharding(
        config.output_layout, config.shard_layout, config.reshard_if_not_optimal, config.transpose_shards
    )
    return replace(local, memory_on=partial(memory_in_l1, held, sharding, extents))


@checked_function
@placed("Split by image where the input is, by channels where the weight is; otherwise Partial or Local.")
@with_reference(golden.conv2d)
def conv2d(
    *,
    input_tensor: Tensor,
    weight_tensor: Tensor,
    device: MeshDevice,
    bias_tensor: Tensor | None = None,
    conv_config: Conv2dConfig | None = None,
    return_output_dim: bool = False,
    return_weights_and_bias: bool = False,
    **arguments: Any,
) -> Any:
    """Images [1, 1, N*H*W, C] or [N, H, W, C] by weights [out, C/groups, kh, kw] -> [1, 1, N*OH*OW, out].

    `arguments`: in_channels, out_channels, batch_size, input_height, input_width, kernel_size, stride,
    padding (height, width, or top, bottom, left, right), dilation, groups, dtype, memory_config,
    compute_config, slice_config; sizes are those of each device. Operands on the host are brought to
    `device` first; `return_weights_and_bias` hands them back, to be passed next time. Weights may also be
    those that `prepare_conv_weights` made.

    >>> x = split(4, 8, 8, 16, dim=0)
    >>> kernel = ttnn.from_torch(torch.ones(32, 16, 3, 3))
    >>> sizes = dict(batch_size=1, input_height=8, input_width=8, in_channels=16, out_channels=32)
    >>> y = ttnn.conv2d(
    ...     input_tensor=x, weight_tensor=kernel, device=mesh, kernel_size=(3, 3), padding=(1, 1), **sizes
    ... )
    >>> y.shape, ttnn.placements(y)
    (Shape([1, 1, 64, 32]), (Replicate, Shard(2)))
    """
    operands = (input_tensor, weight_tensor, bias_tensor)
    options = {"conv_config": conv_config, **arguments}
    made, weight, bias = _called(_conv2d, device, operands, options, arguments.get("slice_config"))
    geometry = geometry_of(**arguments)
    prepare = prepare_forward if tuple(weight.shape) == geometry.weight_shape else None
    held = handed_back(weight, bias, prepare, conv_config) if return_weights_and_bias else None
    return _answer(made, geometry.out_size if return_output_dim else None, held)


def _called(
    op: Operation,
    device: MeshDevice,
    operands: tuple[Tensor, Tensor, Tensor | None],
    options: dict[str, Any],
    slice_config: Conv2dSliceConfig | None,
) -> tuple[Tensor, Tensor, Tensor | None]:
    """The result, and weights and bias on the mesh."""
    if not isinstance(device, MeshDevice):
        raise ArgumentError(f"{op.name}: device must be a mesh device, got {device!r}")
    images, weight, bias = (on_mesh(device, tensor) for tensor in operands)
    in_l1 = stays_in_l1(images.memory_config(), slice_config)
    options = options | {"memory_config": asked_memory(op.name, in_l1, options.get("memory_config"))}
    made = cast(Tensor, op(input_tensor=images, weight_tensor=weight, bias_tensor=bias, **options))
    config: Conv2dConfig = options["conv_config"] or Conv2dConfig()
    if config.deallocate_activation and images.memory_config().buffer_type is BufferType.L1:
        images.deallocate(force=True)
    return made, weight, bias


def _answer(made: Tensor, *more: object) -> Any:
    """The result, and behind it what else was asked for."""
    given = [one for one in more if one is not None]
    return (made, *given) if given else made


# -- transposed convolutions: each pixel spreads over a window of the result -------------------------


_OP = "conv_transpose2d"


def _raw_transposed(geometry: Geometry) -> tuple[int, ...]:
    return (geometry.in_channels, geometry.out_channels // geometry.groups, *geometry.kernel)


def _out_size(geometry: Geometry, output_padding: tuple[int, int]) -> tuple[int, int]:
    top, bottom, left, right = geometry.padding
    padded = (top + bottom, left + right)
    rows, columns = (
        (n - 1) * step - cut + spread * (size - 1) + more + 1
        for n, step, cut, spread, size, more in zip(
            (geometry.height, geometry.width),
            geometry.stride,
            padded,
            geometry.dilation,
            geometry.kernel,
            output_padding,
            strict=True,
        )
    )
    if min(rows, columns) < 1:
        raise MeshError(f"{_OP}: padding {list(geometry.padding)} leaves nothing of the result.")
    return rows, columns


@operation(
    _OP,
    kind=Kind.CONVOLUTION,
    rule=convolution_rule,
    controls="dtype memory_config",
    tuning="compute_config",
    program_key=_program,
)
def _conv_transpose2d(
    *,
    input_tensor: Operand,
    weight_tensor: Operand,
    bias_tensor: Operand | None = None,
    in_channels: int,
    out_channels: int,
    batch_size: int,
    input_height: int,
    input_width: int,
    kernel_size: Sequence[int],
    stride: Sequence[int] = (1, 1),
    padding: Sequence[int] = (0, 0),
    output_padding: Sequence[int] = (0, 0),
    dilation: Sequence[int] = (1, 1),
    groups: int = 1,
    conv_config: Conv2dConfig | None = None,
    mirror_kernel: bool = True,
    dram_slice_config: Conv2dSliceConfig | None = None,
) -> Local:
    extents = (in_channels, out_channels, batch_size, input_height, input_width)
    geometry = geometry_of(*extents, kernel_size, stride, padding, dilation, groups, op=_OP)
    groups = geometry.groups
    raw_shape = _raw_transposed(geometry)
    flat = check_operands(_OP, geometry, input_tensor, weight_tensor, bias_tensor, raw_shape)
    rows, columns = _out_size(geometry, pair(_OP, "output_padding", output_padding, 0))
    config = Conv2dConfig() if conv_config is None else conv_config
    is_raw = weight_tensor.shape == raw_shape
    top, _, left, _ = geometry.padding

    def run(images: torch.Tensor, weight: torch.Tensor, several: int) -> torch.Tensor:
        whole = F.conv_transpose2d(images, weight, stride=geometry.stride, groups=several, dilation=geometry.dilation)
        missing = (0, max(0, left + columns - whole.shape[-1]), 0, max(0, top + rows - whole.shape[-2]))
        return F.pad(whole, missing)[..., top : top + rows, left : left + columns]

    def product(images: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        forward = as_forward(weight, groups, mirror_kernel) if is_raw else from_matrix(weight, geometry.weight_shape)
        kernels = to_transposed(rounded_weight(forward, config.weights_dtype), groups)
        return convolve(images, kernels, groups, run, transposed=True)

    raw_dims = (1, 0) if groups == 1 else (0, 1)  # input channels are dealt to groups in order
    rule = partial(convolution_rule, flat, groups, weight_dims=raw_dims if is_raw else (3, 2))
    local = _local(_OP, geometry, config, bias_tensor is not None, product, rule)
    return _placed(local, input_tensor, config, geometry, (rows, columns), dram_slice_config)


@checked_function
def conv_transpose2d(
    *,
    input_tensor: Tensor,
    weight_tensor: Tensor,
    device: MeshDevice,
    bias_tensor: Tensor | None = None,
    conv_config: Conv2dConfig | None = None,
    return_output_dim: bool = False,
    return_weights_and_bias: bool = False,
    output_padding: Sequence[int] = (0, 0),
    mirror_kernel: bool = True,
    **arguments: Any,
) -> Any:
    """Images [1, 1, N*H*W, C] or [N, H, W, C] by weights [C, out/groups, kh, kw] -> [1, 1, N*OH*OW, out].

    As `conv2d`, with `output_padding`: rows and columns added at the end. `mirror_kernel=False` turns the
    kernels by 180 degrees first; weights that `prepare_conv_transpose2d_weights` made are as they were made.
    """
    operands = (input_tensor, weight_tensor, bias_tensor)
    options = {"conv_config": conv_config, "output_padding": output_padding, "mirror_kernel": mirror_kernel} | arguments
    made, weight, bias = _called(_conv_transpose2d, device, operands, options, arguments.get("dram_slice_config"))
    geometry = geometry_of(op=_OP, **arguments)
    size = _out_size(geometry, pair(_OP, "output_padding", output_padding, 0))
    is_raw = tuple(weight.shape) == _raw_transposed(geometry)
    prepare = partial(prepare_transposed, groups=geometry.groups, mirror_kernel=mirror_kernel) if is_raw else None
    held = handed_back(weight, bias, prepare, conv_config) if return_weights_and_bias else None
    return _answer(made, size if return_output_dim else None, held)


# -- convolutions over rows, as those over images of one column --------------------------------------


def _two_sides(padding: Sequence[int] | int) -> list[int]:
    """One number for both ends, or one for each, as the sides of an image of one column."""
    both = list(padding) if isinstance(padding, Sequence) else [int(padding)] * 2
    before, after = ints("conv1d", "padding", both * 2 if len(both) == 1 else both, (2,), 0)
    return [before, after, 0, 0]


def _check_slices(config: Conv2dSliceConfig | None) -> None:
    if config is not None and config.slice_type is Conv2dDRAMSliceHeight:
        raise MeshError(
            "conv1d: DRAM_HEIGHT slices cut rows of images, and there is one: slice along the length with "
            "ttnn.Conv2dDRAMSliceWidth."
        )


@checked_function
def conv1d(
    *,
    input_tensor: Tensor,
    weight_tensor: Tensor,
    device: MeshDevice,
    batch_size: int,
    input_length: int,
    in_channels: int,
    kernel_size: int,
    stride: int = 1,
    padding: Sequence[int] | int = 0,
    dilation: int = 1,
    return_output_dim: bool = False,
    **arguments: Any,
) -> Any:
    """Rows [N, L, C] or [1, 1, N*L, C] by weights [out, C/groups, k] -> [1, 1, N*OL, out].

    As `conv2d` of images of one column: its other arguments, and what it returns, with one length for a size.
    """
    _check_slices(arguments.get("slice_config"))
    images = input_tensor
    if isinstance(images, Tensor) and len(images.shape) == 3:
        images = cast(Tensor, reshape(images, [batch_size, input_length, 1, in_channels]))
    found = conv2d(
        input_tensor=images,
        weight_tensor=four_dims(weight_tensor),
        device=device,
        input_height=input_length,
        input_width=1,
        kernel_size=(kernel_size, 1),
        stride=(stride, 1),
        padding=_two_sides(padding),
        dilation=(dilation, 1),
        return_output_dim=return_output_dim,
        batch_size=batch_size,
        in_channels=in_channels,
        **arguments,
    )
    return (found[0], found[1][0], *found[2:]) if return_output_dim else found


@checked_function
def get_conv_output_dim(input: int, window: int, stride: int = 1, pad: int = 0, dilation: int = 1) -> int:
    """The extent of a result along one dim."""
    ints("get_conv_output_dim", "window, stride, dilation", [window, stride, dilation], (3,), 1)
    return (input + 2 * pad - dilation * (window - 1) - 1) // stride + 1
