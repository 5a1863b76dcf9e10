"""Memory configs: section 5 of the reference."""

from __future__ import annotations

import pickle

import pytest

from softmesh.cores import CoreGrid, CoreRange, CoreRangeSet
from softmesh.hardware.memory_config import (
    DRAM_MEMORY_CONFIG,
    L1_BLOCK_SHARDED_MEMORY_CONFIG,
    L1_HEIGHT_SHARDED_MEMORY_CONFIG,
    L1_MEMORY_CONFIG,
    L1_WIDTH_SHARDED_MEMORY_CONFIG,
    BufferType,
    MemoryConfig,
    NdShardSpec,
    ShardDistributionStrategy,
    ShardOrientation,
    ShardSpec,
    ShardStrategy,
    TensorMemoryLayout,
)
from softmesh.hardware.shape import Shape
from softmesh.hardware.sharded_configs import create_sharded_memory_config, create_sharded_memory_config_

GRID = CoreRangeSet([CoreRange((0, 0), (1, 3))])
SPEC_TEXT = (
    'ShardSpec{grid=[{"start":{"x":0,"y":0},"end":{"x":1,"y":3}], shape=[32, 64], '
    "orientation=ShardOrientation::ROW_MAJOR}"
)


def shard_spec(height=32, width=64):
    return ShardSpec(GRID, [height, width], ShardOrientation.ROW_MAJOR)


def sharded(**changes):
    options = {"memory_layout": TensorMemoryLayout.BLOCK_SHARDED, "buffer_type": BufferType.L1} | changes
    return MemoryConfig(shard_spec=shard_spec(), **options)


CONFIGS = [
    DRAM_MEMORY_CONFIG,
    L1_MEMORY_CONFIG,
    L1_WIDTH_SHARDED_MEMORY_CONFIG,
    sharded(),
    MemoryConfig(
        BufferType.DRAM,
        NdShardSpec([2, 32, 32], GRID, ShardOrientation.COL_MAJOR, ShardDistributionStrategy.GRID_2D),
    ),
]


# Enums


@pytest.mark.parametrize(
    ("enum", "members"),
    [
        (
            TensorMemoryLayout,
            {"INTERLEAVED": 0, "HEIGHT_SHARDED": 2, "WIDTH_SHARDED": 3, "BLOCK_SHARDED": 4, "ND_SHARDED": 5},
        ),
        (BufferType, {"DRAM": 0, "L1": 1, "L1_SMALL": 3, "TRACE": 4}),
        (ShardOrientation, {"ROW_MAJOR": 0, "COL_MAJOR": 1}),
        (ShardStrategy, {"HEIGHT": 1, "WIDTH": 2, "BLOCK": 3}),
        (ShardDistributionStrategy, {"ROUND_ROBIN_1D": 0, "GRID_2D": 1, "CONTIGUOUS_1D": 2}),
    ],
)
def test_enums_have_the_names_and_numbers_of_ttnn(enum, members):
    assert {member.name: member.value for member in enum} == members


def test_enums_print_both_ways_as_python_and_on_request_as_cpp():
    assert str(BufferType.DRAM) == repr(BufferType.DRAM) == f"{BufferType.DRAM}" == "BufferType.DRAM"
    assert BufferType.DRAM.cpp_name == "BufferType::DRAM"
    assert BufferType(3) is BufferType.L1_SMALL
    with pytest.raises(TypeError):
        int(BufferType.L1)


# ShardSpec, NdShardSpec


def test_a_shard_spec_tells_grid_shape_and_orientation():
    spec = ShardSpec(grid=GRID, shard_shape=(32, 64), shard_orientation=ShardOrientation.ROW_MAJOR)
    assert (spec.grid, spec.shape, spec.orientation) == (GRID, [32, 64], ShardOrientation.ROW_MAJOR)
    assert spec.num_cores() == 8
    assert repr(spec) == SPEC_TEXT


def test_shard_specs_compare_by_value_and_can_be_altered():
    one, other = shard_spec(), shard_spec()
    assert one == other
    one.shape = [64, 64]
    assert one != other
    assert one.shape == [64, 64]


