"""A GPT of the layers of softmesh.train: whole, or split over the mesh axis `tp`."""

from dataclasses import dataclass

import ttnn

from softmesh import train


@dataclass(frozen=True)
class Shape:
    vocabulary: int
    features: int = 64
    heads: int = 8
    blocks: int = 4
    tokens: int = 64


class Entry(train.Module):
    """Characters and places become features."""

    def __init__(self, mesh: ttnn.MeshDevice, shape: Shape, first: train.Initial, tp: str | None) -> None:
        self.characters = (
            train.Embedding(mesh, shape.vocabulary, shape.features, first)
            if tp is None
            else train.VocabParallelEmbedding(mesh, shape.vocabulary, shape.features, first, axis=tp)
        )
        self.places = train.parameter(first.normal(1, 1, shape.tokens, shape.features, std=0.02), mesh)

    def forward(self, ids: ttnn.Tensor) -> ttnn.Tensor:
        return ttnn.add(self.characters(ids), self.places)


class Exit(train.Module):
    """Features become logits, of which each device along `tp` has a slice."""

    def __init__(self, mesh: ttnn.MeshDevice, shape: Shape, first: train.Initial, tp: str | None) -> None:
        self.norm = train.LayerNorm(mesh, shape.features, first)
        self.head = (
            train.Linear(mesh, shape.features, shape.vocabulary, first, bias=False)
            if tp is None
            else train.ColumnParallelLinear(mesh, shape.features, shape.vocabulary, first, axis=tp, bias=False)
        )

    def forward(self, x: ttnn.Tensor) -> ttnn.Tensor:
        return self.head(self.norm(x))


class GPT(train.Module):
    def __init__(self, mesh: ttnn.MeshDevice, shape: Shape, seed: int = 0, tp: str | None = None) -> None:
        first = train.Initial(seed)
        self.tp = tp
        self.entry = Entry(mesh, shape, first, tp)
        self.blocks = [
            train.TransformerBlock(mesh, shape.features, shape.heads, first, tp=tp) for _ in range(shape.blocks)
        ]
        self.exit = Exit(mesh, shape, first, tp)

    def forward(self, ids: ttnn.Tensor) -> ttnn.Tensor:
        x = self.entry(ids)
        for block in self.blocks:
            x = block(x)
        return self.exit(x)

    def loss(self, ids: ttnn.Tensor, targets: ttnn.Tensor) -> ttnn.Tensor:
        logits = self.forward(ids)
        if self.tp is None:
            return train.cross_entropy(logits, targets)
        return train.vocab_parallel_cross_entropy(logits, targets, self.tp)
