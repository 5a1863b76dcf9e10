"""A training step of GPT as on one device: layers and loss of softmesh.train, backward, AdamW.

softmesh plan examples/plan/gpt_training.py:step --system T3000 --goal training layers=4

Nothing is said of data, tensor or fully sharded parallelism: a plan chooses where weights, gradients and the state of
the optimizer lie, and what is gathered or summed for it.
"""

from __future__ import annotations

import torch
import ttnn

from softmesh import train


class GPT(train.Module):
    """Weights in float32, or in a smaller dtype beside which the optimizer keeps them in float32."""

    def __init__(
        self,
        device: ttnn.MeshDevice,
        layers: int = 12,
        width: int = 768,
        heads: int = 12,
        vocabulary: int = 50304,
        tokens: int = 1024,
        dtype: ttnn.DataType = ttnn.bfloat16,
    ) -> None:
        initial = train.Initial(0, dtype)
        self.embedding = train.Embedding(device, vocabulary, width, initial)
        self.position = train.parameter(initial.normal(1, 1, tokens, width, std=0.02), device, dtype=dtype)
        self.blocks = [train.TransformerBlock(device, width, heads, initial) for _ in range(layers)]
        self.norm = train.LayerNorm(device, width, initial)
        self.head = train.Linear(device, width, vocabulary, initial, bias=False, std=0.02)

    def forward(self, ids: ttnn.Tensor) -> ttnn.Tensor:
        x = ttnn.add(self.embedding(ids), self.position)
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


def trained(
    device: ttnn.MeshDevice,
    layers: int = 12,
    width: int = 768,
    heads: int = 12,
    vocabulary: int = 50304,
    sequences: int = 32,
    tokens: int = 1024,
    dtype: ttnn.DataType = ttnn.bfloat16,
) -> tuple[ttnn.Tensor, GPT, list[ttnn.Tensor]]:
    """The loss, the model after a step, and the tokens and targets of it, at random."""
    model = GPT(device, layers, width, heads, vocabulary, tokens, dtype)
    optimizer = train.AdamW(model, lr=1e-3, weight_decay=0.01)
    draw = torch.Generator().manual_seed(1)
    batch = [torch.randint(vocabulary, (sequences, tokens), generator=draw, dtype=torch.int32) for _ in range(2)]
    ids, targets = (ttnn.from_torch(part, ttnn.uint32, device=device) for part in batch)
    loss = train.cross_entropy(model(ids), targets)
    loss.backward()
    optimizer.step()
    return loss, model, [ids, targets]


def step(device: ttnn.MeshDevice, **sizes: int) -> ttnn.Tensor:
    """The loss before it."""
    return trained(device, **sizes)[0]
