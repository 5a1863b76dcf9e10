"""Prepared weights and biases of convolutions as the chip holds them: a matrix with the output channels last.

TT-NN's own form also has padding and blocks that depend on how the convolution is spread over cores, and its rows
in another order; here a prepared weight is [1, 1, C/groups * kh * kw, out], whatever the core grid.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, cast

import torch

from softmesh.arguments import checked_function, refused
from softmesh.dispatch.cost_rules import moves_bytes
from softmesh.dispatch.operand import Operand
from softmesh.dispatch.operation import operation
from softmesh.dispatch.plan import Local
from softmesh.errors import MeshError, did_you_mean
from softmesh.hardware import Conv2dConfig
from softmesh.kinds import Kind
from softmesh.ops.data_movement.image_layout import pair
from softmesh.ops.data_movement.layout_conversion import to_layout
from softmesh.ops.data_movement.reshaping import unsqueeze
from softmesh.placement import dim_labels, rules
from softmesh.runtime.device import MeshDevice
from softmesh.tensor.dtype import Layout
from softmesh.tensor.tensor import StorageType, Tensor
from softmesh.tensor.transfer import to_device

_OPTIONS: dict[str, Any] = {
    "kind": Kind.MOVEMENT,
    "cost": moves_bytes,
    "precision": "data",
    "on_host": True,
    "controls": "dtype",
}

# What TT-NN asks for to choose a form of the weights that suits the core grid.
_STEERING = (
    *(
        "input_memory_config",
        "input_layout",
        "batch_size",
        "input_height",
        "input_width",
        "stride",
        "padding",
    ),
    *("output_padding", "dilation", "has_bias", "groups", "input_dtype", "output_dtype", "compute_config"),
    *("slice_config", "dram_slice_config", "in_channels", "kernel_size", "mirror_kernel"),
)


def on_mesh(device: MeshDevice, tensor: Any) -> Any:
    """A host tensor brought to the device; anything else as it is."""
    is_on_host = isinstance(tensor, Tensor) and tensor.storage_type() is StorageType.HOST
    return to_device(tensor, device) if is_on_host else tensor


def as_matrix(weight: torch.Tensor) -> torch.Tensor:
    """(..., out, C/groups, kh, kw) -> (..., 1, 1, C/groups * kh * kw, out)"""
    return weight.movedim(-4, -1).flatten(-4, -2).unsqueeze(-3).unsqueeze(-3)


def from_matrix(matrix: torch.Tensor, shape: Sequence[int]) -> torch.Tensor:
    """The reverse, for a weight of shape (out, C/groups, kh, kw)."""
    return matrix.squeeze(-3).squeeze(-3).unflatten(-2, tuple(shape[1:])).movedim(-1, -4)


@rules.labelled(dim_labels.moved({0: 3, 1: 2}.get))
def _matrix_rule(at: rules.Situation) -> rules.Placement:
    """Split by output channels or by evenly dealt input channels."""
    if not isinstance(at.word, rules.Shard):
        return at.word
    to = {0: 3, 1: 2}.get(at.word.dim)
    is_uneven = at.word.size is not None and to == 2
    return rules.LOCAL if to is None or is_uneven else at.word.at(to)


@operation("prepare_conv_weights", **_OPTIONS)
def prepare_forward(weight_tensor: Operand) -> Local:
    """[out, C/groups, kh, kw] as [1, 1, C/groups * kh * kw, out], in tiles."""
    return Local(as_matrix, _matrix_rule, layouts=(Layout.TILE,))


def as_forward(weight: torch.Tensor, groups: int, mirrored: bool) -> torch.Tensor:
    """(..., C, out/groups, kh, kw) of a transposed convolution as (..., out, C/groups, kh, kw)."""
    apart = weight.unflatten(-4, (groups, -1))  # groups, C/groups, out/groups, kh, kw
    forward = apart.transpose(-4, -3).flatten(-5, -4)
    return forward if mirrored else forward.flip(-1, -2)


@operation("prepare_conv_transpose2d_weights", **_OPTIONS)
def prepare_transposed(weight_tensor: Operand, groups: int = 1, mirror_kernel: bool = True) -> Local:
    """[C, out/groups, kh, kw] as [1, 1, C/groups * kh * kw, out], in tiles."""

    @rules.labelled(dim_labels.moved(({1: 3, 0: 2} if groups == 1 else {0: 3}).get))
    def rule(at: rules.Situation) -> rules.Placement:
        if not isinstance(at.word, rules.Shard):
            return at.word
        to = ({1: 3, 0: 2} if groups == 1 else {0: 3}).get(at.word.dim)
        return rules.LOCAL if to is None or at.word.size is not None else at.word.at(to)

    return Local(lambda w: as_matrix(as_forward(w, groups, mirror_kernel)), rule, layouts=(Layout.TILE,))


def to_transposed(forward: torch.Tensor, groups: int) -> torch.Tensor:
    """(..., out, C/groups, kh, kw) as (..., C, out/groups, kh, kw)."""
    apart = forward.unflatten(-4, (groups, -1))
    return apart.transpose(-4, -3).flatten(-5, -4)


def four_dims(weight: Tensor, at: int = 3) -> Tensor:
    """The weights of a 1-D convolution, [out, C/groups, k], as those of a 2-D one with kernels of k x 1, or 1 x k."""
    return cast(Tensor, unsqueeze(weight, at)) if len(weight.shape) == 3 else weight


def _share(op: str, channels: int, groups: int) -> int:
    if groups < 1 or channels % groups:
        raise MeshError(f"{op}: groups={groups} must divide {channels} channels.")
    return channels // groups


def _check_steering(op: str, given: dict[str, object]) -> None:
    for name in given:
        if name not in _STEERING:
            raise refused(op, f"it has no argument {name!r}.{did_you_mean(name, _STEERING)}")


def _checked_weight(op: str, weight: Tensor, wanted: tuple[int, ...], weights_format: str, known: str) -> Tensor:
    if weights_format != known:
        raise MeshError(f"{op}: weights_format={weights_format!r} must be {known!r}.")
    found = four_dims(weight, at=2 if wanted[2] == 1 else 3)
    if tuple(found.shape) != wanted:
        raise MeshError(
            f"{op}: weight_tensor {list(weight.shape)} must be {list(wanted)}: channels of each device and kernel_size."
        )
    return found


def handed_back(
    weight: Tensor, bias: Tensor | None, prepare: Callable[..., Any] | None, config: Conv2dConfig | None
) -> tuple[Tensor, Tensor | None]:
    """Weights and bias as the device holds them for the next call; `prepare` is None where they are prepared."""
    dtype = None if config is None else config.weights_dtype
    made = weight if prepare is None else cast(Tensor, prepare(weight, dtype=dtype))
    if bias is None or (bias.layout is Layout.TILE and dtype in (None, bias.dtype)):
        return made, bias
    return made, cast(Tensor, to_layout(bias, Layout.TILE, dtype))


@checked_function
def prepare_conv_weights(
    *,
    weight_tensor: Tensor,
    in_channels: int,
    out_channels: int,
    kernel_size: Sequence[int],
    device: MeshDevice,
    weights_format: str = "OIHW",
    groups: int = 1,
    conv_config: Conv2dConfig | None = None,
    **steering: object,
) -> Tensor:
    """Weights for `conv2d` on the device, in the config's dtype; TT-NN's other arguments only steer hardware."""
    op = "prepare_conv_weights"
    _check_steering(op, steering)
    wanted = (out_channels, _share(op, in_channels, groups), *pair(op, "kernel_size", kernel_size, 1))
    weight = _checked_weight(op, weight_tensor, wanted, weights_format, "OIHW")
    dtype = None if conv_config is None else conv_config.weights_dtype
    return cast(Tensor, on_mesh(device, prepare_forward(weight, dtype=dtype)))


@checked_function
def prepare_conv_transpose2d_weights(
    *,
    weight_tensor: Tensor,
    in_channels: int,
    out_channels: int,
    kernel_size: Sequence[int],
    device: MeshDevice,
    weights_format: str = "IOHW",
    groups: int = 1,
    conv_config: Conv2dConfig | None = None,
    mirror_kernel: bool = True,
    **steering: object,
) -> Tensor:
    """Weights for `conv_transpose2d` on the device, mirrored or not once and for all."""
    op = "prepare_conv_transpose2d_weights"
    _check_steering(op, steering)
    wanted = (in_channels, _share(op, out_channels, groups), *pair(op, "kernel_size", kernel_size, 1))
    weight = _checked_weight(op, weight_tensor, wanted, weights_format, "IOHW")
    dtype = None if conv_config is None else conv_config.weights_dtype
    return cast(Tensor, on_mesh(device, prepare_transposed(weight, groups, mirror_kernel, dtype=dtype)))


@checked_function
def prepare_conv_bias(
    *,
    bias_tensor: Tensor,
    out_channels: int,
    device: MeshDevice,
    conv_config: Conv2dConfig | None = None,
    **steering: object,
) -> Tensor:
    """A bias [1, 1, 1, out] on the device, in tiles and the weights' dtype."""
    _check_steering("prepare_conv_bias", steering)
    if tuple(bias_tensor.shape) != (1, 1, 1, out_channels):
        raise MeshError(f"prepare_conv_bias: bias_tensor {bias_tensor.shape} must be [1, 1, 1, {out_channels}].")
    dtype = None if conv_config is None else conv_config.weights_dtype
    return cast(Tensor, to_layout(on_mesh(device, bias_tensor), Layout.TILE, dtype))


prepare_conv_transpose2d_bias = prepare_conv_bias
