"""conv3d: convolutions over volumes [N, T, H, W, C], and the preparation of their weights."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, cast

import torch
import torch.nn.functional as F

from softmesh.arguments import checked_function
from softmesh.dispatch.cost_rules import matmul_cost, moves_bytes
from softmesh.dispatch.operand import Operand
from softmesh.dispatch.operation import operation
from softmesh.dispatch.plan import Local
from softmesh.errors import ArgumentValueError, MeshError, NotModelled
from softmesh.hardware import Conv3dConfig
from softmesh.hardware.memory_config import DRAM_MEMORY_CONFIG
from softmesh.kinds import Kind
from softmesh.ops.conv.border_sections import Border
from softmesh.ops.conv.conv_weights import on_mesh
from softmesh.ops.conv.mesh_convolution import convolve
from softmesh.ops.data_movement.image_layout import ints
from softmesh.placement import dim_labels, rules
from softmesh.runtime.device import MeshDevice
from softmesh.tensor.dtype import DataType, Layout
from softmesh.tensor.tensor import Tensor

_OP = "experimental.conv3d"
_PREPARE = "experimental.prepare_conv3d_weights"
_PADDING = {"zeros": "constant", "replicate": "replicate"}


def _aligned(channels: int, alignment: int) -> int:
    return -(-channels // alignment) * alignment


def _block(op: str, channels: int, C_in_block: int) -> int:
    """Channels of one block of rows; 0 takes them all together."""
    block = C_in_block or channels
    if block < 0 or channels % block:
        raise MeshError(f"{op}: C_in_block={C_in_block} must divide the {channels} aligned input channels.")
    return block


@operation(_PREPARE, kind=Kind.MOVEMENT, cost=moves_bytes, precision="data", on_host=True, controls="")
def _prepare(*, weight_tensor: Operand, groups: int = 1, C_in_block: int = 0, alignment: int = 32) -> Local:
    """[out, C/groups, kt, kh, kw] as rows of blocks of input channels, each block a kernel after the other, by out.

    Groups are no more: there are zeros for the channels of other groups.
    """
    if weight_tensor.rank != 5 or groups < 1 or alignment < 1 or weight_tensor.shape[0] % groups:
        raise MeshError(
            f"{_PREPARE}: weight_tensor {list(weight_tensor.shape)} must be [out, C/groups, kt, kh, kw], with groups "
            "that divide out, and alignment of 1 or more."
        )
    channels = weight_tensor.shape[1] * groups
    whole = _aligned(channels, alignment)
    block = _block(_PREPARE, whole, C_in_block)

    def compute(weight: torch.Tensor) -> torch.Tensor:
        weight = _ungrouped(weight, groups)
        rows = F.pad(weight.movedim(-4, -1).movedim(-5, -1).movedim(-2, -1), (0, whole - channels))
        apart = rows.unflatten(-1, (-1, block))  # kt, kh, kw, out, blocks, block
        return apart.movedim(-2, -6).movedim(-2, -1).flatten(-6, -2)

    @rules.labelled(dim_labels.moved({0: 1 if groups == 1 else None}.get))
    def rule(at: rules.Situation) -> rules.Placement:
        """Split by output channels stays so; blocks of input channels are padded, so their split does not."""
        if not isinstance(at.word, rules.Shard):
            return at.word
        return at.word.at(1) if at.word.dim == 0 and groups == 1 else rules.LOCAL

    return Local(compute, rule, layouts=(Layout.TILE,))


def _ungrouped(weight: torch.Tensor, groups: int) -> torch.Tensor:
    """(..., out, C/groups, kt, kh, kw) -> (..., out, C, kt, kh, kw)"""
    if groups == 1:
        return weight
    apart = weight.unflatten(-5, (groups, -1)).unsqueeze(-5)  # groups, out/groups, 1, C/groups, kt, kh, kw
    own = torch.eye(groups, dtype=weight.dtype, device=weight.device).reshape(groups, 1, groups, 1, 1, 1, 1)
    return (apart * own).flatten(-5, -4).flatten(-6, -5)


@checked_function
def prepare_conv3d_weights(
    *,
    weight_tensor: Tensor,
    groups: int = 1,
    C_in_block: int = 0,
    alignment: int = 32,
    device: MeshDevice | None = None,
) -> Tensor:
    """Weights [out, C/groups, kt, kh, kw] as `conv3d` reads them, [rows, out]; on the device where one is given."""
    arguments = {"groups": groups, "C_in_block": C_in_block, "alignment": alignment}
    made = _prepare(weight_tensor=weight_tensor, **arguments)
    return cast(Tensor, made if device is None else on_mesh(device, made))


def _unprepared(rows: torch.Tensor, kernel: Sequence[int], block: int, channels: int) -> torch.Tensor:
    """(..., blocks * kt * kh * kw * block, out) -> (..., out, C, kt, kh, kw)"""
    apart = rows.unflatten(-2, (-1, *kernel, block))  # blocks, kt, kh, kw, block, out
    whole = apart.movedim(-6, -3).flatten(-3, -2)  # kt, kh, kw, C, out
    return whole[..., :channels, :].movedim(-1, -5).movedim(-1, -4)


@rules.labelled(dim_labels.spelled("batch _ _ _ _ -> batch _ _ _ _"))
def _rule(at: rules.Situation) -> rules.Placement:
    """Volumes split by batch, weights and bias by output channels, their last dim; offsets of each device: Local."""
    rules.refuse_partial(at)
    found: set[rules.Placement] = set()
    for index, (word, shape) in enumerate(zip(at.words, at.shapes, strict=True)):
        if isinstance(word, rules.Shard) and shape is not None:
            by_batch, by_channel = index == 0 and word.dim == 0, index in (1, 2) and word.dim == len(shape) - 1
            found.add(word.at(0) if by_batch else word.at(4) if by_channel else rules.LOCAL)
    return found.pop() if len(found) == 1 else rules.LOCAL


@operation(_OP, kind=Kind.CONVOLUTION, controls="memory_config", tuning="compute_kernel_config", reads="halo_buffer")
def _conv3d(
    *,
    input_tensor: Operand,
    weight_tensor: Operand,
    bias_tensor: Operand | None = None,
    pad_offset_tensor: Operand | None = None,
    halo_buffer: Operand | None = None,
    config: Conv3dConfig | None = None,
    dtype: DataType,
    output_channels: int,
    kernel_size: Sequence[int],
    stride: Sequence[int] = (1, 1, 1),
    padding: Sequence[int] = (0, 0, 0),
    dilation: Sequence[int] = (1, 1, 1),
    padding_mode: str = "zeros",
    groups: int = 1,
    logical_h_mask: int = 0,
    logical_w_mask: int = 0,
    output_pad_h: int = 0,
    output_pad_w: int = 0,
) -> Local:
    if padding_mode not in _PADDING:
        raise ArgumentValueError(f'{_OP}: padding_mode must be "zeros" or "replicate", got {padding_mode!r}')
    kernel, step, spread = (
        ints(_OP, name, values, (3,), 1)
        for name, values in (("kernel_size", kernel_size), ("stride", stride), ("dilation", dilation))
    )
    sides = ints(_OP, "padding", padding, (3,), 0)
    chosen = Conv3dConfig() if config is None else config
    channels, block = _check(input_tensor, weight_tensor, kernel, output_channels, groups, chosen)
    bias_rank = 0 if bias_tensor is None else _checked_bias(bias_tensor, output_channels).rank
    _check_offset(pad_offset_tensor)
    border = None if halo_buffer is None else _border(input_tensor, halo_buffer, sides, spread, padding_mode)
    ends = {-3: logical_h_mask, -2: logical_w_mask}  # by dim; 0: there is none
    before = (0, 0) if border is None else sides[1:]
    reverse = [n for side in reversed(sides if border is None else (sides[0], 0, 0)) for n in (side, side)]

    def run(volumes: torch.Tensor, weight: torch.Tensor, several: int) -> torch.Tensor:
        padded = F.pad(volumes, reverse, mode=_PADDING[padding_mode])
        return F.conv3d(padded, weight, None, step, 0, spread, several)

    def compute(
        volumes: torch.Tensor,
        rows: torch.Tensor,
        bias: torch.Tensor | None,
        offset: torch.Tensor | None,
        halo: torch.Tensor | None,
    ) -> torch.Tensor:
        if border is not None and halo is not None:
            frames = border.around(halo, volumes, volumes.dim() - 5)
            volumes = frames.unflatten(-4, input_tensor.shape[:2])
        volumes = _without_padding(volumes, ends, offset, before)
        result = convolve(volumes, _unprepared(rows, kernel, block, channels), 1, run, sizes=3)
        if bias is not None:
            result = result + bias.reshape(*bias.shape[: bias.dim() - bias_rank], 1, 1, 1, 1, output_channels)
        return F.pad(result, (0, 0, output_pad_w, output_pad_w, output_pad_h, output_pad_h))

    cost, layouts = matmul_cost(channels * math.prod(kernel)), (chosen.output_layout,)
    return Local(compute, _rule, dtypes=(dtype,), layouts=layouts, memory_config=DRAM_MEMORY_CONFIG, cost=cost)


def _checked_bias(bias: Operand, output_channels: int) -> Operand:
    if math.prod(bias.shape) != output_channels:
        raise MeshError(f"{_OP}: bias_tensor {list(bias.shape)} must hold {output_channels} values.")
    return bias


def _check_offset(offset: Operand | None) -> None:
    if offset is not None and (offset.shape != (1, 2) or offset.dtype is not DataType.UINT32):
        raise MeshError(
            f"{_OP}: pad_offset_tensor {list(offset.shape)} {offset.dtype} must be [1, 2] UINT32 on each device: the "
            "row and the column of the whole volume at which its part starts."
        )


def _border(
    volumes: Operand, halo: Operand, sides: Sequence[int], dilation: Sequence[int], padding_mode: str
) -> Border:
    """What the buffer of neighbor_pad_halo holds for these volumes."""
    if padding_mode != "zeros":
        raise MeshError(f'{_OP}: a halo_buffer needs padding_mode "zeros": borders that are repeated are in no buffer.')
    if any(step != 1 for step in dilation):
        raise MeshError(f"{_OP}: a halo_buffer needs spatial reuse and no dilation, got {list(dilation)}.")
    frames, (rows, columns, channels) = math.prod(volumes.shape[:2]), volumes.shape[2:]
    border = Border(frames, rows, columns, channels, sides[1], sides[2])
    pages = halo.spec.logical_volume() // halo.shape[-1]
    if pages < border.pixels or halo.shape[-1] != channels:
        raise MeshError(
            f"halo_buffer holds {pages} pages but the [Htop|Hbot|Wleft|Wright] sections need {border.pixels}: {_OP} "
            f"got {list(halo.shape)} for the border of {list(volumes.shape)}, pixels of {channels} values."
        )
    return border


def _without_padding(
    volumes: torch.Tensor, ends: dict[int, int], offset: torch.Tensor | None, before: Sequence[int]
) -> torch.Tensor:
    """0 from where the logical volume ends, for a part that starts at `offset` of it, `before` its border."""
    for which, (dim, end) in enumerate(ends.items()):
        if end:
            places = torch.arange(volumes.shape[dim], device=volumes.device) - before[which]
            if offset is not None:
                places = places + offset[..., 0, which : which + 1].long()  # (*mesh, extent)
            inside = places.reshape(*places.shape[:-1], *(1,) * (4 + dim + 1), -1, *(1,) * (-1 - dim)) < end
            volumes = torch.where(inside, volumes, 0)
    return volumes


def _check(
    volumes: Operand, weight: Operand, kernel: Sequence[int], out: int, groups: int, config: Conv3dConfig
) -> tuple[int, int]:
    """Input channels, and those of one block of the weights' rows."""
    if volumes.rank != 5 or groups < 1 or volumes.shape[-1] % groups or out % groups:
        raise MeshError(
            f"{_OP}: input_tensor {list(volumes.shape)} must be [N, T, H, W, C], and groups={groups} divide C and "
            f"output_channels={out}."
        )
    channels = volumes.shape[-1]
    whole = _aligned(channels, config.alignment)
    if weight.shape != (whole * math.prod(kernel), out):
        raise MeshError(
            f"{_OP}: weight_tensor {list(weight.shape)} must be {[whole * math.prod(kernel), out]}, as "
            "ttnn.experimental.prepare_conv3d_weights makes it."
        )
    return channels, _block(_OP, whole, config.C_in_block)


