"""A block of a transformer in single ops, as a beginner writes it: its batch down the mesh, its heads along it."""

from __future__ import annotations

import torch
from seeded_mesh import Desk, drawn

import softmesh as ttnn

BATCH, TOKENS, WIDTH, HEADS, KV_HEADS, HEAD, INNER = 8, 32, 256, 16, 8, 32, 512
QUERIES, KEYS = HEADS * HEAD, KV_HEADS * HEAD
FAR = -1e4


def weights() -> dict[str, torch.Tensor]:
    shapes = {
        "q": (WIDTH, QUERIES),
        "k": (WIDTH, KEYS),
        "v": (WIDTH, KEYS),
        "o": (QUERIES, WIDTH),
        "up": (WIDTH, INNER),
        "down": (INNER, WIDTH),
    }
    kept = {name: drawn(*shape, seed=n, scale=shape[0] ** -0.5) for n, (name, shape) in enumerate(shapes.items())}
    kept |= {f"norm_{n}": 1 + drawn(WIDTH, seed=10 + n, scale=0.3) for n in (1, 2)}
    return kept | {"bias": drawn(WIDTH, seed=20, scale=0.5), "places": drawn(2 * TOKENS, WIDTH, seed=21)}


class Block:
    def __init__(self, desk: Desk) -> None:
        self.desk, self.wrong, self.like = desk, desk.wrong, desk.like
        w = weights()
        if desk.columns == 1 or not self.wrong("shards in the order of another mesh"):
            order = list(range(desk.columns))
        else:
            order = [*range(desk.columns // 2, desk.columns), *range(desk.columns // 2)]
        out = torch.cat([w["o"].chunk(desk.columns, 0)[n] for n in order])
        if self.wrong("weights of an earlier step on one row of chips"):
            w["up"] = w["up"] * 0.97
        light = ttnn.bfloat8_b if self.like("weights in bfp8") else None
        self.q = self.put(w["q"], None, 1, light)
        self.k = self.put(w["k"], None, 1, light)
        self.v = self.put(w["v"], None, 1, light)
        self.o = self.put(out, None, 0, light)  # shards in the order of another mesh
        self.up = self.put(w["up"], None, 1, light)  # weights of an earlier step on one row of chips
        self.down = self.put(w["down"], None, 0, light)
        self.norms = [self.put(w[f"norm_{n}"].reshape(1, -1)) for n in (1, 2)]
        self.bias = self.put(w["bias"].reshape(1, -1))
        self.places = self.put(w["places"])
        self.heads, self.kv_heads = HEADS // desk.columns, KV_HEADS // desk.columns
        self.turns, self.mask = self.tables()

    def put(
        self, x: torch.Tensor, down: int | None = None, along: int | None = None, dtype: ttnn.DataType | None = None
    ) -> ttnn.Tensor:
        desk = self.desk
        given = dtype or desk.form.dtype
        return ttnn.from_torch(  # any table
            x, dtype=given, layout=ttnn.TILE_LAYOUT, device=desk.mesh, mesh_mapper=desk.mapper(down, along)
        )

    def tables(self) -> tuple[list[ttnn.Tensor], ttnn.Tensor]:
        base = 1000.0 if self.wrong("base of the angles") else 10000.0
        angles = torch.outer(torch.arange(TOKENS), base ** (-torch.arange(0, HEAD, 2) / HEAD))
        pairs = angles.repeat_interleave(2, 1) if self.wrong("angles by pairs") else torch.cat([angles, angles], 1)
        future = torch.full((TOKENS, TOKENS), FAR).triu(2 if self.wrong("mask off by one") else 1)
        if self.wrong("mask transposed"):
            future = future.T.contiguous()
        tables = [
            self.put(pairs.cos()[None, None]),  # base of the angles, angles by pairs
            self.put(pairs.sin()[None, None]),
        ]
        return tables, self.put(future[None, None])  # mask off by one, mask transposed

    def split(self, x: ttnn.Tensor, heads: int, name: str) -> ttnn.Tensor:
        if self.wrong("heads taken for tokens") and name == "v":
            return ttnn.reshape(x, (x.shape[0], heads, TOKENS, HEAD))  # heads taken for tokens
        parted = ttnn.reshape(x, (x.shape[0], TOKENS, heads, HEAD))
        return (
            ttnn.transpose(parted, 1, 2) if self.like("transpose for permute") else ttnn.permute(parted, (0, 2, 1, 3))
        )

    def turned(self, x: ttnn.Tensor) -> ttnn.Tensor:
        cos, sin = self.turns
        half = HEAD // 2
        last = HEAD - 1 if self.wrong("slice too short") else HEAD
        left = ttnn.slice(x, [0, 0, 0, 0], [x.shape[0], x.shape[1], TOKENS, half])
        right = ttnn.slice(x, [0, 0, 0, last - half], [x.shape[0], x.shape[1], TOKENS, last])  # slice too short
        if not self.wrong("sign of the turn"):
            right = ttnn.neg(right)
        other = ttnn.concat([right, left], dim=-1)  # sign of the turn
        if self.wrong("sine and cosine swapped"):
            cos, sin = sin, cos
        return ttnn.add(ttnn.multiply(x, cos), ttnn.multiply(other, sin))  # sine and cosine swapped

    def repeated(self, x: ttnn.Tensor) -> ttnn.Tensor:
        """Each head of keys or values for its group of queries."""
        if self.wrong("heads repeated in turn"):
            return ttnn.repeat(x, (1, self.heads // self.kv_heads, 1, 1))  # heads repeated in turn
        return ttnn.repeat_interleave(x, self.heads // self.kv_heads, dim=1)  # heads repeated in turn

    def softmax(self, x: ttnn.Tensor) -> ttnn.Tensor:
        if self.like("softmax by hand"):
            powers = ttnn.exp(ttnn.subtract(x, ttnn.max(x, dim=-1, keepdim=True)))
            return ttnn.divide(powers, ttnn.sum(powers, dim=-1, keepdim=True))
        if self.wrong("softmax down the queries"):
            return ttnn.softmax(x, dim=-2)  # softmax down the queries
        return ttnn.softmax(x, dim=-1)  # mask forgotten, scale forgotten, softmax down the queries

    def attention(self, x: ttnn.Tensor) -> ttnn.Tensor:
        q = self.split(ttnn.linear(x, self.q), self.heads, "q")
        k = self.split(ttnn.linear(x, self.k), self.kv_heads, "k")
        v = self.split(ttnn.linear(x, self.v), self.kv_heads, "v")
        if not self.wrong("keys not turned"):
            q, k = self.turned(q), self.turned(k)
        else:
            q = self.turned(q)
        k, v = self.repeated(k), self.repeated(v)  # keys not turned
        if self.wrong("queries and keys swapped"):
            q, k = k, q
        scores = ttnn.matmul(q, ttnn.transpose(k, -2, -1))  # queries and keys swapped
        if not self.wrong("scale forgotten"):
            scale = HEAD**-1.0 if self.wrong("scale without its root") else HEAD**-0.5
            scores = ttnn.multiply(scores, scale)  # scale without its root
        if not self.wrong("mask forgotten"):
            scores = ttnn.add(scores, self.mask)  # scale forgotten
        seen = ttnn.matmul(self.softmax(scores), v)
        together = (x.shape[0], 1, TOKENS, QUERIES // self.desk.columns)
        if self.like("joined by an op") or self.wrong("heads joined without order"):
            joined = ttnn.reshape(seen, together)  # heads joined without order
            if self.like("joined by an op"):
                joined = ttnn.experimental.nlp_concat_heads(seen)
        else:
            joined = ttnn.reshape(ttnn.permute(seen, (0, 2, 1, 3)), together)  # heads joined without order
        part = ttnn.linear(joined, self.o)  # heads joined without order
        if self.wrong("bias before the sum"):
            return self.desk.total(ttnn.add(part, self.bias))  # bias before the sum
        if self.wrong("sum along both axes"):
            part = ttnn.all_reduce(part, cluster_axis=0)  # sum along both axes
        if self.like("scattered and gathered"):
            return ttnn.add(self.desk.gathered(self.desk.scattered(part, 3), 3), self.bias)
        return ttnn.add(self.desk.total(part), self.bias)

    def mlp(self, x: ttnn.Tensor) -> ttnn.Tensor:
        inner = ttnn.linear(x, self.up)
        if self.like("activation within"):
            inner = ttnn.linear(x, self.up, activation="gelu")
        elif self.wrong("another activation"):
            inner = ttnn.silu(inner)  # another activation
        else:
            inner = ttnn.gelu(inner)  # another activation
        if self.wrong("activation in bfp4"):
            inner = ttnn.typecast(inner, ttnn.bfloat4_b)  # activation in bfp4
        if self.wrong("dropout left on"):
            inner = ttnn.experimental.dropout(inner, 0.3, 1 / 0.7, 7)  # dropout left on
        part = ttnn.linear(inner, self.down)  # activation in bfp4, dropout left on
        if self.wrong("scattered along another dim"):
            scattered = ttnn.reduce_scatter(part, dim=2, cluster_axis=1)  # scattered along another dim
            return ttnn.all_gather(scattered, dim=3, cluster_axis=1)  # scattered along another dim
        return self.desk.total(part)

    def norm(self, x: ttnn.Tensor, which: int) -> ttnn.Tensor:
        if self.wrong("weight of the other norm") and which == 0:
            return ttnn.rms_norm(x, epsilon=1e-5, weight=self.norms[1])  # weight of the other norm
        if self.wrong("another norm") and which == 1:
            return ttnn.layer_norm(x, epsilon=1e-5, weight=self.norms[1])  # another norm
        if self.wrong("weight of the norm forgotten") and which == 1:
            return ttnn.rms_norm(x, epsilon=1e-5)  # weight of the norm forgotten
        return ttnn.rms_norm(x, epsilon=1e-5, weight=self.norms[which])  # another norm, weight of the norm forgotten

    def __call__(self, tokens: torch.Tensor) -> ttnn.Tensor:
        start = 2 if self.wrong("slice of the places") else 0
        places = ttnn.slice(self.places, [start, 0], [start + TOKENS, WIDTH])  # slice of the places
        x = ttnn.add(self.put(tokens[:, None], 0), places)
        attended = self.attention(self.norm(x, 0))
        if self.wrong("residual in bfp8"):
            x = ttnn.typecast(x, ttnn.bfloat4_b)  # residual in bfp8
        if self.wrong("residual forgotten"):
            y = attended
        else:
            y = (
                ttnn.add(attended, x) if self.like("sum in the other order") else ttnn.add(x, attended)
            )  # residual in bfp8
        normed = self.norm(y, 1)  # residual forgotten
        if self.wrong("residual of the block before"):
            return ttnn.add(x, self.mlp(normed))  # residual of the block before
        if self.wrong("residual subtracted"):
            return ttnn.subtract(y, self.mlp(normed))  # residual subtracted
        return ttnn.add(y, self.mlp(normed))  # residual subtracted


def run(desk: Desk) -> torch.Tensor:
    block = Block(desk)
    return desk.read(block(drawn(BATCH, TOKENS, WIDTH, seed=30)), along=1)[:, :1]
