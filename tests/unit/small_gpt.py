"""A small GPT in all its parallel forms, and what to compare of it with one device."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import torch

import softmesh as ttnn
from softmesh.placement.placements import Shard
from softmesh.train import (
    Embedding,
    Initial,
    LayerNorm,
    Module,
    TransformerBlock,
    VocabParallelEmbedding,
    cross_entropy,
    on_mesh,
    vocab_parallel_cross_entropy,
)
from softmesh.train.context_parallel import ContextParallelBlock, PositionalEmbedding
from softmesh.train.layers import column

VOCABULARY, FEATURES, HEADS, BLOCKS, TOKENS, BATCH = 64, 32, 4, 2, 32, 8


class GPT(Module):
    def __init__(self, mesh: ttnn.MeshDevice, *, tp: str | None = None, cp: str | None = None, seed: int = 0):
        initial = Initial(seed)
        self.tp = tp
        self.tokens: Module = (
            Embedding(mesh, VOCABULARY, FEATURES, initial)
            if tp is None
            else VocabParallelEmbedding(mesh, VOCABULARY, FEATURES, initial, axis=tp)
        )
        self.positions = PositionalEmbedding(mesh, TOKENS, FEATURES, initial, cp=cp)
        self.blocks = [
            TransformerBlock(mesh, FEATURES, HEADS, initial, tp=tp)
            if cp is None
            else ContextParallelBlock(mesh, FEATURES, HEADS, initial, cp=cp, tp=tp)
            for _ in range(BLOCKS)
        ]
        self.norm = LayerNorm(mesh, FEATURES, initial)
        self.head = column(mesh, FEATURES, VOCABULARY, initial, tp, bias=False)

    def forward(self, ids: ttnn.Tensor, targets: ttnn.Tensor) -> ttnn.Tensor:
        x = self.positions(self.tokens(ids))
        for block in self.blocks:
            x = block(x)
        logits = self.head(self.norm(x))
        if self.tp is None:
            return cross_entropy(logits, targets)
        return vocab_parallel_cross_entropy(logits, targets, self.tp)


def batch(seed: int, rows: int = BATCH) -> tuple[torch.Tensor, torch.Tensor]:
    """Ids, and the ids that follow them."""
    generator = torch.Generator().manual_seed(seed)
    text = torch.randint(0, VOCABULARY, (rows, TOKENS + 1), generator=generator, dtype=torch.int32)
    return text[:, :-1].contiguous(), text[:, 1:].contiguous()


def placed(
    values: tuple[torch.Tensor, torch.Tensor], mesh: ttnn.MeshDevice, splits: Mapping[str, int]
) -> list[ttnn.Tensor]:
    """The batch on the mesh; where two axes split the rows, over all devices in order."""
    if list(splits.values()) == [0, 0]:
        mapper = ttnn.ShardTensorToMesh(mesh, 0)
        return [ttnn.from_torch(each, dtype=ttnn.uint32, device=mesh, mesh_mapper=mapper) for each in values]
    return [on_mesh(each, mesh, dict(splits), ttnn.uint32) for each in values]


def mean_loss(loss: ttnn.Tensor) -> float:
    return float(loss.pieces().detach().mean())


def whole(tensor: ttnn.Tensor, values: torch.Tensor) -> torch.Tensor:
    """The pieces of a parameter, or of its gradient, put together; what devices share must be one value."""
    words = ttnn.placements(tensor)
    for axis, word in enumerate(words):
        if isinstance(word, Shard):
            values = torch.cat(values.split(1, axis), len(words) + word.dim)
        assert values.shape[axis] == 1
    return values.reshape(values.shape[len(words) :])


def gradients(model: Module) -> dict[str, torch.Tensor]:
    found = {}
    for name, tensor in model.named_parameters():
        assert tensor.grad is not None, name
        found[name] = whole(tensor, tensor.grad.view_data())
    return found


def farthest(found: Mapping[str, torch.Tensor], expected: Mapping[str, torch.Tensor]) -> float:
    """The largest difference, for each parameter as a share of its largest gradient.

    Key biases shift all scores of a row alike: their gradients are 0 but for rounding, so 1e-4 counts as one.
    """
    assert found.keys() == expected.keys()
    return max(
        float((found[name] - value).abs().max() / (value.abs().max() + 1e-4))
        for name, value in expected.items()
        if "key.bias" not in name
    )


class Counted:
    """How often each command ran."""

    def __init__(self) -> None:
        self.names: Counter[str] = Counter()

    def on_command(self, command: ttnn.Command) -> None:
        self.names[command.name] += 1


@contextmanager
def opened(rows: int, columns: int, *names: str) -> Iterator[ttnn.MeshDevice]:
    with ttnn.create_mesh_device(ttnn.MeshShape(rows, columns)) as mesh:
        mesh.axis_names = names
        yield mesh


@contextmanager
def one_thread() -> Iterator[None]:
    """Matrices as small as these are multiplied before a second thread has heard of them."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
