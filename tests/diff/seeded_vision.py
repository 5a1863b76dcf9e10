"""Patches of pictures, a class token, attention in one op and a head: pictures down the mesh, heads along it."""

from __future__ import annotations

import torch
from seeded_mesh import Desk, drawn

import softmesh as ttnn

PICTURES, SIDE, PATCH, WIDTH, HEADS, CLASSES = 8, 16, 4, 128, 8, 64
ACROSS = SIDE // PATCH
PATCHES = ACROSS * ACROSS
HEAD = WIDTH // HEADS


class Vision:
    def __init__(self, desk: Desk) -> None:
        self.desk, self.wrong, self.like = desk, desk.wrong, desk.like
        self.embed = self.put(drawn(3 * PATCH * PATCH, WIDTH, seed=1, scale=0.15))
        self.first = self.put(drawn(1, 1, WIDTH, seed=2))
        places = drawn(1, PATCHES + 1, WIDTH, seed=3)
        if self.wrong("places without the class token"):
            places = torch.cat([places[:, 1:], places[:, :1]], 1)
        self.places = self.put(places)  # places without the class token
        self.norms = [(self.put(1 + drawn(WIDTH, seed=n) / 3), self.put(drawn(WIDTH, seed=9 + n) / 3)) for n in (4, 5)]
        fused = torch.stack([drawn(WIDTH, WIDTH, seed=6 + n, scale=WIDTH**-0.5) for n in range(3)])
        by_device = fused.reshape(3, WIDTH, desk.columns, -1)
        if self.wrong("fused weight not dealt out"):
            fused = fused.movedim(0, 1).reshape(WIDTH, -1)
        else:
            fused = by_device.permute(1, 2, 0, 3).reshape(WIDTH, -1)
        self.qkv = self.put(fused, None, 1)  # fused weight not dealt out
        self.out = self.put(drawn(WIDTH, WIDTH, seed=20, scale=WIDTH**-0.5), None, 0)
        self.head = self.put(drawn(CLASSES, WIDTH, seed=21, scale=WIDTH**-0.5), None, 0)

    def put(self, x: torch.Tensor, down: int | None = None, along: int | None = None) -> ttnn.Tensor:
        desk = self.desk
        return ttnn.from_torch(
            x,
            dtype=desk.form.dtype,
            layout=ttnn.TILE_LAYOUT,
            device=desk.mesh,
            mesh_mapper=desk.mapper(down, along),
        )

    def patches(self, pictures: torch.Tensor) -> torch.Tensor:
        cut = pictures.reshape(-1, 3, ACROSS, PATCH, ACROSS, PATCH)
        order = (0, 4, 2, 1, 3, 5) if self.wrong("patches by columns") else (0, 2, 4, 1, 3, 5)
        if self.wrong("channels last"):
            order = (0, 2, 4, 3, 5, 1)
        return cut.permute(order).reshape(-1, PATCHES, 3 * PATCH * PATCH)

    def attention(self, x: ttnn.Tensor) -> ttnn.Tensor:
        fused = ttnn.unsqueeze(ttnn.linear(x, self.qkv), 1)
        heads = HEADS // self.desk.columns
        # fused weight not dealt out
        q, k, v = ttnn.experimental.nlp_create_qkv_heads(fused, num_heads=heads, transpose_k_heads=False)
        causal = self.wrong("causal where it should not be")
        seen = ttnn.transformer.scaled_dot_product_attention(q, k, v, is_causal=causal)  # causal where it should not be
        joined = ttnn.squeeze(ttnn.experimental.nlp_concat_heads(seen), 1)
        part = ttnn.linear(joined, self.out)
        if self.wrong("heads not added up"):
            return part
        return self.desk.total(part)

    def norm(self, x: ttnn.Tensor, which: int) -> ttnn.Tensor:
        weight, bias = self.norms[which]
        if self.wrong("weight and bias swapped") and which:
            weight, bias = bias, weight
        return ttnn.layer_norm(x, epsilon=1e-5, weight=weight, bias=bias)  # weight and bias swapped

    def __call__(self, pictures: torch.Tensor) -> ttnn.Tensor:
        x = self.put(self.patches(pictures), 0)  # patches by columns, channels last
        x = ttnn.linear(x, self.embed)
        first = ttnn.repeat(self.first, (x.shape[0], 1, 1))
        order = [x, first] if self.wrong("class token last") else [first, x]
        x = ttnn.add(ttnn.concat(order, dim=1), self.places)  # class token last
        x = ttnn.add(x, self.attention(self.norm(x, 0)))  # heads not added up
        x = self.norm(x, 1)
        if self.wrong("last patch for the class token"):
            token = ttnn.slice(x, [0, PATCHES, 0], [x.shape[0], PATCHES + 1, WIDTH])  # last patch for the class token
        else:
            token = ttnn.slice(x, [0, 0, 0], [x.shape[0], 1, WIDTH])  # last patch for the class token
        if self.wrong("tied weight not transposed"):
            n = self.head.shape[0]
            square = ttnn.slice(self.head, [0, 0], [n, n])  # tied weight not transposed
            own = ttnn.linear(ttnn.slice(token, [0, 0, 0], [x.shape[0], 1, n]), square)
        else:
            own = ttnn.linear(token, self.head, transpose_b=True)  # tied weight not transposed
        if self.wrong("classes of a column only"):
            return ttnn.softmax(own, dim=-1)  # classes of a column only
        if self.wrong("gathered down the mesh"):
            own = ttnn.all_gather(own, dim=2, cluster_axis=0)  # gathered down the mesh
        else:
            own = self.desk.gathered(own, 2)
        return ttnn.softmax(own, dim=-1)  # classes of a column only


def run(desk: Desk) -> torch.Tensor:
    pictures = drawn(PICTURES, 3, SIDE, SIDE, seed=30)
    return desk.read(Vision(desk)(pictures), along=1)[:, :1]
