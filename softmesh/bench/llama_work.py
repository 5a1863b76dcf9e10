"""The work of `softmesh bench llama`: the model of examples/llama on a mesh, and the same in plain torch.

The example is no part of the installed package: it is found in the checkout, or where the user says.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import torch

import softmesh as ttnn
from softmesh.alias import aliased
from softmesh.bench.operands import DTYPES

EXAMPLE = Path(ttnn.__file__).parent.parent / "examples" / "llama"
Work = Callable[[], object]
_ROOM = 32  # positions beyond the context, for tokens that follow


@dataclass(frozen=True)
class Load:
    """How much there is to do, over all devices together."""

    hidden: int = 1024
    inner: int = 2816
    layers: int = 8
    heads: int = 16
    kv_heads: int = 8
    head_dim: int = 64
    vocabulary: int = 32_000
    users: int = 32  # that decode at a time
    context: int = 128  # tokens that each of them has behind it
    prompts: int = 4  # users that are prefilled
    prompt: int = 128  # tokens of each of them

    @property
    def longest(self) -> int:
        return max(self.prompt, self.context + _ROOM)


class Layout(NamedTuple):
    """A mesh, and what its rows share."""

    rows: int
    columns: int
    shares_users: bool = True

    def __str__(self) -> str:
        return f"{self.rows}x{self.columns}{'' if self.shares_users else ', 2-D'}"


def load_example(folder: Path) -> dict[str, Any]:
    """The names of the example that the benchmark uses."""
    sys.path.insert(0, str(folder))
    try:
        with aliased():
            wanted = {
                "model_args": "ModelArgs",
                "checkpoint": "random_weights",
                "tensor_parallel": "TensorParallel",
                "model": "Transformer",
                "generator": "Generator",
                "reference": "TorchLlama",
            }
            return {
                name: getattr(importlib.import_module(f"tt_llama.{module}"), name)
                for module, name in wanted.items()
            }
    finally:
        sys.path.remove(str(folder))


class LlamaWork:
    """One model in one dtype: prompts of some users prefilled, one token of many users decoded."""

    def __init__(self, example: dict[str, Any], load: Load, dtype: str) -> None:
        self._example, self.load = example, load
        self._ttnn_dtype, torch_dtype = DTYPES[dtype]
        self._args = example["ModelArgs"](
            hidden_size=load.hidden,
            intermediate_size=load.inner,
            num_hidden_layers=load.layers,
            num_attention_heads=load.heads,
            num_key_value_heads=load.kv_heads,
            head_dim=load.head_dim,
            vocab_size=load.vocabulary,
        )
        self._weights = example["random_weights"](self._args, dtype=torch_dtype)
        self._prefilling, self._decoding = (
            example["TorchLlama"](self._args, self._weights, users, length, torch_dtype)
            for users, length in ((load.prompts, load.prompt), (load.users, load.context + _ROOM))
        )
        draw = torch.Generator().manual_seed(0)
        sizes = load.prompts, load.prompt
        self.prompts: list[list[int]] = torch.randint(load.vocabulary, sizes, generator=draw).tolist()
        self.tokens: list[int] = torch.randint(load.vocabulary, (load.users,), generator=draw).tolist()
        self.positions = [load.context] * load.users

    def torch_prefill(self) -> torch.Tensor:
        """The logits that follow the prompts."""
        return torch.stack(
            [self._prefilling.prefill(user, prompt) for user, prompt in enumerate(self.prompts)]
        )

    def torch_decode(self) -> torch.Tensor:
        """As the mesh does, it ends with the next tokens on the host."""
        logits: torch.Tensor = self._decoding.decode(self.tokens, self.positions)
        logits.argmax(-1).tolist()
        return logits

    @contextmanager
    def on_mesh(self, layout: Layout) -> Iterator[MeshLlama]:
        make, load = self._example["Generator"], self.load
        with ttnn.create_mesh_device(ttnn.MeshShape(layout[:2])) as mesh:
            parallel = self._example["TensorParallel"](
                mesh, self._ttnn_dtype, shares_users=layout.shares_users
            )
            model = self._example["Transformer"](parallel, self._args, self._weights, load.longest)
            prefilling = make(model, load.prompts, load.prompt)
            plain, traced = (
                make(model, load.users, load.context + _ROOM, use_trace=traced) for traced in (False, True)
            )
            try:
                yield MeshLlama(self, prefilling, plain, traced)
            finally:
                traced.release()


@dataclass(frozen=True)
class MeshLlama:
    """Generators of the example, one for each way of working."""

    work: LlamaWork
    prefilling: Any
    plain: Any
    traced: Any

    def prefill(self) -> torch.Tensor:
        logits: torch.Tensor = self.prefilling.logits_after(self.work.prompts)
        return logits

    def decode(self) -> list[int]:
        return self._step(self.plain)

    def replay(self) -> list[int]:
        return self._step(self.traced)

    def _step(self, generator: Any) -> list[int]:
        generator.go_on(self.work.tokens, self.work.positions)
        tokens: list[int] = generator.step()
        return tokens

    def logits(self, *, traced: bool) -> torch.Tensor:
        """Of the latest step, (users, vocabulary)."""
        generator = self.traced if traced else self.plain
        logits: torch.Tensor = generator.model.tp.read(generator.logits, users=2)
        return logits.flatten(0, 2)
