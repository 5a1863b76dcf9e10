"""A small Llama over rows and columns of a mesh, with the mistakes that can be switched on in it, one at a time.

Along a row devices share heads, MLP columns and vocabulary; down a column they share the hidden dim. A line that can
go wrong ends in a comment with the names of its mistakes: where a finder must point.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

import torch

import softmesh as ttnn
from softmesh import Replicate, Shard, distributed
from softmesh.companions.tracy_module import signpost

HIDDEN, HEADS, KV_HEADS, HEAD, INNER, VOCABULARY = 128, 16, 8, 32, 1024, 256
USERS, PROMPT, PAGE, PAGES = 2, 32, 32, 4
EPSILON = 1e-5
DOWN, ALONG = 0, 1

Pair = tuple[ttnn.Tensor, ttnn.Tensor]


@cache
def weights(layers: int) -> dict[str, torch.Tensor]:
    draw = torch.Generator().manual_seed(7)
    shapes = {"embedding": (VOCABULARY, HIDDEN), "norm": (HIDDEN,), "head": (HIDDEN, VOCABULARY)}
    for n in range(layers):
        shapes |= {
            f"{n}.norm_1": (HIDDEN,),
            f"{n}.q": (HIDDEN, HEADS * HEAD),
            f"{n}.k": (HIDDEN, KV_HEADS * HEAD),
            f"{n}.v": (HIDDEN, KV_HEADS * HEAD),
            f"{n}.o": (HEADS * HEAD, HIDDEN),
            f"{n}.o_bias": (HIDDEN,),
            f"{n}.norm_2": (HIDDEN,),
            f"{n}.gate": (HIDDEN, INNER),
            f"{n}.up": (HIDDEN, INNER),
            f"{n}.down": (INNER, HIDDEN),
        }

    def drawn(name: str, shape: tuple[int, ...]) -> torch.Tensor:
        values = torch.randn(shape, generator=draw)
        if "norm" in name:
            return 1 + 0.3 * values
        return values * (0.5 if len(shape) == 1 or name == "embedding" else shape[0] ** -0.5)

    return {name: drawn(name, shape) for name, shape in shapes.items()}


def prompts() -> torch.Tensor:
    return torch.randint(VOCABULARY, (USERS, PROMPT), generator=torch.Generator().manual_seed(8), dtype=torch.int32)


@dataclass(frozen=True)
class Form:
    """What the program may look like; each of these is right."""

    mesh: tuple[int, int] = (1, 8)
    dtype: ttnn.DataType = ttnn.bfloat16
    weights_dtype: ttnn.DataType | None = None
    layers: int = 1
    scatters: bool = False  # reduce_scatter and all_gather in place of all_reduce
    unified: bool = False  # ops that plan their own communication, for the MLP
    traced: bool = False  # the decode step captured, and replayed
    silu_apart: bool = False  # silu(gate) * up in two ops
    up_first: bool = False
    scale_first: bool = False  # q scaled by an op of its own
    pages: tuple[int, ...] = (2, 0, 3, 1)
    steps: int = 1
    mistake: str | None = None
    mistaken_layer: int = 0

    def on_one_device(self) -> Form:
        return replace(self, mesh=(1, 1), mistake=None)


@contextmanager
def opened(shape: tuple[int, int]) -> Iterator[ttnn.MeshDevice]:
    ttnn.set_fabric_config(ttnn.FabricConfig.DISABLED if shape == (1, 1) else ttnn.FabricConfig.FABRIC_2D)
    mesh = ttnn.open_mesh_device(ttnn.MeshShape(*shape), trace_region_size=1 << 20)
    mesh.axis_names = ("rows", "columns")
    try:
        yield mesh
    finally:
        ttnn.close_mesh_device(mesh)
        ttnn.set_fabric_config(ttnn.FabricConfig.DISABLED)


def swapped(values: torch.Tensor, dim: int, pieces: int, a: int = 1, b: int = 2) -> torch.Tensor:
    """With two of its pieces in each other's place."""
    order = list(range(pieces))
    order[a], order[b] = order[b], order[a]
    cut = values.chunk(pieces, dim)
    return torch.cat([cut[n] for n in order], dim)


