"""Values that only steer hardware: TT-NN's names, defaults and conversions."""

from __future__ import annotations

import copy
import json
import pickle

import pytest

import softmesh as ttnn
from softmesh import hardware
from softmesh.cores import CoreCoord, CoreRangeSet
from softmesh.errors import ArgumentError
from softmesh.hardware import (
    NOC,
    Arch,
    BlackholeComputeKernelConfig,
    Conv1dConfig,
    Conv2dConfig,
    Conv2dDRAMSliceHeight,
    Conv2dL1FullSliceConfig,
    Conv2dSliceConfig,
    DataMovementProcessor,
    DispatchCoreAxis,
    DispatchCoreConfig,
    DispatchCoreType,
    DumpTensorMode,
    FabricConfig,
    FabricReliabilityMode,
    FabricTensixConfig,
    GeluVariant,
    LayerNormDefaultProgramConfig,
    LayerNormProgramConfig,
    LayerNormShardedMultiCoreProgramConfig,
    MathFidelity,
    MatmulMultiCoreReuseMultiCast1DProgramConfig,
    MatmulMultiCoreReuseMultiCastBatchedDRAMShardedProgramConfig,
    MatmulMultiCoreReuseMultiCastDRAMShardedProgramConfig,
    MatmulMultiCoreReuseMultiCastProgramConfig,
    MatmulMultiCoreReuseProgramConfig,
    MatmulProgramConfig,
    MinimalMatmulConfig,
    Op2DSliceConfig,
    PaddingMode,
    SDPAProgramConfig,
    SigmoidMode,
    SoftmaxDefaultProgramConfig,
    SoftmaxProgramConfig,
    SoftmaxShardedMultiCoreProgramConfig,
    SubDeviceId,
    ThrottleLevel,
    TileReshapeMapMode,
    Topology,
    UnaryOpType,
    UnaryWithParam,
    WormholeComputeKernelConfig,
    init_device_compute_kernel_config,
)

MATMUL = {"in0_block_w": 2, "per_core_M": 4, "per_core_N": 6}
BLOCKS = MATMUL | {"compute_with_storage_grid_size": (8, 4), "out_subblock_h": 1, "out_subblock_w": 2}
SHARDED_NORM = {"compute_with_storage_grid_size": (8, 4), "subblock_w": 1, "block_h": 2, "block_w": 3}

# Each config with the smallest set of arguments it can be built from.
REQUIRED = [
    (WormholeComputeKernelConfig, {}),
    (MatmulMultiCoreReuseProgramConfig, BLOCKS),
    (MatmulMultiCoreReuseMultiCastProgramConfig, BLOCKS | {"transpose_mcast": False}),
    (MatmulMultiCoreReuseMultiCast1DProgramConfig, BLOCKS | {"fuse_batch": True, "mcast_in0": True}),
    (MatmulMultiCoreReuseMultiCastDRAMShardedProgramConfig, MATMUL),
    (MatmulMultiCoreReuseMultiCastBatchedDRAMShardedProgramConfig, MATMUL),
    (MinimalMatmulConfig, {}),
    (LayerNormDefaultProgramConfig, {}),
    (LayerNormShardedMultiCoreProgramConfig, SHARDED_NORM | {"inplace": False}),
    (SoftmaxDefaultProgramConfig, {}),
    (SoftmaxShardedMultiCoreProgramConfig, SHARDED_NORM),
    (SDPAProgramConfig, {"compute_with_storage_grid_size": (8, 8), "q_chunk_size": 64, "k_chunk_size": 64}),
    (Conv2dConfig, {}),
    (Conv2dSliceConfig, {"slice_type": Conv2dDRAMSliceHeight}),
]


@pytest.mark.parametrize(("kind", "required"), REQUIRED)
def test_a_config_is_a_value(kind, required):
    one, other = kind(**required), kind(**required)
    assert one == other
    assert hash(one) == hash(other)
    assert copy.deepcopy(one) == one
    assert pickle.loads(pickle.dumps(one)) == one
    assert repr(one).startswith(f"{kind.__name__}(")
    assert all(getattr(one, name) == value for name, value in required.items())


@pytest.mark.parametrize(("kind", "required"), REQUIRED)
def test_a_config_refuses_what_it_does_not_have(kind, required):
    with pytest.raises(TypeError, match=f"{kind.__name__} has no field 'colour'"):
        kind(**required, colour="red")
    with pytest.raises(TypeError, match=f"{kind.__name__} takes keywords only"):
        kind(1)
    with pytest.raises(AttributeError):
        kind(**required).colour = "red"


