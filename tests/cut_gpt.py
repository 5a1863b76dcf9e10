"""A GPT in layers that can be cut anywhere: each draws its weights from a seed of its own, wherever it is made."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import torch

import softmesh as ttnn
from softmesh.train.layers import (
    Embedding,
    Initial,
    LayerNorm,
    TransformerBlock,
    VocabParallelEmbedding,
    column,
    tensor_parallel,
)
from softmesh.train.losses import cross_entropy, vocab_parallel_cross_entropy
from softmesh.train.module import Module, Sequential, parameter

VOCABULARY, FEATURES, HEADS, TOKENS = 32, 32, 2, 16
Layer = Callable[[ttnn.MeshDevice], Module]


class _Start(Module):
    def __init__(self, seed: int, mesh: ttnn.MeshDevice) -> None:
        initial, tp = Initial(seed), _tp(mesh)
        if tp is None:
            self.embedding: Module = Embedding(mesh, VOCABULARY, FEATURES, initial)
        else:
            self.embedding = VocabParallelEmbedding(mesh, VOCABULARY, FEATURES, initial, axis=tp)
        self.position = parameter(initial.normal(1, 1, TOKENS, FEATURES, std=0.02), mesh)

    def forward(self, ids: ttnn.Tensor) -> ttnn.Tensor:
        return ttnn.add(self.embedding(ids), self.position)


class _End(Module):
    def __init__(self, seed: int, mesh: ttnn.MeshDevice) -> None:
        initial = Initial(seed)
        self.norm = LayerNorm(mesh, FEATURES, initial)
        self.head = column(mesh, FEATURES, VOCABULARY, initial, _tp(mesh), bias=False)

    def forward(self, x: ttnn.Tensor) -> ttnn.Tensor:
        return self.head(self.norm(x))


def _block(seed: int, mesh: ttnn.MeshDevice) -> Module:
    return TransformerBlock(mesh, FEATURES, HEADS, Initial(seed), tp=_tp(mesh))


def _tp(mesh: ttnn.MeshDevice) -> str | None:
    return tensor_parallel(mesh, "tp") if "tp" in mesh.axis_names else None


def layers(count: int) -> list[Layer]:
    """A start, blocks and an end: functions that make each of them on a mesh."""
    makers = [_Start, *[_block] * (count - 2), _End]
    return [partial(maker, seed) for seed, maker in enumerate(makers)]


def made(part: Sequence[Layer], mesh: ttnn.MeshDevice) -> Module:
    return Sequential(*(layer(mesh) for layer in part))


def loss(logits: ttnn.Tensor, targets: ttnn.Tensor) -> ttnn.Tensor:
    tp = _tp(logits.device())
    return cross_entropy(logits, targets) if tp is None else vocab_parallel_cross_entropy(logits, targets, tp)


def batch(rows: int) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(1)
    ids, targets = (
        torch.randint(0, VOCABULARY, (rows, TOKENS), generator=generator, dtype=torch.int32) for _ in range(2)
    )
    return ids, targets


def whole(parts: Sequence[Sequence[Layer]], mesh: ttnn.MeshDevice, rows: int) -> tuple[float, dict[str, torch.Tensor]]:
    """The loss and the gradients of one device on the whole batch, named as a pipeline of these parts names them."""
    made_parts = [made(part, mesh) for part in parts]
    ids, targets = (ttnn.from_torch(values, dtype=ttnn.uint32, device=mesh) for values in batch(rows))
    x = ids
    for part in made_parts:
        x = part(x)
    value = loss(x, targets)
    value.backward()
    found = {
        f"parts.{number}.{name}": tensor.grad.view_data().flatten(0, 1)[0]
        for number, part in enumerate(made_parts)
        for name, tensor in part.named_parameters()
    }
    return float(value.view_data().detach().mean()), found


def gradient(tensor: ttnn.Tensor) -> torch.Tensor:
    """The whole gradient of a parameter, its pieces put together; it must have been synchronised."""
    values = tensor.grad.view_data()
    for axis, word in enumerate(ttnn.placements(tensor.grad)):
        assert not isinstance(word, ttnn.Partial)
        pieces = values.shape[0] if axis == 0 else values.shape[1]
        if isinstance(word, ttnn.Shard) and pieces > 1:
            values = torch.cat(values.split(1, axis), word.dim + 2)
    return values[0, 0]
