"""A small Whisper in the calls of its TT-NN port: convolutions over the spectrogram, encoder, decoder with caches."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pytest
import torch
import torch.nn.functional as F
from model_tensors import HIFI2, HIFI4, Chance, assert_agrees, put, sharded

import softmesh as ttnn

WIDTH, HEADS, HEAD, HIDDEN, LAYERS = 128, 2, 64, 256, 2
MELS, FRAMES, POSITIONS = 80, 120, 60  # half as many positions as frames, and no multiple of a tile
VOCABULARY, MAX_TOKENS, CACHE = 96, 64, 64
DRAM, L1 = ttnn.DRAM_MEMORY_CONFIG, ttnn.L1_MEMORY_CONFIG
GRID = ttnn.CoreGrid(x=8, y=8)
SCALE = HEAD**-0.5


# -- weights, and the model in torch -----------------------------------------------------------------


@dataclass
class Attention:
    qkv: torch.Tensor
    qkv_bias: torch.Tensor
    out: torch.Tensor
    out_bias: torch.Tensor


@dataclass
class Layer:
    attention: Attention
    cross: Attention
    up: torch.Tensor
    up_bias: torch.Tensor
    down: torch.Tensor
    down_bias: torch.Tensor
    norms: list[tuple[torch.Tensor, torch.Tensor]]


@dataclass
class Whisper:
    conv1: torch.Tensor
    conv2: torch.Tensor
    places: torch.Tensor
    encoder: list[Layer]
    decoder: list[Layer]
    final_norms: list[tuple[torch.Tensor, torch.Tensor]]
    words: torch.Tensor
    word_places: torch.Tensor


def random_model(seed: int) -> Whisper:
    chance = Chance(seed)

    def attention() -> Attention:
        return Attention(
            chance.weight(WIDTH, 3 * WIDTH),
            chance.values(3 * WIDTH, scale=0.1),
            chance.weight(WIDTH, WIDTH),
            chance.values(WIDTH, scale=0.1),
        )

    def norm() -> tuple[torch.Tensor, torch.Tensor]:
        return chance.values(WIDTH, scale=0.1, around=1.0), chance.values(WIDTH, scale=0.1)

    def layer() -> Layer:
        return Layer(
            attention(),
            attention(),
            chance.weight(WIDTH, HIDDEN),
            chance.values(HIDDEN, scale=0.1),
            chance.weight(HIDDEN, WIDTH),
            chance.values(WIDTH, scale=0.1),
            [norm() for _ in range(3)],
        )

    return Whisper(
        chance.values(WIDTH, MELS, 3, scale=(3 * MELS) ** -0.5),
        chance.values(WIDTH, WIDTH, 3, scale=(3 * WIDTH) ** -0.5),
        chance.values(POSITIONS, WIDTH, scale=0.3),
        [layer() for _ in range(LAYERS)],
        [layer() for _ in range(LAYERS)],
        [norm(), norm()],
        chance.values(VOCABULARY, WIDTH),
        chance.values(MAX_TOKENS, WIDTH, scale=0.3),
    )


def torch_norm(x: torch.Tensor, norm: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
    return F.layer_norm(x, (WIDTH,), *norm, eps=1e-12)


def torch_heads(x: torch.Tensor) -> torch.Tensor:
    return x.unflatten(-1, (HEADS, HEAD)).transpose(-3, -2)


def torch_attention(x: torch.Tensor, of: torch.Tensor, weights: Attention, *, causal: bool) -> torch.Tensor:
    query = x @ weights.qkv[:, :WIDTH] + weights.qkv_bias[:WIDTH]
    key, value = (of @ weights.qkv[:, WIDTH:] + weights.qkv_bias[WIDTH:]).chunk(2, -1)
    heads = map(torch_heads, (query, key, value))
    attended = F.scaled_dot_product_attention(*heads, is_causal=causal)
    return attended.transpose(-3, -2).flatten(-2) @ weights.out + weights.out_bias


def torch_feed_forward(x: torch.Tensor, layer: Layer) -> torch.Tensor:
    return F.gelu(x @ layer.up + layer.up_bias) @ layer.down + layer.down_bias


def torch_front_end(model: Whisper, spectrogram: torch.Tensor) -> torch.Tensor:
    x = F.gelu(F.conv1d(spectrogram, model.conv1, padding=1))
    x = F.gelu(F.conv1d(x, model.conv2, stride=2, padding=1))
    return x.transpose(-1, -2) + model.places


def torch_encoder(model: Whisper, x: torch.Tensor) -> torch.Tensor:
    for layer in model.encoder:
        normed = torch_norm(x, layer.norms[0])
        x = x + torch_attention(normed, normed, layer.attention, causal=False)
        x = x + torch_feed_forward(torch_norm(x, layer.norms[2]), layer)
    return torch_norm(x, model.final_norms[0])


def torch_decoder(model: Whisper, tokens: torch.Tensor, encoded: torch.Tensor) -> torch.Tensor:
    x = model.words[tokens] + model.word_places[: tokens.shape[-1]]
    for layer in model.decoder:
        normed = torch_norm(x, layer.norms[0])
        x = x + torch_attention(normed, normed, layer.attention, causal=True)
        x = x + torch_attention(torch_norm(x, layer.norms[1]), encoded, layer.cross, causal=False)
        x = x + torch_feed_forward(torch_norm(x, layer.norms[2]), layer)
    return torch_norm(x, model.final_norms[1])


# -- the same in TT-NN -------------------------------------------------------------------------------


def attention_program(approximate: bool) -> ttnn.SDPAProgramConfig:
    return ttnn.SDPAProgramConfig(
        compute_with_storage_grid_size=ttnn.CoreCoord(8, 8),
        q_chunk_size=256,
        k_chunk_size=256,
        exp_approx_mode=approximate,
    )


class Projection:
    def __init__(self, weight: torch.Tensor, bias: torch.Tensor, device: ttnn.MeshDevice) -> None:
        self.weight, self.bias = put(weight, device), put(bias.reshape(1, -1), device)

    def __call__(
        self, x: ttnn.Tensor, *, dtype: ttnn.DataType | None = None, activation: str | None = None
    ) -> ttnn.Tensor:
        return ttnn.linear(
            x,
            self.weight,
            bias=self.bias,
            activation=activation,
            core_grid=GRID,
            memory_config=L1,
            dtype=dtype,
            compute_kernel_config=HIFI2,
        )


class Norm:
    def __init__(self, norm: tuple[torch.Tensor, torch.Tensor], device: ttnn.MeshDevice) -> None:
        self.weight, self.bias = (put(values.reshape(1, -1), device) for values in norm)

    def __call__(self, x: ttnn.Tensor) -> ttnn.Tensor:
        return ttnn.layer_norm(x, weight=self.weight, bias=self.bias, epsilon=1e-12, compute_kernel_config=HIFI4)


class DeviceAttention:
    def __init__(self, weights: Attention, device: ttnn.MeshDevice) -> None:
        self.qkv = Projection(weights.qkv, weights.qkv_bias, device)
        self.query = Projection(weights.qkv[:, :WIDTH], weights.qkv_bias[:WIDTH], device)
        self.key_value = Projection(weights.qkv[:, WIDTH:], weights.qkv_bias[WIDTH:], device)
        self.out = Projection(weights.out, weights.out_bias, device)
        self.caches = [
            ttnn.zeros((1, HEADS, CACHE, HEAD), ttnn.bfloat8_b, layout=ttnn.TILE_LAYOUT, device=device)
            for _ in ("keys", "values")
        ]

    def joined(self, heads: ttnn.Tensor) -> ttnn.Tensor:
        x = ttnn.experimental.nlp_concat_heads(heads)
        x = self.out(ttnn.to_memory_config(x, L1))
        return ttnn.to_memory_config(x, DRAM)

    def encoder(self, x: ttnn.Tensor) -> ttnn.Tensor:
        """Block floats in one fused kernel."""
        qkv = ttnn.to_memory_config(self.qkv(x, dtype=ttnn.bfloat8_b), DRAM)
        query, key, value = ttnn.experimental.nlp_create_qkv_heads(
            qkv, num_heads=HEADS, num_kv_heads=HEADS, transpose_k_heads=False, memory_config=DRAM
        )
        attended = ttnn.transformer.scaled_dot_product_attention(
            query,
            key,
            value,
            scale=SCALE,
            is_causal=False,
            program_config=attention_program(approximate=True),
            compute_kernel_config=HIFI2,
            memory_config=DRAM,
        )
        return self.joined(attended)

    def prefill(self, x: ttnn.Tensor, mask: ttnn.Tensor) -> ttnn.Tensor:
        """By hand, with a mask to add."""
        qkv = ttnn.to_memory_config(self.qkv(x, dtype=ttnn.bfloat16), DRAM)
        query, key, value = ttnn.experimental.nlp_create_qkv_heads(
            qkv, num_heads=HEADS, num_kv_heads=HEADS, transpose_k_heads=True, memory_config=DRAM
        )
        scores = ttnn.add(ttnn.matmul(query * SCALE, key), mask)
        weights = ttnn.softmax(scores, dim=-1, memory_config=DRAM)
        return self.joined(ttnn.matmul(weights, value))

    def decode(self, x: ttnn.Tensor, place: ttnn.Tensor) -> ttnn.Tensor:
        """One token: keys and values go into the caches, by way of a shard on one core."""
        qkv = ttnn.to_memory_config(self.qkv(x, dtype=ttnn.bfloat16), DRAM)
        query, *new = ttnn.experimental.nlp_create_qkv_heads(
            qkv, num_heads=HEADS, num_kv_heads=HEADS, transpose_k_heads=False, memory_config=DRAM
        )
        one_core = sharded(ttnn.TensorMemoryLayout.HEIGHT_SHARDED, (32, HEAD), 1, 1)
        for cache, heads in zip(self.caches, new, strict=True):
            rows = ttnn.transpose(ttnn.transpose(heads, 0, 2), 1, 2)
            rows = ttnn.interleaved_to_sharded(rows, one_core)
            ttnn.experimental.paged_update_cache(cache, rows, update_idxs_tensor=place)
        query = ttnn.interleaved_to_sharded(ttnn.transpose(ttnn.transpose(query, 0, 2), 1, 2), one_core)
        attended = ttnn.transformer.scaled_dot_product_attention_decode(
            query,
            *self.caches,
            cur_pos_tensor=place,
            scale=SCALE,
            program_config=attention_program(approximate=False),
            compute_kernel_config=HIFI2,
            memory_config=DRAM,
        )
        heads = ttnn.transpose(ttnn.transpose(attended, 1, 2), 0, 2)
        return self.joined(heads)

    def keys_and_values(self, encoded: ttnn.Tensor) -> list[ttnn.Tensor]:
        """Of the encoder's states, one half of the columns each."""
        both = ttnn.to_memory_config(self.key_value(ttnn.to_memory_config(encoded, L1)), DRAM)
        both = ttnn.unsqueeze(both, 1)
        parts = (both[:, :, :, :WIDTH], both[:, :, :, WIDTH:])
        return [
            ttnn.experimental.nlp_create_qkv_heads(part, memory_config=DRAM, num_heads=HEADS, num_kv_heads=0)[0]
            for part in parts
        ]

    def cross(self, x: ttnn.Tensor, states: list[ttnn.Tensor]) -> ttnn.Tensor:
        query = ttnn.to_memory_config(self.query(ttnn.to_memory_config(x, L1)), DRAM)
        query = ttnn.transpose(query, 1, 2)
        query = ttnn.reshape(query, [1, x.shape[-2], HEADS, HEAD])
        query = ttnn.to_memory_config(ttnn.transpose(query, 1, 2), DRAM)
        attended = ttnn.transformer.scaled_dot_product_attention(
            query,
            *(ttnn.to_memory_config(state, DRAM) for state in states),
            scale=SCALE,
            is_causal=False,
            program_config=attention_program(approximate=True),
            compute_kernel_config=HIFI2,
            memory_config=DRAM,
        )
        return self.joined(attended)


