"""Convolutions over rows, as those over images of one column."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

from softmesh.dispatch.checked_function import checked_function
from softmesh.ops.convolution import conv2d
from softmesh.ops.movement import reshape
from softmesh.ops.vision.conv_weights import four_dims
from softmesh.ops.vision.sizes import ints
from softmesh.runtime.device import MeshDevice
from softmesh.tensor.tensor import Tensor


def _two_sides(padding: Sequence[int] | int) -> list[int]:
    """One number for both ends, or one for each, as the sides of an image of one column."""
    both = list(padding) if isinstance(padding, Sequence) else [int(padding)] * 2
    before, after = ints("conv1d", "padding", both * 2 if len(both) == 1 else both, (2,), 0)
    return [before, after, 0, 0]


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
