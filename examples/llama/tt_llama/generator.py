"""Greedy text from a model: prompts prefilled one by one, then one token of all users in each step.

The tokens and positions of a step are tensors on the devices that the step itself moves on: the likeliest tokens
become the next ones, positions grow by one. So a step can be captured once and replayed; the host only writes
where to start, and reads the tokens that come out.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import ttnn
from tracy import signpost

from tt_llama.kv_cache import paged_cache
from tt_llama.model import Transformer
from tt_llama.model_args import TILE
from tt_llama.progress import progress

Tokens = list[int]


class Generator:
    """For `users` users at a time, whose sequences have up to `length` tokens."""

    def __init__(self, model: Transformer, users: int, length: int, *, use_trace: bool = True) -> None:
        self.model, self.users, self.length, self.use_trace = model, users, length, use_trace
        if users % model.tp.groups:
            raise ValueError(f"{users} users cannot be shared out to the {model.tp.groups} rows of the mesh.")
        self._cache = paged_cache(model.tp, model.args, users, length)
        zeros = torch.zeros(1, users, dtype=torch.int32)
        self._tokens = model.tp.put_numbers(zeros, users=1, dtype=ttnn.uint32)
        self._positions = model.tp.put_numbers(zeros[0], users=0, dtype=ttnn.int32)
        self._rope_positions = model.tp.put_numbers(zeros, users=1, dtype=ttnn.uint32)
        self._trace: ttnn.MeshTraceId | None = None
        self.logits: ttnn.Tensor | None = None  # of the latest step, [1, 1, users of a group, vocabulary]

    def prefill(self, prompts: Sequence[Tokens]) -> torch.Tensor:
        """The logits (users, vocabulary) that follow each prompt; decoding goes on from there."""
        logits = self.logits_after(prompts)
        self.go_on(logits.argmax(-1).tolist(), [len(prompt) for prompt in prompts])
        return logits

    def logits_after(self, prompts: Sequence[Tokens]) -> torch.Tensor:
        self._check(prompts)
        users = self.users // self.model.tp.groups
        numbered = progress(range(users), "Prefilling", users)
        found = [self._prefill_one(user, prompts[user::users]) for user in numbered]
        return torch.stack(found, dim=1).flatten(0, 1)

    def _check(self, prompts: Sequence[Tokens]) -> None:
        lengths = [len(prompt) for prompt in prompts]
        if len(prompts) != self.users or not all(0 < n <= self.length for n in lengths):
            raise ValueError(
                f"This generator takes {self.users} prompts of 1 to {self.length} tokens, got lengths {lengths}."
            )

    def _prefill_one(self, user: int, prompts: Sequence[Tokens]) -> torch.Tensor:
        """The logits (groups, vocabulary) that follow the prompts of one user of each group."""
        longest = max(map(len, prompts))
        filled = torch.zeros(len(prompts), min(-(-longest // TILE) * TILE, self.length), dtype=torch.int32)
        is_last = torch.zeros(len(prompts), 1, 1, filled.shape[1])
        for group, prompt in enumerate(prompts):
            filled[group, : len(prompt)] = torch.tensor(prompt)
            is_last[group, ..., len(prompt) - 1] = 1
        tp = self.model.tp
        tokens = tp.put_numbers(filled, users=0, dtype=ttnn.uint32)
        ends = tp.put(is_last, (0 if tp.shares_users else None, None))
        return tp.read(self.model.prefill(tokens, self._cache, user, ends), users=0).flatten(1)

    def go_on(self, tokens: Tokens, positions: Sequence[int]) -> None:
        """The next step takes these tokens, at these positions: overwritten in place, so that a trace sees them."""
        for values, target in (
            ([tokens], self._tokens),
            (positions, self._positions),
            ([positions], self._rope_positions),
        ):
            numbers = torch.tensor(values, dtype=torch.int32)
            shared = self.model.tp.over_users(numbers.dim() - 1)
            ttnn.copy_host_to_device_tensor(ttnn.from_torch(numbers, dtype=target.dtype, mesh_mapper=shared), target)

    def step(self) -> Tokens:
        """One more token of each user."""
        if not self.use_trace:
            self.logits = self._step()
        else:
            if self._trace is None:
                self._capture()
            ttnn.execute_trace(self.model.tp.mesh_device, self._trace, cq_id=0, blocking=True)
        return self._read(self._tokens)

    def _step(self) -> ttnn.Tensor:
        logits = self.model.decode(self._tokens, self._positions, self._rope_positions, self._cache)
        likeliest = ttnn.argmax(ttnn.untilize(logits), dim=3, keepdim=True)
        ttnn.copy(ttnn.reshape(likeliest, self._tokens.shape), self._tokens)
        ttnn.plus_one(self._positions)
        ttnn.plus_one(self._rope_positions)
        return logits

    def _capture(self) -> None:
        """Once to compile it, once to record it; what the first run moved on is put back."""
        mesh_device = self.model.tp.mesh_device
        tokens, positions = self._read(self._tokens), self._read(self._positions)
        self._step()
        self.go_on(tokens, positions)
        self._trace = ttnn.begin_trace_capture(mesh_device, cq_id=0)
        self.logits = self._step()
        ttnn.end_trace_capture(mesh_device, self._trace, cq_id=0)

    def _read(self, numbers: ttnn.Tensor) -> list[int]:
        """Of every user."""
        return self.model.tp.read(numbers, users=-1).flatten().tolist()

    def release(self) -> None:
        if self._trace is not None:
            ttnn.release_trace(self.model.tp.mesh_device, self._trace)
            self._trace = None


def generate(generators: Sequence[Generator], prompts: Sequence[Tokens], count: int) -> list[Tokens]:
    """`count` tokens after each prompt. Generators are groups of devices that share the users between them."""
    signpost("prefill", f"tokens={sum(map(len, prompts))}")  # what comes out is told by `softmesh estimate`
    shares: list[Sequence[Tokens]] = []
    for generator in generators:
        shares.append(prompts[: generator.users])
        prompts = prompts[generator.users :]
    first = [generator.prefill(share) for generator, share in zip(generators, shares, strict=True)]
    steps = [torch.cat(first).argmax(-1).tolist()]
    for _ in progress(range(count - 1), "Decoding"):
        signpost("decode", f"tokens={len(steps[0])}")
        steps.append([token for generator in generators for token in generator.step()])
    return [list(tokens) for tokens in zip(*steps, strict=True)]