class DeviceLayer:
    def __init__(self, layer: Layer, device: ttnn.MeshDevice) -> None:
        self.attention, self.cross = (DeviceAttention(part, device) for part in (layer.attention, layer.cross))
        self.up, self.down = (
            Projection(layer.up, layer.up_bias, device),
            Projection(layer.down, layer.down_bias, device),
        )
        self.norms = [Norm(norm, device) for norm in layer.norms]

    def feed_forward(self, x: ttnn.Tensor) -> ttnn.Tensor:
        hidden = self.up(ttnn.to_memory_config(self.norms[2](x), L1), activation="gelu")
        return ttnn.add(x, ttnn.to_memory_config(self.down(hidden), DRAM))

    def encode(self, x: ttnn.Tensor) -> ttnn.Tensor:
        return self.feed_forward(ttnn.add(x, self.attention.encoder(self.norms[0](x))))

    def prefill(self, x: ttnn.Tensor, mask: ttnn.Tensor, encoded: ttnn.Tensor) -> ttnn.Tensor:
        x = ttnn.add(x, self.attention.prefill(self.norms[0](x), mask))
        x = ttnn.add(x, self.cross.cross(self.norms[1](x), self.cross.keys_and_values(encoded)))
        return self.feed_forward(x)

    def decode(self, x: ttnn.Tensor, place: ttnn.Tensor, states: list[ttnn.Tensor]) -> ttnn.Tensor:
        x = ttnn.add(x, self.attention.decode(self.norms[0](x), place))
        x = ttnn.add(x, self.cross.cross(self.norms[1](x), states))
        return self.feed_forward(x)


