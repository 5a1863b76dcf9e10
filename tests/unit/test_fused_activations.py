"""Activations that a product's program config asks for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from operands import R, S, put, random

import softmesh as ttnn
from softmesh.errors import MeshError, PartialWarning

Config = Callable[..., Any]
RELU = ttnn.UnaryOpType.RELU


def plain_blocks(**more: Any) -> Any:
    return ttnn.MatmulMultiCoreReuseMultiCastProgramConfig(
        compute_with_storage_grid_size=(1, 1),
        in0_block_w=1,
        out_subblock_h=1,
        out_subblock_w=1,
        per_core_M=1,
        per_core_N=1,
        transpose_mcast=False,
        **more,
    )


def line_blocks(**more: Any) -> Any:
    return ttnn.MatmulMultiCoreReuseMultiCast1DProgramConfig(
        compute_with_storage_grid_size=(1, 1),
        in0_block_w=1,
        out_subblock_h=1,
        out_subblock_w=1,
        per_core_M=1,
        per_core_N=1,
        fuse_batch=True,
        mcast_in0=True,
        **more,
    )


def bank_blocks(**more: Any) -> Any:
    return ttnn.MatmulMultiCoreReuseMultiCastDRAMShardedProgramConfig(in0_block_w=1, per_core_M=1, per_core_N=1, **more)


CONFIGS = [plain_blocks, line_blocks, bank_blocks]
FORMS = {
    "op type": (RELU, F.relu),
    "with its number": (
        ttnn.UnaryWithParam(ttnn.UnaryOpType.LEAKY_RELU, 0.5),
        lambda x: F.leaky_relu(x, 0.5),
    ),
    "a pair": ((ttnn.UnaryOpType.GELU, False), F.gelu),
    "a list": ([ttnn.UnaryOpType.GELU, True], F.gelu),
    "a power": ([ttnn.UnaryOpType.POWER_ITERATIVE, 3], lambda x: x**3),
}


@pytest.mark.parametrize("config", CONFIGS)
@pytest.mark.parametrize("form", FORMS)
def test_linear_applies_the_activation_of_its_program_config_behind_the_bias(device, config: Config, form: str):
    given, function = FORMS[form]
    x, w, b = random(32, 64), random(64, 32), random(1, 32)
    for _ in range(2):  # as planned, then as compiled
        made = ttnn.linear(
            put(x, device),
            put(w, device),
            bias=put(b, device),
            program_config=config(fused_activation=given),
        )
        torch.testing.assert_close(ttnn.to_torch(made), function(x @ w + b), rtol=1e-4, atol=1e-4)


def test_programs_with_and_without_an_activation_are_two(device):
    x, w = put(-torch.ones(32, 32), device), put(torch.ones(32, 32), device)
    for activation, expected in ((None, -32.0), (RELU, 0.0), (None, -32.0), (RELU, 0.0)):
        made = ttnn.matmul(x, w, program_config=plain_blocks(fused_activation=activation))
        assert ttnn.to_torch(made)[0, 0] == expected
    config = plain_blocks()
    assert ttnn.to_torch(ttnn.matmul(x, w, program_config=config))[0, 0] == -32
    config.fused_activation = RELU
    assert ttnn.to_torch(ttnn.matmul(x, w, program_config=config))[0, 0] == 0


def test_every_product_with_a_program_config_applies_its_activation(device):
    x, w, shift = random(32, 64), random(64, 32), random(32, 32)
    config = line_blocks(fused_activation=RELU)
    added = ttnn.addmm(put(shift, device), put(x, device), put(w, device), program_config=config)
    torch.testing.assert_close(ttnn.to_torch(added), shift + F.relu(x @ w), rtol=1e-4, atol=1e-4)
    experts, marks = random(1, 3, 64, 32), torch.tensor([[[[1.0, 0.0, 1.0]]]])
    made = ttnn.sparse_matmul(
        put(x.reshape(1, 1, 32, 64), device),
        put(experts, device),
        sparsity=put(marks, device, layout=ttnn.ROW_MAJOR_LAYOUT),
        program_config=line_blocks(fused_activation=ttnn.UnaryOpType.EXP),
    )
    expected = torch.exp(x @ experts) * marks.reshape(1, 3, 1, 1)
    torch.testing.assert_close(ttnn.to_torch(made).reshape(expected.shape), expected, rtol=1e-4, atol=1e-4)


def test_the_activation_of_a_partial_sum_is_told(pair):
    x, w = put(random(32, 64), pair, (R, S(1))), put(random(64, 32), pair, (R, S(0)))
    with pytest.warns(PartialWarning, match="linear"):
        ttnn.linear(x, w, program_config=plain_blocks(fused_activation=RELU))


@pytest.mark.filterwarnings("ignore::softmesh.FabricWarning")
@pytest.mark.parametrize("behind", [None, "silu"])
def test_a_unified_product_applies_activations_to_the_whole_sum(pair, behind: str | None):
    x, w = random(32, 64), random(64, 32)
    made = ttnn.distributed.linear(
        put(x, pair, (R, S(1))),
        put(w, pair, (R, S(0))),
        program_config=plain_blocks(fused_activation=ttnn.UnaryOpType.GELU),
        activation=behind,
    )
    expected = F.gelu(x @ w)
    torch.testing.assert_close(ttnn.compose(made), F.silu(expected) if behind else expected, rtol=1e-4, atol=1e-4)


def test_an_activation_beside_shards_belongs_into_the_program_config(device):
    memory = ttnn.create_sharded_memory_config((32, 64), ttnn.CoreGrid(x=2, y=1), ttnn.ShardStrategy.WIDTH)
    x, w = put(random(32, 64), device, memory_config=memory), put(random(64, 32), device)
    for product in (ttnn.linear, ttnn.matmul):
        with pytest.raises(MeshError, match="Sharded matmul run with relu activation: this should be placed in"):
            product(x, w, activation="relu")


def test_sparse_products_name_their_experts_by_indices(device):
    x, experts = random(1, 2, 32, 64), random(1, 4, 64, 32)
    marks = put(torch.zeros(1, 1, 1, 4), device, layout=ttnn.ROW_MAJOR_LAYOUT)
    chosen = put(
        torch.tensor([[[[3, 1]]]], dtype=torch.int32),
        device,
        dtype=ttnn.uint16,
        layout=ttnn.ROW_MAJOR_LAYOUT,
    )
    given = {"sparsity": marks, "indices": chosen}
    made = ttnn.sparse_matmul(put(x, device), put(experts, device), is_input_a_sparse=True, **given)
    torch.testing.assert_close(ttnn.to_torch(made), x @ experts[:, [3, 1]], rtol=1e-4, atol=1e-4)
    made = ttnn.sparse_matmul(put(x, device), put(experts, device), **given)
    expected = x.reshape(1, 2, 1, 1, 32, 64) @ experts[0, [3, 1]]
    torch.testing.assert_close(ttnn.to_torch(made), expected, rtol=1e-4, atol=1e-4)
    with pytest.raises(MeshError, match=r"nnz \(2\) must not be supplied together with indices"):
        ttnn.sparse_matmul(put(x, device), put(experts, device), nnz=2, **given)


# -- blocks that do not fit ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("blocks", "told"),
    [
        ({"in0_block_w": 3}, r"Kt \(4\) must be divisible by in0_block_w \(3\)"),
        ({"out_block_w": 0}, "out_block_w and out_block_h must be non-zero"),
        ({"per_core_N": 4, "out_block_w": 4, "out_subblock_w": 3}, "must be divisible by out_subblock_w"),
        ({"per_core_M": 2, "out_block_h": 3}, "must be divisible by out_block_h"),
    ],
)
def test_blocks_of_a_program_config_must_divide_the_product(device, blocks, told):
    config = line_blocks()
    for name, value in blocks.items():
        setattr(config, name, value)
    x, w = put(random(64, 128), device), put(random(128, 64), device)
    for product in (ttnn.matmul, ttnn.linear):
        with pytest.raises(MeshError, match=told):
            product(x, w, program_config=config)


def sparse_operands(device: ttnn.MeshDevice) -> dict[str, Any]:
    return {
        "input_tensor_a": put(random(1, 2, 32, 64), device),
        "input_tensor_b": put(random(1, 4, 64, 32), device),
        "sparsity": put(torch.ones(1, 2, 1, 4), device, layout=ttnn.ROW_MAJOR_LAYOUT),
    }


def test_sparse_products_name_what_does_not_fit(device):
    def ids(*shape: int, **more: Any) -> ttnn.Tensor:
        given = {"dtype": ttnn.uint16, "layout": ttnn.ROW_MAJOR_LAYOUT} | more
        return put(torch.zeros(shape, dtype=torch.int32), device, **given)

    for changed, told in (
        ({"is_input_b_sparse": False}, "sparse_matmul requires at least one of is_input_a_sparse or"),
        (
            {"input_tensor_a": put(random(1, 2, 32, 64), device, layout=ttnn.ROW_MAJOR_LAYOUT)},
            "A must be TILE layout",
        ),
        ({"input_tensor_b": ids(1, 4, 64, 32, layout=ttnn.TILE_LAYOUT)}, "B must be a floating point type"),
        ({"sparsity": put(torch.ones(1, 2, 1, 4), device)}, "Sparsity tensor must be ROW_MAJOR layout"),
        (
            {"sparsity": put(torch.ones(1, 1, 1, 4), device, layout=ttnn.ROW_MAJOR_LAYOUT)},
            "sparsity logical_volume",
        ),
        ({"indices": ids(1, 1, 1, 2, dtype=ttnn.uint32)}, "indices must be UINT16 dtype"),
        ({"indices": ids(1, 1, 2, 1)}, "single ROW_MAJOR stick"),
        ({"indices": ids(1, 1, 1, 5)}, "must be <= the number of sparse groups"),
        (
            {"indices": ids(1, 1, 1, 2), "is_input_a_sparse": True, "is_input_b_sparse": False},
            "requires is_input_b_sparse",
        ),
    ):
        with pytest.raises(MeshError, match=told):
            ttnn.sparse_matmul(**(sparse_operands(device) | changed))


def test_marks_of_sparse_products_may_have_any_shape(device):
    given = sparse_operands(device)
    plain = ttnn.sparse_matmul(**given)
    marks = put(torch.ones(1, 1, 2, 4), device, layout=ttnn.ROW_MAJOR_LAYOUT)
    assert torch.equal(ttnn.to_torch(ttnn.sparse_matmul(**(given | {"sparsity": marks}))), ttnn.to_torch(plain))


def _in1_to_all(rows: int, columns: int, high: int, wide: int) -> ttnn.MatmulMultiCoreReuseMultiCast1DProgramConfig:
    return ttnn.MatmulMultiCoreReuseMultiCast1DProgramConfig(
        compute_with_storage_grid_size=(2, 1),
        in0_block_w=1,
        out_subblock_h=1,
        out_subblock_w=1,
        out_block_h=high,
        out_block_w=wide,
        per_core_M=rows,
        per_core_N=columns,
        fuse_batch=True,
        mcast_in0=False,
    )


@pytest.mark.parametrize(
    ("tiles", "blocks", "text"),
    [
        ((1, 3), (2, 2, 2, 2), "requires N .*single per_core_N block"),
        ((1, 1), (2, 4, 2, 2), "logical N tail to be in the final internal W block"),
        ((1, 2), (4, 2, 2, 2), "single-Y mcast_in1 sender requires the logical M tail"),
        ((3, 2), (4, 2, 2, 2), "partial final H block only when per_core_M contains one internal H block"),
        ((3, 2), (4, 2, 4, 2), None),
        ((5, 1), (2, 2, 2, 2), None),
    ],
)
def test_a_product_is_dealt_out_as_its_program_can(device, tiles, blocks, text):
    a, b = (put(torch.ones(*shape), device) for shape in ((32 * tiles[0], 32), (32, 32 * tiles[1])))
    if text is None:
        assert ttnn.matmul(a, b, program_config=_in1_to_all(*blocks)).shape == [32 * tiles[0], 32 * tiles[1]]
    else:
        with pytest.raises(RuntimeError, match=text):
            ttnn.matmul(a, b, program_config=_in1_to_all(*blocks))


def test_a_bias_is_a_whole_block_where_the_program_reads_one(device):
    a, b = put(torch.ones(64, 32), device), put(torch.ones(32, 32), device)
    config = ttnn.MatmulMultiCoreReuseProgramConfig(
        compute_with_storage_grid_size=(1, 1),
        in0_block_w=1,
        out_subblock_h=1,
        out_subblock_w=1,
        per_core_M=2,
        per_core_N=1,
    )
    text = "padded second last dimension of bias, 32, not equal to expected bias height, 64"
    with pytest.raises(RuntimeError, match=text):
        ttnn.linear(a, b, bias=put(torch.ones(32, 32), device), program_config=config)
    for rows in (1, 64):
        assert ttnn.linear(a, b, bias=put(torch.ones(rows, 32), device), program_config=config).shape == [64, 32]


def test_what_addmm_adds_is_a_float_that_fits_unless_it_counts_for_nothing(device):
    a, wide = put(torch.ones(4, 4), device), put(torch.ones(8, 8), device)
    with pytest.raises(RuntimeError, match="must have shape matching one of result of mat1_tensor @ mat2_tensor"):
        ttnn.addmm(wide, a, a)
    assert ttnn.addmm(wide, a, a, beta=0.0).shape == [4, 4]
    with pytest.raises(RuntimeError, match="types are supported for input_tensor"):
        ttnn.addmm(ttnn.typecast(a, ttnn.uint32), a, a)


@pytest.mark.parametrize("side", ["a", "b"])
def test_a_factor_beside_an_activated_one_may_be_part_of_a_sum(pair, side: str):
    """silu(a) * b is linear in b, and not in a."""
    x, w, gate = random(32, 64), random(64, 32), random(32, 32)
    part = ttnn.matmul(put(x, pair, (R, S(1))), put(w, pair, (R, S(0))))  # each device has one of its terms
    activated = {f"input_tensor_{side}_activations": [ttnn.UnaryOpType.SILU]}
    whole = put(gate, pair)
    made = ttnn.multiply(*((whole, part) if side == "a" else (part, whole)), **activated)
    total = ttnn.to_torch(ttnn.get_device_tensors(ttnn.all_reduce(made, cluster_axis=1))[0])
    torch.testing.assert_close(total, F.silu(gate) * (x @ w), rtol=1e-4, atol=1e-4)
    with pytest.raises(PartialWarning, match="still Partial"):
        ttnn.multiply(*((part, whole) if side == "a" else (whole, part)), **activated)
