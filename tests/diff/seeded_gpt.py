"""A small GPT that is trained, its batch along mesh axis "dp" and its weights along "tp", with mistakes to switch on.

A line that can go wrong ends in a comment with the names of its mistakes: where a finder must point.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

import torch

import softmesh as ttnn
from softmesh import train

VOCABULARY, FEATURES, HEADS, INNER, TOKENS, BATCH = 64, 64, 8, 256, 32, 8
HEAD = FEATURES // HEADS


@dataclass(frozen=True)
class Form:
    """What the program may look like; each of these is right."""

    mesh: tuple[int, int] = (2, 4)
    dtype: ttnn.DataType = ttnn.float32
    blocks: int = 1
    steps: int = 2
    optimizer: str = "sgd"
    gathers: bool = False  # the logits gathered for the loss
    scatters: bool = False  # reduce_scatter and all_gather in place of all_reduce
    sync: str = "fabric"
    clips: bool = False
    mistake: str | None = None

    def on_one_device(self) -> Form:
        return replace(self, mesh=(1, 1), mistake=None)


@contextmanager
def opened(shape: tuple[int, int]) -> Iterator[ttnn.MeshDevice]:
    ttnn.set_fabric_config(ttnn.FabricConfig.DISABLED if shape == (1, 1) else ttnn.FabricConfig.FABRIC_2D)
    mesh = ttnn.open_mesh_device(ttnn.MeshShape(*shape))
    mesh.axis_names = ("dp", "tp")
    try:
        yield mesh
    finally:
        ttnn.close_mesh_device(mesh)
        ttnn.set_fabric_config(ttnn.FabricConfig.DISABLED)


class Block(train.Module):
    def __init__(self, mesh: ttnn.MeshDevice, form: Form, first: train.Initial) -> None:
        self.form = form
        self.tp = train.axis_size(mesh, "tp")

        def weight(out: int, into: int, dim: int) -> ttnn.Tensor:
            return train.parameter(first.normal(1, 1, out, into, std=into**-0.5), mesh, {"tp": dim}, first.dtype)

        self.norm_1 = train.LayerNorm(mesh, FEATURES, first)
        self.norm_2 = train.LayerNorm(mesh, FEATURES, first)
        self.q, self.k, self.v = (weight(FEATURES, FEATURES, 2) for _ in range(3))
        self.out = weight(FEATURES, FEATURES, 3)
        self.up, self.down = weight(INNER, FEATURES, 2), weight(FEATURES, INNER, 3)
        self.bias = train.parameter(first.normal(1, 1, 1, FEATURES, std=0.5), mesh, dtype=first.dtype)

    def wrong(self, mistake: str) -> bool:
        return self.form.mistake == mistake

    def heads(self, x: ttnn.Tensor) -> ttnn.Tensor:
        parted = ttnn.reshape(x, (x.shape[0], TOKENS, HEADS // self.tp, HEAD))
        return ttnn.permute(parted, (0, 2, 1, 3))

    def summed(self, x: ttnn.Tensor) -> ttnn.Tensor:
        if self.form.scatters:
            return train.all_gather(train.reduce_scatter(x, 3, "tp"), 3, "tp", gradients="replicated")
        once = not self.wrong("gradient reduced twice")
        return train.all_reduce(x, "tp", noop_backward=once)

    def attention(self, x: ttnn.Tensor) -> ttnn.Tensor:
        if not self.wrong("attention's gradient not reduced"):
            x = train.broadcast(x, "tp")
        q, k, v = (self.heads(ttnn.linear(x, weight, transpose_b=True)) for weight in (self.q, self.k, self.v))
        if self.wrong("keys and values swapped"):
            k, v = v, k
        scale = FEATURES**-0.5 if self.wrong("attention's scale") else HEAD**-0.5
        attend = ttnn.transformer.scaled_dot_product_attention
        causal = not self.wrong("future seen")
        seen = attend(q, k, v, is_causal=causal, scale=scale)  # keys and values swapped, attention's scale, future seen
        joined = ttnn.reshape(ttnn.permute(seen, (0, 2, 1, 3)), (x.shape[0], 1, TOKENS, FEATURES // self.tp))
        return self.summed(ttnn.linear(joined, self.out, transpose_b=True))

    def mlp(self, x: ttnn.Tensor) -> ttnn.Tensor:
        if not self.wrong("mlp's gradient not reduced"):
            x = train.broadcast(x, "tp")
        inner = ttnn.gelu(ttnn.linear(x, self.up, transpose_b=True))
        if self.wrong("bias of every device"):
            return self.summed(ttnn.linear(inner, self.down, bias=self.bias, transpose_b=True))  # bias of every device
        partial = ttnn.linear(inner, self.down, transpose_b=True)  # gradient reduced twice
        total = partial if self.wrong("forward not reduced") else self.summed(partial)
        return ttnn.add(total, self.bias)  # forward not reduced

    def forward(self, x: ttnn.Tensor) -> ttnn.Tensor:
        x = ttnn.add(x, self.attention(self.norm_1(x)))  # mlp's gradient not reduced
        own = self.norm_2(x)
        return ttnn.add(own if self.wrong("residual of the norm") else x, self.mlp(own))  # residual of the norm


class GPT(train.Module):
    def __init__(self, mesh: ttnn.MeshDevice, form: Form) -> None:
        first = train.Initial(3, form.dtype)
        self.form = form
        self.characters = train.Embedding(mesh, VOCABULARY, FEATURES, first, std=0.5)
        places = first.normal(1, 1, TOKENS, FEATURES, std=0.5)
        if form.mistake == "places off by one":
            places = places.roll(1, 2)
        self.places = train.parameter(places, mesh, dtype=form.dtype)  # places off by one
        self.blocks = [Block(mesh, form, first) for _ in range(form.blocks)]
        self.norm = train.LayerNorm(mesh, FEATURES, first)
        head = first.normal(1, 1, VOCABULARY, FEATURES, std=FEATURES**-0.5)
        self.head = train.parameter(head, mesh, {"tp": 2}, form.dtype)

    def forward(self, ids: ttnn.Tensor, targets: ttnn.Tensor) -> ttnn.Tensor:
        characters = ttnn.to_layout(self.characters(ids), ttnn.TILE_LAYOUT)
        x = ttnn.add(characters, self.places)  # attention's gradient not reduced
        for block in self.blocks:
            x = block(x)
        logits = ttnn.linear(train.broadcast(self.norm(x), "tp"), self.head, transpose_b=True)
        if self.form.gathers:
            return train.cross_entropy(train.all_gather(logits, 3, "tp", gradients="replicated"), targets)
        return train.vocab_parallel_cross_entropy(logits, targets, "tp")


def batch(step: int) -> tuple[torch.Tensor, torch.Tensor]:
    draw = torch.Generator().manual_seed(step)
    text = torch.randint(VOCABULARY, (BATCH, TOKENS + 1), generator=draw, dtype=torch.int32)
    return text[:, :-1].contiguous(), text[:, 1:].contiguous()


def optimizer_of(model: GPT, form: Form) -> train.Optimizer:
    if form.optimizer == "adamw":
        return train.AdamW(model, lr=1e-2)
    return train.SGD(model, lr=0.2 if form.mistake == "learning rate" else 0.1)


def synchronise(model: GPT, form: Form) -> None:
    if form.mistake == "gradients not averaged":
        train.sync_gradients(model, axes=["dp"], average=False)  # gradients not averaged
    elif form.mistake != "gradients not synchronised":
        train.sync_gradients(model, axes=["dp"], mode=form.sync)  # gradients kept
    if form.clips:
        train.clip_grad_norm(model, 1.0)


def run(form: Form) -> list[torch.Tensor]:
    """The loss of each step."""
    losses = []
    with opened(form.mesh) as mesh:
        model = GPT(mesh, form)
        optimizer = optimizer_of(model, form)
        for step in range(form.steps):
            ids, targets = batch(step)
            if form.mistake == "targets off by one":
                targets = targets.roll(1, 1)
            if form.mistake == "batch out of order":
                targets = targets.roll(BATCH // form.mesh[0], 0)
            # targets off by one, batch out of order
            placed = [train.on_mesh(part, mesh, {"dp": 0}, ttnn.uint32) for part in (ids, targets)]
            loss = model(*placed)
            loss.backward()
            synchronise(model, form)
            optimizer.step()  # learning rate, gradients not synchronised
            if form.mistake != "gradients kept":
                optimizer.zero_grad()
            losses.append(torch.tensor(train.loss_value(loss)))
    return losses