@pytest.mark.parametrize(("kind", "required"), [case for case in REQUIRED if case[1]])
def test_a_config_without_a_required_field_is_a_type_error(kind, required):
    for name in required:
        with pytest.raises(TypeError, match=name):
            kind(**{key: value for key, value in required.items() if key != name})


def test_a_misspelt_field_is_told_the_right_one():
    with pytest.raises(ArgumentError, match=r"no field 'math_fidelty'\. Did you mean 'math_fidelity'"):
        WormholeComputeKernelConfig(math_fidelty=MathFidelity.HiFi4)


def test_a_config_prints_its_fields():
    assert repr(LayerNormDefaultProgramConfig(use_welford=True)) == (
        "LayerNormDefaultProgramConfig(legacy_reduction=False, legacy_rsqrt=False, use_welford=True)"
    )
    assert "math_fidelity=MathFidelity.HiFi2, math_approx_mode=True" in repr(
        WormholeComputeKernelConfig(math_fidelity=MathFidelity.HiFi2)
    )


def test_fields_stay_writable_and_are_converted_then_too():
    config = MinimalMatmulConfig()
    config.M_block_size = 8
    config.compute_with_storage_grid_size = (8, 7)
    assert config == MinimalMatmulConfig(M_block_size=8, compute_with_storage_grid_size=CoreCoord(8, 7))
    assert config != MinimalMatmulConfig()
    assert isinstance(config.compute_with_storage_grid_size, CoreCoord)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("M_block_size", 1.0),
        ("M_block_size", "1"),
        ("compute_with_storage_grid_size", 8),
        ("subblock_h", None),
    ],
)
def test_a_value_of_the_wrong_kind_is_a_type_error_that_names_the_field(name, value):
    with pytest.raises(TypeError, match=rf"MinimalMatmulConfig\.{name} cannot be"):
        MinimalMatmulConfig(**{name: value})


def test_a_flag_is_true_or_false():
    with pytest.raises(TypeError, match="it is True or False"):
        WormholeComputeKernelConfig(packer_l1_acc=1)


def test_matmul_output_blocks_default_to_what_a_core_computes():
    for kind, more in (
        (MatmulMultiCoreReuseMultiCastProgramConfig, {"transpose_mcast": False}),
        (MatmulMultiCoreReuseMultiCast1DProgramConfig, {"fuse_batch": True, "mcast_in0": True}),
    ):
        config = kind(**BLOCKS, **more)
        assert (config.out_block_h, config.out_block_w) == (4, 6)
        assert kind(**BLOCKS, **more, out_block_h=2).out_block_h == 2
        assert isinstance(config, MatmulProgramConfig)


@pytest.mark.parametrize(
    "config",
    [
        MatmulMultiCoreReuseProgramConfig(
            compute_with_storage_grid_size=(8, 4),
            in0_block_w=1,
            out_subblock_h=1,
            out_subblock_w=1,
            per_core_M=1,
            per_core_N=2,
        ),
        ttnn.MatmulMultiCoreReuseMultiCast1DProgramConfig(
            compute_with_storage_grid_size=(8, 4),
            in0_block_w=1,
            out_subblock_h=1,
            out_subblock_w=1,
            per_core_M=1,
            per_core_N=2,
            fuse_batch=True,
            fused_activation=(ttnn.UnaryOpType.GELU, True),
            mcast_in0=True,
            hop_cores=CoreRangeSet([ttnn.CoreRange((3, 6), (3, 6))]),
        ),
        ttnn.MatmulMultiCoreReuseMultiCastDRAMShardedProgramConfig(in0_block_w=1, per_core_M=1, per_core_N=3),
    ],
    ids=lambda config: type(config).__name__,
)
def test_blocks_of_a_product_are_written_as_json_and_read_again(config):
    written = json.loads(config.to_json())
    assert written["per_core_N"] == config.per_core_N
    assert type(config).from_json(config.to_json()) == config
    for bad in ("[]", "{", '{"per_core_N": 1}', '{"hop_cores": [{"start": 1}]}'):
        with pytest.raises(ArgumentError, match=r"from_json\(\): not what to_json\(\) wrote|incompatible function"):
            type(config).from_json(bad)


def test_defaults_are_those_of_ttnn():
    config = WormholeComputeKernelConfig()
    assert (config.math_fidelity, config.math_approx_mode) == (MathFidelity.Invalid, True)
    assert config.throttle_level is ThrottleLevel.NO_THROTTLE
    one_d = MatmulMultiCoreReuseMultiCast1DProgramConfig(**BLOCKS, fuse_batch=True, mcast_in0=True)
    assert (one_d.gather_in0, one_d.num_global_cb_receivers, one_d.hop_cores) == (False, 1, CoreRangeSet([]))
    attention = SDPAProgramConfig(compute_with_storage_grid_size=(8, 8), q_chunk_size=1, k_chunk_size=1)
    assert (attention.max_cores_per_head_batch, attention.exp_approx_mode) == (16, None)
    convolution = Conv2dConfig()
    assert str(convolution.output_layout) == "Layout.TILE"
    assert (convolution.padding_mode, convolution.act_block_w_div) == (PaddingMode.Zeros, 1)