@pytest.mark.parametrize(
    "arguments",
    [
        ([CoreRange((0, 0), (1, 1))], [32, 32], ShardOrientation.ROW_MAJOR),
        (GRID, [32], ShardOrientation.ROW_MAJOR),
        (GRID, [32, 1.5], ShardOrientation.ROW_MAJOR),
        (GRID, 32, ShardOrientation.ROW_MAJOR),
        (GRID, [32, 32], TensorMemoryLayout.INTERLEAVED),
    ],
)
def test_what_is_no_shard_spec_is_a_type_error(arguments):
    with pytest.raises(TypeError, match="incompatible function arguments"):
        ShardSpec(*arguments)


def test_an_nd_shard_spec_has_a_shape_of_any_rank_and_defaults():
    spec = NdShardSpec(Shape([2, 32, 32]), GRID)
    assert spec.shard_shape == Shape([2, 32, 32])
    assert spec.orientation is ShardOrientation.ROW_MAJOR
    assert spec.shard_distribution_strategy is ShardDistributionStrategy.ROUND_ROBIN_1D
    assert spec.num_cores() == 8
    assert spec == NdShardSpec([2, 32, 32], GRID)
    assert spec != NdShardSpec([2, 32, 32], GRID, ShardOrientation.COL_MAJOR)
    assert repr(NdShardSpec([1, 2], CoreRangeSet([CoreRange((0, 0), (1, 1))]))) == (
        '{"shard_shape":[1, 2],"grid":[{"start":{"x":0,"y":0},"end":{"x":1,"y":1}}],'
        '"orientation":"ShardOrientation::ROW_MAJOR",'
        '"shard_distribution_strategy":"ShardDistributionStrategy::ROUND_ROBIN_1D"}'
    )


def test_json_is_that_of_tt_nn_and_the_older_one_is_still_read():
    spec = ShardSpec(CoreRangeSet([CoreRange((0, 0), (1, 1))]), [32, 64], ShardOrientation.ROW_MAJOR)
    config = MemoryConfig(TensorMemoryLayout.HEIGHT_SHARDED, BufferType.L1, spec)
    assert config.to_json() == (
        '{"buffer_type":1,"created_with_nd_shard_spec":false,"memory_layout":2,"per_core_allocation":false,'
        '"shard_spec":{"grid":[{"end":{"x":1,"y":1},"start":{"x":0,"y":0}}],"orientation":0,"shape":[32,64]}}'
    )
    older = (
        '{"memory_layout":"HEIGHT_SHARDED","buffer_type":"L1","shard_spec":{"grid":[{"start":{"x":0,"y":0},'
        '"end":{"x":1,"y":1}}],"shape":[32,64],"orientation":"ROW_MAJOR"},"nd_shard_spec":null}'
    )
    assert MemoryConfig.from_json(older) == config


def test_specs_round_trip_through_json():
    assert ShardSpec.from_json(shard_spec().to_json()) == shard_spec()
    spec = NdShardSpec([2, 32, 32], GRID, shard_distribution_strategy=ShardDistributionStrategy.CONTIGUOUS_1D)
    assert NdShardSpec.from_json(spec.to_json()) == spec


# MemoryConfig


def test_the_default_is_interleaved_dram():
    config = MemoryConfig()
    assert config == DRAM_MEMORY_CONFIG
    assert (config.memory_layout, config.buffer_type) == (TensorMemoryLayout.INTERLEAVED, BufferType.DRAM)
    assert config.interleaved
    assert not config.is_sharded()
    assert config.shard_spec is None
    assert config.nd_shard_spec is None


def test_a_config_prints_as_the_native_layer_does():
    assert repr(DRAM_MEMORY_CONFIG) == (
        "MemoryConfig(memory_layout=TensorMemoryLayout::INTERLEAVED,buffer_type=BufferType::DRAM,"
        "shard_spec=std::nullopt,nd_shard_spec=std::nullopt,created_with_nd_shard_spec=0,"
        "per_core_allocation=0,range_lockstep_allocation=0)"
    )
    assert f"buffer_type=BufferType::L1,shard_spec={SPEC_TEXT},nd_shard_spec=std::nullopt," in repr(sharded())
    assert "created_with_nd_shard_spec=1" in repr(CONFIGS[-1])


