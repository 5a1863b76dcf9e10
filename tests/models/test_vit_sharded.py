"""A small ViT in the calls of its sharded TT-NN port: patches by fold, encoder layers in shards of L1, a classifier."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pytest
import torch
import torch.nn.functional as F
from model_tensors import Chance, assert_agrees, put, sharded

import softmesh as ttnn

IMAGES, SIDE, PATCH = 8, 112, 16
WIDTH, HEADS, HEAD, HIDDEN, CLASSES, LAYERS = 256, 4, 64, 1024, 96, 2
PATCHES = (SIDE // PATCH) ** 2
TOKENS = 64  # the patches and the token of the class, padded to whole tiles
GRID_X = GRID_Y = 8  # one row of cores for each image
HEADS_X = HEADS // 2  # columns of cores, two heads on each
BLOCK = ttnn.L1_BLOCK_SHARDED_MEMORY_CONFIG
HEIGHT = ttnn.L1_HEIGHT_SHARDED_MEMORY_CONFIG
BF8 = ttnn.bfloat8_b
LAYOUTS = ttnn.TensorMemoryLayout


@dataclass
class Layer:
    qkv: torch.Tensor  # query, key and value of a head beside each other, as sharded kernels read them
    qkv_bias: torch.Tensor
    out: torch.Tensor
    out_bias: torch.Tensor
    up: torch.Tensor
    up_bias: torch.Tensor
    down: torch.Tensor
    down_bias: torch.Tensor
    norms: list[tuple[torch.Tensor, torch.Tensor]]


@dataclass
class ViT:
    patches: torch.Tensor
    patch_bias: torch.Tensor
    class_token: torch.Tensor
    places: torch.Tensor
    layers: list[Layer]
    norm: tuple[torch.Tensor, torch.Tensor]
    classes: torch.Tensor


def random_model(seed: int) -> ViT:
    chance = Chance(seed)

    def norm() -> tuple[torch.Tensor, torch.Tensor]:
        return chance.values(WIDTH, scale=0.1, around=1.0), chance.values(WIDTH, scale=0.1)

    def bias(width: int) -> torch.Tensor:
        return chance.values(width, scale=0.1)

    def layer() -> Layer:
        return Layer(
            *(chance.weight(WIDTH, 3 * WIDTH), bias(3 * WIDTH)),
            *(chance.weight(WIDTH, WIDTH), bias(WIDTH)),
            *(chance.weight(WIDTH, HIDDEN), bias(HIDDEN)),
            *(chance.weight(HIDDEN, WIDTH), bias(WIDTH)),
            [norm(), norm()],
        )

    return ViT(
        chance.weight(PATCH * PATCH * 4, WIDTH),
        bias(WIDTH),
        chance.values(1, 1, WIDTH),
        chance.values(1, PATCHES + 1, WIDTH, scale=0.3),
        [layer() for _ in range(LAYERS)],
        norm(),
        chance.weight(WIDTH, CLASSES),
    )


# -- in torch ----------------------------------------------------------------------------------------


def torch_embedding(model: ViT, images: torch.Tensor) -> torch.Tensor:
    """Images (N, H, W, 4) to (N, TOKENS, WIDTH): patches row by row, the class in front, zeros behind."""
    patches = images.unflatten(2, (-1, PATCH)).unflatten(1, (-1, PATCH)).transpose(2, 3).flatten(3).flatten(1, 2)
    x = patches @ model.patches + model.patch_bias
    x = torch.cat([model.class_token.expand(IMAGES, 1, WIDTH), x], 1) + model.places
    return F.pad(x, (0, 0, 0, TOKENS - PATCHES - 1))


def torch_layer(x: torch.Tensor, layer: Layer, mask: torch.Tensor | None) -> torch.Tensor:
    normed = F.layer_norm(x, (WIDTH,), *layer.norms[0], eps=1e-12)
    qkv = (normed @ layer.qkv + layer.qkv_bias).unflatten(-1, (HEADS, 3, HEAD))
    query, key, value = (part.transpose(1, 2) for part in qkv.unbind(-2))
    attended = F.scaled_dot_product_attention(query, key, value, attn_mask=mask)
    x = x + attended.transpose(1, 2).flatten(-2) @ layer.out + layer.out_bias
    normed = F.layer_norm(x, (WIDTH,), *layer.norms[1], eps=1e-12)
    return x + F.gelu(normed @ layer.up + layer.up_bias) @ layer.down + layer.down_bias


def torch_vit(model: ViT, images: torch.Tensor, mask: torch.Tensor | None) -> torch.Tensor:
    x = torch_embedding(model, images)
    for layer in model.layers:
        x = torch_layer(x, layer, mask)
    return F.layer_norm(x, (WIDTH,), *model.norm, eps=1e-12)[:, 0] @ model.classes


# -- in TT-NN ----------------------------------------------------------------------------------------

ROWS = TOKENS // 32  # tiles of one image


def product(inputs: int, outputs: int, activation: ttnn.UnaryWithParam | None = None) -> dict[str, object]:
    """How a linear of block shards is spread over 8 by 8 cores."""
    columns = outputs // 32 // GRID_X
    program = ttnn.MatmulMultiCoreReuseMultiCastProgramConfig(
        compute_with_storage_grid_size=(GRID_X, GRID_Y),
        in0_block_w=inputs // 32 // GRID_X,
        out_subblock_h=1,
        out_subblock_w=columns,
        per_core_M=ROWS,
        per_core_N=columns,
        transpose_mcast=False,
        fused_activation=activation,
    )
    return {"memory_config": BLOCK, "dtype": BF8, "program_config": program}


def scores_program(inner: int, columns: int) -> ttnn.MatmulMultiCoreReuseProgramConfig:
    return ttnn.MatmulMultiCoreReuseProgramConfig(
        compute_with_storage_grid_size=(HEADS_X, GRID_Y),
        in0_block_w=inner,
        out_subblock_h=1,
        out_subblock_w=columns,
        per_core_M=2 * ROWS,
        per_core_N=columns,
    )


NORM = ttnn.LayerNormShardedMultiCoreProgramConfig(
    compute_with_storage_grid_size=(GRID_X, GRID_Y),
    subblock_w=WIDTH // 32 // GRID_X,
    block_h=ROWS,
    block_w=WIDTH // 32 // GRID_X,
    inplace=False,
)
SOFTMAX = ttnn.SoftmaxShardedMultiCoreProgramConfig(
    compute_with_storage_grid_size=(HEADS_X, GRID_Y), subblock_w=ROWS, block_h=2 * ROWS, block_w=ROWS
)
ONE_IMAGE_A_ROW = sharded(LAYOUTS.BLOCK_SHARDED, (TOKENS, WIDTH // GRID_X), GRID_X, GRID_Y)
TWO_HEADS_A_CORE = sharded(LAYOUTS.BLOCK_SHARDED, (TOKENS, 3 * WIDTH // HEADS_X), HEADS_X, GRID_Y)


class DeviceLayer:
    def __init__(self, layer: Layer, device: ttnn.MeshDevice) -> None:
        def matrix(values: torch.Tensor) -> ttnn.Tensor:
            return put(values.reshape(-1, values.shape[-1]), device, BF8)

        self.qkv, self.qkv_bias = matrix(layer.qkv), matrix(layer.qkv_bias)
        self.out, self.out_bias = matrix(layer.out), matrix(layer.out_bias)
        self.up, self.up_bias = matrix(layer.up), matrix(layer.up_bias)
        self.down, self.down_bias = matrix(layer.down), matrix(layer.down_bias)
        self.norms = [[put(values.reshape(1, -1), device) for values in norm] for norm in layer.norms]

    def __call__(self, x: ttnn.Tensor, mask: ttnn.Tensor | None) -> ttnn.Tensor:
        normed = self.norm(x, 0)
        attended = self.attention(normed, mask)
        ttnn.deallocate(normed)
        x = ttnn.add(attended, x, memory_config=BLOCK, dtype=BF8)
        ttnn.deallocate(attended)
        gelu = ttnn.UnaryWithParam(ttnn.UnaryOpType.GELU, 1.0)
        hidden = ttnn.linear(self.norm(x, 1), self.up, bias=self.up_bias, **product(WIDTH, HIDDEN, gelu))
        hidden = ttnn.linear(hidden, self.down, bias=self.down_bias, **product(HIDDEN, WIDTH))
        return ttnn.add(hidden, x, memory_config=BLOCK, dtype=BF8)

    def norm(self, x: ttnn.Tensor, which: int) -> ttnn.Tensor:
        weight, bias = self.norms[which]
        precise = ttnn.WormholeComputeKernelConfig(math_fidelity=ttnn.MathFidelity.HiFi4, fp32_dest_acc_en=True)
        return ttnn.layer_norm(
            x, weight=weight, bias=bias, memory_config=BLOCK, program_config=NORM, compute_kernel_config=precise
        )

    def attention(self, x: ttnn.Tensor, mask: ttnn.Tensor | None) -> ttnn.Tensor:
        qkv = ttnn.linear(x, self.qkv, bias=self.qkv_bias, **product(WIDTH, 3 * WIDTH))
        by_heads = ttnn.reshard(qkv, TWO_HEADS_A_CORE)
        ttnn.deallocate(qkv)
        query, key, value = ttnn.transformer.split_query_key_value_and_split_heads(
            by_heads, memory_config=HEIGHT, num_heads=HEADS
        )
        ttnn.deallocate(by_heads)
        scores = ttnn.matmul(
            query, key, memory_config=HEIGHT, dtype=BF8, program_config=scores_program(HEAD // 32, ROWS)
        )
        ttnn.deallocate(query)
        ttnn.deallocate(key)
        weights = softmax_in_place(scores, mask)
        value = ttnn.reallocate(value)
        attended = ttnn.matmul(
            weights, value, memory_config=HEIGHT, dtype=BF8, program_config=scores_program(ROWS, HEAD // 32)
        )
        ttnn.deallocate(weights)
        joined = ttnn.transformer.concatenate_heads(attended, memory_config=BLOCK)
        joined = ttnn.to_memory_config(joined, ONE_IMAGE_A_ROW)
        return ttnn.linear(joined, self.out, bias=self.out_bias, **product(WIDTH, WIDTH))


def softmax_in_place(scores: ttnn.Tensor, mask: ttnn.Tensor | None) -> ttnn.Tensor:
    """Over the scores themselves: their memory holds the weights afterwards."""
    address = scores.buffer_address()
    if mask is None:
        scores = ttnn.multiply_(scores, HEAD**-0.5)
        weights = ttnn.softmax_in_place(scores, program_config=SOFTMAX)
    else:
        weights = ttnn.transformer.attention_softmax_(
            scores, attention_mask=mask, head_size=HEAD, program_config=SOFTMAX
        )
    assert weights.buffer_address() == address
    assert weights.memory_config().shard_spec.shape == [2 * TOKENS, TOKENS]
    return weights


def embedding(model: ViT, images: torch.Tensor, device: ttnn.MeshDevice) -> ttnn.Tensor:
    """Patches: sixteen pixels of a row are one stick, sixteen sticks one below the other are folded into a patch."""
    sticks = images.reshape(IMAGES, SIDE, SIDE // PATCH, PATCH * 4)
    shards = sharded(LAYOUTS.HEIGHT_SHARDED, (SIDE * SIDE // PATCH, PATCH * 4), IMAGES, 1)
    pixels = put(sticks, device, layout=ttnn.ROW_MAJOR_LAYOUT, memory_config=shards)
    folded = ttnn.fold(pixels, PATCH, 1, collapse_output=True)
    assert folded.memory_config().shard_spec.shape == [PATCHES, PATCH * PATCH * 4]  # each core has folded its own image
    folded = ttnn.to_memory_config(folded, memory_config=ttnn.L1_MEMORY_CONFIG)
    folded = ttnn.to_layout(folded, layout=ttnn.TILE_LAYOUT, dtype=BF8)
    x = ttnn.linear(
        folded,
        put(model.patches, device, BF8),
        bias=put(model.patch_bias.reshape(1, -1), device, BF8),
        memory_config=ttnn.L1_MEMORY_CONFIG,
        dtype=ttnn.bfloat16,
        core_grid=ttnn.CoreGrid(x=6, y=8),
    )
    x = ttnn.to_layout(x, layout=ttnn.ROW_MAJOR_LAYOUT)
    x = ttnn.reshape(x, [IMAGES, PATCHES, WIDTH])
    token = put(model.class_token.expand(IMAGES, 1, WIDTH), device, layout=ttnn.ROW_MAJOR_LAYOUT)
    x = ttnn.to_layout(ttnn.concat([token, x], dim=1), layout=ttnn.TILE_LAYOUT)
    x = ttnn.add(x, put(model.places, device), memory_config=ttnn.L1_MEMORY_CONFIG)
    x = ttnn.pad(x, [(0, 0), (0, TOKENS - PATCHES - 1), (0, 0)], value=0.0)
    return ttnn.typecast(x, BF8)


@pytest.fixture
def device() -> Iterator[ttnn.MeshDevice]:
    with ttnn.create_mesh_device(ttnn.MeshShape(1, 1)) as mesh:
        yield mesh


@pytest.mark.parametrize("is_masked", [False, True], ids=["whole rows", "padding masked"])
def test_classes_of_images_from_layers_in_shards(is_masked: bool, device: ttnn.MeshDevice) -> None:
    model, images = random_model(0), Chance(1).values(IMAGES, SIDE, SIDE, 4)
    hides = torch.zeros(IMAGES, 1, 1, TOKENS)
    hides[..., PATCHES + 1 :] = -1e4
    mask = put(hides, device) if is_masked else None
    x = embedding(model, images, device)
    assert_agrees(ttnn.to_torch(x), torch_embedding(model, images), 0.999)
    x = ttnn.to_memory_config(x, memory_config=ONE_IMAGE_A_ROW, dtype=BF8)
    for layer in model.layers:
        x = DeviceLayer(layer, device)(x, mask)
        assert x.memory_config().shard_spec.shape == [TOKENS, WIDTH // GRID_X]
    norm = [put(values.reshape(1, -1), device) for values in model.norm]
    x = ttnn.layer_norm(x, weight=norm[0], bias=norm[1], memory_config=BLOCK, program_config=NORM)
    x = ttnn.to_memory_config(x, ttnn.L1_MEMORY_CONFIG)
    logits = ttnn.linear(x, put(model.classes, device, BF8), dtype=ttnn.bfloat16, core_grid=ttnn.CoreGrid(x=8, y=8))
    expected = torch_vit(model, images, hides if is_masked else None)
    assert_agrees(ttnn.to_torch(logits)[:, 0], expected, 0.995)
