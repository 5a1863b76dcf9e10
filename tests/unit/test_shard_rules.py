"""Which shards a tensor can have: TT-NN's rules, its order and its texts."""

from __future__ import annotations

import re
from typing import Any

import pytest
import torch

import softmesh as ttnn

RM, TILE = ttnn.ROW_MAJOR_LAYOUT, ttnn.TILE_LAYOUT
HEIGHT, WIDTH, BLOCK = (
    ttnn.TensorMemoryLayout.HEIGHT_SHARDED,
    ttnn.TensorMemoryLayout.WIDTH_SHARDED,
    ttnn.TensorMemoryLayout.BLOCK_SHARDED,
)
ROWS, COLUMNS = ttnn.ShardOrientation.ROW_MAJOR, ttnn.ShardOrientation.COL_MAJOR


def cores(x: int, y: int) -> ttnn.CoreRangeSet:
    return ttnn.CoreRangeSet([ttnn.CoreRange(ttnn.CoreCoord(0, 0), ttnn.CoreCoord(x - 1, y - 1))])


TWO_RANGES = ttnn.CoreRangeSet(
    [
        ttnn.CoreRange(ttnn.CoreCoord(0, 0), ttnn.CoreCoord(0, 0)),
        ttnn.CoreRange(ttnn.CoreCoord(2, 0), ttnn.CoreCoord(2, 0)),
    ]
)


def sharded(
    layout: ttnn.TensorMemoryLayout,
    shard: tuple[int, int],
    grid: ttnn.CoreRangeSet | None = None,
    orientation: ttnn.ShardOrientation = ROWS,
) -> ttnn.MemoryConfig:
    grid = cores(2, 2) if grid is None else grid
    return ttnn.MemoryConfig(layout, ttnn.BufferType.L1, ttnn.ShardSpec(grid, shard, orientation))


def nd(*shard: int) -> ttnn.MemoryConfig:
    return ttnn.MemoryConfig(ttnn.BufferType.L1, ttnn.NdShardSpec(shard, cores(4, 4)))


REFUSED: list[tuple[list[int], ttnn.Layout, ttnn.MemoryConfig, str]] = [
    ([256, 64], TILE, sharded(HEIGHT, (16, 64)), "Physical shard shape (16, 64) must be tile {32, 32} sized!"),
    ([256, 64], RM, sharded(HEIGHT, (16, 64)), "Number of shards along height 16 must not exceed number of cores 4"),
    ([256, 64], TILE, sharded(HEIGHT, (64, 32)), "Shard width 32 must match physical width 64 for height sharded"),
    ([256, 64], TILE, sharded(HEIGHT, (32, 64)), "Number of shards along height 8 must not exceed number of cores 4"),
    ([256, 64], TILE, sharded(WIDTH, (32, 32)), "Shard height 32 must match physical height 256 for width sharded"),
    ([32, 160], TILE, sharded(WIDTH, (32, 32)), "Number of shards along width 5 must not exceed number of cores 4"),
    ([64, 64], TILE, sharded(BLOCK, (32, 32), TWO_RANGES), "Shard grid must be one full rectangular grid for block"),
    ([256, 64], TILE, sharded(BLOCK, (32, 32)),
     "Number of shards along height 8 must not exceed number of rows 2 for row major orientation!"),
    ([64, 256], TILE, sharded(BLOCK, (32, 32)),
     "Number of shards along width 8 must not exceed number of columns 2 for row major orientation!"),
    ([96, 64], TILE, sharded(BLOCK, (32, 32), cores(2, 4), COLUMNS),
     "Number of shards along height 3 must not exceed number of columns 2 for column major orientation!"),
    ([64, 160], TILE, sharded(BLOCK, (32, 32), cores(2, 4), COLUMNS),
     "Number of shards along width 5 must not exceed number of rows 4 for column major orientation!"),
    ([64, 64], RM, sharded(HEIGHT, (0, 64)), "Shard shape must be greater than 0 in each sharded dim, got [0, 64]"),
    ([64, 64], RM, sharded(WIDTH, (64, 0)), "Row Major width alignment must be greater than 0; a sharded tensor"),
    ([64, 64], RM, sharded(HEIGHT, (16, 0)), "Shard width 0 must match physical width 64 for height sharded"),
    ([64], RM, sharded(HEIGHT, (2, 64)), "Shard shape must be 1D for 1D tensor!"),
    ([64, 64], TILE, nd(10, 20), "Physical shard shape Shape([10, 20]) must be tile {32, 32} sized!"),
    ([64, 64], TILE, nd(32), "Physical shard shape Shape([32]) must be tile {32, 32} sized!"),
    ([64, 64], RM, nd(0, 64), "Shard shape must be greater than 0 in each sharded dim, got [0, 64]"),
]  # fmt: skip


