"""A small GPT for any mesh with the axes dp and tp, and batches for it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

import softmesh as ttnn
from softmesh.runtime.device_lifecycle import open_meshes
from softmesh.train import layers
from softmesh.train.axes import Axis, on_mesh
from softmesh.train.losses import cross_entropy, vocab_parallel_cross_entropy
from softmesh.train.module import Module, parameter

VOCABULARY, FEATURES, HEADS, TOKENS, BATCH = 32, 32, 8, 8, 8


class GPT(Module):
    def __init__(
        self,
        mesh: ttnn.MeshDevice,
        seed: int = 0,
        *,
        tp: Axis = "tp",
        blocks: int = 2,
        dtype: ttnn.DataType = ttnn.float32,
    ) -> None:
        initial = layers.Initial(seed, dtype)
        self.tp = layers.tensor_parallel(mesh, tp)
        if self.tp is None:
            self.embedding: Module = layers.Embedding(mesh, VOCABULARY, FEATURES, initial)
        else:
            self.embedding = layers.VocabParallelEmbedding(mesh, VOCABULARY, FEATURES, initial, axis=self.tp)
        self.positions = parameter(initial.normal(1, 1, TOKENS, FEATURES, std=0.02), mesh, dtype=dtype)
        self.blocks = [layers.TransformerBlock(mesh, FEATURES, HEADS, initial, tp=self.tp) for _ in range(blocks)]
        self.norm = layers.LayerNorm(mesh, FEATURES, initial)
        self.head = layers.column(mesh, FEATURES, VOCABULARY, initial, self.tp, bias=False)

    def forward(self, ids: ttnn.Tensor, targets: ttnn.Tensor) -> ttnn.Tensor:
        x = ttnn.add(self.embedding(ids), self.positions)
        for block in self.blocks:
            x = block(x)
        logits = self.head(self.norm(x))
        if self.tp is None:
            return cross_entropy(logits, targets)
        return vocab_parallel_cross_entropy(logits, targets, self.tp)


def rows(seed: int = 1) -> tuple[torch.Tensor, torch.Tensor]:
    """Ids and targets, (batch, tokens) each."""
    chance = torch.Generator().manual_seed(seed)
    ids, targets = torch.randint(0, VOCABULARY, (2, BATCH, TOKENS), generator=chance, dtype=torch.int32)
    return ids, targets


def batch(mesh: ttnn.MeshDevice, splits: dict[Axis, int] | None = None) -> list[ttnn.Tensor]:
    """The same rows on any mesh, split along its first axis unless told otherwise."""
    return [on_mesh(values, mesh, {0: 0} if splits is None else splits, ttnn.uint32) for values in rows()]


@contextmanager
def opened(*shape: int, names: tuple[str, ...] = ("dp", "tp")) -> Iterator[ttnn.MeshDevice]:
    """The only open mesh, over the fabric, its axes named; the fabric is gone afterwards."""
    for mesh in open_meshes():
        mesh.close()
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # products this small wait for each other's threads longer than they compute
    ttnn.set_fabric_config(ttnn.FabricConfig.FABRIC_2D)
    try:
        with ttnn.create_mesh_device(ttnn.MeshShape(*shape)) as mesh:
            if names:
                mesh.axis_names = names
            yield mesh
    finally:
        ttnn.set_fabric_config(ttnn.FabricConfig.DISABLED)
        torch.set_num_threads(threads)
