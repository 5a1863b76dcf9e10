"""Greedy text from a model: prompts prefilled one by one, then one token of all users in each step.

The tokens and positions of a step are tensors on the devices that the step itself moves on: the likeliest tokens
become the next ones, positions grow by one. So a step can be captured once and replayed; the host only writes
where to start, and reads the tokens that come out.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import ttnn

from tt_llama.kv_cache import paged_cache
from tt_llama.model import Transformer
from tt_llama.model_args import TILE
from tt_llama.progress import progress

Tokens = list[int]


class Generator:
    """For `users` users at a time, whose sequences have up to `length` tokens."""

    def __init__(self, model: Transformer, users: int, length: int, *, use_trace: bool = True) -> None:
        self.model, self.users, self.length, self.use_trace = model, users, length, use_trace
        self._cache = paged_cache(model.tp, model.args, users, length)
        zeros = torch.zeros(users, dtype=torch.int32)
        self._tokens = model.tp.put(zeros[None], dtype=ttnn.uint32, layout=ttnn.ROW_MAJOR_LAYOUT)
        self._positions = model.tp.put(zeros, dtype=ttnn.int32, layout=ttnn.ROW_MAJOR_LAYOUT)
        self._rope_positions = model.tp.put(zeros[None], dtype=ttnn.uint32, layout=ttnn.ROW_MAJOR_LAYOUT)
        self._trace: ttnn.MeshTraceId | None = None
        self.logits: ttnn.Tensor | None = None  # of the latest step, [1, 1, users, vocabulary]

    def prefill(self, prompts: Sequence[Tokens]) -> torch.Tensor:
        """The logits (users, vocabulary) that follow each prompt; decoding goes on from there."""
        self._check(prompts)
        numbered = progress(enumerate(prompts), "Prefilling", len(prompts))
        logits = torch.stack([self.prefill_one(user, prompt) for user, prompt in numbered])
        self.go_on(logits.argmax(-1).tolist(), [len(prompt) for prompt in prompts])
        return logits

    def _check(self, prompts: Sequence[Tokens]) -> None:
        lengths = [len(prompt) for prompt in prompts]
        if len(prompts) != self.users or not all(0 < n <= self.length for n in lengths):
            raise ValueError(
                f"This generator takes {self.users} prompts of 1 to {self.length} tokens, got lengths {lengths}."
            )

    def prefill_one(self, user: int, prompt: Tokens) -> torch.Tensor:
        filled = torch.zeros(1, min(-(-len(prompt) // TILE) * TILE, self.length), dtype=torch.int32)
        filled[0, : len(prompt)] = torch.tensor(prompt)
        tokens = self.model.tp.put(filled, dtype=ttnn.uint32, layout=ttnn.ROW_MAJOR_LAYOUT)
        return on_host(self.model.prefill(tokens, self._cache, user, len(prompt) - 1)).flatten()

    def go_on(self, tokens: Tokens, positions: Sequence[int]) -> None:
        """The next step takes these tokens, at these positions: overwritten in place, so that a trace sees them."""
        for values, target in (
            ([tokens], self._tokens),
            (positions, self._positions),
            ([positions], self._rope_positions),
        ):
            host = ttnn.from_torch(torch.tensor(values, dtype=torch.int32), dtype=target.dtype)
            ttnn.copy_host_to_device_tensor(host, target)

    def step(self) -> Tokens:
        """One more token of each user."""
        if not self.use_trace:
            self.logits = self._step()
        else:
            if self._trace is None:
                self._capture()
            ttnn.execute_trace(self.model.tp.mesh_device, self._trace, cq_id=0, blocking=True)
        return on_host(self._tokens).flatten().tolist()

    def _step(self) -> ttnn.Tensor:
        logits = self.model.decode(self._tokens, self._positions, self._rope_positions, self._cache)
        likeliest = ttnn.argmax(ttnn.untilize(logits), dim=3, keepdim=True)
        ttnn.copy(ttnn.reshape(likeliest, (1, self.users)), self._tokens)
        ttnn.plus_one(self._positions)
        ttnn.plus_one(self._rope_positions)
        return logits

    def _capture(self) -> None:
        """Once to compile it, once to record it; what the first run moved on is put back."""
        mesh_device = self.model.tp.mesh_device
        tokens, positions = (on_host(x).flatten().tolist() for x in (self._tokens, self._positions))
        self._step()
        self.go_on(tokens, positions)
        self._trace = ttnn.begin_trace_capture(mesh_device, cq_id=0)
        self.logits = self._step()
        ttnn.end_trace_capture(mesh_device, self._trace, cq_id=0)

    def release(self) -> None:
        if self._trace is not None:
            ttnn.release_trace(self.model.tp.mesh_device, self._trace)
            self._trace = None


def generate(generators: Sequence[Generator], prompts: Sequence[Tokens], count: int) -> list[Tokens]:
    """`count` tokens after each prompt. Generators are groups of devices that share the users between them."""
    shares: list[Sequence[Tokens]] = []
    for generator in generators:
        shares.append(prompts[: generator.users])
        prompts = prompts[generator.users :]
    first = [generator.prefill(share) for generator, share in zip(generators, shares, strict=True)]
    steps = [torch.cat(first).argmax(-1).tolist()]
    for _ in progress(range(count - 1), "Decoding"):
        steps.append([token for generator in generators for token in generator.step()])
    return [list(tokens) for tokens in zip(*steps, strict=True)]


def on_host(tensor: ttnn.Tensor) -> torch.Tensor:
    """What each device holds, taken from the first."""
    return ttnn.to_torch(ttnn.get_device_tensors(tensor)[0])