@pytest.fixture(scope="module")
def device() -> Any:
    with ttnn.create_mesh_device(ttnn.MeshShape(1, 1), physical_device_ids=[30]) as opened:
        yield opened


@pytest.mark.parametrize(("shape", "layout", "config", "text"), REFUSED)
def test_shards_that_do_not_fit_are_refused_wherever_a_tensor_is_made(
    device: ttnn.MeshDevice, shape: list[int], layout: ttnn.Layout, config: ttnn.MemoryConfig, text: str
):
    def spec() -> ttnn.TensorSpec:
        if config.nd_shard_spec is not None:
            return ttnn.TensorSpec(shape, ttnn.bfloat16, layout, config.nd_shard_spec, ttnn.BufferType.L1)
        return ttnn.TensorSpec(
            shape, ttnn.bfloat16, layout, config.memory_layout, config.shard_spec, ttnn.BufferType.L1
        )

    values = torch.ones(shape).bfloat16()
    plain = ttnn.from_torch(values, layout=layout)
    for attempt in (
        spec,
        lambda: ttnn.from_torch(values, layout=layout, memory_config=config),
        lambda: ttnn.allocate_tensor_on_device(ttnn.Shape(shape), ttnn.bfloat16, layout, device, config),
        lambda: ttnn.to_device(plain, device, memory_config=config),
    ):
        with pytest.raises(RuntimeError, match=re.escape(text)):
            attempt()


def test_from_torch_tries_rows_first():
    config = sharded(WIDTH, (64, 0))
    with pytest.raises(RuntimeError, match="Row Major width alignment must be greater than 0"):
        ttnn.from_torch(torch.ones(64, 64), layout=TILE, memory_config=config)


def test_a_row_major_tensor_has_no_tile_of_its_own():
    text = "Configuring a ROW MAJOR page config with a custom tile configuration is not supported."
    with pytest.raises(RuntimeError, match=text):
        ttnn.TensorSpec([64, 64], ttnn.bfloat16, RM, ttnn.BufferType.DRAM, ttnn.Tile((16, 32)))
    with pytest.raises(RuntimeError, match=text):
        ttnn.from_torch(torch.ones(64, 64), layout=RM, tile=ttnn.Tile((16, 32)))
    ttnn.from_torch(torch.ones(64, 64), layout=RM, tile=ttnn.Tile((32, 32), transpose_tile=True))


def test_dtypes_have_their_layouts():
    with pytest.raises(RuntimeError, match="Only TILE layout is supported for BFLOAT8_B dtype!"):
        ttnn.TensorSpec([64, 64], ttnn.bfloat4_b, RM)
    with pytest.raises(RuntimeError, match="Only ROW_MAJOR layout is supported for FP8_E4M3 dtype!"):
        ttnn.TensorSpec([64, 64], ttnn.fp8_e4m3, TILE)