@pytest.mark.parametrize(
    ("config", "layout"),
    [
        (L1_MEMORY_CONFIG, TensorMemoryLayout.INTERLEAVED),
        (L1_BLOCK_SHARDED_MEMORY_CONFIG, TensorMemoryLayout.BLOCK_SHARDED),
        (L1_HEIGHT_SHARDED_MEMORY_CONFIG, TensorMemoryLayout.HEIGHT_SHARDED),
        (L1_WIDTH_SHARDED_MEMORY_CONFIG, TensorMemoryLayout.WIDTH_SHARDED),
    ],
)
def test_the_l1_constants_have_no_shard_spec(config, layout):
    assert (config.memory_layout, config.buffer_type, config.shard_spec) == (layout, BufferType.L1, None)
    assert config.is_sharded() == (layout is not TensorMemoryLayout.INTERLEAVED)


@pytest.mark.parametrize(
    "make",
    [
        lambda spec: MemoryConfig(BufferType.L1, spec),
        lambda spec: MemoryConfig(BufferType.L1, nd_shard_spec=spec),
        lambda spec: MemoryConfig(buffer_type=BufferType.L1, nd_shard_spec=spec),
    ],
)
def test_the_nd_form_takes_a_buffer_type_and_a_spec(make):
    spec = NdShardSpec([2, 32, 32], GRID)
    config = make(spec)
    assert (config.memory_layout, config.buffer_type) == (TensorMemoryLayout.ND_SHARDED, BufferType.L1)
    assert config.nd_shard_spec == spec
    assert config.shard_spec is None
    assert config.is_sharded()


@pytest.mark.parametrize(
    "arguments",
    [
        (BufferType.L1,),
        (TensorMemoryLayout.INTERLEAVED, TensorMemoryLayout.INTERLEAVED),
        (TensorMemoryLayout.HEIGHT_SHARDED, BufferType.L1, [32, 32]),
        (TensorMemoryLayout.ND_SHARDED, NdShardSpec([32, 32], GRID)),
        ("L1",),
    ],
)
def test_what_is_no_config_is_a_type_error(arguments):
    with pytest.raises(TypeError, match="incompatible function arguments"):
        MemoryConfig(*arguments)


def test_configs_compare_and_hash_by_value():
    assert sharded() == sharded()
    assert hash(sharded()) == hash(sharded())
    assert len({sharded(), sharded(), DRAM_MEMORY_CONFIG, MemoryConfig()}) == 2
    assert sharded() != sharded(buffer_type=BufferType.DRAM)
    assert sharded() != L1_BLOCK_SHARDED_MEMORY_CONFIG
    assert DRAM_MEMORY_CONFIG != "DRAM"


def test_a_config_cannot_be_altered_not_even_through_its_shard_spec():
    spec = shard_spec()
    config = MemoryConfig(TensorMemoryLayout.BLOCK_SHARDED, BufferType.L1, spec)
    with pytest.raises(AttributeError):
        config.buffer_type = BufferType.DRAM
    with pytest.raises(AttributeError):
        config.color = "red"
    spec.shape = [1, 1]
    config.shard_spec.shape = [2, 2]
    config.shard_spec.shape.append(3)
    assert config.shard_spec.shape == [32, 64]
    assert config == sharded()


@pytest.mark.parametrize("config", CONFIGS, ids=lambda config: config.memory_layout.name)
def test_configs_round_trip_through_json_and_pickle(config):
    assert MemoryConfig.from_json(config.to_json()) == config
    assert pickle.loads(pickle.dumps(config)) == config


# create_sharded_memory_config


