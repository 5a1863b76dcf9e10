"""A DiT block on eight chips in the calls of its TT-NN port: the sequence split over two rows, the width over four."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from model_tensors import Chance, assert_agrees

import softmesh as ttnn

ROWS, COLUMNS = 2, 4  # of the mesh: sequence parallel down, tensor parallel across
SEQUENCE, TENSOR = 0, 1  # the axes
WIDTH, HEADS, HEAD, HIDDEN, TIME = 256, 8, 32, 512, 128
LATENTS, PADDED, PROMPT = 120, 128, 32  # latents fill whole tiles on each chip
EPSILON = 1e-5
PRECISE = ttnn.WormholeComputeKernelConfig(
    math_fidelity=ttnn.MathFidelity.HiFi2, math_approx_mode=False, fp32_dest_acc_en=True, packer_l1_acc=True
)


# -- the block in torch ------------------------------------------------------------------------------


@dataclass
class Stream:
    """What belongs to the latents, or to the prompt."""

    qkv: torch.Tensor
    qkv_bias: torch.Tensor
    query_norm: torch.Tensor
    key_norm: torch.Tensor
    out: torch.Tensor
    out_bias: torch.Tensor
    up: torch.Tensor
    gate: torch.Tensor
    down: torch.Tensor
    down_bias: torch.Tensor


@dataclass
class Block:
    time_in: torch.Tensor
    time_bias: torch.Tensor
    modulation: torch.Tensor
    modulation_bias: torch.Tensor
    latents: Stream
    prompt: Stream


def random_block(seed: int) -> Block:
    chance = Chance(seed)

    def stream() -> Stream:
        return Stream(
            *(chance.weight(WIDTH, 3 * WIDTH), chance.values(3 * WIDTH, scale=0.1)),
            *(chance.values(HEAD, scale=0.1, around=1.0) for _ in range(2)),
            *(chance.weight(WIDTH, WIDTH), chance.values(WIDTH, scale=0.1)),
            *(chance.weight(WIDTH, HIDDEN) for _ in range(2)),
            *(chance.weight(HIDDEN, WIDTH), chance.values(WIDTH, scale=0.1)),
        )

    return Block(
        *(chance.weight(2 * TIME, WIDTH), chance.values(WIDTH, scale=0.1)),
        *(chance.weight(WIDTH, 6 * WIDTH), chance.values(6 * WIDTH, scale=0.3)),
        stream(),
        stream(),
    )


FREQUENCIES = torch.exp(-math.log(10_000.0) * torch.arange(TIME) / TIME)
ANGLES = torch.outer(torch.arange(PADDED), 100.0 ** (-torch.arange(0, HEAD, 2) / HEAD)).repeat_interleave(2, -1)


def torch_modulation(block: Block, time: torch.Tensor) -> torch.Tensor:
    """(6, width): shift, scale and gate of attention, then those of the feed-forward."""
    angles = time * FREQUENCIES
    hidden = F.silu(torch.cat([angles.cos(), angles.sin()]) @ block.time_in + block.time_bias)
    return (hidden @ block.modulation + block.modulation_bias).reshape(6, WIDTH)


def torch_turned(x: torch.Tensor) -> torch.Tensor:
    other = torch.stack([-x[..., 1::2], x[..., ::2]], -1).flatten(-2)
    return x * ANGLES[: x.shape[-2]].cos() + other * ANGLES[: x.shape[-2]].sin()


def torch_heads(x: torch.Tensor, stream: Stream, *, is_turned: bool) -> list[torch.Tensor]:
    parts = (x @ stream.qkv + stream.qkv_bias).unflatten(-1, (3, HEADS, HEAD)).unbind(-3)
    query, key, value = (part.transpose(-3, -2) for part in parts)
    query, key = (F.rms_norm(q, (HEAD,), w, EPSILON) for q, w in ((query, stream.query_norm), (key, stream.key_norm)))
    return [torch_turned(query), torch_turned(key), value] if is_turned else [query, key, value]


def torch_modulated(x: torch.Tensor, modulation: torch.Tensor) -> torch.Tensor:
    return F.layer_norm(x, (WIDTH,), eps=EPSILON) * (1 + modulation[1]) + modulation[0]


def torch_block(
    block: Block, latents: torch.Tensor, prompt: torch.Tensor, modulation: torch.Tensor
) -> list[torch.Tensor]:
    pairs = [(latents, block.latents), (prompt, block.prompt)]
    heads = [
        torch_heads(torch_modulated(x, modulation), stream, is_turned=i == 0) for i, (x, stream) in enumerate(pairs)
    ]
    query, key, value = (torch.cat(both, -2) for both in zip(*heads, strict=True))
    attended = F.scaled_dot_product_attention(query, key, value).transpose(-3, -2).flatten(-2)
    results = []
    for (x, stream), part in zip(pairs, attended.split([LATENTS, PROMPT], -2), strict=True):
        x = x + modulation[2] * (part @ stream.out + stream.out_bias)
        normed = torch_modulated(x, modulation[3:])
        gated = normed @ stream.up
        gated = F.gelu(gated, approximate="tanh") if stream is block.latents else F.silu(normed @ stream.gate) * gated
        results.append(x + modulation[5] * (gated @ stream.down + stream.down_bias))
    return results


# -- the block on the mesh ---------------------------------------------------------------------------


class Links:
    """The collectives, each call with semaphores of its own, as programs take turns with theirs."""

    def __init__(self, mesh: ttnn.MeshDevice) -> None:
        self.mesh = mesh
        self.cores = ttnn.CoreRangeSet({ttnn.CoreRange(ttnn.CoreCoord(0, 0), ttnn.CoreCoord(7, 7))})

    def semaphores(self, count: int) -> list[Any]:
        return [ttnn.create_global_semaphore(self.mesh, self.cores, 0) for _ in range(count)]

    def gather(self, x: ttnn.Tensor, dim: int) -> ttnn.Tensor:
        return ttnn.experimental.all_gather_async(
            x,
            barrier_semaphore=self.semaphores(1)[0],
            dim=dim,
            multi_device_global_semaphore=self.semaphores(2),
            num_links=1,
            topology=ttnn.Topology.Linear,
            cluster_axis=TENSOR,
            chunks_per_sync=10,
            num_workers_per_link=2,
            num_buffers_per_channel=2,
        )

    def reduce_scatter(self, x: ttnn.Tensor) -> ttnn.Tensor:
        return ttnn.experimental.reduce_scatter_minimal_async(
            x,
            barrier_semaphore=self.semaphores(1)[0],
            dim=3,
            multi_device_global_semaphore=self.semaphores(3),
            num_links=1,
            memory_config=ttnn.DRAM_MEMORY_CONFIG,
            topology=ttnn.Topology.Linear,
            cluster_axis=TENSOR,
            chunks_per_sync=2,
            num_workers_per_link=2,
            num_buffers_per_channel=2,
        )


def placed(
    values: torch.Tensor, mesh: ttnn.MeshDevice, *dims: int | None, dtype: ttnn.DataType = ttnn.bfloat16
) -> ttnn.Tensor:
    """Split along `dims`: down the rows of the mesh, and across its columns."""
    mapper = ttnn.ShardTensor2dMesh(mesh, dims=dims or (None, None), mesh_shape=(ROWS, COLUMNS))
    return ttnn.from_torch(values, dtype, layout=ttnn.TILE_LAYOUT, device=mesh, mesh_mapper=mapper)


def product(x: ttnn.Tensor, weight: ttnn.Tensor, bias: ttnn.Tensor | None = None, **more: Any) -> ttnn.Tensor:
    config = ttnn.MinimalMatmulConfig(
        M_block_size=2,
        K_block_size=4,
        N_block_size=4,
        subblock_h=2,
        subblock_w=2,
        compute_with_storage_grid_size=ttnn.CoreCoord(8, 8),
    )
    return ttnn.experimental.minimal_matmul(
        input_tensor=x,
        weight_tensor=weight,
        bias_tensor=bias,
        config=config,
        compute_kernel_config=PRECISE,
        **more,
    )


def by_chip(columns: torch.Tensor, parts: int) -> torch.Tensor:
    """Columns that come in `parts` equal parts, arranged so that each chip gets its share of every part."""
    return columns.unflatten(-1, (parts, COLUMNS, -1)).transpose(-3, -2).flatten(-3)


def of_first_chip(bias: torch.Tensor) -> torch.Tensor:
    """A bias that is added once: zeros on all chips but one."""
    row = bias.reshape(1, -1)
    return torch.cat([row, *[torch.zeros_like(row)] * (COLUMNS - 1)], -1)


def gates_beside_values(gate: torch.Tensor, up: torch.Tensor) -> torch.Tensor:
    """Tiles of 32 columns in turn, as the fused kernel pairs them."""
    return torch.stack([gate.unflatten(-1, (-1, 32)), up.unflatten(-1, (-1, 32))], -2).flatten(-3)


class DeviceStream:
    def __init__(self, stream: Stream, links: Links, *, is_gated: bool) -> None:
        mesh = links.mesh
        self.links, self.is_gated = links, is_gated
        self.qkv = placed(by_chip(stream.qkv, 3), mesh, None, 1)
        self.qkv_bias = placed(by_chip(stream.qkv_bias.reshape(1, -1), 3), mesh, None, 1)
        self.norms = [placed(norm.reshape(1, -1), mesh) for norm in (stream.query_norm, stream.key_norm)]
        self.out = placed(stream.out, mesh, None, 1)
        self.out_bias = placed(stream.out_bias.reshape(1, -1), mesh, None, 1)
        self.up = placed(gates_beside_values(stream.gate, stream.up) if is_gated else stream.up, mesh, None, 1)
        self.down = placed(stream.down, mesh, None, 0)
        self.down_bias = placed(of_first_chip(stream.down_bias), mesh, None, 1)

    def modulated(self, x: ttnn.Tensor, shift: ttnn.Tensor, scale: ttnn.Tensor) -> ttnn.Tensor:
        """A layer norm over the whole width, of which each chip has a part; then gathered."""
        stats = ttnn.layer_norm_pre_all_gather(x, dtype=ttnn.bfloat16)
        stats = self.links.gather(stats, 3)
        normed = ttnn.layer_norm_post_all_gather(x, stats, epsilon=EPSILON, compute_kernel_config=PRECISE)
        return self.links.gather(ttnn.addcmul(shift, normed, ttnn.add(scale, 1.0)), 3)

    def heads(self, x: ttnn.Tensor) -> list[ttnn.Tensor]:
        qkv = product(x, self.qkv, self.qkv_bias, fuse_swiglu=False)
        query, key, value = ttnn.experimental.nlp_create_qkv_heads(
            qkv, num_heads=HEADS // COLUMNS, num_kv_heads=HEADS // COLUMNS, transpose_k_heads=False
        )
        normed = [
            ttnn.experimental.dit_rms_norm_unary_fused(part, weight=weight, epsilon=EPSILON)
            for part, weight in zip((query, key), self.norms, strict=True)
        ]
        return [*normed, value]

    def after_attention(self, x: ttnn.Tensor, attended: ttnn.Tensor, modulation: Sequence[ttnn.Tensor]) -> ttnn.Tensor:
        joined = self.links.gather(ttnn.experimental.nlp_concat_heads(attended), 3)
        x = ttnn.addcmul(x, modulation[2], product(joined, self.out, self.out_bias))
        normed = self.modulated(x, modulation[3], modulation[4])
        if self.is_gated:
            hidden = product(normed, self.up, fuse_swiglu=True)
        else:
            hidden = product(normed, self.up, fused_activation=ttnn.UnaryOpType.GELU_TANH)
        return ttnn.addcmul(x, modulation[5], self.links.reduce_scatter(product(hidden, self.down, self.down_bias)))


def modulation_of(block: Block, time: torch.Tensor, links: Links) -> ttnn.Tensor:
    """[1, 1, 1, 6, width of a chip], in float32: each chip has its columns of all six."""
    mesh, full = links.mesh, ttnn.float32
    frequencies = ttnn.unsqueeze_to_4D(placed(FREQUENCIES, mesh, dtype=full))
    angles = ttnn.multiply(ttnn.multiply(placed(time.reshape(1, 1, 1, 1), mesh, dtype=full), 1), frequencies)
    embedded = ttnn.concat([ttnn.cos(angles), ttnn.sin(angles)], dim=-1)
    weight, bias = (placed(t, mesh, None, 1, dtype=full) for t in (block.time_in, block.time_bias.reshape(1, -1)))
    hidden = ttnn.silu(product(embedded, weight, bias, fuse_swiglu=False))
    weight = placed(by_chip(block.modulation, 6), mesh, None, 0, dtype=full)
    bias = placed(of_first_chip(by_chip(block.modulation_bias, 6)), mesh, None, 1, dtype=full)
    own = links.reduce_scatter(product(hidden, weight, bias))
    return ttnn.reshape(own, [1, 1, 1, 6, -1])


def turned(x: ttnn.Tensor, links: Links) -> ttnn.Tensor:
    """Rotated by position: each row of the mesh has its own positions."""
    cos, sin = (
        placed(table.reshape(1, 1, PADDED, HEAD), links.mesh, 2, None) for table in (ANGLES.cos(), ANGLES.sin())
    )
    pairs = torch.zeros(1, 1, 32, 32)
    pairs[..., torch.arange(0, 32, 2), torch.arange(1, 32, 2)] = 1
    pairs[..., torch.arange(1, 32, 2), torch.arange(0, 32, 2)] = -1
    return ttnn.experimental.rotary_embedding_llama(x, cos, sin, placed(pairs, links.mesh), is_decode_mode=False)


def joint_attention(own: Sequence[ttnn.Tensor], joint: Sequence[ttnn.Tensor], links: Links) -> list[ttnn.Tensor]:
    """Keys and values go round the chips of a column; those of the prompt are there already."""
    buffers = [placed(torch.zeros(1, HEADS, PADDED, HEAD), links.mesh, None, 1) for _ in ("keys", "values")]
    found = ttnn.transformer.ring_joint_scaled_dot_product_attention(
        *own,
        *joint,
        persistent_output_buffer_k=buffers[0],
        persistent_output_buffer_v=buffers[1],
        joint_strategy="rear",
        logical_n=LATENTS,
        program_config=ttnn.SDPAProgramConfig(
            compute_with_storage_grid_size=ttnn.CoreCoord(8, 7), q_chunk_size=32, k_chunk_size=32, exp_approx_mode=False
        ),
        compute_kernel_config=PRECISE,
        dim=2,
        multi_device_global_semaphore=links.semaphores(2),
        num_links=1,
        cluster_axis=SEQUENCE,
        mesh_device=links.mesh,
        topology=ttnn.Topology.Linear,
        ccl_core_grid_offset=(0, 7),
    )
    return list(found[:2])


def run_block(
    block: Block, latents: ttnn.Tensor, prompt: ttnn.Tensor, six: ttnn.Tensor, links: Links
) -> list[ttnn.Tensor]:
    modulation = [ttnn.typecast(ttnn.squeeze(six[:, :, :, i : i + 1, :], 3), ttnn.bfloat16) for i in range(6)]
    streams = [
        DeviceStream(block.latents, links, is_gated=False),
        DeviceStream(block.prompt, links, is_gated=True),
    ]
    heads = [
        stream.heads(stream.modulated(x, modulation[0], modulation[1]))
        for stream, x in zip(streams, (latents, prompt), strict=True)
    ]
    own = [*(turned(part, links) for part in heads[0][:2]), heads[0][2]]
    attended = joint_attention(own, heads[1], links)
    return [
        stream.after_attention(x, part, modulation)
        for stream, x, part in zip(streams, (latents, prompt), attended, strict=True)
    ]


@pytest.fixture
def links(idle_machine: None) -> Iterator[Links]:
    ttnn.set_fabric_config(ttnn.FabricConfig.FABRIC_1D)
    with ttnn.create_mesh_device(ttnn.MeshShape(ROWS, COLUMNS)) as mesh:
        yield Links(mesh)


def whole(x: ttnn.Tensor, links: Links, *dims: int) -> torch.Tensor:
    composer = ttnn.ConcatMesh2dToTensor(links.mesh, dims=dims, mesh_shape=(ROWS, COLUMNS))
    return ttnn.to_torch(x, mesh_composer=composer)


def test_the_modulation_is_computed_in_parts_and_gathered(links: Links) -> None:
    block, time = random_block(0), torch.tensor([37.0])
    gathered = links.gather(modulation_of(block, time, links), 4)
    assert gathered.dtype is ttnn.float32
    assert list(gathered.shape) == [1, 1, 1, 6, WIDTH]
    found = ttnn.to_torch(ttnn.get_device_tensors(gathered)[5])[0, 0, 0]
    torch.testing.assert_close(found, torch_modulation(block, time), rtol=1e-4, atol=1e-4)


def test_latents_and_prompt_go_through_a_block_on_eight_chips(links: Links) -> None:
    block, time, chance = random_block(1), torch.tensor([512.0]), Chance(2)
    latents, prompt = chance.values(LATENTS, WIDTH), chance.values(PROMPT, WIDTH)
    filled = F.pad(latents, (0, 0, 0, PADDED - LATENTS)).reshape(1, 1, PADDED, WIDTH)
    found = run_block(
        block,
        placed(filled, links.mesh, 2, 3),
        placed(prompt.reshape(1, 1, PROMPT, WIDTH), links.mesh, None, 3),
        modulation_of(block, time, links),
        links,
    )
    expected = torch_block(block, latents, prompt, torch_modulation(block, time))
    assert_agrees(whole(found[0], links, 2, 3)[0, 0, :LATENTS], expected[0], 0.999)
    prompts = whole(found[1], links, 0, 3)[:, 0]
    assert torch.equal(prompts[0], prompts[1])  # both rows of the mesh have computed the same
    assert_agrees(prompts[0], expected[1], 0.999)


def test_a_bias_on_one_chip_is_added_once_to_a_product_in_parts(links: Links) -> None:
    chance = Chance(3)
    x, weight, bias = chance.values(32, WIDTH), chance.weight(WIDTH, HIDDEN), chance.values(HIDDEN)
    mesh = links.mesh
    found = product(placed(x, mesh, None, 1), placed(weight, mesh, None, 0), placed(of_first_chip(bias), mesh, None, 1))
    words = [str(word) for word in ttnn.placements(found)]
    assert words == ["Replicate", "Partial(sum)"]
    result = ttnn.all_reduce(ttnn.reshape(found, [1, 1, 32, HIDDEN]), cluster_axis=TENSOR)
    assert_agrees(ttnn.to_torch(ttnn.get_device_tensors(result)[0])[0, 0], x @ weight + bias, 0.9999)