@pytest.mark.parametrize(
    ("layout", "shard", "grid"),
    [(HEIGHT, (7, 48), cores(2, 2)), (WIDTH, (21, 16), cores(2, 2)), (BLOCK, (6, 16), cores(3, 4))],
)
def test_rows_are_filled_up_to_whole_shards(
    layout: ttnn.TensorMemoryLayout, shard: tuple[int, int], grid: ttnn.CoreRangeSet
):
    x = ttnn.from_torch(torch.ones(3, 7, 40), memory_config=sharded(layout, shard, grid))
    assert x.shape == [3, 7, 40]
    assert x.padded_shape == [3, 7, 48]
    assert ttnn.to_torch(x).shape == (3, 7, 40)


def test_interleaved_memory_may_carry_a_shard_spec():
    config = sharded(ttnn.TensorMemoryLayout.INTERLEAVED, (3, 5))
    assert ttnn.from_torch(torch.ones(64, 64), memory_config=config).memory_config().shard_spec.shape == [
        3,
        5,
    ]


# -- what a tensor tells of its memory ---------------------------------------------------------------

ND = ttnn.TensorMemoryLayout.ND_SHARDED


@pytest.mark.parametrize(
    ("shape", "shard", "grid", "orientation", "layout", "flat"),
    [
        ((4, 64, 64), (1, 64, 64), cores(4, 1), ROWS, HEIGHT, [64, 64]),
        ((4, 64, 64), (4, 64, 32), cores(4, 1), ROWS, WIDTH, [256, 32]),
        ((4, 64, 64), (2, 32, 64), cores(4, 4), ROWS, ND, None),
        ((128, 128), (32, 32), cores(4, 4), ROWS, BLOCK, [32, 32]),
        ((128, 128), (32, 32), cores(8, 2), ROWS, ND, None),
        ((128, 128), (128, 128), cores(4, 1), ROWS, WIDTH, [128, 128]),
        ((128, 128), (64, 128), cores(4, 1), COLUMNS, HEIGHT, [64, 128]),
    ],
)
def test_shards_of_n_dims_have_a_form_in_two_where_there_is_one(
    shape: tuple[int, ...],
    shard: tuple[int, ...],
    grid: ttnn.CoreRangeSet,
    orientation: ttnn.ShardOrientation,
    layout: ttnn.TensorMemoryLayout,
    flat: list[int] | None,
):
    asked = ttnn.MemoryConfig(ttnn.BufferType.L1, ttnn.NdShardSpec(shard, grid, orientation))
    assert asked.memory_layout is ND
    x = ttnn.from_torch(torch.ones(shape), dtype=ttnn.bfloat16, layout=TILE, memory_config=asked)
    told = x.memory_config()
    assert told.memory_layout is layout
    assert (told.shard_spec and told.shard_spec.shape) == flat
    assert told.nd_shard_spec == asked.nd_shard_spec
    assert "created_with_nd_shard_spec=1" in repr(told)
    assert (told == asked) == (layout is ND)


def test_shards_of_two_dims_have_a_form_in_n():
    for layout, shard, strategy in (
        (HEIGHT, (64, 64), ttnn.ShardDistributionStrategy.ROUND_ROBIN_1D),
        (BLOCK, (128, 32), ttnn.ShardDistributionStrategy.GRID_2D),
    ):
        asked = sharded(layout, shard)
        told = ttnn.from_torch(torch.ones(256, 64), layout=TILE, memory_config=asked).memory_config()
        assert told == asked
        assert hash(told) == hash(asked)
        assert told.nd_shard_spec == ttnn.NdShardSpec(shard, cores(2, 2), ROWS, strategy)
        assert "created_with_nd_shard_spec=0" in repr(told)


def test_the_shards_of_one_row_have_one_dim():
    told = ttnn.from_torch(torch.ones(64), memory_config=sharded(WIDTH, (1, 16))).memory_config()
    assert told.nd_shard_spec.shard_shape == [16]


def test_two_ways_to_the_same_shards_are_equal():
    nd_way = ttnn.MemoryConfig(ttnn.BufferType.L1, ttnn.NdShardSpec((64, 64), cores(2, 2)))
    made = [
        ttnn.from_torch(torch.ones(256, 64), layout=TILE, memory_config=config).memory_config()
        for config in (nd_way, sharded(HEIGHT, (64, 64)))
    ]
    assert made[0] == made[1]
    assert hash(made[0]) == hash(made[1])


