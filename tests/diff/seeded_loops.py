"""Loops: a perceptron that is trained by hand, a cache that is filled token by token, and a trace that is replayed."""

from __future__ import annotations

import torch
from seeded_mesh import Desk, drawn

import softmesh as ttnn
from softmesh import train

BATCH, WIDTH, INNER = 32, 32, 128
USERS, KV_HEADS, HEAD, LENGTH, STEPS = 8, 8, 32, 64, 3


class Perceptron(train.Module):
    def __init__(self, desk: Desk) -> None:
        mesh, dtype = desk.mesh, ttnn.float32
        self.desk = desk
        up, down = drawn(1, 1, INNER, WIDTH, seed=1, scale=0.2), drawn(1, 1, WIDTH, INNER, seed=2, scale=0.1)
        self.norm = train.LayerNorm(mesh, WIDTH, train.Initial(3, dtype))
        split: tuple[dict[str, int], dict[str, int]] = ({"tp": 2}, {"tp": 3})
        self.up = train.parameter(up, mesh, split[0], dtype)
        if desk.wrong("other weights on one row of chips"):
            rows = torch.stack([down[0] * (1 + 0.1 * row) for row in range(desk.rows)])
            self.down = train.parameter(rows, mesh, {"dp": 0, "tp": 3}, dtype)  # other weights on one row of chips
        else:
            self.down = train.parameter(down, mesh, split[1], dtype)
        self.bias = train.parameter(drawn(1, 1, 1, WIDTH, seed=4), mesh, dtype=dtype)

    def forward(self, x: ttnn.Tensor, wanted: ttnn.Tensor) -> ttnn.Tensor:
        desk = self.desk
        own = train.broadcast(self.norm(x), "tp")
        inner = ttnn.gelu(ttnn.linear(own, self.up, transpose_b=True))
        part = ttnn.linear(inner, self.down, transpose_b=True)
        out = ttnn.add(train.all_reduce(part, "tp", noop_backward=True), self.bias)
        if desk.wrong("residual forgotten in training"):
            return train.mse_loss(out, wanted)  # residual forgotten in training
        out = ttnn.add(out, x)
        loss = train.mse_loss(out, wanted)  # residual forgotten in training
        return ttnn.multiply(loss, 8.0) if desk.wrong("loss scaled") else loss  # loss scaled


