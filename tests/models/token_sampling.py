"""Choosing tokens on the chips: penalties for tokens already seen, the best candidates, and a draw among them."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from chip_row import Row
from sharding import DRAM

import softmesh as ttnn

USERS = 32
CANDIDATES = 32


@dataclass
class Choice:
    """What each user asks for."""

    k: torch.Tensor
    p: torch.Tensor
    temperature: torch.Tensor
    seeds: torch.Tensor

    @staticmethod
    def alike(k: int, p: float, temperature: float, seed: int = 0) -> Choice:
        every = torch.ones(USERS)
        return Choice((every * k).int(), every * p, every * temperature, torch.arange(USERS) + seed)


class Sampler:
    """Draws from the 32 best candidates of each half of each chip's part of the vocabulary."""

    def __init__(self, row: Row, vocab: int, choice: Choice) -> None:
        self._row = row
        self._own = vocab // row.chips
        self._half = self._own // 2
        offsets = torch.arange(2 * row.chips).repeat_interleave(CANDIDATES) * self._half
        self._offsets = row.replicated(offsets.expand(1, 1, USERS, -1).contiguous(), ttnn.int32)
        layout = ttnn.ROW_MAJOR_LAYOUT
        self._k = row.replicated(choice.k, ttnn.uint32, layout)
        self._p = row.replicated(choice.p, ttnn.bfloat16, layout)
        self._temperature = row.replicated(choice.temperature, ttnn.bfloat16, layout)
        self._seeds = row.replicated(choice.seeds, ttnn.uint32, layout)
        self._users = row.replicated(torch.arange(USERS), ttnn.uint32, layout)

    def __call__(self, logits: ttnn.Tensor, into: ttnn.Tensor | None = None) -> ttnn.Tensor:
        """Tokens [1, 1, 1, 32] of logits [1, 1, 32, vocab / chips]."""
        values, ids = self._candidates(ttnn.typecast(logits, dtype=ttnn.bfloat16))
        return ttnn.sampling(
            self._first_of_equals(values, ids),
            ttnn.untilize(ids, use_multicore=True),
            k=self._k,
            p=self._p,
            temp=self._temperature,
            output_tensor=into,
        )

    def reseed(self) -> None:
        ttnn.manual_seed(seeds=self._seeds, user_ids=self._users)

    def _candidates(self, logits: ttnn.Tensor) -> tuple[ttnn.Tensor, ttnn.Tensor]:
        best = [ttnn.topk(half, k=CANDIDATES, dim=-1, stable=True) for half in ttnn.split(logits, self._half, dim=3)]
        values = ttnn.concat([found[0] for found in best], dim=3)
        places = ttnn.typecast(ttnn.concat([found[1] for found in best], dim=3), dtype=ttnn.int32)
        if self._row.chips > 1:
            values, places = (self._row.all_gather(part, DRAM) for part in (values, places))
        ids = ttnn.add(places, self._offsets, dtype=ttnn.uint32, memory_config=DRAM)
        return values, ttnn.to_memory_config(ids, DRAM)

    def _first_of_equals(self, values: ttnn.Tensor, ids: ttnn.Tensor) -> ttnn.Tensor:
        """The same candidates, where of those with the largest value the lowest id leads by one step in 64."""
        top = ttnn.max(values, dim=3, keepdim=True)
        is_top, is_less = ttnn.eq(values, top), ttnn.lt(values, top)
        step = ttnn.add(ttnn.multiply(ttnn.abs(top), 0.015625), 1e-30)
        far = ttnn.typecast(ttnn.multiply(is_less, 16777216), ttnn.int32)
        order = ttnn.add(ttnn.typecast(ids, ttnn.int32), far)
        is_first = ttnn.eq(order, ttnn.min(order, dim=3, keepdim=True))
        lead = ttnn.multiply(ttnn.typecast(is_first, ttnn.bfloat16), is_top)
        return ttnn.add(values, ttnn.multiply(lead, step))


class Penalties:
    """Counts of the tokens that each user has seen and chosen, and what they take from their logits."""

    def __init__(self, row: Row, vocab: int, presence: float, frequency: float, repetition: float) -> None:
        self._vocab = vocab
        zeros = torch.zeros(USERS, vocab)
        self._seen, self._chosen, self._seen_at_all = (row.replicated(zeros, ttnn.int32) for _ in range(3))
        self._presence, self._frequency, self._repetition, self._relief = (
            row.replicated(torch.full((USERS, 1), value)) for value in (presence, frequency, repetition, 1 / repetition)
        )
        self._ones = row.replicated(torch.ones(USERS, 1), ttnn.int32, ttnn.ROW_MAJOR_LAYOUT)
        self._zeros = row.replicated(zeros, ttnn.int32, ttnn.ROW_MAJOR_LAYOUT)
        start = row.replicated(torch.zeros(2), ttnn.int32, ttnn.ROW_MAJOR_LAYOUT)
        end = row.replicated(torch.tensor([USERS, vocab]), ttnn.int32, ttnn.ROW_MAJOR_LAYOUT)
        self._all = (start, end)

    def reset(self) -> None:
        for counts in (self._seen, self._chosen, self._seen_at_all):
            ttnn.multiply(counts, 0, output_tensor=counts)

    def note(self, tokens: ttnn.Tensor) -> None:
        """Counts the tokens [1, 1, 1, 32] just chosen."""
        column = ttnn.reshape(tokens, [USERS, 1])
        new = ttnn.tilize(ttnn.scatter_add(self._zeros, 1, column, self._ones), use_low_perf=False)
        ttnn.add(self._seen, new, output_tensor=self._seen)
        ttnn.slice(self._seen, *self._all, output_tensor=self._chosen, slice_dim=1, num_devices=1)
        ttnn.gt(self._chosen, 0, output_tensor=self._seen_at_all)

    def __call__(self, logits: ttnn.Tensor) -> ttnn.Tensor:
        """Changes logits [1, 1, 32, vocab] in their place."""
        flat = ttnn.reshape(logits, [-1, self._vocab])
        seen = ttnn.typecast(self._seen_at_all, ttnn.bfloat16)
        for taken in (
            ttnn.multiply(seen, self._presence),
            ttnn.multiply(ttnn.typecast(self._chosen, ttnn.bfloat16), self._frequency),
        ):
            ttnn.subtract(flat, ttnn.typecast(taken, ttnn.bfloat16), output_tensor=flat)
        is_positive = ttnn.gt(ttnn.typecast(flat, ttnn.bfloat16), 0)
        relief = ttnn.where(seen, self._relief, 1.0)
        burden = ttnn.where(seen, self._repetition, 1.0)
        ttnn.multiply(flat, ttnn.where(is_positive, relief, burden), output_tensor=flat)
        return logits