# -- specs made of specs -----------------------------------------------------------------------------


def nd_of(spec: ttnn.TensorSpec) -> list[int]:
    assert "created_with_nd_shard_spec=1" in repr(spec.memory_config)
    return list(spec.memory_config.nd_shard_spec.shard_shape)


def test_shards_are_rounded_up_as_asked():
    spec = ttnn.TensorSpec([128, 70], ttnn.bfloat16, RM)
    alignment = ttnn.ShardShapeAlignment
    assert nd_of(spec.sharded([10, 20], cores(4, 4), alignment.NONE)) == [10, 20]
    assert nd_of(spec.sharded([10, 20], cores(4, 4), alignment.REQUIRED)) == [10, 20]
    assert nd_of(spec.sharded([10, 20], cores(4, 4))) == [10, 32]
    assert nd_of(spec.sharded(ttnn.NdShardSpec([10, 20], cores(4, 4)), alignment.NONE)) == [10, 20]
    assert nd_of(ttnn.TensorSpec([128, 70], ttnn.float32, TILE).sharded([10, 20], cores(4, 4))) == [32, 32]


def test_specs_are_cut_along_dims():
    spec = ttnn.TensorSpec([4, 128, 64], ttnn.bfloat16, TILE)
    along = spec.sharded_across_dims([0], cores(4, 1))
    assert nd_of(along) == [1, 128, 64]
    assert (along.memory_config.memory_layout, along.memory_config.shard_spec.shape) == (HEIGHT, [128, 64])
    across = spec.sharded_across_dims([-2], cores(4, 1))
    assert (nd_of(across), across.memory_config.memory_layout) == ([4, 32, 64], ND)
    assert nd_of(spec.sharded_across_dims_except([0], cores(4, 2))) == [4, 32, 32]
    with pytest.raises(RuntimeError, match=re.escape("ShapeBase[] index out of range. 5 not in [-4, 3)")):
        spec.sharded_across_dims([5], cores(4, 1))


def test_blocks_need_one_rectangle():
    spec = ttnn.TensorSpec([128, 64], ttnn.bfloat16, TILE)
    assert spec.block_sharded(cores(2, 4)).memory_config.shard_spec.shape == [32, 32]
    with pytest.raises(RuntimeError, match="Block sharding requires a single CoreRange"):
        spec.block_sharded(TWO_RANGES)


# On a device: every core that holds a shard has a bank.

WIDE = [416, 32]
MAKERS = {
    "from_torch": lambda mesh, config: ttnn.from_torch(
        torch.zeros(WIDE), ttnn.bfloat16, layout=TILE, device=mesh, memory_config=config
    ),
    "to_device": lambda mesh, config: ttnn.to_device(_wide(), mesh, config),
    "to_memory_config": lambda mesh, config: ttnn.to_memory_config(ttnn.to_device(_wide(), mesh), config),
    "allocate": lambda mesh, config: ttnn.allocate_tensor_on_device(WIDE, ttnn.bfloat16, TILE, mesh, config),
    "relu": lambda mesh, config: ttnn.relu(ttnn.to_device(_wide(), mesh), memory_config=config),
    "zeros": lambda mesh, config: ttnn.zeros(WIDE, ttnn.bfloat16, TILE, mesh, config),
}


def _wide() -> ttnn.Tensor:
    return ttnn.from_torch(torch.zeros(WIDE), ttnn.bfloat16, layout=TILE)


def _on_cores(columns: int, rows: int, buffer_type: ttnn.BufferType, shard: list[int]) -> ttnn.MemoryConfig:
    grid = ttnn.CoreRangeSet([ttnn.CoreRange((0, 0), (columns - 1, rows - 1))])
    spec = ttnn.ShardSpec(grid, shard, ttnn.ShardOrientation.ROW_MAJOR)
    return ttnn.MemoryConfig(ttnn.TensorMemoryLayout.HEIGHT_SHARDED, buffer_type, spec)