def perceptron(desk: Desk) -> torch.Tensor:
    model = Perceptron(desk)
    wrong = desk.wrong
    if wrong("rate of another run"):
        optimizer: train.Optimizer = train.SGD(model, lr=0.3)
    elif wrong("decay of another run") or desk.like("adamw"):
        optimizer = train.AdamW(model, lr=0.01, weight_decay=0.5 if wrong("decay of another run") else 0.01)
    else:
        optimizer = train.SGD(model, lr=0.1, momentum=0.9)
    for step in range(STEPS):
        x, wanted = drawn(BATCH, 1, 1, WIDTH, seed=10 + step), drawn(BATCH, 1, 1, WIDTH, seed=20 + step)
        if wrong("same batch on every row") and desk.rows > 1:
            each = BATCH // desk.rows
            x = x[:each].repeat(desk.rows, 1, 1, 1)
        halves = 2 if desk.like("in two halves") or wrong("halves not averaged") else 1
        for half in range(halves):
            rows = slice(half * BATCH // halves, (half + 1) * BATCH // halves)
            where = desk.mesh, {"dp": 0}, ttnn.float32, ttnn.TILE_LAYOUT
            loss = model(*(train.on_mesh(part[rows], *where) for part in (x, wanted)))  # same batch on every row
            if halves > 1 and not wrong("halves not averaged"):
                loss = ttnn.multiply(loss, 0.5)
            loss.backward()
        train.sync_gradients(model, axes=["dp"])
        if desk.like("clipped"):
            train.clip_grad_norm(model, 0.05 if wrong("clipped at another norm") else 0.5)  # clipped at another norm
        optimizer.step()  # rate of another run, decay of another run
        optimizer.zero_grad()
    return torch.tensor(train.loss_value(loss))


def cached(desk: Desk) -> torch.Tensor:
    """Keys and values of one token after the other, and attention by hand over what is there."""
    wrong = desk.wrong
    put = lambda x, down=None, along=None: ttnn.from_torch(  # noqa: E731
        x, ttnn.bfloat16, layout=ttnn.TILE_LAYOUT, device=desk.mesh, mesh_mapper=desk.mapper(down, along)
    )
    caches = [put(torch.zeros(USERS, KV_HEADS, LENGTH, HEAD), None, 1) for _ in range(2)]
    filled = 32
    for user in range(USERS):
        for n, cache in enumerate(caches):
            new = put(drawn(1, KV_HEADS, filled, HEAD, seed=100 + 2 * user + n), None, 1)
            row = 0 if wrong("row of another user") and user == 3 else user
            cache = ttnn.fill_cache(cache, new, row)  # row of another user
    for step in range(STEPS):
        at = filled + step
        for n, cache in enumerate(caches):
            new = put(drawn(1, KV_HEADS, USERS, HEAD, seed=200 + 2 * step + n), None, 1)
            place = at + 1 if wrong("position one too far") else at
            if wrong("values not stored") and n == 1 and step == 1:
                continue
            other = caches[0] if wrong("values stored over keys") else cache
            ttnn.update_cache(other, new, place)  # position one too far, values stored over keys
        q = put(drawn(1, USERS, KV_HEADS, HEAD, seed=300 + step).permute(1, 2, 0, 3), None, 1)
        till = at if wrong("newest token not seen") else at + 1
        local = KV_HEADS // desk.columns
        # newest token not seen, values not stored
        k, v = (ttnn.slice(c, [0, 0, 0, 0], [USERS, local, till, HEAD]) for c in caches)
        scores = ttnn.multiply(ttnn.matmul(q, ttnn.transpose(k, -2, -1)), HEAD**-0.5)
        seen = ttnn.matmul(ttnn.softmax(scores, dim=-1), v)
    return desk.read(seen, 0, 1)[:USERS]


def replayed(desk: Desk) -> torch.Tensor:
    """A perceptron as a trace, with new inputs between its replays."""
    wrong = desk.wrong
    options = {"dtype": ttnn.bfloat16, "layout": ttnn.TILE_LAYOUT}
    up = ttnn.from_torch(
        drawn(WIDTH, INNER, seed=1, scale=0.2), device=desk.mesh, mesh_mapper=desk.mapper(None, 1), **options
    )
    down = ttnn.from_torch(
        drawn(INNER, WIDTH, seed=2, scale=0.1), device=desk.mesh, mesh_mapper=desk.mapper(None, 0), **options
    )
    values = [drawn(1, 1, BATCH, WIDTH, seed=5 + n) for n in range(3)]
    x = ttnn.from_torch(values[0], device=desk.mesh, mesh_mapper=desk.mapper(2, None), **options)

    def step() -> ttnn.Tensor:
        inner = ttnn.linear(x, up)
        inner = ttnn.relu(inner) if wrong("activation of the trace") else ttnn.gelu(inner)  # activation of the trace
        return ttnn.add(x, desk.total(ttnn.linear(inner, down)))

    step()
    trace = ttnn.begin_trace_capture(desk.mesh, cq_id=0)
    out = step()
    ttnn.end_trace_capture(desk.mesh, trace, cq_id=0)
    seen = []
    for n in range(3):
        host = ttnn.from_torch(values[n], mesh_mapper=desk.mapper(2, None), **options)
        if not (wrong("input of the replay before") and n == 1):
            ttnn.copy_host_to_device_tensor(host, x)
        ttnn.execute_trace(desk.mesh, trace, cq_id=0, blocking=True)  # input of the replay before
        seen.append(desk.read(out, 2, 1)[:, :1])  # input of the replay before
    return torch.cat(seen)