@pytest.mark.parametrize(
    ("strategy", "orientation", "shard"),
    [
        (ShardStrategy.BLOCK, None, [2 * 3 * 64 // 2, 128 // 4]),
        (ShardStrategy.BLOCK, ShardOrientation.ROW_MAJOR, [2 * 3 * 64 // 2, 128 // 4]),
        (ShardStrategy.BLOCK, ShardOrientation.COL_MAJOR, [2 * 3 * 64 // 4, 128 // 2]),
        (ShardStrategy.HEIGHT, None, [2 * 3 * 64 // 8, 128]),
        (ShardStrategy.WIDTH, None, [2 * 3 * 64, 128 // 8]),
    ],
)
def test_a_tensor_is_cut_evenly_over_the_cores(strategy, orientation, shard):
    config = create_sharded_memory_config((2, 3, 64, 128), CoreGrid(x=4, y=2), strategy, orientation)
    assert config.buffer_type is BufferType.L1
    assert config.memory_layout.name == f"{strategy.name}_SHARDED"
    assert config.shard_spec.shape == shard
    assert config.shard_spec.orientation is (orientation or ShardOrientation.ROW_MAJOR)
    assert config.shard_spec.grid == CoreRangeSet([CoreRange((0, 0), (3, 1))])


@pytest.mark.parametrize(
    ("shape", "strategy"),
    [
        ((65, 128), ShardStrategy.BLOCK),
        ((64, 126), ShardStrategy.BLOCK),
        ((60, 128), ShardStrategy.HEIGHT),
        ((64, 100), ShardStrategy.WIDTH),
    ],
)
def test_a_remainder_is_an_invalid_core_grid(shape, strategy):
    with pytest.raises(RuntimeError, match="Invalid sharding core_grid"):
        create_sharded_memory_config(shape, CoreGrid(x=4, y=2), strategy)


def test_the_last_two_dims_may_be_the_shard_itself():
    def shard(orientation, grid):
        config = create_sharded_memory_config(
            (1, 1, 32, 96),
            grid,
            ShardStrategy.HEIGHT,
            orientation,
            use_height_and_width_as_shard_shape=True,
        )
        return config.shard_spec.shape

    assert shard(ShardOrientation.ROW_MAJOR, CoreGrid(x=4, y=2)) == [32, 96]
    assert shard(ShardOrientation.COL_MAJOR, CoreGrid(x=4, y=2)) == [96, 32]
    assert shard(None, GRID) == [32, 96]


def test_a_core_range_set_needs_the_shard_shape():
    with pytest.raises(RuntimeError, match="height and width must be shard shape with CoreRangeSet"):
        create_sharded_memory_config((64, 64), GRID, ShardStrategy.HEIGHT)


def test_the_grid_and_the_strategy_have_a_type():
    with pytest.raises(TypeError, match="Invalid core_grid type"):
        create_sharded_memory_config((64, 64), (2, 4), ShardStrategy.HEIGHT)
    with pytest.raises(TypeError, match=r"strategy must be a ttnn\.ShardStrategy"):
        create_sharded_memory_config((64, 64), CoreGrid(x=2, y=2), "height")


ROWS, COLUMNS = ShardOrientation.ROW_MAJOR, ShardOrientation.COL_MAJOR


@pytest.mark.parametrize(
    ("shape", "strategy", "orientation", "tile_layout", "shard"),
    [
        ((100, 99), ShardStrategy.BLOCK, ROWS, False, [25, 50]),
        ((100, 99), ShardStrategy.BLOCK, ROWS, True, [32, 50]),
        ((100, 99), ShardStrategy.BLOCK, COLUMNS, True, [64, 25]),
        ((100, 99), TensorMemoryLayout.HEIGHT_SHARDED, ROWS, False, [13, 99]),
        ((100, 96), TensorMemoryLayout.HEIGHT_SHARDED, ROWS, True, [13, 96]),
        ((128, 99), TensorMemoryLayout.WIDTH_SHARDED, ROWS, True, [128, 13]),
    ],
)
def test_the_rounding_variant_takes_any_grid_and_rounds_up(shape, strategy, orientation, tile_layout, shard):
    config = create_sharded_memory_config_(shape, GRID, strategy, orientation, tile_layout=tile_layout)
    assert config.shard_spec.shape == shard
    assert config.buffer_type is BufferType.L1


def test_the_rounding_variant_refuses_shards_that_are_whole_tiles_in_neither_direction():
    with pytest.raises(RuntimeError, match="Incorrect tensor shape"):
        create_sharded_memory_config_((100, 99), GRID, ShardStrategy.HEIGHT, ROWS, tile_layout=True)


def test_the_rounding_variant_needs_an_orientation():
    with pytest.raises(RuntimeError, match="Invalid type of shard orientation"):
        create_sharded_memory_config_((64, 64), GRID, ShardStrategy.HEIGHT, None)


def test_block_sharding_needs_a_rectangle_of_cores():
    corner = CoreRangeSet([CoreRange((0, 0), (1, 0)), CoreRange((0, 1), (0, 1))])
    with pytest.raises(RuntimeError, match="Invalid CoreRangeSet for block sharding strategy"):
        create_sharded_memory_config_((64, 64), corner, ShardStrategy.BLOCK, ROWS)
