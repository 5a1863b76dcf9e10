"""group_norm of images, and the host functions around it: input masks, weights spread over cores, core grids."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import accumulate
from typing import Any, cast

import torch
import torch.nn.functional as F

from softmesh.arguments import checked_function
from softmesh.cores import CoreCoord, CoreGrid, CoreRange, CoreRangeSet
from softmesh.dispatch.call_cache import Call
from softmesh.dispatch.cost_rules import flops_per_element
from softmesh.dispatch.operand import Operand
from softmesh.dispatch.operation import Operation, operation
from softmesh.dispatch.plan import Local
from softmesh.errors import MeshError
from softmesh.hardware.memory_config import (
    DRAM_MEMORY_CONFIG,
    BufferType,
    MemoryConfig,
    ShardOrientation,
    ShardSpec,
    TensorMemoryLayout,
)
from softmesh.kinds import Kind
from softmesh.ops.elementwise.in_place import written_over
from softmesh.ops.golden import golden_images_and_caches as golden
from softmesh.ops.golden.golden_functions import with_reference
from softmesh.placement import dim_labels, rules
from softmesh.placement.placements import placed
from softmesh.runtime.device import MeshDevice
from softmesh.tensor.dtype import TILE_SIZE, DataType, Layout
from softmesh.tensor.from_torch_values import from_torch
from softmesh.tensor.mappers import ShardTensor2dMesh
from softmesh.tensor.tensor import Tensor

# -- masks: which columns of a tile belong to which group of channels --------------------------------


@checked_function
def find_max_tile_span(W: int, group_size: int, tile_width: int) -> int:
    """The most tiles that any of the groups of W channels touches."""
    starts = range(0, W, group_size)
    return max((start + group_size - 1) // tile_width - start // tile_width + 1 for start in starts)


def _mask(
    op: str, channels: int, groups: int, columns: int, tile: tuple[int, int], rows_in_last_tile: int = 0
) -> torch.Tensor:
    """(1, groups, tile rows, width): 1 where a group lies, counted from the tile in which it starts."""
    if min(channels, groups, columns, *tile) < 1 or channels % groups or groups % columns:
        raise MeshError(
            f"{op}: num_groups={groups} must divide num_channel={channels}, and num_cores_across_channel={columns} "
            "divide the groups."
        )
    height, width = tile
    size = channels // groups
    span = find_max_tile_span(channels, size, width)
    mask = torch.zeros(1, groups, height, width * span)
    starts = list(accumulate([size] * (groups // columns - 1), lambda at, by: (at + by) % width, initial=0))
    for group in range(groups):
        start = starts[group % len(starts)]
        mask[:, group, : rows_in_last_tile or height, start : start + size] = 1
    return mask


@checked_function
def create_group_norm_input_mask(
    num_channel: int,
    num_groups: int,
    num_cores_across_channel: int,
    data_type: DataType = DataType.BFLOAT16,
    tile_height: int = TILE_SIZE,
    tile_width: int = TILE_SIZE,
    rows_in_last_tile: int = 0,
) -> Tensor:
    """A host tensor [1, groups, tile rows, width] in tiles: 1 where a group's channels are, else 0."""
    tile = (tile_height, tile_width)
    op, sizes = "create_group_norm_input_mask", (num_channel, num_groups, num_cores_across_channel)
    mask = _mask(op, *sizes, tile, rows_in_last_tile)
    return cast(Tensor, from_torch(mask, dtype=data_type, layout=Layout.TILE))