def test_names_that_mean_the_same_are_the_same():
    assert BlackholeComputeKernelConfig is WormholeComputeKernelConfig
    assert Conv1dConfig is Conv2dConfig
    assert Op2DSliceConfig is Conv2dSliceConfig
    assert Conv2dSliceConfig.SliceTypeEnum.DRAMSliceHeight is Conv2dDRAMSliceHeight
    assert Conv2dL1FullSliceConfig.num_slices == 0


def test_families_of_program_configs_share_a_base():
    assert issubclass(LayerNormDefaultProgramConfig, LayerNormProgramConfig)
    assert issubclass(LayerNormShardedMultiCoreProgramConfig, LayerNormProgramConfig)
    assert issubclass(SoftmaxDefaultProgramConfig, SoftmaxProgramConfig)
    assert issubclass(SoftmaxShardedMultiCoreProgramConfig, SoftmaxProgramConfig)


def test_a_compute_kernel_config_is_made_for_any_arch():
    made = init_device_compute_kernel_config(Arch.BLACKHOLE, fp32_dest_acc_en=True)
    assert made == WormholeComputeKernelConfig(math_fidelity=MathFidelity.LoFi, fp32_dest_acc_en=True)
    given = WormholeComputeKernelConfig(math_fidelity=MathFidelity.HiFi4)
    copied = init_device_compute_kernel_config(Arch.WORMHOLE_B0, given, math_fidelity=MathFidelity.LoFi)
    assert copied == given
    assert copied is not given


# Activations


@pytest.mark.parametrize(
    ("arguments", "params"),
    [
        ((UnaryOpType.RELU,), []),
        ((UnaryOpType.GELU, True), [1.0]),
        ((UnaryOpType.CLAMP_TSS, 0, 6), [0.0, 6.0]),
        (((UnaryOpType.GELU, 0.5),), [0.5]),
    ],
)
def test_a_unary_op_has_up_to_two_parameters(arguments, params):
    unary = UnaryWithParam(*arguments)
    assert unary.params == params
    assert unary == UnaryWithParam(*arguments)
    assert unary != UnaryWithParam(UnaryOpType.EXP)
    assert repr(unary) == f"UnaryWithParam(op_type={unary.op_type}, params={params})"


@pytest.mark.parametrize(
    "arguments", [("relu",), (UnaryOpType.RELU, "x"), (UnaryOpType.RELU, 1, 2, 3), ((UnaryOpType.RELU,),)]
)
def test_what_is_no_unary_op_is_a_type_error(arguments):
    with pytest.raises(TypeError, match="incompatible function arguments"):
        UnaryWithParam(*arguments)


@pytest.mark.parametrize("given", [UnaryOpType.GELU, (UnaryOpType.GELU, True), UnaryWithParam(UnaryOpType.GELU)])
def test_an_activation_may_be_given_short(given):
    config = MatmulMultiCoreReuseMultiCastDRAMShardedProgramConfig(**MATMUL, fused_activation=given)
    assert isinstance(config.fused_activation, UnaryWithParam)
    assert config.fused_activation.op_type is UnaryOpType.GELU
    assert Conv2dConfig(activation=given).activation == config.fused_activation
    with pytest.raises(TypeError, match="fused_activation cannot be 'gelu'"):
        MatmulMultiCoreReuseMultiCastDRAMShardedProgramConfig(**MATMUL, fused_activation="gelu")


# Dispatch, enums


def test_what_a_dispatch_config_leaves_open_the_machine_decides():
    eth, worker, row, col = *reversed(DispatchCoreType), *DispatchCoreAxis
    assert DispatchCoreConfig().resolved(eth, row) == DispatchCoreConfig(eth, row)
    assert DispatchCoreConfig(worker).resolved(eth, col) == DispatchCoreConfig(worker, col)
    assert DispatchCoreConfig(eth).resolved(worker, col) == DispatchCoreConfig(eth, row)
    tensix = DispatchCoreConfig(worker, fabric_tensix_config=FabricTensixConfig.MUX)
    assert tensix.resolved(eth, row).fabric_tensix_config is FabricTensixConfig.MUX


