"""A layer of experts: a router, experts along the columns of the mesh, tokens down its rows, and their mixture."""

from __future__ import annotations

import torch
from seeded_mesh import Desk, drawn

import softmesh as ttnn

TOKENS, WIDTH, INNER, EXPERTS, CHOSEN = 256, 64, 128, 16, 4


class Experts:
    def __init__(self, desk: Desk) -> None:
        self.desk, self.wrong = desk, desk.wrong
        up, gate = (drawn(1, EXPERTS, WIDTH, INNER, seed=n, scale=WIDTH**-0.5) for n in (1, 2))
        down = drawn(1, EXPERTS, INNER, WIDTH, seed=3, scale=INNER**-0.5)
        if self.wrong("experts out of order"):
            down = down.flip(1)
        if self.wrong("one chip's experts swapped"):
            down = down.clone()
            down[:, [0, 1]] = down[:, [1, 0]]
        self.router = self.put(drawn(WIDTH, EXPERTS, seed=4))
        self.up, self.gate = self.put(up, None, 1), self.put(gate, None, 1)
        self.down = self.put(down, None, 1)  # experts out of order, one chip's experts swapped
        self.offset = self.put(drawn(1, 1, 1, EXPERTS, seed=5, scale=0.5))

    def put(
        self, x: torch.Tensor, down: int | None = None, along: int | None = None, dtype: ttnn.DataType | None = None
    ) -> ttnn.Tensor:
        desk = self.desk
        return ttnn.from_torch(
            x,
            dtype=dtype or desk.form.dtype,
            layout=ttnn.TILE_LAYOUT,
            device=desk.mesh,
            mesh_mapper=desk.mapper(down, along),
        )

    def mixture(self, x: ttnn.Tensor) -> ttnn.Tensor:
        """For each token the share of every expert: zero but for the best."""
        scores = ttnn.linear(x, self.router)
        if not self.wrong("offset forgotten"):
            scores = ttnn.add(scores, self.offset)
        if self.wrong("sigmoid for softmax"):
            likely = ttnn.sigmoid(scores)  # sigmoid for softmax
        else:
            likely = ttnn.softmax(scores, dim=-1)  # sigmoid for softmax, offset forgotten
        best, _ = ttnn.topk(likely, CHOSEN, dim=-1)
        if self.wrong("one expert too few"):
            best, _ = ttnn.topk(likely, CHOSEN - 1, dim=-1)  # one expert too few
        least = ttnn.min(best, dim=-1, keepdim=True)  # one expert too few
        kept = ttnn.multiply(likely, ttnn.typecast(ttnn.ge(likely, least), self.desk.form.dtype))
        if self.wrong("shares not normalised"):
            return kept
        return ttnn.divide(kept, ttnn.sum(kept, dim=-1, keepdim=True))

    def own_shares(self, shares: ttnn.Tensor) -> ttnn.Tensor:
        """Of the experts on this device: [1, experts here, tokens, 1]."""
        turned = ttnn.permute(shares, (0, 3, 2, 1))  # shares not normalised
        if self.desk.columns == 1:
            return turned
        if self.wrong("shares of the wrong experts"):
            return ttnn.mesh_partition(turned, dim=1, cluster_axis=0)  # shares of the wrong experts
        return ttnn.mesh_partition(turned, dim=1, cluster_axis=1)

    def __call__(self, x: ttnn.Tensor) -> ttnn.Tensor:
        shares = self.own_shares(self.mixture(x))
        each = ttnn.repeat(x, (1, EXPERTS // self.desk.columns, 1, 1))
        gate, up = ttnn.matmul(each, self.gate), ttnn.matmul(each, self.up)
        if self.wrong("gate and up swapped"):
            gate, up = up, gate
        inner = ttnn.multiply(ttnn.silu(gate), up)  # gate and up swapped
        made = ttnn.multiply(ttnn.matmul(inner, self.down), shares)  # shares of the wrong experts
        if self.wrong("mean of the experts"):
            mixed = ttnn.mean(made, dim=1, keepdim=True)  # mean of the experts
        else:
            mixed = ttnn.sum(made, dim=1, keepdim=True)  # mean of the experts
        if self.wrong("experts not added up"):
            return ttnn.add(x, mixed)  # experts not added up
        if self.wrong("experts added up down the mesh"):
            return ttnn.add(x, self.desk.total(mixed, 0))  # experts added up down the mesh
        return ttnn.add(x, self.desk.total(mixed))


def run(desk: Desk) -> torch.Tensor:
    layer = Experts(desk)
    x = layer.put(drawn(1, 1, TOKENS, WIDTH, seed=6), 2)
    return desk.read(ttnn.rms_norm(layer(layer(x)), epsilon=1e-5), 2, 1)[:, :1]