@pytest.mark.parametrize("maker", MAKERS)
@pytest.mark.parametrize(
    ("columns", "rows", "buffer_type", "text"),
    [
        (
            13,
            1,
            ttnn.BufferType.L1,
            "Invalid shard grid: shard core (8, 0) has no L1 bank on this device, which has 64",
        ),
        (
            1,
            13,
            ttnn.BufferType.L1,
            "Invalid shard grid: shard core (0, 8) has no L1 bank on this device, which has 64",
        ),
        (13, 1, ttnn.BufferType.DRAM, "shard core (12, 0) has no DRAM bank on this device, which has 12 of them"),
        (7, 2, ttnn.BufferType.DRAM, "Invalid DRAM shard grid: shard core (0, 1) is not on row 0. "),
    ],
)
def test_shards_lie_where_there_are_banks(
    device: ttnn.MeshDevice, maker: str, columns: int, rows: int, buffer_type: ttnn.BufferType, text: str
):
    with pytest.raises(RuntimeError, match=re.escape(text)):
        MAKERS[maker](device, _on_cores(columns, rows, buffer_type, [32, 32]))


def test_cores_without_shards_need_no_bank(device: ttnn.MeshDevice):
    config = _on_cores(9, 1, ttnn.BufferType.L1, [64, 32])
    assert MAKERS["from_torch"](device, config).memory_config() == config


def test_l1_small_holds_shards_only(device: ttnn.MeshDevice):
    with pytest.raises(RuntimeError, match="L1_SMALL only supports sharded allocations, see validate_num_banks"):
        MAKERS["from_torch"](device, ttnn.MemoryConfig(buffer_type=ttnn.BufferType.L1_SMALL))


def test_a_full_memory_counts_the_banks_of_the_shards(device: ttnn.MeshDevice):
    config = _on_cores(2, 1, ttnn.BufferType.L1, [4096, 2048])
    text = "allocate 33554432 B L1 buffer across 2 banks, where each bank needs to store 16777216 B"
    with pytest.raises(RuntimeError, match=text):
        ttnn.from_torch(torch.zeros(8192, 2048), ttnn.bfloat16, device=device, memory_config=config)


@pytest.mark.parametrize("layout", [ttnn.TensorMemoryLayout.HEIGHT_SHARDED, ttnn.TensorMemoryLayout.BLOCK_SHARDED])
def test_a_sharded_spec_says_how_to_cut(device: ttnn.MeshDevice, layout: ttnn.TensorMemoryLayout):
    with pytest.raises(RuntimeError, match="bad optional access"):
        ttnn.TensorSpec([32, 32], ttnn.bfloat16, TILE, layout)
    rows = ttnn.TensorSpec([32, 32], ttnn.bfloat16, ttnn.ROW_MAJOR_LAYOUT, layout, buffer_type=ttnn.BufferType.L1)
    with pytest.raises(RuntimeError, match="MemoryConfig must have Shard Spec specified for sharded memory layout"):
        ttnn.allocate_tensor_on_device(rows, device)


def test_shards_are_refused_before_dtypes():
    grid = ttnn.CoreRangeSet([ttnn.CoreRange((0, 0), (3, 0))])
    shards = ttnn.ShardSpec(grid, [16, 64], ttnn.ShardOrientation.ROW_MAJOR)
    layout = ttnn.TensorMemoryLayout.HEIGHT_SHARDED
    with pytest.raises(RuntimeError, match="Number of shards along height 16 must not exceed number of cores 4"):
        ttnn.TensorSpec([256, 64], ttnn.bfloat8_b, ttnn.ROW_MAJOR_LAYOUT, layout, shards)
    with pytest.raises(RuntimeError, match="Only UINT32, INT32, FLOAT32"):
        ttnn.TensorSpec([32, 32], ttnn.DataType.INVALID, TILE)
