"""The work of `softmesh bench train`: steps of a GPT on a mesh, of the same weights and batch as in plain torch."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

import softmesh as ttnn
from softmesh import train
from softmesh.bench.torch_gpt import Size, TorchGPT

Weights = dict[str, torch.Tensor]


class MeshGPT(train.Module):
    def __init__(self, mesh: ttnn.MeshDevice, size: Size, tp: str | None) -> None:
        first = train.Initial(0)
        wide, words = size.features, size.vocabulary
        self.tp = tp
        self.characters = (
            train.Embedding(mesh, words, wide, first)
            if tp is None
            else train.VocabParallelEmbedding(mesh, words, wide, first, axis=tp)
        )
        self.places = train.parameter(first.normal(1, 1, size.tokens, wide, std=0.02), mesh)
        self.blocks = [
            train.TransformerBlock(mesh, wide, size.heads, first, tp=tp) for _ in range(size.blocks)
        ]
        self.norm = train.LayerNorm(mesh, wide, first)
        self.head = (
            train.Linear(mesh, wide, words, first, bias=False)
            if tp is None
            else train.ColumnParallelLinear(mesh, wide, words, first, axis=tp, bias=False)
        )

    def forward(self, ids: ttnn.Tensor, targets: ttnn.Tensor) -> ttnn.Tensor:
        x = ttnn.add(self.characters(ids), self.places)
        for block in self.blocks:
            x = block(x)
        logits = self.head(self.norm(x))
        if self.tp is None:
            return train.cross_entropy(logits, targets)
        return train.vocab_parallel_cross_entropy(logits, targets, self.tp)


class MeshTraining:
    def __init__(self, mesh: ttnn.MeshDevice, size: Size, batch: tuple[torch.Tensor, torch.Tensor]) -> None:
        self.model = MeshGPT(mesh, size, "tp" if mesh.shape[1] > 1 else None)
        self._optimizer = train.AdamW(self.model, lr=1e-3)
        self._batch = [train.on_mesh(part, mesh, {"dp": 0}, ttnn.uint32) for part in batch]

    def step(self) -> float:
        loss = self.model(*self._batch)
        loss.backward()
        train.sync_gradients(self.model, axes=["dp"])
        train.clip_grad_norm(self.model, 1.0)
        self._optimizer.step()
        self._optimizer.zero_grad()
        return train.loss_value(loss)


@contextmanager
def on_mesh(rows: int, columns: int) -> Iterator[ttnn.MeshDevice]:
    mesh = ttnn.open_mesh_device(ttnn.MeshShape(rows, columns))
    mesh.axis_names = ("dp", "tp")
    try:
        yield mesh
    finally:
        ttnn.close_mesh_device(mesh)


def batch_of(size: Size) -> tuple[torch.Tensor, torch.Tensor]:
    draw = torch.Generator().manual_seed(0)
    ids, targets = (
        torch.randint(size.vocabulary, (size.rows, size.tokens), generator=draw, dtype=torch.int32)
        for _ in range(2)
    )
    return ids, targets


def torch_weights(size: Size) -> Weights:
    """The first weights of the model on a mesh, for the one in plain torch."""
    with on_mesh(1, 1) as mesh:
        model = MeshGPT(mesh, size, None)
        values = {name: ttnn.to_torch(tensor.detach()) for name, tensor in model.named_parameters()}
    shapes = {name: tensor.shape for name, tensor in TorchGPT(size).state_dict().items()}
    found = {_torch_name(name): tensor for name, tensor in values.items()}
    return {name: found[name].reshape(shape).clone() for name, shape in shapes.items()}


def _torch_name(name: str) -> str:
    return name.replace(".attention.", ".").replace(".mlp.", ".")
