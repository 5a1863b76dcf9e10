"""Steps of training a GPT on 8 devices against plain torch on one, and PyTorch DDP over 8 processes.

    softmesh bench train [--quick] [--json]

All have the same weights, the same global batch, AdamW and a bound on the norm of the gradients. They take turns in
one run, and the loss of the first step is compared with torch's.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
import torch

import softmesh as ttnn
from softmesh import train
from softmesh.bench.against import Recorded
from softmesh.bench.harness import LOWER, Peer, Timing, interleave, machine, options, show, show_json, table, timed
from softmesh.bench.peer_process import PeerMissing, PeerProcess, peer_or_note, worker
from softmesh.bench.torch_gpt import Size, TorchGPT, TorchTraining

# The workload: steps of a GPT on a mesh, with the weights and the batch that plain torch has.


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
        self.blocks = [train.TransformerBlock(mesh, wide, size.heads, first, tp=tp) for _ in range(size.blocks)]
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
        torch.randint(size.vocabulary, (size.rows, size.tokens), generator=draw, dtype=torch.int32) for _ in range(2)
    )
    return ids, targets


def torch_weights(size: Size) -> Weights:
    """The first weights of the model on a mesh, for the one in plain torch."""
    with on_mesh(1, 1) as mesh:
        model = MeshGPT(mesh, size, None)
        values = {name: ttnn.to_torch(tensor.detach()) for name, tensor in model.named_parameters()}
    shapes = {name: tensor.shape for name, tensor in TorchGPT(size).state_dict().items()}
    found = {name.replace(".attention.", ".").replace(".mlp.", "."): values[name] for name in values}
    return {name: found[name].reshape(shape).clone() for name, shape in shapes.items()}


TORCH, DDP = "torch", "torch DDP, 8 processes"
FORMS = {"1 device": (1, 1), "DP 8": (8, 1), "TP 8": (1, 8), "DP 2 x TP 4": (2, 4)}
_PROCESSES = 8
_SAME = 1e-4  # of the loss


@dataclass(frozen=True)
class Effort:
    size: Size = field(default_factory=Size)
    rounds: int = 9


QUICK = Effort(Size(features=32, blocks=1, tokens=32, rows=8), rounds=2)


@dataclass(frozen=True)
class Row:
    peer: str
    milliseconds: float
    tokens_per_second: float
    time_over_torch: float
    loss: float
    is_right: bool


def measure(effort: Effort) -> tuple[list[Row], list[str]]:
    size = effort.size
    weights, batch = torch_weights(size), batch_of(size)
    with ExitStack() as stack:
        steps = {TORCH: _torch_step(size, weights, batch)}
        for name, (rows, columns) in FORMS.items():
            mesh = stack.enter_context(on_mesh(rows, columns))
            steps[name] = MeshTraining(mesh, size, batch).step
        peers: dict[str, Peer] = {name: timed(step) for name, step in steps.items()}
        losses = {name: step() for name, step in steps.items()}
        ddp, note = stack.enter_context(peer_or_note(DDP, lambda: _DdpProcess(size, weights, batch)))
        if ddp is not None:
            peers[DDP] = lambda: ddp.run(1)
        seen = interleave(peers, effort.rounds)
    return _rows(seen, losses, size), [note]


def _torch_step(size: Size, weights: Weights, batch: tuple[torch.Tensor, torch.Tensor]) -> Callable[[], float]:
    model = TorchGPT(size)
    model.load_state_dict(weights)
    return TorchTraining(model, *batch).step


class _DdpProcess(PeerProcess):
    def __init__(self, size: Size, weights: Weights, batch: tuple[torch.Tensor, torch.Tensor]) -> None:
        super().__init__([sys.executable, worker("ddp_training.py"), str(_PROCESSES)], {"OMP_NUM_THREADS": "1"})
        self._work = (size, weights, batch)

    def _start(self) -> None:
        size, weights, (ids, targets) = self._work
        values: dict[str, Any] = {name: tensor.numpy() for name, tensor in weights.items()}
        values |= {"batch.ids": ids.numpy(), "batch.targets": targets.numpy()}
        np.savez(self.folder / "work.npz", **values)
        (self.folder / "size.json").write_text(json.dumps(asdict(size)))
        super()._start()


def _rows(seen: Mapping[str, Timing], losses: Mapping[str, float], size: Size) -> list[Row]:
    expected = losses[TORCH]
    return [
        Row(
            name,
            timing.median * 1e3,
            size.rows * size.tokens / timing.median,
            timing.relative_to(seen[TORCH]),
            losses.get(name, expected),
            abs(losses.get(name, expected) - expected) <= _SAME,
        )
        for name, timing in seen.items()
    ]


def main(argv: Sequence[str] | None = None) -> int:
    given = options("train", __doc__, "a tiny model and two rounds").parse_args(argv)
    effort = QUICK if given.quick else Effort()
    ttnn.set_fabric_config(ttnn.FabricConfig.FABRIC_1D)
    try:
        rows, notes = measure(effort)
    except PeerMissing as gone:
        print(f"A peer went away during the run: {gone}", file=sys.stderr)
        return 1
    if given.json:
        show_json(notes=notes, effort=asdict(effort), rows=[asdict(row) for row in rows])
        fell = 0
    else:
        fell = _show(rows, notes, effort.size, given.against)
    return fell if all(row.is_right for row in rows) else 1


def _show(rows: Sequence[Row], notes: Sequence[str], size: Size, against: Recorded | None) -> int:
    model, batch = (
        f"{size.blocks} blocks of {size.features} features",
        f"{size.rows} rows of {size.tokens} tokens",
    )
    title = f"A step of a GPT: {model}, {batch}"
    columns = ["form", "ms", "tokens/s", "time / torch", "loss"]
    cells = [
        [
            row.peer,
            f"{row.milliseconds:.1f}",
            f"{row.tokens_per_second:,.0f}",
            f"{row.time_over_torch:.2f}",
            f"{row.loss:.5f}{'' if row.is_right else ' (!)'}",
        ]
        for row in rows
    ]
    made = table(title, columns, cells, ratios={"time / torch": LOWER})
    return show(machine(), *notes, made, against=against)