@dataclass
class Llama:
    form: Form
    mesh: ttnn.MeshDevice
    layer: int = 0
    placed: dict[str, ttnn.Tensor] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.rows, self.columns = self.mesh.shape[DOWN], self.mesh.shape[ALONG]
        self.hidden = lambda dim: dim if self.rows > 1 else None
        self.heads = {"num_heads": HEADS // self.columns, "num_kv_heads": KV_HEADS // self.columns}

    def wrong(self, mistake: str) -> bool:
        return self.form.mistake == mistake and self.form.mistaken_layer == self.layer

    # -- what lies on the devices ----------------------------------------------------------------------------------

    def on(
        self,
        down: int | None = None,
        along: int | None = None,
        dtype: ttnn.DataType | None = None,
        layout: ttnn.Layout = ttnn.TILE_LAYOUT,
    ) -> dict[str, Any]:
        """How values come to the mesh: the dim that a column shares, and the one that a row shares."""
        mapper = ttnn.ShardTensor2dMesh(self.mesh, tuple(self.mesh.shape), (down, along))
        return {"dtype": dtype or self.form.dtype, "layout": layout, "device": self.mesh, "mesh_mapper": mapper}

    def numbers(self, dtype: ttnn.DataType) -> dict[str, Any]:
        return self.on(dtype=dtype, layout=ttnn.ROW_MAJOR_LAYOUT)

    def place(self) -> None:
        kept = weights(self.form.layers)
        plain = {"layout": ttnn.ROW_MAJOR_LAYOUT}
        light = self.form.weights_dtype
        put, on, hidden = ttnn.from_torch, self.on, self.hidden
        self.placed["embedding"] = put(kept["embedding"], **on(hidden(1), None, **plain))
        self.placed["norm"] = put(kept["norm"].reshape(1, 1, -1, 32), **on(hidden(2), None, **plain))
        self.placed["head"] = put(kept["head"], **on(hidden(0), 1, light))
        for n in range(self.form.layers):
            self.layer = n
            w = {name.removeprefix(f"{n}."): value for name, value in kept.items() if name.startswith(f"{n}.")}
            if self.wrong("heads swapped"):
                w["q"] = swapped(w["q"], 1, self.columns)
            fused = torch.cat([part for share in self.shares(w) for part in share], 1)
            norm_1 = w["norm_1"].flip(0) if self.wrong("norm weight reversed") else w["norm_1"]
            norm_2 = swapped(w["norm_2"], 0, self.rows, 0, 1) if self.wrong("norm shards swapped") else w["norm_2"]
            down = self.transposed(w["down"]) if self.wrong("shards transposed") else w["down"]
            up = swapped(w["up"], 1, self.columns) if self.wrong("shard on the wrong device") else w["up"]
            out = swapped(w["o"], 0, self.columns, 0, 3) if self.wrong("out shards swapped") else w["o"]
            gate = w["gate"].clone()
            if self.wrong("stale shard"):
                gate.chunk(self.columns, 1)[3].mul_(0.9)
            gate_dtype = ttnn.bfloat4_b if self.wrong("bfp4 for bf16") else light
            block = (1, 1, -1, 32)
            layer = {
                "norm_1": put(norm_1.reshape(block), **on(hidden(2), None, **plain)),  # norm weight reversed
                "qkv": put(fused, **on(hidden(0), 1, light)),  # heads swapped
                "o": put(out, **on(hidden(1), 0, light)),  # out shards swapped
                "o_bias": put(w["o_bias"].reshape(1, 1, 1, -1), **on(hidden(3), None)),
                "norm_2": put(norm_2.reshape(block), **on(hidden(2), None, **plain)),  # norm shards swapped
                "gate": put(gate, **on(hidden(0), 1, gate_dtype)),  # bfp4 for bf16, stale shard
                "up": put(up, **on(hidden(0), 1, light)),  # shard on the wrong device
                "down": put(down, **on(hidden(1), 0, light)),  # shards transposed
            }
            self.placed |= {f"{n}.{name}": tensor for name, tensor in layer.items()}
        self.place_tables()

    def shares(self, w: dict[str, torch.Tensor]) -> Iterator[tuple[torch.Tensor, ...]]:
        """Of the queries, keys and values, those of each column of devices."""
        return zip(*(w[name].chunk(self.columns, 1) for name in "qkv"), strict=True)

    def transposed(self, down: torch.Tensor) -> torch.Tensor:
        return torch.cat([piece.T for piece in down.chunk(self.columns, 0)], 0)

    def place_tables(self) -> None:
        angles = torch.outer(torch.arange(PAGE * PAGES), 10000.0 ** (-torch.arange(0, HEAD, 2) / HEAD))
        each = angles.repeat_interleave(2, 1)
        self.cos_sin = (each.cos(), each.sin())
        self.tables = [ttnn.from_torch(table, **self.numbers(self.form.dtype)) for table in self.cos_sin]
        turn = torch.zeros(1, 1, 32, 32)
        first = torch.arange(0, 32, 2)
        turn[..., first, first + 1], turn[..., first + 1, first] = 1, -1
        self.turning = ttnn.from_torch(turn, **self.on())
        empty = torch.zeros(USERS * 2, KV_HEADS, PAGE, HEAD)
        by_head = self.on(None, 1)
        self.caches: list[Pair] = [
            (ttnn.from_torch(empty, **by_head), ttnn.from_torch(empty, **by_head)) for _ in range(self.form.layers)
        ]
        self.pages = self.put_pages(self.form.pages)

    def put_pages(self, pages: tuple[int, ...]) -> ttnn.Tensor:
        table = torch.tensor(pages, dtype=torch.int32).reshape(USERS, 2)
        return ttnn.from_torch(table, **self.numbers(ttnn.int32))  # wrong page

    def w(self, name: str) -> ttnn.Tensor:
        return self.placed[f"{self.layer}.{name}"]

    # -- where devices talk ----------------------------------------------------------------------------------------

    def sum_down(self, x: ttnn.Tensor) -> ttnn.Tensor:
        return x if self.rows == 1 else ttnn.all_reduce(x, cluster_axis=DOWN)

    def sum_along(self, x: ttnn.Tensor) -> ttnn.Tensor:
        if self.columns == 1:
            return x
        if self.form.scatters or self.wrong("scattered and gathered along other dims"):
            dim = 2 if self.wrong("scattered and gathered along other dims") else 3
            mine = ttnn.reduce_scatter(x, dim=3, cluster_axis=ALONG)
            whole = ttnn.all_gather(mine, dim=dim, cluster_axis=ALONG)  # scattered and gathered along other dims
            return ttnn.reshape(whole, x.shape)
        return ttnn.all_reduce(x, cluster_axis=ALONG)

    # -- the model -------------------------------------------------------------------------------------------------

    def norm(self, x: ttnn.Tensor, weight: ttnn.Tensor, epsilon: float = EPSILON) -> ttnn.Tensor:
        if self.rows == 1:
            return ttnn.rms_norm(x, epsilon=epsilon, weight=weight)  # norm weight reversed, norm epsilon
        stats = ttnn.rms_norm_pre_all_gather(x, dtype=self.form.dtype)
        if not self.wrong("statistics not gathered"):
            stats = ttnn.all_gather(stats, dim=3, cluster_axis=DOWN)
        # statistics not gathered, norm epsilon, norm shards swapped, norm weight reversed
        return ttnn.rms_norm_post_all_gather(x, stats, epsilon=epsilon, weight=weight)

    def attention_out(self, joined: ttnn.Tensor) -> ttnn.Tensor:
        if self.wrong("bias on every shard"):
            return self.sum_along(ttnn.linear(joined, self.w("o"), bias=self.w("o_bias")))  # bias on every shard
        partial = ttnn.linear(joined, self.w("o"))
        if self.wrong("reduce along the wrong axis"):
            total = ttnn.all_reduce(partial, cluster_axis=DOWN)  # reduce along the wrong axis
        else:
            total = partial if self.wrong("attention not reduced") else self.sum_along(partial)
        return ttnn.add(total, self.w("o_bias"))  # attention not reduced

    def qkv(self, x: ttnn.Tensor) -> ttnn.Tensor:
        return self.sum_down(ttnn.linear(x, self.w("qkv")))

    def turned(self, x: ttnn.Tensor, angles: Pair, decoding: bool = False) -> ttnn.Tensor:
        return ttnn.experimental.rotary_embedding_llama(x, *angles, self.turning, is_decode_mode=decoding)

    def prefill_attention(self, x: ttnn.Tensor, angles: Pair, user: int) -> ttnn.Tensor:
        q, k, v = ttnn.experimental.nlp_create_qkv_heads(self.qkv(x), transpose_k_heads=False, **self.heads)
        q, k = self.turned(q, angles), self.turned(k, angles)
        target = 0 if self.wrong("other user's pages") else user
        for cache_, new in zip(self.caches[self.layer], (k, v), strict=True):
            ttnn.experimental.paged_fill_cache(cache_, new, self.pages, batch_idx=target)  # other user's pages
        scale = HIDDEN**-0.5 if self.wrong("wrong scale") else HEAD**-0.5
        if self.form.scale_first:
            q, scale = ttnn.multiply(q, scale), 1.0
        causal = not self.wrong("mask forgotten")
        attend = ttnn.transformer.scaled_dot_product_attention
        seen = attend(q, k, v, is_causal=causal, scale=scale)  # wrong scale, mask forgotten
        return self.attention_out(ttnn.experimental.nlp_concat_heads(seen))

    def decode_attention(self, x: ttnn.Tensor, angles: Pair, positions: ttnn.Tensor, pages: ttnn.Tensor) -> ttnn.Tensor:
        q, k, v = ttnn.experimental.nlp_create_qkv_heads_decode(
            self.qkv(x), memory_config=ttnn.L1_HEIGHT_SHARDED_MEMORY_CONFIG, **self.heads
        )
        q, k = self.turned(q, angles, True), self.turned(k, angles, True)
        stored = (k, k) if self.wrong("keys stored as values") else (k, v)
        for cache_, new in zip(self.caches[self.layer], stored, strict=True):
            if not self.wrong("stale page"):
                # keys stored as values
                ttnn.experimental.paged_update_cache(cache_, new, update_idxs_tensor=positions, page_table=self.pages)
        attend = ttnn.transformer.paged_scaled_dot_product_attention_decode
        caches = self.caches[self.layer]
        seen = attend(q, *caches, pages, cur_pos_tensor=positions, scale=HEAD**-0.5)  # stale page, wrong page
        joined = ttnn.experimental.nlp_concat_heads_decode(seen, num_heads=self.heads["num_heads"])
        return self.attention_out(joined[:, :, :USERS, :])

    def mlp(self, x: ttnn.Tensor) -> ttnn.Tensor:
        if self.form.unified:
            gate = distributed.linear(x, self.w("gate"), activation="silu")
            up = distributed.linear(x, self.w("up"))
            like_x = [Shard(3) if self.rows > 1 else Replicate(), Replicate()]
            return distributed.linear(distributed.multiply(gate, up), self.w("down"), output_topology=like_x)
        if self.form.up_first:
            up = self.sum_down(ttnn.linear(x, self.w("up")))
            gate = self.sum_down(ttnn.linear(x, self.w("gate")))
        else:
            gate = self.sum_down(ttnn.linear(x, self.w("gate")))  # bfp4 for bf16, stale shard
            up = self.sum_down(ttnn.linear(x, self.w("up")))  # shard on the wrong device
        if self.wrong("gate not reduced"):
            gate = ttnn.linear(x, self.w("gate"))
        if self.form.silu_apart:
            inner = ttnn.mul(ttnn.silu(gate), up)
        else:
            inner = ttnn.mul(gate, up, input_tensor_a_activations=[ttnn.UnaryOpType.SILU])  # gate not reduced
        partial = ttnn.linear(inner, self.w("down"))  # shards transposed
        total = partial if self.wrong("mlp not reduced") else self.sum_along(partial)
        if self.wrong("reduced twice"):
            total = ttnn.all_reduce(total, cluster_axis=ALONG)  # reduced twice
        return total

    def block(self, x: ttnn.Tensor, attended: ttnn.Tensor, normed: ttnn.Tensor) -> ttnn.Tensor:
        x = ttnn.add(normed if self.wrong("residual after the norm") else x, attended)  # residual after the norm
        return ttnn.add(x, self.mlp(self.norm(x, self.w("norm_2"))))  # mlp not reduced

    def logits(self, x: ttnn.Tensor) -> ttnn.Tensor:
        signpost("head")
        self.layer = self.form.mistaken_layer
        own = self.sum_down(ttnn.linear(self.norm(x, self.placed["norm"]), self.placed["head"]))
        if self.columns == 1:
            return own
        if self.wrong("gathered along the wrong dim"):
            return ttnn.all_gather(own, dim=2, cluster_axis=ALONG)  # gathered along the wrong dim
        return ttnn.all_gather(own, dim=3, cluster_axis=ALONG)

    def probabilities(self, x: ttnn.Tensor) -> ttnn.Tensor:
        signpost("head")
        self.layer = self.form.mistaken_layer
        own = self.sum_down(ttnn.linear(self.norm(x, self.placed["norm"]), self.placed["head"]))
        early = self.wrong("softmax over a shard")
        if self.columns > 1 and not early:
            own = ttnn.all_gather(own, dim=3, cluster_axis=ALONG)
        likely = ttnn.softmax(own, dim=-1)  # softmax over a shard
        return ttnn.all_gather(likely, dim=3, cluster_axis=ALONG) if early else likely

    # -- what is run -----------------------------------------------------------------------------------------------

    def prefill(self, user: int) -> ttnn.Tensor:
        tokens = prompts()[user : user + 1]
        if self.form.mistake == "token off by one":
            tokens = tokens.roll(1, 1)
        ids = ttnn.from_torch(tokens, **self.numbers(ttnn.uint32))  # token off by one
        x = ttnn.unsqueeze_to_4D(ttnn.embedding(ids, self.placed["embedding"], layout=ttnn.TILE_LAYOUT))
        start = 1 if self.form.mistake == "rope off by one" else 0
        here = slice(start, start + PROMPT)
        cos, sin = (ttnn.from_torch(t[None, None, here], **self.on()) for t in self.cos_sin)  # rope off by one
        for number in range(self.form.layers):
            self.layer = number
            signpost(f"layer {number}")
            epsilon = 0.5 if self.wrong("norm epsilon") else EPSILON
            normed = self.norm(x, self.w("norm_1"), epsilon)
            x = self.block(x, self.prefill_attention(normed, (cos, sin), user), normed)
        return self.logits(x)

    def decode(self, tokens: ttnn.Tensor, positions: ttnn.Tensor, turns: ttnn.Tensor) -> ttnn.Tensor:
        x = ttnn.unsqueeze_to_4D(ttnn.embedding(tokens, self.placed["embedding"], layout=ttnn.TILE_LAYOUT))
        angles = [ttnn.embedding(turns, table, layout=ttnn.TILE_LAYOUT) for table in self.tables]
        cos, sin = (ttnn.transpose(ttnn.unsqueeze_to_4D(rows), 1, 2) for rows in angles)
        pages = self.put_pages((2, 3, 0, 1)) if self.form.mistake == "wrong page" else self.pages
        for number in range(self.form.layers):
            self.layer = number
            signpost(f"layer {number}")
            normed = self.norm(x, self.w("norm_1"))
            x = self.block(x, self.decode_attention(normed, (cos, sin), positions, pages), normed)
        return self.probabilities(x)

    def decode_inputs(self) -> tuple[ttnn.Tensor, ttnn.Tensor, ttnn.Tensor]:
        at = torch.full((USERS,), PROMPT, dtype=torch.int32)
        offset = 1 if self.form.mistake == "decode rope off by one" else 0
        unsigned = self.numbers(ttnn.uint32)
        return (
            ttnn.from_torch(prompts()[:, 0][None], **unsigned),
            ttnn.from_torch(at, **self.numbers(ttnn.int32)),
            ttnn.from_torch(at[None] + offset, **unsigned),  # decode rope off by one
        )

    def replayed(self, *inputs: ttnn.Tensor) -> ttnn.Tensor:
        """A decode step run once to compile it, captured, and replayed."""
        self.decode(*inputs)
        trace = ttnn.begin_trace_capture(self.mesh, cq_id=0)
        output = self.decode(*inputs)
        ttnn.end_trace_capture(self.mesh, trace, cq_id=0)
        ttnn.execute_trace(self.mesh, trace, cq_id=0, blocking=True)
        return output

    def run(self) -> list[torch.Tensor]:
        self.place()
        results = [self.prefill(user) for user in range(USERS)]
        tokens, positions, turns = self.decode_inputs()
        for _ in range(self.form.steps):
            step = self.replayed if self.form.traced else self.decode
            results.append(step(tokens, positions, turns))
            ttnn.plus_one(positions)
            ttnn.plus_one(turns)
        return [ttnn.to_torch(ttnn.get_device_tensors(result)[0]).float() for result in results]


def run(form: Form) -> list[torch.Tensor]:
    """Logits after each prompt, and probabilities of the token that follows one more."""
    with opened(form.mesh) as mesh:
        return Llama(form, mesh).run()