def test_ethernet_cores_do_not_dispatch_by_column():
    with pytest.raises(RuntimeError, match="COL axis is not supported for ETH dispatch core type"):
        DispatchCoreConfig(DispatchCoreType.ETH, DispatchCoreAxis.COL)


def test_a_sub_device_id_is_its_number():
    assert repr(SubDeviceId(1)) == "SubDeviceId(1)"
    assert SubDeviceId(1) == SubDeviceId(id=1)
    assert SubDeviceId(1) != SubDeviceId(2)


@pytest.mark.parametrize(
    ("enum", "members"),
    [
        (MathFidelity, {"LoFi": 0, "HiFi2": 2, "HiFi3": 3, "HiFi4": 4, "Invalid": 255}),
        (ThrottleLevel, {"NO_THROTTLE": 0} | {f"LEVEL_{i}": i for i in range(1, 6)}),
        (GeluVariant, {"Accurate": 0, "FastLut": 1, "Tanh": 2}),
        (SigmoidMode, {"FastApproximate": 0, "AccurateWithFastExp": 1, "Accurate": 2}),
        (TileReshapeMapMode, {"CACHE": 0, "RECREATE": 1}),
        (DispatchCoreType, {"WORKER": 0, "ETH": 1}),
        (DispatchCoreAxis, {"ROW": 0, "COL": 1}),
        (FabricTensixConfig, {"DISABLED": 0, "MUX": 1}),
        (FabricReliabilityMode, {"STRICT_INIT": 0, "RELAXED_INIT": 1, "DYNAMIC_RECONFIG": 2}),
        (Topology, {"Linear": 1, "Ring": 2, "Mesh": 3, "Torus": 4}),
        (Arch, {"WORMHOLE_B0": 2, "BLACKHOLE": 3, "QUASAR": 4}),
        (DumpTensorMode, {"DISTRIBUTED_GATHER": 0, "LOCAL": 1}),
        (NOC, {"RISCV_0_default": 0, "RISCV_1_default": 1}),
        (DataMovementProcessor, {f"RISCV_{i}": i for i in range(8)}),
        (PaddingMode, {"Zeros": 0, "Replicate": 1}),
    ],
)
def test_enums_have_the_names_and_numbers_of_ttnn(enum, members):
    assert {member.name: member.value for member in enum} == members


def test_fabric_configs_are_numbered_as_in_ttnn():
    assert [config.name for config in FabricConfig] == [
        "DISABLED",
        "FABRIC_1D_NEIGHBOR_EXCHANGE",
        "FABRIC_1D",
        "FABRIC_1D_RING",
        "FABRIC_2D",
        "FABRIC_2D_TORUS_X",
        "FABRIC_2D_TORUS_Y",
        "FABRIC_2D_TORUS_XY",
        "CUSTOM",
    ]
    assert [config.value for config in FabricConfig] == list(range(9))


def test_unary_ops_are_numbered_without_gaps():
    assert [op.value for op in UnaryOpType] == list(range(119))
    assert UnaryOpType.SILU.value == 58


def test_enums_print_both_ways_as_python():
    assert str(Topology.Ring) == repr(Topology.Ring) == "Topology.Ring"


def test_the_table_of_contents_is_complete():
    assert all(hasattr(hardware, name) for name in hardware.__all__)


def test_a_fabric_type_is_a_set_of_bits():
    kind = ttnn.FabricType
    assert int(kind.TORUS_XY) == int(kind.TORUS_X) | int(kind.TORUS_Y)
    assert kind.TORUS_X | kind.TORUS_Y is kind.TORUS_XY
    assert kind.TORUS_XY & kind.TORUS_X is kind.TORUS_X
    assert kind.TORUS_X & kind.TORUS_Y == 0


def test_what_dispatch_leaves_open_is_chosen_when_it_is_made(idle_machine):
    kind, axis = ttnn.DispatchCoreType, ttnn.DispatchCoreAxis
    ttnn.use_system("T3000")
    assert (ttnn.DispatchCoreConfig().type, ttnn.DispatchCoreConfig().axis) == (kind.ETH, axis.ROW)
    assert ttnn.DispatchCoreConfig(axis=axis.COL).type is kind.WORKER
    ttnn.use_system("P150")
    assert (ttnn.DispatchCoreConfig().type, ttnn.DispatchCoreConfig().axis) == (kind.WORKER, axis.COL)
    mux = ttnn.DispatchCoreConfig(fabric_tensix_config=ttnn.FabricTensixConfig.MUX)
    assert mux.axis is axis.ROW
    with pytest.raises(RuntimeError, match="ROW dispatch core axis is not supported for blackhole arch unless"):
        ttnn.DispatchCoreConfig(axis=axis.ROW)