@checked_function
def conv3d(
    *, input_tensor: Tensor, weight_tensor: Tensor, device: MeshDevice | None = None, **arguments: Any
) -> Tensor:
    """Volumes [N, T, H, W, C] by prepared weights [rows, out] -> [N, T', H', W', out].

    `arguments`: dtype, output_channels, kernel_size, stride, padding, dilation, padding_mode ("zeros" or
    "replicate"), groups, bias_tensor, config, memory_config, compute_kernel_config. Values from logical_h_mask rows
    and logical_w_mask columns of the whole volume on count as 0 (a mask of 0: none do); pad_offset_tensor [1, 2] has
    the row and the column at which each device's part starts. Weights of five dims are prepared here. With a
    halo_buffer of neighbor_pad_halo rows and columns beside the volumes are read there; output_pad_h and output_pad_w
    leave room for such a border around the result.
    """
    if arguments.pop("weight_lo_tensor", None) is not None:
        raise NotModelled(f"{_OP}: weight_lo_tensor is not modelled: pass whole weights in float32.")
    weight = weight_tensor
    if len(weight.shape) == 5:
        weight = _prepared_for(weight, arguments.get("config") or Conv3dConfig(), arguments.get("groups", 1))
    where = device or input_tensor.device()
    others = {name: arguments.pop(name, None) for name in ("bias_tensor", "pad_offset_tensor", "halo_buffer")}
    operands = {"input_tensor": input_tensor, "weight_tensor": weight, **others}
    if where is not None:
        operands = {name: on_mesh(where, operand) for name, operand in operands.items()}
    made = _conv3d(**operands, **arguments)
    return cast(Tensor, made)


def _prepared_for(weight: Tensor, config: Conv3dConfig, groups: int) -> Tensor:
    return prepare_conv3d_weights(
        weight_tensor=weight, groups=groups, C_in_block=config.C_in_block, alignment=config.alignment
    )