def front_end(model: Whisper, spectrogram: torch.Tensor, device: ttnn.MeshDevice) -> ttnn.Tensor:
    """Both convolutions; the weight of the second is cut into four, whose channels are joined again."""
    rows = ttnn.ROW_MAJOR_LAYOUT
    x = ttnn.transpose(put(spectrogram.unsqueeze(0), device), -1, -2)
    low = ttnn.WormholeComputeKernelConfig(math_fidelity=ttnn.MathFidelity.LoFi, math_approx_mode=True)
    first = ttnn.Conv2dConfig(
        weights_dtype=ttnn.bfloat16,
        shard_layout=ttnn.TensorMemoryLayout.HEIGHT_SHARDED,
        reallocate_halo_output=True,
        output_layout=ttnn.TILE_LAYOUT,
    )
    x = ttnn.conv1d(
        input_tensor=x,
        weight_tensor=ttnn.from_torch(model.conv1, ttnn.bfloat16, layout=rows),
        device=device,
        in_channels=MELS,
        out_channels=WIDTH,
        batch_size=1,
        input_length=FRAMES,
        kernel_size=3,
        stride=1,
        padding=1,
        dtype=ttnn.bfloat16,
        conv_config=first,
        compute_config=low,
    )
    x = ttnn.sharded_to_interleaved(ttnn.gelu(x))
    weight = put(model.conv2, device, layout=rows)
    parts = []
    for start in range(0, WIDTH, WIDTH // 4):
        part = ttnn.slice(weight, [start, 0, 0], [start + WIDTH // 4, WIDTH, 3], [1, 1, 1])
        found = ttnn.conv2d(
            input_tensor=x,
            weight_tensor=ttnn.unsqueeze(part, 3),
            device=device,
            input_height=FRAMES,
            input_width=1,
            kernel_size=[3, 1],
            stride=[2, 1],
            padding=[1, 1, 0, 0],
            dilation=[1, 1],
            batch_size=1,
            in_channels=WIDTH,
            out_channels=WIDTH // 4,
            groups=1,
            dtype=ttnn.bfloat16,
            compute_config=low,
        )
        parts.append(ttnn.sharded_to_interleaved(found))
    x = ttnn.squeeze(ttnn.gelu(ttnn.concat(parts, dim=3)), 0)
    x = ttnn.concat([x], dim=0)
    places = ttnn.to_layout(put(model.places, device, layout=rows), ttnn.TILE_LAYOUT)
    return ttnn.add(x, places)


def embedded(model: Whisper, tokens: torch.Tensor, start: int, device: ttnn.MeshDevice) -> ttnn.Tensor:
    """[1, tokens, width]: words and their places, rows of tables."""
    rows = ttnn.ROW_MAJOR_LAYOUT
    ids = put(tokens, device, ttnn.uint32, rows)
    words = ttnn.embedding(ids, put(model.words, device, layout=rows), layout=ttnn.TILE_LAYOUT, memory_config=DRAM)
    table, count = put(model.word_places, device, layout=rows), tokens.shape[-1]
    places = ttnn.slice(table, [start, 0], [start + count, WIDTH], [1, 1])
    return ttnn.add(words, ttnn.to_layout(places, ttnn.TILE_LAYOUT))


@pytest.fixture
def device() -> Iterator[ttnn.MeshDevice]:
    with ttnn.create_mesh_device(ttnn.MeshShape(1, 1), trace_region_size=1 << 20) as mesh:
        yield mesh


def states_of(model: Whisper, device: ttnn.MeshDevice) -> tuple[torch.Tensor, ttnn.Tensor]:
    """The encoder's states in torch, and on the device a tensor of them that traces may read."""
    encoded = torch_encoder(model, torch_front_end(model, Chance(7).values(1, MELS, FRAMES)))
    held = ttnn.allocate_tensor_on_device(ttnn.Shape([1, POSITIONS, WIDTH]), ttnn.bfloat16, ttnn.TILE_LAYOUT, device)
    ttnn.assign(put(encoded, device), held)
    return encoded, held


def test_the_encoder_from_the_spectrogram_on(device: ttnn.MeshDevice) -> None:
    model, spectrogram = random_model(0), Chance(7).values(1, MELS, FRAMES)
    x = front_end(model, spectrogram, device)
    expected = torch_front_end(model, spectrogram)
    assert_agrees(ttnn.to_torch(x), expected, 0.9995)
    x = ttnn.unsqueeze(x, 1)
    for layer in model.encoder:
        x = DeviceLayer(layer, device).encode(x)
    encoded = ttnn.squeeze(Norm(model.final_norms[0], device)(x), 0)
    assert_agrees(ttnn.to_torch(encoded), torch_encoder(model, expected), 0.999)


def test_the_decoder_over_a_whole_sentence(device: ttnn.MeshDevice) -> None:
    model = random_model(1)
    states, encoded = states_of(model, device)
    tokens = Chance(2).tokens(32, VOCABULARY)
    above = torch.full((32, 32), float("-inf")).triu(1).expand(1, HEADS, 32, 32)
    x = ttnn.unsqueeze(embedded(model, tokens, 0, device), 1)
    for layer in model.decoder:
        x = DeviceLayer(layer, device).prefill(x, put(above, device), encoded)
    found = ttnn.to_torch(Norm(model.final_norms[1], device)(x)).squeeze(0)
    assert_agrees(found, torch_decoder(model, tokens, states), 0.999)


def test_tokens_one_by_one_through_caches_by_a_trace(device: ttnn.MeshDevice) -> None:
    model = random_model(3)
    states, encoded = states_of(model, device)
    tokens = Chance(4).tokens(5, VOCABULARY)
    layers = [DeviceLayer(layer, device) for layer in model.decoder]
    final = Norm(model.final_norms[1], device)
    cross = [layer.cross.keys_and_values(encoded) for layer in layers]
    place = put(torch.zeros(1), device, ttnn.int32, ttnn.ROW_MAJOR_LAYOUT)

    def step(x: ttnn.Tensor) -> ttnn.Tensor:
        x = ttnn.unsqueeze(x, 1)
        for layer, states in zip(layers, cross, strict=True):
            x = layer.decode(x, place, states)
        return final(x)

    given = ttnn.to_memory_config(embedded(model, tokens[:, :1], 0, device), L1)
    found = [ttnn.to_torch(step(given))]  # the first call compiles what the trace will hold
    trace = ttnn.begin_trace_capture(device, cq_id=0)
    result = step(given)
    ttnn.end_trace_capture(device, trace, cq_id=0)
    for at in range(1, tokens.shape[-1]):
        ttnn.plus_one(place)
        ttnn.to_memory_config(embedded(model, tokens[:, at : at + 1], at, device), L1, output_tensor=given)
        ttnn.execute_trace(device, trace, cq_id=0, blocking=False)
        found.append(ttnn.to_torch(result))
    ttnn.release_trace(device, trace)
    assert ttnn.to_torch(place).tolist() == [4]
    assert_agrees(torch.cat(found, -2).squeeze(0), torch_decoder(model, tokens, states), 0.999)