@checked_function
def create_group_norm_reciprocals(N: int, C: int, H: int, W: int, num_groups: int, core_grid: CoreGrid) -> torch.Tensor:
    """1, 1/2, 1/3 ... for the running means of Welford's method: for each core a row, as long as its part is."""
    if min(N, C, H, W, num_groups) < 1 or C % num_groups:
        raise MeshError(
            f"create_group_norm_reciprocals: num_groups={num_groups} must divide C={C}, and all be positive."
        )
    count = -(-N * H * W * (C // num_groups) // core_grid.y)
    return torch.arange(1, count + 1, dtype=torch.float32).reciprocal().expand(core_grid.num_cores, count).clone()


@checked_function
def create_group_norm_input_negative_mask(
    num_channel: int,
    num_groups: int,
    num_cores_across_channel: int,
    data_type: DataType = DataType.BFLOAT16,
    tile_height: int = TILE_SIZE,
    tile_width: int = TILE_SIZE,
) -> Tensor:
    """As the input mask, with 1 and 0 exchanged."""
    tile = (tile_height, tile_width)
    op, sizes = "create_group_norm_input_negative_mask", (num_channel, num_groups, num_cores_across_channel)
    return cast(Tensor, from_torch(1 - _mask(op, *sizes, tile), dtype=data_type, layout=Layout.TILE))


# -- weights and biases, spread over the columns of a core grid as a chip wants them -----------------


def _up(n: int, step: int = TILE_SIZE) -> int:
    return -(-n // step) * step


@checked_function
def create_group_norm_weight_bias_rm(input_tensor: torch.Tensor, num_channels: int, num_cores_x: int) -> torch.Tensor:
    """C values as [1, 1, rows, 32]: for each of `num_cores_x` columns of cores its share, padded to whole rows."""
    if num_cores_x < 1 or num_channels % num_cores_x or input_tensor.numel() != num_channels:
        raise MeshError(
            f"create_group_norm_weight_bias_rm: {input_tensor.numel()} values must be num_channels={num_channels}, and "
            f"num_cores_x={num_cores_x} divide them."
        )
    share = num_channels // num_cores_x
    return F.pad(input_tensor.reshape(num_cores_x, share), (0, _up(share) - share)).reshape(1, 1, -1, TILE_SIZE)


def columns_of(
    op: str, operand: Operand | None, channels: int, grid: CoreGrid | None, shards: ShardSpec | None = None
) -> int:
    """Over how many columns of cores a weight was spread; 1 where it is not padded.

    Over rows of cores where the images lie in `shards` that go down the columns.
    """
    if operand is None:
        return 1
    held = math.prod(operand.shape)
    if held == channels:
        return 1
    fits = [n for n in range(1, channels + 1) if channels % n == 0 and n * _up(channels // n) == held]
    if not fits:
        raise MeshError(
            f"{op}: {operand.name} {list(operand.shape)} must hold {channels} values, one for a channel, plain or as "
            "ttnn.create_group_norm_weight_bias_rm spreads them."
        )
    goes_down = shards is not None and shards.orientation is ShardOrientation.COL_MAJOR
    sides = () if grid is None else (grid.y, grid.x) if goes_down else (grid.x, grid.y)
    wanted = [n for n in sides if n in fits]
    return (wanted or fits)[0]


def unspread_from_cores(values: torch.Tensor, rank: int, channels: int, columns: int) -> torch.Tensor:
    """(..., C) from plain values or those spread over columns."""
    flat = values.reshape(*values.shape[: values.dim() - rank], -1)
    return flat if columns == 1 else flat.unflatten(-1, (columns, -1))[..., : channels // columns].flatten(-2)


@checked_function
def get_group_norm_cores_across_channel(
    memory_layout: TensorMemoryLayout, core_grid: CoreGrid, shard_orientation: ShardOrientation | None = None
) -> int:
    """How many cores share the channels: one for height sharding, all for width sharding, one side of a block."""
    if memory_layout is TensorMemoryLayout.HEIGHT_SHARDED:
        return 1
    if memory_layout is TensorMemoryLayout.WIDTH_SHARDED:
        return core_grid.x * core_grid.y
    return core_grid.x if shard_orientation is ShardOrientation.ROW_MAJOR else core_grid.y


@checked_function
def dram_group_norm_virtual_columns(core_grid: CoreGrid, num_channels: int, num_groups: int) -> int:
    """The most columns of the grid among which groups and tiles of channels divide evenly."""
    for columns in range(min(core_grid.x, num_groups), 0, -1):
        if num_channels % (columns * TILE_SIZE) == 0 and num_groups % columns == 0:
            return columns
    raise MeshError(
        f"dram_group_norm_virtual_columns: num_channels={num_channels} must be a multiple of {TILE_SIZE}: pad the "
        "channels to whole tiles."
    )


@checked_function
def dram_group_norm_params_from_torch(
    torch_params: torch.Tensor | Sequence[torch.Tensor],
    channels_per_device: int,
    groups_per_device: int,
    device: MeshDevice,
    mesh_axis: int | None = None,
    core_grid: CoreGrid | None = None,
    return_mask: bool = True,
    dtype: DataType = DataType.BFLOAT16,
) -> Any:
    """Weights (and biases) of a group norm on the device, spread over columns of cores, and the mask beside them.

    With `mesh_axis` each holds all channels, of which the devices along that axis take their share.
    """
    if channels_per_device < 1 or groups_per_device < 1 or mesh_axis not in (None, 0, 1):
        raise MeshError(
            f"dram_group_norm_params_from_torch: channels_per_device={channels_per_device} and "
            f"groups_per_device={groups_per_device} must be 1 or more, mesh_axis={mesh_axis} None, 0 or 1."
        )
    params = [torch_params] if isinstance(torch_params, torch.Tensor) else list(torch_params)
    columns = dram_group_norm_virtual_columns(core_grid or device.core_grid, channels_per_device, groups_per_device)
    share = channels_per_device // columns
    mapper = None
    if mesh_axis is not None:
        dims: list[int | None] = [None, None]
        dims[mesh_axis] = 2
        mapper = ShardTensor2dMesh(device, dims=(dims[0], dims[1]), mesh_shape=device.shape)
    made = [
        from_torch(
            create_group_norm_weight_bias_rm(param.flatten(), param.numel(), param.numel() // share),
            dtype=dtype,
            layout=Layout.ROW_MAJOR,
            device=device,
            memory_config=DRAM_MEMORY_CONFIG,
            mesh_mapper=mapper,
        )
        for param in params
    ]
    if not return_mask:
        return made
    mask = create_group_norm_input_mask(channels_per_device, groups_per_device, columns, dtype)
    return made, from_torch(mask.to_torch(), dtype=dtype, layout=Layout.TILE, device=device)


_TUNING = "input_mask inplace num_out_blocks compute_kernel_config negative_mask use_welford reciprocals"


def _check_masks(given: dict[str, Any]) -> None:
    for name in ("input_mask", "negative_mask"):
        mask = given.get(name)
        if isinstance(mask, Tensor) and mask.device() is None:
            raise MeshError(f"group_norm: {name.replace('_', ' ').capitalize()} must be on device: use ttnn.to_device.")
    if given.get("use_welford") and given.get("negative_mask") is not None:
        raise MeshError("group_norm: Negative mask is not supported with use_welford=True: leave it out.")


class _GroupNorm(Operation):
    """Shards of rows are written over, unless the caller says `inplace=False`."""

    def invoke(self, args: tuple[Any, ...], kwargs: dict[str, Any], call: Call | None) -> Any:
        given, is_kept = args[0] if args else kwargs.get("input_tensor"), kwargs.get("inplace", True) is False
        _check_masks(kwargs)
        if isinstance(given, Tensor) and given.layout is Layout.TILE and not is_kept:
            raise MeshError(
                "group_norm: Tile layout requires non-inplace tensors: pass inplace=False, which is not the default."
            )
        if is_kept or not isinstance(given, Tensor) or not given.memory_config().is_sharded():
            return super().invoke(args, kwargs, call)
        others = {name: value for name, value in kwargs.items() if name not in ("memory_config", "dtype")}
        return written_over(self).invoke(args, others, None)


@placed("Split by image or by channels where the input is, with weights split alike; otherwise Local.")
@rules.labelled(dim_labels.moved({0: 0}.get, passes=""))
def _rule(at: rules.Situation) -> rules.Placement:
    """Split by image or, with as many groups on each device, by channels; weights by channels alike."""
    rules.refuse_partial(at)
    last = len(at.out_shape) - 1
    found: set[rules.Placement] = set()
    if isinstance(at.word, rules.Shard):
        found.add(at.word if at.word.dim == 0 or (at.word.dim == last and at.word.size is None) else rules.LOCAL)
    for word, shape in zip(at.words[1:], at.shapes[1:], strict=True):
        if isinstance(word, rules.Shard) and shape is not None:
            in_order = math.prod(shape[: word.dim]) == 1 and word.size is None
            found.add(rules.Shard(last) if in_order else rules.LOCAL)
    return found.pop() if len(found) == 1 else rules.LOCAL


@operation(
    kind=Kind.NORM,
    rule=_rule,
    cost=flops_per_element(8),
    controls="memory_config dtype",
    tuning=_TUNING,
    floats_only=True,
    operation_class=_GroupNorm,
)
@with_reference(golden.group_norm)
def group_norm(
    input_tensor: Operand,
    *,
    num_groups: int,
    epsilon: float = 1e-12,
    weight: Operand | None = None,
    bias: Operand | None = None,
    core_grid: CoreGrid | None = None,
    output_layout: Layout | None = None,
) -> Local:
    """[N, 1, H*W, C], normalised over the pixels and the channels of each of `num_groups` groups.

    Weight and bias hold C values, or those that `create_group_norm_weight_bias_rm` spread over the columns of a core
    grid. Masks only tell a chip where groups lie. A sharded ROW_MAJOR input is written over, and returned,
    unless `inplace` is False.

    >>> x = ttnn.to_layout(split(4, 1, 64, 64, dim=0), ttnn.ROW_MAJOR_LAYOUT)
    >>> y = ttnn.group_norm(x, num_groups=2)
    >>> y.shape, ttnn.placements(y)
    (Shape([1, 1, 64, 64]), (Replicate, Shard(0)))
    """
    if input_tensor.rank != 4 or num_groups < 1 or input_tensor.shape[-1] % num_groups:
        raise MeshError(
            f"group_norm: num_groups={num_groups} must divide the channels of input_tensor "
            f"{list(input_tensor.shape)}, [N, 1, H*W, C] on each device."
        )
    *images, pixels, channels = input_tensor.spec.padded_shape
    if math.prod(images) * pixels % TILE_SIZE:
        raise MeshError(
            f"group_norm: the {math.prod(images) * pixels} rows of input_tensor {list(input_tensor.shape)} must be "
            f"divisible by the tile size, {TILE_SIZE}."
        )
    if pixels % TILE_SIZE:
        raise MeshError(f"group_norm: H*W ({pixels}) must be a multiple of the tile height, {TILE_SIZE}.")
    channels = input_tensor.shape[-1]
    shards = input_tensor.spec.memory_config.shard_spec
    grids = [columns_of("group_norm", operand, channels, core_grid, shards) for operand in (weight, bias)]
    ranks = [0 if operand is None else operand.rank for operand in (weight, bias)]

    def row(values: torch.Tensor, which: int) -> torch.Tensor:
        found = unspread_from_cores(values, ranks[which], channels, grids[which])
        return found.reshape(*found.shape[:-1], 1, 1, 1, channels)

    def compute(x: torch.Tensor, w: torch.Tensor | None, b: torch.Tensor | None) -> torch.Tensor:
        groups = x.unflatten(-1, (num_groups, -1))
        centred = groups - groups.mean((-4, -3, -1), keepdim=True)
        result = centred * torch.rsqrt(centred.square().mean((-4, -3, -1), keepdim=True) + epsilon)
        result = result.flatten(-2)
        result = result if w is None else result * row(w, 0)
        return result if b is None else result + row(b, 1)

    layouts = None if output_layout is None else (output_layout,)
    return Local(compute, layouts=layouts)


# -- core grids and shardings on which a chip can run a group norm -----------------------------------
#
# The rules are TT-NN's as far as they are known; where several grids would do, its choice may be another.


_CHANNEL_STEP = 8  # channels of one core come in multiples of this


@checked_function
def find_closest_largest_divisor(num: int, start_divisor: int) -> int:
    """The largest divisor of `num` that is not above `start_divisor`."""
    return next(n for n in range(max(1, start_divisor), 0, -1) if num % n == 0)


def _check(op: str, channels: int, groups: int, pixels: int) -> None:
    if min(channels, groups, pixels) < 1 or channels % groups or channels % TILE_SIZE:
        raise MeshError(
            f"{op}: num_channels={channels} must be a multiple of {TILE_SIZE} and of num_groups={groups}, "
            f"and input_nhw={pixels} 1 or more."
        )


def _columns(channels: int, groups: int, most: int) -> int:
    """The most cores among which channels divide in steps of 8, and with whole groups."""
    size = channels // groups
    fits = (n for n in range(most, 0, -1) if channels // _CHANNEL_STEP % n == 0 and channels // n % size == 0)
    return next(fits)


@checked_function
def determine_expected_group_norm_sharded_config_and_grid_size(
    *,
    device: MeshDevice,
    num_channels: int,
    num_groups: int,
    input_nhw: int,
    is_height_sharded: bool,
    is_row_major: bool = False,
) -> tuple[MemoryConfig, CoreGrid]:
    """How to shard an input of `input_nhw` rows, and the core grid for it."""
    _check("determine_expected_group_norm_sharded_config_and_grid_size", num_channels, num_groups, input_nhw)
    grid = device.compute_with_storage_grid_size()
    tiles = -(-input_nhw // TILE_SIZE)
    across = 1 if is_height_sharded else _columns(num_channels, num_groups, grid.x if is_row_major else grid.y)
    most = grid.x * grid.y if is_height_sharded else (grid.y if is_row_major else grid.x)
    along = find_closest_largest_divisor(tiles, most)
    shard = [tiles // along * TILE_SIZE, num_channels // across]
    if is_height_sharded:
        columns, rows = min(grid.x, along), -(-along // grid.x)
    else:
        columns, rows = (across, along) if is_row_major else (along, across)
    layout = TensorMemoryLayout.HEIGHT_SHARDED if is_height_sharded else TensorMemoryLayout.BLOCK_SHARDED
    by_row = is_height_sharded or is_row_major
    orientation = ShardOrientation.ROW_MAJOR if by_row else ShardOrientation.COL_MAJOR
    cores = CoreRangeSet([CoreRange(CoreCoord(0, 0), CoreCoord(columns - 1, rows - 1))])
    spread = ShardSpec(cores, shard, orientation)
    return MemoryConfig(layout, BufferType.L1, spread), CoreGrid(x=columns, y=rows)


@checked_function
def determine_expected_group_norm_dram_grid_size(
    *, device: MeshDevice, num_channels: int, num_groups: int, input_nhw: int, num_batches: int = 1
) -> CoreGrid:
    """The largest grid among whose columns groups and channel tiles divide evenly, and among whose rows the pixels."""
    _check("determine_expected_group_norm_dram_grid_size", num_channels, num_groups, input_nhw)
    grid = device.compute_with_storage_grid_size()
    fits = (
        n for n in range(min(grid.x, num_groups), 0, -1) if num_channels // TILE_SIZE % n == 0 and num_groups % n == 0
    )
    tiles = -(-input_nhw // TILE_SIZE)
    return CoreGrid(x=next(fits), y=find_closest_largest_divisor(tiles, grid.y))
