"""A block of a diffusion transformer: chunks of one product shift, scale and gate it; devices hold slices of each."""

from __future__ import annotations

import torch
from seeded_mesh import Desk, drawn

import softmesh as ttnn

TOKENS, WIDTH, INNER, STEPS, CHUNKS = 32, 256, 512, 3, 3


class Block:
    def __init__(self, desk: Desk) -> None:
        self.desk = desk
        light = ttnn.bfloat8_b if desk.like("one weight in bfp8") else None
        fused = drawn(WIDTH, CHUNKS * WIDTH, seed=1, scale=WIDTH**-0.5)
        dealt = fused.reshape(WIDTH, CHUNKS, desk.columns, -1).transpose(1, 2).reshape(WIDTH, -1)
        self.chunks = self.put(dealt, None, 1)
        self.up = self.put(drawn(WIDTH, INNER, seed=2, scale=WIDTH**-0.5), None, 1, dtype=light)
        self.down = self.put(drawn(INNER, WIDTH, seed=3, scale=INNER**-0.5), None, 0)

    def host(self, x: torch.Tensor, down: int | None = None, along: int | None = None) -> ttnn.Tensor:
        return ttnn.from_torch(
            x, self.desk.form.dtype, layout=ttnn.TILE_LAYOUT, mesh_mapper=self.desk.mapper(down, along)
        )

    def put(
        self, x: torch.Tensor, down: int | None = None, along: int | None = None, dtype: object = None
    ) -> ttnn.Tensor:
        desk = self.desk
        return ttnn.from_torch(
            x,
            dtype or desk.form.dtype,
            layout=ttnn.TILE_LAYOUT,
            device=desk.mesh,
            mesh_mapper=desk.mapper(down, along),
        )

    def __call__(self, x: ttnn.Tensor, time: ttnn.Tensor) -> ttnn.Tensor:
        desk = self.desk
        shift, scale, gate = ttnn.chunk(ttnn.linear(ttnn.silu(time), self.chunks), CHUNKS, -1)
        if desk.wrong("order of the chunks"):
            shift, scale = scale, shift  # order of the chunks
        h = ttnn.layer_norm(x, epsilon=1e-5)
        if desk.columns > 1:
            h = ttnn.mesh_partition(h, dim=3, cluster_axis=1)
        if desk.like("another form"):
            h = ttnn.add(ttnn.add(ttnn.multiply(h, scale), h), shift)
        else:
            h = ttnn.add(ttnn.multiply(h, ttnn.add(scale, 1.0)), shift)  # order of the chunks
        h = desk.gathered(h, 3)
        h = desk.scattered(ttnn.linear(ttnn.gelu(ttnn.linear(h, self.up)), self.down), 3)
        return ttnn.add(x, desk.gathered(ttnn.multiply(h, gate), 3))


def run(desk: Desk) -> torch.Tensor:
    block = Block(desk)
    x = block.put(drawn(4, 1, TOKENS, WIDTH, seed=5), 0)
    times = [block.host(drawn(1, 1, 1, WIDTH, seed=10 + step)) for step in range(STEPS)]
    time = times[0].to(desk.mesh)
    if not desk.like("traced"):
        for step in range(STEPS):
            x = block(x, times[step].to(desk.mesh))
        return read(desk, x)
    block(x, time)
    trace = ttnn.begin_trace_capture(desk.mesh, cq_id=0)
    out = block(x, time)
    ttnn.end_trace_capture(desk.mesh, trace, cq_id=0)
    for step in range(STEPS):
        if not (desk.wrong("time of the step before") and step == 1):
            ttnn.copy_host_to_device_tensor(times[step], time)
        ttnn.execute_trace(desk.mesh, trace, cq_id=0, blocking=True)
        ttnn.copy(out, x)
    return read(desk, x)  # time of the step before


def read(desk: Desk, x: ttnn.Tensor) -> torch.Tensor:
    if desk.like("read by pieces"):
        pieces = ttnn.get_device_tensors(x)
        return torch.cat([ttnn.to_torch(piece) for piece in pieces[:: desk.columns]])
    return desk.read(x, 0, 1)[:, :1]
